//go:build rocksdb

package rocksdb

import (
	"math/rand/v2"
	"testing"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/backendtest"
)

// The backends side by side, in one run.
func BenchmarkBackend(b *testing.B) {
	b.Run("memory", func(b *testing.B) { backendtest.Benchmark(b, memory.Driver{}) })
	b.Run("rocksdb", func(b *testing.B) { backendtest.Benchmark(b, Driver{}) })
	b.Run("rocksdb-universal", func(b *testing.B) { backendtest.Benchmark(b, Driver{Options{Compaction: Universal}}) })
}

// BenchmarkBases measures what a base uploads, in percent of all its files, when one entry in a hundred has changed
// since the base before.
func BenchmarkBases(b *testing.B) {
	const n = 1_000_000
	for name, o := range map[string]Options{"leveled": {}, "universal": {Compaction: Universal}, "small-files": {FileBytes: 4 << 20}} {
		b.Run(name, func(b *testing.B) {
			db, f := open(b, statebackend.Config{}, o), newFiles()
			r := rand.New(rand.NewPCG(1, 2))
			fill(b, db, n, 0, func(i uint64) uint64 { return i })
			f.base(b, db)
			percent, base := 0.0, 0.0
			for round := uint64(1); b.Loop(); round++ {
				fill(b, db, n/100, round, func(uint64) uint64 { return r.Uint64N(n) })
				before := f.bytes
				size := float64(sizeOf(f.base(b, db)))
				percent += 100 * float64(f.bytes-before) / size
				base += size
				clear(f.content) // nothing is read back
			}
			b.ReportMetric(percent/float64(b.N), "%uploaded")
			b.ReportMetric(base/float64(b.N)/(1<<20), "MiB-base")
			check(b, db.Close())
		})
	}
}

// BenchmarkRestore measures Open: of one base as it is, of half of one, and of two that are joined.
func BenchmarkRestore(b *testing.B) {
	const n = 1_000_000
	f := newFiles()
	base := func(own statebackend.KeyGroupRange) statebackend.Handle {
		c := config(b, statebackend.Config{})
		c.KeyGroups = own
		opened, err := Driver{}.Open(b.Context(), c)
		check(b, err)
		db := opened.(*backend)
		var batch statebackend.Batch
		for i := range uint64(n) {
			key := backendtest.BenchKey(nil, i)
			if g, _ := statebackend.KeyGroupOf(key); own.Contains(g) {
				batch.Put(key, backendtest.BenchValue(i))
			}
			if batch.Len() == 1000 || i == n-1 {
				check(b, db.Write(&batch))
				batch.Reset()
			}
		}
		h := f.base(b, db)
		check(b, db.Close())
		return h
	}
	all := statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)
	lower, upper := statebackend.RangeOf(0, 2, statebackend.DefaultKeyGroups), statebackend.RangeOf(1, 2, statebackend.DefaultKeyGroups)
	whole, halves := base(all), []statebackend.Handle{base(lower), base(upper)}
	for name, c := range map[string]struct {
		own  statebackend.KeyGroupRange
		from []statebackend.Handle
	}{
		"whole":  {all, []statebackend.Handle{whole}},
		"half":   {lower, []statebackend.Handle{whole}},
		"joined": {all, halves},
	} {
		b.Run(name, func(b *testing.B) {
			size := int64(0)
			for b.Loop() {
				cfg := config(b, statebackend.Config{})
				cfg.KeyGroups = c.own
				size = 0
				for _, h := range c.from {
					cfg.Restore = append(cfg.Restore, statebackend.Restore{Handle: h, Fetcher: f})
					size += sizeOf(h)
				}
				db, err := Driver{}.Open(b.Context(), cfg)
				check(b, err)
				check(b, db.Close())
			}
			b.SetBytes(size)
		})
	}
}

func sizeOf(h statebackend.Handle) (bytes int64) {
	for _, f := range h.Files {
		bytes += f.Ref.Size
	}
	return bytes
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
