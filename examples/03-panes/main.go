// Command 03-panes adds up the sales of each hour and does not wait for its end.
//
// It teaches triggers. An hour fires a pane early after every two sales, one on time when the watermark passes its
// end, and one for each sale that comes later, up to the allowed lateness. A pane has what is new (discarding, the
// default) or all there is so far (accumulating): whoever stores the result takes the first to add, the second to
// replace. The pane tells which firing made it.
//
//	$ go run ./examples/03-panes --parallelism=1 --watermark-interval=0 --accumulating --output=out && cat out/*
//	EARLY 0: 30
//	ON_TIME 1: 60
//	LATE 2: 65
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/stats"
)

// Sale is what a shop sold.
type Sale struct {
	Time  time.Time
	Cents int64
}

// At is the event time.
func (s Sale) At() time.Time { return s.Time }

var (
	output       = flag.String("output", "out", "`directory` to write")
	accumulating = flag.Bool("accumulating", false, "a pane has all sales of its hour so far, not only the new ones")
)

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

var sales = []Sale{
	{at(10, 1), 10}, {at(10, 2), 20}, // two: an early pane
	{at(10, 3), 30},
	{at(11, 30), 0}, // the watermark passes eleven: the pane on time
	{at(10, 59), 5}, // within the allowed lateness: a late pane
}

func build(p *sdk.Pipeline) error {
	in := memio.Read("sales", p, sales, sdk.EventTime(Sale.At, watermark.Monotonic()))
	mode := sdk.Discarding
	if *accumulating {
		mode = sdk.Accumulating
	}
	textio.Write("write", total(in, mode), *output)
	return nil
}

// total returns a line for each pane of the hours that had sales.
func total(in sdk.PCollection[Sale], mode sdk.Accumulation) sdk.PCollection[string] {
	sold := sdk.Filter("sold", in, func(s Sale) bool { return s.Cents > 0 })
	hourly := sdk.WindowInto("hourly", sold, window.Fixed(time.Hour), mode, sdk.AllowedLateness(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(2)).Late(trigger.AfterCount(1))))
	cents := sdk.Map("cents", hourly, func(s Sale) int64 { return s.Cents })
	return sdk.ParDoFunc("line", sdk.CombineGlobally("total", cents, stats.Sum[int64]{}),
		func(c *sdk.ProcessContext, sum int64, emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprintf("%v %d: %d", c.Pane().Timing, c.Pane().Index, sum))
			return nil
		})
}

func main() { runners.Main("panes", build) }
