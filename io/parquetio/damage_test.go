package parquetio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

type damaged struct {
	ID   int64
	Word string   `parquet:"Word,dict"`
	Text string   `parquet:"Text"`
	May  *float64 `parquet:"May,optional"`
	Yes  bool
}

func damagedFile(t testing.TB) []byte {
	var rows []damaged
	for i := range 60 {
		f := float64(i)
		rows = append(rows, damaged{ID: int64(i), Word: "word", Text: strings.Repeat("t", i), May: []*float64{&f, nil}[i%2], Yes: i%3 == 0})
	}
	name := writeFile(t, filepath.Join(t.TempDir(), "f"), rows, parquet.MaxRowsPerRowGroup(25), parquet.PageBufferSize(100), parquet.Compression(&parquet.Snappy))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatIsCutOffIsAnError(t *testing.T) {
	whole := damagedFile(t)
	name := filepath.Join(t.TempDir(), "f")
	for n := 0; n < len(whole); n += 1 + n%5 {
		put(t, name, whole[:n])
		_, err := read(t, Source[damaged](name), 10)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("%d of %d bytes: error is %v", n, len(whole), err)
		}
	}
	put(t, name, whole)
	if rows, err := read(t, Source[damaged](name), 10); err != nil || len(rows) != 60 {
		t.Fatalf("whole: %d rows, %v", len(rows), err)
	}
}

// TestDamagedFilesAreErrors changes bytes at random. A change may go unnoticed and alter a value, but it
// never makes the reader panic, stop short, or take memory out of all proportion.
func TestDamagedFilesAreErrors(t *testing.T) {
	r, again := seeded(t)
	whole := damagedFile(t)
	name := filepath.Join(t.TempDir(), "f")
	var before, after runtime.MemStats
	failed := 0
	const tries = 500
	for range tries {
		b := bytes.Clone(whole)
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		put(t, name, b)
		runtime.ReadMemStats(&before)
		rows, err := read(t, Source[damaged](name), 10)
		runtime.ReadMemStats(&after)
		if err != nil {
			failed++
			if !strings.Contains(err.Error(), name) {
				t.Fatalf("error does not name the file: %v\n%s", err, again)
			}
		} else if len(rows) > 60 {
			t.Fatalf("%d rows of 60\n%s", len(rows), again)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 200<<20 {
			t.Fatalf("%d MiB were allocated to read %d bytes (error: %v)\n%s", took>>20, len(b), err, again)
		}
	}
	if failed < tries/10 {
		t.Errorf("%d of %d damaged files were errors, which is too few to believe\n%s", failed, tries, again)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(damagedFile(f))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "f")
		put(t, name, b)
		rows, err := read(t, Source[damaged](name), 10)
		if err == nil && len(rows) > 1<<20 {
			t.Errorf("%d rows of %d bytes", len(rows), len(b))
		}
	})
}

func TestFootersThatLie(t *testing.T) {
	footer := func(b ...byte) []byte {
		out := append([]byte("PAR1"), b...)
		return append(binary.LittleEndian.AppendUint32(out, uint32(len(b))), "PAR1"...)
	}
	deep := bytes.Repeat([]byte{0x1c}, 1000) // a struct in a struct …
	for want, b := range map[string][]byte{
		"it has 0 bytes only":      {},
		"it begins with":           []byte("%PDF-1.7 and so on"),
		"was it cut off":           []byte("PAR1 and so on, but no end"),
		"encrypted":                []byte("PARE 1234 4567 89 PARE"),
		"footer would have":        []byte("PAR1\xff\xff\xff\x7fPAR1"),
		"cut off":                  footer(0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07), // a list of 2 thousand million structs
		"metadata is cut off":      footer(0x18, 0xff, 0xff, 0xff, 0xff, 0x07, 'x'),  // a string of as many bytes
		"deeper than 32":           footer(deep...),
		"type 11":                  footer(0x1b, 0, 0),
		"more than 64 bits":        footer(bytes.Repeat([]byte{0x16, 0xff}, 40)[0], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0),
		"reading parquet file met": footer(0),
	} {
		name := filepath.Join(t.TempDir(), "f")
		put(t, name, b)
		_, err := Source[damaged](name).Splits(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestSkimStructGoesOverWhatTheLibraryWrites(t *testing.T) {
	b := damagedFile(t)
	n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	footer := b[len(b)-8-n : len(b)-8]
	if got, err := skimStruct(footer); got != n || err != nil {
		t.Errorf("%d bytes, %v; want %d", got, err, n)
	}
	for i := range footer {
		if _, err := skimStruct(footer[:i]); !errors.Is(err, errCutOff) {
			t.Errorf("%d of %d bytes: error is %v", i, n, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 { // it must come back, whatever it says
		c := bytes.Clone(footer)
		c[r.IntN(len(c))] = byte(r.Int())
		if got, err := skimStruct(c); err == nil && got > n {
			t.Errorf("%d bytes of %d", got, n)
		}
	}
}
