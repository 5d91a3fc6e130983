package jsonlio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSourceConforms(t *testing.T) {
	dir := t.TempDir()
	var want []testRow
	for f := range 3 {
		var b strings.Builder
		for i := range 12 * f { // the first file is empty
			want = append(want, testRow{ID: int64(100*f + i), Text: strings.Repeat("ä", i)})
			fmt.Fprintf(&b, "{\"ID\":%d,\"Text\":%q}\r\n\n", 100*f+i, strings.Repeat("ä", i))
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", f)), b.String())
	}
	write(t, filepath.Join(dir, ".hidden.jsonl"), "not JSON")
	write(t, filepath.Join(dir, "README"), "not JSON")
	for _, size := range []int64{20, 1 << 10, 64 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			connectortest.Source(t, func() connector.Source[testRow, Split] { return Source[testRow](dir, SplitBytes(size)) }, want)
			connectortest.Splitter(t, func() connector.Source[testRow, Split] { return Source[testRow](dir, SplitBytes(size)) }, want)
		})
	}
}

// read reads all splits one after the other.
func read[T any](t *testing.T, s *FileSource[T]) (out []T, err error) {
	t.Helper()
	splits, err := s.Splits(t.Context())
	if err != nil {
		return nil, err
	}
	r, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Assign(splits); err != nil {
		return nil, err
	}
	for len(splits) > 0 {
		b, err := r.Read(t.Context(), 10)
		if err != nil {
			return out, err
		}
		if out = append(out, b.Records...); b.Status == connector.End {
			break
		}
	}
	return out, nil
}

func TestSourceTakesAFileADirectoryOrAPattern(t *testing.T) {
	dir := t.TempDir()
	one := write(t, filepath.Join(dir, "b[1].jsonl"), "1\n")
	write(t, filepath.Join(dir, "a.jsonl"), "2") // no end of line
	write(t, filepath.Join(dir, "c.json"), "3\n")
	for path, want := range map[string][]int{
		one:                          {1},
		dir:                          {2, 1},
		filepath.Join(dir, "[bc]*"):  {1, 3},
		filepath.Join(dir, "*.json"): {3},
	} {
		got, err := read(t, Source[int](path))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", path, err, diff)
		}
	}
}

func TestSourceErrorsNameFileAndLine(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	bad := write(t, filepath.Join(dir, "bad.jsonl"), "1\n\n2\nthree\n4\n")
	long := write(t, filepath.Join(dir, "long.jsonl"), "1\n\""+strings.Repeat("x", MaxLine)+"\"\n")
	longLast := write(t, filepath.Join(dir, "last.jsonl"), "1\n\""+strings.Repeat("x", MaxLine))
	for path, want := range map[string][]string{
		filepath.Join(dir, "none"):   {"none", "no such file"},
		filepath.Join(dir, "none*"):  {"none*", "no file matches"},
		filepath.Join(dir, "[none*"): {"[none*", "syntax error"},
		empty:                        {"empty", "no file matches"},
		filepath.Join(dir, "emp*"):   {"empty", "not a regular file"},
		bad:                          {bad, "line 4 (byte 5)", "three"},
		long:                         {long, "byte 2", "longer than"},
		longLast:                     {longLast, "byte 2", "longer than"},
	} {
		_, err := read(t, Source[any](path))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error is %v, want %q in it", path, err, w)
			}
		}
	}
}
