package main

import (
	"testing"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

func TestPanes(t *testing.T) {
	for mode, want := range map[sdk.Accumulation][]string{
		sdk.Accumulating: {"EARLY 0: 30", "ON_TIME 1: 60", "LATE 2: 65"},
		sdk.Discarding:   {"EARLY 0: 30", "ON_TIME 1: 30", "LATE 2: 5"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			ptest.Run(t, func(p *sdk.Pipeline) error {
				in := memio.Read("sales", p, sales, sdk.EventTime(Sale.At, watermark.Monotonic()))
				passert.Equals("panes", total(in, mode), want...)
				return nil
			})
		})
	}
}
