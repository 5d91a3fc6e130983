package main

import (
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

func TestJoinWaitsForTheSlowerStream(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 10, minute, 0, 0, time.UTC) }
	ptest.Run(t, func(p *sdk.Pipeline) error {
		orders := teststream.Read("orders", p, teststream.Script[Order]{}.
			At(at(1), Order{ID: 1, Item: "tea"}, Order{ID: 2, Item: "salt"}).Watermark(at(0).Add(5*time.Hour)))
		payments := teststream.Read("payments", p, teststream.Script[Payment]{}.
			Watermark(at(0)).At(at(2), Payment{Order: 1, Cents: 400}).At(at(59), Payment{Order: 1, Cents: 50}, Payment{Order: 9, Cents: 700}))
		passert.Equals("rows", join(orders, payments), Row{1, "tea", 450}, Row{2, "salt", 0}, Row{9, "unknown", 700})
		return nil
	})
}
