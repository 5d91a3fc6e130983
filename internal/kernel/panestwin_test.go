package kernel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
	"github.com/millstream/millstream/testing/twin"
)

// lists is an aggregation that lists its elements, as the twin does.
type lists = kernel.Aggregation[string, []int64, []int64]

// listing is the operator for a strategy: panes, or, if plain is set, the one for triggers that are counts.
func listing(s twin.Strategy, plain bool) (func() kernel.Operator, error) {
	if s.OutputTime != nil {
		return nil, errors.ErrUnsupported
	}
	t := trigger.Canonical(s.Trigger)
	early, late, counts := trigger.Counts(t)
	spec := lists{
		Key: must(coder.KeyOf[string]()), Acc: must(coder.Of[[]int64]()), Out: must(coder.Of[[]int64]()),
		Create:  func() []int64 { return nil },
		Extract: func(vs []int64) []int64 { return slices.Sorted(slices.Values(vs)) },
		Merge:   func(a, b []int64) []int64 { return append(a, b...) },
		Size:    func(vs *[]int64) int { return 8 * cap(*vs) },
		Windowing: kernel.Windowing{
			Lateness: s.Lateness, EarlyCount: early, LateCount: late,
			Accumulating: s.Accumulation != twin.Discarding, Retracting: s.Accumulation == twin.Retracting,
			Timestamps: kernel.TimestampCombiner(s.Timestamps), EmptyOnTime: s.EmptyOnTime, EmptyLast: s.EmptyLast,
		},
	}
	if !counts {
		spec.Trigger = triggering.Compile(t)
	}
	if _, ok := s.Fn.(window.SessionsFn); ok {
		spec.Merging = &kernel.Merging{}
	}
	inputs := func() []kernel.AggregateInput[string, []int64, []int64] {
		return []kernel.AggregateInput[string, []int64, []int64]{
			kernel.InputOf[string, int64, []int64, []int64](0, func(vs []int64, v int64) []int64 { return append(vs, v) }),
		}
	}
	if plain {
		return func() kernel.Operator { return kernel.NewAggregate(spec, inputs) }, nil
	}
	return func() kernel.Operator { return kernel.NewPanes(spec, inputs) }, nil
}

// said is a line of the operator.
type said struct {
	Pane   *saidPane
	Late   *twin.Drop
	Window [2]eventtime.Time // of either
	Output eventtime.Time    // if neither is set
}

type saidPane struct {
	Key    string
	Values []int64
	Time   eventtime.Time
	Info   window.Pane
}

func line(s said) string { return string(must(json.Marshal(s))) }

// steps is what the operator makes of events, however it is disturbed.
func steps(s twin.Strategy, events []twin.Event, plain bool) ([]twin.Step, error) {
	op, err := listing(s, plain)
	if err != nil {
		return nil, err
	}
	bounds := func(w window.Window) [2]eventtime.Time { return [2]eventtime.Time{w.StartTime(), w.EndTime()} }
	c := operatortest.Case{
		New: op, Keyed: true, Output: func(w eventtime.Time) string { return line(said{Output: w}) },
		Ports: []operatortest.Print{
			operatortest.Lines(func(e kernel.Element[coder.KV[string, []int64]]) string {
				return line(said{Window: bounds(e.Window), Pane: &saidPane{e.Value.Key, e.Value.Value, e.Time, e.Pane.Info()}})
			}),
			operatortest.Lines(func(e kernel.Element[coder.KV[string, int64]]) string {
				return line(said{Window: bounds(e.Window), Late: &twin.Drop{Key: e.Value.Key, Value: e.Value.Value, Time: e.Time}})
			}),
		},
	}
	for _, e := range events {
		c.Inputs = append(c.Inputs, input(s.Fn, e))
	}
	all, err := operatortest.Check(c)
	var out []twin.Step
	for _, lines := range all {
		var step twin.Step
		for _, l := range lines {
			if len(l) > 8 && l[:8] == "port 1: " {
				l = l[8:]
			}
			var x said
			if err := json.Unmarshal([]byte(l), &x); err != nil {
				return nil, err
			}
			w := window.New(x.Window[0], x.Window[1])
			switch {
			case x.Pane != nil:
				p := twin.Pane{Key: x.Pane.Key, Window: w, Values: x.Pane.Values, Time: x.Pane.Time, Info: x.Pane.Info, Retraction: x.Pane.Info.Retraction}
				p.Info.Retraction = false
				step.Panes = append(step.Panes, p)
			case x.Late != nil:
				x.Late.Window = w
				step.Late = append(step.Late, *x.Late)
			default:
				step.Watermark = x.Output
			}
		}
		// Windows of a key that end in one tenth of a second may fire in any order.
		slices.SortStableFunc(step.Panes, func(a, b twin.Pane) int { return a.Window.Compare(b.Window) })
		out = append(out, step)
	}
	return out, err
}

