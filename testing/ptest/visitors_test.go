package ptest_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// TestVisitors is how a test of event time reads.
func TestVisitors(t *testing.T) {
	minute := func(m int) time.Time { return time.Date(2026, 1, 1, 12, m, 0, 0, time.UTC) }
	script := teststream.Script[string]{}.
		At(minute(1), "ann").At(minute(7), "bob").
		Watermark(minute(10)).    // the first ten minutes are over
		At(minute(9), "too late") // for them
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
		visits := sdk.WindowInto("ten minutes", teststream.Read("visits", p, script), window.Fixed(10*time.Minute))
		return sdk.CombineGlobally("visitors", visits, stats.CountFn[string]{})
	})
	if d := cmp.Diff([]int64{2}, got); d != "" {
		t.Error(d)
	}
}
