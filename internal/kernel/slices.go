package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// sliced aggregates sliding windows: it adds each element once, to its slice, and a window that fires merges its
// slices (docs/design/windows.md). Windows take no late elements and fire once.
//
//	slices   │  a  │b│  a  │b│  a  │b│
//	windows  └───────────────┘
//	                 └───────────────┘
//
// Its segments are slices; those that some window still needs are in open, in the order of time.
type sliced[K comparable, A, Out any] struct{ aggregate[K, A, Out] }

// slicing is what an aggregate knows of slices.
type slicing[K comparable, A any] struct {
	fn     window.SlidingFn
	period eventtime.Time
	fired  eventtime.Time // windows that end at or before it have fired, or had nothing to fire

	firing  bool             // a window has begun to fire
	end     eventtime.Time   // of that window
	members []*segment[K, A] // its slices
	at      int              // of members: the one that is being visited
	visited []*entry[K, A]
}

// NewSliced returns an operator like NewAggregate for elements whose windows are the slices of fn, with neither
// lateness nor early panes.
func NewSliced[K comparable, A, Out any](a Aggregation[K, A, Out], fn window.SlidingFn, inputs func() []AggregateInput[K, A, Out]) Operator {
	o := &sliced[K, A, Out]{aggregate[K, A, Out]{Aggregation: a, inputs: inputs()}}
	o.slices = &slicing[K, A]{fn: fn, period: eventtime.Time(fn.Period.Milliseconds()), fired: noFire}
	return o
}

// noFire is before the end of every window, as never is after it.
const noFire = eventtime.Time(-never)

// windows is the number of windows that hold a slice.
func (x *slicing[K, A]) windows(s window.Window) int {
	first, last := x.fn.Ends(s.StartTime())
	return int((last-first)/x.period) + 1
}

// ended is the number of them that have ended at watermark w.
func (x *slicing[K, A]) ended(s window.Window, w eventtime.Time) int {
	if w >= eventtime.Max {
		return x.windows(s) // ends beyond the range of time are at its end
	}
	first, last := x.fn.Ends(s.StartTime())
	if w < first {
		return 0
	}
	return int((min(w, last)-first)/x.period) + 1
}

// enterSlice returns the segment of a slice, or nil if all its windows have ended.
func (o *aggregate[K, A, Out]) enterSlice(w window.Window) *segment[K, A] {
	ended := o.slices.ended(w, o.w)
	if ended == o.slices.windows(w) {
		return nil
	}
	s, made := o.table.segment(w)
	if made {
		o.open = insertSorted(o.open, s)
	}
	s.fireAt = never
	if ended > 0 {
		s.fireAt = 0 // each element is too late for some windows: see tooLate
	}
	o.recent[recentSlot(w)] = s
	return s
}

// Open implements Operator.
func (o *sliced[K, A, Out]) Open(c *OpenContext) error {
	if err := o.aggregate.Open(c); err != nil || c.Restore == nil {
		return err
	}
	if len(c.Restore.Blob) != 9 {
		return fmt.Errorf("restore sliding windows: %d bytes where 9 were saved", len(c.Restore.Blob))
	}
	o.slices.fired = eventtime.Time(binary.BigEndian.Uint64(c.Restore.Blob[1:]))
	return nil
}

// Snapshot implements Stateful.
func (o *sliced[K, A, Out]) Snapshot(checkpoint int64, base bool) (OpSnapshot, error) {
	s, err := o.aggregate.Snapshot(checkpoint, base)
	s.Blob = binary.BigEndian.AppendUint64(s.Blob, uint64(o.slices.fired))
	return s, err
}

// Watermark implements Operator.
func (o *sliced[K, A, Out]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = w
	clear(o.recent[:])
	for {
		done, err := o.nextWindow(&budget)
		if err != nil {
			return false, err
		}
		if done {
			o.slices.fired = w
			if w >= eventtime.Max {
				o.slices.fired = eventtime.Time(never) // windows that end beyond the range of time end with it
			}
		}
		if done || budget <= 0 {
			if err := o.emit(); err != nil {
				return false, err
			}
			return done, o.table.evict()
		}
	}
}

