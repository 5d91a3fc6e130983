package kernel

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/millstream/millstream/statebackend"
)

// TestChangesAreOneBatch: operations that fill several pieces come to the bytes of one batch, and a failure stays.
func TestChangesAreOneBatch(t *testing.T) {
	var c changes
	var want statebackend.Batch
	value := make([]byte, 1000)
	for i := range uint64(3 * pieceBytes / 1000) {
		key := binary.BigEndian.AppendUint64(nil, i)
		switch i % 10 {
		case 8:
			c.Delete(key)
			want.Delete(key)
		case 9:
			r := statebackend.Range{Start: key, End: statebackend.After(nil, key)}
			c.DeleteRange(r)
			want.DeleteRange(r)
		default:
			c.Put(key, value)
			want.Put(key, value)
		}
	}
	if len(c.full) < 2 {
		t.Errorf("%d pieces are full, want two at least", len(c.full))
	}
	if !bytes.Equal(c.Pieces().Bytes(), want.Bytes()) {
		t.Error("the pieces are not the batch")
	}
	c.Delete(make([]byte, statebackend.MaxKeyBytes+1))
	for range 3 * pieceBytes / 1000 {
		c.Put([]byte("key"), value)
	}
	if c.Err() == nil {
		t.Error("a key that is too long is no error any more")
	}
}
