//go:build rocksdb

package rocksdb

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/linxGnu/grocksdb"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// step is a keyed step above a Backend, with string keys, without a cache: what it knows is in RocksDB.
type step struct {
	t   *testing.T
	op  kernel.Operator
	now eventtime.Time
	use func(key string)
}

func newStep(t *testing.T, b statebackend.Backend, declare func(*kernel.KeyedDecl)) *step {
	t.Helper()
	key, err := coder.KeyOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	s := &step{t: t}
	s.op = kernel.NewKeyedParDo(kernel.KeyedSpec[string, int64, string]{Key: key, Fns: kernel.KeyedFns[string, int64, string]{
		Declare: declare,
		Process: func(_ *kernel.ProcessContext, key string, _ int64, _ *kernel.Emitter[string]) error {
			s.use(key)
			return nil
		},
	}})
	err = s.op.Open(&kernel.OpenContext{
		Context: t.Context(), Subtask: connector.Subtask{Parallelism: 1}, Groups: statebackend.DefaultKeyGroups, Backend: b,
		Outputs: []kernel.Output{discard{}}, Track: true, Metrics: &kernel.Metrics{},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() eventtime.Time { return s.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type discard struct{}

func (discard) Emit(kernel.Batch) error { return nil }

// at runs use for keys at a processing time.
func (s *step) at(now eventtime.Time, use func(key string), keys ...string) {
	s.t.Helper()
	s.now, s.use = now, use
	rows := &kernel.Rows[coder.KV[string, int64]]{}
	for _, k := range keys {
		rows.E = append(rows.E, kernel.Element[coder.KV[string, int64]]{Value: coder.KV[string, int64]{Key: k}, Window: window.GlobalWindow})
	}
	if err := s.op.Process(0, rows); err != nil {
		s.t.Fatal(err)
	}
}

// rawEntries is the number of entries and of deletions in the files of b after a full compaction of all that a base holds.
func rawEntries(t *testing.T, s *step) (entries int) {
	t.Helper()
	taken, err := s.op.(kernel.Stateful).Snapshot(1, true)
	must(t, err)
	if done, err := taken.Keyed.Encode(1 << 30); !done || err != nil {
		t.Fatal(done, err)
	}
	var batch statebackend.Batch
	companion := taken.Keyed.Companion()
	must(t, statebackend.ReadBatch(io.NewSectionReader(companion, 0, companion.Size()), batch.Add))
	entries = batch.Len()
	base := taken.Keyed.Base()
	dir := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(dir, os.DirFS(base.(*snapshot).dir)))
	must(t, base.Release())
	o := grocksdb.NewDefaultOptions()
	defer o.Destroy()
	db, err := grocksdb.OpenDb(o, dir)
	must(t, err)
	defer db.Close()
	db.CompactRange(grocksdb.Range{})
	for _, f := range db.GetLiveFilesMetaData() {
		entries += int(f.Entries)
	}
	return entries
}

// FLINK-40354: what had expired was never physically removed.
func TestExpiredValuesLeaveTheFiles(t *testing.T) {
	b := open(t, statebackend.Config{}, Options{})
	defer func() { must(t, b.Close()) }()
	var v state.Value[string]
	s := newStep(t, b, func(d *kernel.KeyedDecl) {
		v = state.NewValue[string](d, "v", state.TTL(10*time.Millisecond, state.OnWrite, state.ProcessingTime))
	})
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	read := func(want string, there bool) func(string) {
		return func(key string) {
			if got, ok := v.Lookup(); got != want || ok != there {
				t.Errorf("at %d, %s is %q, %v, want %q", s.now, key, got, ok, want)
			}
		}
	}
	s.at(0, func(string) { v.Set("v") }, keys...)
	s.at(9, func(key string) { read("v", true)(key); v.Set("w") }, keys...)
	s.at(18, read("w", true), keys...)
	if n := rawEntries(t, s); n < len(keys) {
		t.Errorf("%d entries while %d values live", n, len(keys))
	}
	s.at(19, read("", false), keys...)
	if n := rawEntries(t, s); n != 0 {
		t.Errorf("%d entries are left after a full compaction", n)
	}
}

// quix-streams issue 1122: to expire one key took entries of keys that its bytes begin.
func TestExpiryOfAKeyLeavesThoseThatItsBytesBegin(t *testing.T) {
	b := open(t, statebackend.Config{}, Options{})
	defer func() { must(t, b.Close()) }()
	var list state.OrderedList[string]
	var m state.Map[string, string]
	s := newStep(t, b, func(d *kernel.KeyedDecl) {
		ttl := state.TTL(90*time.Millisecond, state.OnWrite, state.ProcessingTime)
		list = state.NewOrderedList[string](d, "list", ttl)
		m = state.NewMap[string, string](d, "map", ttl)
	})
	keys := []string{"key", "key2", "key-1", "ke", "", "key\x00"}
	put := func(key string) {
		list.Add(time.UnixMilli(10), key)
		for _, k := range keys {
			m.Put(k, key)
		}
	}
	s.at(10, put, "key")
	s.at(20, put, keys[1:]...)
	s.at(20, func(string) { list.ClearRange(time.Time{}, time.UnixMilli(10)); m.Delete("other") }, keys...)
	seen := map[string]int{}
	s.at(100, func(key string) { // 90 ms after "key", 80 after the others
		seen[key] = list.Len()*100 + m.Len()
		for _, v := range list.All() {
			if v != key {
				t.Errorf("%q has the list of %q", key, v)
			}
		}
	}, keys...)
	for _, k := range keys {
		want := 106
		if k == "key" {
			want = 0
		}
		if seen[k] != want {
			t.Errorf("%q has %d, want %d", k, seen[k], want)
		}
	}
}

// The filter answers for keys that were never seen, such as new IDs of a step that removes duplicates.
func TestUnseenKeysReadNoBlocks(t *testing.T) {
	const stored = 50_000
	runtime.LockOSThread() // the counts are those of a thread
	defer runtime.UnlockOSThread()
	grocksdb.SetPerfLevel(grocksdb.KEnableCount)
	defer grocksdb.SetPerfLevel(grocksdb.KDisable)
	counts := grocksdb.NewPerfContext()
	defer counts.Destroy()
	const blockReads = 2 // rocksdb_block_read_count of c.h
	blocksRead := func() uint64 { return counts.Metric(blockReads) }
	blocks := func(o Options, unseen uint64) (perUnseen, perStored float64) {
		b := open(t, statebackend.Config{MemoryBytes: 4 << 20}, o)
		defer func() { must(t, b.Close()) }()
		key := func(dst []byte, i uint64) []byte {
			var k [8]byte
			for j := range k {
				k[j] = byte(i * 0x9e3779b97f4a7c15 >> (8 * j))
			}
			return statebackend.AppendWindowKey(dst, 0, eventtime.Min, eventtime.EndOfGlobalWindow, statebackend.KeyGroupFor(k[:], statebackend.DefaultKeyGroups), k[:])
		}
		var batch statebackend.Batch
		for i := range uint64(stored) {
			batch.Put(key(nil, i), fmt.Appendf(nil, "%0200d", i))
			if batch.Len() == 1000 {
				must(t, b.Write(&batch))
				batch.Reset()
			}
		}
		must(t, b.db.flush(true))
		read := func(from, n uint64, want int) float64 {
			before := blocksRead()
			found := 0
			for i := from; i < from+n; {
				var keys statebackend.Keys
				for ; keys.Len() < 200; i++ {
					keys.Append(key(nil, i))
				}
				must(t, b.Get(&keys, func(int, []byte) error { found++; return nil }))
			}
			if found != want {
				t.Errorf("found %d, want %d", found, want)
			}
			return float64(blocksRead()-before) / float64(n)
		}
		return read(1<<40, unseen, 0), read(0, stored, stored)
	}
	with, there := blocks(Options{Compression: Uncompressed}, 100_000)
	without, _ := blocks(Options{Compression: Uncompressed, BloomBits: -1}, 5_000)
	t.Logf("blocks read a key: unseen %.4f, stored %.4f; unseen without a filter %.4f", with, there, without)
	if with > 0.03 || there < 0.3 || without < 10*with {
		t.Errorf("a key that was never seen reads %.4f blocks (%.4f without a filter), a stored one %.4f", with, without, there)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
