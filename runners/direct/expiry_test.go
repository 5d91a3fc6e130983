package direct_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// untilExpiry sums up, and says so when the window expires.
type untilExpiry struct{ sum state.Value[int64] }

func (u *untilExpiry) Declare(d *sdk.KeyedDecl) {
	u.sum = state.NewValue[int64](d, "sum")
	sdk.OnWindowExpiry(d, func(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[sdk.KV[string, int64]]) error {
		emit.Emit(sdk.Pair(key, u.sum.Get()))
		return nil
	})
}

func (u *untilExpiry) ProcessElement(_ *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[sdk.KV[string, int64]]) error {
	u.sum.Set(u.sum.Get() + v)
	return nil
}

// What a step keeps until its window expires belongs to the window, also if lateness has taken the watermark to others, and is not
// dropped behind it.
func TestWhatExpiryEmitsIsInItsWindow(t *testing.T) {
	windows := func(name string, in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]] {
		return sdk.WindowInto(name, in, window.Fixed(10*time.Millisecond), sdk.AllowedLateness(15*time.Millisecond))
	}
	for _, steps := range [][]int64{{40}, {10, 11, 24, 25, 40}} {
		script := teststream.Script[sdk.KV[string, int64]]{}.At(atMs(1), sdk.Pair("a", int64(1))).At(atMs(12), sdk.Pair("a", int64(2)))
		for _, w := range steps {
			script = script.Watermark(atMs(w))
		}
		for name, between := range map[string]func(sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]]{
			"as they are": func(in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]] { return in },
			"again": func(in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, int64]] {
				return windows("again", in)
			},
		} {
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
				kept := sdk.ParDoPerKey("keep", windows("w", teststream.Read("in", p, script)), &untilExpiry{})
				var late sdk.PCollection[sdk.KV[string, int64]]
				sums := sdk.CombinePerKey("sum", between(kept), stats.Sum[int64]{}, sdk.LateTo(&late))
				text := func(name string, in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[string] {
					return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[string]) error {
						emit.Emit(fmt.Sprintf("%s %d in [%d,%d) @%d", name, kv.Value, c.Window().StartTime(), c.Window().EndTime(), c.Timestamp().UnixMilli()))
						return nil
					})
				}
				return sdk.Flatten("all", text("sum of", sums), text("late", late))
			})
			if d := cmp.Diff([]string{"sum of 1 in [0,10) @9", "sum of 2 in [10,20) @19"}, got); d != "" {
				t.Errorf("windows %s, watermarks %v: -want +got:\n%s", name, steps, d)
			}
		}
	}
}
