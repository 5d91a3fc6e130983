package sdk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// said is a value with its event time in ms.
type said struct {
	K, V string
	T    int64
}

func (a said) time() time.Time { return time.UnixMilli(a.T) }

func stream(p *sdk.Pipeline, as ...said) sdk.PCollection[sdk.KV[string, string]] {
	in := memio.Read("in", p, as, sdk.EventTime(said.time, watermark.Monotonic()))
	return sdk.Map("pair", in, func(a said) sdk.KV[string, string] { return sdk.Pair(a.K, a.V) })
}

const ms = time.Millisecond

// shown is what a group has, with its window.
func shown(name string, in sdk.PCollection[sdk.KV[string, sdk.Iterable[string]]]) sdk.PCollection[string] {
	return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[string]], emit *sdk.Emitter[string]) error {
		var vs []string
		for v := range kv.Value.All() {
			vs = append(vs, v)
		}
		slices.Sort(vs)
		emit.Emit(fmt.Sprintf("%s %s %s", span(c.Window()), kv.Key, strings.Join(vs, "")))
		return nil
	})
}

func span(w window.Window) string {
	return fmt.Sprintf("[%d,%d)", int64(w.StartTime()), int64(w.EndTime()))
}

// Beam issue 36609: elements between two windows crashed the runner.
func TestElementsBetweenSlidingWindowsVanish(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		var as []said
		for i := range int64(10) {
			as = append(as, said{"k", string(rune('a' + i)), 1 + i})
		}
		in := sdk.WindowInto("w", stream(p, as...), window.Sliding(5*ms, 10*ms))
		passert.Equals("check", shown("show", sdk.GroupByKey("group", in)), "[0,5) k abcd", "[10,15) k j")
		return nil
	})
}

// Sliding windows mean the same to every step, whether it gets slices or copies.
func TestStepsSeeWholeSlidingWindows(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		fn := window.Sliding(10*ms, 5*ms)
		in := sdk.WindowInto("w", stream(p, said{"k", "a", 1}, said{"k", "b", 6}), fn)
		upper := sdk.MapValues("upper", sdk.Filter("all", in, func(sdk.KV[string, string]) bool { return true }), strings.ToUpper)
		each := func(name string, in sdk.PCollection[sdk.KV[string, string]]) sdk.PCollection[string] {
			return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, kv sdk.KV[string, string], emit *sdk.Emitter[string]) error {
				emit.Emit(span(c.Window()) + " " + kv.Value)
				return nil
			})
		}
		passert.Equals("pardo", each("each", upper), "[-5,5) A", "[0,10) A", "[0,10) B", "[5,15) B")
		groups := []string{"[-5,5) k A", "[0,10) k AB", "[5,15) k B"}
		passert.Equals("slices", shown("show", sdk.GroupByKey("group", upper)), groups...)
		copies := sdk.ParDoFunc("same", upper, func(_ *sdk.ProcessContext, kv sdk.KV[string, string], emit *sdk.Emitter[sdk.KV[string, string]]) error {
			emit.Emit(kv)
			return nil
		})
		passert.Equals("copies", shown("show 2", sdk.GroupByKey("group 2", copies)), groups...)
		late := sdk.WindowInto("w 2", stream2(p, "in 2", said{"k", "A", 1}, said{"k", "B", 6}), fn, sdk.AllowedLateness(time.Hour), sdk.Accumulating)
		passert.Equals("with lateness", shown("show 3", sdk.GroupByKey("group 3", late)), groups...)
		passert.Equals("flatten of slices and copies", each("each 2", sdk.Flatten("flat", upper, copies)),
			"[-5,5) A", "[0,10) A", "[0,10) B", "[5,15) B", "[-5,5) A", "[0,10) A", "[0,10) B", "[5,15) B")
		passert.Equals("cogroup of both", sdk.Map("sizes", sdk.CoGroupByKey("both", upper, copies), func(kv sdk.KV[string, sdk.CoGroup[string, string]]) string {
			return fmt.Sprint(kv.Value.A.Len(), kv.Value.B.Len())
		}), "1 1", "2 2", "1 1")
		again := sdk.WindowInto("again", upper, window.Fixed(10*ms))
		passert.Equals("windowed again, once for each window", shown("show 4", sdk.GroupByKey("group 4", again)), "[0,10) k AABB")
		return nil
	})
}

