package howto_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

func countIn(name string, clicks sdk.PCollection[Click], fn window.Fn) sdk.PCollection[sdk.KV[string, int64]] {
	pages := sdk.Map(name+" page", sdk.WindowInto(name, clicks, fn), func(c Click) string { return c.Page })
	return stats.Count(name+" count", pages)
}

func TestDaysOfBerlin(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(22, 59)}, {"/home", at(23, 0)}}, sdk.EventTime(Click.At, watermark.Monotonic()))

		daily := sdk.WindowInto("daily", clicks, window.Days(1).In("Europe/Berlin"))
		counts := stats.Count("count", sdk.Map("page", daily, func(c Click) string { return c.Page }))

		passert.EqualsInWindow("today", counts, window.Between(at(-1, 0), at(23, 0)), sdk.Pair("/home", int64(1)))
		passert.EqualsInWindow("tomorrow", counts, window.Between(at(23, 0), at(47, 0)), sdk.Pair("/home", int64(1)))
		return nil
	})
}

// OfficeHours has a window for each day from nine to five, in UTC. What comes at another time is in none.
type OfficeHours struct{}

func (OfficeHours) Assign(dst []window.Window, t time.Time) []window.Window {
	nine := t.Truncate(24 * time.Hour).Add(9 * time.Hour)
	five := nine.Add(8 * time.Hour)
	if t.Before(nine) || !t.Before(five) {
		return dst
	}
	return append(dst, window.Between(nine, five))
}

func inOfficeHours(clicks sdk.PCollection[Click]) sdk.PCollection[Click] {
	return sdk.WindowInto("office hours", clicks, window.Custom("office hours", "9 to 17 UTC", OfficeHours{}))
}

func TestOfficeHours(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(8, 59)}, {"/home", at(9, 0)}, {"/home", at(16, 59)}, {"/home", at(17, 0)}},
			sdk.EventTime(Click.At, watermark.Monotonic()))
		counts := stats.Count("count", sdk.Map("page", inOfficeHours(clicks), func(c Click) string { return c.Page }))
		passert.EqualsInWindow("day", counts, window.Between(at(9, 0), at(17, 0)), sdk.Pair("/home", int64(2)))
		return nil
	})
}

// Visits are sessions that are at most Max long: one that would be longer is cut.
type Visits struct{ Gap, Max time.Duration }

func (v Visits) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(v.Gap)))
}

func (v Visits) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	for len(open) > 0 {
		start, end, n := open[0].Start(), open[0].End(), 1
		for n < len(open) && open[n].Start().Before(end) && open[n].End().Sub(start) <= v.Max {
			end = open[n].End()
			n++
		}
		if n > 1 {
			dst = append(dst, window.Merge{From: open[:n], Into: window.Between(start, end)})
		}
		open = open[n:]
	}
	return dst
}

func visits(gap, longest time.Duration) window.Fn {
	return window.Custom("visits", fmt.Sprintf("gap=%v max=%v", gap, longest), Visits{gap, longest})
}

func TestVisitsAreCut(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		var cs []Click
		for minute := range 10 {
			cs = append(cs, Click{"/home", at(10, 5*minute)})
		}
		clicks := memio.Read("clicks", p, cs, sdk.EventTime(Click.At, watermark.Monotonic()))
		counts := countIn("visits", clicks, visits(10*time.Minute, 30*time.Minute))
		passert.EqualsInWindow("first", counts, window.Between(at(10, 0), at(10, 30)), sdk.Pair("/home", int64(5)))
		passert.EqualsInWindow("second", counts, window.Between(at(10, 25), at(10, 55)), sdk.Pair("/home", int64(5)))
		return nil
	})
}
