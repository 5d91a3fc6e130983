package fieldtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// joining is a left join of elements "L…" with elements "R…" of their key that are at most Within ms before or after. What finds none
// comes with null once none can come.
type joining struct {
	Within      int64
	left, right state.OrderedList[string]
	found       state.Map[string, bool]
	closed      sdk.TimerFamily
}

func (j *joining) Declare(d *sdk.KeyedDecl) {
	j.left, j.right = state.NewOrderedList[string](d, "left"), state.NewOrderedList[string](d, "right")
	j.found, j.closed = state.NewMap[string, bool](d, "found"), sdk.EventTimerFamily(d, "closed", j.close)
}

func (j *joining) ProcessElement(c *sdk.ProcessContext, key, v string, emit *sdk.Emitter[string]) error {
	now := c.Timestamp().UnixMilli()
	mine, others := j.left, j.right
	if strings.HasPrefix(v, "R") {
		mine, others = others, mine
	} else {
		j.closed.Set(v, at(now+j.Within+1), sdk.OutputAt(c.Timestamp()))
	}
	for _, o := range others.Range(at(now-j.Within), at(now+j.Within+1)) {
		l, r := v, o
		if strings.HasPrefix(v, "R") {
			l, r = o, v
		}
		j.found.Put(l, true)
		emit.Emit(fmt.Sprint(key, " ", l, " ", r))
	}
	mine.Add(c.Timestamp(), v)
	return nil
}

func (j *joining) close(_ *sdk.ProcessContext, key, l string, emit *sdk.Emitter[string]) error {
	if !j.found.Get(l) {
		emit.Emit(fmt.Sprint(key, " ", l, " null"))
	}
	return nil
}

func leftJoin(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(17), k("L")...).Watermark(at(17)).At(at(19), k("R1", "R2", "R3")...).At(at(20), k("R@20")...).At(at(21), k("R@21")...).
		Watermark(at(40)).At(at(50), of("other", "L'")...).At(at(50), of("third", "L''")...).Watermark(at(53)).At(at(53), of("third", "R@53")...).Watermark(at(60))
	lines := sdk.ParDoPerKey("join", play(p, s), &joining{Within: 3})
	return everything("regardless", sdk.WindowInto("tens", lines, window.Fixed(10*ms)))
}

// https://github.com/confluentinc/ksql/issues/1558, KAFKA-10847: a left join said that there was no match, and then the match. There
// is no step for it here: it is a keyed step with a timer, which must not run before its time.
func TestLeftJoinSaysNullOnlyWhenNothingCanCome(t *testing.T) {
	everywhere(t, "H1", "k L R1", "k L R2", "k L R3", "k L R@20", "other L' null", "third L'' R@53")
}

// emptySideWindow has a view without anything in its first window. Nobody ends before the first has been seen, and then the second.
func emptySideWindow(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	main := read("main", p, dir, watermark.Monotonic(), []event{{Value: "m", At: 5}, {Value: "n", At: 25}, {Wait: "n"}})
	side := read("side", p, dir, watermark.Monotonic(), []event{{At: 0}, untilKill, {Value: "s", At: 25}, {Wait: "m"}, {At: 31}, {Wait: "n"}})
	view := sdk.AsSlice("view", sdk.WindowInto("side tens", side, window.Fixed(10*ms)))
	seen := sdk.MapWith("see", sdk.WindowInto("main tens", main, window.Fixed(10*ms)), view, func(kv pair, side []pair) (string, error) {
		line := kv.Value + " sees"
		for _, s := range side {
			line += " " + s.Value
		}
		return line, leave(dir, kv.Value)
	})
	return everything("regardless", seen)
}

// BEAM-3529, https://github.com/apache/beam/pull/6325: elements waited for ever for a window of a view that nothing comes into, or saw it
// empty too soon.
func TestViewsOfEmptyWindows(t *testing.T) {
	everywhere(t, "H4", "m sees", "n sees s")
}

func aggregatesOfNothing(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	line := func(name string, in sdk.PCollection[int64]) sdk.PCollection[string] {
		return everything(name+" regardless", sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, n int64, emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprint(name, " ", span(c.Window()), " ", n))
			return nil
		}))
	}
	none := sdk.Create[int64]("none", p)
	values := teststream.Read("values", p, teststream.Script[int64]{}.At(at(12), 5).At(at(31), 7))
	return sdk.Flatten("all",
		line("sum", sdk.CombineGlobally("s", none, stats.Sum[int64]{})),
		line("count", sdk.CombineGlobally("c", none, stats.CountFn[int64]{})),
		line("least", sdk.CombineGlobally("m", none, stats.Min[int64]{})),
		line("tens", sdk.CombineGlobally("t", sdk.WindowInto("windows", values, window.Fixed(10*ms)), stats.Sum[int64]{})))
}

