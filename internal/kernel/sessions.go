package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// sessions aggregates windows that grow and merge (docs/design/windows.md). The entry of a key is the list of
// its open sessions. An index of wake-ups says when one of them ends or expires.
type sessions[K comparable, A, Out any] struct {
	Aggregation[K, A, Out]
	paneOutput[K, Out]
	inputs []AggregateInput[K, A, Out]
	state  *Table[K, sessionList[A]]
	all    *segment[K, sessionList[A]] // the one of state; nil before the first key
	wakes  *wakeups[K]

	w eventtime.Time
}

// session is an open window of a key.
type session[A any] struct {
	start, end eventtime.Time
	header
	acc A
}

// sessionList is the sessions of a key, disjoint, in the order of time.
type sessionList[A any] struct {
	open []session[A]
	wake eventtime.Time // of the key in the index: no later than next of any of open
}

const sessionsVersion = 1

// NewSessions returns an operator like NewAggregate for elements whose windows merge with those that they
// overlap, key by key.
func NewSessions[K comparable, A, Out any](a Aggregation[K, A, Out], inputs func() []AggregateInput[K, A, Out]) Operator {
	return &sessions[K, A, Out]{Aggregation: a, inputs: inputs()}
}

// Open implements Operator.
func (o *sessions[K, A, Out]) Open(c *OpenContext) (err error) {
	o.outs, o.m, o.w = c.Outputs, c.Metrics, eventtime.Min
	o.state = newTable(tableConfig[K, sessionList[A]]{o.Key, sessionCoder[A]{o.Acc}, o.size}, c)
	if o.wakes, err = newWakeups(o.Key, c, wakeupTable); err != nil {
		return err
	}
	o.wakes.table.max = c.CacheMax / 4
	o.state.max -= o.wakes.table.max
	if c.Restore == nil {
		return nil
	}
	o.w = c.Restore.Watermark
	if err := o.state.restore(func(s *segment[K, sessionList[A]]) { o.all = s }); err != nil {
		return err
	}
	blob := c.Restore.Blob
	if len(blob) == 0 || blob[0] != sessionsVersion {
		return fmt.Errorf("restore sessions: the version of the state is not %d", sessionsVersion)
	}
	h, rest, err := decodeHorizons(blob[1:])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return fmt.Errorf("restore sessions: %w", err)
	}
	return o.wakes.restore(h)
}

// Close implements Operator.
func (o *sessions[K, A, Out]) Close() error { return nil }

// Process implements Operator.
func (o *sessions[K, A, Out]) Process(port int, b Batch) error {
	err := o.inputs[port].join(o, b)
	if err == nil {
		err = o.inputs[port].emitLate(&o.paneOutput)
	}
	return o.settle(err)
}

// settle emits what is due and brings the tables below their limits.
func (o *sessions[K, A, Out]) settle(err error) error {
	if err == nil {
		err = o.emit()
	}
	if err == nil {
		err = o.state.evict()
	}
	if err == nil {
		err = o.wakes.table.evict()
	}
	return err
}

// join adds each element to the session that it belongs to.
func (in *aggregateInput[K, V, A, Out]) join(o *sessions[K, A, Out], b Batch) error {
	rows := b.(*Rows[coder.KV[K, V]]).E
	if o.all != nil && o.all.spilled {
		for i := range rows {
			if err := o.want(rows[i].Value.Key); err != nil {
				return err
			}
		}
		if err := o.state.load(); err != nil {
			return err
		}
	}
	for i := range rows {
		r := &rows[i]
		if o.w >= o.expiry(r.Window.EndTime()) {
			in.late.E = append(in.late.E, *r)
			continue
		}
		e, err := o.entry(r.Value.Key)
		if err != nil {
			return err
		}
		s := o.place(e, r.Window)
		s.acc = in.add(s.acc, r.Value.Value)
		s.since++
		if err := o.added(e, s); err != nil {
			return err
		}
	}
	return nil
}

// want notes the sessions of a key for load, if they may be in the backend alone.
func (o *sessions[K, A, Out]) want(k K) error {
	e, err := o.state.find(o.all, k)
	if err == nil && e == nil {
		err = o.state.miss(o.all, k)
	}
	return err
}

// entry returns the entry of a key, ready to be changed. It may have no sessions yet.
func (o *sessions[K, A, Out]) entry(k K) (e *entry[K, sessionList[A]], err error) {
	t := o.state
	if o.all == nil {
		o.all, _ = t.segment(window.GlobalWindow)
	}
	if e, err = t.find(o.all, k); err == nil && e == nil {
		if e, err = t.insert(o.all, k); err == nil {
			e.acc.wake = noTime
		}
	}
	if err == nil && e.epoch != t.epoch {
		err = t.touch(o.all, e)
	}
	if err == nil && t.evicts {
		e.flags |= flagUsed
	}
	return e, err
}

