package runnertest

import (
	"fmt"
	"slices"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
)

// Views: each kind of side input, of a bounded collection.
func Views(p *sdk.Pipeline) {
	main := sdk.Create("main", p, "x", "y")
	side := sdk.Create("side", p, slices.Concat(of("a", 1, 2), of("b", 3))...)
	sums := sdk.CombinePerKey("sum", side, sum{})
	slice := sdk.AsSlice("slice", sdk.Map("values", side, func(e kv) int64 { return e.Value }))
	one := sdk.AsSingleton("one", sdk.CombineGlobally("all", sdk.Map("values again", side, func(e kv) int64 { return e.Value }), sum{}))
	none := sdk.AsSingletonOr("none", sdk.Create[int64]("nothing", p), -1)
	table := sdk.AsMap("map", sums)
	multi := sdk.AsMultimap("multimap", side)
	seen := sdk.ParDoFunc("see", main, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprint(s, slices.Sorted(slices.Values(slice.Get(c))), one.Get(c), none.Get(c), table.Get(c), slices.Sorted(slices.Values(multi.Get(c)["a"]))))
		return nil
	}, sdk.With(slice), sdk.With(one), sdk.With(none), sdk.With(table), sdk.With(multi))
	passert.Equals("seen", seen, "x[1 2 3] 6 -1 map[a:3 b:3] [1 2]", "y[1 2 3] 6 -1 map[a:3 b:3] [1 2]")
}

// WindowedViews: an element sees the window of the view that holds the end of its own, and waits for it.
func WindowedViews(p *sdk.Pipeline) {
	s := script{}.At(at(3), of("main", 1)...).At(at(25), of("main", 2)...).At(at(12), of("main", 3)...).At(at(5), of("side", 10)...).Watermark(at(10)).
		At(at(13), of("side", 20)...).Watermark(at(20)).At(at(25), of("side", 30, 40)...).Watermark(at(100))
	all := read(p, s)
	main := sdk.WindowInto("fives", sdk.Filter("main", all, func(e kv) bool { return e.Key == "main" }), window.Fixed(5*second))
	side := sdk.WindowInto("tens", sdk.Filter("side", all, func(e kv) bool { return e.Key == "side" }), window.Fixed(10*second))
	v := sdk.AsSlice("view", sdk.Map("values", side, func(e kv) int64 { return e.Value }))
	seen := sdk.MapWith("see", main, v, func(e kv, side []int64) (string, error) {
		return fmt.Sprint(e.Value, slices.Sorted(slices.Values(side))), nil
	})
	passert.Equals("seen", seen, "1 [10]", "2 [30 40]", "3 [20]")
}

// NewestOfAView: a singleton view has the first sum or one that took its place, and keeps it although its window fires once
// more for nothing.
func NewestOfAView(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("side", 7)...).Watermark(at(10)).At(at(2), of("side", 5)...).Watermark(at(100)).At(at(3), of("main", 1)...)
	all := sdk.WindowInto("tens", read(p, s), window.Fixed(10*second), sdk.Accumulating, sdk.AllowedLateness(50*second), sdk.EmptyLastPane())
	main := sdk.WindowInto("for long", sdk.Filter("main", all, func(e kv) bool { return e.Key == "main" }), window.Fixed(10*second), sdk.AllowedLateness(1000*second))
	side := sdk.Map("values", sdk.Filter("side", all, func(e kv) bool { return e.Key == "side" }), func(e kv) int64 { return e.Value })
	v := sdk.AsSingleton("view", sdk.CombineGlobally("sum", side, sum{}))
	seen := sdk.MapWith("see", main, v, func(_ kv, n int64) (int64, error) { return n, nil })
	passert.That("seen", seen).Satisfies(func(got []int64) error {
		if len(got) != 1 || got[0] != 7 && got[0] != 12 {
			return fmt.Errorf("seen: %v, not one of 7 and 12", got)
		}
		return nil
	})
}

// SlowlyChangingViews: in the end each element has seen some version of the table, and never none.
func SlowlyChangingViews(p *sdk.Pipeline) {
	s := script{}.At(at(0), of("main", 1)...).At(at(0), of("side", 1)...).At(at(0), of("main", 2)...).At(at(0), of("side", 2)...).At(at(0), of("main", 3)...)
	all := read(p, s)
	main := sdk.Filter("main", all, func(e kv) bool { return e.Key == "main" })
	side := sdk.WindowInto("each", sdk.Filter("side", all, func(e kv) bool { return e.Key == "side" }), window.Global(), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(1))))
	v := sdk.AsMap("table", side)
	seen := sdk.MapWith("see", main, v, func(e kv, table map[string]int64) (kv, error) {
		return sdk.Pair(fmt.Sprint(e.Value), table["side"]), nil
	})
	passert.That("versions", seen).Satisfies(func(got []kv) error {
		if len(got) != 3 {
			return fmt.Errorf("%d of 3 elements", len(got))
		}
		for _, e := range got {
			if e.Value != 1 && e.Value != 2 {
				return fmt.Errorf("element %s has seen version %d", e.Key, e.Value)
			}
		}
		return nil
	})
}

// WaitOn: elements wait for the end of a window of another collection.
func WaitOn(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("main", 1)...).At(at(2), of("signal", 2)...).Watermark(at(10)).At(at(11), of("main", 3)...)
	all := sdk.WindowInto("tens", read(p, s), window.Fixed(10*second))
	main := sdk.Filter("main", all, func(e kv) bool { return e.Key == "main" })
	passert.Equals("waited", showTimes("show", sdk.WaitOn("wait", main, sdk.Filter("signal", all, func(e kv) bool { return e.Key == "signal" }))), "main=1@1", "main=3@11")
}
