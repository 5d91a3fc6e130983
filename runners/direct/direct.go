// Package direct runs a pipeline in this process, for tests, development and small jobs. It is the same
// engine that a cluster runs: the same operators, state tables, barriers and snapshots.
//
// Unlike a cluster it also checks what a pipeline's author may get wrong: that building the pipeline twice
// gives the same plan, that elements are not changed after they were emitted, that they come back from
// their encodings, and, on request, that the answer is the same when the job is stopped and restored every
// few records.
package direct

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// Options are the settings of a run; the zero value is a good default. Nothing is negative; times are whole milliseconds.
type Options struct {
	Parallelism int // subtasks of each step; default GOMAXPROCS
	KeyGroups   int // at least Parallelism, at most statebackend.MaxKeyGroups; default 256
	// Backend holds the state that does not fit CacheBytes. Default: memory.
	Backend statebackend.Driver
	// Dir is where Backend may keep files; needed if it does.
	Dir        string
	CacheBytes int64 // default 256 MiB
	// CheckpointInterval is the time between two checkpoints, at which output is committed. Default: only
	// at the end, or 1s if a source is unbounded.
	CheckpointInterval time.Duration
	// ReadBatch is the greatest number of records that a source reads at once; a watermark may follow them.
	// Default 1024. With 1 it follows each record, so that which records of a split are late is no chance.
	ReadBatch int
	// WatermarkInterval is the least time between two watermarks of a source, unless it has read 262,144 records in
	// between. Default: after every read.
	WatermarkInterval time.Duration
	// RestoreEvery takes a checkpoint after every so many records read, stops the job and restores it. Set
	// ReadBatch too if that is less than what a source reads at once.
	// 0: never.
	RestoreEvery int
	// Crash, if set, is called at each start of the job with a function that breaks it off, from any
	// goroutine: without a checkpoint, as a crash does. The job is then restored from its last checkpoint, or starts anew.
	// It is for tests.
	Crash func(crash func())
	// Overtaking takes checkpoints whose barriers overtake elements (unaligned).
	Overtaking bool
	// Cut cuts the batches that steps get, on which no answer may depend. It is for tests.
	Cut Cut
	// NoChecks leaves out the checks of the author's mistakes.
	NoChecks bool

	Logger *slog.Logger // default: none
	// Progress is called about once a second while the job runs.
	Progress func(Progress)

	// Scheduler is for tests that control the interleaving. Default: goroutines.
	Scheduler engine.Scheduler
}

// Cut says where batches are cut before a step gets them; elements without a key count as of one key.
type Cut = kernel.Cut

// The cuts.
const (
	CutNowhere = kernel.CutNowhere
	CutKeys    = kernel.CutKeys    // a batch has elements of one key
	CutRepeats = kernel.CutRepeats // a batch has at most one element of each key
	CutAll     = kernel.CutAll     // a batch has one element
)

// Progress is how far a job has come.
type Progress struct {
	RecordsRead   int64
	Watermark     int64 // least of the sources', event time in ms
	Checkpoints   int
	CheckpointAge time.Duration
}

// Result is what a run counted; the figures of steps since it was last restored.
type Result struct {
	Steps       []Step
	Checkpoints int
	Restores    int
	Stopped     bool // ctx was cancelled before the end
}

// Step are the figures of one step, over all subtasks.
type Step struct {
	Name                               string
	RecordsIn, RecordsOut, LateDropped int64
	LateTo                             bool // the elements that LateDropped counts went to an output
	// What the step's code counts, by name: maps Counters, Distributions, Gauges and Histograms.
	Figures
}

// What steps count. Those of the subtasks of a step are merged: a Reading is the latest.
type (
	Figures = kernel.Figures
	Summary = kernel.Summary // of a distribution: Count, Sum, Min, Max
	Reading = kernel.Reading // of a gauge: Value and At, the processing time
	Buckets = kernel.Buckets // of a histogram: a Summary, and Quantile(q)
)

// Step returns the figures of the step of that full name, or zero ones.
func (r *Result) Step(name string) Step {
	for _, s := range r.Steps {
		if s.Name == name {
			return s
		}
	}
	return Step{Name: name}
}

