package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/failpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/checkpoint/commitlog"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend/storage"
)

// Identity is what a worker must have in common with the coordinator to join.
type Identity struct {
	Executable string // SHA-256 of the file
	Flags      string // the program's own, as lines of name=value
	Plan       string
}

// Options configure a Server.
type Options struct {
	Name       string // of the job
	Graph      *kernel.Graph
	Identity   Identity
	Flags      checkpoint.Flags // the program's own, for manifests
	Args, Env  []string         // that a worker builds the pipeline from
	Generation uint64
	Settings   *control.Settings
	Core       Config // Parallelism and Subtasks are filled in
	Ledger     Ledger
	Abandoned  int64                   // see Taken.Abandoned
	Bulk       *checkpoint.MemoryStore // for a job without a checkpoint directory
	Logger     *slog.Logger
}

// Server does what a Core decides. It serves workers by the methods of control.ControlServer, and Run leads
// the job.
type Server struct {
	control.UnimplementedControlServer
	o       Options
	logger  *slog.Logger
	nodes   map[string]*kernel.Node
	streams string // engine.Streams of the job
	started time.Time

	core     *Core // Run's goroutine owns it, and what follows
	restored int64 // checkpoint from which the attempt starts; 0: none
	events   chan Event
	asks     chan func() // run by Run's goroutine
	done     chan struct{}

	settled bool        // the newest manifest lists no output; the ledger's goroutine owns it
	ledger  chan func() // run one after the other, by the ledger's goroutine
	working sync.WaitGroup

	splits []*control.Splits // of all sources, once listed

	mu       sync.Mutex
	sessions map[WorkerID]*session
	nextID   WorkerID
	figures  []Step // when the job is over
	figured  int64  // the attempt that they are of
	joined   int    // sessions so far
}

// NewServer returns a Server for a job.
func NewServer(o Options) (*Server, error) {
	stages, err := engine.Stages(o.Graph, int(o.Settings.Parallelism))
	if err != nil {
		return nil, err
	}
	o.Core.Parallelism = int(o.Settings.Parallelism)
	for _, st := range stages {
		for i := range st.Parallelism {
			o.Core.Subtasks = append(o.Core.Subtasks, Subtask{st.Name(), i})
		}
	}
	if c := o.Core.Last; c != nil {
		var has []Subtask
		for _, p := range c.Parts {
			has = append(has, Subtask{p.Stage, p.Subtask})
		}
		if !slices.Equal(has, o.Core.Subtasks) {
			return nil, fmt.Errorf("restore checkpoint %d: it has the state of the subtasks %v, and the job has %v", c.ID, has, o.Core.Subtasks)
		}
	}
	s := &Server{
		o: o, logger: o.Logger, nodes: map[string]*kernel.Node{}, started: time.Now(),
		core: NewCore(o.Core, 0), events: make(chan Event, 1024), asks: make(chan func()), done: make(chan struct{}),
		ledger: make(chan func(), 16), sessions: map[WorkerID]*session{}, streams: engine.Streams(stages),
	}
	for _, n := range o.Graph.Nodes {
		s.nodes[n.Name] = n
	}
	return s, nil
}

// tickEvery is the grain of the coordinator's time.
const tickEvery = 20 * time.Millisecond

// Run leads the job to its end. When ctx ends it takes a last checkpoint first.
func (s *Server) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.working.Go(func() {
		for {
			select {
			case f := <-s.ledger:
				f()
			case <-work.Done():
				return
			}
		}
	})
	ticks := time.NewTicker(tickEvery)
	defer ticks.Stop()
	stop := ctx.Done()
	var end *Finish
	for end == nil {
		var e Event
		select {
		case e = <-s.events:
		case f := <-s.asks:
			f()
			continue
		case <-ticks.C:
		case <-stop:
			stop = nil
			e = StopRequested{}
		}
		actions := s.core.Step(Tick{time.Since(s.started).Milliseconds()})
		if e != nil {
			s.logEvent(e)
			actions = append(actions, s.core.Step(e)...)
		}
		if final, _ := s.core.Over(); final != "" {
			s.mu.Lock()
			s.figures, s.figured = s.steps() // before the workers that they are from are dismissed
			s.mu.Unlock()
		}
		for _, a := range actions {
			if f, ok := a.(Finish); ok {
				end = &f
				continue
			}
			s.act(work, a)
		}
	}
	close(s.done)
	cancel()
	s.working.Wait()
	if end.Err == nil {
		s.settle(context.WithoutCancel(ctx))
	}
	return end.Err
}

