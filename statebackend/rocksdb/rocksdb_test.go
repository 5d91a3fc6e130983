//go:build rocksdb

package rocksdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/backendtest"
)

func TestBackend(t *testing.T) {
	for name, o := range map[string]Options{
		"default": {}, "universal": {Compaction: Universal}, "small disk": SmallDisk(),
		"small memtable, no filter": {WriteBufferBytes: 1 << 20, BloomBits: -1, FileBytes: 1 << 20, Compression: Uncompressed, BlockBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) { backendtest.Run(t, Driver{o}, backendtest.SharesFiles) })
	}
}

func config(t testing.TB, c statebackend.Config) statebackend.Config {
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.KeyGroups = statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)
	return c
}

func open(t testing.TB, c statebackend.Config, o Options) *backend {
	t.Helper()
	b, err := Driver{o}.Open(t.Context(), config(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return b.(*backend)
}

// fill writes entries [0, n) and what they become in a round.
func fill(t testing.TB, b *backend, n uint64, round uint64, order func(i uint64) uint64) {
	t.Helper()
	var batch statebackend.Batch
	for i := range n {
		at := order(i)
		if batch.Put(backendtest.BenchKey(nil, at), backendtest.BenchValue(at+round)); batch.Len() == 1000 || i == n-1 {
			if err := b.Write(&batch); err != nil {
				t.Fatal(err)
			}
			batch.Reset()
		}
	}
}

// files is durable storage in memory; it knows every file that it has.
type files struct {
	mu      sync.Mutex
	content map[string][]byte
	known   map[string]statebackend.Ref
	bytes   int64 // uploaded
}

func (f *files) Known(id string) (statebackend.Ref, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref, ok := f.known[id]
	return ref, ok
}

func (f *files) Upload(_ context.Context, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	all, err := io.ReadAll(io.NewSectionReader(content, 0, size))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes += size
	return f.put(fmt.Sprintf("%d-%s", len(f.content), name), all), err
}

func (f *files) put(object string, content []byte) statebackend.Ref {
	f.content[object] = content
	return statebackend.Ref{Object: object, Size: int64(len(content)), CRC32C: statebackend.Checksum(0, content)}
}

func (f *files) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return io.NopCloser(bytes.NewReader(f.content[ref.Object])), nil
}

func newFiles() *files {
	return &files{content: map[string][]byte{}, known: map[string]statebackend.Ref{}}
}

// base persists what b holds and makes its files known.
func (f *files) base(t testing.TB, b *backend) statebackend.Handle {
	t.Helper()
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Persist(t.Context(), f)
	if err = errors.Join(err, s.Release()); err != nil {
		t.Fatal(err)
	}
	for _, file := range h.Files {
		if file.ID != "" {
			f.known[file.ID] = file.Ref
		}
	}
	return h
}

// stored is the base in testdata: every file of it, and its handle, beside each other.
const stored = "testdata/base-v1"

type storedFiles struct{}

func (storedFiles) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	return os.Open(filepath.Join(stored, ref.Object))
}

// storedOperations are what the base's first table holds. A second one deletes the range of window 0 over it.
func storedOperations(batch *statebackend.Batch) {
	for i := range uint64(100) {
		batch.Put(backendtest.BenchKey(nil, i), backendtest.BenchValue(i))
	}
	batch.Put(statebackend.AppendKeyed(nil, 0, 7, []byte("key")), []byte("value"))
	batch.Put(backendtest.BenchKey(nil, backendtest.BenchScan), []byte("next window"))
}

