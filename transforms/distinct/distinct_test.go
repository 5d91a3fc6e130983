package distinct_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/distinct"
)

func TestDistinctKeepsOneOfEach(t *testing.T) {
	var vs, want []int64
	for i := range int64(4000) {
		vs = append(vs, i*i%700)
	}
	want = slices.Compact(slices.Sorted(slices.Values(vs)))
	for _, parallelism := range []int{1, 3} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			passert.Equals("distinct", distinct.Values("d", sdk.Reshuffle("spread", sdk.Create("numbers", p, vs...))), want...)
			passert.Empty("of nothing", distinct.Values("d2", sdk.Create[string]("none", p)))
			passert.Equals("floats", sdk.Map("text", distinct.Values("d3", sdk.Create("floats", p, 0, math.Copysign(0, -1), math.NaN(), math.NaN())),
				func(f float64) string { return fmt.Sprint(f) }), "0", "NaN")
			return nil
		}, ptest.Parallelism(parallelism), ptest.Runs(3))
	}
}

// What is kept of a key is an element of it with its own value.
func TestDistinctByKeepsAnElementOfEachKey(t *testing.T) {
	type visit struct {
		User string
		Page string
	}
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[visit] {
		return distinct.By("users", sdk.Create("in", p, visit{"a", "/"}, visit{"b", "/x"}, visit{"a", "/"}), func(v visit) string { return v.User })
	})
	if d := cmp.Diff([]visit{{"a", "/"}, {"b", "/x"}}, got); d != "" {
		t.Error(d)
	}
}

// Under every kind of window and with panes before and after its end, a value comes once for each of its windows.
func TestDistinctIsOncePerWindow(t *testing.T) {
	ms := func(n int64) time.Time { return time.UnixMilli(n) }
	script := teststream.Script[string]{}.
		At(ms(1), "a", "b", "a").At(ms(12), "a").Watermark(ms(10)).
		At(ms(3), "a", "c").  // within the lateness: a was there, c is new
		At(ms(13), "a", "b"). // of the second window
		Watermark(ms(40)).
		At(ms(4), "d", "a") // too late
	early := trigger.AfterWatermark().Early(trigger.AfterCount(1)).Late(trigger.AfterCount(1))
	for name, c := range map[string]struct {
		fn   window.Fn
		opts []sdk.WindowOption
		want []string
	}{
		"at the end": {window.Fixed(10 * time.Millisecond), []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond)},
			[]string{"0 a", "0 b", "0 c", "10 a", "10 b", "late 0 a", "late 0 d"}},
		"no lateness": {window.Fixed(10 * time.Millisecond), nil, []string{"0 a", "0 b", "10 a", "10 b", "late 0 a", "late 0 a", "late 0 c", "late 0 d"}},
		"at once": {window.Fixed(10 * time.Millisecond), []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond), sdk.Trigger(early)},
			[]string{"0 a", "0 b", "0 c", "10 a", "10 b", "late 0 a", "late 0 d"}},
		"at once, accumulating": {window.Fixed(10 * time.Millisecond), []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond), sdk.Trigger(early), sdk.Accumulating},
			[]string{"0 a", "0 b", "0 c", "10 a", "10 b", "late 0 a", "late 0 d"}},
		"at once, retracting": {window.Fixed(10 * time.Millisecond), []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond), sdk.Trigger(early), sdk.AccumulatingAndRetracting},
			[]string{"0 a", "0 b", "0 c", "10 a", "10 b", "late 0 a", "late 0 d"}},
		// A session that a late element makes longer is another window, with an element of its own.
		"sessions": {window.Sessions(5 * time.Millisecond), []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond)},
			[]string{"1 a", "1 a", "1 b", "12 a", "13 b", "3 c", "late 4 a", "late 4 d"}},
		"global, at once": {window.Global(), []sdk.WindowOption{sdk.Trigger(early)}, []string{"a", "b", "c", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
				in := sdk.WindowInto("w", teststream.Read("in", p, script), c.fn, c.opts...)
				var late sdk.PCollection[sdk.KV[string, struct{}]]
				one := distinct.Values("d", in, sdk.LateTo(&late))
				line := func(name, prefix string, in sdk.PCollection[string]) sdk.PCollection[string] {
					lines := sdk.ParDoFunc(name, in, func(pc *sdk.ProcessContext, v string, emit *sdk.Emitter[string]) error {
						if c.fn == window.Fn(window.Global()) {
							emit.Emit(prefix + v)
						} else {
							emit.Emit(fmt.Sprint(prefix, pc.Window().Start().UnixMilli(), " ", v))
						}
						return nil
					})
					return sdk.WindowInto(name+" regardless of windows", lines, window.Global()) // merged sessions are others than those before
				}
				return sdk.Flatten("both", line("line", "", one), line("late line", "late ", sdk.Map("late values", late, func(kv sdk.KV[string, struct{}]) string { return kv.Key })))
			})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// A retraction of a first pane is of a first pane too. It must not pass, for what replaces it does not.
func TestWhatHasComeOutIsNotTakenBack(t *testing.T) {
	at := time.UnixMilli(1)
	script := teststream.Script[string]{}.At(at, "a").At(at, "a").At(at, "b").Watermark(time.UnixMilli(100))
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[string]] {
		in := sdk.WindowInto("w", teststream.Read("in", p, script), window.Fixed(10*time.Millisecond),
			sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
		return sdk.Changes("changes", distinct.Values("d", in))
	})
	if d := cmp.Diff([]sdk.Change[string]{{Value: "a"}, {Value: "b"}}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// oldest makes one window of the oldest two once there are three: that may be two that have fired, and no new element.
type oldest struct{}

func (oldest) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(3*time.Millisecond)))
}

func (oldest) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	if len(open) < 3 {
		return dst
	}
	return append(dst, window.Merge{From: open[:2], Into: window.Between(open[0].Start(), open[1].End())})
}

// The panes of a window that others became are counted anew: if all its elements have come out, the first is an empty last one.
func TestWindowsThatBecomeOneWithoutAnElementHaveNone(t *testing.T) {
	var script teststream.Script[string]
	for _, ms := range []int64{1, 10, 20} {
		script = script.At(time.UnixMilli(ms), "a")
	}
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := sdk.WindowInto("w", teststream.Read("in", p, script.Watermark(time.UnixMilli(100))), window.Custom("oldest", "", oldest{}),
			sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.EmptyLastPane(), sdk.AllowedLateness(10*time.Millisecond))
		return distinct.Values("d", in)
	})
	if d := cmp.Diff([]string{"a", "a", "a"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestAnEndlessInputInTheGlobalWindowIsRefused(t *testing.T) {
	p := sdk.NewPipeline("p")
	distinct.Values("once", sdk.Read("endless", p, endless{memio.Source([]string{"a"})}))
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), `step "once/one" (distinct_test.go:`) || !strings.Contains(err.Error(), "use WindowInto, or a trigger that fires earlier") {
		t.Errorf("error %v", err)
	}
}

// endless is a source without an end.
type endless struct{ *memio.SliceSource[string] }

func (endless) Unbounded() bool { return true }

func TestPerKeyKeepsOnePairOfEachKey(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		pairs := sdk.Create("in", p, sdk.Pair("a", 1), sdk.Pair("b", 2), sdk.Pair("a", 1))
		passert.Equals("pairs", distinct.PerKey("one", pairs), sdk.Pair("a", 1), sdk.Pair("b", 2))
		return nil
	})
}
