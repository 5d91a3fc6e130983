package stats_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// combine applies fn to the values in every way that a runner may: at once, and split at each place with
// the parts merged in either order.
func combine[In, Acc, Out any](t *testing.T, fn sdk.CombineFn[In, Acc, Out], vs ...In) (out Out) {
	t.Helper()
	add := func(vs []In) Acc {
		a := fn.CreateAccumulator()
		for _, v := range vs {
			a = fn.AddInput(a, v)
		}
		return a
	}
	out = fn.ExtractOutput(add(vs))
	for i := range len(vs) + 1 {
		for k, o := range []Out{
			fn.ExtractOutput(fn.MergeAccumulators(add(vs[:i]), add(vs[i:]))),
			fn.ExtractOutput(fn.MergeAccumulators(add(vs[i:]), add(vs[:i]))),
		} {
			if fmt.Sprint(o) != fmt.Sprint(out) {
				t.Errorf("%T of %v, split at %d, order %d: %v, not %v", fn, vs, i, k, o, out)
			}
		}
	}
	return out
}

func check[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestOfSome(t *testing.T) {
	check(t, "sum", combine(t, stats.Sum[int64]{}, 3, -5, 9), 7)
	check(t, "sum of floats", combine(t, stats.Sum[float64]{}, 0.5, -5, 9), 4.5)
	check(t, "count", combine(t, stats.CountFn[string]{}, "a", "a", "b"), 3)
	check(t, "mean", combine(t, stats.Mean[int8]{}, 100, 100, 101), 301.0/3)
	check(t, "min", combine(t, stats.Min[int64]{}, 3, -5, 9), -5)
	check(t, "max", combine(t, stats.Max[int64]{}, -3, -5, -9), -3)
	check(t, "min of unsigned", combine(t, stats.Min[uint8]{}, 255, 200), 200)
	check(t, "min with NaN", combine(t, stats.Min[float64]{}, 1, math.NaN(), 2), math.NaN())
	check(t, "max with NaN", combine(t, stats.Max[float64]{}, 1, math.NaN(), 2), math.NaN())
}

// BEAM-3296: the least of nothing is the identity of min, not a made-up 0.
func TestOfNothing(t *testing.T) {
	check(t, "sum", combine(t, stats.Sum[int64]{}), 0)
	check(t, "count", combine(t, stats.CountFn[string]{}), 0)
	check(t, "mean", combine(t, stats.Mean[int64]{}), math.NaN())
	check(t, "min", combine(t, stats.Min[int64]{}), math.MaxInt64)
	check(t, "max", combine(t, stats.Max[int64]{}), math.MinInt64)
	check(t, "min int8", combine(t, stats.Min[int8]{}), math.MaxInt8)
	check(t, "max int8", combine(t, stats.Max[int8]{}), math.MinInt8)
	check(t, "min uint16", combine(t, stats.Min[uint16]{}), math.MaxUint16)
	check(t, "max uint16", combine(t, stats.Max[uint16]{}), 0)
	check(t, "min float32", combine(t, stats.Min[float32]{}), float32(math.Inf(1)))
	check(t, "max float64", combine(t, stats.Max[float64]{}), math.Inf(-1))
}

func TestCountCountsEachElement(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		passert.PerKey("counts", stats.Count("words", sdk.Create("in", p, "b", "a", "b", "")), map[string]int64{"a": 1, "b": 2, "": 1})
		return nil
	})
}
