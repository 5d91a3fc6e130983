package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

func TestASaleHasTheRateOfItsTimeWhicheverComesFirst(t *testing.T) {
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		sales := teststream.Read("sales", p, teststream.Script[Sale]{}.
			At(at(10, 30), sold[3]).At(at(9, 30), sold[1]).At(at(10, 29), sold[2]).At(at(8, 15), sold[0]).Watermark(at(12, 0)))
		rates := teststream.Read("rates", p, teststream.Script[Rate]{}.
			At(at(11, 0), Rate{at(11, 0), "EUR", 9}).At(at(10, 30), fixed[1]).At(at(9, 0), fixed[0]).Watermark(at(12, 0)))
		return convert(sales, rates)
	})
	want := []ptest.Element[string]{
		{Value: "08:15 tea: no rate for EUR", Time: at(8, 15)}, {Value: "09:30 tea: 4.40 USD", Time: at(9, 30)},
		{Value: "10:29 book: 11.00 USD", Time: at(10, 29)}, {Value: "10:30 book: 12.00 USD", Time: at(10, 30)},
	}
	for i := range got {
		got[i].Window, got[i].Pane = window.Window{}, window.Pane{}
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestWhatHasBeenReplacedIsDropped(t *testing.T) {
	fn := &asOf{}
	h := ptest.KeyedDoFn[string, event, string](t, fn)
	for minute := range 60 {
		r := Rate{at(9, minute), "EUR", float64(minute)}
		if err := h.ProcessElement("EUR", ptest.Element[event]{Value: event{IsRate: true, Rate: r}, Time: r.Time}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Watermark(at(9, 50)); err != nil {
		t.Fatal(err)
	}
	h.State("EUR", window.Window{}, func() {
		if n := fn.rates.Len(); n != 11 {
			t.Errorf("%d rates are kept, want that of 9:49, which holds, and ten to come", n)
		}
	})
	late := Sale{at(9, 45), "tea", 4, "EUR"}
	if err := h.ProcessElement("EUR", ptest.Element[event]{Value: event{Sale: late}, Time: late.Time}); err != nil {
		t.Fatal(err)
	}
	if err := h.Watermark(at(9, 50).Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"09:45 tea: no rate for EUR"}, h.Output()); d != "" {
		t.Errorf("a sale behind the watermark: %s", d)
	}
}
