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
//	             until of tenths    until of minutes              time ─▶
//	│tenth│tenth│tenth│    minute    │    minute    │      day      │
//
// A bucket is a segment of the table; segment.fireAt is no later than the first wake-up in it.
type wakeups[K comparable] struct {
	table  *Table[wakeKey[K], eventtime.Time]
	levels [levels]level[K]
	peeked *segment[wakeKey[K], eventtime.Time] // of level 0: not looked through to its end yet

	due  []wakeKey[K] // their wake-ups have come; those before next have been woken
	next int
}

// level is the buckets of one width. A wake-up before until lies here, unless it is before that of a finer
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
	x := &wakeups[K]{table: t, levels: [levels]level[K]{{width: tenthWidth}, {width: minuteWidth}, {width: dayWidth, until: noTime}}}
	for i := range levels - 1 {
		x.levels[i].until = firstTimer.Floor(dayWidth, 0)
	}
	return x, nil
}

// horizons are until of the levels that have one, which a restored index must be told.
type horizons [levels - 1]eventtime.Time

func (x *wakeups[K]) horizons() (h horizons) {
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

func (x *wakeups[K]) restore(h horizons) error {
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

func (x *wakeups[K]) list(s *segment[wakeKey[K], eventtime.Time]) {
	width := int64(s.win.EndTime() - s.win.StartTime()) // less than a tenth at the beginning of time
	for i := range x.levels {
		if l := &x.levels[i]; width <= l.width {
			l.buckets = insertSorted(l.buckets, s)
			return
		}
	}
}

// bucket is the bucket of a time.
func (x *wakeups[K]) bucket(at eventtime.Time) window.Window {
	i := 0
	for at >= x.levels[i].until {
		i++
	}
	width := x.levels[i].width
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
			if s := x.table.lookup(old); s != nil {
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

// waiting is what fire has found and not woken, beginning with what it wakes now.
func (x *wakeups[K]) waiting() []wakeKey[K] { return x.due[x.next:] }

// find appends to dst some of the keys and windows whose wake-ups are at or before w, about budget of them.
// Each is appended again until its wake-up has moved, which must be before the next call. done says that
// none is left; otherwise there may be none in dst although there are more.
func (x *wakeups[K]) find(dst []wakeKey[K], w eventtime.Time, budget *int) (_ []wakeKey[K], done bool, err error) {
	for *budget > 0 && len(dst) == 0 {
		tenths := &x.levels[0].buckets
		if from := x.leaving(); from != nil {
			err = x.refine(from, budget)
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

// leaving is the level of a bucket that must be taken apart, or nil.
func (x *wakeups[K]) leaving() *level[K] {
	for i := 1; i < levels; i++ {
		if b := x.levels[i].buckets; len(b) > 0 && b[0].win.StartTime() < x.levels[i-1].until {
			return &x.levels[i]
		}
	}
	return nil
}

// open lets the finer levels reach over the first bucket that begins at or before w. If there is none it
// returns false: then they reach beyond w.
func (x *wakeups[K]) open(w eventtime.Time) bool {
	for i := 1; i < levels; i++ {
		if b := x.levels[i].buckets; len(b) > 0 && b[0].win.StartTime() <= w {
			x.levels[i-1].until = b[0].win.EndTime()
			return true
		}
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

// refine moves the wake-ups of the first bucket of a level to finer ones.
func (x *wakeups[K]) refine(l *level[K], budget *int) error {
	s := l.buckets[0]
	done, err := x.table.pass(s, budget, true, func(_ *segment[wakeKey[K], eventtime.Time], e *entry[wakeKey[K], eventtime.Time]) error {
		return x.move(e.key, noTime, e.acc)
	})
	if err != nil || !done {
		return err
	}
	l.buckets = popFront(l.buckets)
	return x.table.dropSegment(s)
}
