package textio_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// zip compresses each text as a member of its own.
func zip(t *testing.T, texts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts {
		z := gzip.NewWriter(&b)
		if _, err := io.WriteString(z, text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestSourceConforms(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "0.txt"), nil)
	write(t, filepath.Join(dir, "1.txt"), []byte("to be\r\nor not\r\n\n\r\nto be\n\xff\xfe\nthat is"))
	write(t, filepath.Join(dir, "2.txt"), []byte(strings.Repeat("ä", 300)+"\n\n"))
	write(t, filepath.Join(dir, "3.txt.gz"), zip(t, "the ques", "tion\r\n\n", "", "whether"))
	write(t, filepath.Join(dir, "4.txt.gz"), zip(t, ""))
	write(t, filepath.Join(dir, "5.txt.gz"), nil)
	write(t, filepath.Join(dir, ".hidden.txt"), []byte("no"))
	write(t, filepath.Join(dir, "README"), []byte("no"))
	want := []string{"to be", "or not", "", "", "to be", "\xff\xfe", "that is", strings.Repeat("ä", 300), "", "the question", "", "whether"}
	for _, size := range []int64{7, 100, 64 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			connectortest.Source(t, func() connector.Source[string, textio.Split] {
				return textio.Source([]string{dir}, textio.SplitBytes(size))
			}, want)
			connectortest.Splitter(t, func() connector.Source[string, textio.Split] {
				return textio.Source([]string{dir}, textio.SplitBytes(size))
			}, want)
		})
	}
}

// rows writes the rows of the suite as JSON, which has no end of line in it.
type rows struct{ *textio.FileSink }

type rowWriter struct {
	connector.Writer[string, textio.Part]
}

func (r rows) Open(ctx context.Context, sub connector.Subtask) (connector.Writer[connectortest.Row, textio.Part], error) {
	w, err := r.FileSink.Open(ctx, sub)
	return rowWriter{w}, err
}

func (w rowWriter) Write(ctx context.Context, records []connector.Record[connectortest.Row]) error {
	lines := make([]connector.Record[string], len(records))
	for i, r := range records {
		b, err := json.Marshal(r.Value)
		if err != nil {
			return err
		}
		lines[i].Value = string(b)
	}
	return w.Writer.Write(ctx, lines)
}

func TestSinkConforms(t *testing.T) {
	for name, opts := range map[string][]textio.SinkOption{"plain": nil, "gzip": {textio.Gzip()}} {
		t.Run(name, func(t *testing.T) {
			connectortest.Sink(t, func(t *testing.T) connectortest.Place[textio.Part] {
				dir := filepath.Join(t.TempDir(), "made", "by", "start")
				return connectortest.Place[textio.Part]{
					Open: func() connector.Sink[connectortest.Row, textio.Part] { return rows{textio.Sink(dir, opts...)} },
					Rows: func() (out []connectortest.Row, _ error) {
						lines, err := committed(dir)
						for _, line := range lines {
							var r connectortest.Row
							err = errors.Join(err, json.Unmarshal([]byte(line), &r))
							out = append(out, r)
						}
						return out, err
					},
				}
			})
		})
	}
}

