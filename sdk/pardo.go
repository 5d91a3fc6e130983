package sdk

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/connector"
)

// ProcessContext describes the element that a step is processing. It is reused: do not keep it.
//
//	Timestamp() time.Time        event time, in UTC
//	Window() window.Window
//	Pane() window.Pane           which firing of an aggregation made the element
//	Context() context.Context    cancelled when the subtask stops; may be handed on
//	Logger() *slog.Logger        with the names of step and subtask
type ProcessContext = kernel.ProcessContext

// Emitter takes the outputs of a step, during the call that it was passed to. What is emitted is given away:
// it must not be changed afterwards.
//
//	Emit(v T)                                       with the timestamp, window and pane of the element
//	EmitAt(t time.Time, v T)                        with another timestamp, not before the element's; or, in a ParDoPerKey, not before
//	                                                what a pending timer of its key holds (see OutputAt)
//	EmitIn(w window.Window, t time.Time, v T)       with another window too, which must not be empty
//
// FinishBundle has no element: it emits with EmitIn alone, at a time that is not before the earliest timestamp of the bundle, or
// not before the watermark.
type Emitter[T any] = kernel.Emitter[T]

// Subtask is one of the parallel instances of a step.
type Subtask = connector.Subtask

// Decl is what a DoFn's Declare is given; NewOutput declares extra outputs with it.
//
//	Counter(name string) *Counter              has Inc(d int64)
//	Distribution(name string) *Distribution    has Observe(v int64)
//	Gauge(name string) *Gauge                  has Set(v int64)
//	Histogram(name string) *Histogram          has Observe(v int64)
//
// Names are of one step; two of one kind and name are one metric. What is no printable text in them is replaced, and they are
// cut at 200 bytes.
type Decl = kernel.Decl

// AnyDecl is what NewOutput takes: a *Decl, or what embeds one.
type AnyDecl = kernel.AnyDecl

// Metrics are figures that a step's code counts, in one subtask each. Reports merge those of all subtasks, since the attempt
// began: a restored job counts from nothing. Counter is a count. Distribution sums up observed values. Gauge is a value that
// stands until the next: of several subtasks the latest, by processing time. Histogram tells quantiles of observed values, within
// a sixteenth; it costs 4 KiB.
//
//	Counter:       Inc(d int64), Value() int64
//	Distribution:  Observe(v int64), Value(), which has Count, Sum, Min and Max
//	Gauge:         Set(v int64)
//	Histogram:     Observe(v int64), Value(), which has Count, Sum, Min, Max and Quantile(q float64)
type (
	Counter      = kernel.Counter
	Distribution = kernel.Distribution
	Gauge        = kernel.Gauge
	Histogram    = kernel.Histogram
)

// Failed is an input on which user code returned an error, as an element of the collection of ErrorsTo.
//
//	Value T       the input
//	Err   string  the error's text
type Failed[T any] = kernel.Failed[T]

// DoFn processes elements one at a time. The value given to ParDo is a prototype: each subtask works on a
// shallow copy of its own. It may have further methods:
//
//	Check() error                                                 what is wrong with its settings, and what to do; called when the pipeline is built
//	Declare(*sdk.Decl)                                            outputs and metrics; also called when the pipeline is built
//	Setup(context.Context, sdk.Subtask) error                     once, before the first element
//	FinishBundle(context.Context, *sdk.Emitter[Out]) error        after elements, before any watermark or checkpoint: emit, by EmitIn, what was kept back
//	Teardown() error                                              once, at the end, also after an error
type DoFn[In, Out any] interface {
	ProcessElement(c *ProcessContext, in In, emit *Emitter[Out]) error
}

// NewOutput declares an extra output. The step's caller collects it with OutputTo.
func NewOutput[T any](d AnyDecl, name string) *Emitter[T] { return kernel.NewOutput[T](d, name) }

// StepOption refines a step that runs user code.
type StepOption interface{ applyStep(*stepConfig) }

type stepConfig struct {
	outputs          []outputTo
	lateTo, errorsTo *outputTo
	async            asyncConfig
	views            []*viewUse
	wrong            string // a mistake in the options, for addWithOutputs to report
}

