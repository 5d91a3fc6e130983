package engine

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/failpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
)

const (
	flushAfter = 10 // ms that a part-full batch waits at most while its sender is busy
	pollAgain  = 10 // ms until an idle source without a Notifier is asked again
)

// subtask runs a chain in one goroutine. Everything below belongs to that goroutine, except the inbox.
type subtask struct {
	job     *Job
	stage   *Stage
	index   int
	parker  Parker
	inbox   *inbox
	aligner *Aligner
	merger  *portMerger
	chain   chain
	source  kernel.Source       // root of the chain, or nil
	codecs  []kernel.BatchCodec // of each input channel
	ports   []int               // input port of the root for each channel

	mail      []mail
	marks     []mark
	waited    bool // for room, since last cleared
	force     bool // push without room until the overtaking barrier that waits is taken up
	overtake  bool // the checkpoint being triggered overtakes
	triggered int64
	deadline  eventtime.Time // when the aligned checkpoint of the trigger becomes an overtaking one

	pending  *SubtaskSnapshot // taken, not handed over
	encoding int              // node of pending whose keyed part is being encoded
	complete bool             // pending has all its channels

	lastFlush   eventtime.Time
	lastStatus  eventtime.Time // when a source last announced its watermark
	unannounced int            // records read since then
	polled      kernel.Polled
	sourceDone  bool
	wakeAt      eventtime.Time // an idle source is asked again then
	notified    atomic.Bool    // or when its reader has called for it
	paused      bool           // until the next snapshot: see Options.OnRecords
	tickAt      eventtime.Time // processing time of the tick that is not done
	ended       bool           // End was sent; only checkpoints are left
	stopping    bool
	calls       map[*call]struct{} // see call
	backends    []opBackend
}

// opBackend is the state backend of one op of the chain.
type opBackend struct {
	statebackend.Backend
	op int
}

// run is the goroutine. User code may end it at any place: what must happen all the same is deferred.
func (s *subtask) run() {
	var err error
	defer func() { s.job.subtaskDone(s, err) }()
	defer func() {
		if cerr := s.guard(s.close); err == nil {
			err = cerr
		}
	}()
	if err = s.guard(s.open); err == nil {
		err = s.guard(s.loop)
	}
}

// close ends everything that was opened, whatever fails on the way.
func (s *subtask) close() (err error) {
	s.endCalls()
	defer func() {
		for _, b := range s.backends {
			if cerr := b.Close(); cerr != nil {
				err = errors.Join(err, s.chain.stepError(b.op, fmt.Errorf("close state backend: %w", cerr)))
			}
		}
	}()
	for i := s.chain.opened - 1; i >= 0; i-- { // deferred, so that they are closed from the first to the last
		defer func() {
			s.chain.running = i
			err = errors.Join(err, s.guard(func() error { return s.chain.closeOp(i) }))
		}()
	}
	return s.guard(s.chain.verify)
}

// guard turns a panic of user code into an error of the step that ran. Code that ends the goroutine fails the job with one.
func (s *subtask) guard(f func() error) (err error) {
	returned := false
	defer func() {
		switch r := recover().(type) {
		case nil:
			if !returned {
				s.job.fail(&SubtaskError{s.stage.Name(), s.index, s.blame(kernel.ErrExited)})
			}
		case kernel.Unwound:
			err = s.blame(r.Err)
		default:
			err = s.blame(kernel.Panicked(r))
		}
	}()
	err = f()
	returned = true
	return err
}

// blame makes err one of the step whose code runs.
func (s *subtask) blame(err error) error {
	return &StepError{cmp.Or(s.chain.lifting, s.chain.ops[s.chain.running].node.Name), err}
}

func (s *subtask) loop() error {
	for {
		s.parker.Yield()
		if err := s.control(); err != nil {
			return err
		}
		if s.stopping {
			return nil
		}
		if s.pending != nil {
			if err := s.encode(s.encodeBudget()); err != nil {
				return err
			}
		}
		s.parker.Yield()
		if !s.clockRuns() {
			if s.encoded() {
				s.parker.Park(s.until())
			}
			continue
		}
		worked, err := s.work()
		if err != nil {
			return err
		}
		if worked {
			continue
		}
		if !s.encoded() {
			continue // nothing else to do: go on encoding
		}
		s.waited = false
		if err := s.chain.flush(); err != nil {
			return err
		}
		if s.chain.released(); s.waited || s.chain.advancing && !s.chain.full() {
			continue // the wake-up for new input may have ended that wait: look again
		}
		s.parker.Park(s.until())
	}
}

