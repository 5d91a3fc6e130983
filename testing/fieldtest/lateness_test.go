package fieldtest

import (
	"fmt"
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
)

func lateForOneWindow(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(4), k("a")...).Watermark(at(11)).At(at(7), k("b")...)
	return grouped("groups", sdk.WindowInto("windows", play(p, s), window.Sliding(10*ms, 5*ms)), false)
}

// https://github.com/numaproj/numaflow/pull/1472: an element of which only some windows are closed.
func TestLateForSomeOfItsWindows(t *testing.T) {
	everywhere(t, "D1", "k [-5,5) a", "k [0,10) a", "k [5,15) b", "late k [0,10) b")
}

// reshuffle sends an element through a reshuffle that is late for its window.
func reshuffle(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	in := play(p, script{}.At(at(100), k("on time")...).Watermark(at(100)).At(at(5), k("x", "x")...).At(at(107), k("y")...))
	spread := sdk.Reshuffle("spread", sdk.WindowInto("tens", in, window.Fixed(10*ms)))
	return sdk.ParDoFunc("line", spread, func(c *sdk.ProcessContext, kv pair, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprintf("%s @%d %s", kv.Value, c.Timestamp().UnixMilli(), span(c.Window())))
		return nil
	})
}

// BEAM-1721, https://github.com/apache/beam/pull/2246 and 33542: a reshuffle moved timestamps, or dropped what was late.
func TestReshuffleNeitherDropsNorShifts(t *testing.T) {
	everywhere(t, "D3", "on time @100 [100,110)", "x @5 [0,10)", "x @5 [0,10)", "y @107 [100,110)")
}
