package sdk_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/sim"
	"github.com/millstream/millstream/testing/teststream"
)

func sec(s int64) time.Time { return time.Unix(s, 0).UTC() }

const (
	tens  = 10 * time.Second
	hours = time.Hour
)

// see makes "element content" of each element and a view.
func see[T any](p *sdk.Pipeline, in sdk.PCollection[string], v sdk.View[T], opts ...sdk.StepOption) sdk.PCollection[string] {
	return sdk.ParDoFunc("see", in, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprint(s, " ", v.Get(c)))
		return nil
	}, append(opts, sdk.With(v))...)
}

func script() teststream.Script[string] { return teststream.Script[string]{} }

// everywhere runs a pipeline at several parallelisms, restored after every record or as ptest likes.
func everywhere(t *testing.T, build func(p *sdk.Pipeline) sdk.PCollection[string], want ...string) {
	t.Helper()
	for _, par := range []int{1, 2, 3} {
		for _, opts := range [][]ptest.Option{{}, {ptest.RestoreEvery(1)}} {
			got := ptest.Collect(t, build, append(opts, ptest.Parallelism(par), ptest.Runs(2))...)
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("parallelism %d: -want +got:\n%s", par, d)
			}
		}
	}
}

// TestMainWaitsForTheSideWindowAndNoLonger is field case H4.
func TestMainWaitsForTheSideWindowAndNoLonger(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(5), "m").At(sec(25), "n").Watermark(sec(100)))
		side := teststream.Read("side", p, script().Watermark(sec(0)).At(sec(25), "s").Watermark(sec(10)).Watermark(sec(30)))
		v := sdk.AsSlice("view", sdk.WindowInto("side tens", side, window.Fixed(tens)))
		return see(p, sdk.WindowInto("main tens", main, window.Fixed(tens)), v)
	}, "m []", "n [s]")
}

// pairs of the letter and the number of a text such as "a1".
func letters(name string, in sdk.PCollection[string]) sdk.PCollection[sdk.KV[string, string]] {
	return sdk.Map(name, in, func(s string) sdk.KV[string, string] { return sdk.Pair(s[:1], s[1:]) })
}

func sorted(vs []string) string { return strings.Join(slices.Sorted(slices.Values(vs)), " ") }

func TestKindsOfViews(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := sdk.Create("main", p, "m")
		side := sdk.Create("side", p, "a1", "b2", "a3")
		pairs := letters("pairs", side)
		all := sdk.AsSlice("all", side)
		multi := sdk.AsMultimap("multimap", pairs)
		last := sdk.AsMap("map", sdk.CombinePerKey("longest", pairs, longest{}))
		one := sdk.AsSingleton("one", sdk.CombineGlobally("longest of all", side, longest{}))
		none := sdk.AsSingletonOr("none", sdk.Filter("nothing", side, func(string) bool { return false }), "default")
		empty := sdk.AsMap("empty", sdk.Filter("no pair", pairs, func(sdk.KV[string, string]) bool { return false }))
		return sdk.ParDoFunc("see", main, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			m := multi.Get(c)
			emit.Emit(fmt.Sprint(s, "; ", sorted(all.Get(c)), "; ", sorted(m["a"]), "; ", sorted(m["b"]), "; ",
				last.Get(c), "; ", one.Get(c), "; ", none.Get(c), "; ", empty.Get(c)))
			return nil
		}, sdk.With(all), sdk.With(multi), sdk.With(last), sdk.With(one), sdk.With(none), sdk.With(empty))
	}, "m; a1 a3 b2; 1 3; 2; map[a:3 b:2]; b2; default; map[]")
}

// longest is the greatest text.
type longest struct{}

func (longest) CreateAccumulator() string            { return "" }
func (longest) AddInput(a, b string) string          { return max(a, b) }
func (longest) MergeAccumulators(a, b string) string { return max(a, b) }
func (longest) ExtractOutput(a string) string        { return a }

