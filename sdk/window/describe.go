package window

import (
	"fmt"
	"time"
)

// Describe is fn for messages: the call that made it, as window.Sessions(1m0s), or words.
func Describe(fn Fn) string {
	shifted := func(call string, by time.Duration) string {
		if by != 0 {
			call += fmt.Sprintf(".Offset(%v)", by)
		}
		return call
	}
	switch f := fn.(type) {
	case GlobalFn:
		return "window.Global()"
	case FixedFn:
		return shifted(fmt.Sprintf("window.Fixed(%v)", f.Size), f.Shift)
	case SlidingFn:
		return shifted(fmt.Sprintf("window.Sliding(%v, %v)", f.Size, f.Period), f.Shift)
	case SessionsFn:
		if f.Merged {
			return fmt.Sprintf("window.Sessions(%v) merged by an aggregation", f.Gap)
		}
		return fmt.Sprintf("window.Sessions(%v)", f.Gap)
	case CalendarFn:
		return "windows of " + f.Describe()
	case CustomFn:
		text := fmt.Sprintf("custom windows %q", f.Name)
		if f.Params != "" {
			text += fmt.Sprintf(" with %q", f.Params)
		}
		if f.Merged {
			text += " merged by an aggregation"
		}
		return text
	}
	return fmt.Sprintf("%+v", fn)
}
