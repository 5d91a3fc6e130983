package fieldtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// threeThenFour has a pane of 3 of each of 400 keys, and when the watermark comes, all at once, its retraction and a pane of 4.
func threeThenFour(p *sdk.Pipeline) sdk.PCollection[int64] {
	var script teststream.Script[string]
	for range 4 {
		for k := range 400 {
			script = script.At(time.UnixMilli(5), fmt.Sprint(k))
		}
	}
	in := sdk.WindowInto("ten", teststream.Read("in", p, script.Watermark(time.UnixMilli(10))), window.Fixed(10*ms), sdk.AccumulatingAndRetracting,
		sdk.AllowedLateness(time.Second), sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(3)).Late(trigger.AfterCount(1))))
	return sdk.Map("value", stats.Count("count", in), func(kv sdk.KV[string, int64]) int64 { return kv.Value })
}

// neverFalls asserts that no pane of a total is less than the one before.
func neverFalls(in sdk.PCollection[int64], fn window.Fn) {
	again := sdk.WindowInto("again", in, fn, sdk.Accumulating, sdk.AllowedLateness(time.Second),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1)).Late(trigger.AfterCount(1))))
	total := sdk.CombineGlobally("total", again, stats.Sum[int64]{})
	said := sdk.ParDoFunc("say", total, func(c *sdk.ProcessContext, n int64, emit *sdk.Emitter[[3]int64]) error {
		emit.Emit([3]int64{c.Window().Start().UnixMilli(), c.Pane().Index, n})
		return nil
	})
	passert.That("totals", said).Satisfies(func(got [][3]int64) error {
		for i := 1; i < len(got); i++ {
			if was, is := got[i-1], got[i]; is[0] == was[0] && is[2] < was[2] {
				return fmt.Errorf("the total of the window from %d ms falls from %d to %d in pane %d", is[0], was[2], is[2], is[1])
			}
		}
		return nil
	})
}

// What is taken back and what takes its place are several elements each: copies in three sliding windows.
func TestTotalsNeverFallBehindSlidingWindows(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			neverFalls(threeThenFour(p), window.Sliding(30*ms, 10*ms))
			return nil
		}, ptest.Parallelism(parallelism), ptest.RestoreEvery(0), ptest.Runs(1))
	}
}

// The same, made by FlatMap.
func TestTotalsNeverFallBehindFlatMap(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			ones := sdk.FlatMap("ones", threeThenFour(p), func(n int64, emit *sdk.Emitter[int64]) error {
				for range n {
					emit.Emit(1)
				}
				return nil
			})
			neverFalls(ones, window.Fixed(10*ms))
			return nil
		}, ptest.Parallelism(parallelism), ptest.RestoreEvery(0), ptest.Runs(1))
	}
}
