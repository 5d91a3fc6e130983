package kernel

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/statebackend"
)

// wakeups is the index of a keyed step: when to look at which key and window. docs/design/timers.md tells
// why it is coarse and lazy.
//
// segment.fireAt of a bucket is no later than the first wake-up in it.
type wakeups[K comparable] struct {
	buckets[K]
	peeked *segment[wakeKey[K], eventtime.Time] // of level 0: not looked through to its end yet

	due  []wakeKey[K] // their wake-ups have come; those before next have been woken
	next int
}

// The tables of an operator with wake-ups.
const (
	wakeupTable = statebackend.Table(1) // by the watermark
	clockTable  = statebackend.Table(2) // by the clock
	holdTable   = statebackend.Table(3)
)

func newWakeups[K comparable](key coder.Key[K], c *OpenContext, id statebackend.Table) (*wakeups[K], error) {
	b, err := newBuckets(key, c, id)
	return &wakeups[K]{buckets: b}, err
}

// move gives a key and window the wake-up to instead of from; noTime is none.
func (x *wakeups[K]) move(k wakeKey[K], from, to eventtime.Time) error {
	_, now, _, err := x.buckets.move(k, from, to)
	if now != nil {
		now.fireAt = min(now.fireAt, int64(to))
	}
	return err
}

// fire calls wake for the keys and windows whose wake-ups are at or before w, within budget, and returns true when
// none is left. wake moves the wake-up, or returns false if the budget ends before; then it is called again for the same.
func (x *wakeups[K]) fire(w eventtime.Time, budget *int, wake func(k wakeKey[K], budget *int) (bool, error)) (bool, error) {
	for {
		for ; x.next < len(x.due); x.next++ {
			if done, err := wake(x.due[x.next], budget); !done || err != nil {
				return false, err
			}
		}
		clear(x.due)
		x.due, x.next = x.due[:0], 0
		if *budget <= 0 {
			return false, nil
		}
		var done bool
		var err error
		if x.due, done, err = x.find(x.due, w, budget); done || err != nil {
			return done, err
		}
	}
}

// soonest is no later than the first wake-up, and noTime if there is none. It is before all time while fire has not come to
// its end.
func (x *wakeups[K]) soonest() eventtime.Time {
	if x.next < len(x.due) || x.peeked != nil || x.leaving() != nil {
		return eventtime.Min
	}
	for i := range x.levels {
		for _, s := range x.levels[i].buckets {
			if s.fireAt != never {
				return eventtime.Time(s.fireAt)
			}
		}
	}
	return noTime
}

// waiting is what fire has found and not woken, beginning with what it wakes now.
func (x *wakeups[K]) waiting() []wakeKey[K] { return x.due[x.next:] }

// find appends to dst some of the keys and windows whose wake-ups are at or before w, about budget of them.
// Each is appended again until its wake-up has moved, which must be before the next call. done says that
// none is left; otherwise there may be none in dst although there are more.
func (x *wakeups[K]) find(dst []wakeKey[K], w eventtime.Time, budget *int) (_ []wakeKey[K], done bool, err error) {
	for *budget > 0 && len(dst) == 0 {
		tenths := &x.levels[0].buckets
		if from := x.leaving(); from != nil {
			err = x.refine(from, budget, x.move)
		} else if x.peeked != nil {
			dst, err = x.peek(dst, w, budget)
		} else if len(*tenths) > 0 && (*tenths)[0].fireAt <= int64(w) {
			x.peeked = (*tenths)[0]
			x.peeked.fireAt = never
		} else if len(*tenths) > 0 && (*tenths)[0].win.EndTime() <= w {
			err = x.table.dropSegment((*tenths)[0]) // everything in it has fired or moved
			*tenths = popFront(*tenths)
		} else if !x.open(w) {
			return dst, true, nil
		}
		if err != nil {
			return dst, false, err
		}
	}
	return dst, false, nil
}

// open lets the finer levels reach over the first bucket that begins at or before w. If there is none it
// returns false: then they reach beyond w.
func (x *wakeups[K]) open(w eventtime.Time) bool {
	if x.reach(w) {
		return true
	}
	for i := 1; i < levels; i++ {
		width := x.levels[i].width
		end := min(w, lastTimer).Floor(width, 0) + eventtime.Time(width)
		x.levels[i-1].until = max(x.levels[i-1].until, end)
	}
	return false
}

// peek appends what is due in a bucket of level 0, and keeps the first wake-up that is not.
func (x *wakeups[K]) peek(dst []wakeKey[K], w eventtime.Time, budget *int) ([]wakeKey[K], error) {
	s := x.peeked
	done, err := x.table.peek(s, budget, func(k wakeKey[K], at eventtime.Time) {
		if at <= w {
			dst = append(dst, k)
		} else {
			s.fireAt = min(s.fireAt, int64(at))
		}
	})
	if done {
		x.peeked = nil
	}
	return dst, err
}
