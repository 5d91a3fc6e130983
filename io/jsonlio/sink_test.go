package jsonlio

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

type testRow = connectortest.Row

func TestSinkConforms(t *testing.T) {
	for name, opts := range map[string][]SinkOption{"plain": nil, "gzip": {Gzip()}} {
		t.Run(name, func(t *testing.T) {
			connectortest.Sink(t, func(t *testing.T) connectortest.Place[Part] {
				dir := filepath.Join(t.TempDir(), "made", "by", "start")
				return connectortest.Place[Part]{
					Open: func() connector.Sink[testRow, Part] { return Sink[testRow](dir, opts...) },
					Rows: func() ([]testRow, error) { return visible(dir) },
				}
			})
		})
	}
}

// visible reads the data files of a directory by encoding/json and gzip alone.
func visible(dir string) (rows []testRow, _ error) {
	files, err := filepath.Glob(filepath.Join(dir, "[^.]*.jsonl*"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.HasSuffix(f, ".gz") {
			b, err = unzip(b)
		}
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) == 1 || lines[len(lines)-1] != "" {
			return nil, fmt.Errorf("%s is empty, or its last line has no end", f)
		}
		for _, line := range lines[:len(lines)-1] {
			var r testRow
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func unzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func TestSinkRefusesAValueThatIsNotJSON(t *testing.T) {
	dir := t.TempDir()
	s := Sink[map[string]float64](dir)
	w, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	records := []connector.Record[map[string]float64]{{Value: map[string]float64{"ratio": math.NaN()}}}
	if err = w.Write(t.Context(), records); err == nil || !strings.Contains(err.Error(), "map[ratio:NaN]") {
		t.Errorf("write: %v; want an error with the value", err)
	}
	if _, err := w.Prepare(t.Context(), 1); err == nil {
		t.Error("the checkpoint passed a record that was not written")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestSinkRefusesALineThatIsTooLong(t *testing.T) {
	s := Sink[string](t.TempDir())
	for length, fails := range map[int]bool{MaxLine - 2: false, MaxLine - 1: true} { // and two quotes
		w, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Write(t.Context(), []connector.Record[string]{{Value: strings.Repeat("x", length)}})
		if (err != nil) != fails {
			t.Errorf("%d characters: error is %v", length, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSinkWritesCompactUnescapedLines(t *testing.T) {
	dir := t.TempDir()
	s := Sink[json.RawMessage](dir)
	w, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), []connector.Record[json.RawMessage]{{Value: json.RawMessage("{\n \"a\": \"<&>\" }")}}); err != nil {
		t.Fatal(err)
	}
	parts, err := w.Prepare(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), 1, parts); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "part-00000001-0000-"+parts[0].Nonce+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), "{\"a\":\"<&>\"}\n"; got != want {
		t.Errorf("file is %q, want %q", got, want)
	}
}
