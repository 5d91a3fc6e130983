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
type Harness[In, Out any] struct{ host[Out] }

// host runs the operator of a harness.
type host[Out any] struct {
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
	h := &Harness[In, Out]{}
	h.start(t, fn, &kernel.OpenContext{}, func(p *sdk.Pipeline) { sdk.ParDo("fn", sdk.Create[In]("in", p), fn) })
	return h
}

// start opens the operator of the second step that build adds, until the end of the test.
func (h *host[Out]) start(t testing.TB, fn any, c *kernel.OpenContext, build func(*sdk.Pipeline)) {
	t.Helper()
	g, err := sdk.Build(t.Name(), func(p *sdk.Pipeline) error { build(p); return nil })
	if err != nil {
		t.Fatal(err)
	}
	n := g.Nodes[1]
	h.t, h.op, h.ports, h.open = t, n.New(), n.Ports, true
	c.Context, c.Step, c.Subtask = t.Context(), n.Name, connector.Subtask{Parallelism: 1}
	c.Metrics, c.Logger = &h.metrics, slog.New(slog.DiscardHandler)
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
}

// ProcessElement calls the DoFn and returns its error. The element is in the global window unless it names
// another, and of no pane unless it names one.
func (h *Harness[In, Out]) ProcessElement(e Element[In]) error {
	if !h.open {
		return errors.New("ptest: ProcessElement after Teardown")
	}
	return userError(h.op.Process(0, &kernel.Rows[In]{E: []kernel.Element[In]{rowOf(e, e.Value)}}))
}

// rowOf is an element as operators see it, with another value.
func rowOf[T, V any](e Element[T], v V) kernel.Element[V] {
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
	return kernel.Element[V]{Value: v, Time: at, Window: e.Window, Pane: pane}
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

// FinishBundle calls the DoFn's FinishBundle, if it has one, as before a watermark or checkpoint. Without an
// element since the last time it does nothing.
func (h *host[Out]) FinishBundle() error {
	if f, ok := h.op.(kernel.Flusher); ok && h.open {
		return userError(f.Flush())
	}
	return nil
}

// Teardown calls the DoFn's Teardown, if it has one. Only the first call does something.
func (h *host[Out]) Teardown() error {
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
func (h *host[Out]) Elements() []Element[Out] {
	return take[Out](h.t, h.outs[0], "its main output")
}

// Output is Elements without all but the values.
func (h *host[Out]) Output() []Out { return valuesOf(h.Elements()) }

// Outputs is a Harness or a KeyedHarness.
type Outputs interface {
	output(name string) (testing.TB, *recorder)
}

func (h *host[Out]) output(name string) (testing.TB, *recorder) {
	h.t.Helper()
	i := slices.IndexFunc(h.ports, func(p kernel.Port) bool { return p.Name == name })
	if i < 1 {
		h.t.Fatalf("ptest: the DoFn declares no output %q", name)
	}
	return h.t, h.outs[i]
}

// OutputOf takes the values that a DoFn has emitted to the output that it declares by that name. A name or
// type that it does not declare fails the test.
func OutputOf[T any](h Outputs, name string) []T {
	t, r := h.output(name)
	t.Helper()
	return valuesOf(take[T](t, r, "output "+name))
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
func (h *host[Out]) Counter(name string) int64 { return h.metrics.Figures().Counters[name] }

// Distribution sums up a distribution that the DoFn declares.
func (h *host[Out]) Distribution(name string) direct.Summary {
	return h.metrics.Figures().Distributions[name]
}

// Gauge is the last reading of a gauge that the DoFn declares; false if it has none.
func (h *host[Out]) Gauge(name string) (value int64, ok bool) {
	r, ok := h.metrics.Figures().Gauges[name]
	return r.Value, ok
}

// Histogram is what a histogram that the DoFn declares has counted.
func (h *host[Out]) Histogram(name string) direct.Buckets {
	return h.metrics.Figures().Histograms[name]
}
