package main

import (
	"slices"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/ptest"
)

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

func TestClicksArePerHour(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(10, 0)}, {"/home", at(10, 59)}, {"/home", at(11, 0)}},
			sdk.EventTime(Click.At, watermark.Monotonic()))
		return countHourly(clicks)
	})
	want := []sdk.KV[string, int64]{{Key: "/home", Value: 1}, {Key: "/home", Value: 2}} // in order: Collect sorts
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
