package direct_test

import (
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// event is an element of a split; events of one split come in order.
type event struct {
	Name string
	At   int64
}

// countBySplits counts events per 10 ms, read from two splits with a watermark each, and asserts that none is late.
func countBySplits(p *sdk.Pipeline, first, second []event) sdk.PCollection[sdk.KV[bool, int64]] {
	in := sdk.Read("in", p, memio.Source(append(first[:len(first):len(first)], second...), memio.Splits(2)),
		sdk.EventTime(func(e event) time.Time { return atMs(e.At) }, watermark.Monotonic()))
	w := sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond))
	var late sdk.PCollection[sdk.KV[bool, event]]
	counts := sdk.CombinePerKey("count", sdk.KeyBy("one key", w, func(event) bool { return true }), stats.CountFn[event]{}, sdk.LateTo(&late))
	passert.Empty("late", late)
	return counts
}

func window10(at int64) window.Window { return window.Between(atMs(at), atMs(at+10)) }

func one(n int64) sdk.KV[bool, int64] { return sdk.Pair(true, n) }

// Field case G1 (FLINK-32828): after a restore, a split that has given nothing yet holds the watermark as before.
func TestRestoredSplitThatWasNotReadHoldsTheWatermark(t *testing.T) {
	for _, parallelism := range []int{1, 2, 3} {
		for _, opt := range []ptest.Option{ptest.RestoreEvery(1), ptest.Crash()} {
			ptest.Run(t, func(p *sdk.Pipeline) error {
				counts := countBySplits(p, []event{{"x", 200}, {"w", 300}}, []event{{"y", 60}, {"z", 70}})
				passert.That("y", counts).InWindow(window10(60)).OnTime().Equals(one(1))
				passert.That("z", counts).InWindow(window10(70)).OnTime().Equals(one(1))
				passert.That("x", counts).InWindow(window10(200)).OnTime().Equals(one(1))
				return nil
			}, ptest.Parallelism(parallelism), ptest.Runs(10), opt)
		}
	}
}

// Field case G3 (FLINK-8001): a subtask without splits neither holds the watermark nor lets it pass.
func TestSubtaskWithoutSplitsIsNotAtTheEndOfTime(t *testing.T) {
	for _, parallelism := range []int{2, 3, 5} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			counts := countBySplits(p, []event{{"a", 10}, {"c", 25}, {"f", 41}}, []event{{"b", 12}, {"d", 14}, {"e", 26}})
			passert.That("10", counts).InWindow(window10(10)).Equals(one(3))
			passert.That("20", counts).InWindow(window10(20)).Equals(one(2))
			return nil
		}, ptest.Parallelism(parallelism), ptest.Runs(20), ptest.Crash())
	}
}