// check refuses what would fail later, or do something else.
func (o *Options) check() error {
	for _, n := range []struct {
		option   string
		is, most int64
	}{
		{"Parallelism", int64(o.Parallelism), statebackend.MaxKeyGroups}, {"KeyGroups", int64(o.KeyGroups), statebackend.MaxKeyGroups},
		{"CacheBytes", o.CacheBytes, math.MaxInt64}, {"ReadBatch", int64(o.ReadBatch), math.MaxInt64}, {"RestoreEvery", int64(o.RestoreEvery), math.MaxInt64},
	} {
		switch {
		case n.is < 0:
			return fmt.Errorf("direct.Options: %s is %d: must not be negative", n.option, n.is)
		case n.is > n.most:
			return fmt.Errorf("direct.Options: %s is %d: must be at most %d", n.option, n.is, n.most)
		}
	}
	for _, t := range []struct {
		option string
		is     time.Duration
	}{{"CheckpointInterval", o.CheckpointInterval}, {"WatermarkInterval", o.WatermarkInterval}} {
		if t.is < 0 || t.is%time.Millisecond != 0 {
			return fmt.Errorf("direct.Options: %s is %v: must not be negative, and whole milliseconds", t.option, t.is)
		}
	}
	return nil
}

// Run builds the pipeline and runs it to its end, or until ctx is cancelled: then it takes a last
// checkpoint, commits the output up to it, and returns nil.
func Run(ctx context.Context, name string, build func(*sdk.Pipeline) error, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g, err := plan(name, build, !o.NoChecks)
	if err != nil {
		return nil, err
	}
	if o.Parallelism == 0 {
		o.Parallelism = runtime.GOMAXPROCS(0)
	}
	if o.KeyGroups == 0 {
		o.KeyGroups = statebackend.DefaultKeyGroups
	}
	if o.Backend == nil {
		o.Backend = memory.Driver{}
	}
	if o.CheckpointInterval == 0 && g.Unbounded() {
		o.CheckpointInterval = time.Second
	}
	if o.Scheduler == nil {
		o.Scheduler = engine.Real{}
	}
	r := &runner{ctx: ctx, g: g, o: o, store: &checkpoint.MemoryStore{}, result: &Result{}, me: o.Scheduler.NewParker("coordinator")}
	stop := context.AfterFunc(ctx, r.me.Wake)
	defer stop()
	if err := r.drive(); err != nil {
		return nil, err
	}
	return r.result, nil
}

// plan builds the pipeline, twice if check is set.
func plan(name string, build func(*sdk.Pipeline) error, check bool) (*kernel.Graph, error) {
	g, err := sdk.Build(name, build)
	if err != nil || !check {
		return g, err
	}
	again, err := sdk.Build(name, build)
	if err != nil {
		return nil, fmt.Errorf("the second time, build fails: %w", err)
	}
	if a, b := g.Plan(), again.Plan(); a != b {
		return nil, fmt.Errorf("build gives another plan the second time: it must depend on nothing but its arguments, for every worker of a cluster calls it; first:\n%s\nsecond:\n%s", a, b)
	}
	return again, nil
}

// runner coordinates a job: a goroutine that waits in one place.
type runner struct {
	ctx    context.Context
	g      *kernel.Graph
	o      Options
	store  *checkpoint.MemoryStore
	result *Result
	me     engine.Parker

	splits map[*kernel.Node][][]byte
	last   *checkpoint.Checkpoint
	nextID int64

	read  atomic.Int64 // records since the last restore
	total atomic.Int64 // records of all attempts
	taken eventtime.Time

	mu        sync.Mutex
	snapshots []*engine.SubtaskSnapshot // to be persisted
	ended     int
	done      bool // the job has stopped
}

// drive runs attempts until the job is done.
func (r *runner) drive() error {
	for _, n := range r.g.Nodes {
		if n.Splits != nil {
			s, err := n.Splits(r.ctx)
			if err != nil {
				return fmt.Errorf("step %q: %w", n.Name, err)
			}
			if r.splits == nil {
				r.splits = map[*kernel.Node][][]byte{}
			}
			r.splits[n] = s
		}
		if n.Sink != nil {
			if err := n.Sink.Start(r.ctx, true); err != nil {
				return fmt.Errorf("step %q: %w", n.Name, err)
			}
		}
	}
	for {
		again, err := r.attempt()
		if err != nil || !again {
			return err
		}
		r.result.Restores++
	}
}

