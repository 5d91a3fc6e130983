// Command 02-hourly-clicks counts the clicks on each page by the hour in which they happened.
//
// It teaches event time: sdk.EventTime says when an element happened and how far out of order elements come, a
// window takes those of an hour, and the hour fires when the watermark passes its end. What comes after that is
// late; LateTo gives it an output of its own. The clicks are in the program, so that each is followed by its
// watermark and which one is late is no chance; --watermark-interval=0 is for the same.
//
//	$ go run ./examples/02-hourly-clicks --watermark-interval=0 --output=out && cat out/counts/* | sort && cat out/late/*
//	{"hour":"10:00","page":"/cart","clicks":1}
//	{"hour":"10:00","page":"/home","clicks":2}
//	{"hour":"11:00","page":"/home","clicks":2}
//	{"page":"/home","time":"2026-03-01T10:20:00Z"}
package main

import (
	"flag"
	"path/filepath"
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/stats"
)

// Click is one visit of a page.
type Click struct {
	Page string    `json:"page"`
	Time time.Time `json:"time"`
}

// At is the event time.
func (c Click) At() time.Time { return c.Time }

// Row is a line of the output.
type Row struct {
	Hour   string `json:"hour"`
	Page   string `json:"page"`
	Clicks int64  `json:"clicks"`
}

var output = flag.String("output", "out", "`directory` to write")

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

// clicks come out of order by up to ten minutes, but for the last.
var clicks = []Click{
	{"/home", at(10, 5)}, {"/home", at(10, 59)}, {"/cart", at(10, 58)}, {"/home", at(11, 2)},
	{"/home", at(11, 30)}, // 11:30 less ten minutes: the hour of ten fires
	{"/home", at(10, 20)}, // and this one is late
}

func build(p *sdk.Pipeline) error {
	in := memio.Read("clicks", p, clicks, sdk.EventTime(Click.At, watermark.Bounded(10*time.Minute)))
	rows, late := count(in)
	jsonlio.Write("write", rows, filepath.Join(*output, "counts"))
	jsonlio.Write("write late", late, filepath.Join(*output, "late"))
	return nil
}

// count returns the counts of each hour, and the clicks that came too late for theirs.
func count(in sdk.PCollection[Click]) (sdk.PCollection[Row], sdk.PCollection[Click]) {
	byPage := sdk.KeyBy("by page", in, func(c Click) string { return c.Page })
	hourly := sdk.WindowInto("hourly", byPage, window.Fixed(time.Hour))
	var late sdk.PCollection[sdk.KV[string, Click]]
	counts := sdk.CombinePerKey("count", hourly, stats.CountFn[Click]{}, sdk.LateTo(&late))
	rows := sdk.ParDoFunc("row", counts, func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[Row]) error {
		emit.Emit(Row{c.Window().Start().Format("15:04"), kv.Key, kv.Value})
		return nil
	})
	return rows, sdk.Map("late click", late, func(kv sdk.KV[string, Click]) Click { return kv.Value })
}

func main() { runners.Main("hourly-clicks", build) }
