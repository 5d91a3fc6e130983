package kernel

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// expiries frees the room of what has outlived its TTL. Reads do not see that any more whether it has come by or not; see
// package state. docs/design/state.md tells why it is an index and not a sweep over everything.
//
// For each clock that a TTL goes by there is a table of lookups: which key and window is to be looked at when. A bucket of
// it is a segment; its "window" ends when its lookups are due, and is the coarser the longer the TTL is and the further it is
// away. A key and window has one lookup a clock at most; its state has the bucket, in a slot behind those of the cells.
type expiries[K comparable] struct {
	slot   int         // of the lookups in keyState.cells
	decls  []cell.Decl // of the cells
	clocks [cell.Clocks]*lookupIndex[K]
	most   int                         // keys to look at in one go
	time   [cell.Clocks]eventtime.Time // that of processing, in this call of the operator
}

type lookupIndex[K comparable] struct {
	table   *Table[wakeKey[K], struct{}]
	buckets []*segment[wakeKey[K], struct{}] // in the order of their ends
	due     []wakeKey[K]                     // found in this call
}

// looks is the bucket of the lookup by each clock; the zero Window is none.
type looks [cell.Clocks]window.Window

const lookupTable = statebackend.Table(16) // of event time; the next is of processing time

// looksDecl is declared behind the cells. Users' cells have names.
func looksDecl() cell.Decl { return cell.Decl{Codec: looksCodec{}} }

// openExpiries returns nil if no cell has a TTL and none of a restored program had.
func openExpiries[K comparable](decls []cell.Decl, key coder.Key[K], c *OpenContext) (*expiries[K], error) {
	x := &expiries[K]{slot: len(decls), decls: decls, most: 4 * BatchSize}
	var need [cell.Clocks]bool
	for _, d := range decls {
		if d.TTL > 0 {
			need[d.Clock] = true
		}
	}
	some := false
	for clock := range x.clocks {
		if !need[clock] && c.Restore == nil {
			continue
		}
		l := &lookupIndex[K]{table: newTable(tableConfig[wakeKey[K], struct{}]{wakeKeys[K]{key}, noBytes{}, nil}, c)}
		l.table.id, l.table.native, l.table.tail = lookupTable+statebackend.Table(clock), key.Native, wakeTail
		l.table.max = c.CacheMax / 8
		if c.Restore != nil {
			err := l.table.restore(func(s *segment[wakeKey[K], struct{}]) { l.buckets = insertSorted(l.buckets, s) })
			if err != nil {
				return nil, err
			}
		}
		if need[clock] || len(l.buckets) > 0 {
			x.clocks[clock], some = l, true
		}
	}
	if !some {
		return nil, nil
	}
	return x, nil
}

// indexes are those by each clock, nil where no TTL goes by it.
func (x *expiries[K]) indexes() (all [cell.Clocks]*lookupIndex[K]) {
	if x != nil {
		all = x.clocks
	}
	return all
}

// cacheBytes is what the tables may take.
func (x *expiries[K]) cacheBytes() (n int64) {
	for _, l := range x.indexes() {
		if l != nil {
			n += l.table.max
		}
	}
	return n
}

func (x *expiries[K]) evict() error {
	for _, l := range x.indexes() {
		if l == nil {
			continue
		}
		if err := l.table.evict(); err != nil {
			return err
		}
	}
	return nil
}

// goBy says whether there are TTLs by a clock.
func (x *expiries[K]) goBy(clock cell.Clock) bool { return x != nil && x.clocks[clock] != nil }

// at tells the cells the time: now is that of event time, and stamp the timestamp of the call.
func (x *expiries[K]) at(cells *cell.Set, now, stamp eventtime.Time) {
	if x == nil {
		return
	}
	cells.Now, cells.Stamp = x.time, x.time
	cells.Now[cell.EventTime] = now
	// Not at Min: that is no time from which anything could pass.
	cells.Stamp[cell.EventTime] = max(now, stamp, eventtime.Min+1)
}

// drop removes what has expired from a state that may be changed.
func (x *expiries[K]) drop(k *keyState, clock cell.Clock, now eventtime.Time) {
	for i, d := range x.decls {
		if d.TTL > 0 && d.Clock == clock && k.cells[i] != nil && d.First(k.cells[i]) <= now && !d.Expire(k.cells[i], now) {
			k.cells[i] = nil
		}
	}
}

