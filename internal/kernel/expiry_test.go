package kernel

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// TestExpiryNeverWraps: no window expires before its end, whatever the lateness, up to the ends of time; and no lateness reaches beyond
// the end of the global window.
func TestExpiryNeverWraps(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		start := eventtime.Time(rapid.OneOf(
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Max)-1),
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Min)+3), rapid.Int64Range(int64(eventtime.Max)-3, int64(eventtime.Max)-1),
		).Draw(r, "start"))
		w := window.New(start, start+eventtime.Time(rapid.Int64Range(1, math.MaxInt64/2).Draw(r, "size")))
		lateness := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, math.MaxInt64), rapid.Just(int64(math.MaxInt64))).Draw(r, "lateness")
		x := expiry(w, lateness)
		if x < w.EndTime() || x > eventtime.Max {
			r.Fatalf("[%d, %d) with lateness %d expires at %d", w.StartTime(), w.EndTime(), lateness, x)
		}
		if left := int64(eventtime.EndOfGlobalWindow - w.EndTime()); lateness <= left && x != w.EndTime()+eventtime.Time(lateness) {
			r.Fatalf("[%d, %d) with lateness %d expires at %d", w.StartTime(), w.EndTime(), lateness, x)
		}
	})
}
