package kernel

import (
	"strings"

	"github.com/millstream/millstream/internal/eventtime"
)

func toValidUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// stateless is embedded by operators that neither fire nor keep anything.
type stateless struct{}

func (stateless) Watermark(eventtime.Time, int) (bool, error) { return true, nil }
func (stateless) Close() error                                { return nil }

// mapOp applies a function to each value.
type mapOp[In, Out any] struct {
	stateless
	f   func(In) Out
	out Output
	buf Rows[Out]
}

// NewMap returns an operator that replaces each value by f of it.
func NewMap[In, Out any](f func(In) Out) Operator {
	if same, ok := any(f).(func(In) In); ok {
		return &mapInPlaceOp[In]{f: same}
	}
	return &mapOp[In, Out]{f: f}
}

// mapInPlaceOp is mapOp for a function that keeps the type: no row moves.
type mapInPlaceOp[T any] struct {
	stateless
	f   func(T) T
	out Output
}

func (m *mapInPlaceOp[T]) Open(c *OpenContext) error {
	m.out = c.Outputs[0]
	return nil
}

func (m *mapInPlaceOp[T]) Process(_ int, b Batch) error {
	rows, f := b.(*Rows[T]).E, m.f
	for i := range rows {
		rows[i].Value = f(rows[i].Value)
	}
	return m.out.Emit(b)
}

func (m *mapOp[In, Out]) Open(c *OpenContext) error {
	m.out = c.Outputs[0]
	return nil
}

func (m *mapOp[In, Out]) Process(_ int, b Batch) error {
	in := b.(*Rows[In]).E
	m.buf.E = resize(m.buf.E, len(in))
	out, f := m.buf.E[:len(in)], m.f
	for i := range in {
		e, o := &in[i], &out[i]
		o.Value = f(e.Value)
		o.Time, o.Window, o.Pane = e.Time, e.Window, e.Pane
	}
	return m.out.Emit(&m.buf)
}

// mapPaneOp is mapOp for a function that looks at the pane too.
type mapPaneOp[In, Out any] struct {
	stateless
	f   func(In, Pane) Out
	out Output
	buf Rows[Out]
}

// NewMapPane returns an operator that replaces each value by f of it and its pane.
func NewMapPane[In, Out any](f func(In, Pane) Out) Operator { return &mapPaneOp[In, Out]{f: f} }

func (m *mapPaneOp[In, Out]) Open(c *OpenContext) error {
	m.out = c.Outputs[0]
	return nil
}

func (m *mapPaneOp[In, Out]) Process(_ int, b Batch) error {
	in := b.(*Rows[In]).E
	m.buf.E = resize(m.buf.E, len(in))
	out := m.buf.E[:len(in)]
	for i := range in {
		e := &in[i]
		out[i] = Element[Out]{m.f(e.Value, e.Pane), e.Time, e.Window, e.Pane}
	}
	return m.out.Emit(&m.buf)
}

func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, max(n, BatchSize))
	}
	return s[:n]
}

// filterOp keeps the elements for which a function is true, in place.
type filterOp[T any] struct {
	stateless
	keep func(T) bool
	out  Output
}

// NewFilter returns an operator that passes the values for which keep is true.
func NewFilter[T any](keep func(T) bool) Operator { return &filterOp[T]{keep: keep} }

func (f *filterOp[T]) Open(c *OpenContext) error {
	f.out = c.Outputs[0]
	return nil
}

func (f *filterOp[T]) Process(_ int, b Batch) error {
	r := b.(*Rows[T])
	n := 0
	for i := range r.E {
		if f.keep(r.E[i].Value) {
			if n != i {
				r.E[n] = r.E[i]
			}
			n++
		}
	}
	all := r.E
	r.E = r.E[:n]
	err := f.out.Emit(r)
	r.E = all
	return err
}

// passOp passes batches on: a step that only changes how they travel (Flatten, Reshuffle).
type passOp struct {
	stateless
	out Output
}

// NewPass returns an operator that passes every input on.
func NewPass() Operator { return &passOp{} }

func (p *passOp) Open(c *OpenContext) error {
	p.out = c.Outputs[0]
	return nil
}

func (p *passOp) Process(_ int, b Batch) error { return p.out.Emit(b) }