func (c *stepConfig) once(to **outputTo, o outputTo, option string) {
	if *to != nil {
		c.wrong = option + " is given twice: leave one out"
	}
	if o.null {
		c.wrong = option + nowhere
	}
	*to = &o
}

// outputTo is an OutputTo or ErrorsTo, its type erased.
type outputTo struct {
	name string
	typ  reflect.Type
	port func(*Pipeline) kernel.Port
	set  func(p *Pipeline, n *kernel.Node, port int)
	null bool // it points nowhere, which is a mistake
}

// configOf applies options. What they point to belongs to p from now on, but is not usable before the step
// has been added: so that the first mistake is reported, and no other because of it.
func configOf(p *Pipeline, opts []StepOption) (c stepConfig) {
	for _, o := range opts {
		o.applyStep(&c)
	}
	for i, o := range c.outputs {
		o.set(p, nil, 0)
		if slices.ContainsFunc(c.outputs[:i], func(before outputTo) bool { return before.name == o.name }) {
			c.wrong = fmt.Sprintf("OutputTo(%q) is given twice: leave one out", o.name)
		}
		if o.null {
			c.wrong = fmt.Sprintf("OutputTo(%q)%s", o.name, nowhere)
		}
	}
	for _, o := range []*outputTo{c.lateTo, c.errorsTo} {
		if o != nil {
			o.set(p, nil, 0)
		}
	}
	return c
}

type stepOption func(*stepConfig)

func (f stepOption) applyStep(c *stepConfig) { f(c) }

func newOutputTo[T any](name string, dst *PCollection[T]) outputTo {
	o := outputTo{
		name: name, typ: reflect.TypeFor[T](), port: func(p *Pipeline) kernel.Port { return port[T](p, name) },
		set: func(p *Pipeline, n *kernel.Node, i int) { *dst = PCollection[T]{p: p, node: n, port: i} },
	}
	if dst == nil {
		o.null, o.set = true, func(*Pipeline, *kernel.Node, int) {}
	}
	return o
}

// nowhere follows the name of an option that sets a collection.
const nowhere = " has a nil pointer: declare var out sdk.PCollection[…] and pass &out"

// OutputTo sets dst to the extra output that the DoFn declares by that name.
func OutputTo[T any](name string, dst *PCollection[T]) StepOption {
	o := newOutputTo(name, dst)
	return stepOption(func(c *stepConfig) { c.outputs = append(c.outputs, o) })
}

// ErrorsTo sets dst to the inputs on which the step's code returns an error. Without it an error fails
// the job. What was emitted before the error stays emitted.
func ErrorsTo[T any](dst *PCollection[Failed[T]]) StepOption {
	o := newOutputTo("errors", dst)
	return stepOption(func(c *stepConfig) { c.once(&c.errorsTo, o, "ErrorsTo") })
}

// ParDo calls fn for each element.
func ParDo[In, Out any, F DoFn[In, Out]](name string, in PCollection[In], fn F, opts ...StepOption) PCollection[Out] {
	config := configOf(in.p, opts)
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	in = whole(name, 0, in)
	err := checkLifecycle[Out, *Decl](fn)
	if _, ok := any(fn).(interface{ Declare(*Decl) }); ok && err == nil {
		err = checkDeclare(fn)
	}
	if err != nil {
		in.p.errorf(name, "%w", err)
		return PCollection[Out]{p: in.p}
	}
	return parDo(name, in, fmt.Sprintf("%T", fn), func() kernel.ParDoFns[In, Out] {
		f := prototypeCopy(fn)
		fns := kernel.ParDoFns[In, Out]{Process: f.ProcessElement}
		if d, ok := any(f).(interface{ Declare(*Decl) }); ok {
			fns.Declare = d.Declare
		}
		fns.Setup, fns.FinishBundle, fns.Teardown = lifecycleOf[Out](f)
		return fns
	}, config)
}

