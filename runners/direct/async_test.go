package direct_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

func atMs(t int64) time.Time { return time.UnixMilli(t).UTC() }

func upTo(n int64) (vs []int64) {
	for i := range n {
		vs = append(vs, i)
	}
	return vs
}

// slowly is v after a time that depends on it, of the virtual clock.
func slowly(ctx context.Context, v int64) (int64, error) {
	return v, ptest.Sleep(ctx, time.Duration(v*7919%41)*time.Millisecond)
}

// Wherever the job crashes, and whatever was in flight: each result once.
func TestMapAsyncIsExactlyOnce(t *testing.T) {
	for _, opts := range [][]sdk.StepOption{
		{sdk.Concurrency(3)},
		{sdk.Concurrency(4), sdk.Ordered()},
		{sdk.Concurrency(1)},
		{sdk.Concurrency(5), sdk.Timeout(30 * time.Millisecond), sdk.Retry(50, 2*time.Millisecond)},
	} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			var tries sync.Map
			f := func(ctx context.Context, v int64) (int64, error) {
				if _, again := tries.LoadOrStore(v, true); again {
					return v, ptest.Sleep(ctx, time.Millisecond)
				}
				return slowly(ctx, v)
			}
			in := sdk.Read("in", p, memio.Source(upTo(40), memio.Splits(3)))
			return sdk.Reshuffle("after", sdk.MapAsync("call", in, f, opts...))
		}, ptest.Crash(), ptest.Runs(15))
		if d := cmp.Diff(upTo(40), got); d != "" {
			t.Error(d)
		}
	}
}

// The watermark follows each element at once, and the calls take several watermarks: none must be late behind them. Aggregations
// in the same chain, before and behind, fire while calls are in flight and the step is full.
func TestWatermarkWaitsForCallsInFlight(t *testing.T) {
	script := teststream.Script[int64]{}
	for i := range int64(30) {
		script = script.At(atMs(i), i, i+100).Watermark(atMs(i))
	}
	count := func(name string, in sdk.PCollection[int64], opts ...sdk.WindowOption) sdk.PCollection[sdk.KV[int64, int64]] {
		w := sdk.WindowInto(name+" window", in, window.Fixed(10*time.Millisecond), opts...)
		keyed := sdk.KeyBy(name+" key", w, func(v int64) int64 { return v % 3 })
		return sdk.CombinePerKey(name, keyed, stats.CountFn[int64]{})
	}
	for _, parallelism := range []int{1, 2} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			in := teststream.Read("script", p, script)
			a := sdk.MapAsync("first", in, slowly, sdk.Concurrency(3))
			counts := count("count", a, sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(2))), sdk.Accumulating)
			b := sdk.MapAsync("second", counts, func(ctx context.Context, kv sdk.KV[int64, int64]) (sdk.KV[int64, int64], error) {
				_, err := slowly(ctx, kv.Key*5+kv.Value)
				return kv, err
			}, sdk.Concurrency(2), sdk.Ordered())
			// Each window has 20 elements. A key's last pane, early or on time, has all of its own.
			passert.That("late", b).Late().Empty()
			for i := range int64(3) {
				passert.That(fmt.Sprintf("window %d", i), b).InWindow(window.Between(atMs(i*10), atMs(i*10+10))).Satisfies(func(got []sdk.KV[int64, int64]) error {
					most := map[int64]int64{}
					for _, kv := range got {
						most[kv.Key] = max(most[kv.Key], kv.Value)
					}
					if n := most[0] + most[1] + most[2]; n != 20 {
						return fmt.Errorf("%v: %d elements were on time, want 20", got, n)
					}
					return nil
				})
			}
			return nil
		}, ptest.Crash(), ptest.Runs(20), ptest.Parallelism(parallelism))
	}
}

func TestMapAsyncOrder(t *testing.T) {
	for _, c := range []struct {
		opts []sdk.StepOption
		want []int64
	}{
		{[]sdk.StepOption{sdk.Ordered()}, []int64{50, 10, 30, 20, 40}},
		{nil, []int64{10, 20, 30, 40, 50}},
		{[]sdk.StepOption{sdk.Concurrency(2)}, []int64{10, 30, 50, 20, 40}}, // 30 begins at 10, 20 at 40, 40 at 50
	} {
		var order []int64
		ptest.Run(t, func(p *sdk.Pipeline) error {
			order = nil
			out := sdk.MapAsync("call", sdk.Create[int64]("in", p, 50, 10, 30, 20, 40), func(ctx context.Context, v int64) (int64, error) {
				return v, ptest.Sleep(ctx, time.Duration(v)*time.Millisecond)
			}, c.opts...)
			sdk.Map("note", out, func(v int64) int64 { order = append(order, v); return v })
			return nil
		}, ptest.RestoreEvery(0), ptest.Parallelism(1), ptest.SimulatedOnly())
		if d := cmp.Diff(c.want, order); d != "" {
			t.Error(d)
		}
	}
}

