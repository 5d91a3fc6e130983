package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millstream/millstream/statebackend"
)

// roomy makes files in a directory, as a backend on disk does.
type roomy struct {
	statebackend.Backend
	dir  string
	made int
}

func (f *roomy) Scratch() (*os.File, error) {
	f.made++
	return os.CreateTemp(f.dir, "")
}

// TestChangesAreOneBatch: operations that fill several pieces come to the bytes of one batch, wherever they lie, and a failure stays.
func TestChangesAreOneBatch(t *testing.T) {
	const pieces = 6
	cache := int64(8 * pieceBytes) // one piece is to be in memory
	for _, c := range []struct {
		name    string
		backend statebackend.Backend
		inFile  int64
	}{
		{"in memory", nil, 0},
		{"in a file", &roomy{dir: t.TempDir()}, (pieces - 2) * pieceBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes := newChanges(c.backend, &cache)
			var want statebackend.Batch
			value := make([]byte, 1000)
			for i := range uint64(pieces * pieceBytes / 800) {
				key := binary.BigEndian.AppendUint64(nil, i)
				switch i % 10 {
				case 8:
					changes.Delete(key)
					want.Delete(key)
				case 9:
					r := statebackend.Range{Start: key, End: statebackend.After(nil, key)}
					changes.DeleteRange(r)
					want.DeleteRange(r)
				default:
					changes.Put(key, value)
					want.Put(key, value)
				}
			}
			all := changes.finish()
			if !bytes.Equal(joined(all), want.Bytes()) {
				t.Error("the pieces are not the batch")
			}
			if err := all.Close(); err != nil {
				t.Error(err)
			}
			if f, ok := c.backend.(*roomy); ok && (f.made != 1 || inFiles(t, f.dir) < c.inFile) {
				t.Errorf("%d files have %d bytes, want one with %d at least", f.made, inFiles(t, f.dir), c.inFile)
			}
		})
	}
}

func inFiles(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		i, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += i.Size()
	}
	return n
}

func TestChangesKeepTheirFirstError(t *testing.T) {
	value := make([]byte, 1000)
	none := int64(0)
	long := newChanges(nil, &none)
	long.Delete(make([]byte, statebackend.MaxKeyBytes+1))
	nowhere := newChanges(&roomy{dir: filepath.Join(t.TempDir(), "missing")}, &none)
	for range 3 * pieceBytes / 1000 {
		long.Put([]byte("key"), value)
		nowhere.Put([]byte("key"), value)
	}
	if long.Err() == nil {
		t.Error("a key that is too long is no error any more")
	}
	if !errors.Is(nowhere.Err(), os.ErrNotExist) {
		t.Errorf("without a file: %v", nowhere.Err())
	}
}