func TestViewOfTheWindowThatHoldsTheEndOfTheMainWindow(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(3), "a").At(sec(3598), "b").At(sec(3600), "c").Watermark(sec(9000)))
		side := teststream.Read("side", p, script().At(sec(10), "first").At(sec(3599), "last").At(sec(3600), "next").Watermark(sec(9000)))
		hourly := sdk.AsSlice("hourly", sdk.WindowInto("hours", side, window.Fixed(hours)))
		fives := sdk.WindowInto("fives", main, window.Fixed(5*time.Second))
		return sdk.ParDoFunc("see", fives, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			emit.Emit(s + ": " + sorted(hourly.Get(c)))
			return nil
		}, sdk.With(hourly))
	}, "a: first last", "b: first last", "c: next")
}

// A sliding view is that of the first window that holds the end.
func TestViewOfSlidingWindows(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(12), "m").Watermark(sec(100)))
		side := teststream.Read("side", p, script().At(sec(1), "one").At(sec(14), "two").At(sec(21), "three").Watermark(sec(100)))
		v := sdk.AsSlice("view", sdk.WindowInto("slide", side, window.Sliding(20*time.Second, tens)))
		return sdk.ParDoFunc("see", sdk.WindowInto("tens", main, window.Fixed(tens)), func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			emit.Emit(s + ": " + sorted(v.Get(c)))
			return nil
		}, sdk.With(v))
	}, "m: one two")
}

// TestViewOfTheNextWindowAfterAGap: an element whose window ends between two sliding ones sees the later.
func TestViewOfTheNextWindowAfterAGap(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(12), "m").Watermark(sec(100)))
		side := teststream.Read("side", p, script().At(sec(1), "one").At(sec(31), "two").Watermark(sec(100)))
		v := sdk.AsSlice("view", sdk.WindowInto("slide", side, window.Sliding(5*time.Second, 30*time.Second)))
		return see(p, sdk.WindowInto("tens", main, window.Fixed(tens)), v)
	}, "m [two]")
}

func TestViewOfCalendarWindows(t *testing.T) {
	day := func(n, hour int) time.Time { return time.Date(2026, 3, n, hour, 0, 0, 0, time.UTC) }
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(day(29, 23), "late evening").At(day(29, 21), "evening").Watermark(day(31, 0)))
		side := teststream.Read("side", p, script().At(day(29, 1), "29").At(day(30, 1), "30").Watermark(day(31, 0)))
		v := sdk.AsSlice("view", sdk.WindowInto("days", side, window.Days(1).In("Europe/Berlin"))) // summer time begins on the 29th
		return see(p, sdk.WindowInto("hours", main, window.Fixed(hours)), v)
	}, "evening [29]", "late evening [30]")
}

// tooEarly are windows that end before the time that they are for.
type tooEarly struct{}

func (tooEarly) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t.Add(-time.Hour), t.Add(-time.Minute)))
}

func TestViewOfWindowsThatEndTooEarlyFailsTheJob(t *testing.T) {
	err := runOnce(t, func(p *sdk.Pipeline) error {
		main := teststream.Read("main", p, script().At(sec(1), "m"))
		v := sdk.AsSlice("rates", sdk.WindowInto("early", teststream.Read("side", p, script()), window.Custom("early", "", tooEarly{})))
		see(p, sdk.WindowInto("tens", main, window.Fixed(tens)), v)
		return nil
	})
	if want := `step "see": view "rates": .*, the window of .*, ends before .* does`; err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("got %v, want a match of %s", err, want)
	}
}

// both splits a script into main elements and side elements, which begin with ">".
func both(p *sdk.Pipeline, s teststream.Script[string]) (main, side sdk.PCollection[string]) {
	all := teststream.Read("script", p, s)
	main = sdk.Filter("main", all, func(s string) bool { return s[0] != '>' })
	side = sdk.Map("cut", sdk.Filter("side", all, func(s string) bool { return s[0] == '>' }), func(s string) string { return s[1:] })
	return main, side
}

func eachElement() sdk.WindowOption { return sdk.Trigger(trigger.Repeatedly(trigger.AfterCount(1))) }

// TestATableThatChangesSlowly: elements see the newest panes, and wait for the first.
func TestATableThatChangesSlowly(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main, side := both(p, script().At(sec(0), "a", ">e1", "b", ">e2", "c", ">u5", "d"))
		v := sdk.AsMap("table", letters("pairs", sdk.WindowInto("each", side, window.Global(), eachElement())))
		return see(p, main, v)
	}, "a map[e:1]", "b map[e:1]", "c map[e:2]", "d map[e:2 u:5]")
}

