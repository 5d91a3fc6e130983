// Package coordinator leads a job: it gives subtasks to workers, takes checkpoints, commits their output,
// and starts over from the last one when something fails.
//
// core.go decides: a Core takes one event after another and says what to do, with no I/O, no clock and no
// goroutine. server.go does it. docs/design/coordinator.md has an example and the invariants.
package coordinator

import (
	"fmt"
	"slices"

	"github.com/millstream/millstream/internal/checkpoint"
)

// WorkerID names one connection of a worker. A worker that comes back has another.
type WorkerID int64

// Subtask is one of the parallel instances of a stage.
type Subtask struct {
	Stage string
	Index int
}

// Config is what a Core needs to know of a job. Times are in ms.
type Config struct {
	Parallelism int       // slots: subtask i of each stage goes to the worker of slot i
	Subtasks    []Subtask // all of the job
	Workers     int       // that the first start waits for, and below which the job is degraded

	Interval          int64 // between two checkpoints; 0: only at the end
	CheckpointTimeout int64 // after which a checkpoint is given up
	Overtake          bool  // checkpoints are unaligned from the start
	HeartbeatTimeout  int64 // after which a silent worker is lost
	Grace             int64 // that a restart waits for a replacement of a lost worker
	RestartDelay      int64 // before a step that failed is tried again; doubles each time
	MaxRetries        int   // of one error of one step
	CommitTries       int   // of one checkpoint's output, before the job fails

	// Where the job takes up: see commitlog.Term.
	Last    *checkpoint.Checkpoint // to restore, or nil
	Pending []checkpoint.Output    // to commit before anything else
	NextID  int64                  // of the first checkpoint
}

// State is where a job stands.
type State string

// The states of a job.
const (
	Starting  State = "starting"  // waits for workers, or deploys to them, with no state to restore
	Restoring State = "restoring" // the same, from a checkpoint
	Running   State = "running"
	Finishing State = "finishing" // takes its last checkpoint
	Finished  State = "finished"  // all input was processed and all output committed
	Stopped   State = "stopped"   // on request, after a last checkpoint
	Failed    State = "failed"
)

type phase uint8

const (
	waiting   phase = iota // for workers, commits, or a delay to pass
	preparing              // sinks are told that an attempt starts
	deploying              // workers build the attempt
	running
	over
)

// Core is the decisions of a coordinator. One goroutine owns it.
type Core struct {
	cfg Config
	now int64

	phase   phase
	final   State // once over
	err     error // of a job that failed
	attempt int64
	ran     bool // some attempt has begun

	workers   []worker
	slots     []WorkerID // of the attempt, by subtask index
	deployed  map[WorkerID]bool
	ended     map[Subtask]bool
	notBefore int64 // no attempt starts earlier
	graceEnd  int64 // until when a restart waits for replacements

	next       int64 // time of the next checkpoint
	flight     *flight
	publishing *checkpoint.Manifest
	lastOne    bool // the checkpoint in flight or being published is the last
	stopping   bool
	lastError  error // of the newest failure, for a job that is stopped after it
	cutOff     int   // attempts in a row that ended because workers could not reach each other

	last     *checkpoint.Checkpoint
	restored int64 // checkpoint that the attempt started from
	complete int
	latestAt int64 // time of the last that became complete, ms
	nextID   int64
	commits  commits
	retries  retries
	history  []CheckpointStatus

	out []Action
}

type worker struct {
	id   WorkerID
	seen int64
}

// flight is a checkpoint that was triggered and is not complete.
type flight struct {
	id      int64
	started int64
	parts   map[Subtask]checkpoint.Part
}

// NewCore returns the Core of a job at time now. Its first actions come with the first event.
func NewCore(cfg Config, now int64) *Core {
	c := &Core{cfg: cfg, now: now, last: cfg.Last, nextID: max(1, cfg.NextID)}
	c.commits = commits{tries: cfg.CommitTries, pending: slices.Clone(cfg.Pending)}
	c.retries.limit = cfg.MaxRetries
	return c
}

// Step takes an event and returns what is to be done, in that order. Events that belong to an attempt or a
// checkpoint that is over are ignored.
func (c *Core) Step(e Event) []Action {
	c.out = nil
	if t, ok := e.(Tick); ok {
		c.now = max(c.now, t.Now)
	}
	if c.phase == over {
		return nil
	}
	switch e := e.(type) {
	case Tick:
		c.tick()
	case Joined:
		c.workers = append(c.workers, worker{e.Worker, c.now})
	case Heard:
		c.heard(e)
	case Left:
		c.lost(e.Worker, e.Reason)
	case Prepared:
		c.prepared(e)
	case Deployed:
		c.deployedAt(e)
	case EndReached:
		if c.phase == running && e.Attempt == c.attempt && c.owns(e.Worker, e.Subtask) {
			c.ended[e.Subtask] = true
		}
	case Acked:
		c.acked(e)
	case StepFailed:
		c.stepFailed(e)
	case Published:
		c.published(e)
	case Committed:
		c.committed(e)
	case StopRequested:
		c.stopping = true
	}
	c.proceed()
	return c.out
}

