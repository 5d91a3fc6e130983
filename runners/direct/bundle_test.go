package direct_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// kept is an element that waits for the end of its bundle.
type kept struct {
	kv sdk.KV[string, int64]
	at time.Time
	in window.Window
}

// keepsBack keeps elements back until the end of their bundle.
type keepsBack struct{ kept []kept }

func (k *keepsBack) ProcessElement(c *sdk.ProcessContext, kv sdk.KV[string, int64], _ *sdk.Emitter[sdk.KV[string, int64]]) error {
	k.kept = append(k.kept, kept{kv, c.Timestamp(), c.Window()})
	return nil
}

func (k *keepsBack) FinishBundle(_ context.Context, emit *sdk.Emitter[sdk.KV[string, int64]]) error {
	for _, e := range k.kept {
		emit.EmitIn(e.in, e.at, e.kv)
	}
	k.kept = k.kept[:0]
	return nil
}

// keepsTimers does so with what its timers emit.
type keepsTimers struct {
	keepsBack
	event, clock sdk.TimerFamily
}

func (k *keepsTimers) Declare(d *sdk.KeyedDecl) {
	emit := func(c *sdk.ProcessContext, key, _ string, _ *sdk.Emitter[sdk.KV[string, int64]]) error {
		k.kept = append(k.kept, kept{sdk.Pair(key, int64(1)), c.Timestamp(), c.Window()})
		return nil
	}
	k.event, k.clock = sdk.EventTimerFamily(d, "event", emit), sdk.ProcessingTimerFamily(d, "clock", emit)
}

func (k *keepsTimers) ProcessElement(c *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[sdk.KV[string, int64]]) error {
	tag := c.Timestamp().String()
	k.event.SetIn(tag, time.Duration(v)*time.Millisecond)
	k.clock.SetIn(tag, time.Duration(v)*time.Millisecond)
	return nil
}

// What is kept back until the end of the bundle stays in its window and is not late, whatever a bundle is.
func TestFinishBundleKeepsTimesAndWindows(t *testing.T) {
	for name, c := range map[string]struct {
		step func(sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]]
		want []string
	}{
		"elements": {func(in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]] {
			return sdk.ParDo("keep", in, &keepsBack{})
		}, []string{"a 1 [10,20)", "a 3 [0,10)", "b 1 [30,40)", "b 2 [10,20)"}},
		"timers": {func(in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]] {
			return sdk.ParDoPerKey("keep", in, &keepsTimers{})
		}, []string{"a 2 [10,20)", "a 6 [0,10)", "b 2 [30,40)", "b 4 [10,20)"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]ptest.Option{{ptest.Parallelism(1)}, {ptest.Parallelism(2)}} {
				for _, batch := range []int{1, 2, 100} {
					got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
						in := memio.Read("in", p, []int64{12, 3, 15, 1, 16, 2, 30}, sdk.EventTime(time.UnixMilli, watermark.Bounded(14*time.Millisecond)), memio.Batch(batch))
						pairs := sdk.KeyBy("key", in, func(v int64) string { return map[bool]string{true: "a", false: "b"}[v < 4 || v == 15] })
						w := sdk.WindowInto("10 ms", sdk.MapValues("one", pairs, func(int64) int64 { return 1 }), window.Fixed(10*time.Millisecond))
						sums := sdk.CombinePerKey("sum", c.step(w), stats.Sum[int64]{})
						return sdk.ParDoFunc("text", sums, func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[string]) error {
							emit.Emit(fmt.Sprintf("%s %d [%d,%d)", kv.Key, kv.Value, c.Window().StartTime(), c.Window().EndTime()))
							return nil
						})
					}, opts...)
					if d := cmp.Diff(c.want, got); d != "" {
						t.Errorf("%d records a batch: -want +got:\n%s", batch, d)
					}
				}
			}
		})
	}
}

// sums can take back what came.
type sums struct{ stats.Sum[int64] }

func (sums) RemoveInput(s, v int64) int64 { return s - v }

func TestFinishBundleIsRefusedBehindRetractions(t *testing.T) {
	_, err := direct.Run(t.Context(), "retractions", func(p *sdk.Pipeline) error {
		in := sdk.WindowInto("w", sdk.Create("in", p, sdk.Pair("a", int64(1))), window.Global(), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
		sdk.ParDo("keep", sdk.CombinePerKey("sum", in, sums{}), &keepsBack{})
		return nil
	}, direct.Options{})
	if err == nil || !strings.Contains(err.Error(), `step "keep"`) || !strings.Contains(err.Error(), "FinishBundle") || !strings.Contains(err.Error(), "Changes") {
		t.Errorf("error %v", err)
	}
}
