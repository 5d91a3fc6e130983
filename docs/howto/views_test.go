package howto_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

type Sale struct {
	Amount   float64
	Currency string
}

func dollars(sales sdk.PCollection[Sale], rates sdk.PCollection[sdk.KV[string, float64]]) sdk.PCollection[float64] {
	table := sdk.AsMap("table", sdk.WindowInto("daily", rates, window.Fixed(24*time.Hour)))
	hourly := sdk.WindowInto("hourly", sales, window.Fixed(time.Hour))
	return sdk.MapWith("to dollars", hourly, table, func(s Sale, table map[string]float64) (float64, error) {
		return s.Amount * table[s.Currency], nil
	})
}

func newest(rates sdk.PCollection[sdk.KV[string, float64]]) sdk.View[map[string]float64] {
	each := sdk.WindowInto("each", rates, window.Global(), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(1))))
	return sdk.AsMap("table", each)
}

func tellWhenStored(stored, events sdk.PCollection[string]) sdk.PCollection[string] {
	return sdk.WaitOn("after stored", events, stored)
}

type rateScript = teststream.Script[sdk.KV[string, float64]]

func TestSalesSeeTheTableOfTheirDay(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[float64] {
		sales := teststream.Read("sales", p, teststream.Script[Sale]{}.At(day(1), Sale{1, "EUR"}).At(day(2), Sale{1, "EUR"}))
		rates := teststream.Read("rates", p, rateScript{}.At(day(1), sdk.Pair("EUR", 1.5)).At(day(2), sdk.Pair("EUR", 2.5)))
		return dollars(sales, rates)
	})
	if d := cmp.Diff([]float64{1.5, 2.5}, got); d != "" {
		t.Error(d)
	}
}

func TestSalesSeeTheNewestTable(t *testing.T) {
	type event struct {
		Rate float64 // or a sale
		Sale int
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[float64] {
		all := teststream.Read("events", p, teststream.Script[event]{}.At(at, event{Sale: 1}, event{Rate: 1.5}, event{Sale: 2}, event{Rate: 2.5}, event{Sale: 3}))
		rates := sdk.Map("rate", sdk.Filter("rates", all, func(e event) bool { return e.Sale == 0 }), func(e event) sdk.KV[string, float64] { return sdk.Pair("EUR", e.Rate) })
		sales := sdk.Filter("sales", all, func(e event) bool { return e.Sale > 0 })
		return sdk.MapWith("convert", sales, newest(rates), func(e event, table map[string]float64) (float64, error) {
			return float64(e.Sale) * table["EUR"], nil
		})
	})
	if d := cmp.Diff([]float64{1.5, 3, 7.5}, got); d != "" {
		t.Error(d)
	}
}

func TestTellWhenStored(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return tellWhenStored(sdk.Create("stored", p, "s"), sdk.Create("events", p, "e"))
	})
	if d := cmp.Diff([]string{"e"}, got); d != "" {
		t.Error(d)
	}
}
