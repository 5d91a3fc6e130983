package sdk_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// sumOf is a sum that can be undone.
type sumOf struct{}

func (sumOf) CreateAccumulator() int64           { return 0 }
func (sumOf) AddInput(a, v int64) int64          { return a + v }
func (sumOf) RemoveInput(a, v int64) int64       { return a - v }
func (sumOf) MergeAccumulators(a, b int64) int64 { return a + b }
func (sumOf) ExtractOutput(a int64) int64        { return a }

// retracting is the sums of a and b, said after each element and taken back before the next.
func retracting(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
	at := time.UnixMilli(1)
	in := teststream.Read("in", p, teststream.Script[sdk.KV[string, int64]]{}.
		At(at, sdk.Pair("a", int64(1))).At(at, sdk.Pair("b", int64(10))).At(at, sdk.Pair("a", int64(2))).Watermark(time.UnixMilli(100)))
	w := sdk.WindowInto("w", in, window.Fixed(10*time.Millisecond), sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
	return sdk.CombinePerKey("sums", w, sumOf{})
}

func TestRetractionsAreSeenAsChanges(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return sdk.Map("text", sdk.Changes("changes", retracting(p)), func(c sdk.Change[sdk.KV[string, int64]]) string {
			return fmt.Sprint(c.Value.Key, c.Value.Value, c.Retraction)
		})
	})
	slices.Sort(got)
	if d := cmp.Diff([]string{"a1 false", "a1 true", "a3 false", "b10 false"}, got); d != "" {
		t.Error(d)
	}
}

// What is grouped downstream by another key loses what was taken back: in the end each sum is where it belongs.
func TestAggregationsUnderstandRetractions(t *testing.T) {
	for name, last := range map[string]func(sdk.PCollection[sdk.KV[bool, int64]]) sdk.PCollection[sdk.KV[bool, []int64]]{
		"group": func(in sdk.PCollection[sdk.KV[bool, int64]]) sdk.PCollection[sdk.KV[bool, []int64]] {
			return sdk.MapValues("list", sdk.GroupByKey("by parity", in), func(vs sdk.Iterable[int64]) []int64 { return slices.Sorted(vs.All()) })
		},
		"combine": func(in sdk.PCollection[sdk.KV[bool, int64]]) sdk.PCollection[sdk.KV[bool, []int64]] {
			return sdk.MapValues("one", sdk.CombinePerKey("by parity", in, sumOf{}), func(v int64) []int64 { return []int64{v} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[sdk.KV[bool, []int64]]] {
				even := sdk.Map("parity", retracting(p), func(kv sdk.KV[string, int64]) sdk.KV[bool, int64] { return sdk.Pair(kv.Value%2 == 0, kv.Value) })
				return sdk.Changes("changes", last(even))
			})
			stands := map[string]int{}
			for _, c := range got {
				n := 1
				if c.Retraction {
					n = -1
				}
				stands[fmt.Sprint(c.Value)] += n
			}
			for k, n := range stands {
				if n == 0 {
					delete(stands, k)
				}
			}
			if d := cmp.Diff(map[string]int{"{true [10]}": 1, "{false [3]}": 1}, stands); d != "" {
				t.Error(d)
			}
		})
	}
}

// What is taken back as a whole leaves an empty pane, so that whoever goes by the newest pane forgets it.
func TestAWindowOfWhichAllWasTakenBackIsEmpty(t *testing.T) {
	panes := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[int64, int64]] {
		again := sdk.WindowInto("again", retracting(p), window.Fixed(10*time.Millisecond),
			sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.Accumulating)
		return sdk.CombinePerKey("by sum", sdk.Map("key", again, func(kv sdk.KV[string, int64]) sdk.KV[int64, int64] { return sdk.Pair(kv.Value, kv.Value) }), sumOf{})
	}, ptest.Parallelism(1))
	newest := map[int64]int64{}
	index := map[int64]int64{}
	for _, p := range panes {
		if i, seen := index[p.Value.Key]; !seen || p.Pane.Index > i {
			newest[p.Value.Key], index[p.Value.Key] = p.Value.Value, p.Pane.Index
		}
	}
	if d := cmp.Diff(map[int64]int64{1: 0, 3: 3, 10: 10}, newest); d != "" {
		t.Error(d)
	}
}
