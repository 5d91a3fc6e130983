package kernel

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// panes aggregates windows of any kind by any trigger (docs/design/panes.md). aggregate and slicing do the same for
// windows that are known beforehand and fire at their end, many keys at once; here each key wakes up when one of its windows has something to do.
//
// The entry of a key is a list of open windows: all of the key if windows merge, else one. Indexes say when to look at it: by the
// watermark, by the clock, and what holds the watermark back.
type panes[K comparable, A, Out any] struct {
	Aggregation[K, A, Out]
	paneOutput[K, Out]
	inputs []AggregateInput[K, A, Out]
	state  *Table[K, anyList]
	events *wakeups[K]
	clocks *wakeups[K] // nil unless the trigger follows the clock
	holds  *holds[K]   // nil unless panes may come when the watermark has passed their timestamps

	all     *segment[K, anyList]   // the one of state if windows merge; nil before the first key
	windows []*segment[K, anyList] // if they do not: in the order of their ends

	merger merger[A, Out]

	w, out eventtime.Time // watermark of the input, and of the output
	now    eventtime.Time // processing time
	due    []wakeKey[K]   // made ready by retractions of the batch
	clock  func() eventtime.Time
	any    bool // an element came, ever: see Identity
}

// anyList is a *windowList[A, Out]. As an interface, it makes all aggregations with one type of key share one compiled table.
type anyList any

func (o *panes[K, A, Out]) list(e *entry[K, anyList]) *windowList[A, Out] {
	return e.acc.(*windowList[A, Out])
}

// windowList is the open windows of a key, in the order of window.CompareStarts; sessions are disjoint.
type windowList[A, Out any] struct {
	open []openWindow[A, Out]
	// Of the key in the indexes; noTime: it is in none. wake and clock are no later than the first of any of open.
	wake, clock, hold eventtime.Time
}

// openWindow is a window of a key that takes elements.
type openWindow[A, Out any] struct {
	win window.Window
	header
	more *windowMore[Out] // nil if Windowing.simple
	acc  A
}

// windowMore is what only some windowings need to know.
type windowMore[Out any] struct {
	trigger triggering.State
	clock   eventtime.Time // processing time at which the trigger may be ready; else noTime
	hold    eventtime.Time // combined timestamp of the elements since the pane before that count; noTime if none does
	atEnd   bool           // some of them count as the end of the window
	prev    []emitted[Out] // to be taken back before the next pane
}

// emitted is a pane that may have to be taken back.
type emitted[Out any] struct {
	win   window.Window
	time  eventtime.Time
	pane  Pane
	value Out
}

// NewPanes returns an operator like NewAggregate for any windowing. Its windows merge if a.Merging is set.
func NewPanes[K comparable, A, Out any](a Aggregation[K, A, Out], inputs func() []AggregateInput[K, A, Out]) Operator {
	return &panes[K, A, Out]{Aggregation: a, inputs: inputs()}
}

// simple says whether the trigger is counts and nothing else is asked for.
func (w *Windowing) simple() bool {
	return w.Trigger == nil && !w.Retracting && w.Timestamps == EndOfWindow
}

// holds says whether a pane, or its retraction, may come when the watermark has passed its timestamp.
func (w *Windowing) holds() bool {
	return w.Timestamps != EndOfWindow || w.Trigger != nil && !w.Trigger.FiresAtEnd() || w.Retracting && w.Merging != nil
}

// Open implements Operator.
func (o *panes[K, A, Out]) Open(c *OpenContext) (err error) {
	o.outs, o.m, o.w, o.out, o.clock = c.Outputs, c.Metrics, eventtime.Min, eventtime.Min, c.Now
	o.state = newTable(tableConfig[K, anyList]{o.Key, o.coder(), o.sizer()}, c)
	indexes := []**wakeups[K]{&o.events}
	if o.Trigger != nil && o.Trigger.FollowsClock() {
		indexes = append(indexes, &o.clocks)
	}
	for i, x := range indexes {
		if *x, err = newWakeups(o.Key, c, wakeupTable+statebackend.Table(i)); err != nil {
			return err
		}
		(*x).table.max = c.CacheMax / 8
		o.state.max -= c.CacheMax / 8
	}
	if o.Windowing.holds() {
		if o.holds, err = newHolds(o.Key, c, holdTable); err != nil {
			return err
		}
		o.holds.table.max = c.CacheMax / 8
		o.state.max -= c.CacheMax / 8
	}
	if c.Restore == nil {
		return nil
	}
	return o.restore(c.Restore)
}

