// Package engine runs a graph of kernel operators: stages of subtasks that exchange batches through
// inboxes, with watermarks, and with barriers that cut consistent snapshots out of the stream
// (asynchronous barrier snapshots: Carbone et al. 2015, after Chandy and Lamport 1985).
//
// Reading order: scheduler.go (where goroutines wait), inbox.go, aligner.go (what barriers mean),
// merger.go (watermarks), subtask.go (the loop), barrier.go, chain.go, stage.go, job.go, remote.go.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/statebackend"
)

// DefaultRoom is the number of batches that a channel takes before its sender waits, unless set.
const DefaultRoom = 8

// Options configure a Job.
type Options struct {
	Scheduler   Scheduler // default Real
	Parallelism int
	Groups      int   // key groups; default statebackend.DefaultKeyGroups
	Room        int   // batches that a channel takes before its sender waits; default DefaultRoom
	CacheBytes  int64 // for the tables of all stateful subtasks in this process together; default 256 MiB
	// Checkpoints says that Trigger will be called while the job runs, so that changes must be tracked.
	Checkpoints bool
	// WatermarkInterval is the least time in ms between two watermarks of a source, unless it has read
	// watermarkRecords in between; 0: after every read.
	WatermarkInterval eventtime.Time
	// ReadBatch is the greatest number of records that a source reads at once; 0: kernel.BatchSize.
	ReadBatch int
	// AlignTimeout, in ms, turns an aligned checkpoint into an overtaking one; 0: never.
	AlignTimeout eventtime.Time

	// OpenBackend opens the state backend of a node in a subtask, with what is restored.
	OpenBackend func(ctx context.Context, node *kernel.Node, subtask, parallelism int) (statebackend.Backend, error)
	// Splits lists the splits of a source that belong to a subtask, here or in another process. It is not called for restored sources.
	Splits func(node *kernel.Node, subtask, parallelism int) [][]byte
	// Restore returns what a subtask starts from, or nil.
	Restore func(stage string, subtask int) (*SubtaskRestore, error)

	// RenewBase says whether the next snapshot of a node's keyed state renews its base; nil: never.
	RenewBase func(node string, subtask int) bool

	// Budget is the number of entries fired, or encoded for a snapshot, between two looks at mail and
	// barriers; default 512.
	Budget int
	// Local says which subtasks this process runs, the others run elsewhere; nil: all here. Everything that a
	// Job does and counts is about its local subtasks.
	Local func(stage string, subtask int) bool
	// Remote makes the sending end of a channel from a subtask here to one elsewhere; see EachInbound for the
	// other end. It is called by NewJob, and needed if Local is set.
	Remote func(e *StageEdge, from, to int) Sender

	// Check makes the job verify that no element is changed after it was emitted, and that elements come back
	// from their encoding: see emitCheck.
	Check bool
	// Cut cuts the batches that steps get.
	Cut kernel.Cut
	// OnRecords, if set, is told how many records a source has read, from its subtask's goroutine. If it
	// returns true the subtask reads no more before its next snapshot.
	OnRecords func(n int) (pause bool)

	// OnSnapshot is given each subtask's part of a checkpoint, OnEnd is told that a subtask has processed
	// everything. Both are called from the subtask's goroutine and must not wait.
	OnSnapshot func(*SubtaskSnapshot)
	OnEnd      func(stage string, subtask int)
	// OnFailure is called once, when the first error begins to stop the job.
	OnFailure func()

	Logger *slog.Logger
}

