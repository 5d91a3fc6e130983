package files

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millstream/millstream/sdk/connector"
)

// member compresses a text.
func member(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads the splits of numbers to the end.
func readAll(t *testing.T, splits []Split) (out []int64, err error) {
	t.Helper()
	r, err := numbers().Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Assign(splits); err != nil {
		t.Fatal(err)
	}
	for {
		b, err := r.Read(t.Context(), 1000)
		if err != nil {
			return out, err
		}
		if out = append(out, b.Records...); b.Status == connector.End {
			return out, nil
		}
	}
}

func TestCompressedFileThatIsNotReadableIsNamed(t *testing.T) {
	good := member(t, strings.Repeat("1\n", 1000))
	flipped := bytes.Clone(good)
	flipped[len(flipped)-6] ^= 1 // of the checksum
	for name, c := range map[string]struct {
		bytes []byte
		says  []string
	}{
		"plain.gz":    {[]byte("1\n2\n3\n4\n5\n6\n7\n8\n"), []string{"no gzip file", "invalid header"}},
		"cut.gz":      {good[:len(good)-10], []string{"cut off", "unexpected EOF"}},
		"checksum.gz": {flipped, []string{"damaged", "invalid checksum"}},
		"followed.gz": {append(bytes.Clone(good), "this is no member"...), []string{"damaged", "invalid header"}},
		"bad.gz":      {member(t, "1\n2\nthree\n"), []string{"line 3 (byte 4)", "three"}},
		"long.gz":     {member(t, "1\n"+strings.Repeat("2", MaxLine+1)), []string{"the line at byte 2 is longer than"}},
	} {
		t.Run(name, func(t *testing.T) {
			name := write(t, filepath.Join(t.TempDir(), name), string(c.bytes))
			splits, err := numbers(name).Splits(t.Context())
			if err != nil || len(splits) != 1 {
				t.Fatalf("splits are %v, %v", splits, err)
			}
			_, err = readAll(t, splits)
			for _, want := range append(c.says, "read "+name) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestCompressedFileIsReadAsItWasListed(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "f.gz"), string(member(t, "1\n2\n")))
	splits, err := numbers(name).Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(member(t, "3\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, splits); err != nil || len(got) != 2 {
		t.Errorf("read %v, %v; want 1 and 2", got, err)
	}
	splits[0].Next = 100
	if _, err := readAll(t, splits); err == nil || !strings.Contains(err.Error(), "has changed since it was read: its text has 4 bytes, fewer than 100") {
		t.Errorf("a position behind the end: %v", err)
	}
}
