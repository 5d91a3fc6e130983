package kernel

import (
	"fmt"
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/window"
)

// Watermark implements Operator: windows fire when their triggers are ready, and go at their expiry.
func (o *panes[K, A, Out]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = w
	if o.clocks != nil {
		o.now = o.clock()
	}
	done, err := o.fireAll(o.events, w, &budget, o.wakeByWatermark)
	for err == nil && done && len(o.windows) > 0 && o.expiry(o.windows[0].win.EndTime()) <= w {
		err = o.state.dropSegment(o.windows[0]) // its keys have gone, each when it woke up
		o.windows = popFront(o.windows)
	}
	if err == nil && done {
		err = o.identity()
	}
	return done, o.settle(err)
}

// fireAll wakes what is due in an index. Before and after, holds may have to do something, within the same budget.
func (o *panes[K, A, Out]) fireAll(x *wakeups[K], at eventtime.Time, budget *int, wake func(wakeKey[K], *int) (bool, error)) (done bool, err error) {
	if o.holds != nil {
		if done, err = o.holds.tidy(budget); !done || err != nil {
			return false, err
		}
	}
	if done, err = x.fire(at, budget, wake); done && err == nil && o.holds != nil {
		done, err = o.holds.settle(o.w, budget)
	}
	return done, err
}

// NextClock implements Clocked.
func (o *panes[K, A, Out]) NextClock() eventtime.Time {
	if o.clocks == nil {
		return noTime
	}
	return o.clocks.soonest()
}

// Clock implements Clocked.
func (o *panes[K, A, Out]) Clock(now eventtime.Time, budget int) (bool, error) {
	o.now = now
	done, err := o.fireAll(o.clocks, now, &budget, o.wakeByClock)
	return done, o.settle(err)
}

// Hold implements Holder.
func (o *panes[K, A, Out]) Hold() eventtime.Time {
	h := eventtime.Max
	if o.holds != nil {
		h = o.holds.least(o.w)
	}
	o.out = max(o.out, min(o.w, h))
	return h
}

// woken returns the entry that woke up, ready to be changed.
func (o *panes[K, A, Out]) woken(k wakeKey[K], x *wakeups[K]) (s *segment[K, anyList], e *entry[K, anyList], err error) {
	if s = o.segment(k.win); s != nil {
		if e, err = o.state.find(s, k.key); err == nil && e == nil && s.spilled {
			for _, d := range x.waiting() {
				if err := o.want(d); err != nil {
					return nil, nil, err
				}
			}
			if err = o.state.load(); err == nil {
				e, err = o.state.find(s, k.key)
			}
		}
	}
	if err == nil && e == nil {
		err = fmt.Errorf("key %v has a wake-up for %v but no state", Brief(k.key), k.win)
	}
	if err == nil && e.epoch != o.state.epoch {
		err = o.state.touch(s, e)
	}
	return s, e, err
}

// wakeByWatermark does what is due for an entry, and moves its wake-up. It returns false if the budget ends before.
func (o *panes[K, A, Out]) wakeByWatermark(k wakeKey[K], budget *int) (bool, error) {
	seg, e, err := o.woken(k, o.events)
	if err != nil {
		return false, err
	}
	l := o.list(e)
	for {
		i, at := o.first(l.open, o.next)
		if at > o.w {
			if err := o.events.move(k, l.wake, at); err != nil {
				return false, err
			}
			l.wake = at
			return true, o.sleep(seg, e)
		}
		if *budget <= 0 {
			return false, nil
		}
		*budget--
		if err := o.pass(k.key, l, i, at); err != nil {
			return false, err
		}
	}
}

// wakeByClock is wakeByWatermark for the clock.
func (o *panes[K, A, Out]) wakeByClock(k wakeKey[K], budget *int) (bool, error) {
	seg, e, err := o.woken(k, o.clocks)
	if err != nil {
		return false, err
	}
	l := o.list(e)
	for {
		i, at := o.first(l.open, func(s *openWindow[A, Out]) eventtime.Time { return s.more.clock })
		if at > o.now {
			if err := o.clocks.move(k, l.clock, at); err != nil {
				return false, err
			}
			l.clock = at
			return true, o.schedule(seg, e)
		}
		if *budget <= 0 {
			return false, nil
		}
		*budget--
		s := &l.open[i]
		if o.ready(s) {
			if err := o.fire(k.key, s, true, o.hasFired(s)); err != nil {
				return false, err
			}
		}
		s.more.clock = o.nextClock(s)
	}
}

// first is the window that has something to do first, and when; noTime if there is none.
func (o *panes[K, A, Out]) first(l []openWindow[A, Out], next func(*openWindow[A, Out]) eventtime.Time) (first int, at eventtime.Time) {
	at = noTime
	for i := range l {
		if t := next(&l[i]); t < at {
			first, at = i, t
		}
	}
	return first, at
}