// Close implements Operator.
func (o *panes[K, A, Out]) Close() error { return nil }

// Process implements Operator.
func (o *panes[K, A, Out]) Process(port int, b Batch) error {
	if o.clocks != nil {
		o.now = o.clock()
	}
	err := o.inputs[port].join(o, b)
	if err == nil {
		err = o.inputs[port].emitLate(&o.paneOutput)
	}
	for done := o.holds == nil; err == nil && !done; {
		budget := BatchSize
		done, err = o.holds.settle(o.w, &budget)
	}
	return o.settle(err)
}

// settle emits what is due and brings the tables below their limits.
func (o *panes[K, A, Out]) settle(err error) error {
	if err == nil {
		err = o.emit()
	}
	if err == nil {
		err = o.state.evict()
	}
	if err == nil {
		err = o.events.table.evict()
	}
	if err == nil && o.clocks != nil {
		err = o.clocks.table.evict()
	}
	if err == nil && o.holds != nil {
		err = o.holds.evict()
	}
	return err
}

// join adds each element to its window.
func (in *aggregateInput[K, V, A, Out]) join(o *panes[K, A, Out], b Batch) error {
	rows := b.(*Rows[coder.KV[K, V]]).E
	if o.state.spilled > 0 {
		for i := range rows {
			if err := o.want(o.wakeKey(rows[i].Value.Key, rows[i].Window)); err != nil {
				return err
			}
		}
		if err := o.state.load(); err != nil {
			return err
		}
	}
	replaces := false // what the retractions before took back
	for i := range rows {
		r := &rows[i]
		replaces = r.Pane.Retraction() || i > 0 && (rows[i-1].Pane.Retraction() || replaces && together(&rows[i-1], r))
		if o.w >= o.expiry(r.Window.EndTime()) {
			in.late.E = append(in.late.E, *r)
			continue
		}
		seg, e, err := o.entry(o.wakeKey(r.Value.Key, r.Window))
		if err != nil {
			return err
		}
		s, err := o.place(r.Value.Key, o.list(e), r.Window)
		if err != nil {
			return err
		}
		if s.closed {
			in.late.E = append(in.late.E, *r)
		} else {
			if r.Pane.Retraction() {
				if in.remove == nil {
					return fmt.Errorf("element %s is taken back, and the aggregation cannot remove it", Brief(r.Value))
				}
				s.acc = in.remove(s.acc, r.Value.Value)
			} else {
				s.acc = in.add(s.acc, r.Value.Value)
			}
			o.count(s, r.Time)
			switch {
			case !o.ready(s):
			case r.Pane.Retraction(), replaces && i+1 < len(rows) && together(r, &rows[i+1]): // what takes its place may follow
				o.due = append(o.due, wakeKey[K]{r.Value.Key, s.win})
			default:
				if err := o.fire(r.Value.Key, s, true, o.hasFired(s)); err != nil {
					return err
				}
			}
		}
		if err := o.schedule(seg, e); err != nil {
			return err
		}
	}
	return o.fireDue()
}

// together says whether a and b may be made of one pane.
func together[T any](a, b *Element[T]) bool { return a.Pane == b.Pane && a.Time == b.Time }

// fireDue fires the windows that a retraction has made ready, or a part of what takes its place, unless the last part has done so. A
// batch does not end between them (see full), so that no pane has only the one.
func (o *panes[K, A, Out]) fireDue() error {
	defer func() { clear(o.due); o.due = o.due[:0] }()
	for _, k := range o.due {
		seg, e, err := o.entry(o.wakeKey(k.key, k.win))
		if err != nil {
			return err
		}
		l := o.list(e)
		i, open := l.find(k.win)
		if !open {
			continue // it has merged, and fires as what it is now
		}
		if s := &l.open[i]; o.ready(s) {
			if err := o.fire(k.key, s, true, o.hasFired(s)); err != nil {
				return err
			}
		}
		if err := o.schedule(seg, e); err != nil {
			return err
		}
	}
	return nil
}

