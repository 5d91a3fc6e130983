package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// buckets gives keys and windows a time each, at most one, and finds the first by looking at few of them. A bucket is
// a segment of the table; its window is the time that it covers.
//
//	             until of tenths    until of minutes              time ─▶
//	│tenth│tenth│tenth│    minute    │    minute    │      day      │
//
// docs/design/timers.md tells why buckets are wide far from the present.
type buckets[K comparable] struct {
	table  *Table[wakeKey[K], eventtime.Time]
	levels [levels]level[K]
}

// level is the buckets of one width. A time before until lies here, unless it is before that of a finer
// level; a bucket that begins before the until of a finer level is on its way there.
type level[K comparable] struct {
	width   int64 // ms, a multiple of the finer level's
	until   eventtime.Time
	buckets []*segment[wakeKey[K], eventtime.Time] // in the order of time
}

const (
	levels      = 3
	tenthWidth  = 100
	minuteWidth = 600 * tenthWidth
	dayWidth    = 1440 * minuteWidth

	// The range of times of timers: no day reaches beyond the range of time.
	firstTimer = eventtime.Min + 2*dayWidth
	lastTimer  = eventtime.EndOfGlobalWindow
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

func newBuckets[K comparable](key coder.Key[K], c *OpenContext, id statebackend.Table) (x buckets[K], err error) {
	times, err := coder.Of[eventtime.Time]()
	if err != nil {
		return x, err
	}
	t := newTable(tableConfig[wakeKey[K], eventtime.Time]{wakeKeys[K]{key}, times, nil}, c)
	t.id, t.native, t.tail = id, key.Native, wakeTail
	x = buckets[K]{table: t, levels: [levels]level[K]{{width: tenthWidth}, {width: minuteWidth}, {width: dayWidth, until: noTime}}}
	for i := range levels - 1 {
		x.levels[i].until = firstTimer.Floor(dayWidth, 0)
	}
	return x, nil
}

// horizons are until of the levels that have one, which restored buckets must be told.
type horizons [levels - 1]eventtime.Time

func (x *buckets[K]) horizons() (h horizons) {
	for i := range h {
		h[i] = x.levels[i].until
	}
	return h
}

func (h horizons) append(dst []byte) []byte {
	for _, t := range h {
		dst = binary.AppendVarint(dst, int64(t))
	}
	return dst
}

func decodeHorizons(src []byte) (h horizons, rest []byte, err error) {
	for i := range h {
		v, w := binary.Varint(src)
		if w <= 0 {
			return h, src, fmt.Errorf("horizon %d of the wake-ups is malformed", i)
		}
		h[i], src = eventtime.Clamp(eventtime.Time(v)), src[w:]
	}
	return h, src, nil
}

func (x *buckets[K]) restore(h horizons) error {
	for i, t := range h {
		if t != t.Floor(x.levels[i+1].width, 0) || i > 0 && t < h[i-1] {
			return fmt.Errorf("restore keyed state: horizons %v of wake-ups are not whole minutes and days in order", h)
		}
		x.levels[i].until = t
	}
	return x.table.restore(func(s *segment[wakeKey[K], eventtime.Time]) {
		s.fireAt = int64(s.win.StartTime())
		x.list(s)
	})
}

func (x *buckets[K]) list(s *segment[wakeKey[K], eventtime.Time]) {
	width := int64(s.win.EndTime() - s.win.StartTime()) // less than a tenth at the beginning of time
	for i := range x.levels {
		if l := &x.levels[i]; width <= l.width {
			l.buckets = insertSorted(l.buckets, s)
			return
		}
	}
}

// bucket is the bucket of a time.
func (x *buckets[K]) bucket(at eventtime.Time) window.Window {
	i := 0
	for at >= x.levels[i].until {
		i++
	}
	width := x.levels[i].width
	start := at.Floor(width, 0)
	return window.New(start, start+eventtime.Time(width))
}

// move gives a key and window the time to instead of from; noTime is none. It returns the bucket that it was in and
// the one that it is in, nil if there is none.
func (x *buckets[K]) move(k wakeKey[K], from, to eventtime.Time) (old, now *segment[wakeKey[K], eventtime.Time], made bool, err error) {
	var was, is window.Window
	if to != noTime {
		is = x.bucket(to)
	}
	if from != noTime {
		was = x.bucket(from)
		old = x.table.lookup(was)
		if old != nil && was != is {
			if err = x.table.removeKey(old, k); err != nil {
				return nil, nil, false, err
			}
		}
	}
	if to == noTime {
		return old, nil, false, nil
	}
	if now, made = x.table.segment(is); made {
		x.list(now)
	}
	return old, now, made, x.table.put(now, k, to)
}

// leaving is the level of a bucket that must be taken apart, or nil.
func (x *buckets[K]) leaving() *level[K] {
	for i := 1; i < levels; i++ {
		if b := x.levels[i].buckets; len(b) > 0 && b[0].win.StartTime() < x.levels[i-1].until {
			return &x.levels[i]
		}
	}
	return nil
}

// reach lets a finer level reach over the first bucket that begins at or before w, which makes it leave. If there is
// none it returns false.
func (x *buckets[K]) reach(w eventtime.Time) bool {
	for i := 1; i < levels; i++ {
		if b := x.levels[i].buckets; len(b) > 0 && b[0].win.StartTime() <= w {
			x.levels[i-1].until = b[0].win.EndTime()
			return true
		}
	}
	return false
}

// refine moves the times of the first bucket of a level to finer ones, by move, and then drops it. It needs several calls
// if the budget ends before; none of the buckets may be changed in between.
func (x *buckets[K]) refine(l *level[K], budget *int, move func(k wakeKey[K], from, to eventtime.Time) error) error {
	s := l.buckets[0]
	done, err := x.table.pass(s, budget, true, func(_ *segment[wakeKey[K], eventtime.Time], e *entry[wakeKey[K], eventtime.Time]) error {
		return move(e.key, noTime, e.acc)
	})
	if err != nil || !done {
		return err
	}
	l.buckets = popFront(l.buckets)
	return x.table.dropSegment(s)
}

// tidy takes apart the buckets that are leaving, within budget, and returns true when none is. It must have, before
// times are moved.
func (x *buckets[K]) tidy(budget *int, move func(k wakeKey[K], from, to eventtime.Time) error) (bool, error) {
	for l := x.leaving(); l != nil; l = x.leaving() {
		if *budget <= 0 {
			return false, nil
		}
		if err := x.refine(l, budget, move); err != nil {
			return false, err
		}
	}
	return true, nil
}
