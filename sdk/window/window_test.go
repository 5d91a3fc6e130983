package window

import (
	"testing"
	"time"

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

func TestValidate(t *testing.T) {
	for _, bad := range []Fn{nil, Fixed(0), Fixed(-time.Hour), Fixed(time.Microsecond), Fixed(time.Second).Offset(time.Nanosecond)} {
		if Validate(bad) == nil {
			t.Errorf("%v accepted", bad)
		}
	}
	if err := Validate(Fixed(time.Hour).Offset(-time.Minute)); err != nil {
		t.Error(err)
	}
}
