package runnertest

import (
	"fmt"
	"math"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
)

// windowed sums the pairs of a script by window.
func windowed(p *sdk.Pipeline, s script, fn window.Fn, opts ...sdk.WindowOption) sdk.PCollection[kv] {
	return sdk.CombinePerKey("sums", sdk.WindowInto("windows", read(p, s), fn, opts...), sum{})
}

// GlobalWindow: without WindowInto there is one window, which ends with the input.
func GlobalWindow(p *sdk.Pipeline) {
	in := read(p, script{}.At(at(-1e6), of("a", 1)...).At(at(1e6), of("a", 2)...).Watermark(at(1e6)).At(at(1e6), of("b", 4)...))
	passert.Equals("sums", showWindows("show", sdk.CombinePerKey("sum", in, sum{})), "a=3 global", "b=4 global")
}

// FixedWindows: an element at an end belongs to the next window; times before the epoch have windows too.
func FixedWindows(p *sdk.Pipeline) {
	s := script{}.At(at(-1), of("a", 1)...).At(at(0), of("a", 2)...).At(at(9), of("a", 4)...).At(at(10), of("a", 8)...).At(at(5), of("b", 16)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Fixed(10*second))), "a=1 [-10,0)", "a=6 [0,10)", "a=8 [10,20)", "b=16 [0,10)")
}

// FixedWindowsWithOffset: starts are at the offset.
func FixedWindowsWithOffset(p *sdk.Pipeline) {
	s := script{}.At(at(2), of("a", 1)...).At(at(3), of("a", 2)...).At(at(12), of("a", 4)...).At(at(13), of("a", 8)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Fixed(10*second).Offset(3*second))), "a=1 [-7,3)", "a=6 [3,13)", "a=8 [13,23)")
}

// SlidingWindows: an element is in each window that holds its time.
func SlidingWindows(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(6), of("a", 2)...).At(at(11), of("a", 4)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Sliding(10*second, 5*second))),
		"a=1 [-5,5)", "a=3 [0,10)", "a=6 [5,15)", "a=4 [10,20)")
}

// SlidingWindowsWithLateness: the panes of sliding windows that take late elements.
func SlidingWindowsWithLateness(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(6), of("a", 2)...).Watermark(at(12)).At(at(7), of("a", 4)...)
	passert.Equals("panes", showPanes("show", windowed(p, s, window.Sliding(10*second, 5*second), sdk.AllowedLateness(20*second), sdk.Accumulating)),
		"a=1 [-5,5) on time 0 first", "a=3 [0,10) on time 0 first", "a=7 [0,10) late 1", "a=6 [5,15) on time 0 first")
}

// SlidingWindowsWithGaps: an element between two windows is in none, and is not late.
func SlidingWindowsWithGaps(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(6), of("a", 2)...).At(at(10), of("a", 4)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Sliding(5*second, 10*second))), "a=1 [0,5)", "a=4 [10,15)")
}

// Sessions: elements of a key that are less than the gap apart are one session; those at the gap are two.
func Sessions(p *sdk.Pipeline) {
	s := script{}.At(at(0), of("a", 1)...).At(at(4), of("b", 32)...).At(at(9), of("a", 2)...).At(at(19), of("a", 4)...).At(at(50), of("a", 8)...).At(at(41), of("a", 16)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Sessions(10*second))),
		"a=3 [0,19)", "a=4 [19,29)", "a=24 [41,60)", "b=32 [4,14)")
}

// SessionsMergeLate: a late element joins two sessions that have fired. What accumulates has the values of both.
func SessionsMergeLate(p *sdk.Pipeline) {
	s := script{}.At(at(0), of("a", 1)...).At(at(12), of("a", 2)...).Watermark(at(30)).At(at(6), of("a", 4)...)
	passert.Equals("panes", showPanes("show", windowed(p, s, window.Sessions(10*second), sdk.AllowedLateness(time.Hour), sdk.Accumulating)),
		"a=1 [0,10) on time 0 first", "a=2 [12,22) on time 0 first", "a=7 [0,22) late 0 first")
}

