package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/enginetest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/sim"
)

var (
	seedFlag  = flag.Uint64("engine.seed", 0, "as MILLSTREAM_SEED: run only this seed")
	runsFlag  = flag.Int("engine.runs", 300, "as MILLSTREAM_RUNS: random jobs to run")
	startSeed = flag.Uint64("engine.start", 0, "first of several seeds; 0: as package seeds says")
)

// TestRandomJobsAreExact builds random graphs (diamonds, exchanges, flattens, chains of aggregations),
// runs them under a seeded scheduler with room for one batch a channel, takes aligned, overtaking and
// timed-out checkpoints, crashes them and restores the last complete one; the committed output must equal
// that of a naive evaluation, and no job may get stuck. Some are spread over up to three processes. Steps without state have other names after some restores.
func TestRandomJobsAreExact(t *testing.T) {
	sum := runSeeds(t, runRandomJob)
	// A run that exercises nothing proves nothing.
	if sum.Jobs >= 100 && (sum.Crashes == 0 || sum.Checkpoints == 0 || sum.Recorded == 0 || sum.Bases == 0 || sum.Panes == 0 || sum.Crossed == 0 || sum.Renamed == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}

// someSeeds is seeds.From, unless flags of this package say otherwise.
func someSeeds(t *testing.T) (start uint64, runs int) {
	t.Helper()
	start, runs = seeds.From(t, *runsFlag)
	if *startSeed != 0 {
		start, runs = *startSeed, *runsFlag
	}
	if *seedFlag != 0 {
		start, runs = *seedFlag, 1
	}
	return start, runs
}

// runSeeds runs f for one seed after the other, fresh ones each time, and says how to repeat a failure.
func runSeeds(t *testing.T, f func(seed uint64) (stats, error)) (sum stats) {
	t.Helper()
	start, runs := someSeeds(t)
	for i := range runs {
		seed := start + uint64(i)
		st, err := f(seed)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, seeds.Rerun(t, seed))
		}
		sum.add(st)
	}
	t.Logf("seeds %d to %d: %+v", start, start+uint64(runs)-1, sum)
	return sum
}

type stats struct {
	Jobs, Checkpoints, Aborted, Crashes, Recorded, Bases, Panes, Late, Steps int
	Crossed                                                                  int // batches that went from process to process
	Renamed                                                                  int // steps, before a restore
}

func (s *stats) add(o stats) {
	s.Jobs += o.Jobs
	s.Checkpoints += o.Checkpoints
	s.Aborted += o.Aborted
	s.Crashes += o.Crashes
	s.Recorded += o.Recorded
	s.Bases += o.Bases
	s.Panes += o.Panes
	s.Late += o.Late
	s.Steps += o.Steps
	s.Crossed += o.Crossed
	s.Renamed += o.Renamed
}

// ---- running with checkpoints and crashes ----

var errCrash = errors.New("crash")

func runRandomJob(seed uint64) (st stats, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	g := enginetest.Random(r, false)
	st.Jobs = 1
	h := newHarness(g, 1+r.IntN(3), r, &st)
	if err := h.run(seed); err != nil {
		return st, err
	}
	st.Panes, err = g.Compare()
	return st, err
}

// harness is a coordinator reduced to what a test needs.
type harness struct {
	g       *enginetest.Graph
	par     int
	r       *rand.Rand
	st      *stats
	store   *checkpoint.MemoryStore
	last    *checkpoint.Checkpoint
	nextID  int64
	cache   int64
	crash   int // 0 never, 1 seldom, 2 often
	mode    int // 0 aligned, 1 overtaking, 2 timeout, 3 mixed
	crashes int
	workers int // processes
}

func newHarness(g *enginetest.Graph, par int, r *rand.Rand, st *stats) *harness {
	return &harness{g: g, par: par, r: r, st: st, store: &checkpoint.MemoryStore{}, cache: []int64{400, 3000, 1 << 20}[r.IntN(3)],
		crash: r.IntN(3), mode: r.IntN(4), workers: 1 + r.IntN(3)}
}

// run restores the job until it comes to its end.
func (h *harness) run(seed uint64) error {
	for attempt := range 200 {
		done, err := h.attempt(seed*1000 + uint64(attempt))
		if err != nil {
			return fmt.Errorf("attempt %d, parallelism %d, %d processes: %w", attempt, h.par, h.workers, err)
		}
		if done {
			return nil
		}
	}
	return errors.New("no end after 200 attempts")
}

// rename gives some steps other names, as if a new version of the program were restored: those without state that
// begin no stage.
func (h *harness) rename() error {
	stages, err := engine.Stages(&h.g.Graph, h.par)
	for _, st := range stages {
		for _, n := range st.Nodes[1:] {
			if !n.Keyed && n.Sink == nil && h.r.IntN(2) == 0 {
				n.Name += "'"
				h.st.Renamed++
			}
		}
	}
	return err
}

