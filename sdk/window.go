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
	Windowing
	trigger trigger.Trigger
}

type windowOption func(*windowConfig)

func (f windowOption) applyWindow(c *windowConfig) { f(c) }

// Trigger says when panes fire. Default: trigger.AfterWatermark().
func Trigger(t trigger.Trigger) WindowOption {
	return windowOption(func(c *windowConfig) { c.trigger = t })
}

// AllowedLateness keeps windows open for late elements until the watermark is d past their end. Default 0:
// what comes after the end is late; see LateTo.
func AllowedLateness(d time.Duration) WindowOption {
	return windowOption(func(c *windowConfig) { c.AllowedLateness = d.Milliseconds() })
}

// Accumulation says what a pane contains if a window fires more than once.
type Accumulation uint8

const (
	Discarding   Accumulation = iota // the elements since the pane before; the default
	Accumulating                     // all elements of the window so far
)

func (a Accumulation) applyWindow(c *windowConfig) { c.Accumulation = a }

func (a Accumulation) String() string { return [...]string{"discarding", "accumulating"}[a&1] }

// strategy is w for plans.
func (w Windowing) strategy() kernel.Strategy {
	return kernel.Strategy{Fn: w.Fn, Trigger: w.Trigger, AllowedLateness: w.AllowedLateness, Accumulating: w.Accumulation == Accumulating}
}

// WindowInto assigns each element to the window of fn that holds its timestamp. What was given for the
// input (trigger, lateness, accumulation) does not carry over.
func WindowInto[T any](name string, in PCollection[T], fn window.Fn, opts ...WindowOption) PCollection[T] {
	if !in.usable(name) {
		return in
	}
	p, config := in.p, windowConfig{defaultWindowing, defaultWindowing.Trigger}
	config.Fn = fn
	for _, o := range opts {
		o.applyWindow(&config)
	}
	w := config.Windowing
	err := window.Validate(fn)
	if err == nil {
		err = trigger.Validate(config.trigger)
		w.Trigger, _ = config.trigger.(trigger.Watermark)
	}
	if err == nil && w.AllowedLateness < 0 {
		err = fmt.Errorf("allowed lateness %v: must not be negative", time.Duration(w.AllowedLateness)*time.Millisecond)
	}
	if err != nil {
		p.errorf(name, "%w", err)
		return PCollection[T]{p: p}
	}
	c := in.info()
	if fn != window.Fn(window.Global()) && !c.timed {
		p.errorf(name, "the input has no event time, so every element would be in one window: give its source sdk.EventTime")
		return PCollection[T]{p: p}
	}
	c.windowing = w
	n := &kernel.Node{
		Kind: "window", Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[T](p, "out")},
		New: func() kernel.Operator { return kernel.NewWindow[T](fn) }, Spec: []string{"windowing=" + w.String()},
	}
	if !p.add(name, n, c) {
		return PCollection[T]{p: p}
	}
	return PCollection[T]{p: p, node: n}
}