// CalendarDays: the day on which clocks go forward has 23 hours.
func CalendarDays(p *sdk.Pipeline) {
	berlin := time.FixedZone("CET", 3600)
	hour := func(day, h int) time.Time { return time.Date(2026, 3, day, h, 0, 0, 0, berlin) }
	s := script{}.At(hour(28, 23), of("a", 1)...).At(hour(29, 0), of("a", 2)...).At(hour(29, 22), of("a", 4)...).At(hour(29, 23), of("a", 8)...)
	in := windowed(p, s, window.Days(1).In("Europe/Berlin"))
	passert.Equals("hours", sdk.ParDoFunc("hours of the day", in, func(c *sdk.ProcessContext, e kv, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprint(e.Value, " in ", c.Window().End().Sub(c.Window().Start())))
		return nil
	}), "1 in 24h0m0s", "6 in 23h0m0s", "8 in 24h0m0s")
}

// CalendarMonths: they have as many days as they have.
func CalendarMonths(p *sdk.Pipeline) {
	day := func(month time.Month, day int) time.Time { return time.Date(2028, month, day, 12, 0, 0, 0, time.UTC) }
	s := script{}.At(day(1, 31), of("a", 1)...).At(day(2, 29), of("a", 2)...).At(day(2, 1), of("a", 4)...).At(day(3, 1), of("a", 8)...)
	in := windowed(p, s, window.Months(1))
	passert.Equals("days", sdk.ParDoFunc("days of the month", in, func(c *sdk.ProcessContext, e kv, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprint(e.Value, " from ", c.Window().Start().Format("January 2"), " in ", int(c.Window().End().Sub(c.Window().Start())/(24*time.Hour))))
		return nil
	}), "1 from January 1 in 31", "6 from February 1 in 29", "8 from March 1 in 31")
}

// powers puts each element into a window whose size is its distance from the epoch.
type powers struct{}

func (powers) Assign(dst []window.Window, t time.Time) []window.Window {
	for size := int64(1); ; size *= 2 {
		if t.Before(at(size)) {
			return append(dst, window.Between(at(size/2), at(size)))
		}
	}
}

// CustomWindows: windows of the user's own.
func CustomWindows(p *sdk.Pipeline) {
	s := script{}.At(at(0), of("a", 1)...).At(at(5), of("a", 2)...).At(at(7), of("a", 4)...).At(at(8), of("a", 8)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Custom("powers", "", powers{}))), "a=1 [0,1)", "a=6 [4,8)", "a=8 [8,16)")
}

// upTo are sessions that are closed once they are 20 s long.
type upTo struct{}

func (upTo) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(10*second)))
}

func (upTo) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	for len(open) > 0 {
		n, end := 1, open[0].End()
		for n < len(open) && open[n].Start().Before(end) && !open[n].End().After(open[0].Start().Add(20*second)) {
			end = open[n].End()
			n++
		}
		if n > 1 {
			dst = append(dst, window.Merge{From: open[:n], Into: window.Between(open[0].Start(), end)})
		}
		open = open[n:]
	}
	return dst
}

// CustomMergingWindows: windows of the user's own that merge.
func CustomMergingWindows(p *sdk.Pipeline) {
	s := script{}.At(at(0), of("a", 1)...).At(at(5), of("a", 2)...).At(at(9), of("a", 4)...).At(at(12), of("a", 8)...)
	passert.Equals("sums", showWindows("show", windowed(p, s, window.Custom("up to 20 s", "", upTo{}))), "a=7 [0,19)", "a=8 [12,22)")
}

// WindowsAfterWindows: a second WindowInto looks at the timestamps of the first one's panes.
func WindowsAfterWindows(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(12), of("a", 2)...).At(at(23), of("a", 4)...)
	tens := windowed(p, s, window.Fixed(10*second))
	passert.Equals("twenties", showWindows("show", sdk.CombinePerKey("again", sdk.WindowInto("twenties", tens, window.Fixed(20*second)), sum{})), "a=3 [0,20)", "a=4 [20,40)")
}

