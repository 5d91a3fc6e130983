package runnertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
)

// refined has four panes: two early, on time, and late.
func refined() script {
	return script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).Watermark(at(10)).At(at(3), of("a", 4)...)
}

func inRefinements(p *sdk.Pipeline, mode sdk.Accumulation) sdk.PCollection[kv] {
	t := trigger.AfterWatermark().Early(trigger.AfterCount(1)).Late(trigger.AfterCount(1))
	return windowed(p, refined(), window.Fixed(10*second), sdk.Trigger(t), sdk.AllowedLateness(time.Hour), sdk.EmptyOnTimePane(), mode)
}

// Discarding: a pane has what came since the one before.
func Discarding(p *sdk.Pipeline) {
	passert.Equals("panes", showPanes("show", inRefinements(p, sdk.Discarding)),
		"a=1 [0,10) early 0 first", "a=2 [0,10) early 1", "a=0 [0,10) on time 2", "a=4 [0,10) late 3")
}

// Accumulating: a pane has all that came.
func Accumulating(p *sdk.Pipeline) {
	passert.Equals("panes", showPanes("show", inRefinements(p, sdk.Accumulating)),
		"a=1 [0,10) early 0 first", "a=3 [0,10) early 1", "a=3 [0,10) on time 2", "a=7 [0,10) late 3")
}

// Retracting: a pane takes the one before back.
func Retracting(p *sdk.Pipeline) {
	passert.Equals("panes", showPanes("show", inRefinements(p, sdk.AccumulatingAndRetracting)),
		"a=1 [0,10) early 0 first", "-a=1 [0,10) early 0 first", "a=3 [0,10) early 1", "-a=3 [0,10) early 1",
		"a=3 [0,10) on time 2", "-a=3 [0,10) on time 2", "a=7 [0,10) late 3")
}

// standing is what is left of a collection when all that was taken back is gone.
func standing(name string, in sdk.PCollection[kv]) sdk.PCollection[string] {
	counts := sdk.ParDoFunc(name+": changes", sdk.Changes(name+": seen", in), func(c *sdk.ProcessContext, e sdk.Change[kv], emit *sdk.Emitter[kv]) error {
		n := int64(1)
		if e.Retraction {
			n = -1
		}
		emit.Emit(sdk.Pair(fmt.Sprintf("%s=%d", e.Value.Key, e.Value.Value), n))
		return nil
	})
	sums := sdk.CombinePerKey(name+": sum", sdk.WindowInto(name+": global", counts, window.Global()), sum{})
	return sdk.Map(name, sdk.Filter(name+": left", sums, func(e kv) bool { return e.Value != 0 }), func(e kv) string { return fmt.Sprint(e.Key, " x", e.Value) })
}

// RetractionsDownstream: an aggregation of refined sums by another key is right in the end, for it takes back what was taken back.
func RetractionsDownstream(p *sdk.Pipeline) {
	bySize := func(e kv) kv {
		if e.Value > 3 {
			return sdk.Pair("big", e.Value)
		}
		return sdk.Pair("small", e.Value)
	}
	s := refined().At(at(4), of("b", 3)...)
	t := trigger.AfterWatermark().Early(trigger.AfterCount(1)).Late(trigger.AfterCount(1))
	sums := windowed(p, s, window.Fixed(10*second), sdk.Trigger(t), sdk.AllowedLateness(time.Hour), sdk.AccumulatingAndRetracting)
	sized := sdk.Map("by size", sums, bySize)
	passert.Equals("combined", standing("standing sums", sdk.CombinePerKey("sum by size", sized, sum{})), "small=3 x1", "big=7 x1")
	grouped := sdk.MapValues("sum of group", sdk.GroupByKey("group by size", sized), total)
	passert.Equals("grouped", standing("standing groups", grouped), "small=3 x1", "big=7 x1")
}

// RetractionsAtOnce: no pane of a later aggregation has only the retraction of a sum, and not the sum that takes its place.
func RetractionsAtOnce(p *sdk.Pipeline) {
	sums := inRefinements(p, sdk.AccumulatingAndRetracting)
	totals := sdk.CombineGlobally("total", sdk.Map("values", sums, func(e kv) int64 { return e.Value }), sum{})
	passert.That("totals", sdk.Changes("changes", totals)).Satisfies(func(got []sdk.Change[int64]) error {
		stands := map[int64]int{}
		for _, c := range got {
			if c.Value != 1 && c.Value != 3 && c.Value != 7 {
				return fmt.Errorf("a total is %d", c.Value)
			}
			if c.Retraction {
				stands[c.Value]--
			} else {
				stands[c.Value]++
			}
		}
		if stands[1] != 0 || stands[3] != 0 || stands[7] != 1 {
			return fmt.Errorf("what stands is %v, not 7 once: %+v", stands, got)
		}
		return nil
	})
}