// place returns the session of the key that w belongs to, which is made, extended or merged as need be.
func (o *sessions[K, A, Out]) place(e *entry[K, sessionList[A]], w window.Window) *session[A] {
	l := e.acc.open
	// Sessions before first end at or before w begins; those from end on begin at or after it ends.
	end := len(l)
	for end > 0 && l[end-1].start >= w.EndTime() {
		end--
	}
	first := end
	for first > 0 && l[first-1].end > w.StartTime() {
		first--
	}
	if first == end {
		e.acc.open = slices.Insert(l, first, session[A]{start: w.StartTime(), end: w.EndTime(), acc: o.Create()})
		return &e.acc.open[first]
	}
	s := &l[first]
	s.start, s.end = min(s.start, w.StartTime()), max(l[end-1].end, w.EndTime())
	for i := first + 1; i < end; i++ {
		s.acc = o.Merge(s.acc, l[i].acc)
		s.merge(l[i].header)
	}
	s.onTime = s.onTime && s.end <= o.w // a session that goes on fires again at its end
	e.acc.open = slices.Delete(l, first+1, end)
	return s
}

// merge makes h what is known of two windows that have become one.
func (h *header) merge(other header) {
	h.since += other.since
	late := max(h.panes-h.early, other.panes-other.early)
	h.panes = max(h.panes, other.panes)
	h.early = h.panes - late
	h.onTime = h.onTime || other.onTime
}

// added fires the session if it has enough elements, and brings the key's wake-up forward if need be.
func (o *sessions[K, A, Out]) added(e *entry[K, sessionList[A]], s *session[A]) (err error) {
	switch {
	case s.end > o.w:
		if o.EarlyCount > 0 && s.since >= o.EarlyCount {
			err = o.fire(e, s, window.Early, false)
		}
	case !s.onTime || s.since >= o.LateCount: // see aggregate.added
		err = o.fire(e, s, window.Late, false)
	}
	o.state.resized(e)
	if next := o.next(s); err == nil && next < e.acc.wake {
		err = o.wakes.move(o.wakeKey(e.key), e.acc.wake, next)
		e.acc.wake = next
	}
	return err
}

// next is when the session ends, or, if it has, when it expires.
func (o *sessions[K, A, Out]) next(s *session[A]) eventtime.Time {
	if s.onTime {
		return o.expiry(s.end)
	}
	return max(s.end, firstTimer)
}

// expiry is the watermark that ends the life of a session with this end, which is at most lastTimer.
func (o *sessions[K, A, Out]) expiry(end eventtime.Time) eventtime.Time {
	return min(max(end.Add(o.Lateness), firstTimer), lastTimer)
}

func (o *sessions[K, A, Out]) wakeKey(k K) wakeKey[K] { return wakeKey[K]{k, window.GlobalWindow} }

// fire emits a pane. The entry is touched.
func (o *sessions[K, A, Out]) fire(e *entry[K, sessionList[A]], s *session[A], timing window.Timing, last bool) error {
	err := o.pane(e.key, o.Extract(s.acc), window.New(s.start, s.end), s.fired(timing, last))
	if !o.Accumulating && !last {
		s.acc = o.Create()
	}
	return err
}

// Watermark implements Operator: sessions fire at their end and go at their expiry.
func (o *sessions[K, A, Out]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = w
	done, err := o.wakes.fire(w, &budget, o.wake)
	return done, o.settle(err)
}

// wake does what is due for a key, and moves its wake-up. It returns false if the budget ends before.
func (o *sessions[K, A, Out]) wake(woken wakeKey[K], budget *int) (bool, error) {
	k := woken.key
	if o.all == nil {
		return false, fmt.Errorf("key %v has a wake-up but no step has sessions", Brief(k))
	}
	e, err := o.state.find(o.all, k)
	if err == nil && e == nil && o.all.spilled {
		for _, d := range o.wakes.waiting() {
			if err := o.want(d.key); err != nil {
				return false, err
			}
		}
		if err = o.state.load(); err == nil {
			e, err = o.state.find(o.all, k)
		}
	}
	if err == nil && e == nil {
		err = fmt.Errorf("key %v has a wake-up but no sessions", Brief(k))
	}
	if err == nil && e.epoch != o.state.epoch {
		err = o.state.touch(o.all, e)
	}
	if err != nil {
		return false, err
	}
	for {
		i := o.first(e.acc.open)
		if i < 0 || o.next(&e.acc.open[i]) > o.w {
			return true, o.sleep(e, i)
		}
		if *budget <= 0 {
			return false, nil
		}
		*budget--
		if err := o.pass(e, i); err != nil {
			return false, err
		}
		o.state.resized(e)
	}
}

