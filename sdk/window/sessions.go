package window

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// SessionsFn is what Sessions returns.
type SessionsFn struct {
	Gap time.Duration
	// Merged says that the windows are results of an aggregation, and no longer merge.
	Merged bool
}

// Sessions makes, for each key, a window of elements that are less than gap apart. It ends gap after the last.
// The gap is a whole number of milliseconds, at least one.
func Sessions(gap time.Duration) SessionsFn { return SessionsFn{Gap: gap} }

func (SessionsFn) windowFn() {}

func (f SessionsFn) merged() Fn { f.Merged = true; return f }

func (f SessionsFn) validate() error {
	if f.Gap < time.Millisecond || f.Gap%time.Millisecond != 0 {
		return fmt.Errorf("sessions with a gap of %v: it must be at least 1ms, and whole milliseconds", f.Gap)
	}
	if f.Merged {
		return fmt.Errorf("sessions that are merged already come from an aggregation only: use window.Sessions(%v)", f.Gap)
	}
	return nil
}

// Assign returns the session of an element at t alone: [t, t+gap). No session reaches beyond the end of the
// global window; later elements are in the last millisecond before it.
func (f SessionsFn) Assign(t eventtime.Time) Window {
	return withinTime(Window{t, t + eventtime.Time(f.Gap.Milliseconds())})
}

// Merge implements MergingFn: windows that overlap become their span. Those exactly a gap apart do not overlap.
func (f SessionsFn) Merge(dst []Merge, open []Window) ([]Merge, error) {
	for len(open) > 0 {
		span, n := open[0], 1
		for n < len(open) && open[n].start < span.end {
			span.end = max(span.end, open[n].end)
			n++
		}
		if n > 1 {
			dst = append(dst, Merge{From: open[:n:n], Into: span})
		}
		open = open[n:]
	}
	return dst, nil
}