// settle publishes the last checkpoint once more, without the output that it listed: all of that is committed, and what
// becomes of it from now on is no concern of a later start.
func (s *Server) settle(ctx context.Context) {
	if s.core.last == nil || !s.core.commits.empty() || s.settled {
		return
	}
	m := s.manifest(&checkpoint.Manifest{Checkpoint: *s.core.last})
	if err := s.o.Ledger.Publish(ctx, m); err != nil {
		s.logger.Warn("that all output is committed could not be noted", "error", err)
	}
}

// tell gives an event to the core, unless the job is over.
func (s *Server) tell(e Event) {
	select {
	case s.events <- e:
	case <-s.done:
	}
}

func (s *Server) logEvent(e Event) {
	switch e := e.(type) {
	case Joined:
		s.logger.Info("worker joined", "worker", e.Worker)
	case Left:
		s.logger.Warn("worker left", "worker", e.Worker, "reason", e.Reason)
	case StepFailed:
		about := []any{"worker", e.Worker, "attempt", e.Attempt, "error", e.Err}
		switch {
		case e.Lost:
			s.logger.Warn("attempt ends: a worker cannot reach another", about...)
		case e.Step == "":
			s.logger.Error("attempt failed", about...)
		default:
			s.logger.Error("attempt failed", append(about, "step", e.Step)...)
		}
	case Published:
		if e.Err == nil {
			s.logger.Debug("checkpoint complete", "checkpoint", e.Checkpoint)
		}
	case Committed:
		if e.Err != nil {
			s.logger.Error("commit failed", "checkpoint", e.Checkpoint, "error", e.Err)
		}
	}
}

// act carries out an action. What takes time is done beside.
func (s *Server) act(ctx context.Context, a Action) {
	switch a := a.(type) {
	case Prepare:
		s.ledger <- func() {
			// A sink that starts sweeps what it does not know: it must not be the output of who leads by now.
			if err := s.o.Ledger.Check(ctx); err != nil {
				s.tell(Prepared{Attempt: a.Attempt, Err: err, Deposed: errors.Is(err, commitlog.ErrDeposed)})
				return
			}
			s.working.Go(func() { s.tell(s.prepare(ctx, a)) })
		}
	case Deploy:
		s.restored = 0
		if a.Restore != nil {
			s.restored = a.Restore.ID
		}
		m, err := s.deployment(a)
		if err != nil { // a checkpoint that was encoded before cannot be now
			s.working.Go(func() { s.tell(StepFailed{Worker: a.Worker, Attempt: a.Attempt, Err: err}) })
			return
		}
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Deploy{Deploy: m}})
	case Begin:
		s.logger.Info("attempt begins", "attempt", a.Attempt, "worker", a.Worker, "restored", s.restored)
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Begin{Begin: &control.Begin{Attempt: a.Attempt}}})
	case Cancel:
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Cancel{Cancel: &control.Cancel{Attempt: a.Attempt}}})
	case Trigger:
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Trigger{Trigger: &control.Trigger{
			Attempt: a.Attempt, Checkpoint: a.Checkpoint, Overtake: a.Overtake,
		}}})
	case Complete:
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Complete{Complete: &control.Complete{
			Attempt: a.Attempt, Checkpoint: a.Checkpoint,
		}}})
	case Dismiss:
		s.logger.Info("worker dismissed", "worker", a.Worker, "reason", a.Reason)
		final, _ := s.core.Over()
		s.send(a.Worker, &control.ToWorker{Message: &control.ToWorker_Dismiss{Dismiss: &control.Dismiss{
			Reason: a.Reason, Done: final != "", Failed: final == Failed,
		}}})
	case Publish:
		s.ledger <- func() { s.tell(Published{a.Manifest.Checkpoint.ID, s.publish(ctx, a)}) }
	case Collect:
		s.ledger <- func() {
			if err := s.o.Ledger.Collect(ctx); err != nil && ctx.Err() == nil {
				s.logger.Warn("old checkpoints were not deleted; later ones will try again", "error", err)
			}
		}
	case Commit:
		s.working.Go(func() {
			err := s.commit(ctx, a)
			s.tell(Committed{a.Checkpoint, err, permanent(err)})
		})
	}
}