// pass takes window i through what is due at the watermark at: its end, its expiry, or both.
func (o *panes[K, A, Out]) pass(k K, l *windowList[A, Out], i int, at eventtime.Time) (err error) {
	s := &l.open[i]
	last, ready := at >= o.expiry(s.win.EndTime()), o.ready(s)
	switch {
	case ready:
		finished := o.hasFired(s)
		err = o.fire(k, s, true, last || finished)
	case last && !s.closed:
		err = o.fire(k, s, false, true)
	}
	s.ended, s.late = true, s.late || s.since == 0
	if last {
		l.open = slices.Delete(l.open, i, i+1)
	}
	return err
}

// sleep makes the indexes agree with an entry that has woken up. One without windows goes.
func (o *panes[K, A, Out]) sleep(seg *segment[K, anyList], e *entry[K, anyList]) error {
	l := o.list(e)
	if len(l.open) > 0 {
		return o.schedule(seg, e)
	}
	if err := o.move(wakeKey[K]{e.key, seg.win}, l, noTime, noTime, noTime); err != nil {
		return err
	}
	return o.state.remove(seg, e)
}

// identity emits the result of nothing, once, when the global window ends without an element.
func (o *panes[K, A, Out]) identity() error {
	if !o.Identity || o.any || o.w < eventtime.EndOfGlobalWindow {
		return nil
	}
	o.any = true
	var k K
	return o.pane(k, o.Extract(o.Create()), window.GlobalWindow, window.Pane{Timing: window.OnTime, First: true, Last: true})
}

// place returns the window of the list of k that w belongs to, which is made, extended or merged as need be.
func (o *panes[K, A, Out]) place(k K, of *windowList[A, Out], w window.Window) (*openWindow[A, Out], error) {
	l := of.open
	if o.Merging == nil {
		if len(l) == 0 {
			of.open = append(l, o.openWindow(w))
		}
		return &of.open[0], nil
	}
	if o.Merging.Fn != nil {
		return o.placeBy(k, of, w)
	}
	// Sessions before first end at or before w begins; those from end on begin at or after it ends.
	end := len(l)
	for end > 0 && l[end-1].win.StartTime() >= w.EndTime() {
		end--
	}
	first := end
	for first > 0 && l[first-1].win.EndTime() > w.StartTime() {
		first--
	}
	if first == end {
		of.open = slices.Insert(l, first, o.openWindow(w))
		return &of.open[first], nil
	}
	for i := first; i < end; i++ {
		if l[i].closed {
			return &l[i], nil // what overlaps it comes too late
		}
	}
	all := window.New(min(l[first].win.StartTime(), w.StartTime()), max(l[end-1].win.EndTime(), w.EndTime()))
	if end == first+1 && all == l[first].win {
		return &l[first], nil
	}
	o.merge(l[first:end], all)
	of.open = slices.Delete(l, first+1, end)
	return &of.open[first], nil
}

func (o *panes[K, A, Out]) openWindow(w window.Window) openWindow[A, Out] {
	s := openWindow[A, Out]{win: w, acc: o.Create()}
	if !o.simple() {
		s.more = &windowMore[Out]{hold: noTime, clock: noTime}
	}
	return s
}

// merge makes the first of windows all of them, with the bounds w.
func (o *panes[K, A, Out]) merge(windows []openWindow[A, Out], w window.Window) {
	s := &windows[0]
	s.win = w
	var triggers []triggering.State
	for i := range windows[1:] {
		other := &windows[1+i]
		s.acc = o.Merge(s.acc, other.acc)
		s.merge(other.header)
		if m, n := s.more, other.more; m != nil {
			m.prev = append(m.prev, n.prev...)
			m.hold, m.atEnd = o.combine(m.hold, n.hold), m.atEnd || n.atEnd
			triggers = append(triggers, n.trigger)
		}
	}
	// A session that goes on fires again at its end.
	s.onTime = s.onTime && w.EndTime() <= o.w
	s.late = s.late && w.EndTime() <= o.w
	s.ended = s.ended && w.EndTime() <= o.w
	s.panes, s.early = 0, 0
	if o.Trigger != nil {
		o.Trigger.Merge(&s.more.trigger, triggers, o.moment(s))
		s.closed = o.Trigger.Finished(&s.more.trigger)
	}
}

// merge makes h what is known of two windows that have become another. Its panes are counted anew.
func (h *header) merge(other header) {
	h.late = (h.late || h.since == 0) && (other.late || other.since == 0) // of what waits for a pane
	h.since += other.since
	h.onTime = h.onTime && other.onTime
	h.ended = h.ended && other.ended
	h.closed = h.closed && other.closed
}
