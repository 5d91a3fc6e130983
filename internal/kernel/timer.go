package kernel

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// domain is the time by which a timer fires.
type domain uint8

const (
	byWatermark domain = iota
	byClock
	domains
)

func (d domain) String() string { return [...]string{"event time", "processing time"}[d] }

// timer is a declared timer, or a family of them. Set and Clear go to the operator, by way of host.
type timer struct {
	name    string
	index   int // of the declaration
	by      domain
	family  bool
	slot    int // in keyState.timers, unless it is a family; see schema
	handler any
	host    timerHost // nil while the pipeline is built
}

// timerHost is the operator.
type timerHost interface {
	// present is the time from which SetIn counts.
	present(by domain) eventtime.Time
	// setTimer sets a timer, of a family that of the tag. out is the output timestamp; noTime is the usual one.
	setTimer(t *timer, tag string, at, out eventtime.Time)
	clearTimer(t *timer, tag string)
	failTimer(err error)
}

// keyedHandler is called for a key when a timer fires or a window expires.
type keyedHandler[K comparable, Out any] = func(*ProcessContext, K, *Emitter[Out]) error

// tagHandler is called for a key and tag when a timer of a family fires.
type tagHandler[K comparable, Out any] = func(*ProcessContext, K, string, *Emitter[Out]) error

// Timer is one named timer of the key and window that a step is processing. At most one time is pending.
// It is a handle, cheap to copy; the zero Timer belongs to no step, and using it panics.
type Timer struct{ t *timer }

// TimerFamily is any number of timers of the key and window that a step is processing, each with a tag of its own: up to
// 10,000 may be pending for a key and window, in all families of a step together. It is a handle, cheap to copy; the zero
// TimerFamily belongs to no step, and using it panics.
type TimerFamily struct{ t *timer }

// maxTags bounds what the entry of a key takes.
const maxTags = 10_000

// EventTimer declares a timer of event time: f is called once the watermark is at or past the time that was set. name is
// unique among the step's timers and is the identity of what is pending. K and Out are those of the step; f is mostly a
// method value.
//
// The handler's timestamp is the time that was set, within the window at the window's end, or else what OutputAt says. The
// watermark of the outputs passes it only after the handler; only with an earlier OutputAt is it held.
//
// See docs/design/timers.md for the order of timers, and for what happens at the end of a window.
func EventTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	return Timer{d.declare(&timer{name: name, by: byWatermark, handler: f}, f == nil)}
}

// ProcessingTimer declares a timer of processing time: f is called once the clock is at or past the time that was set. It is
// called before that when the life of its window ends, or the input: what it was to do is then done at once. See EventTimer
// for the rest.
//
// The handler's timestamp is that of the element, or timer, that set the timer, unless OutputAt says another. What the step
// emits then is not late: while the timer is pending, the watermark of the step's outputs does not pass that timestamp. So
// a timer that sets itself again and again holds back all time after it, unless OutputAt moves its timestamp on.
func ProcessingTimer[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, *Emitter[Out]) error) Timer {
	return Timer{d.declare(&timer{name: name, by: byClock, handler: f}, f == nil)}
}

// EventTimerFamily declares timers of event time that are told apart by a tag, which f is given: see EventTimer.
func EventTimerFamily[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, string, *Emitter[Out]) error) TimerFamily {
	return TimerFamily{d.declare(&timer{name: name, by: byWatermark, family: true, handler: f}, f == nil)}
}

// ProcessingTimerFamily declares timers of processing time that are told apart by a tag, which f is given: see
// ProcessingTimer.
func ProcessingTimerFamily[K comparable, Out any](d *KeyedDecl, name string, f func(*ProcessContext, K, string, *Emitter[Out]) error) TimerFamily {
	return TimerFamily{d.declare(&timer{name: name, by: byClock, family: true, handler: f}, f == nil)}
}

