package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// wakeups is the index of a keyed step: when to look at which key and window. docs/design/timers.md tells
// why it is coarse and lazy.
//
//	                near                                  time ─▶
//	│fine│fine│fine│      hour      │                │      hour      │
//
// A wake-up before near lies in a bucket of a second, another in one of an hour. A bucket is a segment of
// the table; segment.fireAt is no later than the first wake-up in it.
type wakeups[K comparable] struct {
	table  *Table[wakeKey[K], eventtime.Time]
	near   eventtime.Time
	fine   []*segment[wakeKey[K], eventtime.Time] // in the order of time
	hours  []*segment[wakeKey[K], eventtime.Time]
	peeked *segment[wakeKey[K], eventtime.Time] // of fine: not looked through to its end yet
}

const (
	fineWidth = 1000
	hourWidth = 3600 * fineWidth

	// The range of times of timers: no hour reaches beyond the range of time.
	firstTimer = eventtime.Min + 2*hourWidth
	lastTimer  = eventtime.EndOfGlobalWindow

	wakeupTable = statebackend.Table(1)
)

// wakeKey is a key and window.
type wakeKey[K comparable] struct {
	key K
	win window.Window
}

// wakeKeys encodes a wakeKey as its key, then the window in wakeTail bytes.
type wakeKeys[K comparable] struct{ key coder.Key[K] }

const wakeTail = 16

func (w wakeKeys[K]) Append(dst []byte, k wakeKey[K]) ([]byte, error) {
	out, err := w.key.Append(dst, k.key)
	if err != nil {
		return dst, err
	}
	out = binary.BigEndian.AppendUint64(out, uint64(k.win.StartTime())^1<<63)
	return binary.BigEndian.AppendUint64(out, uint64(k.win.EndTime())^1<<63), nil
}

func (w wakeKeys[K]) Decode(src []byte) (k wakeKey[K], rest []byte, err error) {
	if k.key, rest, err = w.key.Decode(src); err != nil {
		return k, src, err
	}
	if len(rest) < wakeTail {
		return k, src, fmt.Errorf("the window of a wake-up has %d bytes", len(rest))
	}
	k.win = window.New(
		eventtime.Time(binary.BigEndian.Uint64(rest)^1<<63),
		eventtime.Time(binary.BigEndian.Uint64(rest[8:])^1<<63))
	return k, rest[wakeTail:], nil
}

func newWakeups[K comparable](key coder.Key[K], c *OpenContext) (*wakeups[K], error) {
	times, err := coder.Of[eventtime.Time]()
	if err != nil {
		return nil, err
	}
	t := newTable(tableConfig[wakeKey[K], eventtime.Time]{wakeKeys[K]{key}, times, nil}, c)
	t.id, t.native, t.tail = wakeupTable, key.Native, wakeTail
	return &wakeups[K]{table: t, near: firstTimer.Floor(hourWidth, 0)}, nil
}

func (x *wakeups[K]) restore(near eventtime.Time) error {
	if near != near.Floor(hourWidth, 0) {
		return fmt.Errorf("restore keyed state: wake-ups are by the second until %v, which is not a full hour", near)
	}
	x.near = near
	return x.table.restore(func(s *segment[wakeKey[K], eventtime.Time]) {
		s.fireAt = int64(s.win.StartTime())
		x.list(s)
	})
}

func (x *wakeups[K]) list(s *segment[wakeKey[K], eventtime.Time]) {
	if s.win.EndTime()-s.win.StartTime() <= fineWidth { // less at the beginning of time
		x.fine = insertSorted(x.fine, s)
	} else {
		x.hours = insertSorted(x.hours, s)
	}
}

// bucket is the bucket of a time.
func (x *wakeups[K]) bucket(at eventtime.Time) window.Window {
	width := int64(fineWidth)
	if at >= x.near {
		width = hourWidth
	}
	start := at.Floor(width, 0)
	return window.New(start, start+eventtime.Time(width))
}

// move gives a key and window the wake-up to instead of from; noTime is none.
func (x *wakeups[K]) move(k wakeKey[K], from, to eventtime.Time) error {
	var old, now window.Window
	if to != noTime {
		now = x.bucket(to)
	}
	if from != noTime {
		if old = x.bucket(from); old != now {
			if s := x.table.segments[old]; s != nil {
				if err := x.table.removeKey(s, k); err != nil {
					return err
				}
			}
		}
	}
	if to == noTime {
		return nil
	}
	s, made := x.table.segment(now)
	if made {
		x.list(s)
	}
	s.fireAt = min(s.fireAt, int64(to))
	return x.table.put(s, k, to)
}

// due appends to dst some of the keys and windows whose wake-ups are at or before w, about budget of them.
// Each is appended again until its wake-up has moved, which must be before the next call. done says that
// none is left; otherwise there may be none in dst although there are more.
func (x *wakeups[K]) due(dst []wakeKey[K], w eventtime.Time, budget *int) (_ []wakeKey[K], done bool, err error) {
	for {
		if len(x.hours) > 0 && x.hours[0].win.StartTime() < x.near {
			if finished, err := x.refine(x.hours[0], budget); !finished || err != nil {
				return dst, false, err
			}
			x.hours = popFront(x.hours)
			continue
		}
		if x.peeked == nil && len(x.fine) > 0 && x.fine[0].fireAt <= int64(w) {
			x.peeked = x.fine[0]
			x.peeked.fireAt = never
		}
		if s := x.peeked; s != nil {
			dst, err = x.peek(s, dst, w, budget)
			if err != nil || *budget <= 0 || len(dst) > 0 {
				return dst, false, err
			}
			continue
		}
		if len(x.fine) > 0 && x.fine[0].win.EndTime() <= w {
			// Everything in it has fired or moved.
			if err := x.table.dropSegment(x.fine[0]); err != nil {
				return dst, false, err
			}
			x.fine = popFront(x.fine)
			continue
		}
		if len(x.hours) > 0 && x.hours[0].win.StartTime() <= w {
			x.near = x.hours[0].win.EndTime()
			continue
		}
		x.near = max(x.near, min(w, lastTimer).Floor(hourWidth, 0)+hourWidth)
		return dst, true, nil
	}
}

// peek appends what is due in a bucket of a second, and keeps the first wake-up that is not.
func (x *wakeups[K]) peek(s *segment[wakeKey[K], eventtime.Time], dst []wakeKey[K], w eventtime.Time, budget *int) ([]wakeKey[K], error) {
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

// refine moves the wake-ups of an hour, which ends at or before near, into buckets of a second.
func (x *wakeups[K]) refine(hour *segment[wakeKey[K], eventtime.Time], budget *int) (bool, error) {
	done, err := x.table.pass(hour, budget, true, func(s *segment[wakeKey[K], eventtime.Time], e *entry[wakeKey[K], eventtime.Time]) error {
		return x.move(e.key, noTime, e.acc)
	})
	if err != nil || !done {
		return false, err
	}
	return true, x.table.dropSegment(hour)
}
