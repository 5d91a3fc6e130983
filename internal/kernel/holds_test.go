package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/seeds"
)

// TestHoldsAgreeWithAMap moves holds at random, with elements late and early, watermarks that jump, tiny caches, settling
// in slices, snapshots between any two slices and crashes. The least must be that of a map whenever it is said to be exact,
// and never later than it otherwise.
func TestHoldsAgreeWithAMap(t *testing.T) {
	var sum holdStats
	seeds.Each(t, 150, func(seed uint64) error { return walkHolds(seed, &sum) })
	t.Logf("%+v", sum)
	if s := sum; !seeds.Given() && min(s.exact, s.early, s.none, s.crashes, s.inCount, s.spilled, s.minutes, s.days) == 0 {
		t.Errorf("something was never met: %+v", sum)
	}
}

type holdStats struct {
	exact, early, none int // answers; early ones were before settle was done and differ
	crashes, inCount   int // crashes, and snapshots while a bucket was being counted
	spilled            int // steps after which there was something in the backend alone
	minutes, days      int // steps after which holds waited in a minute or day
}

type holdWalk struct {
	r     *rand.Rand
	stats *holdStats
	cache int64
	kept

	h     *holds[string]
	holds map[wakeKey[string]]eventtime.Time
	w     eventtime.Time
	floor eventtime.Time // the watermark of the outputs

}

func walkHolds(seed uint64, stats *holdStats) error {
	r := rand.New(rand.NewPCG(seed, 4))
	w := &holdWalk{r: r, stats: stats, cache: []int64{0, 2000, 1 << 20}[r.IntN(3)], kept: kept{files: files{}}, holds: map[wakeKey[string]]eventtime.Time{},
		w: eventtime.Min, floor: eventtime.Min}
	if err := w.open(horizons{}); err != nil {
		return err
	}
	now := eventtime.Time(r.Int64N(8_000_000_000) - 4_000_000_000)
	if r.IntN(10) == 0 {
		now = eventtime.Min
	}
	for i := range 80 {
		for range r.IntN(12) {
			if err := w.move(now); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
		if r.IntN(3) == 0 {
			now += eventtime.Time(r.Int64N([]int64{2, 200, 5000, 200_000, 300_000_000}[r.IntN(5)]))
			w.w = max(w.w, now)
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("step %d, before settling: %w", i, err)
		}
		if err := w.settle(false); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if n := len(w.h.levels[0].buckets); n > 600 {
			return fmt.Errorf("step %d: there are %d buckets of a tenth", i, n)
		}
	}
	for k, at := range w.holds {
		if err := w.h.move(k, at, noTime); err != nil {
			return err
		}
		delete(w.holds, k)
	}
	w.w = eventtime.Max
	if err := w.settle(true); err != nil {
		return err
	}
	if n := w.h.table.resident + len(w.h.table.segments); n != 0 {
		return fmt.Errorf("at the end %d entries and buckets are left", n)
	}
	return nil
}

func (w *holdWalk) open(h horizons) error {
	b, err := w.kept.open()
	if err != nil {
		return err
	}
	key, err := coder.KeyOf[string]()
	if err != nil {
		return err
	}
	w.h, err = newHolds(key, &OpenContext{
		Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: b, CacheMax: w.cache, Track: true}, holdTable)
	if err == nil && !w.nothing() {
		err = w.h.restore(h)
	}
	return err
}

// move gives a key another hold, or none, or takes what is held back most away.
func (w *holdWalk) move(now eventtime.Time) error {
	k := wakeKey[string]{fmt.Sprint(w.r.IntN(20)), window.New(0, eventtime.Time(1+w.r.IntN(2)))}
	from, ok := w.holds[k]
	if w.r.IntN(3) == 0 {
		for o, at := range w.holds {
			if !ok || at < from || at == from && o.key < k.key {
				k, from, ok = o, at, true
			}
		}
	}
	if !ok {
		from = noTime
	}
	to := noTime
	if !ok || w.r.IntN(2) == 0 {
		span := []int64{1, 30, 1000, 100_000, 10_000_000, 1_000_000_000}[w.r.IntN(6)]
		to = max(w.floor, eventtime.Clamp(now+eventtime.Time(w.r.Int64N(2*span)-span)))
	}
	if to == noTime {
		delete(w.holds, k)
	} else {
		w.holds[k] = to
	}
	if err := w.h.move(k, from, to); err != nil {
		return err
	}
	return w.h.evict()
}

func (w *holdWalk) want() eventtime.Time {
	least := eventtime.Max
	for _, at := range w.holds {
		if at <= w.w {
			least = min(least, at)
		}
	}
	return least
}

func (w *holdWalk) check() error {
	got, want := w.h.least(w.w), w.want()
	switch {
	case w.h.settled(w.w) && got != want:
		return fmt.Errorf("the least hold is %d, want %d", got, want)
	case got > want:
		return fmt.Errorf("the least hold is %d, said to be %d before it is settled", want, got)
	case got < want:
		w.stats.early++
	}
	if w.h.table.spilled > 0 {
		w.stats.spilled++
	}
	w.stats.minutes += len(w.h.levels[1].buckets)
	w.stats.days += len(w.h.levels[2].buckets)
	return nil
}

// settle settles, with snapshots and crashes in the midst. Unless it must be, it may be interrupted: then it is tidy.
func (w *holdWalk) settle(must bool) error {
	stop := -1
	if !must && w.r.IntN(4) == 0 {
		stop = w.r.IntN(3)
	}
	for n := 0; n != stop; n++ {
		if n > 10_000 {
			return fmt.Errorf("it is never settled for %d", w.w)
		}
		budget := w.r.IntN(8)
		done, err := w.h.settle(w.w, &budget)
		if err == nil {
			err = w.between()
		}
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		if !w.h.settled(w.w) { // restored since
			continue
		}
		if err := w.check(); err != nil {
			return err
		}
		if w.h.least(w.w) == eventtime.Max {
			w.stats.none++
		} else {
			w.stats.exact++
		}
		w.floor = max(w.floor, min(w.w, w.h.least(w.w)))
		return nil
	}
	budget := 1 << 30
	if done, err := w.h.tidy(&budget); !done || err != nil {
		return fmt.Errorf("it is not tidy: %v", err)
	}
	return w.check()
}

// between takes a snapshot and goes on, or goes back to it at once.
func (w *holdWalk) between() error {
	if err := w.h.evict(); err != nil {
		return err
	}
	if w.r.IntN(4) > 0 {
		return nil
	}
	if w.h.counting {
		w.stats.inCount++
	}
	s, err := w.h.table.snapshot(w.r.IntN(3) == 0)
	if err != nil {
		return err
	}
	if _, err := s.Encode(1 << 30); err != nil {
		return err
	}
	if err := w.keep(s, true); err != nil {
		return err
	}
	if w.r.IntN(2) == 0 {
		w.stats.crashes++
		return w.open(w.h.horizons())
	}
	return nil
}
