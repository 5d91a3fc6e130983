package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk/connector"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// numbers reads a number a line.
func numbers(paths ...string) *Source[int64] {
	decode := func(out []int64, line []byte) ([]int64, error) {
		n, err := strconv.ParseInt(strings.TrimSuffix(string(line), "\r"), 10, 64)
		return append(out, n), err
	}
	return NewSource(paths, ".txt", func() Decode[int64] { return decode }, nil)
}

func TestSourceNoticesThatAFileWasCutOff(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "f.jsonl"), "1\n2\n3\n")
	s := numbers(name)
	splits, err := s.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Assign(splits); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("error is %v", err)
	}
}

func TestReaderRefusesAPositionOutsideOfItsSplit(t *testing.T) {
	for _, sp := range []Split{{Start: -1}, {Start: 5, Next: 4, End: 9}, {Start: 5, Next: 5, End: 4}} {
		if err := (&reader[int64]{}).Assign([]Split{sp}); err == nil {
			t.Errorf("%+v was taken", sp)
		}
	}
}

// rangesOf cuts text into ranges at cuts and returns the lines that each has, read with a small buffer.
func rangesOf(text string, cuts []int64, buffer int) (out []string, _ error) {
	for i := range len(cuts) - 1 {
		l := lines{buf: make([]byte, buffer)}
		l.reset(strings.NewReader(text[cuts[i]:]), cuts[i])
		if cuts[i] > 0 {
			l.reset(strings.NewReader(text[cuts[i]-1:]), cuts[i]-1)
			if err := l.skip(cuts[i+1]); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		for {
			at := l.at
			line, err := l.next(cuts[i+1])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if at < cuts[i] || at >= cuts[i+1] {
				return nil, fmt.Errorf("range [%d, %d) has the line at %d", cuts[i], cuts[i+1], at)
			}
			out = append(out, string(line))
		}
	}
	return out, nil
}

// The text and the rule are those of https://github.com/apache/beam/pull/30026: at every cut and with
// every size of the buffer, each line comes once.
func TestEveryCutAndBufferGivesEachLineOnce(t *testing.T) {
	const text = "aa\r\nbbb\r\n\r\nc"
	want := strings.Split(text, "\n")
	for buffer := 1; buffer <= len(text)+1; buffer++ {
		for a := int64(0); a <= int64(len(text)); a++ {
			for b := a; b <= int64(len(text)); b++ {
				got, err := rangesOf(text, []int64{0, a, b, int64(len(text))}, buffer)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Fatalf("cut at %d and %d, buffer of %d: %v (-want +got):\n%s", a, b, buffer, err, diff)
				}
			}
		}
	}
}

func TestRandomCutsGiveEachLineOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FILES_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var text bytes.Buffer
		for range r.IntN(12) {
			text.WriteString(strings.Repeat("x", r.IntN(9)))
			text.WriteByte('\n')
		}
		text.WriteString(strings.Repeat("y", r.IntN(5)))
		cuts := []int64{0}
		for cuts[len(cuts)-1] < int64(text.Len()) {
			cuts = append(cuts, min(int64(text.Len()), cuts[len(cuts)-1]+int64(r.IntN(8))))
		}
		want := strings.SplitAfter(text.String(), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1] // no line begins at the end
		}
		got, err := rangesOf(text.String(), cuts, 1+r.IntN(20))
		for i := range want {
			want[i] = strings.TrimSuffix(want[i], "\n")
		}
		if diff := cmp.Diff(want, append([]string{}, got...)); err != nil || diff != "" {
			t.Fatalf("%q cut at %v: %v (-want +got):\n%s\nrun again: FILES_SEED=%d go test -run %s", text.String(), cuts, err, diff, seed, t.Name())
		}
	}
}