func (c *Core) do(a Action) { c.out = append(c.out, a) }

// proceed does whatever has become possible. It is the only place where attempts, checkpoints and commits start.
func (c *Core) proceed() {
	if c.phase == over {
		return
	}
	if group := c.commits.start(c.now); group != nil {
		c.do(Commit{group[0].Checkpoint, group})
	}
	settled := c.publishing == nil && c.commits.empty()
	switch c.phase {
	case waiting:
		if c.stopping {
			if settled {
				c.finish(Stopped, c.lastError)
			}
			return
		}
		if settled && c.now >= c.notBefore && c.enoughWorkers() {
			c.attempt++
			c.phase = preparing
			c.do(Prepare{c.attempt, c.last == nil})
		}
	case running:
		if c.flight != nil || c.publishing != nil {
			return
		}
		switch {
		case c.lastOne: // it was published
			switch {
			case !c.commits.empty():
			case c.allEnded():
				c.finish(Finished, nil)
			default:
				c.finish(Stopped, nil)
			}
		case c.stopping || c.allEnded():
			c.lastOne = true
			c.trigger()
		case c.cfg.Interval > 0 && c.now >= c.next:
			c.trigger()
		}
	case preparing, deploying:
		if c.stopping {
			c.endAttempt()
			c.proceed()
		}
	}
}

func (c *Core) allEnded() bool { return len(c.ended) == len(c.cfg.Subtasks) }

// enoughWorkers says whether an attempt can start: the first one with all, later ones with what is left.
func (c *Core) enoughWorkers() bool {
	n := len(c.workers)
	return n >= c.cfg.Workers || c.ran && n > 0 && c.now >= c.graceEnd
}

func (c *Core) tick() {
	for _, w := range slices.Clone(c.workers) {
		if c.now-w.seen > c.cfg.HeartbeatTimeout {
			c.do(Dismiss{w.id, fmt.Sprintf("it was silent for %d ms", c.now-w.seen)})
			c.lost(w.id, "it was silent")
		}
	}
	if f := c.flight; f != nil && c.now-f.started > c.cfg.CheckpointTimeout {
		c.note(CheckpointStatus{ID: f.id, State: "timed out", Duration: c.now - f.started})
		c.flight = nil
		c.lastOne = false
		c.next = c.now + c.cfg.Interval
	}
}

func (c *Core) heard(e Heard) {
	for i := range c.workers {
		if c.workers[i].id == e.Worker {
			c.workers[i].seen = c.now
		}
	}
	if c.phase == running && e.Attempt == c.attempt {
		c.retries.progress(e.Attempt, e.Counts)
	}
}

func (c *Core) lost(id WorkerID, reason string) {
	k := slices.IndexFunc(c.workers, func(w worker) bool { return w.id == id })
	if k < 0 {
		return
	}
	c.workers = slices.Delete(c.workers, k, k+1)
	if c.phase >= deploying && slices.Contains(c.slots, id) {
		c.lastError = fmt.Errorf("worker %d was lost: %s", id, reason)
		c.graceEnd = c.now + c.cfg.Grace
		c.endAttempt()
	}
}

// endAttempt cancels the attempt wherever it runs.
func (c *Core) endAttempt() {
	if c.phase >= deploying {
		for _, w := range c.members() {
			c.do(Cancel{w, c.attempt})
		}
	}
	if f := c.flight; f != nil {
		c.note(CheckpointStatus{ID: f.id, State: "aborted", Duration: c.now - f.started})
	}
	c.phase, c.slots, c.deployed, c.ended, c.flight, c.lastOne = waiting, nil, nil, nil, nil, false
	c.retries.rewound()
}

// members are the workers of the attempt that are still there, each once.
func (c *Core) members() (ids []WorkerID) {
	for _, w := range c.workers {
		if slices.Contains(c.slots, w.id) {
			ids = append(ids, w.id)
		}
	}
	return ids
}

func (c *Core) owns(w WorkerID, s Subtask) bool {
	return slices.Contains(c.cfg.Subtasks, s) && s.Index < len(c.slots) && c.slots[s.Index] == w
}

func (c *Core) prepared(e Prepared) {
	if c.phase != preparing || e.Attempt != c.attempt {
		return
	}
	if e.Deposed {
		c.fail(e.Err)
		return
	}
	if e.Err != nil {
		c.phase = waiting
		c.retry(StepFailed{Attempt: e.Attempt, Step: e.Step, Err: e.Err, Permanent: e.Permanent})
		return
	}
	if !c.enoughWorkers() {
		c.phase = waiting // some have left meanwhile
		return
	}
	c.phase, c.restored = deploying, c.lastID()
	c.deployed, c.ended = map[WorkerID]bool{}, map[Subtask]bool{}
	c.slots = nil
	for s := range c.cfg.Parallelism {
		c.slots = append(c.slots, c.workers[s%len(c.workers)].id)
	}
	for _, w := range c.members() {
		c.do(Deploy{w, c.attempt, slices.Clone(c.slots), c.last})
	}
}

