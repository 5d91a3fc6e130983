package teststream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

func ms(t int64) time.Time { return time.UnixMilli(t).UTC() }

func TestElementsHaveTheirTimestamps(t *testing.T) {
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return teststream.Read("script", p, teststream.Script[string]{}.
			At(ms(5), "a", "b").Watermark(ms(100)).At(ms(-3), "late but passed on").At(ms(101), "c"))
	})
	pane := window.Pane{First: true, Last: true}
	want := []ptest.Element[string]{
		{Value: "late but passed on", Time: ms(-3), Window: window.GlobalWindow, Pane: pane},
		{Value: "a", Time: ms(5), Window: window.GlobalWindow, Pane: pane},
		{Value: "b", Time: ms(5), Window: window.GlobalWindow, Pane: pane},
		{Value: "c", Time: ms(101), Window: window.GlobalWindow, Pane: pane},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// What the job has made of the first element must be there before the second is taken, also behind
// exchanges: the steps in between would otherwise see the elements together.
func TestAnEventIsTakenWhenNothingElseIsToDo(t *testing.T) {
	var order []string // written by one goroutine after the other: the job is quiescent in between
	build := func(p *sdk.Pipeline) error {
		order = nil
		in := teststream.Read("script", p, teststream.Script[int64]{}.
			At(ms(1), 1, 2).Watermark(ms(10)).At(ms(11), 3).Watermark(ms(20)).At(ms(21), 4))
		note := func(place string) func(int64) int64 {
			return func(v int64) int64 {
				order = append(order, place+string(rune('0'+v)))
				return v
			}
		}
		x := sdk.Map("near", in, note("near"))
		for _, name := range []string{"one", "two", "three"} {
			x = sdk.Reshuffle(name, x)
		}
		w := sdk.WindowInto("10 ms", sdk.Map("far", x, note("far")), window.Fixed(10*time.Millisecond))
		n := sdk.CombinePerKey("count", sdk.KeyBy("one key", w, func(int64) bool { return true }), stats.CountFn[int64]{})
		sdk.Map("fired", sdk.Map("counts", n, func(kv sdk.KV[bool, int64]) int64 { return kv.Value }), note("fired"))
		return nil
	}
	ptest.Run(t, build, ptest.RestoreEvery(0))
	want := "near1 far1 near2 far2 fired2 near3 far3 fired1 near4 far4 fired1"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// FLINK and Beam issue 33815: a stream that says nothing holds back what is flattened with it, unless its
// watermark moves or it is silent.
func TestFlattenedSilentStream(t *testing.T) {
	a := teststream.Script[string]{}.At(ms(1), "a").At(ms(2), "b").Watermark(ms(10)).
		Watermark(ms(11)).At(ms(3), "too late, if [0,10) has fired").Watermark(ms(12))
	for _, c := range []struct {
		name   string
		b      teststream.Script[string]
		counts []int64
	}{
		// Both streams begin at once, and each event takes one tick: b has spoken before the last element of a.
		{"its watermark moves", teststream.Script[string]{}.Watermark(ms(10)).Watermark(ms(10)).Watermark(ms(10)).Watermark(ms(10)).Watermark(ms(10)).Watermark(ms(10)), []int64{2}},
		{"nothing is known of it", teststream.Script[string]{}.Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)).Watermark(ms(-100)), []int64{3}},
		{"it is silent", teststream.Script[string]{}.Silence().Silence().Silence().Silence().Silence().Silence().Silence().Silence(), []int64{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
				both := sdk.Flatten("both", teststream.Read("a", p, a), teststream.Read("b", p, c.b))
				w := sdk.WindowInto("10 ms", both, window.Fixed(10*time.Millisecond))
				keyed := sdk.KeyBy("one key", w, func(string) string { return "" })
				return sdk.Map("count", sdk.CombinePerKey("counts", keyed, stats.CountFn[string]{}),
					func(kv sdk.KV[string, int64]) int64 { return kv.Value })
			}, ptest.RestoreEvery(0))
			if d := cmp.Diff(c.counts, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A checkpoint right after the silence must not make the stream hold again.
func TestSilenceOutlivesARestore(t *testing.T) {
	a := teststream.Script[string]{}
	for i := range int64(12) {
		a = a.At(ms(i), "x").Watermark(ms(i))
	}
	b := teststream.Script[string]{}.Silence()
	for i, restore := range []int{1, 2, 3, 5} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			both := sdk.Flatten("both", teststream.Read("a", p, a), teststream.Read("b", p, b))
			return sdk.CombineGlobally("count", both, stats.CountFn[string]{})
		}, ptest.RestoreEvery(restore))
		if d := cmp.Diff([]int64{12}, got); d != "" {
			t.Errorf("%d: %s", i, d)
		}
	}
}

func TestMistakesInTheScript(t *testing.T) {
	for _, c := range []struct {
		script teststream.Script[int64]
		want   string
	}{
		{teststream.Script[int64]{}.Watermark(ms(5)).At(ms(1), 1).Watermark(ms(4)), "event 2 of the script moves the watermark back"},
		{teststream.Script[int64]{}.At(time.Unix(0, 1_500_000), 1), "whole milliseconds"},
	} {
		_, err := direct.Run(context.Background(), "mistake", func(p *sdk.Pipeline) error {
			teststream.Read("script", p, c.script)
			return nil
		}, direct.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"script/events"`) {
			t.Errorf("error %v, want %q of step script/events", err, c.want)
		}
	}
}

func TestScriptIsAValue(t *testing.T) {
	base := teststream.Script[int64]{}.At(ms(1), 1)
	one, two := base.At(ms(2), 2), base.At(ms(3), 3)
	sum := func(s teststream.Script[int64]) []int64 {
		return ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] { return teststream.Read("s", p, s) })
	}
	if d := cmp.Diff([]int64{1, 2}, sum(one)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int64{1, 3}, sum(two)); d != "" {
		t.Error(d)
	}
}
