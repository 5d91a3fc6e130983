package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/enginetest"
	"github.com/millstream/millstream/testing/sim"
)

// twoElements is a source of one at 2 ms and one at 50 ms. Then it ends, or nothing comes any more.
type twoElements struct{ ends bool }

type twoSplit struct{ Read bool }

func (twoElements) Splits(context.Context) ([]twoSplit, error) { return []twoSplit{{}}, nil }
func (twoElements) SplitID(twoSplit) string                    { return "only" }
func (s twoElements) Open(context.Context, connector.Subtask) (connector.Reader[enginetest.KV, twoSplit], error) {
	return &twoReader{ends: s.ends}, nil
}

type twoReader struct {
	ends bool
	todo []twoSplit
}

func (r *twoReader) Assign(s []twoSplit) error { r.todo = append(r.todo, s...); return nil }
func (r *twoReader) Close() error              { return nil }
func (r *twoReader) Read(context.Context, int) (b connector.Batch[enginetest.KV, twoSplit], _ error) {
	switch {
	case len(r.todo) == 0:
		b.Status = connector.End
	case !r.todo[0].Read:
		r.todo[0].Read = true
		b.Records = []enginetest.KV{{Key: 1, Value: 2}, {Key: 2, Value: 50}}
		b.Split, b.Done = r.todo[0], r.ends
		if r.ends {
			r.todo = nil
		}
	default:
		b.Status = connector.Idle
	}
	return b, nil
}

// A step keeps its elements until 500 ms of the clock have gone by, and holds the watermark back for so long. A window behind it
// must not end before, whatever becomes of the input meanwhile, and then must, also in a job that was restored in between. When
// the input ends nothing waits for the clock.
func TestHeldWatermarkIsReleasedByTheClock(t *testing.T) {
	for _, ends := range []bool{false, true} {
		for _, goesIdle := range []bool{false, true} {
			for _, overtake := range []bool{false, true} {
				for _, parallelism := range []int{1, 2} {
					name := fmt.Sprintf("ends=%v goesIdle=%v overtake=%v parallelism=%d", ends, goesIdle, overtake, parallelism)
					t.Run(name, func(t *testing.T) {
						for seed := range uint64(5) {
							held(t, seed, ends, goesIdle, overtake, parallelism)
						}
					})
				}
			}
		}
	}
}

func held(t *testing.T, seed uint64, ends, goesIdle, overtake bool, parallelism int) {
	t.Helper()
	g := &enginetest.Graph{}
	split, err := coder.Of[twoSplit]()
	enginetest.Must(err)
	var strategy watermark.Strategy = watermark.Bounded(0)
	if goesIdle {
		strategy = watermark.WithIdleness(strategy, 30*time.Millisecond)
	}
	spec := kernel.SourceSpec[enginetest.KV, twoSplit]{Source: twoElements{ends}, Split: split, Strategy: strategy,
		At: func(v enginetest.KV) time.Time { return eventtime.Time(v.Value).Time() }}
	src := g.Add(&kernel.Node{Kind: "source", New: func() kernel.Operator { return kernel.NewSource(spec) },
		Splits: spec.EncodeSplits, SetSplits: kernel.SetSplits[enginetest.KV, twoSplit]}, nil)
	delay := g.Add(&kernel.Node{Kind: "delay", Keyed: true, Inputs: []kernel.Edge{enginetest.Edge(src, kernel.ByKey)},
		New: func() kernel.Operator { return enginetest.Delay(500*time.Millisecond, true) }}, nil)
	sum := g.Add(&kernel.Node{Kind: "sum", Keyed: true, Inputs: []kernel.Edge{enginetest.Edge(addWindow(g, delay, 10), kernel.ByKey)},
		New: func() kernel.Operator {
			return kernel.NewAggregate(enginetest.SumSpec(false), func() []kernel.AggregateInput[int64, int64, int64] {
				return []kernel.AggregateInput[int64, int64, int64]{kernel.InputOf[int64, int64, int64, int64](0, add)}
			})
		}}, nil)
	out := addSink(g, sum, 0, func(r connector.Record[enginetest.KV]) string {
		return fmt.Sprintf("%d from %d: %d", r.Value.Key, r.Window.StartTime(), r.Value.Value)
	})
	want := []string{"1 from 0: 2"}
	if ends {
		want = append(want, "2 from 50: 50")
	}

	store := &checkpoint.MemoryStore{}
	var last *checkpoint.Checkpoint
	// run runs the job up to times of the clock, with a checkpoint at each, and says after it what was committed.
	run := func(times map[eventtime.Time][]string) {
		t.Helper()
		sched := sim.New(seed)
		me := sched.NewParker("coordinator")
		keeper := checkpoint.NewKeeper(store, last)
		var parts []checkpoint.Part
		opts := engine.Options{
			Scheduler: sched, Parallelism: parallelism, Room: 1, CacheBytes: 1 << 20, Checkpoints: true, Splits: enginetest.Splits,
			OpenBackend: func(ctx context.Context, n *kernel.Node, sub, par int) (statebackend.Backend, error) {
				return last.Open(ctx, store, memory.Driver{}, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)}, n.Name, sub)
			},
			OnEnd: func(string, int) {},
			OnSnapshot: func(s *engine.SubtaskSnapshot) {
				p, err := keeper.Persist(context.Background(), s)
				enginetest.Must(err)
				parts = append(parts, p)
				me.Wake()
			},
			OnFailure: func() {},
		}
		if from := last; from != nil {
			opts.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
				return from.Restore(context.Background(), store, stage, subtask)
			}
		}
		job, err := engine.NewJob(context.Background(), &g.Graph, opts)
		enginetest.Must(err)
		job.Start()
		sched.Go("coordinator", me, func() {
			defer job.Stop()
			for at := eventtime.Time(0); at <= 1000; at += 50 {
				lines, ok := times[at]
				if !ok {
					continue
				}
				for sched.Now() < at {
					me.Park(at)
				}
				id := int64(1)
				if last != nil {
					id = last.ID + 1
				}
				parts = nil
				job.Trigger(id, overtake)
				for len(parts) < job.Subtasks() {
					me.Park(eventtime.Max)
				}
				c, err := checkpoint.Assemble(last, parts)
				enginetest.Must(err)
				last = c
				for _, n := range g.Sinks {
					for _, pre := range c.Prepared(n.Name) {
						enginetest.Must(n.Sink.Commit(context.Background(), pre.Checkpoint, pre.Committables))
					}
				}
				keeper.Completed(c.ID)
				got := slices.Clone(out.lines)
				slices.Sort(got)
				if d := cmp.Diff(lines, got); d != "" {
					t.Errorf("seed %d: at %d (-want +committed):\n%s", seed, at, d)
				}
			}
		})
		if err := sched.Run(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, job.Describe())
		}
		if err := job.Wait(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	early := []string(nil)
	if ends {
		early = want // nothing waits for the clock at the end of the input
	}
	run(map[eventtime.Time][]string{100: early})
	run(map[eventtime.Time][]string{450: early, 550: want})
}
