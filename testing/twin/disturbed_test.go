package twin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
)

// said is a line of an operator: a pane, a late element, or where the watermark stands.
type said struct {
	Pane   *Pane
	Late   *Drop
	Window [2]eventtime.Time // of either
	Output eventtime.Time    // if neither is set
}

func line(s said) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func bounds(w window.Window) [2]eventtime.Time {
	return [2]eventtime.Time{w.StartTime(), w.EndTime()}
}

// disturbed is what an operator makes of events, however it is disturbed.
func disturbed(op func() kernel.Operator, fn window.Fn, events []Event) ([]Step, error) {
	c := operatortest.Case{
		New: op, Keyed: true, Output: func(w eventtime.Time) string { return line(said{Output: w}) },
		Ports: []operatortest.Print{
			operatortest.Lines(func(e kernel.Element[listed]) string {
				p := paneOf(e)
				p.Values = slices.Sorted(slices.Values(p.Values))
				return line(said{Window: bounds(e.Window), Pane: &p})
			}),
			operatortest.Lines(func(e kernel.Element[reading]) string {
				return line(said{Window: bounds(e.Window), Late: &Drop{Key: e.Value.Key, Value: e.Value.Value, Time: e.Time}})
			}),
		},
	}
	for _, e := range events {
		switch e.Kind {
		case WatermarkEvent:
			c.Inputs = append(c.Inputs, operatortest.Watermark(e.Time))
		case ClockEvent:
			c.Inputs = append(c.Inputs, operatortest.Clock(e.Time))
		default:
			var rows []kernel.Element[reading]
			for _, w := range (Strategy{Fn: fn}).Assign(e.Time) {
				rows = append(rows, kernel.Element[reading]{Value: reading{Key: e.Key, Value: e.Value}, Time: e.Time, Window: w})
			}
			c.Inputs = append(c.Inputs, operatortest.Batch(0, rows...))
		}
	}
	all, err := operatortest.Check(c)
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, lines := range all {
		var step Step
		for _, l := range lines {
			var x said
			if err := json.Unmarshal([]byte(strings.TrimPrefix(l, "port 1: ")), &x); err != nil {
				return nil, err
			}
			w := window.New(x.Window[0], x.Window[1])
			switch {
			case x.Pane != nil:
				x.Pane.Window = w
				step.Panes = append(step.Panes, *x.Pane)
			case x.Late != nil:
				x.Late.Window = w
				step.Late = append(step.Late, *x.Late)
			default:
				step.Watermark = x.Output
			}
		}
		// Lines are sorted; panes of one window come in the order of their numbers, what is taken back first.
		slices.SortStableFunc(step.Panes, func(a, b Pane) int { return int(a.Info.Index - b.Info.Index) })
		out = append(out, step)
	}
	return out, nil
}

// steps is what panes makes of events, however disturbed, after a change of its specification.
func steps(s Strategy, events []Event, change func(*lists)) ([]Step, error) {
	spec, inputs, err := listing(s)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&spec)
	}
	return disturbed(func() kernel.Operator { return kernel.NewPanes(spec, inputs) }, s.Fn, events)
}

// played is a System for events that are known.
type played struct {
	steps []Step
	next  int
}

func (p *played) Do(Event) (Step, error) {
	p.next++
	return p.steps[p.next-1], nil
}

// Snapshots and restores after any event, firings in slices and state on disk make no difference.
func TestPanesIsTheTwinHoweverDisturbed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, events := Stretched(Strategies(anyWindows(), Triggers(3)).Draw(r, "strategy"), Streams().Draw(r, "events"))
		Compare(r, func(s Strategy) (System, error) {
			op, err := panes(s)
			if err != nil {
				return nil, err
			}
			steps, err := disturbed(op, s.Fn, events)
			return &played{steps: steps}, err
		}, s, events)
	})
}
