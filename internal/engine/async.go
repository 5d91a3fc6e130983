package engine

import (
	"context"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// call is a goroutine beside a subtask, which owns it and waits for it: see docs/design/async.md.
type call struct {
	done   func() // runs in the subtask once the goroutine has nothing left to do
	cancel func()
}

// goCall is kernel.OpenContext.Go.
func (s *subtask) goCall(run func(context.Context), done func()) (cancel func()) {
	ctx, stop := context.WithCancel(s.job.ctx)
	p := s.job.sched.NewParker(s.name() + " call")
	ctx = kernel.WithSleep(ctx, func(d time.Duration) {
		until := s.job.sched.Now() + eventtime.Time((d+time.Millisecond-1)/time.Millisecond)
		for ctx.Err() == nil && s.job.sched.Now() < until {
			p.Park(until)
		}
	})
	c := &call{done: done, cancel: func() { stop(); p.Wake() }}
	if s.calls == nil {
		s.calls = map[*call]struct{}{}
	}
	s.calls[c] = struct{}{}
	s.job.sched.Go(s.name()+" call", p, func() {
		defer s.inbox.post(mail{returned: c}) // whatever becomes of run
		run(ctx)
	})
	return c.cancel
}

// callsReturned takes the calls that have returned from the mail.
func (s *subtask) callsReturned() {
	for _, m := range s.mail {
		if m.returned != nil {
			delete(s.calls, m.returned)
			m.returned.done()
		}
	}
}

// endCalls cancels all calls and waits for them.
func (s *subtask) endCalls() {
	for c := range s.calls {
		c.cancel()
	}
	for len(s.calls) > 0 {
		s.mail, _, _ = s.inbox.control(s.mail) // that the job stops is known
		if s.callsReturned(); len(s.calls) > 0 {
			s.parker.Park(eventtime.Max)
		}
	}
}

// collect lets the operators emit what their calls have brought.
func (s *subtask) collect() (bool, error) {
	worked, err := s.chain.collect(s.job.sched.Now())
	if !worked || err != nil {
		return worked, err
	}
	s.chain.released()
	return true, s.flushIfOld()
}

// at is the op that is working on a watermark or by the clock, or -1.
func (c *chain) at() int {
	switch {
	case c.advancing:
		return c.pos
	case c.ticking:
		return c.clocked[c.clock]
	}
	return -1
}

// full says that nothing must go on that brings elements to an op that takes none.
func (c *chain) full() bool {
	for _, i := range c.asyncs {
		if c.at() < i && c.ops[i].op.(kernel.Async).Full() {
			return true
		}
	}
	return false
}

// collect calls Collect of the ops, but not of those whose output could reach one in the midst of its work.
func (c *chain) collect(now eventtime.Time) (worked bool, err error) {
	for _, i := range c.asyncs {
		if (c.firing || c.ticking || c.repeating) && c.at() > i {
			continue
		}
		c.running = i
		w, err := c.ops[i].op.(kernel.Async).Collect(now)
		if err != nil {
			return worked, c.stepError(i, err)
		}
		worked = worked || w
	}
	return worked, nil
}

// nextCollect is the time at which some op has work that no call brings.
func (c *chain) nextCollect() eventtime.Time {
	t := eventtime.Max
	for _, i := range c.asyncs {
		t = min(t, c.ops[i].op.(kernel.Async).NextCollect())
	}
	return t
}
