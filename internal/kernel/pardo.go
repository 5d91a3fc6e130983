package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
)

// UserError is an error that user code returned for an element.
type UserError struct {
	Element string // printed and cut
	Err     error
}

func (e *UserError) Error() string {
	if e.Element == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("element %s: %v", e.Element, e.Err)
}
func (e *UserError) Unwrap() error { return e.Err }

// ProcessContext describes the element that a step is processing. It is reused for the next one: do not
// keep it, and do not hand it to another goroutine.
type ProcessContext struct {
	at     elementHeader
	ctx    context.Context
	logger *slog.Logger
	views  []any // see ReadView
}

// elementHeader is an element without its value.
type elementHeader struct {
	time   eventtime.Time
	window window.Window
	pane   Pane
}

// Context is cancelled when the subtask stops. It may be handed on.
func (c *ProcessContext) Context() context.Context { return c.ctx }

// Timestamp is the event time of the element, in UTC.
func (c *ProcessContext) Timestamp() time.Time { return c.at.time.Time() }

// Window is the window of the element.
func (c *ProcessContext) Window() window.Window { return c.at.window }

// Pane tells which firing of an aggregation made the element.
func (c *ProcessContext) Pane() window.Pane { return c.at.pane.Info() }

// Logger logs with the names of step and subtask.
func (c *ProcessContext) Logger() *slog.Logger { return c.logger }

// Emitter takes the outputs of a step. Emit gives the value away: it must not be changed afterwards. An
// Emitter works only during the call that it was passed to.
type Emitter[T any] struct {
	rows Rows[T]
	out  Output
	at   *elementHeader        // of the element being processed; nil between calls, and in FinishBundle
	end  *bundle               // in FinishBundle, what it finishes; else nil
	held func() eventtime.Time // what the watermark of the output does not pass during the call, besides at.time; nil: nothing
	err  error

	pointers bool // T holds some
}

// Emit emits v with the timestamp, window and pane of the element being processed.
func (e *Emitter[T]) Emit(v T) {
	at := e.at
	if at == nil {
		e.outside()
		return
	}
	n := len(e.rows.E)
	if n == cap(e.rows.E) {
		e.room()
	}
	e.rows.E = e.rows.E[:n+1]
	r := &e.rows.E[n] // in place: a row is large
	r.Value, r.Time, r.Window, r.Pane = v, at.time, at.window, at.pane
	if n+1 >= BatchSize && full(e.rows.E) {
		e.flush()
	}
}

// room makes room for a batch at once, once output is not a trickle.
func (e *Emitter[T]) room() {
	e.rows.E = slices.Grow(e.rows.E, min(BatchSize, 8+7*len(e.rows.E)))
}

// EmitAt emits v with another timestamp, which must not be before that of the element: the watermark may
// have passed it. In a keyed step it may be as early as what a pending timer of the key and window holds the watermark at.
func (e *Emitter[T]) EmitAt(t time.Time, v T) {
	if e.at == nil {
		e.outside()
		return
	}
	e.EmitIn(e.at.window, t, v)
}

// EmitIn emits v with another window and timestamp; see EmitAt. It is what FinishBundle emits with: at a time that is not before
// the watermark of the output, or before all elements of the bundle.
func (e *Emitter[T]) EmitIn(w window.Window, t time.Time, v T) {
	et, pane := eventtime.OfElement(t), NoPane
	switch {
	case w.StartTime() >= w.EndTime():
		e.fail(fmt.Errorf("emit in window %v, which has no time in it: it must end after it starts", w))
		return
	case e.at != nil:
		if pane = e.at.pane; et < e.at.time && (e.held == nil || et < e.held()) {
			e.fail(fmt.Errorf("emit at %v, before the element's timestamp %v: it could be late", et, e.at.time))
			return
		}
	case e.end == nil:
		e.outside()
		return
	case et < min(e.end.watermark, e.end.first):
		e.fail(fmt.Errorf("FinishBundle emits at %v, before the watermark %v and before %v, the earliest timestamp of the bundle: it would be late", et, e.end.watermark, e.end.first))
		return
	}
	e.rows.E = append(e.rows.E, Element[T]{v, et, w, pane})
	if full(e.rows.E) {
		e.flush()
	}
}