func (h *harness) attempt(seed uint64) (done bool, err error) {
	if h.last != nil {
		if err := h.rename(); err != nil {
			return false, err
		}
	}
	sched := sim.New(seed)
	sched.MaxSteps = 500_000
	var parts []checkpoint.Part
	var failed error
	ended := 0
	me := sched.NewParker("coordinator")
	room := 1 + h.r.IntN(2)
	opts := engine.Options{
		Scheduler: sched, Parallelism: h.par, Room: room, CacheBytes: h.cache, Checkpoints: true, ReadBatch: h.g.ReadBatch,
		Budget: []int{1, 3, 512}[h.r.IntN(3)],
		OpenBackend: func(ctx context.Context, n *kernel.Node, sub, par int) (statebackend.Backend, error) {
			return h.last.Open(ctx, h.store, memory.Driver{}, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)}, n.Name, sub)
		},
		Splits: enginetest.Splits,
		OnEnd:  func(string, int) { ended++; me.Wake() },
	}
	renew := rand.New(rand.NewPCG(seed, 7))
	opts.RenewBase = func(string, int) bool { return renew.IntN(3) == 0 }
	if h.mode >= 2 {
		opts.AlignTimeout = 1
	}
	if h.last != nil {
		opts.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return h.last.Restore(context.Background(), h.store, stage, subtask)
		}
	}
	job := &spread{wire: newWire(sched, h.workers, room, seed)}
	for w := range h.workers {
		keeper := checkpoint.NewKeeper(h.store, h.last)
		job.keepers = append(job.keepers, keeper)
		opts.OnSnapshot = func(s *engine.SubtaskSnapshot) {
			p, err := keeper.Persist(context.Background(), s)
			if err != nil {
				failed = err
			}
			if s.Checkpoint == h.nextID && !s.Aborted {
				parts = append(parts, p)
			}
			for _, c := range s.Channels {
				if len(c) > 0 {
					h.st.Recorded++
				}
			}
			for _, n := range s.Nodes {
				if n.Keyed != nil && n.Keyed.Base() != nil {
					h.st.Bases++
				}
			}
			me.Wake()
		}
		opts.OnFailure = func() { job.Cancel(errCrash) } // the others must not wait for it
		job.wire.connect(&opts, w)
		j, err := engine.NewJob(context.Background(), &h.g.Graph, opts)
		if err != nil {
			return false, err
		}
		job.jobs = append(job.jobs, j)
	}
	job.Start()
	// Most turns leave the clock alone, so that barriers and crashes fall into the midst of work.
	wait := func() {
		if h.r.IntN(8) == 0 {
			me.Park(sched.Now() + 1)
		} else {
			me.Park(sched.Now())
		}
	}
	coordinator := func() {
		for {
			for range h.r.IntN(60) {
				wait()
			}
			last := ended == job.Subtasks()
			if !last && h.crash > 0 && h.crashes < 20 && h.r.IntN([]int{1, 40, 6}[h.crash]) == 0 {
				h.crashes++
				h.st.Crashes++
				job.Cancel(errCrash)
				return
			}
			h.nextID++
			parts = nil
			job.Trigger(h.nextID, h.mode == 1 || h.mode == 3 && h.r.IntN(2) == 0)
			patience := 1 << 30
			if !last && h.r.IntN(5) == 0 {
				patience = h.r.IntN(40) // give up and start the next
			}
			for len(parts) < job.Subtasks() && failed == nil && patience > 0 {
				if h.crash == 2 && h.crashes < 20 && h.r.IntN(300) == 0 {
					h.crashes++
					h.st.Crashes++
					job.Cancel(errCrash)
					return
				}
				patience--
				wait()
			}
			if failed != nil {
				job.Cancel(failed)
				return
			}
			if len(parts) < job.Subtasks() {
				h.st.Aborted++
				continue
			}
			c, err := checkpoint.Assemble(h.last, parts)
			if err != nil {
				job.Cancel(err)
				return
			}
			h.last = c
			h.st.Checkpoints++
			for _, n := range h.g.Sinks {
				for _, pre := range c.Prepared(n.Name) {
					enginetest.Must(n.Sink.Commit(context.Background(), pre.Checkpoint, pre.Committables))
				}
			}
			if h.r.IntN(4) > 0 { // else the news is late
				for _, k := range job.keepers {
					k.Completed(c.ID)
				}
			}
			h.store.Retain(c)
			if last {
				done = true
				job.Stop()
				return
			}
		}
	}
	sched.Go("coordinator", me, coordinator)
	err = sched.Run()
	h.st.Steps += sched.Steps()
	h.st.Crossed += job.wire.batches
	if err != nil {
		return false, fmt.Errorf("checkpoint %d, mode %d: %w\n%s", h.nextID, h.mode, err, job.Describe())
	}
	return done, job.Wait()
}
