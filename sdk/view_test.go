package sdk_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

func sec(s int64) time.Time { return time.Unix(s, 0).UTC() }

// TestMainWaitsForTheSideWindowAndNoLonger is field case H4.
func TestMainWaitsForTheSideWindowAndNoLonger(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, teststream.Script[string]{}.At(sec(5), "m").At(sec(25), "n").Watermark(sec(100)))
		side := teststream.Read("side", p, teststream.Script[string]{}.Watermark(sec(0)).At(sec(25), "s").Watermark(sec(10)).Watermark(sec(30)))
		tens := window.Fixed(10 * time.Second)
		v := sdk.AsSlice("view", sdk.WindowInto("side tens", side, tens))
		return sdk.ParDoFunc("see", sdk.WindowInto("main tens", main, tens), func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprint(s, v.Get(c)))
			return nil
		}, sdk.With(v))
	})
	slices.Sort(got)
	if d := cmp.Diff([]string{"m[]", "n[s]"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
