package twin

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// operator is a System around an operator of the kernel, one batch an element.
type operator struct {
	s       Strategy
	op      kernel.Operator
	backend statebackend.Backend
	input   eventtime.Time
	output  eventtime.Time
	clock   eventtime.Time
	step    Step
}

type (
	reading = coder.KV[string, int64]
	listed  = coder.KV[string, []int64]
	lists   = kernel.Aggregation[string, []int64, []int64]
)

// plain makes the kernel's aggregation by counts, without holds; panes the one for any trigger.
func plain(s Strategy) (func() kernel.Operator, error) {
	_, _, ok := trigger.Counts(trigger.Canonical(s.Trigger))
	if !ok || s.Accumulation == Retracting || s.Timestamps != EndOfWindow || s.EmptyOnTime || s.EmptyLast || merging(s.Fn) {
		return nil, errors.ErrUnsupported
	}
	spec, inputs, err := listing(s)
	return func() kernel.Operator { return kernel.NewAggregate(spec, inputs) }, err
}

func panes(s Strategy) (func() kernel.Operator, error) {
	spec, inputs, err := listing(s)
	return func() kernel.Operator { return kernel.NewPanes(spec, inputs) }, err
}

// listing is an aggregation that lists its elements, as the Twin does.
func listing(s Strategy) (spec lists, inputs func() []kernel.AggregateInput[string, []int64, []int64], err error) {
	if s.OutputTime != nil {
		return spec, nil, errors.ErrUnsupported
	}
	key, err := coder.KeyOf[string]()
	if err != nil {
		return spec, nil, err
	}
	acc, err := coder.Of[[]int64]()
	if err != nil {
		return spec, nil, err
	}
	t := trigger.Canonical(s.Trigger)
	early, late, counts := trigger.Counts(t)
	spec = lists{
		Key: key, Acc: acc, Out: acc, Create: func() []int64 { return []int64{} }, Extract: func(a []int64) []int64 { return append([]int64{}, a...) },
		Merge: func(a, b []int64) []int64 { return append(a, b...) },
		Clone: func(a []int64) ([]int64, error) { return append([]int64{}, a...), nil },
		Size:  func(a *[]int64) int { return 8 * cap(*a) },
		Windowing: kernel.Windowing{
			Lateness: s.Lateness, EarlyCount: early, LateCount: late,
			Accumulating: s.Accumulation != Discarding, Retracting: s.Accumulation == Retracting,
			Timestamps: s.Timestamps, EmptyOnTime: s.EmptyOnTime, EmptyLast: s.EmptyLast,
		},
	}
	if !counts {
		spec.Trigger = triggering.Compile(t)
	}
	if merging(s.Fn) {
		spec.Merging = &kernel.Merging{}
		if fn, ok := s.Fn.(window.CustomFn); ok {
			spec.Merging.Fn = fn
		}
	}
	add := func(a []int64, v int64) []int64 { return append(a, v) }
	return spec, func() []kernel.AggregateInput[string, []int64, []int64] {
		return []kernel.AggregateInput[string, []int64, []int64]{kernel.InputOf[string, int64, []int64, []int64](0, add)}
	}, nil
}

// running opens operators as systems.
func running(of func(Strategy) (func() kernel.Operator, error)) func(Strategy) (System, error) {
	return func(s Strategy) (System, error) {
		op, err := of(s)
		if err != nil {
			return nil, err
		}
		return newOperator(s, op())
	}
}

func newOperator(s Strategy, op kernel.Operator) (System, error) {
	const groups = 8
	o := &operator{s: s, op: op, input: eventtime.Min, output: eventtime.Min}
	var err error
	if o.backend, err = (memory.Driver{}).Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(groups)}); err != nil {
		return nil, err
	}
	metrics := &kernel.Metrics{}
	metrics.Watermark.Store(int64(eventtime.Min))
	return o, op.Open(&kernel.OpenContext{
		Context: context.Background(), Step: "step", Subtask: connector.Subtask{Parallelism: 1}, Backend: o.backend, Groups: groups,
		CacheMax: 1 << 40, Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		Now: func() eventtime.Time { return o.clock }, Wake: func() {},
		Outputs: []kernel.Output{emitted(func(b kernel.Batch) {
			for _, e := range b.(*kernel.Rows[listed]).E {
				o.step.Panes = append(o.step.Panes, paneOf(e))
			}
		}), emitted(func(b kernel.Batch) {
			for _, e := range b.(*kernel.Rows[reading]).E {
				o.step.Late = append(o.step.Late, Drop{e.Value.Key, e.Value.Value, e.Time, e.Window})
			}
		})},
	})
}

func paneOf(e kernel.Element[listed]) Pane {
	p := Pane{Key: e.Value.Key, Window: e.Window, Values: e.Value.Value, Time: e.Time, Info: e.Pane.Info()}
	p.Retraction, p.Info.Retraction = p.Info.Retraction, false
	return p
}

type emitted func(kernel.Batch)

func (f emitted) Emit(b kernel.Batch) error {
	f(b)
	return nil
}

// Do implements System. It does what the host of an operator does.
func (o *operator) Do(e Event) (Step, error) {
	o.step = Step{}
	err := o.tell(e)
	next := o.input
	if h, ok := o.op.(kernel.Holder); ok {
		next = min(next, h.Hold())
	}
	o.output = max(o.output, next)
	o.step.Watermark = o.output
	return o.step, err
}

func (o *operator) tell(e Event) (err error) {
	const budget = 2 // so that firings are done in slices
	switch e.Kind {
	case WatermarkEvent:
		o.input = e.Time
		for done := false; err == nil && !done; {
			done, err = o.op.Watermark(e.Time, budget)
		}
		return err
	case ClockEvent:
		o.clock = e.Time
		c, ok := o.op.(kernel.Clocked)
		for done := !ok || c.NextClock() > e.Time; err == nil && !done; {
			done, err = c.Clock(e.Time, budget)
		}
		return err
	}
	rows := &kernel.Rows[reading]{}
	for _, w := range o.s.Assign(e.Time) {
		rows.E = append(rows.E, kernel.Element[reading]{Value: reading{Key: e.Key, Value: e.Value}, Time: e.Time, Window: w})
	}
	if len(rows.E) == 0 {
		return nil
	}
	if err := o.op.Process(0, rows); err != nil {
		return err
	}
	if f, ok := o.op.(kernel.Flusher); ok {
		return f.Flush()
	}
	return nil
}

// anyWindows are those of which a part may not be in what it becomes too.
func anyWindows() *rapid.Generator[window.Fn] {
	return rapid.OneOf(Windows(), Windows(), Windows(), Windows(), Windows(), Windows(), Windows(), Windows(), Firsts())
}

// The aggregation by counts says what the twin says, wherever it is used.
func TestAggregationIsTheTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := Strategies(Windows().Filter(func(fn window.Fn) bool { return !merging(fn) }), Counts()).Draw(r, "strategy")
		s.Accumulation = min(s.Accumulation, Accumulating)
		s.Timestamps, s.EmptyOnTime, s.EmptyLast = EndOfWindow, false, false
		s, events := Stretched(s, Streams().Draw(r, "events"))
		Compare(r, running(plain), s, events)
	})
}

// So does the operator for any windows and trigger.
func TestPanesIsTheTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, events := Stretched(Strategies(anyWindows(), Triggers(3)).Draw(r, "strategy"), Streams().Draw(r, "events"))
		Compare(r, running(panes), s, events)
	})
}

// Beam's own cases.
func TestPanesFollowTheTranscripts(t *testing.T) { Transcripts(t, running(panes)) }