func TestStoredBaseIsReadBack(t *testing.T) {
	encoded, err := os.ReadFile(filepath.Join(stored, "handle.bin"))
	if err != nil {
		t.Fatal(err)
	}
	h, rest, err := statebackend.DecodeHandle(encoded)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%d bytes are left, error %v", len(rest), err)
	}
	for _, end := range []statebackend.KeyGroup{256, 200} { // opened as it is, and copied
		c := config(t, statebackend.Config{Restore: []statebackend.Restore{{Handle: h, Fetcher: storedFiles{}}}})
		c.KeyGroups.End = end
		b, err := Driver{}.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		var batch statebackend.Batch
		storedOperations(&batch)
		err = batch.Each(func(_ statebackend.Op, key, value []byte) error {
			dropped := statebackend.WindowRange(0, 0, 60_000).Contains(key)
			if g, _ := statebackend.KeyGroupOf(key); g < end && !dropped {
				want[string(key)] = string(value)
			}
			return nil
		})
		got := map[string]string{}
		err = errors.Join(err, b.Scan(statebackend.Range{End: []byte{0xff}}, func(key, value []byte) (bool, error) {
			got[string(key)] = string(value)
			return true, nil
		}))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("key groups up to %d: error %v, -want +got\n%s", end, err, diff)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// State several times as large as its memory is written, read and scanned within it.
func TestMemoryIsBounded(t *testing.T) {
	const limit, n = 8 << 20, 300_000
	b := open(t, statebackend.Config{MemoryBytes: limit}, Options{FileBytes: 4 << 20})
	r := rand.New(rand.NewPCG(1, 2))
	most := int64(0)
	watch := func() { most = max(most, b.Stats().MemoryBytes) }
	for i := uint64(0); i < n; i += 10_000 {
		fill(t, b, 10_000, 0, func(j uint64) uint64 { return i + j })
		watch()
	}
	for range 50 {
		var keys statebackend.Keys
		for range 1000 {
			keys.Append(backendtest.BenchKey(nil, r.Uint64N(n)))
		}
		found := 0
		if err := b.Get(&keys, func(int, []byte) error { found++; return nil }); err != nil || found != 1000 {
			t.Fatalf("%d of 1000 keys are found, error %v", found, err)
		}
		watch()
	}
	scanned := 0
	err := b.Scan(statebackend.WindowedTable(0), func(_, _ []byte) (bool, error) {
		if scanned++; scanned%10_000 == 0 {
			watch()
		}
		return true, nil
	})
	if err != nil || scanned != n {
		t.Fatalf("%d of %d entries are scanned, error %v", scanned, n, err)
	}
	// Blocks in use are never evicted and a memtable that is being flushed is written beside its successor: a quarter
	// above is what RocksDB takes for them.
	if disk := b.Stats().DiskBytes; most > limit*5/4 || disk < limit {
		t.Errorf("%d bytes of memory for %d on disk, of a limit of %d", most, disk, limit)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	treasure := filepath.Join(dir, "treasure")
	if err := os.WriteFile(treasure, []byte("gold"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Driver{}).Open(t.Context(), config(t, statebackend.Config{Dir: dir})); err == nil || !strings.Contains(err.Error(), "name another directory") {
		t.Errorf("error %v", err)
	}
	if content, err := os.ReadFile(treasure); string(content) != "gold" {
		t.Errorf("the treasure is %q, error %v", content, err)
	}
	for dir, want := range map[string]string{"": "no directory", filepath.Join(treasure, "below"): "not a directory"} {
		c := config(t, statebackend.Config{})
		c.Dir = dir
		if _, err := (Driver{}).Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("directory %q: error %v, want one that says %q", dir, err, want)
		}
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	c := config(t, statebackend.Config{})
	b := open(t, c, Options{})
	fill(t, b, 10, 0, func(i uint64) uint64 { return i })
	if _, err := (Driver{}).Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another process or backend uses it") {
		t.Errorf("error %v", err)
	}
	found := 0
	if err := b.Scan(statebackend.WindowedTable(0), func(_, _ []byte) (bool, error) { found++; return true, nil }); err != nil || found != 10 {
		t.Errorf("%d of 10 entries are left, error %v", found, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := open(t, c, Options{}).Close(); err != nil {
		t.Error(err)
	}
}

// A process that dies leaves its directory and its lock; the next one is not hindered by either.
func TestDirectoryOfADeadProcessIsWiped(t *testing.T) {
	const dirVar = "MILLSTREAM_TEST_DIE_IN"
	if dir := os.Getenv(dirVar); dir != "" {
		b := open(t, statebackend.Config{Dir: dir}, Options{})
		fill(t, b, 1000, 0, func(i uint64) uint64 { return i })
		if _, err := b.Snapshot(); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	c := config(t, statebackend.Config{})
	child := exec.Command(os.Args[0], "-test.run=^TestDirectoryOfADeadProcessIsWiped$")
	child.Env = append(os.Environ(), dirVar+"="+c.Dir)
	out, err := child.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, not by its own SIGKILL:\n%s", err, out)
	}
	if left, err := os.ReadDir(c.Dir); err != nil || len(left) != 3 {
		t.Fatalf("the child left %v, error %v, want a mark, a database and a base", left, err)
	}
	b := open(t, c, Options{})
	if err := b.Scan(statebackend.Range{End: []byte{0xff}}, func(key, _ []byte) (bool, error) {
		return false, fmt.Errorf("key %x is left", key)
	}); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	c := config(t, statebackend.Config{})
	b := open(t, c, Options{})
	fill(t, b, 1000, 0, func(i uint64) uint64 { return i })
	f := newFiles()
	h := f.base(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := left(); len(got) != 1 || got[0] != markName {
		t.Errorf("after close: %q", got)
	}
	narrow := c
	narrow.KeyGroups.End = 100
	narrow.Restore = []statebackend.Restore{{Handle: h, Fetcher: f}}
	divided, err := Driver{}.Open(t.Context(), narrow)
	if err != nil {
		t.Fatal(err)
	}
	if got := left(); len(got) != 2 {
		t.Errorf("after a restore of a part: %q", got)
	}
	if err := divided.Close(); err != nil {
		t.Error(err)
	}
}

func TestOptionsOutOfRangeAreNamed(t *testing.T) {
	for want, o := range map[string]Options{
		"write buffer": {WriteBufferBytes: 1 << 40},
		"blocks of":    {BlockBytes: 10},
		"filter of":    {BloomBits: 100},
		"files of":     {FileBytes: 10},
		"background":   {BackgroundJobs: 1000},
		"unknown comp": {Compression: 9},
	} {
		if _, err := (Driver{o}).Open(t.Context(), config(t, statebackend.Config{})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one that says %q", o, err, want)
		}
	}
	if _, err := (Driver{}).Open(t.Context(), config(t, statebackend.Config{MemoryBytes: 1000})); err == nil || !strings.Contains(err.Error(), "raise the memory limit") {
		t.Errorf("1000 bytes of memory: error %v", err)
	}
}

// Files whose references are right but whose content is not, as if they had been damaged before they were uploaded:
// RocksDB finds out, at the latest when the damaged block is read.
func TestDamageThatReferencesHideIsAnError(t *testing.T) {
	b := open(t, statebackend.Config{}, Options{})
	fill(t, b, 5000, 0, func(i uint64) uint64 { return i })
	f := newFiles()
	h := f.base(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	damage := map[string]func(content []byte) []byte{
		"a changed byte in the middle": func(c []byte) []byte { c[len(c)/2] ^= 0x55; return c },
		"a changed byte at the start":  func(c []byte) []byte { c[20] ^= 0x55; return c },
		"half of it":                   func(c []byte) []byte { return c[:len(c)/2] },
		"nothing":                      func(c []byte) []byte { return nil },
		"zeros":                        func(c []byte) []byte { return make([]byte, len(c)) },
	}
	for i, file := range h.Files {
		for what, do := range damage {
			bad := h
			bad.Files = append([]statebackend.File(nil), h.Files...)
			bad.Files[i].Ref = f.put("bad", do(bytes.Clone(f.content[file.Ref.Object])))
			for _, end := range []statebackend.KeyGroup{256, 100} {
				c := config(t, statebackend.Config{Restore: []statebackend.Restore{{Handle: bad, Fetcher: f}}})
				c.KeyGroups.End = end
				got, err := Driver{}.Open(t.Context(), c)
				if err != nil {
					continue // found at once
				}
				n := 0
				err = got.Scan(statebackend.WindowedTable(0), func(_, _ []byte) (bool, error) { n++; return true, nil })
				if err == nil {
					t.Errorf("%s of %s: %d entries are scanned without an error", what, file.Name, n)
				}
				if err := got.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestFailingDiskIsAnError(t *testing.T) {
	c := config(t, statebackend.Config{})
	b := open(t, c, Options{})
	fill(t, b, 1000, 0, func(i uint64) uint64 { return i })
	if err := os.RemoveAll(filepath.Join(c.Dir, liveDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Snapshot(); err == nil || !strings.Contains(err.Error(), "snapshot rocksdb state: flush: ") {
		t.Errorf("snapshot: error %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnexpectedFilesAreRefused(t *testing.T) {
	f := newFiles()
	file := func(name string) statebackend.File {
		return statebackend.File{Name: name, Ref: f.put(name, []byte("x"))}
	}
	for _, list := range [][]statebackend.File{
		nil,
		{file("000001.sst")},
		{file("MANIFEST-000001"), file("MANIFEST-000002")},
		{file("MANIFEST-000001"), file("CURRENT")},
		{file("MANIFEST-000001"), file("000007.log")},
		{file("MANIFEST-000001"), file("LOCK")},
	} {
		h := statebackend.Handle{Driver: "rocksdb", Version: formatVersion, KeyGroups: statebackend.AllKeyGroups(statebackend.DefaultKeyGroups), Files: list}
		if b, err := (Driver{}).Open(t.Context(), config(t, statebackend.Config{Restore: []statebackend.Restore{{Handle: h, Fetcher: f}}})); err == nil {
			t.Errorf("%v is restored: %+v", list, b.Stats())
		}
	}
}