// ParDoFunc calls f for each element. f is called by all subtasks at once.
func ParDoFunc[In, Out any](name string, in PCollection[In], f func(*ProcessContext, In, *Emitter[Out]) error, opts ...StepOption) PCollection[Out] {
	config := configOf(in.p, opts)
	if f == nil {
		return missing[In, Out](name, in)
	}
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	in = whole(name, 0, in)
	return parDo(name, in, "", func() kernel.ParDoFns[In, Out] { return kernel.ParDoFns[In, Out]{Process: f} }, config)
}

// parDo adds a step that runs user code. fn sees windows, unless in is in slices.
func parDo[In, Out any](name string, in PCollection[In], fn string, fns func() kernel.ParDoFns[In, Out], config stepConfig) PCollection[Out] {
	if config.lateTo != nil && len(config.views) == 0 {
		in.p.errorf(name, "LateTo is for steps that keep state by window; this one drops nothing")
		return PCollection[Out]{p: in.p}
	}
	code := fns()
	if code.FinishBundle != nil && in.info().retracts {
		in.p.errorf(name, "its input may have retractions, and what FinishBundle emits takes nothing back: emit in ProcessElement, or take its input from Changes")
		return PCollection[Out]{p: in.p}
	}
	var decl Decl
	if d := code.Declare; d != nil {
		d(&decl)
	}
	n := &kernel.Node{
		Kind: "pardo", Inputs: []kernel.Edge{forward(in)}, Fn: fn, Spec: []string{"fn=" + cmp.Or(fn, "func")},
		New: func() kernel.Operator { return kernel.NewParDo(fns(), config.errorsTo != nil) },
	}
	if !addViews(name, n, in, config, len(decl.Outputs)) {
		return PCollection[Out]{p: in.p}
	}
	if !addWithOutputs[In, Out](name, n, in.p, in.info(), config, decl.Outputs) {
		return PCollection[Out]{p: in.p}
	}
	return PCollection[Out]{p: in.p, node: n}
}

// addWithOutputs adds the node of a step that runs user code and gives its caller the extra outputs: those
// that it declares, then the late elements of a keyed step, then the inputs that failed.
func addWithOutputs[In, Out any](name string, n *kernel.Node, p *Pipeline, info collection, config stepConfig, declared []kernel.DeclaredOutput) bool {
	if o := config.async.option; o != "" && n.Kind != "async" {
		p.errorf(name, "%s is for MapAsync: leave it out", o)
		return false
	}
	if config.wrong != "" {
		p.errorf(name, "%s", config.wrong)
		return false
	}
	n.Ports = []kernel.Port{port[Out](p, "out")}
	var set []func()
	outs := []collection{info}
	extra := func(pt kernel.Port) int {
		n.Ports = append(n.Ports, pt)
		outs = append(outs, info)
		return len(n.Ports) - 1
	}
	taken := make([]bool, len(config.outputs))
	for k, d := range declared {
		if slices.ContainsFunc(declared[:k], func(o kernel.DeclaredOutput) bool { return o.Name == d.Name }) {
			p.errorf(name, "its DoFn declares two outputs %q: give each a name of its own", d.Name)
			return false
		}
		pt := kernel.Port{Name: d.Name, Type: d.Type.String()}
		i := slices.IndexFunc(config.outputs, func(o outputTo) bool { return o.name == d.Name })
		switch {
		case i < 0:
			extra(pt)
		case config.outputs[i].typ != d.Type:
			taken[i] = true
			p.errorf(name, "OutputTo(%q) wants a *PCollection[%v], not [%v]", d.Name, d.Type, config.outputs[i].typ)
		default:
			taken[i] = true
			at := extra(config.outputs[i].port(p))
			set = append(set, func() { config.outputs[i].set(p, n, at) })
		}
	}
	for i, o := range config.outputs {
		if !taken[i] {
			p.errorf(name, "OutputTo(%q): its DoFn declares no such output in Declare", o.name)
		}
	}
	for _, o := range []struct {
		option string
		to     *outputTo
		want   reflect.Type
	}{{"LateTo", config.lateTo, reflect.TypeFor[In]()}, {"ErrorsTo", config.errorsTo, reflect.TypeFor[Failed[In]]()}} {
		if o.to == nil {
			continue
		}
		if o.to.typ != o.want {
			p.errorf(name, "%s wants a *PCollection[%v], not [%v]", o.option, o.want, o.to.typ)
			return false
		}
		at := extra(o.to.port(p))
		set = append(set, func() { o.to.set(p, n, at) })
	}
	if !p.add(name, n, outs...) {
		return false
	}
	for _, f := range set {
		f()
	}
	return true
}