// errRestore stops a job that is to be restored.
var errRestore = errors.New("restore")

// attempt runs the job from the last checkpoint.
func (r *runner) attempt() (again bool, err error) {
	keeper := checkpoint.NewKeeper(r.store, r.last)
	r.ended, r.done = 0, false
	r.read.Store(0)
	job, err := engine.NewJob(context.WithoutCancel(r.ctx), r.g, r.options(keeper))
	if err != nil {
		return false, err
	}
	var over atomic.Bool
	if r.o.Crash != nil {
		r.o.Crash(func() {
			if !over.Load() {
				job.Cancel(errRestore)
			}
		})
	}
	job.Start()
	var outcome error
	coordinate := func() { outcome = r.coordinate(job, keeper) }
	if s, ok := r.o.Scheduler.(interface{ Run() error }); ok {
		r.o.Scheduler.Go("coordinator", r.me, coordinate)
		if err := s.Run(); err != nil {
			return false, err
		}
	} else {
		coordinate()
	}
	err = job.Wait()
	over.Store(true)
	if _, perr := r.persist(keeper); err == nil { // of a checkpoint that failed: its bases are to be released
		err = perr
	}
	switch {
	case errors.Is(err, errRestore):
		return true, nil
	case err != nil:
		return false, err
	case outcome != nil:
		return false, outcome
	}
	r.collect(job)
	return false, nil
}

func (r *runner) options(keeper *checkpoint.Keeper) engine.Options {
	o := engine.Options{
		Scheduler: r.o.Scheduler, Parallelism: r.o.Parallelism, Groups: r.o.KeyGroups, CacheBytes: r.o.CacheBytes,
		Checkpoints:       r.o.CheckpointInterval > 0 || r.o.RestoreEvery > 0,
		WatermarkInterval: eventtime.Time(r.o.WatermarkInterval.Milliseconds()),
		ReadBatch:         r.o.ReadBatch, Cut: r.o.Cut,
		Logger: r.logger(), Check: !r.o.NoChecks, RenewBase: keeper.RenewBase,
		OpenBackend: func(ctx context.Context, n *kernel.Node, subtask, parallelism int) (statebackend.Backend, error) {
			return r.last.Open(ctx, r.store, r.o.Backend, statebackend.Config{
				Dir:       fmt.Sprintf("%s/%d-%d", r.o.Dir, n.ID, subtask),
				KeyGroups: statebackend.RangeOf(subtask, parallelism, r.o.KeyGroups),
			}, n.Name, subtask)
		},
		Splits: func(n *kernel.Node, subtask, parallelism int) (mine [][]byte) {
			for i := subtask; i < len(r.splits[n]); i += parallelism {
				mine = append(mine, r.splits[n][i])
			}
			return mine
		},
		OnSnapshot: func(s *engine.SubtaskSnapshot) {
			r.mu.Lock()
			r.snapshots = append(r.snapshots, s)
			r.mu.Unlock()
			r.me.Wake()
		},
		OnEnd: func(string, int) {
			r.mu.Lock()
			r.ended++
			r.mu.Unlock()
			r.me.Wake()
		},
		OnFailure: func() {
			r.mu.Lock()
			r.done = true
			r.mu.Unlock()
			r.me.Wake()
		},
	}
	o.OnRecords = func(n int) bool {
		r.total.Add(int64(n))
		due := r.read.Add(int64(n)) >= int64(r.o.RestoreEvery) && r.o.RestoreEvery > 0
		if due {
			r.me.Wake()
		}
		return due
	}
	if r.last != nil {
		o.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return r.last.Restore(r.ctx, r.store, stage, subtask)
		}
	}
	return o
}

// logger is that of the present attempt.
func (r *runner) logger() *slog.Logger {
	if r.o.Logger == nil {
		return nil
	}
	return r.o.Logger.With("attempt", r.result.Restores+1)
}

