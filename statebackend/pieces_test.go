package statebackend_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/millstream/millstream/statebackend"
)

// scratch makes files in a directory.
type scratch struct {
	dir   string
	files []*os.File
}

func (s *scratch) Scratch() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "")
	if err == nil {
		s.files = append(s.files, f)
	}
	return f, err
}

func TestPiecesAreWhatTheyWereCutFrom(t *testing.T) {
	whole := []byte("a batch in pieces")
	s := &scratch{dir: t.TempDir()}
	for i := range whole {
		for k := i; k <= len(whole); k++ {
			var p, rest statebackend.Pieces
			p.Add(whole[:i])
			for _, b := range [][]byte{whole[i:k], whole[k : k+(len(whole)-k)/2]} { // in one file
				if err := p.Write(s, b); err != nil {
					t.Fatal(err)
				}
			}
			if err := rest.Write(s, whole[k+(len(whole)-k)/2:]); err != nil {
				t.Fatal(err)
			}
			p.Append(&rest)
			if p.Size() != int64(len(whole)) {
				t.Fatalf("cut at %d and %d: %d bytes", i, k, p.Size())
			}
			for from := range whole {
				for to := from; to <= len(whole); to++ {
					got := make([]byte, to-from)
					if n, err := p.ReadAt(got, int64(from)); n != len(got) || err != nil || !bytes.Equal(got, whole[from:to]) {
						t.Fatalf("cut at %d and %d, read [%d, %d): %q, %v", i, k, from, to, got[:n], err)
					}
				}
			}
			if err := iotest.TestReader(&readerAt{&p, 0}, whole); err != nil {
				t.Error(err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, f := range s.files {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("a file is open after Close: %v", err)
		}
	}
}

func TestPiecesReportWhatCannotBeKept(t *testing.T) {
	var p statebackend.Pieces
	if _, err := p.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("a negative offset is read")
	}
	if err := p.Write(&scratch{dir: filepath.Join(t.TempDir(), "missing")}, []byte("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("written without a file: %v", err)
	}
	s := &scratch{dir: t.TempDir()}
	if err := p.Write(s, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Write(s, []byte("y")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("written to a closed file: %v", err)
	}
	if _, err := p.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read from a closed file: %v", err)
	}
}

// readerAt reads with many calls of ReadAt.
type readerAt struct {
	p  *statebackend.Pieces
	at int64
}

func (r *readerAt) Read(b []byte) (int, error) {
	n, err := r.p.ReadAt(b, r.at)
	r.at += int64(n)
	return n, err
}
