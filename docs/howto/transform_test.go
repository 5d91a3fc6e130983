package howto_test

import (
	"context"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
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

// Priced asks for the prices of many articles at once.
type Priced struct {
	Ask func(articles []string) ([]int64, error)

	articles []string
	places   []place // of the articles, one each
}

type place struct {
	at time.Time
	in window.Window
}

func (p *Priced) ProcessElement(c *sdk.ProcessContext, article string, emit *sdk.Emitter[int64]) error {
	p.articles = append(p.articles, article)
	p.places = append(p.places, place{c.Timestamp(), c.Window()})
	return nil
}

func (p *Priced) FinishBundle(_ context.Context, emit *sdk.Emitter[int64]) error {
	prices, err := p.Ask(p.articles)
	for i, price := range prices {
		emit.EmitIn(p.places[i].in, p.places[i].at, price)
	}
	p.articles, p.places = p.articles[:0], p.places[:0]
	return err
}

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

func TestPriced(t *testing.T) {
	ask := func(articles []string) (prices []int64, err error) {
		for _, a := range articles {
			prices = append(prices, int64(len(a)))
		}
		return prices, nil
	}
	ptest.Run(t, func(p *sdk.Pipeline) error {
		passert.Equals("prices", sdk.ParDo("price", sdk.Create("in", p, "tea", "coffee", "tea"), &Priced{Ask: ask}), 3, 6, 3)
		return nil
	})
}