// permanent says whether a connector or a driver knows that trying again will not help.
func permanent(err error) bool {
	return errors.Is(err, storage.ErrPermanent) || errors.Is(err, connector.ErrPermanent)
}

// hopeless says whether what could not be prepared will not be better a moment later. Connectors that do not say so
// themselves often bring an error of the file system.
func hopeless(err error) bool {
	return permanent(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// prepare tells the sinks that an attempt starts, and lists the splits of the sources, once.
func (s *Server) prepare(ctx context.Context, a Prepare) Prepared {
	var splits []*control.Splits
	for _, n := range s.o.Graph.Nodes {
		var err error
		if n.Sink != nil {
			err = n.Sink.Start(ctx, a.Fresh)
		}
		if err == nil && n.Splits != nil && a.Fresh && s.splits == nil {
			var list [][]byte
			list, err = n.Splits(ctx)
			splits = append(splits, &control.Splits{Step: n.Name, Splits: list})
		}
		if err != nil {
			return Prepared{Attempt: a.Attempt, Step: n.Name, Err: fmt.Errorf("step %q: %w", n.Name, err), Permanent: hopeless(err)}
		}
	}
	if s.splits == nil && a.Fresh {
		s.splits = splits
	}
	return Prepared{Attempt: a.Attempt}
}

// deployment is what a worker needs to build its part of an attempt.
func (s *Server) deployment(a Deploy) (*control.Deploy, error) {
	d := &control.Deploy{Attempt: a.Attempt, Addresses: map[string]string{}}
	s.mu.Lock()
	for _, w := range a.Slots {
		d.Slots = append(d.Slots, w.String())
		if ses := s.sessions[w]; ses != nil {
			d.Addresses[w.String()] = ses.address
		}
	}
	s.mu.Unlock()
	if a.Restore == nil {
		d.Splits = s.splits
		return d, nil
	}
	m := s.manifest(&checkpoint.Manifest{Checkpoint: checkpoint.Checkpoint{ID: a.Restore.ID}})
	for _, p := range a.Restore.Parts {
		if a.Slots[p.Subtask] == a.Worker {
			m.Checkpoint.Parts = append(m.Checkpoint.Parts, p)
		}
	}
	var err error
	d.Checkpoint, err = m.Encode()
	return d, err
}

// manifest fills in the header.
func (s *Server) manifest(m *checkpoint.Manifest) *checkpoint.Manifest {
	m.Job, m.StatePlan = s.o.Name, s.o.Graph.StatePlan(int(s.o.Settings.KeyGroups))
	m.KeyGroups, m.Parallelism, m.Time = int(s.o.Settings.KeyGroups), int(s.o.Settings.Parallelism), time.Now().UTC()
	m.Flags, m.Streams = s.o.Flags, s.streams
	return m
}

func (s *Server) publish(ctx context.Context, a Publish) error {
	s.settled = len(a.Manifest.Pending) == 0
	if err := failpoint.Hit("before-publish"); err != nil {
		return err
	}
	if err := s.o.Ledger.Publish(ctx, s.manifest(a.Manifest)); err != nil {
		return err
	}
	return failpoint.Hit("after-publish")
}

// commit makes the output of one checkpoint visible.
func (s *Server) commit(ctx context.Context, a Commit) error {
	for _, o := range a.Outputs {
		n := s.nodes[o.Node]
		if n == nil || n.Sink == nil {
			return storage.Permanent(fmt.Errorf("step %q is no sink", o.Node))
		}
		err := n.Sink.Commit(ctx, o.Checkpoint, o.Committables)
		switch {
		case err != nil && permanent(err) && o.Checkpoint <= s.o.Abandoned:
			// The operator has begun anew, and may have removed what was there.
			s.logger.Error("output of the run before this one is lost", "step", o.Node, "checkpoint", o.Checkpoint, "error", err)
		case err != nil:
			return fmt.Errorf("step %q: %w", o.Node, err)
		}
		if err := failpoint.Hit("mid-commit"); err != nil {
			return err
		}
	}
	return nil
}

// send gives a message to a worker. One that does not take its messages is dropped.
func (s *Server) send(w WorkerID, m *control.ToWorker) {
	s.mu.Lock()
	ses := s.sessions[w]
	s.mu.Unlock()
	if ses == nil {
		return // it has left, and the event is on its way
	}
	select {
	case ses.out <- m:
	default:
		ses.drop(errors.New("it does not take its messages"))
	}
}

// ask runs f where the core may be looked at, and waits for it. After the job it runs f at once.
func (s *Server) ask(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case s.asks <- func() { f(); close(ran) }:
		<-ran
		return nil
	case <-s.done:
		f()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status says where the job stands.
func (s *Server) Status(ctx context.Context) (st Status, err error) {
	err = s.ask(ctx, func() { st = s.core.Status() })
	return st, err
}

// Uptime is the age of this coordinator.
func (s *Server) Uptime() time.Duration { return time.Since(s.started) }

// Step are the figures of one step over all subtasks, since the present attempt began.
type Step struct {
	Name                               string
	RecordsIn, RecordsOut, LateDropped int64
	LateTo                             bool  // the elements that LateDropped counts went to an output
	Watermark                          int64 // event time in ms; the least of its subtasks
	kernel.Figures                           // of its code
}

// Steps are the figures that the workers have sent last. A subtask sends its last ones before it ends, so that they
// are exact when the job is finished.
func (s *Server) Steps() []Step {
	steps, _ := s.stepsOf()
	return steps
}

// stepsOf is Steps with the attempt that they are of; 0 if no worker has told yet.
func (s *Server) stepsOf() (steps []Step, attempt int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.figures != nil {
		return s.figures, s.figured
	}
	return s.steps()
}

func (s *Server) steps() (all []Step, newest int64) {
	for _, ses := range s.sessions {
		newest = max(newest, ses.metrics.GetAttempt())
	}
	steps := map[string]*Step{}
	for _, ses := range s.sessions {
		if ses.metrics.GetAttempt() != newest {
			continue
		}
		for _, m := range ses.metrics.GetSteps() {
			st := steps[m.Step]
			if st == nil {
				st = &Step{Name: m.Step, Watermark: m.Watermark}
				steps[m.Step] = st
			}
			st.RecordsIn += m.RecordsIn
			st.RecordsOut += m.RecordsOut
			st.LateDropped += m.LateDropped
			st.Watermark = min(st.Watermark, m.Watermark)
			st.Figures.Merge(m.Figures.Unpack())
		}
	}
	for _, n := range s.o.Graph.Nodes {
		if st := steps[n.Name]; st != nil {
			st.LateTo = n.LateTo
			all = append(all, *st)
		} else {
			all = append(all, Step{Name: n.Name, Watermark: -1 << 63})
		}
	}
	return all, newest
}

// Progress is how a job goes, for who watches it.
type Progress struct {
	Steps         []Step
	Attempt       int64         // that Steps are of; 0: nothing is known of it yet
	Restored      int64         // checkpoint that it began from; 0: none
	Checkpoints   int           // completed by this coordinator
	CheckpointAge time.Duration // of the last of them
}

// Progress says how the job goes.
func (s *Server) Progress(ctx context.Context) (Progress, error) {
	steps, attempt := s.stepsOf()
	st, err := s.Status(ctx)
	return Progress{steps, attempt, st.Restored, st.Complete, time.Duration(st.Age) * time.Millisecond}, err
}

// Over says whether the job has ended, done or failed: workers that are dismissed then end too.
func (s *Server) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.figures != nil
}

// Joined is the number of workers that have ever joined.
func (s *Server) Joined() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined
}

// Workers are the names of those that have joined.
func (s *Server) Workers() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		names = append(names, fmt.Sprintf("%s (%s)", ses.id, ses.process))
	}
	slices.Sort(names)
	return names
}