// encodeBudget is how many entries of a snapshot are encoded at once. What fires may load each of its entries from a backend:
// with slices of the same number the checkpoint would take as long as the firing, while no element waits for either.
func (s *subtask) encodeBudget() int {
	if s.chain.advancing {
		return 16 * s.job.opts.Budget
	}
	return s.job.opts.Budget
}

// encoded says that no snapshot has something left to encode.
func (s *subtask) encoded() bool { return s.pending == nil || s.encoding == len(s.pending.Nodes) }

// until is when a parked subtask has something to do by the clock.
func (s *subtask) until() eventtime.Time {
	t := s.chain.nextCollect()
	if s.deadline != 0 {
		t = min(t, s.deadline)
	}
	if !s.clockRuns() || s.chain.full() {
		return t
	}
	if s.source != nil && !s.sourceDone && !s.paused {
		t = min(t, s.wakeAt)
	}
	if s.job.clock == nil && !s.ended { // else the clock wakes us
		t = min(t, s.chain.nextClock())
	}
	return t
}

// work does one piece: a slice of a firing, one batch of input, or one poll of a source. It returns false
// when there is nothing to do.
func (s *subtask) work() (bool, error) {
	if s.ended {
		return s.takeBarrier()
	}
	if len(s.chain.asyncs) > 0 {
		if worked, err := s.collect(); worked || err != nil {
			return worked, err
		}
		if s.chain.full() {
			return s.takeBarrier()
		}
	}
	if s.chain.advancing {
		done, err := s.chain.advance(s.job.opts.Budget)
		if err != nil {
			return false, err
		}
		if !done {
			if err := failpoint.Hit("mid-firing"); err != nil {
				return false, err
			}
			_, err := s.takeBarrier()
			return true, err
		}
		if err := s.announce(); err != nil {
			return false, err
		}
		return true, s.endIfDone()
	}
	if len(s.chain.clocked) > 0 {
		if worked, err := s.tick(); worked || err != nil {
			return worked, err
		}
	}
	if s.source != nil {
		return s.poll()
	}
	p, ok := s.inbox.pop(false)
	if !ok {
		return false, nil
	}
	return true, s.take(p)
}

// tick does a slice of what is due by the clock. It returns false if nothing is.
func (s *subtask) tick() (bool, error) {
	now := s.now()
	if !s.chain.ticking {
		if s.chain.nextClock() > now {
			return false, nil
		}
		s.tickAt = now
	}
	done, err := s.chain.tick(s.tickAt, s.job.opts.Budget)
	if err != nil {
		return false, err
	}
	if done {
		s.chain.released()
		if !s.chain.advancing {
			err = s.flushIfOld()
		}
	} else {
		_, err = s.takeBarrier()
	}
	return true, err
}

// clockRuns says whether the processing time is known: with a scripted one, once every script has begun.
func (s *subtask) clockRuns() bool { return s.job.clock == nil || s.job.clock.Runs() }

// now is the processing time that operators see.
func (s *subtask) now() eventtime.Time {
	if s.job.clock != nil {
		return s.job.clock.Now()
	}
	return s.job.sched.Now()
}

// takeBarrier handles a barrier that heads a channel while elements must wait.
func (s *subtask) takeBarrier() (bool, error) {
	p, ok := s.inbox.pop(true)
	if !ok {
		return false, nil
	}
	return true, s.take(p)
}

func (s *subtask) take(p popped) error {
	// It stands before the barrier of its channel, for inbox.pop brings nothing past a mark.
	if s.aligner.Recording(p.channel) && p.kind != itemBarrier {
		if err := s.record(p.channel, p.Item); err != nil {
			return err
		}
	}
	switch p.kind {
	case itemBatch:
		if err := s.chain.process(0, s.ports[p.channel], p.batch); err != nil {
			return err
		}
		s.codecs[p.channel].Recycle(p.batch)
		s.chain.released()
		return s.flushIfOld()
	case itemStatus:
		before := s.merger.Idle()
		s.merger.Observe(p.channel, p.watermark, p.idle)
		return s.progress(before)
	case itemBarrier:
		return s.do(s.aligner.Barrier(p.channel, p.checkpoint))
	case itemEnd:
		before := s.merger.Idle()
		s.merger.Finish(p.channel)
		if err := s.do(s.aligner.Finish(p.channel)); err != nil {
			return err
		}
		if err := s.progress(before); err != nil {
			return err
		}
		return s.endIfDone()
	}
	return nil
}

