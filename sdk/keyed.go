package sdk

import (
	"fmt"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// KeyedDecl is what a KeyedDoFn's Declare is given: what a Decl has, and cells (package state) and timers.
type KeyedDecl = kernel.KeyedDecl

// Timer is one named timer of a key and window, made by EventTimer. At most one time is pending.
//
//	Set(at time.Time)    fires once the watermark is at or past at, instead of at any time set before
//	Clear()              does not fire
type Timer = kernel.Timer

// KeyedDoFn processes elements with state and timers of their key and window. There is no stateful DoFn
// without a key: it does not compile. Cells and timers are declared in Declare and kept in fields, so that it
// has a pointer receiver; each subtask works on a shallow copy of the value given to ParDoPerKey. It may also have Setup, FinishBundle
// and Teardown, as a DoFn may.
type KeyedDoFn[K comparable, V, Out any] interface {
	Declare(d *KeyedDecl)
	ProcessElement(c *ProcessContext, key K, v V, emit *Emitter[Out]) error
}

// EventTimer declares a timer of event time with its handler, usually a method value: it is called once
// the watermark is at or past the time that was set. K and Out are those of the step.
func EventTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	return kernel.EventTimer(d, name, f)
}

// OnWindowExpiry declares what is called for each key with state when its window's life ends, before the
// state goes.
func OnWindowExpiry[K comparable, Out any](d *KeyedDecl, f func(*ProcessContext, K, *Emitter[Out]) error) {
	kernel.OnWindowExpiry(d, f)
}

// ParDoPerKey calls fn for each element with the state of its key and window. State is released once the
// watermark is past the window's end and the allowed lateness; elements that come after are dropped and
// counted, or go to LateTo.
func ParDoPerKey[K comparable, V, Out any, F KeyedDoFn[K, V, Out]](name string, in PCollection[KV[K, V]], fn F, opts ...StepOption) PCollection[Out] {
	out, config := PCollection[Out]{p: in.p}, configOf(in.p, opts)
	if !in.usable(name) {
		return out
	}
	in = whole(name, 0, in)
	p := in.p
	if f, ok := in.info().windowing.Fn.(window.SessionsFn); ok && !f.Merged {
		p.errorf(name, "its input is in sessions, which merge, and its state would have to: aggregate before it, or window its input into Global and let timers end the session")
		return out
	}
	if in.info().retracts {
		p.errorf(name, "its input may have retractions, of which its state knows nothing: take it from Changes")
		return out
	}
	if err := checkLifecycle[Out, *KeyedDecl](fn); err != nil {
		p.errorf(name, "%w", err)
		return out
	}
	key, err := coder.KeyOf[K](p.coders...)
	if err != nil {
		p.errorf(name, "its key: %w", err)
		return out
	}
	var decl KeyedDecl
	prototypeCopy(fn).Declare(&decl)
	err = kernel.CheckKeyed[K, Out](&decl)
	if err == nil && (len(decl.StateParts()) > 0 || len(decl.Outputs) > 0) {
		err = checkDeclare(fn)
	}
	if err != nil {
		p.errorf(name, "%w", err)
		return out
	}
	w := in.info().windowing
	n := &kernel.Node{
		Kind: "keyed pardo", Keyed: true, Inputs: []kernel.Edge{keyed(in, key)},
		Fn: fmt.Sprintf("%T", fn), Expires: decl.Expires(), LateTo: config.lateTo != nil,
		Spec:  []string{fmt.Sprintf("fn=%T", fn), "windowing=" + w.String()},
		State: append([]kernel.StatePart{encodedBy("key", key.Spec())}, decl.StateParts()...),
		New: func() kernel.Operator {
			return kernel.NewKeyedParDo(kernel.KeyedSpec[K, V, Out]{
				Fns: keyedFns[K, V, Out](prototypeCopy(fn)), Key: key, Lateness: w.AllowedLateness,
				LateTo: config.lateTo != nil, ErrorsTo: config.errorsTo != nil,
			})
		},
	}
	if !addViews(name, n, in, config, len(decl.Outputs)) {
		return out
	}
	if !addWithOutputs[KV[K, V], Out](name, n, p, in.info(), config, decl.Outputs) {
		return out
	}
	out.node = n
	return out
}

func keyedFns[K comparable, V, Out any, F KeyedDoFn[K, V, Out]](f F) kernel.KeyedFns[K, V, Out] {
	fns := kernel.KeyedFns[K, V, Out]{Declare: f.Declare, Process: f.ProcessElement}
	fns.Setup, fns.FinishBundle, fns.Teardown = lifecycleOf[Out](f)
	return fns
}