// first is a time before which nothing expires, and how late it may be noticed; noTime if nothing ever does.
func (x *expiries[K]) first(k *keyState, clock cell.Clock) (at eventtime.Time, lag int64) {
	at = noTime
	for i, d := range x.decls {
		if d.TTL == 0 || d.Clock != clock || k.cells[i] == nil {
			continue
		}
		if t := d.First(k.cells[i]); t < at {
			at, lag = t, powerOfTwo(d.TTL/16)
		}
	}
	if at >= lastTimer {
		at = noTime
	}
	return at, lag
}

// powerOfTwo is the greatest that is at most n, and at least 1.
func powerOfTwo(n int64) int64 {
	if n < 1 {
		return 1
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// lookupBucket is the bucket for a lookup at the time at, which may come lag ms late. One that is far away comes early
// instead, when a sixteenth of the time is left, and is then put into a finer bucket. So there are few buckets, however far
// apart times are.
func lookupBucket(at, now eventtime.Time, lag int64) window.Window {
	at = max(at, now+1)
	end := (at + eventtime.Time(lag) - 1).Floor(lag, 0)
	width := lag
	if far := powerOfTwo(int64(at-now) / 16); far > 2*lag {
		width, end = far, at.Floor(far, 0)
	}
	return window.New(end-eventtime.Time(width), end)
}

// of returns the lookups of a state, none if it has none.
func (x *expiries[K]) of(k *keyState) looks {
	if l, ok := k.cells[x.slot].(*looks); ok {
		return *l
	}
	return looks{}
}

// set changes a lookup of a state that may be changed.
func (x *expiries[K]) set(k *keyState, clock cell.Clock, w window.Window) {
	l, ok := k.cells[x.slot].(*looks)
	if !ok {
		l = &looks{}
		k.cells[x.slot] = l
	}
	if l[clock] = w; *l == (looks{}) {
		k.cells[x.slot] = nil
	}
}

// move moves a lookup from one bucket to another; the zero Window is none.
func (l *lookupIndex[K]) move(k wakeKey[K], from, to window.Window) error {
	// A pass that takes the bucket apart has not come to it: else the state would have another.
	if s := l.table.lookup(from); s != nil {
		if err := l.table.removeKey(s, k); err != nil {
			return err
		}
	}
	if to == (window.Window{}) {
		return nil
	}
	s, made := l.table.segment(to)
	if made {
		l.buckets = insertSorted(l.buckets, s)
	}
	return l.table.put(s, k, struct{}{})
}

// next is when there is a lookup to be made.
func (l *lookupIndex[K]) next() eventtime.Time {
	if len(l.buckets) == 0 {
		return noTime
	}
	return l.buckets[0].win.EndTime()
}

// ---- the operator ----

// eventNow is the event time of a call by a timer or of an expiry: what lives at that time is there, however far the watermark
// has come, unless all had fired before.
func (o *keyedParDo[K, V, Out]) eventNow() eventtime.Time {
	switch {
	case o.call.kind == callExpiry:
		return max(o.fired, o.lastTime())
	case o.call.by == byWatermark:
		return max(o.fired, o.call.at)
	}
	return o.fired
}

// nextLookup is the processing time from which there is something to free.
func (o *keyedParDo[K, V, Out]) nextLookup() eventtime.Time {
	next := noTime
	for clock, l := range o.ttl.indexes() {
		switch {
		case l == nil:
		case cell.Clock(clock) == cell.ProcessingTime:
			next = min(next, l.next())
		case l.next() <= o.fired:
			next = eventtime.Min // left over
		}
	}
	return next
}

// forgetLookups is called for a state that is about to go.
func (o *keyedParDo[K, V, Out]) forgetLookups() error {
	c := &o.call
	for clock, l := range o.ttl.indexes() {
		if l == nil {
			continue
		}
		if err := l.move(wakeKey[K]{c.key, c.win}, o.ttl.of(&c.e.acc)[clock], window.Window{}); err != nil {
			return err
		}
	}
	return nil
}

// settleLookups gives the state of the call a lookup in time for what expires first.
func (o *keyedParDo[K, V, Out]) settleLookups() error {
	c := &o.call
	for i, l := range o.ttl.indexes() {
		if l == nil {
			continue
		}
		clock := cell.Clock(i)
		first, lag := o.ttl.first(&c.e.acc, clock)
		if clock == cell.EventTime && first >= o.lastTime() {
			first = noTime // it goes with its window
		}
		has := o.ttl.of(&c.e.acc)[clock]
		if first == noTime || has != (window.Window{}) && has.EndTime() <= first.Add(lag) {
			continue // one that comes early moves on then
		}
		if !o.writable() {
			return c.err
		}
		to := lookupBucket(first, o.expiredBy(clock), lag)
		if err := l.move(wakeKey[K]{c.key, c.win}, has, to); err != nil {
			return err
		}
		o.ttl.set(&c.e.acc, clock, to)
		o.state.resized(c.e)
	}
	return nil
}

// expiredBy is the time at which what has expired may go: no call will look at an earlier one.
func (o *keyedParDo[K, V, Out]) expiredBy(clock cell.Clock) eventtime.Time {
	if clock == cell.EventTime {
		return o.fired
	}
	return o.ttl.time[clock]
}

// expireCells frees what has expired, about budget keys. No firing is unfinished. What is left to do waits for the next
// call: nothing depends on it but memory.
func (o *keyedParDo[K, V, Out]) expireCells(budget int) error {
	if o.ttl == nil {
		return nil
	}
	budget = min(budget, o.ttl.most)
	for i, l := range o.ttl.clocks {
		clock := cell.Clock(i)
		for l != nil && budget > 0 && l.next() <= o.expiredBy(clock) {
			s := l.buckets[0]
			done, err := l.table.pass(s, &budget, true, func(_ *segment[wakeKey[K], struct{}], e *entry[wakeKey[K], struct{}]) error {
				l.due = append(l.due, e.key)
				return nil
			})
			if err == nil {
				err = o.lookAtDue(clock, l, s.win)
			}
			if err == nil && done {
				l.buckets = popFront(l.buckets)
				err = l.table.dropSegment(s)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAtDue frees what has expired of the keys that were found in a bucket.
func (o *keyedParDo[K, V, Out]) lookAtDue(clock cell.Clock, l *lookupIndex[K], bucket window.Window) error {
	for _, k := range l.due {
		if err := o.want(k.key, k.win); err != nil {
			return err
		}
	}
	if err := o.state.load(); err != nil {
		return err
	}
	for _, k := range l.due {
		s := o.state.lookup(k.win)
		if s == nil {
			continue // the window has gone
		}
		e, err := o.state.find(s, k.key)
		if err != nil {
			return err
		}
		if e == nil || o.ttl.of(&e.acc)[clock] != bucket {
			continue
		}
		o.call = call[K]{key: k.key, win: k.win, s: s, e: e, cleared: true}
		if !o.writable() {
			return o.call.err
		}
		o.ttl.set(&e.acc, clock, window.Window{})
		o.ttl.drop(&e.acc, clock, o.expiredBy(clock))
		o.state.resized(e)
		if err := o.settle(0); err != nil {
			return err
		}
	}
	clear(l.due)
	l.due = l.due[:0]
	return nil
}

// ---- encodings ----

// looksCodec is the cell.Codec of looks: start and end of the bucket by each clock.
type looksCodec struct{}

func (looksCodec) Append(dst []byte, slot any) ([]byte, error) {
	for _, w := range *slot.(*looks) {
		dst = binary.AppendVarint(dst, int64(w.StartTime()))
		dst = binary.AppendVarint(dst, int64(w.EndTime()))
	}
	return dst, nil
}

func (looksCodec) Decode(src []byte) (any, error) {
	var l looks
	for i := range l {
		start, w := binary.Varint(src)
		end, w2 := binary.Varint(src[max(w, 0):])
		if w <= 0 || w2 <= 0 || end < start {
			return nil, errors.New("a bucket is malformed")
		}
		l[i], src = window.New(eventtime.Time(start), eventtime.Time(end)), src[w+w2:]
	}
	if len(src) > 0 {
		return nil, errors.New("bytes too many")
	}
	return &l, nil
}

func (looksCodec) Size(any) int { return 32 }

// noBytes encodes nothing.
type noBytes struct{}

func (noBytes) Append(dst []byte, _ struct{}) ([]byte, error)     { return dst, nil }
func (noBytes) Decode(src []byte) (_ struct{}, _ []byte, _ error) { return struct{}{}, src, nil }
