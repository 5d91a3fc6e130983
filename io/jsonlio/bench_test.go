package jsonlio

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk/connector"
)

// board is a row as the flights example writes it.
type board struct {
	Origin  string    `json:"origin"`
	Hour    time.Time `json:"hour"`
	Flights int64     `json:"flights"`
	Delay   float64   `json:"delay"`
}

func boards() []connector.Record[board] {
	records := make([]connector.Record[board], 1024)
	for i := range records {
		records[i].Value = board{"ORD", time.Unix(978300000+int64(i)*3600, 0).UTC(), int64(i), float64(i) / 7}
	}
	return records
}

// BenchmarkWrite writes and prepares, and compares with encoding into memory alone.
func BenchmarkWrite(b *testing.B) {
	records := boards()
	b.Run("jsonlio", func(b *testing.B) {
		s := Sink[board](b.TempDir())
		w, err := s.Open(b.Context(), connector.Subtask{Parallelism: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Write(b.Context(), records); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.Prepare(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N*len(records))/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("encoding-json", func(b *testing.B) {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		b.ReportAllocs()
		for b.Loop() {
			out.Reset()
			for i := range records {
				if err := enc.Encode(&records[i].Value); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N*len(records))/b.Elapsed().Seconds(), "rows/s")
	})
}

// BenchmarkRead reads what BenchmarkWrite writes, and compares with decoding from memory alone.
func BenchmarkRead(b *testing.B) {
	const rows = 100 * 1024
	dir := b.TempDir()
	s := Sink[board](dir)
	w, err := s.Open(b.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		b.Fatal(err)
	}
	for range rows / 1024 {
		if err := w.Write(b.Context(), boards()); err != nil {
			b.Fatal(err)
		}
	}
	parts, err := w.Prepare(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Commit(b.Context(), 1, parts); err != nil {
		b.Fatal(err)
	}
	b.Run("jsonlio", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			src := Source[board](filepath.Join(dir, "*.jsonl"))
			splits, err := src.Splits(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			r, err := src.Open(b.Context(), connector.Subtask{Parallelism: 1})
			if err != nil {
				b.Fatal(err)
			}
			if err := r.Assign(splits); err != nil {
				b.Fatal(err)
			}
			for status := connector.More; status != connector.End; {
				batch, err := r.Read(b.Context(), 1024)
				if err != nil {
					b.Fatal(err)
				}
				status = batch.Status
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("encoding-json", func(b *testing.B) {
		line, err := json.Marshal(boards()[7].Value)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			var v board
			if err := json.Unmarshal(line, &v); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}
