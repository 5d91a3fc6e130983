package direct_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/sim"
)

// exits is code that ends its goroutine in one place.
type exits struct{ in string }

func (f exits) call(place string) {
	if f.in == place {
		runtime.Goexit() // as t.Fatal does
	}
}

// exiting is the code of many steps.
type exiting struct{ exits }

func (f exits) at(v int64) time.Time { f.call("read"); return atMs(v) }

func (f *exiting) Assign(dst []window.Window, t time.Time) []window.Window {
	f.call("windows")
	return append(dst, window.Between(t, t.Add(time.Second)))
}

func (f *exiting) Setup(context.Context, sdk.Subtask) error { f.call("setup"); return nil }
func (f *exiting) Teardown() error                          { f.call("teardown"); return nil }
func (f *exiting) FinishBundle(context.Context, *sdk.Emitter[sdk.KV[string, int64]]) error {
	f.call("bundle")
	return nil
}

func (f *exiting) ProcessElement(_ *sdk.ProcessContext, v int64, emit *sdk.Emitter[sdk.KV[string, int64]]) error {
	f.call("process")
	emit.Emit(sdk.Pair("k", v))
	return nil
}

func (f *exiting) CreateAccumulator() int64           { return 0 }
func (f *exiting) AddInput(a, v int64) int64          { f.call("sum"); return a + v }
func (f *exiting) MergeAccumulators(a, b int64) int64 { return a + b }
func (f *exiting) ExtractOutput(a int64) int64        { return a }

type exitingKeyed struct {
	exits
	timer sdk.Timer
}

func (f *exitingKeyed) Declare(d *sdk.KeyedDecl) {
	f.timer = sdk.EventTimer(d, "t", func(*sdk.ProcessContext, string, *sdk.Emitter[int64]) error { f.call("timer"); return nil })
}

func (f *exitingKeyed) ProcessElement(c *sdk.ProcessContext, _ string, _ int64, _ *sdk.Emitter[int64]) error {
	f.timer.Set(c.Timestamp())
	return nil
}

// Code that ends its goroutine, as a t.Fatal in it does, fails the job with the step's name, under every scheduler: the job does
// not wait for it for ever.
func TestCodeThatEndsItsGoroutineFailsTheJob(t *testing.T) {
	for place, step := range map[string]string{
		"read": "in", "setup": "do", "process": "do", "bundle": "do", "teardown": "do", "sum": "sum", "call": "call", "windows": "own", "timer": "keyed",
	} {
		t.Run(place, func(t *testing.T) {
			build := func(p *sdk.Pipeline) error {
				f := exiting{exits{place}}
				in := memio.Read("in", p, []int64{1, 2, 3}, sdk.EventTime(f.at, watermark.Monotonic()))
				called := sdk.MapAsync("call", in, func(_ context.Context, v int64) (int64, error) { f.call("call"); return v, nil })
				pairs := sdk.WindowInto("own", sdk.ParDo("do", called, &f), window.Custom("own", "", &f))
				sdk.CombinePerKey("sum", pairs, &f)
				sdk.ParDoPerKey("keyed", pairs, &exitingKeyed{exits: f.exits})
				return nil
			}
			for name, s := range map[string]direct.Options{
				"goroutines": {Parallelism: 2}, "simulated": {Parallelism: 2, Scheduler: sim.New(1)}, "parallel": {Parallelism: 2, Scheduler: sim.NewParallel()},
			} {
				_, err := direct.Run(context.Background(), "exits", build, s)
				if !errors.Is(err, kernel.ErrExited) || !strings.Contains(err.Error(), `step "`+step+`": `) || !strings.Contains(err.Error(), "t.Fatal") {
					t.Errorf("%s: error %v, want that step %q has ended its goroutine", name, err, step)
				}
			}
		})
	}
}