func TestPanesReplaceOrAdd(t *testing.T) {
	for mode, want := range map[sdk.Accumulation][]string{
		sdk.Discarding:                {"a 1", "b 1 2", "c 1 2 3"},
		sdk.Accumulating:              {"a 1", "b 1 2", "c 1 2 3"},
		sdk.AccumulatingAndRetracting: {"a 1", "b 1 2", "c 1 2 3"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
				main, side := both(p, script().At(sec(0), ">1", "a", ">2", "b", ">3", "c"))
				v := sdk.AsSlice("view", sdk.WindowInto("each", side, window.Global(), eachElement(), mode))
				return sdk.ParDoFunc("see", main, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
					emit.Emit(s + " " + sorted(v.Get(c)))
					return nil
				}, sdk.With(v))
			}, want...)
		})
	}
}

// TestWhatWaitsIsNotLate: the main watermark is far beyond the window when its view comes; an aggregation behind the
// step still takes the elements on time.
func TestWhatWaitsIsNotLate(t *testing.T) {
	var late sdk.PCollection[sdk.KV[bool, string]]
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(1), "m", "n").Watermark(sec(500)).At(sec(501), "o"))
		side := teststream.Read("side", p, script().Watermark(sec(1)).Watermark(sec(2)).Watermark(sec(3)).At(sec(4), "s").Watermark(sec(600)))
		v := sdk.AsSlice("view", sdk.WindowInto("side tens", side, window.Fixed(tens)))
		seen := see(p, sdk.WindowInto("tens", main, window.Fixed(tens)), v)
		keyed := sdk.KeyBy("one", seen, func(string) bool { return true })
		groups := sdk.GroupByKey("group", keyed, sdk.LateTo(&late))
		return sdk.Flatten("all",
			sdk.Map("on time", groups, func(kv sdk.KV[bool, sdk.Iterable[string]]) string {
				return sorted(slices.Collect(kv.Value.All()))
			}),
			sdk.Map("late", late, func(kv sdk.KV[bool, string]) string { return "late: " + kv.Value }))
	}, "m [s] n [s]", "o []")
}

// counting counts the elements of a key, and sees a view in each of its calls.
type counting struct {
	v sdk.View[[]string]
	n state.Value[int64]
}

func (f *counting) Declare(d *sdk.KeyedDecl) {
	f.n = state.NewValue[int64](d, "n")
	sdk.OnWindowExpiry(d, f.end)
}

func (f *counting) ProcessElement(c *sdk.ProcessContext, key string, v string, emit *sdk.Emitter[string]) error {
	f.n.Set(f.n.Get() + int64(len(f.v.Get(c))))
	return nil
}

func (f *counting) end(c *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprint(key, f.n.Get(), " of ", f.v.Get(c)))
	return nil
}

func TestKeyedStepReadsAView(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		main := teststream.Read("main", p, script().At(sec(1), "a1", "b1", "a2").Watermark(sec(100)).At(sec(101), "a3"))
		side := teststream.Read("side", p, script().Watermark(sec(1)).At(sec(4), "s").Watermark(sec(50)))
		v := sdk.AsSlice("view", sdk.WindowInto("side tens", side, window.Fixed(tens)))
		in := letters("pairs", sdk.WindowInto("tens", main, window.Fixed(tens)))
		return sdk.ParDoPerKey("count", in, &counting{v: v}, sdk.With(v))
	}, "a0 of []", "a2 of [s]", "b1 of [s]")
}

func TestElementsWhoseViewIsGoneAreLate(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		var late sdk.PCollection[string]
		main, side := both(p, script().At(sec(1), ">s", "a").Watermark(sec(12)).At(sec(2), "b").Watermark(sec(15)).At(sec(3), "c"))
		v := sdk.AsSlice("view", sdk.WindowInto("side tens", side, window.Fixed(tens)))
		seen := see(p, sdk.WindowInto("tens", main, window.Fixed(tens), sdk.AllowedLateness(5*time.Second)), v, sdk.LateTo(&late))
		return sdk.Flatten("all", seen, sdk.Map("late", late, func(s string) string { return "late " + s }))
	}, "a [s]", "b [s]", "late c")
}

