package statebackend_test

import (
	"bytes"
	"testing"
	"testing/iotest"

	"github.com/millstream/millstream/statebackend"
)

func TestPiecesAreWhatTheyWereCutFrom(t *testing.T) {
	whole := []byte("a batch in pieces")
	for i := range whole {
		for k := i; k <= len(whole); k++ {
			p := statebackend.Pieces{whole[:i], nil, whole[i:k], whole[k:]}
			if p.Size() != int64(len(whole)) || !bytes.Equal(p.Bytes(), whole) {
				t.Fatalf("cut at %d and %d: %d bytes, %q", i, k, p.Size(), p.Bytes())
			}
			for from := range whole {
				for to := from; to <= len(whole); to++ {
					got := make([]byte, to-from)
					if n, err := p.ReadAt(got, int64(from)); n != len(got) || err != nil || !bytes.Equal(got, whole[from:to]) {
						t.Fatalf("cut at %d and %d, read [%d, %d): %q, %v", i, k, from, to, got[:n], err)
					}
				}
			}
		}
	}
	p := statebackend.Pieces{whole[:3], whole[3:]}
	if err := iotest.TestReader(&readerAt{p, 0}, whole); err != nil {
		t.Error(err)
	}
	if _, err := p.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("a negative offset is read")
	}
}

// readerAt reads with many calls of ReadAt.
type readerAt struct {
	p  statebackend.Pieces
	at int64
}

func (r *readerAt) Read(b []byte) (int, error) {
	n, err := r.p.ReadAt(b, r.at)
	r.at += int64(n)
	return n, err
}