// Job runs the subtasks of a graph.
type Job struct {
	sched             Scheduler
	clock             *kernel.Clock // instead of sched's, for operators; or nil
	ctx               context.Context
	cancel            context.CancelFunc
	groups            int
	cacheMax          int64
	track             bool
	watermarkInterval eventtime.Time
	alignTimeout      eventtime.Time
	opts              Options
	logger            *slog.Logger
	onSnapshot        func(*SubtaskSnapshot)

	stages   []*Stage
	subtasks []*subtask
	mute     map[*Stage][]bool // see findMute

	running sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// NewJob lays out the subtasks of g. Start runs them.
func NewJob(ctx context.Context, g *kernel.Graph, o Options) (*Job, error) {
	if o.Scheduler == nil {
		o.Scheduler = Real{}
	}
	if o.Groups == 0 {
		o.Groups = statebackend.DefaultKeyGroups
	}
	if o.Room == 0 {
		o.Room = DefaultRoom
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 256 << 20
	}
	if o.Budget == 0 {
		o.Budget = 512
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Local != nil && o.Remote == nil {
		return nil, errors.New("a job with subtasks elsewhere needs a transport to them")
	}
	if o.Parallelism > o.Groups {
		return nil, fmt.Errorf("parallelism %d exceeds the %d key groups of the job", o.Parallelism, o.Groups)
	}
	stages, err := Stages(g, o.Parallelism)
	if err != nil {
		return nil, err
	}
	j := &Job{
		sched: o.Scheduler, clock: g.Clock, groups: o.Groups, track: o.Checkpoints,
		watermarkInterval: o.WatermarkInterval, alignTimeout: o.AlignTimeout,
		opts: o, logger: o.Logger, stages: stages, onSnapshot: o.OnSnapshot,
	}
	if j.onSnapshot == nil {
		j.onSnapshot = func(*SubtaskSnapshot) {}
	}
	j.ctx, j.cancel = context.WithCancel(ctx)
	j.findMute()
	j.layOut()
	return j, nil
}

// local says whether a subtask runs in this process.
func (j *Job) local(st *Stage, i int) bool { return j.opts.Local == nil || j.opts.Local(st.Name(), i) }

// layOut makes the subtasks of this process and joins them by channels.
func (j *Job) layOut() {
	at := map[*Stage][]*subtask{} // nil where it runs elsewhere
	keyed := int64(0)
	for _, st := range j.stages {
		at[st] = make([]*subtask, st.Parallelism)
		for i := range st.Parallelism {
			if !j.local(st, i) {
				continue
			}
			for _, n := range st.Nodes {
				if n.Keyed {
					keyed++
				}
			}
			s := &subtask{job: j, stage: st, index: i}
			s.parker = j.sched.NewParker(s.name())
			s.inbox = newInbox(st.Channels(), j.opts.Room, s.parker)
			s.aligner = NewAligner(st.Channels())
			for _, e := range st.In {
				for range e.channels() {
					s.codecs = append(s.codecs, e.Codec)
					s.ports = append(s.ports, e.Input)
				}
			}
			at[st][i] = s
			j.subtasks = append(j.subtasks, s)
		}
	}
	j.cacheMax = j.opts.CacheBytes / max(1, keyed)
	for _, s := range j.subtasks {
		s.chain.w = eventtime.Min
		pos := map[*kernel.Node]int{}
		for k, n := range s.stage.Nodes {
			o := chainOp{node: n, op: n.New(), wm: eventtime.Min, out: eventtime.Min, metrics: &kernel.Metrics{}}
			if o.holder, _ = o.op.(kernel.Holder); o.holder != nil {
				s.chain.holders = append(s.chain.holders, k)
			}
			if _, ok := o.op.(kernel.Async); ok {
				s.chain.asyncs = append(s.chain.asyncs, k)
			}
			if _, ok := o.op.(kernel.Clocked); ok {
				s.chain.clocked = append(s.chain.clocked, k)
			}
			o.metrics.Watermark.Store(int64(eventtime.Min))
			if k > 0 {
				for _, in := range n.Inputs {
					o.producers = append(o.producers, pos[in.From])
				}
			}
			pos[n] = k
			s.chain.ops = append(s.chain.ops, o)
		}
		s.source, _ = s.chain.ops[0].op.(kernel.Source)
		for _, e := range s.stage.Out {
			out := &outEdge{from: pos[e.Node], wm: eventtime.Min}
			if e.Lifts {
				out.lifts = e.To.Name()
			}
			first, targets := 0, at[e.To]
			if e.direct() {
				first, targets = s.index, targets[s.index:s.index+1]
			}
			for i, t := range targets {
				if t != nil {
					out.targets = append(out.targets, localSender{t.inbox, e.channelOf(s.index)})
				} else {
					out.targets = append(out.targets, j.opts.Remote(e, s.index, first+i))
				}
			}
			out.split = e.Splitter(kernel.SplitContext{
				Subtask: subtaskOf(s), Targets: len(out.targets), Groups: j.groups, Exchange: e.Exchange,
			})
			out.send = s.sendTo(out)
			s.chain.edges = append(s.chain.edges, out)
		}
	}
	if j.clock != nil {
		var wakes []func()
		for _, s := range j.subtasks {
			wakes = append(wakes, s.parker.Wake)
		}
		j.clock.Start(wakes)
	}
}

// Start runs the subtasks. Wait returns their first error.
func (j *Job) Start() {
	j.running.Add(len(j.subtasks))
	for _, s := range j.subtasks {
		j.sched.Go(s.stage.Name(), s.parker, s.run)
	}
}

// Wait returns when every subtask has stopped: after Stop, or with the first error.
func (j *Job) Wait() error {
	j.running.Wait()
	j.cancel()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Trigger starts a checkpoint. Their numbers rise.
func (j *Job) Trigger(checkpoint int64, overtake bool) {
	for _, s := range j.subtasks {
		s.inbox.post(mail{trigger: checkpoint, overtake: overtake})
	}
}

// Stop ends all subtasks, between two batches. It is for after every OnEnd and the last checkpoint.
func (j *Job) Stop() {
	for _, s := range j.subtasks {
		s.inbox.post(mail{stop: true})
	}
}

// Cancel stops all subtasks at once. Wait returns err, or the error that came before it.
func (j *Job) Cancel(err error) { j.fail(err) }

// Subtasks is the number of subtasks in this process, each of which contributes to every checkpoint.
func (j *Job) Subtasks() int { return len(j.subtasks) }

// Stages are the stages of the job.
func (j *Job) Stages() []*Stage { return j.stages }

// EachMetrics calls f with the figures of every operator of every subtask.
func (j *Job) EachMetrics(f func(step string, subtask int, m *kernel.Metrics)) {
	for _, s := range j.subtasks {
		for i := range s.chain.ops {
			f(s.chain.ops[i].node.Name, s.index, s.chain.ops[i].metrics)
		}
	}
}

func (j *Job) fail(err error) {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = err
	}
	j.mu.Unlock()
	if !first {
		return
	}
	if j.opts.OnFailure != nil {
		j.opts.OnFailure()
	}
	j.cancel()
	for _, s := range j.subtasks {
		s.inbox.stop(ErrStopped)
	}
}

func (j *Job) subtaskDone(s *subtask, err error) {
	if err != nil && !errors.Is(err, ErrStopped) {
		j.fail(&SubtaskError{s.stage.Name(), s.index, err})
	}
	j.running.Done()
}

func (j *Job) subtaskEnded(s *subtask) {
	if j.opts.OnEnd != nil {
		j.opts.OnEnd(s.stage.Name(), s.index)
	}
}

func (j *Job) renewsBase(n *kernel.Node, subtask int) bool {
	return n.Keyed && j.opts.RenewBase != nil && j.opts.RenewBase(n.Name, subtask)
}

func (j *Job) restoreOf(s *subtask) (*SubtaskRestore, error) {
	if j.opts.Restore == nil {
		return nil, nil
	}
	return j.opts.Restore(s.stage.Name(), s.index)
}