func stream2(p *sdk.Pipeline, name string, as ...said) (out sdk.PCollection[sdk.KV[string, string]]) {
	p.Scope(name, func() { out = stream(p, as...) })
	return out
}

// numaflow pull request 1472: an element of which only some windows are closed.
func TestLateForSomeOfItsSlidingWindows(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		s := teststream.Script[sdk.KV[string, string]]{}.
			At(ts(4), sdk.Pair("k", "a")).Watermark(ts(11)).At(ts(7), sdk.Pair("k", "b"))
		in := sdk.WindowInto("w", teststream.Read("in", p, s), window.Sliding(10*ms, 5*ms))
		var late sdk.PCollection[sdk.KV[string, string]]
		groups := sdk.GroupByKey("group", in, sdk.LateTo(&late))
		passert.Equals("groups", shown("show", groups), "[-5,5) k a", "[0,10) k a", "[5,15) k b")
		passert.Equals("late", sdk.ParDoFunc("show late", late, func(c *sdk.ProcessContext, kv sdk.KV[string, string], emit *sdk.Emitter[string]) error {
			emit.Emit(span(c.Window()) + " " + kv.Value)
			return nil
		}), "[0,10) b")
		return nil
	})
}

func ts(n int64) time.Time { return time.UnixMilli(n) }

// Beam pull request 33542: sessions merged across keys, and the gap was applied twice.
func TestSessionsArePerKey(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.WindowInto("w", stream(p, said{"k1", "a", 0}, said{"k2", "b", 3}, said{"k1", "c", 7}), window.Sessions(5*ms))
		passert.Equals("check", shown("show", sdk.GroupByKey("group", in)), "[0,5) k1 a", "[7,12) k1 c", "[3,8) k2 b")
		return nil
	})
}

// Beam issue 20438: a second grouping merged the sessions of different users.
func TestSessionsDoNotMergeAgain(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.WindowInto("w", stream(p, said{"u1", "p", 0}, said{"u2", "p", 5}), window.Sessions(15*ms))
		users := sdk.GroupByKey("by user", in)
		byPage := sdk.Map("by page", users, func(kv sdk.KV[string, sdk.Iterable[string]]) sdk.KV[string, string] {
			return sdk.Pair("p", kv.Key)
		})
		passert.Equals("check", shown("show", sdk.GroupByKey("group", byPage)), "[0,15) p u1", "[5,20) p u2")
		return nil
	})
}

// Beam issue 18677: an element behind the watermark whose own session is open must not revive a closed one.
func TestClosedSessionsAreNotTouched(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		s := teststream.Script[sdk.KV[string, string]]{}.
			At(ts(0), sdk.Pair("k", "a")).Watermark(ts(6)).
			At(ts(3), sdk.Pair("k", "b")).Watermark(ts(8)).
			At(ts(2), sdk.Pair("k", "c"))
		var late sdk.PCollection[sdk.KV[string, string]]
		groups := sdk.GroupByKey("group", sdk.WindowInto("w", teststream.Read("in", p, s), window.Sessions(5*ms)), sdk.LateTo(&late))
		passert.Equals("groups", shown("show", groups), "[0,5) k a", "[3,8) k b")
		passert.Equals("late", late, sdk.Pair("k", "c"))
		return nil
	})
}

func TestKeyedStateInSessionsIsRefused(t *testing.T) {
	p := sdk.NewPipeline("p")
	in := sdk.WindowInto("w", stream(p, said{"k", "a", 0}), window.Sessions(time.Second))
	sdk.ParDoPerKey("state", sdk.MapValues("n", in, func(string) int64 { return 1 }), &visits{})
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), `step "state"`) || !strings.Contains(err.Error(), "windows that merge, window.Sessions(1s), and") {
		t.Errorf("error %v", err)
	}
}
