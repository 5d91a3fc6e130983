// Package eventtime is the clock of the data: milliseconds since the Unix epoch, in Beam's range.
//
// Arithmetic saturates at both ends, so that the end of a window or its expiry can be computed for any
// element without wrapping (a wrapped expiry would drop on-time data in silence).
package eventtime

import (
	"math"
	"strconv"
	"time"
)

// Time is a point in event time, in milliseconds since 1970-01-01T00:00:00Z.
type Time int64

// Beam's range: the greatest and least microsecond of an int64, in milliseconds
// (org.apache.beam.sdk.transforms.windowing.BoundedWindow).
const (
	Min Time = math.MinInt64 / 1000
	Max Time = math.MaxInt64 / 1000

	// EndOfGlobalWindow is one day before Max: a watermark at Max is past the end of every window. No element and no
	// watermark but Max is at it or after it, though a window may end there.
	EndOfGlobalWindow Time = Max - 24*60*60*1000
)

// Clamp brings t into [Min, Max].
func Clamp(t Time) Time { return min(max(t, Min), Max) }

// Add returns t plus ms milliseconds, clamped to [Min, Max]. A t already at Min or Max stays there:
// both mean "no bound known", which no finite distance changes.
func (t Time) Add(ms int64) Time {
	if t <= Min {
		return Min
	}
	if t >= Max {
		return Max
	}
	s := int64(t) + ms
	if ms > 0 && s < int64(t) {
		return Max
	}
	if ms < 0 && s > int64(t) {
		return Min
	}
	return Clamp(Time(s))
}

// Floor returns the greatest multiple of step, shifted by offset, that is at or before t: the start of
// the fixed window that holds t. It floors for negative t too (FLINK-26334). step must be positive.
func (t Time) Floor(step, offset int64) Time {
	m := (int64(t) - offset) % step
	if m < 0 {
		m += step
	}
	return Time(int64(t) - m)
}

// FromTime converts, rounding down to the millisecond and clamping.
func FromTime(t time.Time) Time {
	// Far outside, seconds in milliseconds would wrap.
	s := min(max(t.Unix(), int64(Min)/1000-2), int64(Max)/1000+2)
	return Clamp(Time(s*1000 + int64(t.Nanosecond())/1e6))
}

// NotBefore converts as FromTime does, but rounds up: what happens at the result does not happen before t.
func NotBefore(t time.Time) Time {
	at := FromTime(t)
	if t.Nanosecond()%1e6 != 0 {
		at = Clamp(at + 1)
	}
	return at
}

// OfElement converts the time of an element. It is before the end of the global window, so that every window that holds it
// has a time in it at which it ends.
func OfElement(t time.Time) Time { return min(FromTime(t), EndOfGlobalWindow-1) }

// OfWatermark is t as a watermark of a source: Max is the end of all, and before it no watermark passes an element that may
// still come.
func OfWatermark(t Time) Time {
	if t < Max {
		return min(t, EndOfGlobalWindow-1)
	}
	return Max
}

// Time converts to a time.Time in UTC.
func (t Time) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// String gives RFC 3339 with milliseconds, or "min" and "max" at the ends of the range.
func (t Time) String() string {
	switch {
	case t <= Min:
		return "min"
	case t >= Max:
		return "max"
	}
	u := t.Time()
	if y := u.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(int64(t), 10) + "ms"
	}
	return u.Format("2006-01-02T15:04:05.000Z07:00")
}