// progress starts to fire when the merged watermark has moved, and passes idleness on.
func (s *subtask) progress(wasIdle bool) error {
	if wasIdle != s.merger.Idle() {
		// Said at once: a receiver must not go on without us while we fire.
		if err := s.announce(); err != nil {
			return err
		}
	}
	s.tellSides()
	if s.merger.Watermark() > s.chain.w {
		s.chain.advanceTo(s.merger.Watermark())
	}
	return nil
}

func (s *subtask) announce() error {
	idle := s.merger.Idle()
	if s.source != nil {
		idle = s.polled.Inactive && !s.sourceDone
	}
	if idle {
		if err := s.chain.flush(); err != nil {
			return err
		}
	}
	// Others would go on without us, and what is held back would come late.
	return s.chain.announce(idle && !s.chain.holds())
}

// poll asks the source for a batch.
func (s *subtask) poll() (bool, error) {
	now, wasIdle := s.job.sched.Now(), s.polled.Inactive
	early := s.polled.Status == connector.Idle && now < s.wakeAt && !(s.polled.Due > 0 && s.now() >= s.polled.Due)
	if s.sourceDone || s.paused || early && !s.notified.Swap(false) { // woken for something else
		return false, nil
	}
	s.chain.running = 0
	p, err := s.source.Poll(now)
	if err != nil {
		return false, s.chain.stepError(0, err)
	}
	s.polled = p
	s.unannounced += p.Records
	s.chain.released()
	if p.Records > 0 && s.job.opts.OnRecords != nil {
		s.paused = s.job.opts.OnRecords(p.Records)
	}
	switch {
	case p.Status == connector.End:
		s.sourceDone = true
		s.chain.advanceTo(eventtime.Max)
		return true, nil
	case p.Watermark > s.chain.w && (now >= s.lastStatus+s.job.watermarkInterval || s.unannounced >= watermarkRecords || p.Status == connector.Idle):
		s.lastStatus, s.unannounced = now, 0
		s.chain.advanceTo(p.Watermark)
	case p.Inactive != wasIdle:
		if err := s.announce(); err != nil {
			return false, err
		}
	}
	if p.Status == connector.Idle {
		s.wakeAt = now + pollAgain
		if p.Due > 0 && s.job.clock == nil { // else nobody knows when the clock will be there
			s.wakeAt = p.Due
		}
		return s.chain.advancing, nil
	}
	return true, s.flushIfOld()
}

// watermarkRecords is the number of records after which a source announces its watermark before its interval is
// over: one that catches up would otherwise keep windows open that it has read past.
const watermarkRecords = 256 << 10

// endIfDone sends End once everything that will ever come has been processed and fired.
func (s *subtask) endIfDone() error {
	if s.ended || s.chain.advancing || s.chain.w < eventtime.Max || s.chain.holds() {
		return nil
	}
	if s.source != nil && !s.sourceDone || s.source == nil && !s.aligner.AllFinished() {
		return nil
	}
	if err := s.chain.flush(); err != nil {
		return err
	}
	s.ended = true
	for _, e := range s.chain.edges {
		if err := e.each(Item{kind: itemEnd}); err != nil {
			return err
		}
	}
	s.job.subtaskEnded(s)
	return nil
}

// flushIfOld bounds the time that a part-full batch waits while its sender is busy.
func (s *subtask) flushIfOld() error {
	if len(s.chain.edges) == 0 {
		return nil
	}
	now := s.job.sched.Now()
	if now < s.lastFlush+flushAfter {
		return nil
	}
	s.lastFlush = now
	for _, e := range s.chain.edges {
		if err := e.split.Flush(e.send); err != nil {
			return err
		}
	}
	return nil
}

