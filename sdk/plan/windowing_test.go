package plan_test

import (
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
)

// ownWindows has one collection for each way of windowing that Beam's protos have no words for.
func ownWindows(p *sdk.Pipeline) {
	in := clicks(p)
	w := func(name string, fn window.Fn) { sdk.WindowInto(name, in, fn) }
	w("days", window.Days(1))
	w("weeks", window.Weeks(2, time.Sunday).In("America/New_York"))
	w("ten days", window.Days(10).From(2026, time.January, 5))
	w("quarters", window.Months(3).From(2014, time.January, 15))
	w("years", window.Years(1).In("Europe/Berlin"))
	w("custom", window.Custom("shifts", "2 a day", shifts{}))
	w("custom that merges", window.Custom("visits", "", merging{}))
	sdk.CombinePerKey("count", sdk.WindowInto("months", sdk.KeyBy("by user", in, user), window.Months(1)), count{})
}

type shifts struct{}

func (shifts) Assign(dst []window.Window, t time.Time) []window.Window {
	start := t.Truncate(12 * time.Hour)
	return append(dst, window.Between(start, start.Add(12*time.Hour)))
}

type merging struct{ shifts }

func (merging) Merge(dst []window.Merge, _ []window.Window) []window.Merge { return dst }
