package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/plan"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// triggers has each kind of trigger, at the root or within another.
func triggers(p *sdk.Pipeline) {
	in := sdk.Create("a", p, int64(1))
	for i, t := range []trigger.Trigger{
		trigger.AfterWatermark().Early(trigger.AfterProcessingTime(time.Minute)).Late(trigger.Always()),
		trigger.Repeatedly(trigger.AfterCount(5)),
		trigger.Repeatedly(trigger.AfterFirst(trigger.AfterCount(100), trigger.AfterProcessingTime(10*time.Second).AlignedTo(time.Minute, 5*time.Second))),
		trigger.Repeatedly(trigger.OrFinally(trigger.Repeatedly(trigger.AfterCount(1)), trigger.AfterWatermark())),
		trigger.Repeatedly(trigger.AfterAll(trigger.AfterProcessingTime(0).AlignedTo(time.Hour, 0), trigger.AfterCount(2))),
		trigger.AfterEach(trigger.AfterCount(1), trigger.AfterSynchronizedProcessingTime(), trigger.Never()),
		trigger.AfterWatermark().Early(trigger.AfterEach(trigger.AfterCount(1), trigger.Repeatedly(trigger.AfterProcessingTime(time.Second)))),
	} {
		sdk.WindowInto(fmt.Sprintf("trigger %d", i), in, window.Global(), sdk.Trigger(t))
	}
}

// strategyOf is what the plan says of a collection that is windowed by s, and the name of that.
func strategyOf(t *testing.T, s kernel.Strategy) (string, *pipepb.WindowingStrategy) {
	t.Helper()
	g := graph(t, func(p *sdk.Pipeline) { sdk.Create("a", p, int64(1)) })
	g.Nodes[len(g.Nodes)-1].Ports[0].Windowing = s
	p, err := plan.Of(g, 256)
	if err != nil {
		t.Fatal(err)
	}
	all := p.GetComponents().GetWindowingStrategies()
	if len(all) != 1 {
		t.Fatalf("%d strategies for %v", len(all), s)
	}
	for id, w := range all {
		return id, w
	}
	return "", nil
}

func TestStrategyFieldsAreTranslated(t *testing.T) {
	s := kernel.Strategy{Fn: window.Fixed(time.Hour), Trigger: trigger.Canonical(trigger.AfterWatermark())}
	const start = "fixed 1h; at the end, then each late element; lateness 0s; "
	for _, c := range []struct {
		change func(*kernel.Strategy)
		id     string
		check  func(*pipepb.WindowingStrategy) fmt.Stringer
		want   fmt.Stringer
	}{
		{func(s *kernel.Strategy) {}, "discarding",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.OutputTime }, pipepb.OutputTime_END_OF_WINDOW},
		{func(s *kernel.Strategy) {}, "discarding",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.OnTimeBehavior }, pipepb.OnTimeBehavior_FIRE_IF_NONEMPTY},
		{func(s *kernel.Strategy) {}, "discarding",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.ClosingBehavior }, pipepb.ClosingBehavior_EMIT_IF_NONEMPTY},
		{func(s *kernel.Strategy) { s.Accumulation = kernel.Retracting }, "retracting",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.AccumulationMode }, pipepb.AccumulationMode_RETRACTING},
		{func(s *kernel.Strategy) { s.Accumulation = kernel.Accumulating }, "accumulating",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.AccumulationMode }, pipepb.AccumulationMode_ACCUMULATING},
		{func(s *kernel.Strategy) { s.Timestamps = kernel.Earliest }, "discarding, at their earliest element",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.OutputTime }, pipepb.OutputTime_EARLIEST_IN_PANE},
		{func(s *kernel.Strategy) { s.Timestamps = kernel.Latest }, "discarding, at their latest element",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.OutputTime }, pipepb.OutputTime_LATEST_IN_PANE},
		{func(s *kernel.Strategy) { s.EmptyOnTime = true }, "discarding, also empty at the end",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.OnTimeBehavior }, pipepb.OnTimeBehavior_FIRE_ALWAYS},
		{func(s *kernel.Strategy) { s.EmptyLast = true }, "discarding, also empty at the expiry",
			func(w *pipepb.WindowingStrategy) fmt.Stringer { return w.ClosingBehavior }, pipepb.ClosingBehavior_EMIT_ALWAYS},
	} {
		changed := s
		c.change(&changed)
		id, w := strategyOf(t, changed)
		if id != start+c.id || c.check(w) != c.want {
			t.Errorf("%v is %q with %v, want %q with %v", changed, id, c.check(w), start+c.id, c.want)
		}
	}
}

// TestTriggersDifferInTheirTexts: strategies are told apart by their texts, so triggers that differ must have texts that do.
func TestTriggersDifferInTheirTexts(t *testing.T) {
	leaves := []trigger.Trigger{
		trigger.AfterWatermark(), trigger.AfterCount(1), trigger.AfterCount(2), trigger.Always(), trigger.Never(),
		trigger.AfterSynchronizedProcessingTime(), trigger.AfterProcessingTime(0), trigger.AfterProcessingTime(time.Second),
		trigger.AfterProcessingTime(0).AlignedTo(time.Second, 0), trigger.AfterProcessingTime(time.Second).AlignedTo(time.Second, time.Millisecond),
	}
	all := slices.Clone(leaves)
	for _, a := range leaves {
		all = append(all, trigger.Repeatedly(a), trigger.AfterFirst(a), trigger.AfterAll(a), trigger.AfterEach(a),
			trigger.AfterWatermark().Early(a), trigger.AfterWatermark().Late(a))
		for _, b := range leaves {
			all = append(all, trigger.AfterFirst(a, b), trigger.AfterAll(a, b), trigger.AfterEach(a, b), trigger.OrFinally(a, b),
				trigger.AfterWatermark().Early(a).Late(b), trigger.AfterFirst(trigger.AfterWatermark().Early(a), b),
				trigger.AfterFirst(trigger.AfterWatermark().Early(trigger.AfterFirst(a, b))), trigger.AfterEach(trigger.Repeatedly(a), b),
				trigger.AfterFirst(trigger.AfterWatermark().Late(trigger.Repeatedly(a)), b))
		}
	}
	texts := map[string]trigger.Trigger{}
	for _, tr := range all {
		tr = trigger.Canonical(tr)
		id, w := strategyOf(t, kernel.Strategy{Fn: window.Fixed(time.Hour), Trigger: tr})
		if other := texts[id]; other != nil && other.String() != tr.String() {
			t.Errorf("%v and %v are both %q: %s", other, tr, id, prototext.Format(w))
		}
		texts[id] = tr
	}
	if len(texts) < 800 {
		t.Errorf("only %d texts", len(texts))
	}
}