// control handles mail and overtaking barriers.
func (s *subtask) control() error {
	var overtaking bool
	var err error
	s.mail, overtaking, err = s.inbox.control(s.mail)
	s.callsReturned()
	if err != nil {
		return err
	}
	s.force = false
	for _, m := range s.mail {
		if m.stop {
			s.stopping = true
		}
		if m.trigger > s.triggered {
			s.triggered, s.overtake = m.trigger, m.overtake
			switch {
			case s.job.alignTimeout == 0 || m.overtake:
				s.deadline = 0
			case s.deadline == 0: // else it runs since the trigger was seen while waiting for room
				s.deadline = s.job.sched.Now() + s.job.alignTimeout
			}
			if err := s.do(s.aligner.Trigger(m.trigger)); err != nil {
				return err
			}
		}
	}
	if overtaking {
		s.marks = s.inbox.marks(s.marks)
		for i, m := range s.marks {
			if m.checkpoint == 0 {
				continue
			}
			if err := s.do(s.aligner.Overtaken(i, m.checkpoint)); err != nil {
				return err
			}
		}
	}
	if s.deadline != 0 && s.job.sched.Now() >= s.deadline {
		return s.timeout()
	}
	return nil
}

// overdue says, to a subtask that waits for room, that an aligned checkpoint should overtake and that its
// barrier is here: queued, popped, or, at a source, still in the mail.
func (s *subtask) overdue() bool {
	if s.job.alignTimeout == 0 {
		return false
	}
	waiting, now := s.inbox.triggerWaiting(), s.job.sched.Now()
	newest := max(s.triggered, waiting)
	if s.aligner.Seen(newest) {
		return false
	}
	if s.deadline == 0 {
		s.deadline = now + s.job.alignTimeout
	}
	if now < s.deadline {
		return false
	}
	if s.source != nil || s.aligner.Aligning() == newest || s.inbox.hasBarrier(newest) {
		return true
	}
	s.deadline = now + s.job.alignTimeout
	return false
}

