package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// StepError is an error of the step that it names.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("step %q: %v", e.Step, e.Err) }
func (e *StepError) Unwrap() error { return e.Err }

// SubtaskError is an error of a subtask, as Job.Wait returns it.
type SubtaskError struct {
	Stage   string
	Subtask int
	Err     error
}

func (e *SubtaskError) Error() string { return e.Err.Error() }
func (e *SubtaskError) Unwrap() error { return e.Err }

// ErrStopped is returned through operators when the job is being stopped. A Sender returns it once it cannot
// send; why is for Job.Cancel, so that a lost connection is not taken for the error of a step.
var ErrStopped = errors.New("the job was stopped")

// chain is the operators of one subtask, called directly, and the edges that leave them.
type chain struct {
	ops   []chainOp
	edges []*outEdge

	running int    // op whose code runs, for panics
	lifting string // step at the other end of an edge that runs its code, else ""
	opened  int    // ops whose Open was called: the first so many
	checks  []opCheck
	cut     kernel.Cut

	holders []int // ops that may hold the watermark back
	clocked []int // ops that have work at processing times
	clock   int   // of clocked, the one whose turn it is
	ticking bool  // it has begun and is not done
	asyncs  []int // ops with calls beside the subtask

	// Progress of a watermark through the chain: ops before pos are done with it.
	advancing bool
	repeating bool // after a restore: ops behind pos have been told again what they had been told
	w         eventtime.Time
	pos       int
	firing    bool // the op at pos was told the watermark and is not done with it
}

type chainOp struct {
	node      *kernel.Node
	op        kernel.Operator
	producers []int          // in the chain; none for the root
	wm        eventtime.Time // the op was told this; it may not be done with it
	out       eventtime.Time // the watermark of its outputs: wm when it was done with it, or where it holds
	holder    kernel.Holder  // the op, or nil
	metrics   *kernel.Metrics
}

// passes is the watermark that the op, which is done with wm, lets through.
func (o *chainOp) passes() eventtime.Time {
	if o.holder == nil {
		return o.wm
	}
	return max(o.out, min(o.wm, o.holder.Hold()))
}

// link calls the consumers of one output port.
type link struct {
	c       *chain
	metrics *kernel.Metrics
	edges   []*outEdge
	next    []linkTo
	op      int
	check   *emitCheck // nil if nothing is checked
}

type linkTo struct{ op, port int }

