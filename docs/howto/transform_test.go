package howto_test

import (
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// Distinct keeps one of the elements of each window that are equal.
func Distinct[T comparable](name string, in sdk.PCollection[T]) (out sdk.PCollection[T]) {
	in.Pipeline().Scope(name, func() {
		counts := stats.Count("count", in)
		out = sdk.Map("element", counts, func(kv sdk.KV[T, int64]) T { return kv.Key })
	})
	return out
}

// Spread is the CombineFn of the difference between the greatest and the least value. That of nothing is 0.
type Spread struct{}

// SpreadAcc is what it keeps. Its fields are exported, so that checkpoints can encode it.
type SpreadAcc struct {
	Some        bool
	Least, Most int64
}

func (Spread) CreateAccumulator() SpreadAcc { return SpreadAcc{} }
func (s Spread) AddInput(a SpreadAcc, v int64) SpreadAcc {
	return s.MergeAccumulators(a, SpreadAcc{true, v, v})
}
func (Spread) MergeAccumulators(a, b SpreadAcc) SpreadAcc {
	switch {
	case !a.Some:
		return b
	case !b.Some:
		return a
	}
	return SpreadAcc{true, min(a.Least, b.Least), max(a.Most, b.Most)}
}
func (Spread) ExtractOutput(a SpreadAcc) int64 { return a.Most - a.Least }

func TestDistinct(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		passert.Equals("once each", Distinct("distinct", sdk.Create("in", p, "b", "a", "b")), "a", "b")
		return nil
	})
}

func TestSpread(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.Create("in", p, sdk.Pair("x", int64(-3)), sdk.Pair("x", int64(4)), sdk.Pair("y", int64(1)))
		passert.PerKey("spreads", sdk.CombinePerKey("spread", in, Spread{}), map[string]int64{"x": 7, "y": 0})
		return nil
	})
}
