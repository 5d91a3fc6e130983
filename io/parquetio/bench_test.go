package parquetio

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk/connector"
	"github.com/parquet-go/parquet-go"
)

// benchFile is a file with the columns of benchRow, by default the sample of the flights example.
func benchFile() string {
	if f := os.Getenv("PARQUETIO_BENCH_FILE"); f != "" {
		return f
	}
	return "../../examples/flights/testdata/flights-100k.parquet"
}

type benchRow struct {
	Date   time.Time `parquet:"date"`
	Delay  int64     `parquet:"delay"`
	Origin string    `parquet:"origin"`
}

// BenchmarkRead reads three of the five columns of a file, by this package and by the library's generic
// reader. PARQUETIO_BENCH_FILE names another file than the sample.
func BenchmarkRead(b *testing.B) {
	b.Run("parquetio", func(b *testing.B) {
		src := Source[benchRow](benchFile())
		b.ReportAllocs()
		total := 0
		for b.Loop() {
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
			for {
				batch, err := r.Read(b.Context(), 1024)
				if err != nil {
					b.Fatal(err)
				}
				total += len(batch.Records)
				if batch.Status == connector.End {
					break
				}
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("library", func(b *testing.B) {
		type row struct {
			Date   int64  `parquet:"date,optional,timestamp(microsecond:local)"`
			Delay  int64  `parquet:"delay,optional"`
			Origin string `parquet:"origin,optional"`
		}
		b.ReportAllocs()
		total := 0
		rows := make([]row, 1024)
		for b.Loop() {
			f, err := os.Open(benchFile())
			if err != nil {
				b.Fatal(err)
			}
			r := parquet.NewGenericReader[row](f)
			for {
				n, err := r.Read(rows)
				total += n
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			r.Close()
			f.Close()
		}
		b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "rows/s")
	})
}
