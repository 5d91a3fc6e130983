package backendtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
)

// Sizes of the benchmark's state: entries in equal windows, read and written in batches as a cache above does.
const (
	BenchEntries = 500_000
	BenchBatch   = 1024
	BenchScan    = 10_000 // entries of a window
	benchMemory  = 256 << 20
)

// Benchmark measures what a cache above a backend asks of it, each figure a key or an entry:
// reads of keys that are there and that are not, writes of batches, a scan of a window, and how long a Snapshot stalls
// the subtask after 50 batches have been written.
func Benchmark(b *testing.B, driver statebackend.Driver) {
	backend, err := driver.Open(b.Context(), statebackend.Config{Dir: b.TempDir(), MemoryBytes: benchMemory, KeyGroups: statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)})
	check(b, err)
	fill := func(n uint64) {
		var batch statebackend.Batch
		for i := range n {
			if batch.Put(BenchKey(nil, i), BenchValue(i)); batch.Len() == BenchBatch || i == n-1 {
				check(b, backend.Write(&batch))
				batch.Reset()
			}
		}
	}
	fill(BenchEntries)
	warm, err := backend.Snapshot() // what is read below is where a base leaves it
	check(b, err)
	check(b, warm.Release())

	r := rand.New(rand.NewPCG(1, 2))
	get := func(b *testing.B, key func(dst []byte) []byte, want int) {
		var keys statebackend.Keys
		b.ReportAllocs()
		for b.Loop() {
			keys.Reset()
			for range BenchBatch {
				keys.Bytes = key(keys.Bytes)
				keys.End()
			}
			got := 0
			check(b, backend.Get(&keys, func(_ int, value []byte) error { got++; return nil }))
			if got != want {
				b.Fatalf("%d keys are found, want %d", got, want)
			}
		}
		perKey(b, BenchBatch)
	}
	b.Run("get/hit", func(b *testing.B) {
		get(b, func(dst []byte) []byte { return BenchKey(dst, r.Uint64N(BenchEntries)) }, BenchBatch)
	})
	b.Run("get/miss", func(b *testing.B) {
		get(b, func(dst []byte) []byte { return append(BenchKey(dst, r.Uint64N(BenchEntries)), 'x') }, 0)
	})
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			start, end := benchWindow(r.Uint64N(BenchEntries))
			got := 0
			check(b, backend.Scan(statebackend.WindowRange(0, start, end), func(_, _ []byte) (bool, error) { got++; return true, nil }))
			if got != BenchScan {
				b.Fatalf("%d entries are scanned, want %d", got, BenchScan)
			}
		}
		perKey(b, BenchScan)
	})
	var batch statebackend.Batch
	change := func(b *testing.B) {
		batch.Reset()
		for range BenchBatch {
			i := r.Uint64N(BenchEntries)
			batch.Put(BenchKey(nil, i), BenchValue(i+1))
		}
		check(b, backend.Write(&batch))
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			change(b)
		}
		perKey(b, BenchBatch)
	})
	b.Run("snapshot", func(b *testing.B) {
		var stall time.Duration
		for b.Loop() {
			for range 50 {
				change(b)
			}
			start := time.Now()
			s, err := backend.Snapshot()
			stall += time.Since(start)
			check(b, err)
			check(b, s.Release())
		}
		b.ReportMetric(float64(stall.Microseconds())/1e3/float64(b.N), "stall-ms")
		b.ReportMetric(0, "ns/op") // it is mostly the writes between
	})
	b.Logf("stats %+v", backend.Stats())
	check(b, backend.Close())
}

// BenchKey appends the key of entry i: windows of BenchScan entries, 28 bytes of which 20 are the window and the group.
func BenchKey(dst []byte, i uint64) []byte {
	start, end := benchWindow(i)
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], i*0x9e3779b97f4a7c15)
	return statebackend.AppendWindowKey(dst, 0, start, end, statebackend.KeyGroupFor(key[:], statebackend.DefaultKeyGroups), key[:])
}

func benchWindow(i uint64) (start, end eventtime.Time) {
	start = eventtime.Time(i/BenchScan) * 60_000
	return start, start + 60_000
}

// BenchValue is the value of entry i: 64 bytes, half of them random.
func BenchValue(i uint64) []byte { return fmt.Appendf(nil, "%032d%032x", i, i*0x9e3779b97f4a7c15) }

func perKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
