package ptest

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
)

// Harness calls one DoFn as a subtask would, without a pipeline. One goroutine uses it.
type Harness[In, Out any] struct {
	t       testing.TB
	op      kernel.Operator
	metrics kernel.Metrics
	ports   []kernel.Port
	outs    []*recorder
	open    bool
}

// recorder keeps the batches of one output.
type recorder struct{ batches []kernel.Batch }

func (r *recorder) Emit(b kernel.Batch) error {
	r.batches = append(r.batches, b.Clone())
	return nil
}

// DoFn prepares fn as ParDo does: it makes a copy, calls Declare and Setup on that, and Teardown at the
// end of the test. What ParDo refuses fails the test.
func DoFn[In, Out any, F sdk.DoFn[In, Out]](t testing.TB, fn F) *Harness[In, Out] {
	t.Helper()
	p := sdk.NewPipeline(t.Name())
	sdk.ParDo("fn", sdk.Create[In]("in", p), fn)
	g, err := p.Graph()
	if err != nil {
		t.Fatal(err)
	}
	n := g.Nodes[1]
	h := &Harness[In, Out]{t: t, op: n.New(), ports: n.Ports, open: true}
	c := &kernel.OpenContext{
		Context: t.Context(), Step: n.Name, Subtask: connector.Subtask{Parallelism: 1},
		Metrics: &h.metrics, Logger: slog.New(slog.DiscardHandler),
	}
	for range n.Ports {
		r := &recorder{}
		h.outs, c.Outputs = append(h.outs, r), append(c.Outputs, r)
	}
	if err := h.op.Open(c); err != nil {
		t.Fatalf("set up %T: %v", fn, err)
	}
	t.Cleanup(func() {
		if err := h.Teardown(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// ProcessElement calls the DoFn and returns its error. The element is in the global window unless it names
// another, and of no pane unless it names one.
func (h *Harness[In, Out]) ProcessElement(e Element[In]) error {
	if !h.open {
		return errors.New("ptest: ProcessElement after Teardown")
	}
	if e.Window == (window.Window{}) {
		e.Window = window.GlobalWindow
	}
	at := eventtime.Min // as of elements without a timestamp
	if !e.Time.IsZero() {
		at = eventtime.FromTime(e.Time)
	}
	pane := kernel.NoPane
	if e.Pane != (window.Pane{}) {
		pane = kernel.MakePane(e.Pane)
	}
	return userError(h.op.Process(0, &kernel.Rows[In]{E: []kernel.Element[In]{{Value: e.Value, Time: at, Window: e.Window, Pane: pane}}}))
}

// Process is ProcessElement for values without a timestamp. It stops at the first error.
func (h *Harness[In, Out]) Process(vs ...In) error {
	for _, v := range vs {
		if err := h.ProcessElement(Element[In]{Value: v}); err != nil {
			return err
		}
	}
	return nil
}

// FinishBundle calls the DoFn's FinishBundle, if it has one, as before a watermark or checkpoint.
func (h *Harness[In, Out]) FinishBundle() error {
	if f, ok := h.op.(kernel.Flusher); ok && h.open {
		return userError(f.Flush())
	}
	return nil
}

// Teardown calls the DoFn's Teardown, if it has one. Only the first call does something.
func (h *Harness[In, Out]) Teardown() error {
	if !h.open {
		return nil
	}
	h.open = false
	return userError(h.op.Close())
}

// userError is the error that user code returned, without what runners add.
func userError(err error) error {
	var u *kernel.UserError
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Elements takes what has been emitted to the main output since it was last called.
func (h *Harness[In, Out]) Elements() []Element[Out] {
	return take[Out](h.t, h.outs[0], "its main output")
}

// Output is Elements without all but the values.
func (h *Harness[In, Out]) Output() []Out { return valuesOf(h.Elements()) }

// OutputOf takes the values that a DoFn has emitted to the output that it declares by that name. A name or
// type that it does not declare fails the test.
func OutputOf[T, In, Out any](h *Harness[In, Out], name string) []T {
	h.t.Helper()
	i := slices.IndexFunc(h.ports, func(p kernel.Port) bool { return p.Name == name })
	if i < 1 {
		h.t.Fatalf("ptest: the DoFn declares no output %q", name)
	}
	return valuesOf(take[T](h.t, h.outs[i], "output "+name))
}

func valuesOf[T any](elements []Element[T]) (vs []T) {
	for _, e := range elements {
		vs = append(vs, e.Value)
	}
	return vs
}

func take[T any](t testing.TB, r *recorder, what string) (out []Element[T]) {
	t.Helper()
	for _, b := range r.batches {
		rows, ok := b.(*kernel.Rows[T])
		if !ok {
			t.Fatalf("ptest: %s does not have elements of %T", what, *new(T))
		}
		for _, e := range rows.E {
			out = append(out, Element[T]{e.Value, e.Time.Time(), e.Window, e.Pane.Info()})
		}
	}
	r.batches = nil
	return out
}

// Counter is the present count of a counter that the DoFn declares, or 0.
func (h *Harness[In, Out]) Counter(name string) (n int64) {
	h.metrics.EachCounter(func(c string, v int64) {
		if c == name {
			n = v
		}
	})
	return n
}

// Distribution sums up a distribution that the DoFn declares.
func (h *Harness[In, Out]) Distribution(name string) (s direct.Summary) {
	h.metrics.EachDistribution(func(d string, v kernel.Summary) {
		if d == name {
			s = v
		}
	})
	return s
}
