package main

import (
	"testing"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

func TestSensorThatFallsSilentIsReportedOnce(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := memio.Read("readings", p, readings, sdk.EventTime(Reading.At, watermark.Monotonic()))
		passert.Equals("alerts", alerts(in), "10:15 attic is silent, last 21.5 degrees", "10:34 cellar is silent, last 12.0 degrees")
		return nil
	})
}
