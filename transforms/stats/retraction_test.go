package stats_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// remover is a CombineFn that understands retractions.
type remover[In, Acc, Out any] interface {
	sdk.CombineFn[In, Acc, Out]
	sdk.Remover[In, Acc]
}

// removes adds values to several accumulators, takes some back from any of them, and merges: the result is that of the values
// that are left, computed anew.
func removes[In, Acc, Out any](rnd *rand.Rand, fn remover[In, Acc, Out], value func() In) error {
	parts := make([]Acc, 1+rnd.IntN(3))
	for i := range parts {
		parts[i] = fn.CreateAccumulator()
	}
	part := func() *Acc { return &parts[rnd.IntN(len(parts))] }
	var left []In
	for range rnd.IntN(30) {
		if len(left) > 0 && rnd.IntN(5) < 2 {
			i, a := rnd.IntN(len(left)), part()
			*a = fn.RemoveInput(*a, left[i])
			left = slices.Delete(left, i, i+1)
			continue
		}
		v, a := value(), part()
		*a = fn.AddInput(*a, v)
		left = append(left, v)
	}
	got, anew := fn.CreateAccumulator(), fn.CreateAccumulator()
	for _, a := range parts {
		got = fn.MergeAccumulators(got, a)
	}
	for _, v := range left {
		anew = fn.AddInput(anew, v)
	}
	if g, w := fmt.Sprint(fn.ExtractOutput(got)), fmt.Sprint(fn.ExtractOutput(anew)); g != w {
		return fmt.Errorf("%T of %v, after others were taken back: %s, want %s", fn, left, g, w)
	}
	return nil
}

func TestWhatIsTakenBackDoesNotCount(t *testing.T) {
	seeds.Each(t, 200, func(seed uint64) error {
		rnd := rand.New(rand.NewPCG(seed, 0))
		small := func() int64 { return rnd.Int64N(1<<40) - 1<<39 }
		return cmp.Or(
			removes(rnd, stats.CountFn[int64]{}, small),
			removes(rnd, stats.Sum[int64]{}, rnd.Int64), // overflows
			removes(rnd, stats.Sum[uint8]{}, func() uint8 { return uint8(rnd.Int()) }),
			removes(rnd, stats.Sum[float64]{}, func() float64 { return float64(small()) }),
			removes(rnd, stats.Mean[int64]{}, small),
		)
	})
}

// What the documentation says of floats.
func TestFloatsKeepWhatRoundingLeft(t *testing.T) {
	var s stats.Sum[float64]
	check(t, "1e16 + 1 - 1e16", s.RemoveInput(s.AddInput(s.AddInput(0, 1e16), 1), 1e16), 0)
	check(t, "+Inf + 1 - +Inf", s.RemoveInput(s.AddInput(s.AddInput(0, math.Inf(1)), 1), math.Inf(1)), math.NaN())
}

// Words are counted, and said again whenever one comes: the number of words that occur so often, and all of them, follow.
func TestResultsBehindRetractionsAreThoseOfWhatStands(t *testing.T) {
	at := time.UnixMilli(1)
	words := teststream.Script[string]{}.At(at, "to").At(at, "be").At(at, "or").At(at, "to").At(at, "be").At(at, "to").Watermark(time.UnixMilli(100))
	counts := func(p *sdk.Pipeline) sdk.PCollection[int64] {
		w := sdk.WindowInto("w", teststream.Read("words", p, words), window.Fixed(10*time.Millisecond),
			sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
		return sdk.Map("n", stats.Count("count", w), func(kv sdk.KV[string, int64]) int64 { return kv.Value })
	}
	for name, c := range map[string]struct {
		last func(sdk.PCollection[int64]) sdk.PCollection[string]
		want map[string]int
	}{
		"how often each count": {func(ns sdk.PCollection[int64]) sdk.PCollection[string] {
			return text(stats.Count("of counts", ns))
		}, map[string]int{"{3 1}": 1, "{2 1}": 1, "{1 1}": 1}},
		"sum": {func(ns sdk.PCollection[int64]) sdk.PCollection[string] {
			return text(sdk.CombineGlobally("sum", ns, stats.Sum[int64]{}))
		}, map[string]int{"6": 1}},
		"mean": {func(ns sdk.PCollection[int64]) sdk.PCollection[string] {
			return text(sdk.CombineGlobally("mean", ns, stats.Mean[int64]{}))
		}, map[string]int{"2": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			stands := map[string]int{}
			for _, c := range ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[string]] {
				return sdk.Changes("changes", c.last(counts(p)))
			}) {
				if c.Retraction {
					stands[c.Value]--
				} else {
					stands[c.Value]++
				}
			}
			for v, n := range stands {
				if n == 0 {
					delete(stands, v)
				}
			}
			if d := gocmp.Diff(c.want, stands); d != "" {
				t.Errorf("what stands (-want +got):\n%s", d)
			}
		})
	}
}

func text[T any](in sdk.PCollection[T]) sdk.PCollection[string] {
	return sdk.Map("text", in, func(v T) string { return fmt.Sprint(v) })
}
