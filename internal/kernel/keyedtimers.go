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
	done, err := o.fire(&budget)
	if err == nil && done {
		done, err = o.expire(&budget)
	}
	if err == nil && done {
		o.fired = w
		err = o.expireCells(budget + BatchSize)
	}
	return done, o.end(err)
}

// fire fires the timers at or before the watermark, about budget of them, and returns true when none is
// left.
func (o *keyedParDo[K, V, Out]) fire(budget *int) (bool, error) {
	return o.wakes.fire(o.w, budget, o.wake)
}

// wake fires the due timers of a key and window, and moves its wake-up. It returns false if the budget ends
// before: the timers that have fired are gone, and the wake-up is where it was.
func (o *keyedParDo[K, V, Out]) wake(k wakeKey[K], budget *int) (bool, error) {
	s := o.state.lookup(k.win)
	if s == nil {
		return true, nil // what was due has been removed since
	}
	e, err := o.state.find(s, k.key)
	if err == nil && e == nil && s.spilled {
		if err = o.loadDue(); err == nil {
			e, err = o.state.find(s, k.key)
		}
	}
	if err != nil || e == nil {
		return true, err
	}
	for {
		i, at := e.acc.next()
		if at > o.w {
			o.call = call[K]{key: k.key, win: k.win, s: s, e: e}
			return true, o.settle(true)
		}
		if *budget <= 0 {
			return false, nil
		}
		*budget--
		if err := o.fireTimer(i, at, k, s, e); err != nil {
			return false, fmt.Errorf("timer %q of key %v at %v: %w", o.schema.timers[i], Brief(k.key), at, err)
		}
	}
}

func (o *keyedParDo[K, V, Out]) fireTimer(i int, at eventtime.Time, k wakeKey[K], s *segment[K, keyState], e *entry[K, keyState]) error {
	o.start(callTimer, k.key, k.win, s, e)
	o.call.at = at
	if !o.writable() {
		return o.call.err
	}
	e.acc.timers[i] = noTime
	o.c.at = elementHeader{timestampOf(at, k), k.win, NoPane}
	o.ttl.at(o.cells, o.fired, at, true)
	uerr := o.handlers[i](&o.c, k.key, &o.out)
	if _, err := o.finish(); err != nil {
		return err
	}
	if uerr != nil {
		return &UserError{Err: uerr}
	}
	return nil
}

// timestampOf is the timestamp of a handler: its time, but within the window at the window's end.
func timestampOf[K comparable](at eventtime.Time, k wakeKey[K]) eventtime.Time {
	if at == k.win.EndTime() {
		return k.win.MaxTimestamp()
	}
	return at
}

// loadDue fetches the states of the due keys that were evicted, all at once.
func (o *keyedParDo[K, V, Out]) loadDue() error {
	for _, k := range o.wakes.waiting() {
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

// setTimer implements timerHost.
func (o *keyedParDo[K, V, Out]) setTimer(i int, at eventtime.Time) {
	c := &o.call
	last := o.lastTime()
	switch c.kind {
	case noCall:
		o.timerOutside(i)
		return
	case callTimer:
		// Each firing brings time forward. At the end of the global window that is not enough for a timer
		// that always sets itself to come to an end, so there only a pending one may be moved.
		if (c.at >= last || last == lastTimer && o.w >= last) && c.e.acc.timers[i] == noTime {
			return
		}
		at = max(at, c.at+1)
	case callExpiry:
		return
	default:
		at = max(at, min(o.c.at.time, o.w)) // what fires is no later than the element
	}
	at = min(max(at, firstTimer), last)
	if !o.writable() {
		return
	}
	c.e.acc.timers[i] = at
	c.wrote = true
	if c.kind == callProcess && at <= o.w {
		o.overdue = true
	}
}

// clearTimer implements timerHost.
func (o *keyedParDo[K, V, Out]) clearTimer(i int) {
	c := &o.call
	if c.kind == noCall {
		o.timerOutside(i)
		return
	}
	if c.e == nil || c.e.acc.timers[i] == noTime || !o.writable() {
		return
	}
	c.e.acc.timers[i] = noTime
	c.wrote, c.cleared = true, true
}

func (o *keyedParDo[K, V, Out]) timerOutside(i int) {
	o.failTimer(fmt.Errorf("timer %q was used outside a call: it belongs to a key, so only to ProcessElement or a timer's handler while it runs", o.decl.timers[i].name))
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
		if o.expiring != nil {
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

// expireKey calls OnWindowExpiry for an entry that is about to go.
func (o *keyedParDo[K, V, Out]) expireKey(s *segment[K, keyState], e *entry[K, keyState]) error {
	if !e.acc.hasCell() {
		return nil
	}
	if p := o.state.pending; p != nil {
		if err := p.save(s, e); err != nil {
			return err
		}
	}
	k := wakeKey[K]{e.key, s.win}
	o.start(callExpiry, k.key, k.win, s, e)
	if o.ttl != nil {
		o.ttl.at(o.cells, o.fired, o.lastTime(), true)
		for clock, now := range o.cells.Now {
			o.ttl.drop(&e.acc, cell.Clock(clock), now)
		}
		if !e.acc.hasCell() {
			_, err := o.finish()
			return err
		}
	}
	o.c.at = elementHeader{timestampOf(o.lastTime(), k), k.win, NoPane}
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
