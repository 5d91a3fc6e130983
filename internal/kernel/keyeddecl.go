package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/state"
)

// KeyedDecl is what a keyed step may declare: what any step may, and cells and timers.
type KeyedDecl struct {
	Decl
	state.Cells
	timers []*timer
	expiry any // a keyedHandler of the step's types
	err    error
}

// timer is a declared timer. Set and Clear go to the operator, by way of host.
type timer struct {
	name    string
	index   int
	handler any
	host    timerHost // nil while the pipeline is built
}

// timerHost is the operator.
type timerHost interface {
	setTimer(i int, at eventtime.Time)
	clearTimer(i int)
	failTimer(err error)
}

// keyedHandler is called for a key when a timer fires or a window expires.
type keyedHandler[K comparable, Out any] = func(*ProcessContext, K, *Emitter[Out]) error

// Timer is one named timer of the key and window that a step is processing. At most one time is pending.
// It is a handle, cheap to copy; the zero Timer belongs to no step, and using it panics.
type Timer struct{ t *timer }

// EventTimer declares a timer of event time: f is called once the watermark is at or past the time that
// was set, with that time as the timestamp. name is unique among the step's timers and is the identity of
// what is pending. K and Out are those of the step; f is mostly a method value.
//
// See docs/design/timers.md for the order of timers, and for what happens at the end of a window.
func EventTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	t := &timer{name: name, index: len(d.timers), handler: f}
	for _, o := range d.timers {
		if o.name == name {
			d.fail(fmt.Errorf("timer %q: declared twice: names of timers are unique in a step", name))
		}
	}
	if name == "" || f == nil {
		d.fail(fmt.Errorf("timer %q: a timer has a name and a handler", name))
	}
	d.timers = append(d.timers, t)
	return Timer{t}
}

// OnWindowExpiry declares what is called for each key that has a cell set when its window's life ends (its
// end plus the allowed lateness), before the cells go: the last occasion to emit what they hold. It may not
// set timers any more.
func OnWindowExpiry[K comparable, Out any](d *KeyedDecl, f func(*ProcessContext, K, *Emitter[Out]) error) {
	if d.expiry != nil || f == nil {
		d.fail(errors.New("OnWindowExpiry takes one function, once"))
	}
	d.expiry = f
}

func (d *KeyedDecl) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Set makes the timer fire at a time (to the millisecond), instead of any time set before. A time before
// both the watermark and the element's timestamp becomes the earlier of these; a handler sets at the
// earliest the millisecond after its own time. A time after the window's expiry becomes the expiry. What a
// handler arms at the expiry, or at the end of the global window, is ignored.
func (t Timer) Set(at time.Time) {
	h := t.running("Set")
	switch {
	case h == nil:
	case at.IsZero():
		h.failTimer(fmt.Errorf("timer %q was set to the zero time", t.t.name))
	default:
		h.setTimer(t.t.index, eventtime.FromTime(at))
	}
}

// Clear makes the timer not fire.
func (t Timer) Clear() {
	if h := t.running("Clear"); h != nil {
		h.clearTimer(t.t.index)
	}
}

func (t Timer) running(method string) timerHost {
	if t.t == nil {
		panic("Timer." + method + " of a Timer that was not made by EventTimer in Declare")
	}
	return t.t.host
}

// CheckKeyed returns what is wrong with the declarations of a step with keys K and outputs Out.
func CheckKeyed[K comparable, Out any](d *KeyedDecl) error {
	err := errors.Join(d.err, state.SetOf(d).Err())
	for _, t := range d.timers {
		if _, ok := t.handler.(keyedHandler[K, Out]); !ok {
			err = errors.Join(err, fmt.Errorf("timer %q: its handler is a %T, the step needs a %v", t.name, t.handler, reflect.TypeFor[keyedHandler[K, Out]]()))
		}
	}
	if _, ok := d.expiry.(keyedHandler[K, Out]); !ok && d.expiry != nil {
		err = errors.Join(err, fmt.Errorf("OnWindowExpiry: its function is a %T, the step needs a %v", d.expiry, reflect.TypeFor[keyedHandler[K, Out]]()))
	}
	return err
}

// StateParts describes the declared cells and timers, for Node.State.
func (d *KeyedDecl) StateParts() (parts []StatePart) {
	for _, c := range state.SetOf(d).Decls {
		parts = append(parts, StatePart{Kind: "cell", Name: c.Name, Type: c.Type, Coder: &c.Coder})
	}
	for _, t := range d.timers {
		parts = append(parts, StatePart{Kind: "timer", Name: t.name, Type: "event time"})
	}
	return parts
}

// Expires says whether OnWindowExpiry was declared.
func (d *KeyedDecl) Expires() bool { return d.expiry != nil }