// wakeKey is where the entry of a key and window is found.
func (o *panes[K, A, Out]) wakeKey(k K, w window.Window) wakeKey[K] {
	if o.Merging != nil {
		w = window.GlobalWindow
	}
	return wakeKey[K]{k, w}
}

func (o *panes[K, A, Out]) segment(w window.Window) *segment[K, anyList] {
	if o.Merging != nil {
		return o.all
	}
	return o.state.lookup(w)
}

// want notes an entry for load, if it may be in the backend alone.
func (o *panes[K, A, Out]) want(k wakeKey[K]) error {
	s := o.segment(k.win)
	if s == nil || !s.spilled {
		return nil
	}
	e, err := o.state.find(s, k.key)
	if err == nil && e == nil {
		err = o.state.miss(s, k.key)
	}
	return err
}

// entry returns the entry of a key and window, ready to be changed. It may have no windows yet.
func (o *panes[K, A, Out]) entry(k wakeKey[K]) (s *segment[K, anyList], e *entry[K, anyList], err error) {
	t := o.state
	if s = o.segment(k.win); s == nil {
		s, _ = t.segment(k.win)
		o.opened(s)
	}
	if e, err = t.find(s, k.key); err == nil && e == nil {
		if e, err = t.insert(s, k.key); err == nil {
			e.acc = &windowList[A, Out]{wake: noTime, clock: noTime, hold: noTime}
		}
	}
	if err == nil && e.epoch != t.epoch {
		err = t.touch(s, e)
	}
	if err == nil && t.evicts {
		e.flags |= flagUsed
	}
	return s, e, err
}

// opened keeps a segment of state.
func (o *panes[K, A, Out]) opened(s *segment[K, anyList]) {
	o.any = true
	if o.Merging != nil {
		o.all = s
	} else {
		o.windows = insertSorted(o.windows, s)
	}
}

// count takes an element of the timestamp t, which is in s, into account.
func (o *panes[K, A, Out]) count(s *openWindow[A, Out], t eventtime.Time) {
	if o.w >= s.win.EndTime() {
		s.late, s.ended = s.late || s.since == 0, true
	}
	s.since++
	if m := s.more; m != nil {
		o.keep(s, t)
		if o.Trigger != nil {
			o.Trigger.Element(&m.trigger, o.moment(s))
		}
	}
}

// keep takes an element into account for the timestamp of the next pane.
func (o *panes[K, A, Out]) keep(s *openWindow[A, Out], t eventtime.Time) {
	end := s.win.MaxTimestamp()
	t = min(t, end) // a custom window may end before its elements
	switch {
	case o.Timestamps != EndOfWindow && t >= o.out:
		s.more.hold = o.combine(s.more.hold, t)
	case end >= o.out && (o.Timestamps == EndOfWindow || o.w <= end):
		s.more.atEnd = true
	}
}

// combine combines two timestamps, either of which may be noTime.
func (o *panes[K, A, Out]) combine(a, b eventtime.Time) eventtime.Time {
	if o.Timestamps == Latest && a != noTime && b != noTime {
		return max(a, b)
	}
	return min(a, b)
}

// heldAt is the timestamp of the next pane, where it holds the watermark; noTime if it holds nothing.
func (o *panes[K, A, Out]) heldAt(s *openWindow[A, Out]) eventtime.Time {
	if s.more.atEnd {
		return o.combine(s.more.hold, s.win.MaxTimestamp())
	}
	return s.more.hold
}

// heldToRetract is the last watermark at which a pane of a window that merged into s is not too late to be taken back; noTime
// if there is none.
func (o *panes[K, A, Out]) heldToRetract(s *openWindow[A, Out]) eventtime.Time {
	at := eventtime.Time(noTime)
	if o.Merging == nil || !o.Retracting {
		return at
	}
	for i := range s.more.prev {
		if p := &s.more.prev[i]; p.win != s.win {
			at = min(at, o.expiry(p.win.EndTime())-1)
		}
	}
	return at
}

// moment is what the trigger of a window needs to know of the time.
func (o *panes[K, A, Out]) moment(s *openWindow[A, Out]) triggering.Now {
	return triggering.Now{End: s.win.EndTime(), Watermark: o.w, Clock: o.now}
}