func TestMapAsyncTimesOutAndTriesAgain(t *testing.T) {
	var mu sync.Mutex
	calls := map[int64]int{}
	build := func(p *sdk.Pipeline) sdk.PCollection[string] {
		clear(calls)
		f := func(ctx context.Context, v int64) (string, error) {
			mu.Lock()
			calls[v]++
			n := calls[v]
			mu.Unlock()
			switch {
			case v == 1: // never answers in time
				return "", ptest.Sleep(ctx, time.Hour)
			case v == 2 && n < 3:
				return "", fmt.Errorf("failure %d", n)
			case v == 3:
				return "", errors.New("always")
			}
			return fmt.Sprintf("%d is fine", v), ptest.Sleep(ctx, time.Second)
		}
		var failed sdk.PCollection[sdk.Failed[int64]]
		out := sdk.MapAsync("call", sdk.Create[int64]("in", p, 1, 2, 3, 4), f,
			sdk.Timeout(2*time.Second), sdk.Retry(3, 100*time.Millisecond), sdk.ErrorsTo(&failed))
		bad := sdk.Map("bad", failed, func(f sdk.Failed[int64]) string {
			return fmt.Sprintf("%d failed: %s", f.Value, strings.ReplaceAll(f.Err, "\n", "; "))
		})
		return sdk.Flatten("all", out, bad)
	}
	got := ptest.Collect(t, build, ptest.RestoreEvery(0))
	want := []string{
		"1 failed: no answer within 2s: context deadline exceeded; context canceled",
		"2 is fine", "3 failed: always", "4 is fine",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[int64]int{1: 4, 2: 3, 3: 4, 4: 1}, calls); d != "" { // of the last run
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// A checkpoint takes what is in flight instead of waiting for it.
func TestBarriersDoNotWaitForCalls(t *testing.T) {
	r := ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.Read("in", p, memio.Source(upTo(20)))
		out := sdk.MapAsync("call", in, func(ctx context.Context, v int64) (int64, error) {
			return v, ptest.Sleep(ctx, 10*time.Second)
		}, sdk.Concurrency(2))
		passert.Equals("all", out, upTo(20)...)
		return nil
	}, ptest.RestoreEvery(0), ptest.Parallelism(1), ptest.Direct(func(o *direct.Options) { o.CheckpointInterval = time.Second }))
	if r.Checkpoints < 90 { // 20 calls of 10 s, two at once
		t.Errorf("%d checkpoints in 100 s", r.Checkpoints)
	}
}

// A full step takes no more elements.
func TestMapAsyncIsBounded(t *testing.T) {
	var read, answered, active atomic.Int64
	ptest.Run(t, func(p *sdk.Pipeline) error {
		read.Store(0)
		answered.Store(0)
		in := sdk.Read("in", p, memio.Source(upTo(200)))
		in = sdk.Map("read", in, func(v int64) int64 { read.Add(1); return v })
		sdk.MapAsync("call", in, func(ctx context.Context, v int64) (int64, error) {
			if n := active.Add(1); n > 3 {
				return 0, fmt.Errorf("%d calls at once", n)
			}
			defer active.Add(-1)
			if ahead := read.Load() - answered.Load(); ahead > 3+1+1 {
				return 0, fmt.Errorf("%d elements were read that are not answered", ahead)
			}
			err := ptest.Sleep(ctx, time.Millisecond)
			answered.Add(1)
			return v, err
		}, sdk.Concurrency(3))
		return nil
	}, ptest.RestoreEvery(0), ptest.Parallelism(1))
}

// Calls end with their job: when it is stopped, and when another step fails.
func TestCallsEndWithTheJob(t *testing.T) {
	var active atomic.Int64
	hang := func(ctx context.Context, v int64) (int64, error) {
		active.Add(1)
		defer active.Add(-1)
		<-ctx.Done()
		return 0, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := direct.Run(ctx, "stopped", func(p *sdk.Pipeline) error {
		sdk.MapAsync("hang", sdk.Create("in", p, upTo(100)...), func(ctx context.Context, v int64) (int64, error) {
			cancel()
			return hang(ctx, v)
		})
		return nil
	}, direct.Options{Parallelism: 2})
	if err != nil || !r.Stopped {
		t.Errorf("stopped: %+v, %v", r, err)
	}
	if n := active.Load(); n != 0 {
		t.Errorf("%d calls outlive the job that was stopped", n)
	}
	_, err = direct.Run(t.Context(), "failed", func(p *sdk.Pipeline) error {
		in := sdk.Create("in", p, upTo(100)...)
		sdk.MapAsync("hang", in, hang)
		sdk.MapErr("fail", in, func(int64) (int64, error) { return 0, errors.New("broken") })
		return nil
	}, direct.Options{Parallelism: 2})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("failed: %v", err)
	}
	if n := active.Load(); n != 0 {
		t.Errorf("%d calls outlive the job that failed", n)
	}
}

func TestMapAsyncFailuresNameStepAndElement(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(context.Context, int64) (int64, error)
		want []string
	}{
		"error": {func(context.Context, int64) (int64, error) { return 0, errors.New("no way") }, []string{`step "call"`, "element 7", "no way"}},
		"panic": {func(context.Context, int64) (int64, error) { panic("ouch") }, []string{`step "call"`, "element 7", "panic: ouch", "async_test.go"}},
	} {
		var failed sdk.PCollection[sdk.Failed[int64]]
		opts := []sdk.StepOption{sdk.Retry(1, time.Millisecond)}
		if name == "panic" {
			opts = append(opts, sdk.ErrorsTo(&failed)) // which a panic does not go to
		}
		_, err := direct.Run(t.Context(), name, func(p *sdk.Pipeline) error {
			sdk.MapAsync("call", sdk.Create[int64]("in", p, 7), c.f, opts...)
			return nil
		}, direct.Options{})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error lacks %q: %v", name, want, err)
			}
		}
	}
}