func (d *KeyedDecl) declare(t *timer, noHandler bool) *timer {
	for _, o := range d.timers {
		if o.name == t.name {
			d.fail(fmt.Errorf("timer %q: declared twice: names of timers are unique in a step", t.name))
		}
	}
	if t.name == "" || noHandler {
		d.fail(fmt.Errorf("timer %q: a timer has a name and a handler", t.name))
	}
	t.index = len(d.timers)
	d.timers = append(d.timers, t)
	return t
}

// TimerOption says more of a timer that is being set.
type TimerOption struct {
	out eventtime.Time
	set bool
}

// OutputAt makes the timer's handler have the timestamp t, and so what it emits. While the timer is pending, the watermark of
// the step's outputs does not pass t. t must not be before the timestamp of the element, or timer, that sets it: that could be
// late. One after the last millisecond of the window becomes that.
//
// A timer that is to hold nothing back as long as its window is open is set with OutputAt(c.Window().End()).
func OutputAt(t time.Time) TimerOption {
	if t.IsZero() {
		return TimerOption{noTime, true}
	}
	return TimerOption{eventtime.FromTime(t), true}
}

// Set makes the timer fire at a time, which is rounded up to the millisecond, instead of any time set before. A time of event time that is
// before both the watermark and the element's timestamp becomes the earlier of these, and one of processing time that has
// passed fires at once. A handler sets a timer of its own kind of time at the earliest the millisecond after its own, and one
// of processing time after the present. A time after the window's expiry becomes the expiry. What a handler arms at the
// expiry, or at the end of the global window, is ignored.
func (t Timer) Set(at time.Time, opts ...TimerOption) {
	if h := hostOf(t.t, "Timer.Set"); h != nil {
		set(h, t.t, "", at, opts)
	}
}

// SetIn is Set at a distance: for a timer of processing time from now, for one of event time from the timestamp of the element,
// or from the time for which the timer that fires was set.
func (t Timer) SetIn(d time.Duration, opts ...TimerOption) {
	if h := hostOf(t.t, "Timer.SetIn"); h != nil {
		setIn(h, t.t, "", d, opts)
	}
}

// Clear makes the timer not fire.
func (t Timer) Clear() {
	if h := hostOf(t.t, "Timer.Clear"); h != nil {
		h.clearTimer(t.t, "")
	}
}

// Set makes the timer with a tag fire at a time: see Timer.Set.
func (f TimerFamily) Set(tag string, at time.Time, opts ...TimerOption) {
	if h := hostOf(f.t, "TimerFamily.Set"); h != nil {
		set(h, f.t, tag, at, opts)
	}
}

// SetIn makes the timer with a tag fire at a distance: see Timer.SetIn.
func (f TimerFamily) SetIn(tag string, d time.Duration, opts ...TimerOption) {
	if h := hostOf(f.t, "TimerFamily.SetIn"); h != nil {
		setIn(h, f.t, tag, d, opts)
	}
}

// Clear makes the timer with a tag not fire.
func (f TimerFamily) Clear(tag string) {
	if h := hostOf(f.t, "TimerFamily.Clear"); h != nil {
		h.clearTimer(f.t, tag)
	}
}

func hostOf(t *timer, method string) timerHost {
	if t == nil {
		panic(method + " of a handle that was not made in Declare, by EventTimer or another function that declares timers")
	}
	return t.host
}

func set(h timerHost, t *timer, tag string, at time.Time, opts []TimerOption) {
	if at.IsZero() {
		h.failTimer(fmt.Errorf("timer %q was set to the zero time", t.name))
		return
	}
	setAt(h, t, tag, eventtime.NotBefore(at), opts)
}

func setIn(h timerHost, t *timer, tag string, d time.Duration, opts []TimerOption) {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	setAt(h, t, tag, h.present(t.by).Add(ms), opts)
}

func setAt(h timerHost, t *timer, tag string, at eventtime.Time, opts []TimerOption) {
	out := noTime
	for _, o := range opts {
		if !o.set {
			continue
		}
		if out = o.out; out == noTime {
			h.failTimer(fmt.Errorf("timer %q was set with OutputAt of the zero time", t.name))
			return
		}
	}
	h.setTimer(t, tag, at, out)
}
