package main

import (
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

func TestClicksArePerHourAndLateOnesApart(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := memio.Read("clicks", p, clicks, sdk.EventTime(Click.At, watermark.Bounded(10*time.Minute)))
		rows, late := count(in)
		passert.Equals("counts", rows, Row{"10:00", "/home", 2}, Row{"10:00", "/cart", 1}, Row{"11:00", "/home", 2})
		passert.Equals("late", late, Click{"/home", at(10, 20)})
		return nil
	})
}