// committed reads the data files of a directory without this package.
func committed(dir string) (lines []string, _ error) {
	names, err := filepath.Glob(filepath.Join(dir, "[^.]*.txt*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && strings.HasSuffix(name, ".gz") {
			var z *gzip.Reader
			if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
				b, err = io.ReadAll(z)
			}
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(string(b), "\n") {
			return nil, fmt.Errorf("%s is empty, or its last line has no end", name)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	}
	return lines, nil
}

func TestSinkRefusesAnElementOfTwoLines(t *testing.T) {
	w, err := textio.Sink(t.TempDir()).Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write(t.Context(), []connector.Record[string]{{Value: "one"}, {Value: "to\nbe"}})
	if err == nil || !strings.Contains(err.Error(), `"to\nbe"`) || !strings.Contains(err.Error(), "byte 2") {
		t.Errorf("write: %v", err)
	}
	if _, err := w.Prepare(t.Context(), 1); err == nil {
		t.Error("the checkpoint passed an element that was not written")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadFilesTakesAListAndEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := write(t, filepath.Join(dir, "a.log"), []byte("a\n")), write(t, filepath.Join(dir, "b.txt"), []byte("b\n"))
	out := t.TempDir()
	_, err := direct.Run(t.Context(), "copy", func(p *sdk.Pipeline) error {
		lines := textio.ReadFiles("read", p, []string{b, dir, filepath.Join(dir, "*.log"), filepath.Join(dir, ".", "a.log"), a})
		textio.Write("write", lines, out)
		return nil
	}, direct.Options{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := committed(out)
	if d := cmp.Diff([]string{"b", "a"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// A pipeline copies plain and compressed files while it is restored again and again.
func TestPipelineThatIsRestoredCopiesEachLineOnce(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new")
	var want []string
	for f := range 4 {
		var text strings.Builder
		for i := range 100 {
			want = append(want, fmt.Sprint(f, " ", i))
			fmt.Fprintf(&text, "%d %d\r\n", f, i)
		}
		if f%2 == 0 {
			write(t, filepath.Join(from, fmt.Sprint(f, ".txt")), []byte(text.String()))
		} else {
			write(t, filepath.Join(from, fmt.Sprint(f, ".txt.gz")), zip(t, text.String()))
		}
	}
	result, err := direct.Run(t.Context(), "copy", func(p *sdk.Pipeline) error {
		textio.Write("write", textio.Read("read", p, from, textio.SplitBytes(100)), to, textio.Gzip())
		return nil
	}, direct.Options{Parallelism: 3, RestoreEvery: 70, ReadBatch: 10})
	if err != nil {
		t.Fatal(err)
	}
	got, err := committed(to)
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if result.Restores == 0 {
		t.Error("it was never restored")
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "textio")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	build := func(p *sdk.Pipeline) error {
		lines := sdk.Create("lines", p, "to be", "or not")
		textio.Write("write", sdk.Map("shout", lines, strings.ToUpper), dir, textio.Gzip())
		return nil
	}
	if _, err := direct.Run(context.Background(), "shout", build, direct.Options{Parallelism: 1}); err != nil {
		fmt.Println(err)
	}
	again := func(p *sdk.Pipeline) error {
		sdk.Print("print", sdk.Filter("short", textio.Read("read", p, dir), func(s string) bool { return len(s) < 6 }))
		return nil
	}
	if _, err := direct.Run(context.Background(), "print", again, direct.Options{Parallelism: 1}); err != nil {
		fmt.Println(err)
	}
	// Output: TO BE @-290308-12-21T19:59:05.225Z [global]
}

// BenchmarkRead reads lines of 60 bytes, and compares with bufio.Scanner.
func BenchmarkRead(b *testing.B) {
	const lines = 200_000
	name := filepath.Join(b.TempDir(), "f.txt")
	if err := os.WriteFile(name, []byte(strings.Repeat(strings.Repeat("x", 59)+"\n", lines)), 0o666); err != nil {
		b.Fatal(err)
	}
	b.Run("textio", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			src := textio.Source([]string{name})
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
		}
		b.ReportMetric(float64(b.N*lines)/b.Elapsed().Seconds(), "lines/s")
	})
	b.Run("scanner", func(b *testing.B) {
		b.ReportAllocs()
		var kept [1024]string
		for b.Loop() {
			f, err := os.Open(name)
			if err != nil {
				b.Fatal(err)
			}
			i := 0
			for s := bufio.NewScanner(f); s.Scan(); i++ {
				kept[i%1024] = s.Text()
			}
			f.Close()
		}
		b.ReportMetric(float64(b.N*lines)/b.Elapsed().Seconds(), "lines/s")
	})
}