// coordinate takes checkpoints until everything has been processed.
func (r *runner) coordinate(job *engine.Job, keeper *checkpoint.Keeper) error {
	sched := r.o.Scheduler
	next := eventtime.Max
	if r.o.CheckpointInterval > 0 {
		next = sched.Now() + eventtime.Time(r.o.CheckpointInterval.Milliseconds())
	}
	report := eventtime.Max
	if r.o.Progress != nil {
		report = sched.Now() + 1000
	}
	for {
		r.mu.Lock()
		done, ended := r.done, r.ended == job.Subtasks()
		r.mu.Unlock()
		restore := r.o.RestoreEvery > 0 && r.read.Load() >= int64(r.o.RestoreEvery)
		last := ended || r.ctx.Err() != nil
		switch {
		case done:
			return nil // it failed; Wait has the error
		case last || restore || sched.Now() >= next:
			if err := r.checkpoint(job, keeper); err != nil {
				job.Cancel(err)
				return err
			}
			if last {
				r.result.Stopped = !ended
				job.Stop()
				return nil
			}
			if restore {
				job.Cancel(errRestore)
				return nil
			}
			if next < eventtime.Max {
				next = sched.Now() + eventtime.Time(r.o.CheckpointInterval.Milliseconds())
			}
		case sched.Now() >= report:
			r.report(job)
			report = sched.Now() + 1000
		default:
			r.me.Park(min(next, report))
		}
	}
}

// report calls Progress.
func (r *runner) report(job *engine.Job) {
	p := Progress{RecordsRead: r.total.Load(), Watermark: int64(eventtime.Max), Checkpoints: r.result.Checkpoints}
	if p.Checkpoints > 0 {
		p.CheckpointAge = time.Duration(r.o.Scheduler.Now()-r.taken) * time.Millisecond
	}
	sources := map[string]bool{}
	for _, n := range r.g.Nodes {
		sources[n.Name] = n.Splits != nil
	}
	job.EachMetrics(func(step string, _ int, m *kernel.Metrics) {
		if sources[step] {
			p.Watermark = min(p.Watermark, m.Watermark.Load())
		}
	})
	r.o.Progress(p)
}

// checkpoint takes one checkpoint and commits what it lists.
func (r *runner) checkpoint(job *engine.Job, keeper *checkpoint.Keeper) error {
	r.nextID++
	job.Trigger(r.nextID, r.o.Overtaking)
	var parts []checkpoint.Part
	for {
		r.mu.Lock()
		done := r.done
		r.mu.Unlock()
		if done {
			return nil
		}
		more, err := r.persist(keeper)
		if err != nil {
			return err
		}
		if parts = append(parts, more...); len(parts) == job.Subtasks() {
			break
		}
		r.me.Park(eventtime.Max)
	}
	c, err := checkpoint.Assemble(r.last, parts)
	if err != nil {
		return err
	}
	r.last, r.taken = c, r.o.Scheduler.Now()
	r.result.Checkpoints++
	for _, n := range r.g.Nodes {
		if n.Sink == nil {
			continue
		}
		for _, pre := range c.Prepared(n.Name) {
			if err := n.Sink.Commit(context.WithoutCancel(r.ctx), pre.Checkpoint, pre.Committables); err != nil {
				return fmt.Errorf("step %q: commit checkpoint %d: %w", n.Name, pre.Checkpoint, err)
			}
		}
	}
	keeper.Completed(c.ID)
	r.store.Retain(c)
	return nil
}

// persist stores the snapshots that subtasks have handed over: here, so that the subtasks go on meanwhile.
func (r *runner) persist(keeper *checkpoint.Keeper) (parts []checkpoint.Part, err error) {
	r.mu.Lock()
	snapshots := r.snapshots
	r.snapshots = nil
	r.mu.Unlock()
	for _, s := range snapshots {
		p, perr := keeper.Persist(context.WithoutCancel(r.ctx), s)
		err = errors.Join(err, perr)
		if !s.Aborted {
			parts = append(parts, p)
		}
	}
	return parts, err
}

// collect sums up the figures of the job.
func (r *runner) collect(job *engine.Job) {
	steps := map[string]*Step{}
	job.EachMetrics(func(name string, _ int, m *kernel.Metrics) {
		s := steps[name]
		if s == nil {
			s = &Step{Name: name}
			steps[name] = s
		}
		s.RecordsIn += m.RecordsIn.Load()
		s.RecordsOut += m.RecordsOut.Load()
		s.LateDropped += m.LateDropped.Load()
		s.Figures.Merge(m.Figures())
	})
	for _, n := range r.g.Nodes {
		if s := steps[n.Name]; s != nil {
			s.LateTo = n.LateTo
			r.result.Steps = append(r.result.Steps, *s)
		}
	}
}
