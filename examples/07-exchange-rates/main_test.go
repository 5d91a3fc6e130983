package main

import (
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

func TestASaleWaitsForTheTableOfItsDay(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		sales := teststream.Read("sales", p, teststream.Script[Sale]{}.
			At(at(1, 9), sold[0]).At(at(2, 0), sold[2]).Watermark(at(9, 0)))
		// The table of the second day comes in two pieces, long after the sale.
		rates := teststream.Read("rates", p, teststream.Script[Rate]{}.
			At(at(1, 0), fixed[0]).Watermark(at(2, 0)).
			At(at(2, 0), Rate{at(2, 0), "GBP", 1.4}).At(at(2, 0), fixed[2]).Watermark(at(2, 23).Add(time.Hour)))
		passert.Equals("dollars", convert(sales, rates), "2026-03-01 tea: 4.40 USD", "2026-03-02 tea: 4.80 USD")
		return nil
	})
}
