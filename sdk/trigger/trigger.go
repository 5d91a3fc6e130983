// Package trigger says when the panes of a window fire: Beam's trigger algebra as plain values, which
// runners interpret.
//
//	trigger.AfterWatermark().                                   once, at the end of the window,
//		Early(trigger.AfterProcessingTime(time.Minute)).        before it, a minute after the first element of each pane,
//		Late(trigger.AfterCount(1))                             and after it for each late element
//
// A trigger is ready or not for one key and window; when it is ready, a pane fires. Then it is finished, or
// waits for more. Each part of a trigger sees only what came since it began, or last fired.
package trigger

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Trigger is a closed set of values, made by this package. String is canonical: two triggers mean the same if
// it is the same. Triggers are compared by it, not by ==.
type Trigger interface {
	fmt.Stringer
	trigger()
}

// Watermark is what AfterWatermark returns. EarlyPart and LatePart are nil if there is none.
type Watermark struct{ EarlyPart, LatePart Trigger }

// AfterWatermark is ready once the watermark is at or past the end of the window. As the whole trigger of a
// collection it goes on, and fires for each late element, unless Late says else: it is the trigger of every
// collection unless another is given. As a part of another trigger it is then finished (Beam).
func AfterWatermark() Watermark { return Watermark{} }

// Early adds firings before the end of the window, whenever t is ready, repeatedly.
func (w Watermark) Early(t Trigger) Watermark { w.EarlyPart = t; return w }

// Late adds firings after the end of the window, whenever t is ready, repeatedly. With it, the trigger is never finished.
func (w Watermark) Late(t Trigger) Watermark { w.LatePart = t; return w }

func (Watermark) trigger() {}

func (w Watermark) String() string {
	s := "AfterWatermark"
	if w.EarlyPart != nil {
		s += ".Early(" + text(w.EarlyPart) + ")"
	}
	if w.LatePart != nil {
		s += ".Late(" + text(w.LatePart) + ")"
	}
	return s
}

// Count is what AfterCount returns.
type Count struct{ N int64 }

// AfterCount is ready once n elements have come. n is at least 1, and at most that of an int32 (Beam).
func AfterCount(n int) Count { return Count{int64(n)} }

func (Count) trigger() {}

func (c Count) String() string { return fmt.Sprintf("AfterCount(%d)", c.N) }

// ProcessingTime is what AfterProcessingTime returns.
type ProcessingTime struct {
	Delay time.Duration
	// Period and Offset align the time, after Delay, to the next multiple of Period plus Offset; Period 0: not aligned.
	Period, Offset time.Duration
	// Synchronized is set by AfterSynchronizedProcessingTime, which has neither.
	Synchronized bool
}

// AfterProcessingTime is ready once the clock of the machine is delay past the first element. Both are whole
// milliseconds.
func AfterProcessingTime(delay time.Duration) ProcessingTime { return ProcessingTime{Delay: delay} }

// AlignedTo moves the time up to the next multiple of period plus offset, counted from the Unix epoch, so
// that many keys fire at once.
func (p ProcessingTime) AlignedTo(period, offset time.Duration) ProcessingTime {
	p.Period, p.Offset = period, offset
	return p
}

// AfterSynchronizedProcessingTime is Beam's trigger of that name. It runs as AfterProcessingTime without a delay: no
// runner synchronizes the clocks of its machines.
func AfterSynchronizedProcessingTime() ProcessingTime { return ProcessingTime{Synchronized: true} }

func (ProcessingTime) trigger() {}

func (p ProcessingTime) String() string {
	if p.Synchronized {
		return "AfterSynchronizedProcessingTime"
	}
	s := fmt.Sprintf("AfterProcessingTime(%v)", p.Delay)
	if p.Period != 0 {
		s += fmt.Sprintf(".AlignedTo(%v, %v)", p.Period, p.Offset)
	}
	return s
}

// First is what AfterFirst returns.
type First struct{ Of []Trigger }

// AfterFirst is ready when any of ts is, and is then finished. (Beam's AfterFirst and AfterAny.)
func AfterFirst(ts ...Trigger) First { return First{ts} }

// AfterAny is AfterFirst.
func AfterAny(ts ...Trigger) First { return First{ts} }

func (First) trigger() {}

func (t First) String() string { return "AfterFirst(" + texts(t.Of) + ")" }

// All is what AfterAll returns.
type All struct{ Of []Trigger }

// AfterAll is ready when each of ts is, and is then finished.
func AfterAll(ts ...Trigger) All { return All{ts} }

func (All) trigger() {}

func (t All) String() string { return "AfterAll(" + texts(t.Of) + ")" }

// Each is what AfterEach returns.
type Each struct{ Of []Trigger }

// AfterEach is ready when the first of ts is, and once that is finished goes on with the next; it is finished with the last.
func AfterEach(ts ...Trigger) Each { return Each{ts} }

func (Each) trigger() {}

func (t Each) String() string { return "AfterEach(" + texts(t.Of) + ")" }

// Finally is what OrFinally returns.
type Finally struct{ Main, Until Trigger }

// OrFinally is ready when main or until is. It is finished once until was ready, or main is finished.
func OrFinally(main, until Trigger) Finally { return Finally{main, until} }

func (Finally) trigger() {}