// lifecycleOf returns the optional methods of a DoFn that any step may have; nil for those that it has not.
func lifecycleOf[Out any](f any) (setup func(context.Context, Subtask) error, finish func(context.Context, *Emitter[Out]) error, teardown func() error) {
	if s, ok := f.(interface {
		Setup(context.Context, Subtask) error
	}); ok {
		setup = s.Setup
	}
	if b, ok := f.(interface {
		FinishBundle(context.Context, *Emitter[Out]) error
	}); ok {
		finish = b.FinishBundle
	}
	if t, ok := f.(interface{ Teardown() error }); ok {
		teardown = t.Teardown
	}
	return setup, finish, teardown
}

// prototypeCopy is a shallow copy of what fn points to, or fn itself.
func prototypeCopy[F any](fn F) F {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fn
	}
	c := reflect.New(v.Type().Elem())
	c.Elem().Set(v.Elem())
	return c.Interface().(F)
}

// checkDeclare refuses a Declare that keeps what it declares in a copy of its DoFn.
func checkDeclare(fn any) error {
	t := reflect.TypeOf(fn)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, ok := t.MethodByName("Declare"); ok && t.Kind() == reflect.Struct {
		return fmt.Errorf("%v.Declare has a value receiver, so that what it keeps in fields is lost: give it a pointer receiver, func (f *%s) Declare, and pass &%v{…}", t, t.Name(), t)
	}
	return nil
}

// checkLifecycle refuses a method that has a lifecycle name and a signature that nothing would call, and what fn itself refuses. D is
// what Declare takes.
func checkLifecycle[Out, D any](fn any) error {
	want := map[string]reflect.Type{
		"Declare":      reflect.TypeFor[func(D)](),
		"Setup":        reflect.TypeFor[func(context.Context, Subtask) error](),
		"FinishBundle": reflect.TypeFor[func(context.Context, *Emitter[Out]) error](),
		"Teardown":     reflect.TypeFor[func() error](),
	}
	v := reflect.ValueOf(fn)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("its DoFn is a nil %T", fn)
	}
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		if w, ok := want[m.Name]; ok && v.Method(i).Type() != w {
			return fmt.Errorf("%T.%s is a %s and would never be called: make it a %s, or rename it", fn, m.Name, kernel.TypeText(v.Method(i).Type()), kernel.TypeText(w))
		}
	}
	if v.Kind() == reflect.Struct {
		p := reflect.PointerTo(v.Type())
		for name := range want {
			if _, ok := p.MethodByName(name); ok {
				if _, ok := v.Type().MethodByName(name); !ok {
					return fmt.Errorf("%T.%s has a pointer receiver and would never be called: pass &%T{…}", fn, name, fn)
				}
			}
		}
	}
	if c, ok := any(fn).(interface{ Check() error }); ok {
		return c.Check()
	}
	return nil
}

// Print writes each element with its timestamp and window to standard output, and passes it on. A retraction has a minus and a
// space before it. It is for a first look: output comes again after a failure, and in no particular order.
func Print[T any](name string, in PCollection[T]) PCollection[T] { return printTo(name, in, os.Stdout) }

func printTo[T any](name string, in PCollection[T], w io.Writer) PCollection[T] {
	return ParDoFunc(name, in, func(c *ProcessContext, v T, emit *Emitter[T]) error {
		mark := ""
		if c.Pane().Retraction {
			mark = "- "
		}
		_, err := fmt.Fprintf(w, "%s%+v @%s %v\n", mark, v, c.Timestamp().Format("2006-01-02T15:04:05.000Z07:00"), c.Window())
		emit.Emit(v)
		return err
	})
}
