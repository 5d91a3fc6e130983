// Command 05-join puts the orders of an hour together with their payments.
//
// It teaches CoGroupByKey: it gives, for each key and window, all values of two streams, also where one of them
// has none. Both are windowed alike; the window fires when the watermarks of both have passed its end. The slower
// stream decides when.
//
//	$ go run ./examples/05-join --output=out && cat out/* | sort
//	{"order":1,"item":"tea","paid":450}
//	{"order":2,"item":"salt","paid":0}
//	{"order":3,"item":"rice","paid":250}
//	{"order":9,"item":"unknown","paid":700}
package main

import (
	"flag"
	"path/filepath"
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// Order is what somebody bought.
type Order struct {
	ID   int64     `json:"id"`
	Item string    `json:"item"`
	Time time.Time `json:"time"`
}

// Payment is for an order; there may be several.
type Payment struct {
	Order int64     `json:"order"`
	Cents int64     `json:"cents"`
	Time  time.Time `json:"time"`
}

// At is the event time.
func (o Order) At() time.Time { return o.Time }

// At is the event time.
func (p Payment) At() time.Time { return p.Time }

// Row is a line of the output.
type Row struct {
	Order int64  `json:"order"`
	Item  string `json:"item"`
	Paid  int64  `json:"paid"` // cents
}

var (
	input  = flag.String("input", "examples/05-join/testdata", "`directory` with orders.jsonl and payments.jsonl")
	output = flag.String("output", "out", "`directory` to write")
)

func build(p *sdk.Pipeline) error {
	orders := jsonlio.Read[Order]("orders", p, filepath.Join(*input, "orders.jsonl"), sdk.EventTime(Order.At, watermark.Bounded(time.Minute)))
	payments := jsonlio.Read[Payment]("payments", p, filepath.Join(*input, "payments.jsonl"), sdk.EventTime(Payment.At, watermark.Bounded(time.Minute)))
	jsonlio.Write("write", join(orders, payments), *output)
	return nil
}

func join(orders sdk.PCollection[Order], payments sdk.PCollection[Payment]) sdk.PCollection[Row] {
	byID := sdk.WindowInto("hour of order", sdk.KeyBy("by id", orders, func(o Order) int64 { return o.ID }), window.Fixed(time.Hour))
	byOrder := sdk.WindowInto("hour of payment", sdk.KeyBy("by order", payments, func(p Payment) int64 { return p.Order }), window.Fixed(time.Hour))
	return sdk.Map("row", sdk.CoGroupByKey("join", byID, byOrder), row)
}

func row(kv sdk.KV[int64, sdk.CoGroup[Order, Payment]]) Row {
	r := Row{Order: kv.Key, Item: "unknown"}
	for o := range kv.Value.A.All() {
		r.Item = o.Item
	}
	for p := range kv.Value.B.All() {
		r.Paid += p.Cents
	}
	return r
}

func main() { runners.Main("join", build) }