// ready says whether a pane is due.
func (o *panes[K, A, Out]) ready(s *openWindow[A, Out]) bool {
	switch {
	case s.closed:
		return false
	case o.Trigger != nil:
		return o.Trigger.Ready(&s.more.trigger, o.moment(s))
	case o.w < s.win.EndTime():
		return o.EarlyCount > 0 && s.since >= o.EarlyCount
	}
	return !s.onTime || s.since >= o.LateCount // see aggregate.added
}

// hasFired tells the trigger of a window, which was ready, that a pane fires. It returns true if that was the last.
func (o *panes[K, A, Out]) hasFired(s *openWindow[A, Out]) bool {
	return o.Trigger != nil && o.Trigger.Fired(&s.more.trigger, o.moment(s))
}

// fire emits a pane, unless it would be empty and is not asked for. ready says that it is the trigger that fires, last that there will be no
// other. The entry is touched.
func (o *panes[K, A, Out]) fire(k K, s *openWindow[A, Out], ready, last bool) (err error) {
	timing := window.Late
	switch {
	case o.w < s.win.EndTime():
		timing = window.Early
	case !s.onTime && !s.late:
		timing = window.OnTime
	}
	s.closed = last
	if s.since == 0 && !(timing == window.OnTime && ready && o.EmptyOnTime) && !(last && o.EmptyLast) {
		s.onTime = s.onTime || timing != window.Early
		return nil
	}
	t := s.win.MaxTimestamp()
	if m := s.more; m != nil {
		if at := o.heldAt(s); at != noTime {
			t = at
		}
		m.hold, m.atEnd = noTime, false
	}
	p := MakePane(s.fired(timing, last))
	v := o.Extract(s.acc)
	if o.Retracting {
		for _, was := range s.more.prev {
			if err = o.paneAt(k, was.value, was.win, was.pane.Retract(), was.time); err != nil {
				return err
			}
		}
		s.more.prev = append(s.more.prev[:0], emitted[Out]{s.win, t, p, v})
	}
	err = o.paneAt(k, v, s.win, p, t)
	if !o.Accumulating && !last {
		s.acc = o.Create()
	}
	return err
}

// expiry is the watermark that ends the life of a window with this end, which is at most lastTimer.
func (o *panes[K, A, Out]) expiry(end eventtime.Time) eventtime.Time {
	return min(max(end.Add(o.Lateness), firstTimer), lastTimer)
}

// next is the watermark at which a window has something to do.
func (o *panes[K, A, Out]) next(s *openWindow[A, Out]) eventtime.Time {
	x := o.expiry(s.win.EndTime())
	if s.ended || s.closed {
		return x
	}
	return min(max(s.win.EndTime(), firstTimer), x)
}

// nextClock is the processing time at which a window has something to do.
func (o *panes[K, A, Out]) nextClock(s *openWindow[A, Out]) eventtime.Time {
	if s.closed {
		return noTime
	}
	_, t := o.Trigger.Wake(&s.more.trigger, o.moment(s))
	if t >= noTime {
		return noTime
	}
	return min(max(t, firstTimer), lastTimer)
}

// schedule makes the indexes agree with an entry that has changed: it wakes up no later than any of its windows is due.
func (o *panes[K, A, Out]) schedule(seg *segment[K, anyList], e *entry[K, anyList]) error {
	o.state.resized(e)
	l := o.list(e)
	wake, clock, hold := l.wake, l.clock, noTime
	for i := range l.open {
		s := &l.open[i]
		wake = min(wake, o.next(s))
		if o.clocks != nil {
			s.more.clock = o.nextClock(s)
			clock = min(clock, s.more.clock)
		}
		if o.holds != nil {
			hold = min(hold, o.heldAt(s), o.heldToRetract(s))
		}
	}
	return o.move(wakeKey[K]{e.key, seg.win}, l, wake, clock, hold)
}

// move moves an entry in the indexes.
func (o *panes[K, A, Out]) move(k wakeKey[K], l *windowList[A, Out], wake, clock, hold eventtime.Time) error {
	if wake != l.wake {
		if err := o.events.move(k, l.wake, wake); err != nil {
			return err
		}
		l.wake = wake
	}
	if clock != l.clock {
		if err := o.clocks.move(k, l.clock, clock); err != nil {
			return err
		}
		l.clock = clock
	}
	if hold != l.hold {
		if err := o.holds.move(k, l.hold, hold); err != nil {
			return err
		}
		l.hold = hold
	}
	return nil
}
