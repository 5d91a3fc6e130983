package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
)

func TestFixedFloorsBeforeTheEpoch(t *testing.T) { // FLINK-26334
	f := Fixed(10 * time.Millisecond)
	for _, c := range []struct{ t, start, end eventtime.Time }{
		{-1, -10, 0}, {-10, -10, 0}, {-11, -20, -10}, {0, 0, 10}, {9, 0, 10},
	} {
		if got, want := f.Assign(c.t), New(c.start, c.end); got != want {
			t.Errorf("Assign(%d) = %v, want %v", c.t, got, want)
		}
	}
	if got, want := f.Offset(3*time.Millisecond).Assign(2), New(-7, 3); got != want {
		t.Errorf("with offset: %v, want %v", got, want)
	}
}

func TestFixedHoldsItsTimestampAtTheEndsOfTime(t *testing.T) {
	for _, size := range []time.Duration{time.Millisecond, time.Hour, 365 * 24 * time.Hour} {
		for _, ts := range []eventtime.Time{eventtime.Min, eventtime.Min + 1, eventtime.Max - 1} {
			w := Fixed(size).Assign(ts)
			if w.StartTime() > ts || ts >= w.EndTime() {
				t.Errorf("size %v: %d is not in %d..%d", size, ts, w.StartTime(), w.EndTime())
			}
		}
	}
}

func TestTimestampOfAPaneLiesInItsWindow(t *testing.T) {
	for _, w := range []Window{New(eventtime.EndOfGlobalWindow-5, eventtime.Max), New(eventtime.Min, eventtime.Min+1), GlobalWindow} {
		if m := w.MaxTimestamp(); m < w.StartTime() || m >= w.EndTime() {
			t.Errorf("%d is not in %d..%d", m, w.StartTime(), w.EndTime())
		}
	}
}

func TestSessionsHoldTheirTimestampAtTheEndsOfTime(t *testing.T) {
	for _, ts := range []eventtime.Time{eventtime.Min, eventtime.Min + 1, eventtime.EndOfGlobalWindow - 1} {
		if w := Sessions(time.Hour).Assign(ts); w.StartTime() > ts || ts >= w.EndTime() {
			t.Errorf("%d is not in %d..%d", ts, w.StartTime(), w.EndTime())
		}
	}
}

func TestSlidingAssignsEveryWindowThatHoldsTheTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ms := func(name string, lo, hi int64) time.Duration {
			return time.Duration(rapid.Int64Range(lo, hi).Draw(r, name)) * time.Millisecond
		}
		f := Sliding(ms("size", 1, 50), ms("period", 1, 20)).Offset(ms("offset", -30, 30))
		at := eventtime.Time(rapid.Int64Range(-100, 100).Draw(r, "t"))
		size, period, shift := f.Size.Milliseconds(), f.Period.Milliseconds(), f.Shift.Milliseconds()
		var want []Window
		for s := at - eventtime.Time(size); s <= at; s++ {
			if (int64(s)-shift)%period == 0 && s <= at && at < s+eventtime.Time(size) {
				want = append(want, New(s, s+eventtime.Time(size)))
			}
		}
		got := f.Assign(nil, at)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Window{})); d != "" {
			r.Fatalf("%+v at %d (-want +got):\n%s", f, at, d)
		}
		slice, in := f.Slice(at)
		if in != (len(want) > 0) {
			r.Fatalf("%+v at %d: in a slice: %v, windows %v", f, at, in, want)
		}
		for x := slice.StartTime(); in && x < slice.EndTime(); x++ {
			if d := cmp.Diff(want, f.Assign(nil, x), cmp.AllowUnexported(Window{})); d != "" {
				r.Fatalf("%+v: slice %v at %d (-at %d +at %d):\n%s", f, slice, at, at, x, d)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	for _, bad := range []Fn{nil, Fixed(0), Fixed(-time.Hour), Fixed(time.Microsecond), Fixed(time.Second).Offset(time.Nanosecond),
		Sliding(0, time.Second), Sliding(time.Second, 0), Sliding(time.Second, time.Nanosecond), Sliding(24*time.Hour, time.Millisecond),
		Sessions(0), Sessions(time.Microsecond), SessionsFn{Gap: time.Second, Merged: true}} {
		if Validate(bad) == nil {
			t.Errorf("%v accepted", bad)
		}
	}
	if err := Validate(Fixed(time.Hour).Offset(-time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestBetweenIsHalfOpenAndUTC(t *testing.T) {
	start := time.Date(2026, 3, 1, 11, 0, 0, 999, time.FixedZone("CET", 3600))
	w := Between(start, start.Add(time.Hour))
	if want := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC); !w.Start().Equal(want) || !w.End().Equal(want.Add(time.Hour)) || w.Start().Location() != time.UTC {
		t.Errorf("%v", w)
	}
	if w != Fixed(time.Hour).Assign(w.StartTime()) {
		t.Errorf("%v is not the window of its start", w)
	}
}
