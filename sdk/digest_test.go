package sdk_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// visits has a cell, a timer and a handler of expiry.
type visits struct{ n state.Value[int64] }

func (v *visits) Declare(d *sdk.KeyedDecl) {
	v.n = state.NewValue[int64](d, "n")
	sdk.EventTimer(d, "quiet", v.flush)
	sdk.OnWindowExpiry(d, v.flush)
}
func (v *visits) ProcessElement(*sdk.ProcessContext, string, int64, *sdk.Emitter[string]) error {
	return nil
}
func (v *visits) flush(*sdk.ProcessContext, string, *sdk.Emitter[string]) error { return nil }

type adder struct{}

func (adder) CreateAccumulator() int64           { return 0 }
func (adder) AddInput(a, v int64) int64          { return a + v }
func (adder) MergeAccumulators(a, b int64) int64 { return a + b }
func (adder) ExtractOutput(a int64) string       { return fmt.Sprint(a) }

// TestPlanTextNeverChanges: manifests of checkpoints hold a StatePlan, and a job is restored only by a program
// with the same.
func TestPlanTextNeverChanges(t *testing.T) {
	p := sdk.NewPipeline("p")
	byKey := sdk.WindowInto("hourly", byParity("by parity", timed(p)), window.Fixed(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(5))), sdk.AllowedLateness(time.Minute), sdk.Accumulating)
	sdk.ParDoPerKey("visits", byKey, &visits{})
	sdk.ParDo("two", sdk.Create[int64]("again", p), &twoOutputs{})
	sdk.Filter("filter", sdk.CombineGlobally("all", sdk.Create[int64]("third", p), adder{}), func(string) bool { return true })
	sdk.CoGroupByKey("both", byKey, byKey)
	memio.Write("write", sdk.Reshuffle("spread", sdk.CombinePerKey("sum", byKey, adder{})), &memio.Collector[sdk.KV[string, string]]{})
	g, err := p.Graph()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), g.Plan()+g.StatePlan(256)); diff != "" {
		t.Errorf("(-testdata/plan.txt +now):\n%s", diff)
	}
}
