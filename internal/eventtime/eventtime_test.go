package eventtime

import (
	"math"
	"testing"
	"time"
)

func TestAddSaturatesAtBothEnds(t *testing.T) {
	for _, c := range []struct {
		t    Time
		ms   int64
		want Time
	}{
		{0, 5, 5}, {5, -10, -5},
		{Max - 1, 5, Max}, {Min + 1, -5, Min},
		{Max - 1, math.MaxInt64, Max}, {Min + 1, math.MinInt64, Min},
		{0, math.MaxInt64, Max}, {-1, math.MinInt64, Min},
		{Max, -5, Max}, {Min, 5, Min},
	} {
		if got := c.t.Add(c.ms); got != c.want {
			t.Errorf("%d.Add(%d) = %d, want %d", c.t, c.ms, got, c.want)
		}
	}
}

func TestFloorIsAtOrBeforeForEverySign(t *testing.T) {
	for _, step := range []int64{1, 3, 10, 3600_000} {
		for _, off := range []int64{0, 1, -4, 7} {
			for v := Time(-50); v <= 50; v++ {
				s := v.Floor(step, off)
				if s > v || v >= s+Time(step) || (int64(s)-off)%step != 0 {
					t.Fatalf("%d.Floor(%d, %d) = %d", v, step, off, s)
				}
			}
		}
	}
}

func TestFromTimeFloorsAndClamps(t *testing.T) {
	for _, c := range []struct {
		in   time.Time
		want Time
	}{
		{time.Unix(0, 1_999_999), 1},
		{time.Unix(0, -1), -1},
		{time.Date(20000000, 1, 1, 0, 0, 0, 0, time.UTC), Max},
		{time.Date(-20000000, 1, 1, 0, 0, 0, 0, time.UTC), Min},
		{time.Unix(math.MaxInt64/2, 0), Max},
	} {
		if got := FromTime(c.in); got != c.want {
			t.Errorf("FromTime(%v) = %d, want %d", c.in, got, c.want)
		}
	}
}

func TestNotBeforeRoundsUp(t *testing.T) {
	for _, c := range []struct {
		in   time.Time
		want Time
	}{
		{time.Unix(0, 2_000_000), 2}, {time.Unix(0, 2_000_001), 3}, {time.Unix(0, -1), 0}, {time.Unix(0, -1_000_001), -1},
		{time.Date(20000000, 1, 1, 0, 0, 0, 1, time.UTC), Max}, {time.Date(-20000000, 1, 1, 0, 0, 0, 0, time.UTC), Min},
	} {
		if got := NotBefore(c.in); got != c.want {
			t.Errorf("NotBefore(%v) = %d, want %d", c.in, got, c.want)
		}
	}
}

func TestFromTimeIsExactUpToTheEndsOfTime(t *testing.T) {
	for _, ms := range []Time{Min, Min + 1, Min + 999, Min + 1801, Max - 1801, Max - 1, Max} {
		if got := FromTime(ms.Time()); got != ms {
			t.Errorf("FromTime of %d is %d", int64(ms), int64(got))
		}
	}
}
