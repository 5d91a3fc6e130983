package kernel

import (
	"fmt"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
)

// Watermark implements Operator: timers fire, then windows expire.
func (o *keyedParDo[K, V, Out]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = w
	o.begin()
	done, err := o.ready(&budget)
	if done && err == nil {
		if done, err = o.fire(&budget); done {
			o.overdue = false
		}
	}
	if done && err == nil {
		done, err = o.expire(&budget)
	}
	if done && err == nil {
		o.fired = w
		done, err = o.holds.settle(w, &budget)
	}
	if done && err == nil {
		err = o.expireCells(max(budget, 0) + BatchSize)
	}
	err = o.end(err)
	o.release(w, done && err == nil)
	return done, err
}

// fire fires the timers at or before the watermark, about budget of them, and returns true when none is
// left.
func (o *keyedParDo[K, V, Out]) fire(budget *int) (bool, error) {
	return o.wakes.fire(o.w, budget, o.wake)
}

func (o *keyedParDo[K, V, Out]) wake(k wakeKey[K], budget *int) (bool, error) {
	return o.wakeUp(k, byWatermark, o.wakes, o.w, budget)
}

// wakeUp fires the timers of a key and window that are due at now, and moves its wake-up. It returns false if the budget ends
// before: the timers that have fired are gone, and the wake-up is where it was.
func (o *keyedParDo[K, V, Out]) wakeUp(k wakeKey[K], by domain, index *wakeups[K], now eventtime.Time, budget *int) (bool, error) {
	s := o.state.lookup(k.win)
	if s == nil {
		return true, nil // what was due has been removed since
	}
	e, err := o.state.find(s, k.key)
	if err == nil && e == nil && s.spilled {
		if err = o.loadDue(index); err == nil {
			e, err = o.state.find(s, k.key)
		}
	}
	if err != nil || e == nil {
		return true, err
	}
	for {
		t, at := o.schema.next(&e.acc, by)
		due := at <= now
		if by == byClock {
			// What a handler sets at or before the watermark comes next: the order must not depend on budgets.
			if first, when := o.schema.next(&e.acc, byWatermark); when <= o.w {
				t, at, due = first, when, true
			}
		}
		if !due || *budget <= 0 {
			w := woken(0)
			if !due {
				w = 1 << by
			}
			o.call = call[K]{key: k.key, win: k.win, s: s, e: e, wrote: true}
			return !due, o.settle(w)
		}
		*budget--
		if err := o.fireTimer(callTimer, t, at, k, s, e); err != nil {
			return false, err
		}
	}
}

// fireTimer calls the handler of the timer that is the first of its key, window and domain.
func (o *keyedParDo[K, V, Out]) fireTimer(kind callKind, t *timer, at eventtime.Time, k wakeKey[K], s *segment[K, keyState], e *entry[K, keyState]) error {
	o.start(kind, k.key, k.win, s, e)
	o.call.by, o.call.at, o.call.resized = t.by, at, t.family
	if !o.writable() {
		return o.call.err
	}
	stamp, tag := e.acc.take(t)
	if stamp == noTime {
		stamp = timestampOf(at, k)
	}
	o.stamp(elementHeader{stamp, k.win, NoPane})
	o.ttl.at(o.cells, o.eventNow(), stamp)
	var uerr error
	if t.family {
		uerr = o.families[t.index](&o.c, k.key, tag, &o.out)
	} else {
		uerr = o.handlers[t.index](&o.c, k.key, &o.out)
	}
	_, err := o.finish()
	if err == nil && uerr != nil {
		err = &UserError{Err: uerr}
	}
	if err != nil {
		err = fmt.Errorf("%s of key %v at %v: %w", describe(t, tag), Brief(k.key), at, err)
	}
	return err
}

func describe(t *timer, tag string) string {
	if t.family {
		return fmt.Sprintf("timer %q with tag %v", t.name, Brief(tag))
	}
	return fmt.Sprintf("timer %q", t.name)
}