func (c *Core) deployedAt(e Deployed) {
	if c.phase != deploying || e.Attempt != c.attempt || !slices.Contains(c.slots, e.Worker) {
		return
	}
	c.deployed[e.Worker] = true
	if len(c.deployed) < len(c.members()) {
		return
	}
	c.phase, c.ran = running, true
	c.next = c.now + c.cfg.Interval
	for _, w := range c.members() {
		c.do(Begin{w, c.attempt})
	}
}

func (c *Core) trigger() {
	c.flight = &flight{id: c.nextID, started: c.now, parts: map[Subtask]checkpoint.Part{}}
	c.nextID++
	c.retries.triggered(c.flight.id)
	for _, w := range c.members() {
		c.do(Trigger{w, c.attempt, c.flight.id, c.cfg.Overtake})
	}
}

func (c *Core) acked(e Acked) {
	s := Subtask{e.Part.Stage, e.Part.Subtask}
	if c.flight == nil || e.Attempt != c.attempt || e.Part.Checkpoint != c.flight.id || !c.owns(e.Worker, s) {
		return
	}
	c.flight.parts[s] = e.Part
	if len(c.flight.parts) < len(c.cfg.Subtasks) {
		return
	}
	var parts []checkpoint.Part
	for _, s := range c.cfg.Subtasks {
		parts = append(parts, c.flight.parts[s])
	}
	cp, err := checkpoint.Assemble(c.last, parts)
	if err != nil {
		c.fail(err)
		return
	}
	c.publishing = checkpoint.NewManifest(cp, c.commits.pending)
	c.note(newStatus(c.publishing, c.last, c.flight.started, c.now))
	c.flight = nil
	c.do(Publish{c.attempt, c.publishing})
}

func (c *Core) published(e Published) {
	m := c.publishing
	if m == nil || e.Checkpoint != m.Checkpoint.ID {
		return
	}
	c.publishing = nil
	if e.Err != nil {
		c.setState(m.Checkpoint.ID, "failed")
		c.fail(fmt.Errorf("publish checkpoint %d: %w", m.Checkpoint.ID, e.Err))
		return
	}
	c.setState(m.Checkpoint.ID, "completed")
	c.complete++
	c.latestAt = c.now
	c.cutOff = 0
	c.last = &m.Checkpoint
	c.commits.add(m)
	c.retries.completed(m.Checkpoint.ID)
	c.next = c.now + c.cfg.Interval
	if c.stopping {
		c.lastError = nil // whatever happened: this is where the job stops
	}
	if c.phase == running {
		// Before any later trigger: what a worker uploads next builds on what is complete.
		for _, w := range c.members() {
			c.do(Complete{w, c.attempt, m.Checkpoint.ID})
		}
	}
	c.do(Collect{m.Checkpoint.ID})
}

func (c *Core) committed(e Committed) {
	if err := c.commits.done(e, c.now); err != nil {
		c.fail(fmt.Errorf("%w; checkpoint %d lists the output: restart with --restore=latest to commit it", err, max(c.lastID(), e.Checkpoint)))
	}
}

func (c *Core) lastID() int64 {
	if c.last == nil {
		return 0
	}
	return c.last.ID
}

func (c *Core) stepFailed(e StepFailed) {
	current := e.Attempt == c.attempt && c.phase >= deploying
	if e.Lost {
		// A worker noticed before we did that another one is gone, or failed. If it failed, its own report is
		// on its way and is counted when it comes, also after the attempt has ended.
		if current {
			c.lastError = e.Err
			c.graceEnd, c.notBefore = c.now+c.cfg.Grace, c.now+c.backOff(c.cutOff)
			c.cutOff++
			c.endAttempt()
		}
		return
	}
	if current {
		c.endAttempt()
	}
	c.retry(e)
}

// retry counts a failure, and fails the job if it has come too often or will not go away.
func (c *Core) retry(e StepFailed) {
	c.lastError = e.Err
	if e.Permanent {
		c.fail(e.Err)
		return
	}
	n, more := c.retries.failed(e)
	if !more {
		c.fail(fmt.Errorf("gave up after %d retries: %w", n-1, e.Err))
		return
	}
	c.notBefore = max(c.notBefore, c.now+c.backOff(n-1))
}

// backOff is the delay before another attempt after so many that failed in the same way.
func (c *Core) backOff(before int) int64 { return min(c.cfg.RestartDelay<<min(before, 20), 10_000) }

func (c *Core) fail(err error) {
	if c.phase >= deploying {
		c.endAttempt()
	}
	c.finish(Failed, err)
}

func (c *Core) finish(s State, err error) {
	c.phase, c.final, c.err = over, s, err
	if s == Stopped && err != nil {
		c.err = fmt.Errorf("stopped at checkpoint %d, not at a new one: %w", c.lastID(), err)
	}
	for _, w := range c.workers {
		c.do(Dismiss{w.id, fmt.Sprintf("the job is %s", s)})
	}
	c.do(Finish{s, c.err})
}

// Over returns the state in which the job has ended, or "".
func (c *Core) Over() (State, error) {
	if c.phase != over {
		return "", nil
	}
	return c.final, c.err
}

// Attempt is the number of the present attempt.
func (c *Core) Attempt() int64 { return c.attempt }
