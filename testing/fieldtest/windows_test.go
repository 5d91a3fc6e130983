package fieldtest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
)

func beforeTheEpoch(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(-1), k("a")...).At(at(-10), k("b")...).At(at(-11), k("c")...).At(at(0), k("d")...)
	return grouped("groups", sdk.WindowInto("tens", play(p, s), window.Fixed(10*ms)), false)
}

// FLINK-26334: an element before the epoch was put into the next window.
func TestWindowsBeforeTheEpoch(t *testing.T) {
	everywhere(t, "A1", "k [-10,0) a b", "k [-20,-10) c", "k [0,10) d")
}

func betweenWindows(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}
	for v := int64(1); v <= 10; v++ {
		s = s.At(at(v), k(fmt.Sprint(v))...)
	}
	in := play(p, s)
	slices := grouped("in slices", sdk.WindowInto("windows", in, window.Sliding(5*ms, 10*ms)), false)
	whole := grouped("in whole windows", sdk.WindowInto("windows with lateness", in, window.Sliding(5*ms, 10*ms), sdk.AllowedLateness(100*ms)), false)
	return sdk.Flatten("both", slices, whole)
}

// https://github.com/apache/beam/issues/36609: elements that are in no window crashed the runner. They are not late either.
func TestElementsBetweenSlidingWindowsVanish(t *testing.T) {
	everywhere(t, "A3", "k [0,5) 1 2 3 4", "k [10,15) 10", "k [0,5) 1 2 3 4", "k [10,15) 10")

	r := ptest.Run(t, func(p *sdk.Pipeline) error { betweenWindows(p, ""); return nil })
	for _, step := range []string{"in slices/group", "in whole windows/group"} {
		if n := r.Step(step).LateDropped; n != 0 {
			t.Errorf("%s counts %d elements as late", step, n)
		}
	}
}

// atTheEndsOfTime has elements at the first and the last time that they can have.
func atTheEndsOfTime(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	first, last := eventtime.Min.Time(), eventtime.EndOfGlobalWindow.Add(-1).Time()
	in := play(p, script{}.At(first, k("first")...).At(at(0), k("amid")...).At(last, k("last")...))
	var all []sdk.PCollection[string]
	for i, name := range []string{"fixed", "sliding", "sessions"} {
		fn := []window.Fn{window.Fixed(time.Hour).Offset(-7 * time.Minute), window.Sliding(time.Hour, time.Hour), window.Sessions(24 * time.Hour)}[i]
		w := sdk.WindowInto(name, in, fn, sdk.AllowedLateness(100*365*24*time.Hour))
		groups := sdk.MapValues(name+" sizes", sdk.GroupByKey(name+" group", w), func(vs sdk.Iterable[string]) string { return fmt.Sprint(vs.Len()) })
		all = append(all, everything(name+" regardless", sdk.Map(name+" lines", groups, func(kv pair) string { return name + " " + kv.Value })))
	}
	return sdk.Flatten("all", all[0], all[1:]...)
}

// The rule of the group, at the ends of time: nothing wraps, so that nothing is late and each element is in a window of its own.
func TestWindowsAtTheEndsOfTime(t *testing.T) {
	everywhere(t, "A ends", "fixed 1", "fixed 1", "fixed 1", "sliding 1", "sliding 1", "sliding 1", "sessions 1", "sessions 1", "sessions 1")
}

// The rule of the group: start <= t < end for any sign, offset and size, and what lies beyond the ends of time is at them.
func TestWindowsHoldAnyTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		millis := func(name string, from, to int64) time.Duration {
			return time.Duration(rapid.OneOf(rapid.Int64Range(from, min(to, from+20)), rapid.Int64Range(from, to)).Draw(r, name)) * ms
		}
		const long = int64(200 * 365 * 24 * time.Hour / ms)
		when := eventtime.Time(rapid.OneOf(
			rapid.Int64Range(-50, 50),
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.EndOfGlobalWindow)-1),
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Min)+50),
			rapid.Int64Range(int64(eventtime.EndOfGlobalWindow)-50, int64(eventtime.EndOfGlobalWindow)-1),
		).Draw(r, "time"))
		size, offset := millis("size", 1, long), millis("offset", -50, long)
		period := size / time.Duration(rapid.Int64Range(1, 5).Draw(r, "windows")) / ms * ms
		if rapid.Bool().Draw(r, "gaps") {
			period = size + millis("gap", 0, 50)
		}
		period = max(ms, period)
		got := window.Sliding(size, period).Offset(offset).Assign(nil, when)
		got = append(got, window.Fixed(size).Offset(offset).Assign(when), window.Sessions(size).Assign(when))
		for _, w := range got {
			if w.StartTime() > when || when >= w.EndTime() || w.MaxTimestamp() < when {
				r.Fatalf("size %v, period %v, offset %v: %d is not in [%d, %d)", size, period, offset, when, w.StartTime(), w.EndTime())
			}
			if n := int64(w.EndTime()) - int64(w.StartTime()); n > size.Milliseconds() || n < size.Milliseconds() && w.StartTime() > eventtime.Min && w.EndTime() < eventtime.EndOfGlobalWindow {
				r.Fatalf("size %v, period %v, offset %v: [%d, %d) is %d ms long", size, period, offset, w.StartTime(), w.EndTime(), n)
			}
		}
		// A time is in as many sliding windows as start in the size before it.
		first := floor(int64(when)-size.Milliseconds()-offset.Milliseconds(), period.Milliseconds())
		last := floor(int64(when)-offset.Milliseconds(), period.Milliseconds())
		if n := int64(len(got) - 2); n != last-first {
			r.Fatalf("size %v, period %v, offset %v: %d is in %d sliding windows, not %d", size, period, offset, when, n, last-first)
		}
	})
}

func floor(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}