// Emit implements kernel.Output.
func (l *link) Emit(b kernel.Batch) error {
	n := b.Len()
	if n == 0 {
		return nil
	}
	l.metrics.RecordsOut.Store(l.metrics.RecordsOut.Load() + int64(n))
	if l.check != nil {
		if err := l.check.emitted(b); err != nil {
			return l.c.stepError(l.op, err)
		}
	}
	for _, e := range l.edges {
		if e.lifts == "" {
			if err := e.split.Split(b, e.send); err != nil {
				return err
			}
			continue
		}
		l.c.lifting = e.lifts
		err := e.split.Split(b, e.send)
		l.c.lifting = ""
		if err != nil {
			return namedError(e.lifts, err)
		}
	}
	for k, to := range l.next {
		in := b
		if k+1 < len(l.next) {
			in = b.Clone()
		}
		if err := l.c.process(to.op, to.port, in); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) process(i, port int, b kernel.Batch) error {
	if c.cut == kernel.CutNowhere {
		return c.processWhole(i, port, b)
	}
	for part := range c.cut.Of(b) {
		if err := c.processWhole(i, port, part); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) processWhole(i, port int, b kernel.Batch) error {
	o := &c.ops[i]
	o.metrics.RecordsIn.Store(o.metrics.RecordsIn.Load() + int64(b.Len()))
	was := c.running
	c.running = i
	if err := o.op.Process(port, b); err != nil {
		return c.stepError(i, err)
	}
	c.running = was
	return nil
}

// stepError names the step in which err arose, once.
func (c *chain) stepError(i int, err error) error {
	return namedError(c.ops[i].node.Name, err)
}

func namedError(step string, err error) error {
	var named *StepError
	if errors.Is(err, ErrStopped) || errors.As(err, &named) {
		return err
	}
	return &StepError{step, err}
}

// flush empties the operators and sends part-full batches.
func (c *chain) flush() error {
	for i := range c.ops {
		if err := c.flushOp(i); err != nil {
			return err
		}
	}
	for _, e := range c.edges {
		if err := e.split.Flush(e.send); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) flushOp(i int) error {
	f, ok := c.ops[i].op.(kernel.Flusher)
	if !ok {
		return nil
	}
	c.running = i
	if err := f.Flush(); err != nil {
		return c.stepError(i, err)
	}
	return nil
}

// advanceTo starts to bring watermark w through the chain; advance does the work.
func (c *chain) advanceTo(w eventtime.Time) {
	c.w, c.pos, c.advancing = max(c.w, w), 0, true
}

// restoredTo starts to bring watermark w through the restored chain. Before that each op is told again what it had been told, for it may
// not have been done with it: the last one first, so that none emits into one that does not yet know where it was.
func (c *chain) restoredTo(w eventtime.Time) {
	c.advanceTo(w)
	c.repeating, c.pos = true, len(c.ops)-1
}

// advance fires about budget entries and returns true when every op is done with the watermark.
func (c *chain) advance(budget int) (bool, error) {
	for ; c.repeating && c.pos >= 0; c.pos-- {
		if done, err := c.tell(budget); !done || err != nil {
			return false, err
		}
	}
	if c.repeating {
		c.repeating, c.pos = false, 0
	}
	for ; c.pos < len(c.ops); c.pos++ {
		o := &c.ops[c.pos]
		in := c.w
		for k, p := range o.producers {
			if k == 0 || c.ops[p].out < in {
				in = c.ops[p].out
			}
		}
		if in > o.wm || c.firing {
			o.wm = max(o.wm, in)
			if done, err := c.tell(budget); !done || err != nil {
				return false, err
			}
		}
		if o.passes() > o.out { // what fired for it may have begun a bundle
			if err := c.flushOp(c.pos); err != nil {
				return false, err
			}
			o.out = o.passes()
		}
	}
	c.advancing = false
	return true, nil
}

// tell tells the op at pos its watermark, and returns true when it is done with it.
func (c *chain) tell(budget int) (bool, error) {
	o := &c.ops[c.pos]
	if err := c.flushOp(c.pos); err != nil {
		return false, err
	}
	c.running, c.firing = c.pos, true
	done, err := o.op.Watermark(o.wm, budget)
	if err != nil {
		return false, c.stepError(c.pos, err)
	}
	if done {
		c.firing = false
		o.metrics.Watermark.Store(int64(o.wm))
	}
	return done, nil
}

// released starts to bring a watermark on that an op held back and no longer does.
func (c *chain) released() {
	if c.advancing {
		return
	}
	for _, i := range c.holders {
		if o := &c.ops[i]; o.passes() > o.out {
			c.advanceTo(c.w)
			return
		}
	}
}

// holds says whether some op lets less through than it was told.
func (c *chain) holds() bool {
	for _, i := range c.holders {
		if o := &c.ops[i]; o.out < o.wm {
			return true
		}
	}
	return false
}

// nextClock is the processing time at which some op has work.
func (c *chain) nextClock() eventtime.Time {
	t := eventtime.Time(math.MaxInt64)
	for _, i := range c.clocked {
		t = min(t, c.ops[i].op.(kernel.Clocked).NextClock())
	}
	return t
}

// tick does about budget entries of the work that is due by the clock, and returns true when none is left.
func (c *chain) tick(now eventtime.Time, budget int) (bool, error) {
	for ; c.clock < len(c.clocked); c.clock++ {
		i := c.clocked[c.clock]
		op := c.ops[i].op.(kernel.Clocked)
		if !c.ticking && op.NextClock() > now {
			continue
		}
		c.running = i
		done, err := op.Clock(now, budget)
		if err != nil {
			return false, c.stepError(i, err)
		}
		if c.ticking = !done; !done {
			return false, nil
		}
	}
	c.clock = 0
	return true, nil
}

// announce sends part-full batches and then the watermark of each edge's producer, where it or idleness
// is news.
func (c *chain) announce(idle bool) error {
	for _, e := range c.edges {
		if err := e.status(c.ops[e.from].out, idle); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) closeOp(i int) error {
	if err := c.ops[i].op.Close(); err != nil {
		return c.stepError(i, fmt.Errorf("close: %w", err))
	}
	return nil
}

// outEdge is the sending half of an edge to another stage.
type outEdge struct {
	from    int    // op in the chain
	lifts   string // the receiving step, if split runs its code
	split   kernel.Splitter
	targets []Sender
	send    func(target int, b kernel.Batch) error

	wm   eventtime.Time // last status sent
	idle bool
}

func (e *outEdge) status(w eventtime.Time, idle bool) error {
	if w == e.wm && idle == e.idle {
		return nil
	}
	if err := e.split.Flush(e.send); err != nil {
		return err
	}
	e.wm, e.idle = w, idle
	return e.each(Item{kind: itemStatus, watermark: w, idle: idle})
}

// each sends a marker to every target. Markers need no room.
func (e *outEdge) each(it Item) error {
	for _, t := range e.targets {
		if _, err := t.Push(it, nil, true); err != nil {
			return err
		}
	}
	return nil
}