// timestampOf is the timestamp of a handler: its time, but within the window at the window's end.
func timestampOf[K comparable](at eventtime.Time, k wakeKey[K]) eventtime.Time {
	if at == k.win.EndTime() {
		return k.win.MaxTimestamp()
	}
	return at
}

// loadDue fetches the states of the due keys that were evicted, all at once.
func (o *keyedParDo[K, V, Out]) loadDue(index *wakeups[K]) error {
	for _, k := range index.waiting() {
		if err := o.want(k.key, k.win); err != nil {
			return err
		}
	}
	return o.state.load()
}

// lastTime is when a timer of the call's window may fire at the latest.
func (o *keyedParDo[K, V, Out]) lastTime() eventtime.Time {
	return min(expiry(o.call.win, o.Lateness), lastTimer)
}

// present implements timerHost.
func (o *keyedParDo[K, V, Out]) present(by domain) eventtime.Time {
	switch {
	case by == byClock:
		return o.time()
	case o.call.kind == callTimer && o.call.by == byWatermark:
		return o.call.at
	}
	return o.c.at.time
}

// setTimer implements timerHost.
func (o *keyedParDo[K, V, Out]) setTimer(t *timer, tag string, at, out eventtime.Time) {
	c := &o.call
	switch c.kind {
	case noCall:
		o.timerOutside(t)
		return
	case callExpiry:
		return
	}
	last := o.lastTime()
	switch {
	case c.kind == callTimer && (c.by == byWatermark && c.at >= last || last == lastTimer && o.w >= last) && !c.e.acc.isPending(t, tag):
		// Each firing brings time forward. At the end of the global window that is not enough for a timer
		// that always sets itself to come to an end, so there only a pending one may be moved.
		return
	case t.by == byClock && c.kind == callTimer:
		at = max(at, o.time()+1)
	case t.by == byClock:
	case c.kind == callTimer && c.by == byWatermark:
		at = max(at, c.at+1)
	default:
		at = max(at, min(o.c.at.time, o.w)) // what fires is no later than the element
	}
	if t.by == byClock {
		last = lastTimer
	}
	at = min(max(at, firstTimer), last)
	if t.by == byClock || out != noTime {
		var ok bool
		if out, ok = o.outputTime(t, out); !ok {
			return
		}
	}
	if !o.writable() {
		return
	}
	if k := &c.e.acc; k.more == nil && out == noTime && !t.family {
		k.timers[t.slot] = at
	} else if !o.storeTimer(t, tag, at, out) {
		return
	}
	c.wrote = true
	if t.by == byWatermark && at <= o.w && !(c.kind == callTimer && c.by == byWatermark) {
		o.overdue = true
	}
}

// outputTime brings the output timestamp of a timer that is being set into the window; noTime is the usual one of a timer of
// the clock.
func (o *keyedParDo[K, V, Out]) outputTime(t *timer, out eventtime.Time) (eventtime.Time, bool) {
	from := o.c.at.time
	switch {
	case out == noTime:
		out = from
	case out < from:
		o.failTimer(fmt.Errorf("timer %q was set with OutputAt of %v, before the timestamp %v of the element or timer that sets it: what it emits could be late; use that timestamp, or a later one", t.name, out, from))
		return out, false
	}
	return max(from, min(out, o.call.win.MaxTimestamp())), true
}

// storeTimer puts a timer into the state of the call, which is writable.
func (o *keyedParDo[K, V, Out]) storeTimer(t *timer, tag string, at, out eventtime.Time) bool {
	k := &o.call.e.acc
	if k.more == nil && (t.family || out != noTime) {
		k.more, o.call.resized = o.schema.newMore(), true
	}
	if !t.family {
		k.timers[t.slot] = at
		if k.more != nil {
			k.more.outs[t.slot] = out
		}
		return true
	}
	if i, ok := k.more.find(t, tag); ok {
		k.more.remove(t.by, i)
	} else if n := len(k.more.tags[byWatermark]) + len(k.more.tags[byClock]); n >= maxTags {
		o.failTimer(fmt.Errorf("timer %q: %d tags are pending for key %v, which is the most: let a key have fewer, such as by making the tag a part of it", t.name, n, Brief(o.call.key)))
		return false
	}
	k.more.put(tagTimer{at, out, t, tag})
	o.call.resized = true
	return true
}