// nextWindow goes on with the window that is due first, and returns true if none is.
func (o *sliced[K, A, Out]) nextWindow(budget *int) (bool, error) {
	x := o.slices
	if !x.firing {
		if len(o.open) == 0 {
			return true, nil
		}
		// No window that ends before the first of these holds a slice that is left.
		first, _ := x.fn.Ends(o.open[0].win.StartTime())
		end := first
		if x.fired >= first {
			end = first + ((x.fired-first)/x.period+1)*x.period
		}
		if eventtime.Clamp(end) > o.w {
			return true, nil
		}
		x.firing, x.end, x.at = true, end, 0
		for _, s := range o.open {
			if s.win.StartTime() >= end {
				break
			}
			x.members = append(x.members, s)
		}
	}
	for ; x.at < len(x.members); x.at++ {
		if done, err := o.fireSlice(x.members[x.at], budget); !done || err != nil {
			return false, err
		}
	}
	x.fired, x.firing = x.end, false
	clear(x.members)
	x.members = x.members[:0]
	for len(o.open) > 0 {
		s := o.open[0]
		if _, last := x.fn.Ends(s.win.StartTime()); last > x.fired {
			break
		}
		o.open = popFront(o.open)
		if err := o.table.dropSegment(s); err != nil {
			return false, err
		}
	}
	return false, nil
}

// Entries that a call of fireSlice may look up, in all slices.
const lookups = 16 << 10

// fireSlice emits the keys of a slice that no earlier slice of the firing window has, about budget of them, and
// returns true when all are.
func (o *sliced[K, A, Out]) fireSlice(s *segment[K, A], budget *int) (done bool, err error) {
	x, t := o.slices, o.table
	first, _ := x.fn.Ends(s.win.StartTime())
	number := int32((x.end-first)/x.period) + 1 // of the window among those of the slice
	for !done && *budget > 0 {
		some := min(*budget, BatchSize, max(1, lookups/len(x.members)))
		*budget -= some
		done, err = t.pass(s, &some, false, func(_ *segment[K, A], e *entry[K, A]) error {
			if e.panes < number { // else it was emitted before a restore, or before it was evicted
				x.visited = append(x.visited, e)
			}
			return nil
		})
		*budget += some
		if err == nil {
			err = o.loadSlices()
		}
		for i := 0; i < len(x.visited) && err == nil; i++ {
			err = o.emitKey(s, x.visited[i], number)
		}
		clear(x.visited)
		x.visited = x.visited[:0]
		if err == nil {
			err = t.evict()
		}
		if err != nil {
			return false, err
		}
	}
	return done, nil
}

// loadSlices fetches what other slices hold of the visited keys and was evicted.
func (o *sliced[K, A, Out]) loadSlices() error {
	x, t := o.slices, o.table
	if t.spilled == 0 {
		return nil
	}
	for k, s := range x.members {
		if k == x.at || !s.spilled {
			continue
		}
		for _, e := range x.visited {
			found, err := t.find(s, e.key)
			if err == nil && found == nil {
				err = t.miss(s, e.key)
			}
			if err != nil {
				return err
			}
		}
	}
	return t.load()
}

// emitKey emits the firing window for the key of e, unless an earlier slice has it.
func (o *sliced[K, A, Out]) emitKey(s *segment[K, A], e *entry[K, A], number int32) error {
	x, t := o.slices, o.table
	for k := x.at - 1; k >= 0; k-- {
		if found, err := t.find(x.members[k], e.key); found != nil || err != nil {
			return err
		}
	}
	acc, err := o.clone(e.acc)
	for k := x.at + 1; k < len(x.members) && err == nil; k++ {
		var found *entry[K, A]
		if found, err = t.find(x.members[k], e.key); found == nil || err != nil {
			continue
		}
		var other A
		if other, err = o.clone(found.acc); err == nil {
			acc = o.Merge(acc, other)
		}
	}
	if err == nil && e.epoch != t.epoch {
		err = t.touch(s, e)
	}
	if err != nil {
		return fmt.Errorf("window %v of key %v: %w", x.fn.Ending(x.end), Brief(e.key), err)
	}
	e.panes = number
	return o.pane(e.key, o.Extract(acc), x.fn.Ending(x.end), window.Pane{Timing: window.OnTime, First: true, Last: true})
}

func (o *sliced[K, A, Out]) clone(a A) (A, error) {
	if o.Clone == nil {
		return a, nil
	}
	return o.Clone(a)
}
