package runnertest

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
)

// triggered sums the pairs of a script in windows of ten seconds.
func triggered(p *sdk.Pipeline, s script, t trigger.Trigger, opts ...sdk.WindowOption) sdk.PCollection[string] {
	return showPanes("show", windowed(p, s, window.Fixed(10*second), append(opts, sdk.Trigger(t))...))
}

// DefaultTrigger: a pane at the end of the window, and one for each late element.
func DefaultTrigger(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1, 2)...).Watermark(at(10)).At(at(2), of("a", 4)...).At(at(3), of("a", 8)...)
	passert.Equals("panes", triggered(p, s, trigger.Default(), sdk.AllowedLateness(time.Hour)), "a=3 [0,10) on time 0 first", "a=4 [0,10) late 1", "a=8 [0,10) late 2")
}

// EarlyAndLate: panes before the end of the window, at it, and after.
func EarlyAndLate(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).At(at(3), of("a", 4)...).Watermark(at(10)).
		At(at(4), of("a", 8)...).At(at(5), of("a", 16)...).At(at(6), of("a", 32)...).Watermark(at(100))
	t := trigger.AfterWatermark().Early(trigger.AfterCount(2)).Late(trigger.AfterCount(2))
	passert.Equals("panes", triggered(p, s, t, sdk.AllowedLateness(30*second)),
		"a=3 [0,10) early 0 first", "a=4 [0,10) on time 1", "a=24 [0,10) late 2", "a=32 [0,10) late 3 last")
}

// CountTrigger: in the global window, again and again.
func CountTrigger(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).At(at(3), of("b", 4)...).At(at(4), of("a", 8)...)
	in := sdk.CombinePerKey("sums", sdk.WindowInto("windows", read(p, s), window.Global(), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(2)))), sum{})
	passert.Equals("panes", showPanes("show", in), "a=3 global early 0 first", "a=8 global on time 1 last", "b=4 global on time 0 first last")
}

// AfterFirst: whichever comes first.
func AfterFirst(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1, 2, 4)...).At(at(11), of("b", 8)...).Watermark(at(20))
	t := trigger.Repeatedly(trigger.AfterFirst(trigger.AfterCount(3), trigger.AfterWatermark()))
	passert.Equals("panes", triggered(p, s, t), "a=7 [0,10) early 0 first", "b=8 [10,20) on time 0 first last")
}

// AfterAll: once both are ready.
func AfterAll(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1, 2)...).Watermark(at(10)).At(at(2), of("a", 4)...).At(at(3), of("a", 8)...)
	t := trigger.Repeatedly(trigger.AfterAll(trigger.AfterCount(3), trigger.AfterWatermark()))
	passert.Equals("panes", triggered(p, s, t, sdk.AllowedLateness(time.Hour)), "a=7 [0,10) on time 0 first", "a=8 [0,10) late 1 last")
}

// AfterEach: one after the other.
func AfterEach(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).At(at(3), of("a", 4)...).At(at(4), of("a", 8)...).At(at(5), of("a", 16)...).Watermark(at(10))
	t := trigger.AfterEach(trigger.AfterCount(1), trigger.AfterCount(2), trigger.Repeatedly(trigger.AfterWatermark()))
	passert.Equals("panes", triggered(p, s, t), "a=1 [0,10) early 0 first", "a=6 [0,10) early 1", "a=24 [0,10) on time 2 last")
}

// OrFinally: until something happens; then the trigger is over, and the rest comes at the end.
func OrFinally(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).At(at(3), of("a", 4)...).Watermark(at(10))
	t := trigger.Repeatedly(trigger.OrFinally(trigger.Repeatedly(trigger.AfterCount(1)), trigger.AfterCount(2)))
	passert.Equals("panes", triggered(p, s, t), "a=1 [0,10) early 0 first", "a=2 [0,10) early 1", "a=4 [0,10) early 2")
}

// Always: a pane for each element.
func Always(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).Watermark(at(10))
	passert.Equals("panes", triggered(p, s, trigger.Always()), "a=1 [0,10) early 0 first", "a=2 [0,10) early 1")
}

// Never: what is there at the end of the window's life.
func Never(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).Watermark(at(11)).At(at(2), of("a", 2)...).Watermark(at(100))
	passert.Equals("panes", triggered(p, s, trigger.Never(), sdk.AllowedLateness(20*second)), "a=3 [0,10) on time 0 first last")
}

// TriggersDownstream: a second aggregation fires when it gets something.
func TriggersDownstream(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(2), of("a", 2)...).Watermark(at(10))
	w := sdk.WindowInto("windows", read(p, s), window.Fixed(10*second), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(1))))
	passert.Equals("panes", showPanes("show", sdk.CombinePerKey("second", sdk.CombinePerKey("first", w, sum{}), sum{})),
		"a=1 [0,10) early 0 first", "a=2 [0,10) early 1")
}

// ProcessingTimeTrigger: a while after the first element of a pane, by a clock that the script moves.
func ProcessingTimeTrigger(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).AdvanceClock(4*second).At(at(2), of("a", 2)...).AdvanceClock(second).
		At(at(3), of("a", 4)...).AdvanceClock(6*second).At(at(4), of("a", 8)...).Watermark(at(10))
	t := trigger.AfterWatermark().Early(trigger.AfterProcessingTime(5 * second))
	passert.Equals("panes", triggered(p, s, t), "a=3 [0,10) early 0 first", "a=4 [0,10) early 1", "a=8 [0,10) on time 2 last")
}

// ProcessingTimeByTheClock: whatever the clock does, the panes are those of the model, and nothing is lost.
func ProcessingTimeByTheClock(p *sdk.Pipeline) {
	s := script{}
	for i := range int64(8) {
		s = s.At(at(i), of("a", 1<<i)...)
	}
	t := trigger.AfterWatermark().Early(trigger.AfterProcessingTime(15 * time.Millisecond))
	panes := windowed(p, s.Watermark(at(10)), window.Fixed(10*second), sdk.Trigger(t))
	type seen struct {
		Pane  window.Pane
		Value int64
	}
	all := sdk.ParDoFunc("panes", panes, func(c *sdk.ProcessContext, e kv, emit *sdk.Emitter[seen]) error {
		emit.Emit(seen{c.Pane(), e.Value})
		return nil
	})
	passert.That("legal", all).Satisfies(func(got []seen) error {
		total, at := int64(0), make([]*seen, len(got))
		for i := range got {
			total += got[i].Value
			if n := got[i].Pane.Index; n < 0 || n >= int64(len(got)) || at[n] != nil {
				return fmt.Errorf("pane %d of %d, or twice", n, len(got))
			}
			at[got[i].Pane.Index] = &got[i]
		}
		for i, s := range at {
			if s.Pane.First != (i == 0) || s.Pane.Timing == window.OnTime && i != len(at)-1 || s.Pane.Timing == window.Late {
				return fmt.Errorf("pane %d is %+v", i, s.Pane)
			}
		}
		if total != 255 {
			return fmt.Errorf("the panes come to %d, not 255", total)
		}
		return nil
	})
}