// timeout turns the aligned checkpoint that was triggered into an overtaking one, if one of its barriers
// has reached this subtask. Otherwise a sender before us is in the same position and will.
func (s *subtask) timeout() error {
	if s.aligner.Seen(s.triggered) {
		s.deadline = 0
		return nil
	}
	found := s.aligner.Aligning() == s.triggered
	for i := range s.codecs {
		found = s.inbox.barrierToMark(i, s.triggered) || found
	}
	if !found {
		s.deadline = s.job.sched.Now() + s.job.alignTimeout
		return nil
	}
	s.deadline = 0
	if err := s.do(s.aligner.Timeout(s.triggered)); err != nil {
		return err
	}
	s.marks = s.inbox.marks(s.marks)
	for i, m := range s.marks {
		if m.checkpoint == s.triggered {
			if err := s.do(s.aligner.Overtaken(i, m.checkpoint)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendTo returns the function that sends a batch over an edge, waiting for room in the one place where a
// subtask waits.
func (s *subtask) sendTo(e *outEdge) func(int, kernel.Batch) error {
	return func(target int, b kernel.Batch) error {
		it := Item{kind: itemBatch, batch: b}
		for {
			ok, err := e.targets[target].Push(it, s.parker, s.force)
			if err != nil {
				return err
			}
			if ok {
				s.parker.Yield()
				return nil
			}
			urgent, err := s.inbox.urgent()
			if err != nil {
				return err
			}
			if urgent || s.overdue() {
				s.force = true
				continue
			}
			until := eventtime.Max
			if s.deadline != 0 {
				until = s.deadline
			}
			s.waited = true
			s.parker.Park(until)
		}
	}
}

// open wires the chain, restores it and opens its operators.
func (s *subtask) open() error {
	s.merger = newPortMerger(s.stage.In)
	r, err := s.job.restoreOf(s)
	if err != nil {
		return &StepError{s.stage.Name(), err}
	}
	if r != nil {
		if len(r.Merger.Inputs) != len(s.codecs) || len(r.Channels) != len(s.codecs) {
			return &StepError{s.stage.Name(), fmt.Errorf("checkpoint %d has %d input channels, the job has %d: restore it at the parallelism at which it was taken", r.Checkpoint, len(r.Channels), len(s.codecs))}
		}
		s.merger.Restore(r.Merger)
	} else {
		s.passMute()
	}
	for i := range s.chain.ops {
		o := &s.chain.ops[i]
		s.chain.running = i
		c, err := s.openContext(i, r)
		if err != nil {
			return s.chain.stepError(i, err)
		}
		s.chain.opened = i + 1
		if err := o.op.Open(c); err != nil {
			return s.chain.stepError(i, fmt.Errorf("open: %w", err))
		}
	}
	s.tellSides()
	if r == nil {
		return nil
	}
	for i, data := range r.Channels {
		items, err := recordedItems(data, s.codecs[i])
		if err != nil {
			return &StepError{s.stage.Name(), fmt.Errorf("restore checkpoint %d: %w", r.Checkpoint, err)}
		}
		// The items go before what senders have pushed already.
		s.inbox.prepend(i, items)
	}
	w := s.chain.ops[0].wm
	if s.source == nil {
		w = s.merger.Watermark() // it may have come when the root had not been told yet
	}
	s.chain.restoredTo(w)
	return nil
}

func (s *subtask) openContext(i int, r *SubtaskRestore) (*kernel.OpenContext, error) {
	o := &s.chain.ops[i]
	c := &kernel.OpenContext{
		Context: s.job.ctx, Step: o.node.Name,
		Subtask: subtaskOf(s),
		Groups:  s.job.groups, CacheMax: s.job.cacheMax, Track: s.job.track, ReadBatch: s.job.opts.ReadBatch,
		Metrics: o.metrics, Logger: s.job.logger.With("step", o.node.Name, "subtask", s.index),
		Now: s.now, Wake: s.parker.Wake, Elapsed: s.job.sched.Now, Go: s.goCall,
	}
	if i == 0 {
		c.Wake = func() { s.notified.Store(true); s.parker.Wake() }
	}
	o.wm, o.out = eventtime.Min, eventtime.Min
	if r != nil {
		switch n, ok := r.Nodes[o.node.Name]; {
		case ok:
			o.wm = n.Watermark
			c.Restore = &kernel.OpRestore{Checkpoint: r.Checkpoint, Blob: n.Blob, Watermark: n.Watermark}
		case o.node.Keyed, o.node.Sink != nil, o.node.SetSplits != nil:
			return nil, fmt.Errorf("checkpoint %d has no state of this step", r.Checkpoint)
		default: // new in the program, or renamed: it keeps nothing, and its stage tells it the watermark
		}
	}
	if o.node.Keyed {
		b, err := s.job.opts.OpenBackend(s.job.ctx, o.node, s.index, s.stage.Parallelism)
		if err != nil {
			return nil, fmt.Errorf("open state backend: %w", err)
		}
		c.Backend = b
		s.backends = append(s.backends, opBackend{b, i})
	}
	if o.node.SetSplits != nil && r == nil {
		o.node.SetSplits(o.op, s.job.opts.Splits(o.node, s.index, s.stage.Parallelism))
	}
	s.chain.cut = s.job.opts.Cut
	for port := range o.node.Ports {
		c.Outputs = append(c.Outputs, s.linkOf(i, port))
	}
	return c, nil
}

// linkOf finds the consumers of an output port: in the chain, and the edges that leave it.
func (s *subtask) linkOf(i, port int) *link {
	l := &link{c: &s.chain, op: i, metrics: s.chain.ops[i].metrics}
	node := s.chain.ops[i].node
	for k := range s.chain.ops {
		for p, in := range s.chain.ops[k].node.Inputs {
			if k != 0 && in.From == node && in.Port == port {
				l.next = append(l.next, linkTo{k, p})
			}
		}
	}
	for k, e := range s.stage.Out {
		if e.Node == node && e.Port == port {
			l.edges = append(l.edges, s.chain.edges[k])
		}
	}
	if s.job.opts.Check {
		l.check = &emitCheck{codec: node.Ports[port].Codec}
		s.chain.checks = append(s.chain.checks, opCheck{i, l.check})
	}
	return l
}

func (s *subtask) name() string { return fmt.Sprintf("%s/%d", s.stage.Name(), s.index) }

func subtaskOf(s *subtask) connector.Subtask {
	return connector.Subtask{Index: s.index, Parallelism: s.stage.Parallelism}
}