// clearTimer implements timerHost.
func (o *keyedParDo[K, V, Out]) clearTimer(t *timer, tag string) {
	c := &o.call
	if c.kind == noCall {
		o.timerOutside(t)
		return
	}
	if c.e == nil || !c.e.acc.isPending(t, tag) || !o.writable() {
		return
	}
	k := &c.e.acc
	if t.family {
		i, _ := k.more.find(t, tag)
		k.more.remove(t.by, i)
		c.resized = true
	} else {
		k.timers[t.slot] = noTime
		if k.more != nil {
			k.more.outs[t.slot] = noTime
		}
	}
	c.wrote, c.cleared = true, true
}

func (o *keyedParDo[K, V, Out]) timerOutside(t *timer) {
	o.failTimer(fmt.Errorf("timer %q was used outside a call: it belongs to a key, so only to ProcessElement or a timer's handler while it runs", t.name))
}

// failTimer implements timerHost.
func (o *keyedParDo[K, V, Out]) failTimer(err error) {
	if o.misuse == nil {
		o.misuse = err
	}
}

// expire ends the life of windows, in the order of their ends.
func (o *keyedParDo[K, V, Out]) expire(budget *int) (bool, error) {
	for len(o.windows) > 0 && expiry(o.windows[0].win, o.Lateness) <= o.w {
		if *budget <= 0 {
			return false, nil
		}
		s := o.windows[0]
		o.budget = budget
		if o.expiring != nil || len(o.clock.table.segments) > 0 || len(o.holds.table.segments) > 0 {
			if done, err := o.state.pass(s, budget, true, o.expireKey); !done || err != nil {
				return false, err
			}
		}
		*budget--
		o.windows = popFront(o.windows)
		if err := o.state.dropSegment(s); err != nil {
			return false, err
		}
	}
	return true, nil
}

// expireKey fires what waits for the clock, and calls OnWindowExpiry, for an entry that is about to go.
func (o *keyedParDo[K, V, Out]) expireKey(s *segment[K, keyState], e *entry[K, keyState]) error {
	if !e.acc.hasCell() && e.acc.more == nil {
		return nil
	}
	if p := o.state.pending; p != nil {
		if err := p.save(s, e); err != nil {
			return err
		}
	}
	k := wakeKey[K]{e.key, s.win}
	if e.acc.more != nil {
		if err := o.expireTimers(k, s, e); err != nil {
			return err
		}
	}
	if o.expiring == nil || !e.acc.hasCell() {
		return nil
	}
	o.start(callExpiry, k.key, k.win, s, e)
	if o.ttl != nil {
		o.ttl.at(o.cells, o.eventNow(), o.lastTime())
		for clock, now := range o.cells.Now {
			o.ttl.drop(&e.acc, cell.Clock(clock), now)
		}
		if !e.acc.hasCell() {
			_, err := o.finish()
			return err
		}
	}
	// Not at the expiry, which is in another window if lateness is allowed. The windows behind have not expired either, for the watermark
	// waits; to hold it at this timestamp until then would hold that of all keys for the lateness.
	o.stamp(elementHeader{k.win.MaxTimestamp(), k.win, NoPane})
	uerr := o.expiring(&o.c, k.key, &o.out)
	_, err := o.finish()
	if err == nil && uerr != nil {
		err = &UserError{Err: uerr}
	}
	if err != nil {
		err = fmt.Errorf("expiry of window %v of key %v: %w", k.win, Brief(k.key), err)
	}
	return err
}
