package window

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// SlidingFn is what Sliding returns.
type SlidingFn struct{ Size, Period, Shift time.Duration }

// Sliding makes windows of one size, one of which starts at each multiple of period, so that they overlap if the
// size is greater. If the period is, what lies between two windows is in none, and vanishes. Both are whole
// numbers of milliseconds, at least one, and the size is at most MaxOverlap periods.
func Sliding(size, period time.Duration) SlidingFn { return SlidingFn{Size: size, Period: period} }

// MaxOverlap is the greatest number of sliding windows that an element may be in.
const MaxOverlap = 1_000_000

// Offset shifts the starts of the windows by d.
func (f SlidingFn) Offset(d time.Duration) SlidingFn { f.Shift = d; return f }

func (SlidingFn) windowFn() {}

func (f SlidingFn) validate() error {
	if f.Size < time.Millisecond || f.Period < time.Millisecond || f.Size%time.Millisecond != 0 || f.Period%time.Millisecond != 0 || f.Shift%time.Millisecond != 0 {
		return fmt.Errorf("sliding windows of %v every %v with offset %v: size and period must be at least 1ms, and all whole milliseconds", f.Size, f.Period, f.Shift)
	}
	if f.Size/f.Period >= MaxOverlap {
		return fmt.Errorf("sliding windows of %v every %v: an element would be in more than %d windows; use a longer period", f.Size, f.Period, MaxOverlap)
	}
	return nil
}

// Slice returns the longest interval around t in which no window starts or ends, so that each window holds
// either all of it or nothing. It returns false if t is in no window.
func (f SlidingFn) Slice(t eventtime.Time) (Window, bool) {
	size, period, shift := f.Size.Milliseconds(), f.Period.Milliseconds(), f.Shift.Milliseconds()
	start := t.Floor(period, shift)
	if size < period {
		end := start + eventtime.Time(size)
		return New(start, end), t < end
	}
	// Windows that started earlier end rest after a start.
	rest := eventtime.Time(size % period)
	if t < start+rest {
		return New(start, start+rest), true
	}
	return New(start+rest, start+eventtime.Time(period)), true
}

// next is the first start after t.
func (f SlidingFn) next(t eventtime.Time) eventtime.Time {
	period := f.Period.Milliseconds()
	return t.Floor(period, f.Shift.Milliseconds()) + eventtime.Time(period)
}

// Ends returns the ends of the first and the last window that hold t, which must be in one. Ends are a period
// apart. They are not clamped to the range of event time.
func (f SlidingFn) Ends(t eventtime.Time) (first, last eventtime.Time) {
	size, period := eventtime.Time(f.Size.Milliseconds()), eventtime.Time(f.Period.Milliseconds())
	start := t.Floor(int64(period), f.Shift.Milliseconds())
	return start - (size-1-(t-start))/period*period + size, start + size
}

// Ending returns the window with the given end, as Ends returns it.
func (f SlidingFn) Ending(end eventtime.Time) Window {
	return New(end-eventtime.Time(f.Size.Milliseconds()), end)
}

// Assign appends the windows that hold t to dst, in the order of their ends.
func (f SlidingFn) Assign(dst []Window, t eventtime.Time) []Window {
	if _, ok := f.Slice(t); !ok {
		return dst
	}
	first, last := f.Ends(t)
	for end := first; end <= last; end += eventtime.Time(f.Period.Milliseconds()) {
		dst = append(dst, f.Ending(end))
	}
	return dst
}