// BEAM-3296, https://github.com/apache/beam/issues/24683: the least of nothing was 0, and windows without elements had rows.
func TestAggregatesOfNothing(t *testing.T) {
	everywhere(t, "H6", "sum global 0", "count global 0", fmt.Sprint("least global ", math.MaxInt64), "tens [10,20) 5", "tens [30,40) 7")
}

func unlikeWindowings(p *sdk.Pipeline) {
	in := play(p, script{}.At(at(1), k("a")...))
	both := sdk.Flatten("both", sdk.WindowInto("fixed", in, window.Fixed(10*ms)), sdk.WindowInto("sliding", in, window.Sliding(10*ms, 5*ms)))
	sdk.GroupByKey("group", both)
}

// https://github.com/apache/beam/issues/22903: a flatten of unlike windowings was accepted, and something failed later.
func TestFlattenOfUnlikeWindowingsIsRefused(t *testing.T) {
	p := sdk.NewPipeline("p")
	unlikeWindowings(p)
	_, directly := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error { unlikeWindowings(p); return nil }, direct.Options{})
	for runner, err := range map[string]error{"none": p.Err(), "direct": directly, "distributed": clustertest.Try(t, "H7", nil)} {
		if err == nil || !strings.Contains(err.Error(), `step "both" (joins_test.go:`) || !strings.Contains(err.Error(), "window all with the same WindowInto") || strings.Contains(err.Error(), "\n") {
			t.Errorf("runner %s: error %v", runner, err)
		}
	}
}

// The rule of the group: the answer is that of all pairs of a key and window, whatever came first.
func TestJoinsAreThoseOfCompleteWindows(t *testing.T) {
	met := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		type side map[string][]string // by key and window
		draw := func(name string) (s script, vs side) {
			vs = side{}
			for i := range rapid.IntRange(0, 6).Draw(r, name) {
				v, key := fmt.Sprint(name, i), rapid.SampledFrom([]string{"x", "y"}).Draw(r, "key")
				when := rapid.Int64Range(0, 29).Draw(r, "time")
				place := fmt.Sprintf("%s [%d,%d)", key, when/10*10, when/10*10+10)
				vs[place] = append(vs[place], v)
				s = s.At(at(when), sdk.Pair(key, v))
			}
			return s, vs
		}
		leftScript, left := draw("L")
		rightScript, right := draw("R")
		want := []string{}
		for n := range 3 {
			for _, key := range []string{"x", "y"} {
				place := fmt.Sprintf("%s [%d,%d)", key, n*10, n*10+10)
				l, r := slices.Sorted(slices.Values(left[place])), slices.Sorted(slices.Values(right[place]))
				switch {
				case len(l) > 0 && len(r) > 0:
					met["both"]++
				case len(l)+len(r) > 0:
					met["one"]++
				default:
					met["none"]++
					continue
				}
				want = append(want, fmt.Sprint("cogroup ", place, l, r), fmt.Sprint("flat ", place, slices.Concat(l, r)))
				for _, v := range l {
					want = append(want, fmt.Sprint("seen ", v, slices.Sorted(slices.Values(slices.Concat(right["x"+place[1:]], right["y"+place[1:]])))))
				}
			}
		}
		got := run(r, func(p *sdk.Pipeline) sdk.PCollection[string] {
			l := sdk.WindowInto("left tens", teststream.Read("left", p, leftScript), window.Fixed(10*ms))
			rt := sdk.WindowInto("right tens", teststream.Read("right", p, rightScript), window.Fixed(10*ms))
			both := sdk.ParDoFunc("both", sdk.CoGroupByKey("cogroup", l, rt), func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.CoGroup[string, string]], emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint("cogroup ", kv.Key, " ", span(c.Window()), slices.Sorted(kv.Value.A.All()), slices.Sorted(kv.Value.B.All())))
				return nil
			})
			flat := sdk.ParDoFunc("flat", sdk.GroupByKey("group", sdk.Flatten("flatten", l, rt)), func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[string]], emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint("flat ", kv.Key, " ", span(c.Window()), slices.Sorted(kv.Value.All())))
				return nil
			})
			seen := sdk.MapWith("see", l, sdk.AsSlice("view", rt), func(kv pair, side []pair) (string, error) {
				var vs []string
				for _, s := range side {
					vs = append(vs, s.Value)
				}
				return fmt.Sprint("seen ", kv.Value, slices.Sorted(slices.Values(vs))), nil
			})
			return sdk.Flatten("all", both, flat, seen)
		}, rapid.IntRange(0, 4).Draw(r, "restored every"))
		slices.Sort(want)
		if d := cmp.Diff(want, append([]string{}, got...)); d != "" {
			r.Fatalf("-want +got\n%s", d)
		}
	})
	if met["both"] == 0 || met["one"] == 0 || met["none"] == 0 {
		t.Errorf("met %v", met)
	}
}