// first is the index of the session that is next to end or expire, or -1.
func (o *sessions[K, A, Out]) first(l []session[A]) int {
	first := -1
	for i := range l {
		if first < 0 || o.next(&l[i]) < o.next(&l[first]) {
			first = i
		}
	}
	return first
}

// pass takes session i through its end or its expiry.
func (o *sessions[K, A, Out]) pass(e *entry[K, sessionList[A]], i int) (err error) {
	s := &e.acc.open[i]
	ending := !s.onTime
	last := !ending || o.Lateness == 0
	switch {
	case s.since == 0:
		s.onTime = true // nothing came since the pane before: no empty pane
	case ending:
		err = o.fire(e, s, window.OnTime, last)
	default:
		err = o.fire(e, s, window.Late, last)
	}
	if last {
		e.acc.open = slices.Delete(e.acc.open, i, i+1)
	}
	return err
}

// sleep moves the wake-up of a woken key to its session i, the first that is due; -1: the key has none and goes.
func (o *sessions[K, A, Out]) sleep(e *entry[K, sessionList[A]], i int) error {
	next := noTime
	if i >= 0 {
		next = o.next(&e.acc.open[i])
	}
	if err := o.wakes.move(o.wakeKey(e.key), e.acc.wake, next); err != nil {
		return err
	}
	e.acc.wake = next
	if i < 0 {
		return o.state.remove(o.all, e)
	}
	return nil
}

// Snapshot implements Stateful.
func (o *sessions[K, A, Out]) Snapshot(checkpoint int64, base bool) (OpSnapshot, error) {
	p, err := cutTogether(base, o.state.backend, o.state, o.wakes.table)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("checkpoint %d: %w", checkpoint, err)
	}
	return OpSnapshot{Blob: o.wakes.horizons().append([]byte{sessionsVersion}), Keyed: p}, nil
}

// size is the heap memory of the sessions of a key.
func (o *sessions[K, A, Out]) size(l *sessionList[A]) int {
	n := cap(l.open) * int(unsafe.Sizeof(session[A]{}))
	if o.Size != nil {
		for i := range l.open {
			n += o.Size(&l.open[i].acc)
		}
	}
	return n
}

// sessionCoder encodes the sessions of a key (docs/format/sessions.md).
type sessionCoder[A any] struct{ acc coder.Coder[A] }

func (c sessionCoder[A]) Append(dst []byte, l sessionList[A]) (_ []byte, err error) {
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.wake))
	dst = binary.AppendUvarint(dst, uint64(len(l.open)))
	var last eventtime.Time
	for i := range l.open {
		s := &l.open[i]
		dst = binary.AppendVarint(dst, int64(s.start-last))
		dst = binary.AppendUvarint(dst, uint64(s.end-s.start))
		dst = s.header.append(dst)
		if dst, err = c.acc.Append(dst, s.acc); err != nil {
			return nil, err
		}
		last = s.end
	}
	return dst, nil
}

func (c sessionCoder[A]) Decode(src []byte) (l sessionList[A], rest []byte, err error) {
	if len(src) < 8 {
		return l, src, fmt.Errorf("sessions of a key have %d bytes", len(src))
	}
	l.wake = eventtime.Time(binary.BigEndian.Uint64(src))
	src = src[8:]
	n, w := binary.Uvarint(src)
	if w <= 0 || n > uint64(len(src)) {
		return l, src, fmt.Errorf("number of sessions is malformed")
	}
	src = src[w:]
	l.open = make([]session[A], n)
	var last eventtime.Time
	for i := range l.open {
		s := &l.open[i]
		start, w := binary.Varint(src)
		if w <= 0 {
			return l, src, fmt.Errorf("start of session %d is malformed", i)
		}
		length, w2 := binary.Uvarint(src[w:])
		if w2 <= 0 {
			return l, src, fmt.Errorf("end of session %d is malformed", i)
		}
		src = src[w+w2:]
		s.start = last + eventtime.Time(start)
		s.end = s.start + eventtime.Time(length)
		if s.header, src, err = decodeHeader(src); err != nil {
			return l, src, fmt.Errorf("session %d: %w", i, err)
		}
		if s.acc, src, err = c.acc.Decode(src); err != nil {
			return l, src, fmt.Errorf("session %d: %w", i, err)
		}
		last = s.end
	}
	return l, src, nil
}