// TimestampsOfElements: from the record, and later from code.
func TimestampsOfElements(p *sdk.Pipeline) {
	seconds := memio.Read("seconds", p, []int64{3, 1, 2}, sdk.EventTime(at, watermark.Bounded(10*second)))
	later := sdk.ParDoFunc("later", seconds, func(c *sdk.ProcessContext, v int64, emit *sdk.Emitter[kv]) error {
		emit.Emit(sdk.Pair("same", v))
		emit.EmitAt(c.Timestamp().Add(10*second), sdk.Pair("later", v))
		emit.EmitIn(window.Between(at(0), at(100)), at(50), sdk.Pair("elsewhere", v))
		return nil
	})
	passert.Equals("times", showTimes("show", later), "same=1@1", "same=2@2", "same=3@3", "later=1@11", "later=2@12", "later=3@13", "elsewhere=1@50", "elsewhere=2@50", "elsewhere=3@50")
}

// EndOfTime: what is at or beyond the end of the global window is in its last millisecond, and comes in time however the watermark
// is there before it.
func EndOfTime(p *sdk.Pipeline) {
	hours := func(n int) time.Time { return time.UnixMilli(math.MaxInt64 / 1000).Add(time.Duration(n) * time.Hour) }
	s := script{}.At(hours(-25), of("a", 1)...).At(hours(-20), of("a", 2)...).Watermark(hours(-20)).At(hours(-18), of("a", 4)...).
		Watermark(hours(-18)).At(hours(-1), of("a", 8)...).Watermark(hours(1)).At(hours(-25), of("a", 16)...)
	in := read(p, s)
	for _, c := range []sdk.TimestampCombiner{sdk.EndOfWindow, sdk.Earliest} {
		p.Scope(c.String(), func() {
			sums := sdk.CombinePerKey("sums", sdk.WindowInto("minutes", in, window.Fixed(time.Minute), c), sum{})
			passert.ForKey("of minutes", sums, "a").Equals(1, 14)
			beyond := sdk.ParDoFunc("beyond", sums, func(c *sdk.ProcessContext, v kv, emit *sdk.Emitter[kv]) error {
				if !c.Timestamp().Before(window.GlobalWindow.End()) {
					emit.Emit(v)
				}
				return nil
			})
			passert.Empty("none is beyond", beyond)
			again := sdk.CombinePerKey("again", sdk.WindowInto("hours", sums, window.Fixed(time.Hour), c), sum{})
			passert.ForKey("of hours", again, "a").Equals(1, 14)
		})
	}
}

// TimestampsOfPanes: the end of the window, or the earliest or latest of its elements that are not late.
func TimestampsOfPanes(p *sdk.Pipeline) {
	in := read(p, script{}.At(at(3), of("a", 1)...).At(at(2), of("a", 2)...).At(at(7), of("a", 4)...))
	for _, c := range []struct {
		combiner sdk.TimestampCombiner
		want     string
	}{{sdk.EndOfWindow, "a=7@9.999"}, {sdk.Earliest, "a=7@2"}, {sdk.Latest, "a=7@7"}} {
		name := c.combiner.String()
		w := sdk.WindowInto("windows "+name, in, window.Fixed(10*second), c.combiner)
		passert.Equals(name, showTimes("show "+name, sdk.CombinePerKey("sum "+name, w, sum{})), c.want)
	}
}

// EarliestHoldsTheWatermark: what has the time of its earliest element is not late in the windows of the next step.
func EarliestHoldsTheWatermark(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(8), of("a", 2)...).Watermark(at(9)).At(at(9), of("b", 4)...).Watermark(at(30))
	w := sdk.WindowInto("tens", read(p, s), window.Fixed(10*second), sdk.Earliest)
	twos := sdk.WindowInto("twos", sdk.CombinePerKey("sum", w, sum{}), window.Fixed(2*second))
	var late sdk.PCollection[kv]
	passert.Equals("sums", showWindows("show", sdk.CombinePerKey("again", twos, sum{}, sdk.LateTo(&late))), "a=3 [0,2)", "b=4 [8,10)")
	passert.Empty("late", late)
}
