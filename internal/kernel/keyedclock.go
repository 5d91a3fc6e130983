package kernel

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
)

// keyedClock is what a keyed step needs for timers of processing time and for holds.
type keyedClock[K comparable] struct {
	clock *wakeups[K] // when to look by the clock at which key and window
	holds *holds[K]   // of keys and windows, never before passed

	now    func() eventtime.Time
	seen   eventtime.Time // the latest processing time
	read   bool           // in this call
	passed eventtime.Time // where the watermark of the outputs stands, or may stand: nothing can be held back behind it
	held   eventtime.Time // what Hold says
	budget *int           // of the expiry in progress
}

func (o *keyedClock[K]) openClock(key coder.Key[K], c *OpenContext) (err error) {
	if o.clock, err = newWakeups(key, c, clockTable); err == nil {
		o.holds, err = newHolds(key, c, holdTable)
	}
	return err
}

func (o *keyedClock[K]) restoreClock(b keyedBlob) error {
	o.passed, o.held = b.passed, b.passed
	err := o.clock.restore(b.indexes[1])
	if err == nil {
		err = o.holds.restore(b.indexes[2])
	}
	return err
}

func (o *keyedClock[K]) evictClock() error {
	err := o.clock.table.evict()
	if err == nil {
		err = o.holds.evict()
	}
	return err
}

// time is the processing time. It does not change during a call of the operator.
func (o *keyedClock[K]) time() eventtime.Time {
	if !o.read {
		o.seen, o.read = max(o.seen, o.now()), true
	}
	return o.seen
}

// ready does what must not be interrupted by user code that moves wake-ups and holds.
func (o *keyedClock[K]) ready(budget *int) (bool, error) {
	done, err := o.clock.tidy(budget, o.clock.move)
	if done && err == nil {
		done, err = o.holds.tidy(budget)
	}
	return done, err
}

// release lets the watermark w of the inputs go as far as holds allow. What was to fire for w has: what fires holds nothing
// back while it does.
func (o *keyedClock[K]) release(w eventtime.Time, fired bool) {
	if !fired || !o.holds.settled(w) {
		o.held = o.passed
		return
	}
	o.held = o.holds.least(w)
	o.passed = max(o.passed, min(w, o.held))
}

// Hold implements Holder.
func (o *keyedClock[K]) Hold() eventtime.Time { return o.held }

// heldInCall is where the pending timers of the key and window in hand hold the watermark, noTime if they do not. What is emitted
// there is no later than what set them. What the call itself sets does not count: it is not before the timestamp of the call.
func (o *keyedParDo[K, V, Out]) heldInCall() eventtime.Time {
	if o.call.e == nil {
		return noTime
	}
	return o.schema.leastHold(&o.call.e.acc)
}

// NextClock implements Clocked.
func (o *keyedParDo[K, V, Out]) NextClock() eventtime.Time {
	if o.overdue || !o.holds.settled(o.w) {
		return eventtime.Min
	}
	return min(o.clock.soonest(), o.nextLookup())
}

// Clock implements Clocked: timers of processing time fire, and what a batch left to do is done.
func (o *keyedParDo[K, V, Out]) Clock(now eventtime.Time, budget int) (bool, error) {
	o.begin()
	o.seen, o.read = max(o.seen, now), true
	done, err := o.ready(&budget)
	if done && err == nil {
		done, err = o.fireOverdue(&budget)
	}
	if done && err == nil {
		done, err = o.clock.fire(o.seen, &budget, o.wakeByClock)
	}
	if done && err == nil {
		done, err = o.fireOverdue(&budget)
	}
	if done && err == nil {
		done, err = o.holds.settle(o.w, &budget)
	}
	if done && err == nil {
		err = o.expireCells(max(budget, 0) + BatchSize)
	}
	err = o.end(err)
	o.release(o.w, done && err == nil)
	return done, err
}

// fireOverdue fires the timers that were set at or before the watermark.
func (o *keyedParDo[K, V, Out]) fireOverdue(budget *int) (bool, error) {
	if !o.overdue {
		return true, nil
	}
	done, err := o.fire(budget)
	o.overdue = !done
	return done, err
}

// settleMore makes a state agree with the index of wake-ups by the clock, and with that of holds. clock is the first of its
// timers of processing time.
func (o *keyedParDo[K, V, Out]) settleMore(w woken, clock eventtime.Time, empty bool) error {
	c := &o.call
	m := c.e.acc.more
	if c.wrote || w != 0 {
		hold := o.schema.leastHold(&c.e.acc)
		if hold != noTime {
			hold = min(max(hold, o.passed), lastTimer)
		}
		if hold != m.hold {
			if err := o.holds.move(wakeKey[K]{c.key, c.win}, m.hold, hold); err != nil {
				return err
			}
			if !o.writable() {
				return c.err
			}
			m.hold = hold
		}
	}
	if clock < m.clock || w&(1<<byClock) != 0 || empty && m.clock != noTime {
		if err := o.clock.move(wakeKey[K]{c.key, c.win}, m.clock, clock); err != nil {
			return err
		}
		if !o.writable() {
			return c.err
		}
		m.clock = clock
	}
	return nil
}

// wakeByClock fires what is due by the clock, as wake does by the watermark.
func (o *keyedParDo[K, V, Out]) wakeByClock(k wakeKey[K], budget *int) (bool, error) {
	return o.wakeUp(k, byClock, o.clock, o.seen, budget)
}

// expireTimers fires the pending timers of processing time of an entry that is about to go, and takes it out of the indexes.
func (o *keyedParDo[K, V, Out]) expireTimers(k wakeKey[K], s *segment[K, keyState], e *entry[K, keyState]) error {
	for {
		t, at := o.schema.next(&e.acc, byClock)
		if t == nil {
			break
		}
		*o.budget--
		if err := o.fireTimer(callExpiry, t, at, k, s, e); err != nil {
			return err
		}
	}
	m := e.acc.more
	if m.clock != noTime {
		if err := o.clock.move(k, m.clock, noTime); err != nil {
			return err
		}
		m.clock = noTime
	}
	if m.hold != noTime {
		if err := o.holds.move(k, m.hold, noTime); err != nil {
			return err
		}
		m.hold = noTime
	}
	return nil
}