// input is an event for an operator: an element in its windows, or a time.
func input(fn window.Fn, e twin.Event) operatortest.Input {
	switch e.Kind {
	case twin.WatermarkEvent:
		return operatortest.Watermark(e.Time)
	case twin.ClockEvent:
		return operatortest.Clock(e.Time)
	}
	var ws []window.Window
	switch fn := fn.(type) {
	case window.SlidingFn:
		ws = fn.Assign(nil, e.Time)
	case window.FixedFn:
		ws = append(ws, fn.Assign(e.Time))
	case window.SessionsFn:
		ws = append(ws, fn.Assign(e.Time))
	default:
		ws = append(ws, window.GlobalWindow)
	}
	var rows []kernel.Element[coder.KV[string, int64]]
	for _, w := range ws {
		rows = append(rows, kernel.Element[coder.KV[string, int64]]{Value: coder.KV[string, int64]{Key: e.Key, Value: e.Value}, Time: e.Time, Window: w})
	}
	return operatortest.Batch(0, rows...)
}

// replay is a twin.System that is given all events again after each.
type replay struct {
	s      twin.Strategy
	events []twin.Event
}

func (r *replay) Do(e twin.Event) (twin.Step, error) {
	r.events = append(r.events, e)
	all, err := steps(r.s, r.events, false)
	if err != nil {
		return twin.Step{}, err
	}
	return all[len(all)-1], nil
}

// Beam's own cases.
func TestPanesFollowTheTranscripts(t *testing.T) {
	twin.Transcripts(t, func(s twin.Strategy) (twin.System, error) {
		if _, err := listing(s, false); err != nil {
			return nil, err
		}
		return &replay{s: s}, nil
	})
}

// played is a twin.System for events that are known.
type played struct {
	steps []twin.Step
	next  int
}

func (p *played) Do(twin.Event) (twin.Step, error) {
	p.next++
	return p.steps[p.next-1], nil
}

// Whatever the windows, the trigger and the stream, and however the operator is disturbed: it says what the twin says.
func TestPanesSayWhatTheTwinSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := twin.Strategies(twin.Windows(), twin.Triggers(3)).Draw(t, "strategy")
		events := twin.Streams().Draw(t, "events")
		compare(t, s, events, false)
	})
}

// The two operators for counts are one.
func TestAggregationsByCountsSayWhatTheTwinSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := twin.Strategies(twin.Windows(), twin.Counts()).Draw(t, "strategy")
		s.Timestamps, s.EmptyOnTime, s.EmptyLast = twin.EndOfWindow, false, false
		events := twin.Streams().Draw(t, "events")
		_, merges := s.Fn.(window.SessionsFn)
		_, _, counts := trigger.Counts(trigger.Canonical(s.Trigger))
		if !counts || s.Accumulation == twin.Retracting || merges {
			t.Skip("not for this operator")
		}
		compare(t, s, events, true)
	})
}

func compare(t *rapid.T, s twin.Strategy, events []twin.Event, plain bool) {
	twin.Compare(t, func(s twin.Strategy) (twin.System, error) {
		all, err := steps(s, events, plain)
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		return &played{steps: all}, nil
	}, s, events)
}
