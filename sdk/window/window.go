// Package window divides event time into half-open intervals, one aggregation each.
package window

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// Window is the interval [Start, End) of event time. Every window is one: there are no window subtypes.
// It is comparable, 16 bytes, and holds no pointer.
type Window struct{ start, end eventtime.Time }

// New returns the window [start, end), clamped to the range of event time.
func New(start, end eventtime.Time) Window {
	return Window{eventtime.Clamp(start), eventtime.Clamp(end)}
}

// Between returns the window [start, end), to the millisecond, clamped to the range of event time.
func Between(start, end time.Time) Window {
	return New(eventtime.FromTime(start), eventtime.FromTime(end))
}

// Start is the first instant of the window, in UTC.
func (w Window) Start() time.Time { return w.start.Time() }

// End is the first instant after the window, in UTC.
func (w Window) End() time.Time { return w.end.Time() }

// StartTime and EndTime are the bounds as event time; End is exclusive.
func (w Window) StartTime() eventtime.Time { return w.start }
func (w Window) EndTime() eventtime.Time   { return w.end }

// MaxTimestamp is the last millisecond inside the window at which there may be elements (see
// eventtime.EndOfGlobalWindow): the timestamp of its panes.
func (w Window) MaxTimestamp() eventtime.Time { return min(w.end, eventtime.EndOfGlobalWindow) - 1 }

// Compare orders windows by end, then start: the order in which they fire.
func (w Window) Compare(o Window) int {
	switch {
	case w.end < o.end || w.end == o.end && w.start < o.start:
		return -1
	case w == o:
		return 0
	}
	return 1
}

func (w Window) String() string {
	if w == GlobalWindow {
		return "[global]"
	}
	return fmt.Sprintf("[%v, %v)", w.start, w.end)
}

// GlobalWindow holds all of event time. It ends one day before the greatest timestamp, so that a
// watermark at the end of time is past it (Beam's GlobalWindow).
var GlobalWindow = Window{eventtime.Min, eventtime.EndOfGlobalWindow}

// Timing says when a pane fired relative to the watermark.
type Timing uint8

const (
	Unknown Timing = iota // not the result of an aggregation
	Early                 // before the watermark passed the end of the window
	OnTime                // when it passed
	Late                  // after
)

func (t Timing) String() string { return [...]string{"UNKNOWN", "EARLY", "ON_TIME", "LATE"}[t&3] }

// Pane describes one firing of one key and window. The zero Pane belongs to elements that no
// aggregation made.
type Pane struct {
	Timing      Timing
	Index       int64 // 0 for the first firing of this key and window
	OnTimeIndex int64 // 0 for the first that is not early; -1 for an early one
	First, Last bool
	Retraction  bool // the element takes an earlier pane back, which was equal but for this
}

// Fn assigns windows to timestamps: a value made by Fixed, Sliding, Sessions, Days, Weeks, Months, Years, Custom or
// Global. Two are the same if they have the same text by %+v; they are not compared by ==.
type Fn interface{ windowFn() }

// FixedFn is what Fixed returns.
type FixedFn struct{ Size, Shift time.Duration }

// Fixed cuts event time into windows of one size that start at multiples of it. The size is a whole
// number of milliseconds, at least one.
func Fixed(size time.Duration) FixedFn { return FixedFn{Size: size} }

// Offset shifts the starts of the windows by d.
func (f FixedFn) Offset(d time.Duration) FixedFn { f.Shift = d; return f }

func (FixedFn) windowFn() {}

// Assign returns the one window that holds t.
func (f FixedFn) Assign(t eventtime.Time) Window {
	size := f.Size.Milliseconds()
	s := t.Floor(size, f.Shift.Milliseconds())
	return New(s, s+eventtime.Time(size)) // cannot wrap: both are far inside an int64
}

// GlobalFn is what Global returns.
type GlobalFn struct{}

// Global puts every element into the GlobalWindow. It is what a collection has unless WindowInto says else.
func Global() GlobalFn { return GlobalFn{} }

func (GlobalFn) windowFn() {}

// Validate tells what is wrong with fn, or nil.
func Validate(fn Fn) error {
	switch f := fn.(type) {
	case FixedFn:
		if f.Size < time.Millisecond || f.Size%time.Millisecond != 0 || f.Shift%time.Millisecond != 0 {
			return fmt.Errorf("fixed windows of %v with offset %v: size must be at least 1ms, and both whole milliseconds", f.Size, f.Shift)
		}
	case SlidingFn:
		return f.validate()
	case SessionsFn:
		return f.validate()
	case CalendarFn:
		return f.validate()
	case CustomFn:
		return f.validate()
	case nil:
		return fmt.Errorf("no window function given: use window.Fixed, window.Sliding, window.Sessions, window.Days, window.Custom or window.Global")
	}
	return nil
}
