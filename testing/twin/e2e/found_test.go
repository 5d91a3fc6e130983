package e2e

import (
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/testing/twin"
)

// Cases that random ones have found.
func TestPipelinesThatWereFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		aCase  aCase
		events string
	}{
		{"a job is restored when its first aggregation has a watermark to come, and the second, in the same chain, has been told the one before",
			aCase{twice: true, Strategy: twin.Strategy{Fn: window.Fixed(10 * time.Millisecond), Lateness: 10, Trigger: trigger.AfterWatermark().Late(trigger.AfterCount(2))}},
			"W 12\na 1@4\na 2@5\nW 30\nW end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			if c.aCase.events, err = twin.Parse(c.events); err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(20) {
				d := disturbance{seed: seed, parallelism: 1, restoreEvery: 1}
				var out memio.Collector[row]
				d.run(t, func(p *sdk.Pipeline) error {
					c.aCase.add(p, teststream.Read("script", p, script(c.aCase.events)), 0, &out)
					return nil
				}, c.aCase)
				c.aCase.compare(t, d, out.Rows())
			}
		})
	}
}
