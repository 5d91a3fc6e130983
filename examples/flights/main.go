// Flights counts, for each airport and hour, the flights that left and how late they were.
//
// It reads a Parquet file of flights that is ordered by scheduled departure. The event time of a flight is
// when it really left, so that the file is a stream out of order; --out-of-orderness says by how much the
// watermark allows for that, --allowed-lateness how long an hour takes flights after it was written.
//
//	go run ./examples/flights --input=examples/flights/testdata/flights-100k.parquet --out-of-orderness=48h --output=out
package main

import (
	"flag"
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/io/parquetio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend/storage/s3store"
)

// Flight is a row of the input.
type Flight struct {
	Date   time.Time `parquet:"date"`  // scheduled departure
	Delay  int64     `parquet:"delay"` // minutes; negative: it left early
	Origin string    `parquet:"origin"`
}

// At is the event time: the real departure.
func (f Flight) At() time.Time { return f.Date.Add(time.Duration(f.Delay) * time.Minute) }

// Delays sums up the flights of one airport and hour.
type Delays struct{ Flights, Total, Max int64 }

// delayStats is a CombineFn.
type delayStats struct{}

func (delayStats) CreateAccumulator() Delays { return Delays{} }

func (delayStats) AddInput(d Delays, f Flight) Delays {
	return delayStats{}.MergeAccumulators(d, Delays{1, f.Delay, f.Delay})
}

func (delayStats) MergeAccumulators(a, b Delays) Delays {
	switch {
	case a.Flights == 0:
		return b
	case b.Flights == 0:
		return a
	}
	return Delays{a.Flights + b.Flights, a.Total + b.Total, max(a.Max, b.Max)}
}

func (delayStats) ExtractOutput(d Delays) Delays { return d }

// Row is a line of the output.
type Row struct {
	Origin      string `json:"origin"`
	WindowStart string `json:"window_start"` // RFC 3339, UTC
	Flights     int64  `json:"flights"`
	TotalDelay  int64  `json:"total_delay"`
	MaxDelay    int64  `json:"max_delay"`
	Pane        *int64 `json:"pane,omitempty"` // which firing of the hour, if there can be several
}

// earliest is by how much a flight may leave before its schedule; the data has up to 18.6 hours.
const earliest = 19 * time.Hour

var (
	input           = flag.String("input", "examples/flights/testdata/flights-100k.parquet", "Parquet `file` to read")
	output          = flag.String("output", "out", "`directory` to write")
	appendOutput    = flag.Bool("append-output", false, "write into a directory that has output already")
	outOfOrderness  = flag.Duration("out-of-orderness", 48*time.Hour, "`how much` later than others a flight may come")
	allowedLateness = flag.Duration("allowed-lateness", 0, "`how long` after its end an hour takes flights")
	maxRate         = flag.Float64("max-rate", 0, "read at most so many `records/s`; 0: no limit")
)

func build(p *sdk.Pipeline) error {
	flights := parquetio.Read[Flight]("read flights", p, *input,
		parquetio.OrderedBy("date", max(*outOfOrderness, earliest)),
		sdk.EventTime(Flight.At, watermark.Bounded(*outOfOrderness)), sdk.MaxRate(*maxRate))
	byOrigin := sdk.KeyBy("by origin", flights, func(f Flight) string { return f.Origin })
	hourly := sdk.WindowInto("hourly", byOrigin, window.Fixed(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Late(trigger.AfterCount(1))),
		sdk.AllowedLateness(*allowedLateness), sdk.Accumulating)
	delays := sdk.CombinePerKey("delays", hourly, delayStats{})

	several := *allowedLateness > 0
	rows := sdk.ParDoFunc("row", delays, func(c *sdk.ProcessContext, kv sdk.KV[string, Delays], emit *sdk.Emitter[Row]) error {
		r := Row{kv.Key, c.Window().Start().Format(time.RFC3339), kv.Value.Flights, kv.Value.Total, kv.Value.Max, nil}
		if several {
			r.Pane = new(c.Pane().Index)
		}
		emit.Emit(r)
		return nil
	})
	jsonlio.Write("write", rows, *output, jsonlio.AppendIf(*appendOutput, "--append-output"))
	return nil
}

// linked is what the program has beyond memory and files; rocksdb.go adds to it.
var linked = []runners.Option{runners.WithStorage(s3store.Driver)}

func main() { runners.Main("flights", build, linked...) }
