//go:build rocksdb

package rocksdb

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/linxGnu/grocksdb"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/backendtest"
)

// grocksdb is a second witness: a binding that shares no code with ours reads what we wrote.
func TestAnotherBindingReadsABase(t *testing.T) {
	want := map[string]string{}
	var batch statebackend.Batch
	for i := range uint64(2000) {
		key, value := backendtest.BenchKey(nil, i), backendtest.BenchValue(i)
		want[string(key)] = string(value)
		batch.Put(key, value)
	}
	dropped := statebackend.KeyRange(0, 7, []byte("gone"))
	batch.Put(dropped.Start, []byte("gone"))
	batch.DeleteRange(dropped)
	b := open(t, statebackend.Config{}, Options{})
	if err := b.Write(&batch); err != nil {
		t.Fatal(err)
	}
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	db, err := grocksdb.OpenDbForReadOnly(o, s.(*snapshot).dir, false)
	if err != nil {
		t.Fatal(err)
	}
	ro := grocksdb.NewDefaultReadOptions()
	defer ro.Destroy()
	it := db.NewIterator(ro)
	got := map[string]string{}
	for it.SeekToFirst(); it.Valid(); it.Next() {
		key, value := it.Key(), it.Value()
		got[string(key.Data())] = string(value.Data())
		key.Free()
		value.Free()
	}
	if err := it.Err(); err != nil {
		t.Error(err)
	}
	it.Close()
	db.Close()
	if !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d equal ones", len(got), len(want))
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkBindings compares the calls of shim.h with grocksdb on two databases of the same options and content: it is
// why the shim exists.
func BenchmarkBindings(b *testing.B) {
	o, memory, err := Options{}.resolve(256 << 20)
	check(b, err)
	ours, err := openDatabase(filepath.Join(b.TempDir(), "ours"), o, memory, readWrite)
	check(b, err)
	theirs := openGrocksdb(b, filepath.Join(b.TempDir(), "theirs"), o, memory)
	ro, wo := grocksdb.NewDefaultReadOptions(), grocksdb.NewDefaultWriteOptions()
	wo.DisableWAL(true)
	defer ro.Destroy()
	defer wo.Destroy()

	const entries, size = backendtest.BenchEntries, backendtest.BenchBatch
	keyed := &backend{db: ours}
	var batch statebackend.Batch
	list := grocksdb.NewWriteBatch()
	for i := range uint64(entries) {
		key, value := backendtest.BenchKey(nil, i), backendtest.BenchValue(i)
		batch.Put(key, value)
		if list.Put(key, value); batch.Len() == size || i == entries-1 {
			check(b, keyed.Write(&batch))
			check(b, theirs.Write(wo, list))
			batch.Reset()
			list.Clear()
		}
	}
	check(b, ours.flush(true))
	check(b, theirs.Flush(grocksdb.NewDefaultFlushOptions()))

	r := rand.New(rand.NewPCG(1, 2))
	perEntry := func(b *testing.B, n int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
	}
	for name, miss := range map[string]bool{"get/hit": false, "get/miss": true} {
		next := func(dst []byte) []byte {
			if dst = backendtest.BenchKey(dst, r.Uint64N(entries)); miss {
				dst = append(dst, 'x')
			}
			return dst
		}
		want := size
		if miss {
			want = 0
		}
		b.Run(name+"/shim", func(b *testing.B) {
			var keys statebackend.Keys
			for b.Loop() {
				keys.Reset()
				for range size {
					keys.Bytes = next(keys.Bytes)
					keys.End()
				}
				n := 0
				check(b, keyed.Get(&keys, func(int, []byte) error { n++; return nil }))
				if n != want {
					b.Fatal(n)
				}
			}
			perEntry(b, size)
		})
		b.Run(name+"/grocksdb", func(b *testing.B) {
			keys := make([][]byte, size)
			for b.Loop() {
				for i := range keys {
					keys[i] = next(keys[i][:0])
				}
				values, err := theirs.MultiGet(ro, keys...)
				check(b, err)
				n := 0
				for _, v := range values {
					if v.Exists() {
						n++
					}
				}
				values.Destroy()
				if n != want {
					b.Fatal(n)
				}
			}
			perEntry(b, size)
		})
	}
	window := func() statebackend.Range {
		key, _ := statebackend.ParseWindowKey(backendtest.BenchKey(nil, r.Uint64N(entries)))
		return statebackend.WindowRange(0, key.Start, key.End)
	}
	b.Run("scan/shim", func(b *testing.B) {
		for b.Loop() {
			n := 0
			check(b, keyed.Scan(window(), func(_, _ []byte) (bool, error) { n++; return true, nil }))
			if n != backendtest.BenchScan {
				b.Fatal(n)
			}
		}
		perEntry(b, backendtest.BenchScan)
	})
	b.Run("scan/grocksdb", func(b *testing.B) {
		for b.Loop() {
			n, w := 0, window()
			it := theirs.NewIterator(ro)
			for it.Seek(w.Start); it.Valid(); it.Next() {
				key, value := it.Key(), it.Value()
				if bytes.Compare(key.Data(), w.End) >= 0 {
					break
				}
				n++
				_ = value
			}
			it.Close()
			if n != backendtest.BenchScan {
				b.Fatal(n)
			}
		}
		perEntry(b, backendtest.BenchScan)
	})
	// Writes come last: they change the databases.
	value := backendtest.BenchValue(1)
	b.Run("write/shim", func(b *testing.B) {
		var key []byte
		for b.Loop() {
			batch.Reset()
			for range size {
				key = backendtest.BenchKey(key[:0], r.Uint64N(entries))
				batch.Put(key, value)
			}
			check(b, keyed.Write(&batch))
		}
		perEntry(b, size)
	})
	b.Run("write/grocksdb", func(b *testing.B) {
		var key []byte
		for b.Loop() {
			list.Clear()
			for range size {
				key = backendtest.BenchKey(key[:0], r.Uint64N(entries))
				list.Put(key, value)
			}
			check(b, theirs.Write(wo, list))
		}
		perEntry(b, size)
	})
	b.Run("write/grocksdb-representation", func(b *testing.B) {
		var key []byte
		for b.Loop() {
			batch.Reset()
			for range size {
				key = backendtest.BenchKey(key[:0], r.Uint64N(entries))
				batch.Put(key, value)
			}
			keyed.batch = append(keyed.batch[:0], make([]byte, batchHeader)...)
			binary.LittleEndian.PutUint32(keyed.batch[8:], uint32(batch.Len()))
			check(b, batch.Each(func(_ statebackend.Op, key, value []byte) error { keyed.record(recordPut, key, value); return nil }))
			from := grocksdb.WriteBatchFrom(keyed.batch)
			check(b, theirs.Write(wo, from))
			from.Destroy()
		}
		perEntry(b, size)
	})
	ours.close()
	theirs.Close()
}

// openGrocksdb sets what shim.cc sets, as far as grocksdb can: it has no WriteBufferManager and always syncs.
func openGrocksdb(b *testing.B, dir string, o Options, memory int64) *grocksdb.DB {
	op, t := grocksdb.NewDefaultOptions(), grocksdb.NewDefaultBlockBasedTableOptions()
	b.Cleanup(op.Destroy)
	op.SetCreateIfMissing(true)
	op.SetCompression(grocksdb.LZ4Compression)
	op.SetWriteBufferSize(uint64(o.WriteBufferBytes / 4))
	op.SetMaxWriteBufferNumber(4)
	op.SetTargetFileSizeBase(uint64(o.FileBytes))
	op.SetMaxBytesForLevelBase(uint64(o.FileBytes * 2))
	op.SetLevelCompactionDynamicLevelBytes(true)
	op.SetMaxBackgroundJobs(o.BackgroundJobs)
	t.SetBlockCache(grocksdb.NewLRUCache(uint64(memory)))
	t.SetBlockSize(o.BlockBytes)
	t.SetFormatVersion(5)
	t.SetCacheIndexAndFilterBlocks(true)
	t.SetCacheIndexAndFilterBlocksWithHighPriority(true)
	t.SetPinL0FilterAndIndexBlocksInCache(true)
	t.SetFilterPolicy(grocksdb.NewBloomFilterFull(float64(o.BloomBits)))
	op.SetBlockBasedTableFactory(t)
	db, err := grocksdb.OpenDb(op, dir)
	check(b, err)
	return db
}
