// Command 07-exchange-rates converts sales by a table that changes slowly.
//
// It teaches side views: the rates of a day are a map that every sale of the day can look into. A sale sees the
// table of the day in which its own window, an hour, ends. It waits until that table is whole, and so does the
// watermark; sales of days whose table is there go on. For rates that change within a day see 08-as-of.
//
//	$ go run ./examples/07-exchange-rates --output=out && cat out/* | sort
//	2026-03-01 book: 11.00 USD
//	2026-03-01 tea: 4.40 USD
//	2026-03-02 tea: 4.80 USD
//	2026-03-03 tea: no rate for EUR
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// Sale is what a shop sold.
type Sale struct {
	Time     time.Time
	Item     string
	Amount   float64
	Currency string
}

// Rate is what a currency is worth from a day on, in dollars.
type Rate struct {
	Time     time.Time
	Currency string
	Dollars  float64
}

// At is the event time.
func (s Sale) At() time.Time { return s.Time }

// At is the event time.
func (r Rate) At() time.Time { return r.Time }

var output = flag.String("output", "out", "`directory` to write")

func at(day, hour int) time.Time { return time.Date(2026, 3, day, hour, 0, 0, 0, time.UTC) }

var (
	sold  = []Sale{{at(1, 9), "tea", 4, "EUR"}, {at(1, 23), "book", 10, "EUR"}, {at(2, 0), "tea", 4, "EUR"}, {at(3, 7), "tea", 4, "EUR"}}
	fixed = []Rate{{at(1, 0), "EUR", 1.1}, {at(1, 0), "GBP", 1.3}, {at(2, 0), "EUR", 1.2}}
)

func build(p *sdk.Pipeline) error {
	sales := memio.Read("sales", p, sold, sdk.EventTime(Sale.At, watermark.Monotonic()))
	rates := memio.Read("rates", p, fixed, sdk.EventTime(Rate.At, watermark.Monotonic()))
	textio.Write("write", convert(sales, rates), *output)
	return nil
}

func convert(sales sdk.PCollection[Sale], rates sdk.PCollection[Rate]) sdk.PCollection[string] {
	pairs := sdk.Map("by currency", rates, func(r Rate) sdk.KV[string, float64] { return sdk.Pair(r.Currency, r.Dollars) })
	table := sdk.AsMap("table", sdk.WindowInto("daily", pairs, window.Fixed(24*time.Hour)))
	return sdk.ParDoFunc("to dollars", sdk.WindowInto("hourly", sales, window.Fixed(time.Hour)),
		func(c *sdk.ProcessContext, s Sale, emit *sdk.Emitter[string]) error {
			day := s.Time.Format(time.DateOnly)
			rate, ok := table.Get(c)[s.Currency]
			if !ok {
				emit.Emit(fmt.Sprintf("%s %s: no rate for %s", day, s.Item, s.Currency))
				return nil
			}
			emit.Emit(fmt.Sprintf("%s %s: %.2f USD", day, s.Item, s.Amount*rate))
			return nil
		}, sdk.With(table))
}

func main() { runners.Main("exchange-rates", build) }