// RetractedSessions: the pane of a session that has become part of a longer one is taken back before it is too late for that.
func RetractedSessions(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1, 2)...).At(at(8), of("a", 4)...).Watermark(at(12)).Watermark(at(30)).At(at(31), of("b", 8)...)
	t := trigger.AfterWatermark().Early(trigger.AfterCount(2))
	sums := windowed(p, s, window.Sessions(10*second), sdk.Trigger(t), sdk.AccumulatingAndRetracting)
	var late sdk.PCollection[kv]
	passert.Equals("standing", standing("show", sdk.CombinePerKey("again", sums, sum{}, sdk.LateTo(&late))), "a=7 x1", "b=8 x1", "a=0 x1")
	passert.Empty("late", showPanes("show late", late))
}

// LateDropped: what comes after the window and its lateness is dropped, and can be had.
func LateDropped(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).Watermark(at(12)).At(at(2), of("a", 2)...).Watermark(at(15)).At(at(3), of("a", 4)...).At(at(11), of("a", 8)...)
	w := sdk.WindowInto("windows", read(p, s), window.Fixed(10*second), sdk.AllowedLateness(5*second))
	var late sdk.PCollection[kv]
	sums := sdk.CombinePerKey("sums", w, sum{}, sdk.LateTo(&late))
	passert.Equals("panes", showPanes("show", sums), "a=1 [0,10) on time 0 first", "a=2 [0,10) late 1", "a=8 [10,20) on time 0 first")
	passert.Equals("late", showTimes("show late", late), "a=4@3")
}

// FirstAfterTheEnd: a key that comes first after the end of its window has an on-time pane all the same.
func FirstAfterTheEnd(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).Watermark(at(12)).At(at(2), of("b", 2)...).At(at(2), of("b", 4)...)
	passert.Equals("panes", showPanes("show", windowed(p, s, window.Fixed(10*second), sdk.AllowedLateness(time.Hour))),
		"a=1 [0,10) on time 0 first", "b=2 [0,10) late 0 first", "b=4 [0,10) late 1")
}

// EmptyPanes: an on-time pane although nothing came since the early one, and a last one at the end of the window's life.
func EmptyPanes(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).Watermark(at(12)).Watermark(at(100))
	t := trigger.AfterWatermark().Early(trigger.AfterCount(1))
	panes := windowed(p, s, window.Fixed(10*second), sdk.Trigger(t), sdk.AllowedLateness(20*second), sdk.Accumulating, sdk.EmptyOnTimePane(), sdk.EmptyLastPane())
	passert.Equals("panes", showPanes("show", panes), "a=1 [0,10) early 0 first", "a=1 [0,10) on time 1", "a=1 [0,10) late 2 last")
}

// GroupsInPanes: the values of a group, in each mode.
func GroupsInPanes(p *sdk.Pipeline) {
	in := read(p, refined())
	t := trigger.AfterWatermark().Early(trigger.AfterCount(1)).Late(trigger.AfterCount(1))
	for _, c := range []struct {
		mode sdk.Accumulation
		want []string
	}{
		{sdk.Discarding, []string{"[1] early", "[2] early", "[4] late"}},
		{sdk.Accumulating, []string{"[1] early", "[1 2] early", "[1 2 4] late"}},
	} {
		name := c.mode.String()
		w := sdk.WindowInto("windows "+name, in, window.Fixed(10*second), sdk.Trigger(t), sdk.AllowedLateness(time.Hour), c.mode)
		passert.Equals(name, sdk.ParDoFunc("show "+name, sdk.GroupByKey("group "+name, w), func(c *sdk.ProcessContext, e sdk.KV[string, sdk.Iterable[int64]], emit *sdk.Emitter[string]) error {
			if c.Pane().Timing != window.OnTime {
				emit.Emit(fmt.Sprint(slices.Sorted(e.Value.All()), " ", timings[c.Pane().Timing]))
			}
			return nil
		}), c.want...)
	}
}
