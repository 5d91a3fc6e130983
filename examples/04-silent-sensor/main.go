// Command 04-silent-sensor raises an alert when a sensor has said nothing for ten minutes.
//
// It teaches a step with state: ParDoPerKey calls a KeyedDoFn with the cells and timers of the element's key.
// Declare names them; each reading stores itself in a cell and moves a timer of event time; if none moves it
// again, it fires. Cells and timers are part of checkpoints. Declare has a pointer receiver, for it sets fields.
//
//	$ go run ./examples/04-silent-sensor --parallelism=1 --watermark-interval=0 --output=out && cat out/*
//	10:15 attic is silent, last 21.5 degrees
//	10:34 cellar is silent, last 12.0 degrees
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
)

// Reading is what a sensor says.
type Reading struct {
	Sensor  string
	Time    time.Time
	Degrees float64
}

// At is the event time.
func (r Reading) At() time.Time { return r.Time }

// silence is a KeyedDoFn: it emits an alert for each sensor that falls silent.
type silence struct {
	after time.Duration
	last  state.Value[float64]
	alarm sdk.Timer
}

func (s *silence) Declare(d *sdk.KeyedDecl) {
	s.last = state.NewValue[float64](d, "last")
	s.alarm = sdk.EventTimer(d, "alarm", s.onAlarm)
}

func (s *silence) ProcessElement(c *sdk.ProcessContext, _ string, r Reading, _ *sdk.Emitter[string]) error {
	s.last.Set(r.Degrees)
	s.alarm.Set(c.Timestamp().Add(s.after))
	return nil
}

func (s *silence) onAlarm(c *sdk.ProcessContext, sensor string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprintf("%s %s is silent, last %.1f degrees", c.Timestamp().Format("15:04"), sensor, s.last.Get()))
	s.last.Clear() // a sensor that has been reported takes no room
	return nil
}

var output = flag.String("output", "out", "`directory` to write")

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

var readings = []Reading{
	{"attic", at(10, 0), 21}, {"cellar", at(10, 1), 12}, {"attic", at(10, 5), 21.5},
	{"cellar", at(10, 9), 12}, {"cellar", at(10, 17), 12}, {"cellar", at(10, 24), 12},
}

func build(p *sdk.Pipeline) error {
	in := memio.Read("readings", p, readings, sdk.EventTime(Reading.At, watermark.Monotonic()))
	textio.Write("write", alerts(in), *output)
	return nil
}

func alerts(in sdk.PCollection[Reading]) sdk.PCollection[string] {
	bySensor := sdk.KeyBy("by sensor", in, func(r Reading) string { return r.Sensor })
	return sdk.ParDoPerKey("silence", bySensor, &silence{after: 10 * time.Minute})
}

func main() { runners.Main("silent-sensor", build) }
