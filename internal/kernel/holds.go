package kernel

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/statebackend"
)

// holds is the index of what holds the watermark of an operator's outputs back: at most one time for each key and window.
// It knows the least of them exactly, in bounded memory: only buckets of a tenth of a second are counted by the millisecond,
// and a wider one is taken apart only when nothing is left before it.
//
// The user keeps the time of each key and window, which move needs. It brings a hold behind the watermark of its outputs
// to that watermark, for nothing can be held back there; this keeps the tenths few: those of the minute of the least hold.
//
// The counts are not stored. A restored bucket is counted when it becomes the first.
type holds[K comparable] struct {
	buckets[K]
	counting bool          // the first bucket is being counted: nothing may be evicted
	spare    []*holdCounts // all zero
	partial  *holdCounts   // of the bucket that is being counted
}

// holdCounts is how many holds of a bucket are at each of its milliseconds.
type holdCounts struct {
	n  int
	at [tenthWidth]int32
}

func newHolds[K comparable](key coder.Key[K], c *OpenContext, id statebackend.Table) (*holds[K], error) {
	b, err := newBuckets(key, c, id)
	return &holds[K]{buckets: b}, err
}

// move gives a key and window the hold to instead of from, its present one; noTime is none. Holds are before lastTimer. It must
// not be called while a settle is unfinished that tidy has not ended.
func (h *holds[K]) move(k wakeKey[K], from, to eventtime.Time) error {
	old, now, made, err := h.buckets.move(k, from, to)
	if err != nil {
		return err
	}
	if old != nil && old.counts != nil {
		old.counts.add(from-old.win.StartTime(), -1)
	}
	if made && now.win.EndTime() <= h.levels[0].until {
		now.counts = h.newCounts()
	}
	if now != nil && now.counts != nil {
		now.counts.add(to-now.win.StartTime(), 1)
	}
	return nil
}

func (c *holdCounts) add(at eventtime.Time, n int32) {
	c.at[at] += n
	c.n += int(n)
}

func (h *holds[K]) newCounts() *holdCounts {
	if n := len(h.spare); n > 0 {
		c := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return c
	}
	return &holdCounts{}
}

// settle makes least exact for w, about budget entries a call, and returns true when it is. If the budget ends before, holds may
// be moved once tidy is done.
func (h *holds[K]) settle(w eventtime.Time, budget *int) (bool, error) {
	for {
		if done, err := h.tidy(budget); !done || err != nil {
			return false, err
		}
		tenths := &h.levels[0].buckets
		switch {
		case len(*tenths) == 0:
			if !h.reach(w) {
				return true, nil
			}
		case (*tenths)[0].counts.n > 0:
			return true, nil
		case *budget <= 0:
			return false, nil
		default:
			*budget--
			s := (*tenths)[0]
			h.spare = append(h.spare, s.counts)
			*tenths = popFront(*tenths)
			if err := h.table.dropSegment(s); err != nil {
				return false, err
			}
		}
	}
}

// tidy does what must not be interrupted by a move: it takes apart buckets that are leaving, and counts the first. It returns
// true when nothing of that is left.
func (h *holds[K]) tidy(budget *int) (bool, error) {
	if done, err := h.buckets.tidy(budget, h.move); !done || err != nil {
		return false, err
	}
	tenths := h.levels[0].buckets
	if len(tenths) == 0 || tenths[0].counts != nil {
		return true, nil
	}
	s := tenths[0]
	if !h.counting {
		h.counting, h.partial = true, h.newCounts()
	}
	done, err := h.table.peek(s, budget, func(_ wakeKey[K], at eventtime.Time) { h.partial.add(at-s.win.StartTime(), 1) })
	if done {
		s.counts, h.partial, h.counting = h.partial, nil, false
	}
	return done, err
}

// least is the least hold at or before the watermark w, or eventtime.Max if there is none. It is exact from settle until the
// next move; otherwise it may be too early, never too late.
func (h *holds[K]) least(w eventtime.Time) eventtime.Time {
	t := h.first()
	if t > w {
		return eventtime.Max
	}
	return t
}

// settled says whether least is exact for w.
func (h *holds[K]) settled(w eventtime.Time) bool {
	if tenths := h.levels[0].buckets; len(tenths) > 0 {
		return h.leaving() == nil && tenths[0].counts != nil && tenths[0].counts.n > 0
	}
	return h.first() > w
}

// first is least without a watermark, and noTime if there is no hold.
func (h *holds[K]) first() eventtime.Time {
	t := noTime
	for i := range h.levels {
		if b := h.levels[i].buckets; len(b) > 0 {
			t = min(t, max(b[0].win.StartTime(), eventtime.Min))
		}
	}
	if tenths := h.levels[0].buckets; len(tenths) > 0 && tenths[0].counts != nil && h.leaving() == nil {
		t += tenths[0].counts.first()
	}
	return t
}

// first is the first millisecond with a hold, 0 if there is none.
func (c *holdCounts) first() eventtime.Time {
	for i, n := range c.at {
		if n > 0 {
			return eventtime.Time(i)
		}
	}
	return 0
}

// evict brings the table below its limit.
func (h *holds[K]) evict() error {
	if h.counting { // what is evicted could be counted twice
		return nil
	}
	return h.table.evict()
}
