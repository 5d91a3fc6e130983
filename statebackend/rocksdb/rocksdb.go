//go:build rocksdb

package rocksdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millstream/millstream/statebackend"
)

// Driver opens Backends in RocksDB.
//
//	Dir/MILLSTREAM   marks the directory as ours and locks it
//	Dir/db           the database
//	Dir/base-3       hard links of a Snapshot, until it is released
//	Dir/restore-0    files of a base that is being taken apart
type Driver struct{ Options }

var (
	_ statebackend.Driver  = Driver{}
	_ statebackend.Backend = (*backend)(nil)
	_ statebackend.Scratch = (*backend)(nil)
)

// Name is "rocksdb".
func (Driver) Name() string { return "rocksdb" }

// Open opens a database in c.Dir.
func (d Driver) Open(ctx context.Context, c statebackend.Config) (statebackend.Backend, error) {
	if err := c.CheckRestore(d.Name(), formatVersion); err != nil {
		return nil, err
	}
	o, memory, err := d.resolve(c.MemoryBytes)
	if err != nil {
		return nil, err
	}
	lock, err := claim(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open rocksdb state: %w", err)
	}
	b := &backend{dir: c.Dir, keyGroups: c.KeyGroups, lock: lock}
	if b.db, err = restore(ctx, c, o, memory); err != nil {
		return nil, errors.Join(fmt.Errorf("open rocksdb state: %w", err), lock.Close())
	}
	return b, nil
}

type backend struct {
	db        *database
	dir       string
	lock      *os.File
	keyGroups statebackend.KeyGroupRange
	bases     int    // Snapshots made
	batch     []byte // reused by Write
}

// getKeys is how many keys one call reads: their blocks stay pinned meanwhile, so it also bounds memory.
const getKeys = 256

func (b *backend) Get(keys *statebackend.Keys, found func(i int, value []byte) error) error {
	for from := 0; from < keys.Len(); from += getKeys {
		if err := b.getSome(keys, from, min(from+getKeys, keys.Len()), found); err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) getSome(keys *statebackend.Keys, from, to int, found func(i int, value []byte) error) error {
	defer b.db.unpin()
	values, err := b.db.get(keys, from, to)
	if err != nil {
		return fmt.Errorf("read rocksdb state: %w", err)
	}
	for i, v := range values {
		if value, ok := valueBytes(v); ok {
			if err := found(from+i, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kinds of records in RocksDB's WriteBatch, and the size of its header: a sequence number, which RocksDB sets, and the
// number of records (db/dbformat.h and db/write_batch.cc of RocksDB).
const (
	recordDelete      = 0x0
	recordPut         = 0x1
	recordDeleteRange = 0xf
	batchHeader       = 8 + 4
)

func (b *backend) Write(batch *statebackend.Batch) error {
	if err := batch.Err(); err != nil {
		return err
	}
	b.batch = append(b.batch[:0], make([]byte, batchHeader)...)
	binary.LittleEndian.PutUint32(b.batch[8:], uint32(batch.Len()))
	err := batch.Each(func(op statebackend.Op, first, second []byte) error {
		switch op {
		case statebackend.OpPut:
			b.record(recordPut, first, second)
		case statebackend.OpDelete:
			b.batch = append(b.batch, recordDelete)
			b.batch = append(binary.AppendUvarint(b.batch, uint64(len(first))), first...)
		case statebackend.OpDeleteRange:
			b.record(recordDeleteRange, first, second)
		default:
			return fmt.Errorf("write rocksdb state: unknown operation %d", op)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.db.write(b.batch); err != nil {
		return fmt.Errorf("write rocksdb state: %w", err)
	}
	return nil
}

func (b *backend) record(kind byte, first, second []byte) {
	b.batch = append(b.batch, kind)
	b.batch = append(binary.AppendUvarint(b.batch, uint64(len(first))), first...)
	b.batch = append(binary.AppendUvarint(b.batch, uint64(len(second))), second...)
}

// A scan copies this many bytes of entries a call: few at first, since visit may stop soon.
const (
	firstScanBytes = 4 << 10
	mostScanBytes  = 256 << 10
)

func (b *backend) Scan(r statebackend.Range, visit func(key, value []byte) (bool, error)) error {
	if r.Empty() {
		return nil
	}
	it := b.db.iterate(r.Start, r.End)
	defer it.close()
	for limit := firstScanBytes; ; limit = min(2*limit, mostScanBytes) {
		entries, err := it.next(limit)
		if err != nil {
			return fmt.Errorf("scan rocksdb state: %w", err)
		}
		if len(entries) == 0 {
			return nil
		}
		for len(entries) > 0 {
			var key, value []byte
			key, value, entries = cutEntry(entries)
			if more, err := visit(key, value); !more || err != nil {
				return err
			}
		}
	}
}

// entryHeader is the size of the two lengths before an entry.
const entryHeader = 4 + 4

// cutEntry takes the first of entries as iterator.next lays them out.
func cutEntry(entries []byte) (key, value, rest []byte) {
	k, v := int(binary.NativeEndian.Uint32(entries)), int(binary.NativeEndian.Uint32(entries[4:]))
	entries = entries[entryHeader:]
	return entries[:k:k], entries[k : k+v : k+v], entries[k+v:]
}

// Snapshot flushes the memtables and links the files. Linking takes milliseconds; flushing takes as long as writing the
// memtable to disk, so WriteBufferBytes bounds it.
func (b *backend) Snapshot() (statebackend.Snapshot, error) {
	dir := filepath.Join(b.dir, fmt.Sprint("base-", b.bases))
	b.bases++
	if err := b.db.flush(true); err != nil {
		return nil, fmt.Errorf("snapshot rocksdb state: flush: %w", err)
	}
	if err := b.db.checkpoint(dir); err != nil {
		return nil, fmt.Errorf("snapshot rocksdb state: link files into %s: %w", dir, err)
	}
	return &snapshot{dir: dir, keyGroups: b.keyGroups}, nil
}

// Scratch implements statebackend.Scratch: a file in Dir that goes with its last handle.
func (b *backend) Scratch() (*os.File, error) {
	f, err := os.CreateTemp(b.dir, "changes-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Stats counts as memory what RocksDB's block cache holds, and the memtables, indexes and filters that are charged to
// it; as disk the files of the database, not those that only Snapshots hold.
func (b *backend) Stats() statebackend.Stats { return b.db.stats() }

// Close drops the database and leaves the links of Snapshots.
func (b *backend) Close() error {
	b.db.close()
	if err := errors.Join(os.RemoveAll(filepath.Join(b.dir, liveDir)), b.lock.Close()); err != nil {
		return fmt.Errorf("close rocksdb state: %w", err)
	}
	return nil
}