func TestMapWithAndErrorsTo(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		var failed sdk.PCollection[sdk.Failed[string]]
		v := sdk.AsSingleton("view", sdk.Create("side", p, "s"))
		ok := sdk.MapWith("with", sdk.Create("main", p, "a", "b"), v, func(in, side string) (string, error) {
			if in == "b" {
				return "", errors.New("no b")
			}
			return in + side, nil
		}, sdk.ErrorsTo(&failed))
		return sdk.Flatten("all", ok, sdk.Map("failed", failed, func(f sdk.Failed[string]) string { return f.Err }))
	}, "as", "no b")
}

func TestWaitOnWaitsForTheEndOfItsSignals(t *testing.T) {
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		// The window of a ends at 10 and is done at 15, with its lateness.
		all := teststream.Read("script", p, script().At(sec(1), "a").Watermark(sec(12)).At(sec(13), "probe 12").Watermark(sec(15)).At(sec(16), "probe 15"))
		in := sdk.WindowInto("tens", sdk.Filter("main", all, func(s string) bool { return s == "a" }), window.Fixed(tens), sdk.AllowedLateness(5*time.Second))
		waited := sdk.WaitOn("wait", in, in, sdk.WindowInto("numbers", sdk.Map("length", all, func(s string) int { return len(s) }), window.Fixed(tens)))
		// What has come is seen by a view of the global window, in the order of the script.
		seen := sdk.AsSlice("seen", sdk.WindowInto("globally", sdk.Flatten("with a first",
			sdk.WindowInto("waited", waited, window.Global()), sdk.Create("first", p, "start")), window.Global(), eachElement(), sdk.Accumulating))
		probes := sdk.Filter("probes", all, func(s string) bool { return s != "a" })
		return sdk.ParDoFunc("see", probes, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			emit.Emit(s + ": " + sorted(seen.Get(c)))
			return nil
		}, sdk.With(seen))
	}, "probe 12: start", "probe 15: a start")
}

func TestLargeViewTravelsInParts(t *testing.T) {
	word := strings.Repeat("x", 3000)
	var side []string
	for i := range 400 { // 1.2 MB
		side = append(side, fmt.Sprint(i, word))
	}
	everywhere(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		v := sdk.AsSlice("view", sdk.Create("side", p, side...))
		return sdk.ParDoFunc("see", sdk.Create("main", p, "m", "n"), func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
			all := map[string]bool{}
			for _, w := range v.Get(c) {
				all[w] = true
			}
			emit.Emit(fmt.Sprint(s, len(all), len(v.Get(c))))
			return nil
		}, sdk.With(v))
	}, "m400 400", "n400 400")
}