func (e *Emitter[T]) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// outside is for what needs an element when there is none.
func (e *Emitter[T]) outside() {
	if e.end != nil {
		e.fail(errors.New("FinishBundle has no element whose time and window it could emit with: use EmitIn"))
		return
	}
	e.fail(errors.New("an Emitter was used outside the call that it was passed to"))
}

// bundle is what has been processed since FinishBundle.
type bundle struct {
	open      bool           // something has
	watermark eventtime.Time // of the outputs when it began: they have been told no later one
	first     eventtime.Time // the least timestamp in it
}

// add counts what has timestamp t. w is the watermark of the outputs.
func (b *bundle) add(t, w eventtime.Time) {
	if !b.open {
		*b = bundle{true, w, t}
	}
	b.first = min(b.first, t)
}

func (e *Emitter[T]) flush() error {
	if len(e.rows.E) > 0 {
		if e.err == nil {
			e.err = e.out.Emit(&e.rows)
		}
		if e.pointers {
			clear(e.rows.E) // what the values point to is not ours to keep
		}
		e.rows.E = e.rows.E[:0]
	}
	return e.err
}

// emitter is an Emitter of any type, to its operator.
type emitter interface {
	open(out Output)
	hold(held func() eventtime.Time)
	begin(at *elementHeader)
	finish(b *bundle)
	flush() error
}

func (e *Emitter[T]) open(out Output)                 { e.out = out }
func (e *Emitter[T]) hold(held func() eventtime.Time) { e.held = held }
func (e *Emitter[T]) begin(at *elementHeader)         { e.at, e.end = at, nil }
func (e *Emitter[T]) finish(b *bundle)                { e.at, e.end = nil, b }

// Decl is what a step may declare: extra outputs and metrics. Declare is called once when the pipeline is
// built, to learn what there is, and once in each subtask.
type Decl struct {
	metrics *Metrics // nil while the pipeline is built
	now     func() eventtime.Time
	Outputs []DeclaredOutput
}

// DeclaredOutput is an extra output of a step.
type DeclaredOutput struct {
	Name    string
	Type    reflect.Type
	emitter emitter
}

// AnyDecl is a *Decl or a *KeyedDecl.
type AnyDecl interface{ decl() *Decl }

func (d *Decl) decl() *Decl { return d }

// Counter declares a counter.
func (d *Decl) Counter(name string) *Counter {
	if d.metrics == nil {
		return new(Counter)
	}
	return d.metrics.Counter(name)
}

// Distribution declares a distribution.
func (d *Decl) Distribution(name string) *Distribution {
	if d.metrics == nil {
		return new(Distribution)
	}
	return d.metrics.Distribution(name)
}

// Histogram declares a histogram.
func (d *Decl) Histogram(name string) *Histogram {
	if d.metrics == nil {
		return new(Histogram)
	}
	return d.metrics.Histogram(name)
}

// Gauge declares a gauge.
func (d *Decl) Gauge(name string) *Gauge {
	if d.metrics == nil {
		return new(Gauge)
	}
	return d.metrics.Gauge(name, d.now)
}

// NewOutput declares an extra output.
func NewOutput[T any](d AnyDecl, name string) *Emitter[T] {
	e := &Emitter[T]{}
	dd := d.decl()
	dd.Outputs = append(dd.Outputs, DeclaredOutput{name, reflect.TypeFor[T](), e})
	return e
}

// ParDoFns is the code of a step, bound to one subtask; nil functions are left out.
type ParDoFns[In, Out any] struct {
	Declare      func(*Decl)
	Setup        func(context.Context, connector.Subtask) error
	Process      func(*ProcessContext, In, *Emitter[Out]) error
	FinishBundle func(context.Context, *Emitter[Out]) error
	Teardown     func() error
}

