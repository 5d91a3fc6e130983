package fieldtest

import (
	"fmt"
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// https://github.com/apache/beam/issues/23071: each element began the delay anew.
func TestDelayCountsFromTheFirstElement(t *testing.T) {
	directly(t, "C1", func(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
		s := script{}.At(at(1), k("a")...).Clock(at(6)).At(at(2), k("b")...).Clock(at(11)).Clock(at(12)).At(at(3), k("c")...).Clock(at(23)).At(at(4), k("d")...)
		w := sdk.WindowInto("global", play(p, s), window.Global(), sdk.Trigger(trigger.Repeatedly(trigger.AfterProcessingTime(10*ms))))
		return grouped("groups", w, true)
	}, "k global a b early 0 first", "k global c early 1", "k global d on time 2 last")
}

func countsInPanes(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(1), of("k1", "a")...).At(at(1), of("k2", "a")...).At(at(2), of("k1", "b")...).At(at(2), of("k2", "b")...).
		At(at(3), of("k1", "c")...).At(at(3), of("k2", "c")...).Watermark(at(10)).At(at(4), of("k2", "d")...).At(at(5), of("k2", "e")...).Watermark(at(30))
	w := sdk.WindowInto("tens", play(p, s), window.Fixed(10*ms), sdk.AllowedLateness(20*ms), sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(2))))
	return grouped("groups", w, true)
}

// https://github.com/apache/beam/pull/36142: a count fired at the end of the window, and early panes were held back to it. Nothing
// fires then: what k2 has left waits for one more. What was in a window before its end is on time when it comes
// (docs/design/panes.md).
func TestCountsDoNotFireAtTheEndOfTheWindow(t *testing.T) {
	everywhere(t, "C3", "k1 [0,10) a b early 0 first", "k1 [0,10) c on time 1 last",
		"k2 [0,10) a b early 0 first", "k2 [0,10) c d on time 1", "k2 [0,10) e late 2 last")
}

// https://github.com/apache/beam/pull/110: only the root began anew after a pane.
func TestRepeatedTriggersBeginAnewAsAWhole(t *testing.T) {
	directly(t, "C5", func(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
		s := script{}.At(at(1), k("a")...).Clock(at(1)).At(at(2), k("b")...).Clock(at(11)).Clock(at(12)).At(at(3), k("c")...).
			Clock(at(13)).At(at(4), k("d")...).Clock(at(15)).At(at(5), k("e")...).Clock(at(40)).At(at(6), k("f")...)
		either := trigger.AfterFirst(trigger.AfterCount(3), trigger.AfterProcessingTime(10*ms))
		return grouped("groups", sdk.WindowInto("global", play(p, s), window.Global(), sdk.Trigger(trigger.Repeatedly(either))), true)
	}, "k global a b early 0 first", "k global c d e early 1", "k global f on time 2 last")
}

func timestampsOfPanes(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	in := play(p, script{}.At(at(2), k("a")...).At(at(7), k("b")...).Watermark(at(10)))
	var all []sdk.PCollection[string]
	for _, c := range []sdk.TimestampCombiner{sdk.Earliest, sdk.Latest, sdk.EndOfWindow} {
		groups := sdk.GroupByKey(c.String()+" group", sdk.WindowInto(c.String(), in, window.Fixed(10*ms), c))
		all = append(all, sdk.ParDoFunc(c.String()+" times", groups, func(pc *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[string]], emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprint(c, " ", kv.Value.Len(), " at ", pc.Timestamp().UnixMilli()))
			return nil
		}))
		all[len(all)-1] = everything(c.String()+" regardless", all[len(all)-1])
	}
	return sdk.Flatten("all", all[0], all[1:]...)
}

// https://github.com/apache/beam/pull/31979: the timestamp of a pane was the same whatever was asked for.
func TestTimestampsOfPanes(t *testing.T) {
	everywhere(t, "C7", fmt.Sprint(sdk.Earliest, " 2 at 2"), fmt.Sprint(sdk.Latest, " 2 at 7"), fmt.Sprint(sdk.EndOfWindow, " 2 at 9"))
}