func (t Finally) String() string { return "OrFinally(" + text(t.Main) + ", " + text(t.Until) + ")" }

// Repeat is what Repeatedly returns.
type Repeat struct{ Of Trigger }

// Repeatedly is ready when t is. When t is finished, it begins anew; so Repeatedly is never finished.
func Repeatedly(t Trigger) Repeat { return Repeat{t} }

func (Repeat) trigger() {}

func (t Repeat) String() string { return "Repeatedly(" + text(t.Of) + ")" }

// NeverFires is what Never returns.
type NeverFires struct{}

// Never is never ready: there is one pane, when the window expires.
func Never() NeverFires { return NeverFires{} }

func (NeverFires) trigger() {}

func (NeverFires) String() string { return "Never" }

// AlwaysFires is what Always returns.
type AlwaysFires struct{}

// Always is ready for every element, and never finished.
func Always() AlwaysFires { return AlwaysFires{} }

func (AlwaysFires) trigger() {}

func (AlwaysFires) String() string { return "Always" }

// Default is Beam's default trigger, Repeatedly(AfterWatermark()): at the end of the window, and then for each late
// element.
func Default() Repeat { return Repeatedly(AfterWatermark()) }

func text(t Trigger) string {
	if t == nil {
		return "nil"
	}
	return t.String()
}

func texts(ts []Trigger) string {
	var s []string
	for _, t := range ts {
		s = append(s, text(t))
	}
	return strings.Join(s, ", ")
}

// Canonical is the form of a whole trigger that means the same and that others compare and interpret: AfterWatermark
// goes on for late elements, and parts that are repeated anyway are not wrapped in Repeatedly.
func Canonical(t Trigger) Trigger {
	if r, ok := t.(Repeat); ok {
		if w, ok := r.Of.(Watermark); ok && w == (Watermark{}) {
			t = w
		}
	}
	w, ok := t.(Watermark)
	if !ok {
		return t
	}
	w.EarlyPart, w.LatePart = unwrap(w.EarlyPart), unwrap(w.LatePart)
	if w.LatePart == nil {
		w.LatePart = AfterCount(1)
	}
	return w
}

func unwrap(t Trigger) Trigger {
	for {
		r, ok := t.(Repeat)
		if !ok {
			return t
		}
		t = r.Of
	}
}

// Counts says whether t is AfterWatermark with counts of elements before and after the end, and which: early is 0
// if nothing fires before the end. t is canonical.
func Counts(t Trigger) (early, late int64, ok bool) {
	w, ok := t.(Watermark)
	if !ok {
		return 0, 0, false
	}
	if w.EarlyPart != nil {
		c, ok := w.EarlyPart.(Count)
		if !ok {
			return 0, 0, false
		}
		early = c.N
	}
	c, ok := w.LatePart.(Count)
	return early, c.N, ok
}

// MaxParts is the greatest number of triggers that a trigger may consist of, itself included. It goes for its canonical form and its
// Continuation.
const MaxParts = 64

// Validate tells what is wrong with t, or nil.
func Validate(t Trigger) error {
	if err := validate(t); err != nil {
		return err
	}
	if n := max(size(Canonical(t)), size(Continuation(t))); n > MaxParts {
		return fmt.Errorf("the trigger has %d parts, or those after an aggregation do: only %d are supported", n, MaxParts)
	}
	return nil
}

func size(t Trigger) int {
	n := 1
	for _, p := range parts(t) {
		n += size(p)
	}
	return n
}

// parts are the triggers that t is made of.
func parts(t Trigger) []Trigger {
	switch t := t.(type) {
	case Watermark:
		var ps []Trigger
		for _, p := range []Trigger{t.EarlyPart, t.LatePart} {
			if p != nil {
				ps = append(ps, p)
			}
		}
		return ps
	case First:
		return t.Of
	case All:
		return t.Of
	case Each:
		return t.Of
	case Finally:
		return []Trigger{t.Main, t.Until}
	case Repeat:
		return []Trigger{t.Of}
	}
	return nil
}

func validate(t Trigger) error {
	switch t := t.(type) {
	case nil:
		return fmt.Errorf("no trigger given: use trigger.AfterWatermark")
	case Count:
		if t.N < 1 || t.N > math.MaxInt32 {
			return fmt.Errorf("trigger.AfterCount(%d) needs a count of at least 1, and at most %d", t.N, math.MaxInt32)
		}
	case ProcessingTime:
		if t.Delay < 0 || t.Period < 0 || t.Delay%time.Millisecond != 0 || t.Period%time.Millisecond != 0 || t.Offset%time.Millisecond != 0 {
			return fmt.Errorf("trigger.%v: delay and period must not be negative, and all whole milliseconds", t)
		}
	case First:
		return validateAll("AfterFirst", t.Of)
	case All:
		return validateAll("AfterAll", t.Of)
	case Each:
		return validateAll("AfterEach", t.Of)
	case Watermark, Finally, Repeat:
		return validateAll("", parts(t))
	}
	return nil
}

func validateAll(name string, ts []Trigger) error {
	if len(ts) == 0 && name != "" {
		return fmt.Errorf("trigger.%s of nothing: give it at least one trigger", name)
	}
	for _, t := range ts {
		if err := validate(t); err != nil {
			return err
		}
	}
	return nil
}