// TestViewsThatFailTheJob: the message names step, view, window and remedy.
func TestViewsThatFailTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		build func(p *sdk.Pipeline, main, side sdk.PCollection[string])
		want  string
	}{
		"a singleton of nothing": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, sdk.AsSingleton("rate", sdk.Filter("nothing", side, func(string) bool { return false })))
		}, `step "see": view "rate" of window \[global\]: it has no element there: use AsSingletonOr`},
		"a singleton of two": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, sdk.AsSingleton("rate", side))
		}, `step "rate/parts": window \[global\]: a pane of a singleton view has 2 elements, .* combine them first`},
		"a key twice": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, sdk.AsMap("rates", letters("pairs", side)))
		}, `step "rates/parts": window \[global\]: key a comes twice in a pane of a map view: use AsMultimap`},
		"too large": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, sdk.AsSlice("rates", side, sdk.MaxViewBytes(20)))
		}, `step "see": view "rates": its elements for window \[global\] take more than 20 bytes, the limit, .* sdk.MaxViewBytes`},
		"not given": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			v := sdk.AsSlice("rates", side)
			sdk.MapWith("see", main, v, func(s string, _ []string) (string, error) { return s, nil })
			sdk.ParDoFunc("forgot", main, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint(v.Get(c)))
				return nil
			})
		}, `step "forgot": it reads the view "rates", which it was not given: add sdk.With for it`},
		"the zero View": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			var v sdk.View[string]
			sdk.ParDoFunc("see", main, func(c *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
				emit.Emit(v.Get(c))
				return nil
			})
		}, `step "see": it reads the view "that is the zero View"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := runOnce(t, func(p *sdk.Pipeline) error {
				c.build(p, sdk.Create("main", p, "m"), sdk.Create("side", p, "a1", "a2"))
				return nil
			})
			if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("got %v, want a match of %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "goroutine") {
				t.Errorf("the message has a stack: %v", err)
			}
		})
	}
}

func TestViewsThatAreRefused(t *testing.T) {
	var zero sdk.View[string]
	for name, c := range map[string]struct {
		build func(p *sdk.Pipeline, main, side sdk.PCollection[string])
		want  string
	}{
		"sessions": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			sdk.AsSlice("v", sdk.WindowInto("sessions", side, window.Sessions(time.Minute)))
		}, `step "v" \(view_test.go:\d+\): a side view of windows that merge, .*: window it into window.Global or window.Fixed first`},
		"merged sessions": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			s := sdk.WindowInto("sessions", letters("pairs", side), window.Sessions(time.Minute))
			sdk.AsMap("v", sdk.CombinePerKey("longest", s, longest{}))
		}, `step "v" .*: a side view of windows that merge`},
		"main in the global window": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, sdk.AsSlice("v", sdk.WindowInto("hours", side, window.Fixed(hours))))
		}, `step "see" .*: the view "v": the global window has no last instant .*: window the main input too`},
		"twice": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			v := sdk.AsSlice("v", side)
			see(p, main, v, sdk.With(v))
		}, `step "see" .*: it is given the view "v" twice: leave one out`},
		"zero": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			see(p, main, zero)
		}, `step "see" .*: With\(the zero View\): pass what AsSingleton`},
		"a limit of nothing": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			sdk.AsSlice("v", side, sdk.MaxViewBytes(0))
		}, `step "v" .*: MaxViewBytes\(0\): must be positive`},
		"no encoding": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			v := sdk.AsSlice("v", side)
			see(p, main, v)
			in := sdk.Map("chan", main, func(string) chan int { return nil })
			sdk.MapErr("waits", in, func(chan int) (string, error) { return "", nil }, sdk.With(v))
		}, `step "waits" .*: elements that wait for a view are kept in checkpoints`},
		"no signal": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) { sdk.WaitOn("w", main) },
			`step "w" .*: it has no signal to wait for`},
		"retractions": {func(p *sdk.Pipeline, main, side sdk.PCollection[string]) {
			early := sdk.WindowInto("early", letters("pairs", main), window.Global(), eachElement(), sdk.AccumulatingAndRetracting)
			v := sdk.AsSlice("v", side)
			sdk.MapWith("see", sdk.CombinePerKey("longest", early, longest{}), v, func(sdk.KV[string, string], []string) (string, error) { return "", nil })
		}, `step "see" .*: its input may have retractions, .* Accumulating`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sdk.Build("test", func(p *sdk.Pipeline) error {
				main := teststream.Read("main", p, script())
				side := teststream.Read("side", p, script())
				c.build(p, main, side)
				return nil
			})
			if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("got %v, want a match of %s", err, c.want)
			}
			if err != nil && strings.Count(err.Error(), "step \"") != 1 {
				t.Errorf("more than the one mistake is reported: %v", err)
			}
		})
	}
}

// TestViewsAreInThePlan: what is read, how it travels, and what is kept.
func TestViewsAreInThePlan(t *testing.T) {
	g, err := sdk.Build("test", func(p *sdk.Pipeline) error {
		see(p, sdk.Create("main", p, "m"), sdk.AsSlice("rates", sdk.Create("side", p, "s")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := maps.Collect(func(yield func(string, bool) bool) {
		for l := range strings.SplitSeq(g.Plan(), "\n") {
			if !yield(strings.TrimSpace(l), true) {
				return
			}
		}
	})
	for _, want := range []string{
		`input "rates/parts" 0 broadcast`, `spec view "rates" slice`, `state view "rates": {} iterable(string_utf8)`, `state waiting=string_utf8`,
	} {
		if !lines[want] {
			t.Errorf("the plan lacks %s:\n%s", want, g.Plan())
		}
	}
}

// runOnce runs a pipeline on the direct runner.
func runOnce(t *testing.T, build func(*sdk.Pipeline) error) error {
	t.Helper()
	_, err := direct.Run(t.Context(), t.Name(), build, direct.Options{Parallelism: 2, Scheduler: sim.New(1)})
	return err
}