// Failed is an input on which user code returned an error.
type Failed[T any] struct {
	Value T
	Err   string
}

type parDoOp[In, Out any] struct {
	fns    ParDoFns[In, Out]
	c      ProcessContext
	out    Emitter[Out]
	decl   Decl
	emits  []emitter
	failed *Emitter[Failed[In]] // if errors go to an output
	toPort bool
	set    bool
	bundle bundle
	w      eventtime.Time
}

// NewParDo returns an operator that calls user code for each element. Port 0 has its output, then come
// the declared outputs, and last, with errorsTo, the inputs on which it failed.
func NewParDo[In, Out any](fns ParDoFns[In, Out], errorsTo bool) Operator {
	return &parDoOp[In, Out]{fns: fns, toPort: errorsTo}
}

func (o *parDoOp[In, Out]) Open(c *OpenContext) error {
	o.c = ProcessContext{ctx: c.Context, logger: c.Logger, views: c.views}
	o.decl.metrics, o.decl.now, o.w = c.Metrics, c.Now, eventtime.Min
	if o.fns.Declare != nil {
		o.fns.Declare(&o.decl)
	}
	o.out.open(c.Outputs[0])
	o.emits = append(o.emits, &o.out)
	for i, d := range o.decl.Outputs {
		d.emitter.open(c.Outputs[1+i])
		o.emits = append(o.emits, d.emitter)
	}
	if o.toPort {
		o.failed = &Emitter[Failed[In]]{}
		o.failed.open(c.Outputs[len(c.Outputs)-1])
		o.emits = append(o.emits, o.failed)
	}
	if o.fns.Setup != nil {
		if err := o.fns.Setup(c.Context, c.Subtask); err != nil {
			return &UserError{Err: err}
		}
	}
	o.set = true
	return nil
}

func (o *parDoOp[In, Out]) Process(_ int, b Batch) error {
	for _, e := range o.emits {
		e.begin(&o.c.at)
	}
	rows := b.(*Rows[In]).E
	if o.fns.FinishBundle != nil {
		for i := range rows {
			o.bundle.add(rows[i].Time, o.w)
		}
	}
	process := o.fns.Process
	for i := range rows {
		r := &rows[i]
		o.c.at.time, o.c.at.window, o.c.at.pane = r.Time, r.Window, r.Pane
		if err := process(&o.c, r.Value, &o.out); err != nil {
			if o.failed == nil {
				return &UserError{Brief(r.Value), err}
			}
			o.failed.Emit(Failed[In]{r.Value, toValidUTF8(err.Error())})
		}
	}
	return o.end()
}

// end closes the emitters until the next call and sends what they hold.
func (o *parDoOp[In, Out]) end() error {
	var err error
	for _, e := range o.emits {
		e.begin(nil)
		if ferr := e.flush(); err == nil {
			err = ferr
		}
	}
	return err
}

// Flush implements Flusher: it finishes the bundle.
func (o *parDoOp[In, Out]) Flush() error {
	if !o.bundle.open {
		return nil
	}
	for _, e := range o.emits {
		e.finish(&o.bundle)
	}
	o.bundle.open = false
	if err := o.fns.FinishBundle(o.c.ctx, &o.out); err != nil {
		return &UserError{Err: fmt.Errorf("finish bundle: %w", err)}
	}
	return o.end()
}

func (o *parDoOp[In, Out]) Watermark(w eventtime.Time, _ int) (bool, error) {
	o.w = w
	return true, nil
}

func (o *parDoOp[In, Out]) Close() error {
	if o.set && o.fns.Teardown != nil {
		if err := o.fns.Teardown(); err != nil {
			return &UserError{Err: fmt.Errorf("tear down: %w", err)}
		}
	}
	return nil
}

// hasPointers says whether values of t hold memory that a stale copy would keep alive.
func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Bool, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return false
	}
	return true
}
