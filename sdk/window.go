package sdk

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// WindowOption refines WindowInto.
type WindowOption interface{ applyWindow(*windowConfig) }

type windowConfig struct {
	kernel.Strategy
	lateness time.Duration
}

type windowOption func(*windowConfig)

func (f windowOption) applyWindow(c *windowConfig) { f(c) }

// Trigger says when panes fire. Default: trigger.AfterWatermark().
func Trigger(t trigger.Trigger) WindowOption {
	return windowOption(func(c *windowConfig) { c.Trigger = t })
}

// AllowedLateness keeps windows open for late elements until the watermark is d past their end. Default 0:
// what comes after the end is late; see LateTo. Like all durations that a pipeline is built with, d is whole milliseconds.
func AllowedLateness(d time.Duration) WindowOption {
	return windowOption(func(c *windowConfig) { c.lateness = d })
}

// Accumulation says what a pane contains if a window fires more than once.
type Accumulation kernel.Accumulation

const (
	Discarding   = Accumulation(kernel.Discarding)   // the elements since the pane before; the default
	Accumulating = Accumulation(kernel.Accumulating) // all elements of the window so far

	// AccumulatingAndRetracting is Accumulating, and before each pane the pane before is sent again, marked as a retraction
	// (window.Pane.Retraction). Map and ParDo pass the mark on: what they make of a retraction takes back what they made of the
	// element. Aggregations remove what is taken back; see Remover. For others there is Changes.
	AccumulatingAndRetracting = Accumulation(kernel.Retracting)
)

func (a Accumulation) applyWindow(c *windowConfig) { c.Accumulation = kernel.Accumulation(a) }

func (a Accumulation) String() string { return kernel.Accumulation(a).String() }

// TimestampCombiner says which timestamp a pane has.
type TimestampCombiner kernel.TimestampCombiner

const (
	EndOfWindow = TimestampCombiner(kernel.EndOfWindow) // the last millisecond of its window; the default
	// Earliest and Latest are those of the elements since the pane before; an element behind the watermark counts as the end of
	// its window. The watermark of the output waits for the pane, so that it is on time for what follows.
	Earliest = TimestampCombiner(kernel.Earliest)
	Latest   = TimestampCombiner(kernel.Latest)
)

func (t TimestampCombiner) applyWindow(c *windowConfig) {
	c.Timestamps = kernel.TimestampCombiner(t)
}

func (t TimestampCombiner) String() string { return kernel.TimestampCombiner(t).String() }

// EmptyOnTimePane fires a pane at the end of each window, also if nothing came since the pane before. Without it a window whose early
// panes have all has none on time. (In Beam it is the OnTimeBehavior FIRE_ALWAYS, which is the default there, and is not here.)
// Windows into which nothing ever came have none.
func EmptyOnTimePane() WindowOption {
	return windowOption(func(c *windowConfig) { c.EmptyOnTime = true })
}

// EmptyLastPane fires a pane when a window expires, also if nothing came since the pane before, so that each has one that says that it is
// the last (Beam's ClosingBehavior FIRE_ALWAYS).
func EmptyLastPane() WindowOption { return windowOption(func(c *windowConfig) { c.EmptyLast = true }) }

// WindowInto assigns each element to the windows of fn that hold its timestamp: one, or, if they slide, any
// number. What was given for the input (trigger, lateness, accumulation) does not carry over. An element that is
// in several windows already is assigned anew once for each of them.
func WindowInto[T any](name string, in PCollection[T], fn window.Fn, opts ...WindowOption) PCollection[T] {
	if !in.usable(name) {
		return in
	}
	p, config := in.p, windowConfig{Strategy: defaultWindowing}
	config.Fn = fn
	for _, o := range opts {
		o.applyWindow(&config)
	}
	w := config.Strategy
	w.AllowedLateness = config.lateness.Milliseconds()
	err := window.Validate(fn)
	if err == nil {
		if err = trigger.Validate(w.Trigger); err == nil {
			w.Trigger = trigger.Canonical(w.Trigger)
			if why := trigger.MayLoseData(w.Trigger); why != "" {
				err = fmt.Errorf("the trigger may lose data: %s", why)
			}
		}
	}
	if d := config.lateness; err == nil && (d < 0 || d%time.Millisecond != 0) {
		err = fmt.Errorf("allowed lateness %v: must not be negative, and whole milliseconds", d)
	}
	if err != nil {
		p.errorf(name, "%w", err)
		return PCollection[T]{p: p}
	}
	in = whole(name, 0, in)
	c := in.info()
	if fn != window.Fn(window.Global()) && !c.timed {
		p.errorf(name, "the input has no event time, so every element would be in one window: give its source sdk.EventTime")
		return PCollection[T]{p: p}
	}
	c.windowing = w
	_, c.sliced = fn.(window.SlidingFn)
	n := &kernel.Node{
		Kind: "window", Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[T](p, "out")},
		New: func() kernel.Operator { return kernel.NewWindow[T](fn) }, Spec: []string{"windowing=" + w.String()},
	}
	if calendar, ok := fn.(window.CalendarFn); ok {
		n.Spec = append(n.Spec, fmt.Sprintf("time zone %s=%s", calendar.Zone, calendar.Rules()))
	}
	if !p.add(name, n, c) {
		return PCollection[T]{p: p}
	}
	return PCollection[T]{p: p, node: n}
}

// whole is in with elements in whole windows: those of sliding windows may be in slices, see kernel.NewSliced.
// It is for steps that see windows; input is a number among the inputs of the step.
func whole[T any](name string, input int, in PCollection[T]) PCollection[T] {
	if in.p == nil || in.node == nil || !in.info().sliced {
		return in
	}
	c := in.info()
	fn := c.windowing.Fn.(window.SlidingFn)
	c.sliced = false
	if n := fn.Size / fn.Period; n > window.MaxCopies {
		in.p.errorf(name, "its input is in sliding windows of %v every %v, and each element would be copied into %d of them: use a longer period, or aggregate first, without allowed lateness and early panes", fn.Size, fn.Period, n)
		return PCollection[T]{p: in.p}
	}
	n := &kernel.Node{
		Kind: "unslice", Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[T](in.p, "out")},
		New: func() kernel.Operator { return kernel.NewUnslice[T](fn) },
	}
	ok := false
	in.p.Scope(name, func() { ok = in.p.add(fmt.Sprintf("windows of input %d", input+1), n, c) })
	if !ok {
		return PCollection[T]{p: in.p}
	}
	return PCollection[T]{p: in.p, node: n}
}
