// Package memory keeps state in the heap, in an ordered tree whose snapshots share it copy-on-write.
//
// It is the reference of the Backend contract and the backend of tests and of small state: nothing is ever read from
// disk, and all state must fit Config.MemoryBytes.
package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tidwall/btree"

	"github.com/millstream/millstream/statebackend"
)

// DefaultMemoryBytes is the bound of a Backend whose Config sets none: an error that says what to do is kinder than a
// process killed for its memory.
const DefaultMemoryBytes = 1 << 30

// Driver opens Backends in memory. Config.Dir is not used.
type Driver struct{}

var (
	_ statebackend.Driver   = Driver{}
	_ statebackend.Backend  = (*backend)(nil)
	_ statebackend.Snapshot = (*snapshot)(nil)
)

// Name is "memory".
func (Driver) Name() string { return "memory" }

// Open reads what is to be restored into memory.
func (d Driver) Open(ctx context.Context, c statebackend.Config) (statebackend.Backend, error) {
	if c.MemoryBytes < 0 {
		return nil, fmt.Errorf("open state in memory: a limit of %d bytes", c.MemoryBytes)
	}
	if err := c.CheckRestore(d.Name(), formatVersion); err != nil {
		return nil, err
	}
	b := &backend{
		tree:      btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
		limit:     c.MemoryBytes,
		keyGroups: c.KeyGroups,
	}
	if b.limit == 0 {
		b.limit = DefaultMemoryBytes
	}
	for _, r := range c.Restore {
		if err := b.load(ctx, r); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// entry is immutable once it is in a tree: snapshots share it. Key and value share one allocation; a batch does not,
// for one live entry would then keep the memory of all of it.
type entry struct{ key, value []byte }

func less(a, b entry) bool { return bytes.Compare(a.key, b.key) < 0 }

// entryOverhead is what an entry takes besides its bytes: 48 in its node, which is about two thirds full, and the
// rounding of its allocation.
const entryOverhead = 88

func (e entry) size() int64 { return int64(len(e.key)+len(e.value)) + entryOverhead }

func newEntry(key, value []byte) entry {
	kv := make([]byte, len(key)+len(value))
	n := copy(kv, key)
	copy(kv[n:], value)
	return entry{key: kv[:n:n], value: kv[n:]}
}

type backend struct {
	tree      *btree.BTreeG[entry]
	hint      btree.PathHint // where the last key was: keys of a batch are often neighbours
	deleted   btree.List[entry]
	bytes     int64 // sum of the sizes of the entries in tree
	limit     int64
	keyGroups statebackend.KeyGroupRange
}

func (b *backend) Get(keys *statebackend.Keys, found func(i int, value []byte) error) error {
	for i := range keys.Len() {
		if e, ok := b.tree.GetHint(entry{key: keys.At(i)}, &b.hint); ok {
			if err := found(i, e.value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *backend) Write(batch *statebackend.Batch) error {
	if err := batch.Err(); err != nil {
		return err
	}
	return batch.Each(b.apply)
}

func (b *backend) apply(op statebackend.Op, first, second []byte) error {
	switch op {
	case statebackend.OpPut:
		e := newEntry(first, second)
		if old, replaced := b.tree.SetHint(e, &b.hint); replaced {
			b.bytes -= old.size()
		}
		return b.grow(e)
	case statebackend.OpDelete:
		if old, ok := b.tree.DeleteHint(entry{key: first}, &b.hint); ok {
			b.bytes -= old.size()
		}
	case statebackend.OpDeleteRange:
		b.tree.DeleteRangeReuse(entry{key: first}, entry{key: second}, nil, &b.deleted)
		b.deleted.Scan(func(e entry) bool {
			b.bytes -= e.size()
			return true
		})
		b.deleted = btree.List[entry]{} // it would keep the deleted entries alive
	default:
		return fmt.Errorf("write state: unknown operation %d", op)
	}
	return nil
}

// grow accounts for a new entry.
func (b *backend) grow(e entry) error {
	if b.bytes += e.size(); b.bytes > b.limit {
		return fmt.Errorf("state of one subtask exceeds its memory limit of %d bytes: raise the limit or the parallelism, or use a backend on disk (statebackend/rocksdb)", b.limit)
	}
	return nil
}

func (b *backend) Scan(r statebackend.Range, visit func(key, value []byte) (bool, error)) error {
	var err error
	b.tree.AscendHint(entry{key: r.Start}, func(e entry) bool {
		if bytes.Compare(e.key, r.End) >= 0 {
			return false
		}
		var more bool
		more, err = visit(e.key, e.value)
		return more && err == nil
	}, &b.hint)
	return err
}

func (b *backend) Snapshot() (statebackend.Snapshot, error) {
	return &snapshot{tree: b.tree.Copy(), keyGroups: b.keyGroups}, nil
}

// Stats counts the live entries. Until a Snapshot is released, what was changed since is in memory besides.
func (b *backend) Stats() statebackend.Stats { return statebackend.Stats{MemoryBytes: b.bytes} }

func (b *backend) Close() error {
	b.tree = nil
	return nil
}
