package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// altered is a store whose objects have changed since they were stored.
type altered struct {
	checkpoint.Store
	alter func([]byte) []byte
}

func (a altered) Fetch(ctx context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	b, err := checkpoint.ReadAll(ctx, a.Store, ref)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(a.alter(b))), nil
}

// TestDeltasAreRestoredOnlyAsTheyWereStored: a delta that a restore writes in several pieces, and every way in which it can have changed.
func TestDeltasAreRestoredOnlyAsTheyWereStored(t *testing.T) {
	const entries = 3000
	value := make([]byte, 1000)
	key := func(n int) []byte {
		k := binary.BigEndian.AppendUint64(nil, uint64(n))
		return statebackend.AppendWindowKey(nil, 0, 0, 1, statebackend.KeyGroupFor(k, statebackend.DefaultKeyGroups), k)
	}
	var batch statebackend.Batch
	for n := range entries {
		batch.Put(key(n), value)
	}
	batch.Delete(key(7))
	store := &checkpoint.MemoryStore{}
	ref, err := store.Put(t.Context(), 1, "delta", bytes.NewReader(batch.Bytes()), int64(batch.Size()))
	if err != nil {
		t.Fatal(err)
	}
	c := &checkpoint.Checkpoint{ID: 1, Parts: []checkpoint.Part{{Checkpoint: 1, Stage: "stage", Nodes: []checkpoint.NodePart{
		{Node: "step", Keyed: &checkpoint.Keyed{Deltas: []checkpoint.Delta{{Checkpoint: 1, Ref: ref}}}},
	}}}}
	last := batch.Size() - 1
	for _, test := range []struct {
		name  string
		alter func([]byte) []byte
		ok    bool
	}{
		{"as it was", func(b []byte) []byte { return b }, true},
		{"empty", func([]byte) []byte { return nil }, false},
		{"cut off in an operation", func(b []byte) []byte { return b[:last] }, false},
		{"cut off behind an operation", func(b []byte) []byte { return b[:bytes.Index(b, key(2900))-2] }, false},
		{"an operation longer", func(b []byte) []byte { return append(b, 2, 1, 'k', 0) }, false},
		{"a value has changed", func(b []byte) []byte { b[bytes.Index(b, key(5))+len(key(5))+100]++; return b }, false},
		{"the last byte has changed", func(b []byte) []byte { b[last]++; return b }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := c.Open(t.Context(), altered{store, test.alter}, memory.Driver{}, statebackend.Config{KeyGroups: statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)}, "step", 0)
			if (err == nil) != test.ok {
				t.Fatalf("opened with the error %v", err)
			}
			if err != nil {
				return
			}
			defer b.Close()
			n := 0
			err = b.Scan(statebackend.WindowedTable(0), func([]byte, []byte) (bool, error) { n++; return true, nil })
			if err != nil || n != entries-1 {
				t.Errorf("restored %d entries, %v; want %d", n, err, entries-1)
			}
		})
	}
}
