package sdk

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// KeyedDecl is what a KeyedDoFn's Declare is given: what a Decl has, and cells (package state) and timers.
type KeyedDecl = kernel.KeyedDecl

// Timer is one named timer of a key and window, made by EventTimer or ProcessingTimer. At most one time is pending.
//
//	Set(at time.Time, opts ...TimerOption)      fires once it is at or past at, to the next millisecond, instead of at any time set before
//	SetIn(d time.Duration, opts ...TimerOption) fires at a distance from now, or from the element's timestamp
//	Clear()                                     does not fire
type Timer = kernel.Timer

// TimerFamily is any number of timers of a key and window, up to 10,000, each with a tag of its own. Its methods are those of
// Timer, with the tag first.
type TimerFamily = kernel.TimerFamily

// TimerOption says more of a timer that is being set; see OutputAt.
type TimerOption = kernel.TimerOption

// OutputAt makes the handler of the timer that is being set have the timestamp t, and so what it emits. While the timer is
// pending, the watermark of the step's outputs does not pass t, so that this is not late. An element or another timer of the key and
// window may EmitAt(t) too, before it clears the timer. t must not be before the timestamp of the element, or timer, that sets
// it; one after the end of the window becomes the window's last millisecond.
func OutputAt(t time.Time) TimerOption { return kernel.OutputAt(t) }

// KeyedDoFn processes elements with state and timers of their key and window. There is no stateful DoFn
// without a key: it does not compile. Cells and timers are declared in Declare and kept in fields, so that it
// has a pointer receiver; each subtask works on a shallow copy of the value given to ParDoPerKey. It may also have Check, Setup,
// FinishBundle and Teardown, as a DoFn may.
type KeyedDoFn[K comparable, V, Out any] interface {
	Declare(d *KeyedDecl)
	ProcessElement(c *ProcessContext, key K, v V, emit *Emitter[Out]) error
}

// EventTimer declares a timer of event time with its handler, usually a method value: it is called once
// the watermark is at or past the time that was set. K and Out are those of the step.
//
// The handler's timestamp is the time that was set, unless OutputAt says another. The timer does not hold the watermark, and need
// not: that of the step's outputs passes this time only after the handler. With an earlier OutputAt it holds it there.
//
// A time that the watermark has passed already fires right after the batch of the element, or handler, that sets it. So does a timer
// relative to an element that is behind the watermark, which a step cannot see: a timer that is to clean up after it may find
// that it is the newest there is. What the handler emits is then as late as the time that was set, or the element if that is earlier.
func EventTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	return kernel.EventTimer(d, name, f)
}

// ProcessingTimer declares a timer of processing time with its handler: it is called once the clock is at or past the time
// that was set, or at once when the life of the window ends, or the input.
//
// The handler's timestamp is that of the element, or timer, that set it, unless OutputAt says another. While the timer is
// pending, the watermark of the step's outputs does not pass it. So a timer that sets itself again and again holds all later
// time back, unless OutputAt moves its timestamp on; with OutputAt(c.Window().End()) it holds nothing back as long as its
// window is open.
func ProcessingTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	return kernel.ProcessingTimer(d, name, f)
}

// EventTimerFamily declares timers of event time that are told apart by a tag, which the handler is given.
func EventTimerFamily[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, string, *Emitter[Out]) error) TimerFamily {
	return kernel.EventTimerFamily(d, name, f)
}

// ProcessingTimerFamily declares timers of processing time that are told apart by a tag, which the handler is given.
func ProcessingTimerFamily[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, string, *Emitter[Out]) error) TimerFamily {
	return kernel.ProcessingTimerFamily(d, name, f)
}

// OnWindowExpiry declares what is called for each key with state when its window's life ends, before the
// state goes. Its timestamp is the last millisecond of the window, as in Beam. What it emits is in time for windows behind the step
// that live as long: with allowed lateness it may be a late pane there, and WindowInto needs the same allowed lateness.
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
	if fn, merges := window.Merging(in.info().windowing.Fn); merges {
		p.errorf(name, "its input is in windows that merge, %s, and its state would have to merge with them: aggregate before it, or window its input into Global and let timers end the session", window.Describe(fn))
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
