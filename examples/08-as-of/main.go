// Command 08-as-of converts each sale by the rate that was valid at its time.
//
// It teaches a lookup by event time, for tables that change at any moment: a rate holds until the next, for a minute or for days.
// A side view (07-exchange-rates) has one table a window, and none in a window without rates. Here both streams go through one step
// with state, keyed by currency. It keeps rates in the order of their time, and lets each sale wait until the watermark has passed
// it, for only then are all rates up to it known. The timer that it waits for also drops rates that have been replaced, so that a
// currency keeps one and those still to come. OutputAt gives what it emits the time of the sale, and holds the watermark for it.
//
// A sale that comes behind the watermark is converted at once. If the rate of its time has been replaced it finds none.
//
//	$ go run ./examples/08-as-of --output=out && cat out/* | sort
//	08:15 tea: no rate for EUR
//	09:30 tea: 4.40 USD
//	10:29 book: 11.00 USD
//	10:30 book: 12.00 USD
//	23:00 tea: 4.80 USD
package main

import (
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
)

// Sale is what a shop sold.
type Sale struct {
	Time     time.Time
	Item     string
	Amount   float64
	Currency string
}

// Rate is what a currency is worth from a time on, in dollars.
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

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

var (
	sold = []Sale{{at(8, 15), "tea", 4, "EUR"}, {at(9, 30), "tea", 4, "EUR"}, {at(10, 29), "book", 10, "EUR"},
		{at(10, 30), "book", 10, "EUR"}, {at(23, 0), "tea", 4, "EUR"}}
	fixed = []Rate{{at(9, 0), "EUR", 1.1}, {at(10, 30), "EUR", 1.2}, {at(11, 0), "GBP", 1.3}}
)

func build(p *sdk.Pipeline) error {
	sales := memio.Read("sales", p, sold, sdk.EventTime(Sale.At, watermark.Monotonic()))
	rates := memio.Read("rates", p, fixed, sdk.EventTime(Rate.At, watermark.Monotonic()))
	textio.Write("write", convert(sales, rates), *output)
	return nil
}

// event is a sale or a rate: the two streams as one.
type event struct {
	IsRate bool
	Sale   Sale
	Rate   Rate
}

func convert(sales sdk.PCollection[Sale], rates sdk.PCollection[Rate]) sdk.PCollection[string] {
	s := sdk.Map("sale", sales, func(s Sale) sdk.KV[string, event] { return sdk.Pair(s.Currency, event{Sale: s}) })
	r := sdk.Map("rate", rates, func(r Rate) sdk.KV[string, event] { return sdk.Pair(r.Currency, event{IsRate: true, Rate: r}) })
	return sdk.ParDoPerKey("as of", sdk.Flatten("both", s, r), &asOf{})
}

// asOf gives each sale the newest rate that is not after it.
type asOf struct {
	rates   state.OrderedList[float64]
	waiting state.OrderedList[Sale]
	passed  sdk.TimerFamily // a timer for each millisecond with a sale or rate
}

func (a *asOf) Declare(d *sdk.KeyedDecl) {
	a.rates = state.NewOrderedList[float64](d, "rates")
	a.waiting = state.NewOrderedList[Sale](d, "waiting")
	a.passed = sdk.EventTimerFamily(d, "passed", a.onPassed)
}

func (a *asOf) ProcessElement(c *sdk.ProcessContext, _ string, e event, _ *sdk.Emitter[string]) error {
	t := c.Timestamp()
	if e.IsRate {
		a.rates.Add(t, e.Rate.Dollars)
	} else {
		a.waiting.Add(t, e.Sale)
	}
	// While the watermark is at t, a rate of that very time may come.
	a.passed.Set(strconv.FormatInt(t.UnixMilli(), 10), t.Add(time.Millisecond), sdk.OutputAt(t))
	return nil
}

// onPassed is called once nothing of c.Timestamp() or before will come. Timers fire in the order of time.
func (a *asOf) onPassed(c *sdk.ProcessContext, currency, _ string, emit *sdk.Emitter[string]) error {
	t := c.Timestamp()
	end := t.Add(time.Millisecond)
	var rate float64
	var since time.Time
	for from, dollars := range a.rates.Range(time.Time{}, end) {
		since, rate = from, dollars
	}
	for _, s := range a.waiting.Range(t, end) {
		line := fmt.Sprintf("%s %s: no rate for %s", s.Time.Format("15:04"), s.Item, currency)
		if !since.IsZero() {
			line = fmt.Sprintf("%s %s: %.2f USD", s.Time.Format("15:04"), s.Item, s.Amount*rate)
		}
		emit.Emit(line)
	}
	a.waiting.ClearRange(t, end)
	if !since.IsZero() {
		a.rates.ClearRange(time.Time{}, since) // those that have been replaced
	}
	return nil
}

func main() { runners.Main("as-of", build) }
