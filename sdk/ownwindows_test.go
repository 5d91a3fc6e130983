package sdk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// grouped is what a grouping of elements says, which come in any order and are none of them late.
func grouped(p *sdk.Pipeline, fn window.Fn, as ...said) sdk.PCollection[string] {
	in := memio.Read("in", p, as, sdk.EventTime(said.time, watermark.Bounded(100*365*24*time.Hour)))
	keyed := sdk.Map("pair", in, func(a said) sdk.KV[string, string] { return sdk.Pair(a.K, a.V) })
	return shown("show", sdk.GroupByKey("group", sdk.WindowInto("w", keyed, fn)))
}

// FLINK-26334: elements before the epoch were in the window after theirs.
func TestFixedWindowsBeforeTheEpoch(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		out := grouped(p, window.Fixed(10*ms), said{"k", "a", -1}, said{"k", "b", -10}, said{"k", "c", -11}, said{"k", "d", 0})
		passert.Equals("check", out, "[-10,0) k ab", "[-20,-10) k c", "[0,10) k d")
		return nil
	})
}

// Sliding windows with the size above and below the period, shifted, on both sides of the epoch.
func TestSlidingWindowsWithAnOffset(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   window.Fn
		want []string
	}{
		{"size below the period", window.Sliding(4*ms, 10*ms).Offset(-3 * ms), []string{"[-13,-9) k b", "[-3,1) k ac"}},
		{"size above the period", window.Sliding(10*ms, 4*ms).Offset(1 * ms), []string{
			"[-19,-9) k b", "[-15,-5) k b", "[-11,-1) k b", "[-7,3) k ac", "[-3,7) k acd", "[1,11) k d", "[5,15) k d"}},
		{"size equal to the period", window.Sliding(10*ms, 10*ms).Offset(25 * ms), []string{"[-15,-5) k b", "[-5,5) k ac", "[5,15) k d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ptest.Run(t, func(p *sdk.Pipeline) error {
				passert.Equals("check", grouped(p, c.fn, said{"k", "a", -1}, said{"k", "b", -10}, said{"k", "c", 0}, said{"k", "d", 6}), c.want...)
				return nil
			})
		})
	}
}

func berlin(t *testing.T, s string) said {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation(time.DateTime, s, loc)
	if err != nil {
		t.Fatal(err)
	}
	return said{"k", s[8:10], at.UnixMilli()}
}

func TestCalendarDaysFollowTheClocks(t *testing.T) {
	as := []said{
		berlin(t, "2026-03-28 23:59:59"), berlin(t, "2026-03-29 00:00:00"), berlin(t, "2026-03-29 23:59:59"), berlin(t, "2026-03-30 00:00:00"),
		berlin(t, "1969-12-31 23:30:00"),
	}
	panes := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return grouped(p, window.Days(1).In("Europe/Berlin"), as...)
	})
	var got []string
	for _, e := range panes {
		_, text, _ := strings.Cut(e.Value, " k ")
		got = append(got, text+" "+e.Window.End().Sub(e.Window.Start()).String())
		if !e.Time.Equal(e.Window.End().Add(-ms)) {
			t.Errorf("pane of %v at %v", e.Window, e.Time)
		}
	}
	if want := "31 24h0m0s, 28 24h0m0s, 2929 23h0m0s, 30 24h0m0s"; strings.Join(got, ", ") != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestUnknownTimeZoneIsRefused(t *testing.T) {
	p := sdk.NewPipeline("p")
	sdk.WindowInto("daily", stream(p, said{"k", "a", 0}), window.Days(1).In("Europe/Berln"))
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), `step "daily" (ownwindows_test.go:`) || !strings.Contains(err.Error(), `time zone "Europe/Berln"`) {
		t.Errorf("error %v", err)
	}
}

// Processes that know other rules of a zone must not work on one job: the bind digest is made of the plan.
func TestPlanHasTheRulesOfTheTimeZone(t *testing.T) {
	p := sdk.NewPipeline("p")
	daily := window.Days(1).In("Europe/Berlin")
	sdk.GroupByKey("group", sdk.WindowInto("daily", stream(p, said{"k", "a", 0}), daily))
	g, err := p.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if rules := "time zone Europe/Berlin=" + daily.Rules(); !strings.Contains(g.Plan(), rules) || strings.Contains(g.StatePlan(1), daily.Rules()) {
		t.Errorf("%s is not in the plan, or in that of the state:\n%s%s", rules, g.Plan(), g.StatePlan(1))
	}
}

// doubles puts an element at t into [t, t+size) and [0, t), if that is not empty; none before the epoch.
type doubles struct{ size time.Duration }

func (d doubles) Assign(dst []window.Window, t time.Time) []window.Window {
	if t.UnixMilli() < 0 {
		return dst
	}
	if t.UnixMilli() > 0 {
		dst = append(dst, window.Between(ts(0), t))
	}
	return append(dst, window.Between(t, t.Add(d.size)))
}

func TestCustomWindows(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		fn := window.Custom("doubles", "size=5ms", doubles{5 * ms})
		as := []said{{"k", "a", 0}, {"k", "b", 5}, {"k", "c", 5}, {"j", "d", 5}, {"k", "e", -1}, {"k", "f", 10}}
		passert.Equals("check", grouped(p, fn, as...),
			"[0,5) k abc", "[0,5) j d", "[5,10) k bc", "[5,10) j d", "[0,10) k f", "[10,15) k f")
		each := sdk.WindowInto("again", sdk.WindowInto("own", stream2(p, "s", said{"k", "a", 0}, said{"k", "b", 5}), fn), window.Fixed(time.Second))
		passert.Equals("windowed again, once for each window", shown("show 2", sdk.GroupByKey("group 2", each)), "[0,1000) k abb")
		return nil
	})
}

func TestLateForSomeOfItsCustomWindows(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		s := teststream.Script[sdk.KV[string, string]]{}.
			At(ts(4), sdk.Pair("k", "a")).Watermark(ts(8)).At(ts(7), sdk.Pair("k", "b"))
		in := sdk.WindowInto("w", teststream.Read("in", p, s), window.Custom("doubles", "size=5ms", doubles{5 * ms}))
		var late sdk.PCollection[sdk.KV[string, string]]
		groups := sdk.GroupByKey("group", in, sdk.LateTo(&late))
		passert.Equals("groups", shown("show", groups), "[0,4) k a", "[4,9) k a", "[7,12) k b")
		passert.Equals("late", shown("show late", sdk.GroupByKey("late group", sdk.WindowInto("fixed", late, window.Fixed(10*ms)))), "[0,10) k b")
		return nil
	})
}

// misbehaves does what its name says.
type misbehaves string

func (m misbehaves) Assign(dst []window.Window, t time.Time) []window.Window {
	switch m {
	case "empty":
		return append(dst, window.Between(t, t))
	case "many":
		for i := range window.MaxCopies + 1 {
			dst = append(dst, window.Between(t, t.Add(time.Duration(i+1)*time.Second)))
		}
		return dst
	}
	panic("no window for " + t.Format(time.DateOnly))
}

func TestWhatACustomWindowFunctionDoesWrongNamesTheStep(t *testing.T) {
	for m, want := range map[misbehaves]string{
		"empty":  `custom windows "mine" put the element at 1970-01-01T00:00:00.007Z into the window`,
		"many":   "into 10001 windows: at most 10000 are allowed",
		"panics": "panic: no window for 1970-01-01",
	} {
		_, err := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error {
			sdk.GroupByKey("group", sdk.WindowInto("my windows", stream(p, said{"k", "a", 7}), window.Custom("mine", "", m)))
			return nil
		}, direct.Options{Parallelism: 1})
		if err == nil || !strings.Contains(err.Error(), `step "my windows"`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", m, err, want)
		}
	}
}

// merging are windows of which all that overlap merge into the first, which does not grow.
type merging struct{}

func (merging) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(10*ms)))
}

func (merging) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	for len(open) > 0 {
		n := 1
		for n < len(open) && open[n].Start().Before(open[0].End()) {
			n++
		}
		if n > 1 {
			dst = append(dst, window.Merge{From: open[:n], Into: open[0]})
		}
		open = open[n:]
	}
	return dst
}

func TestCustomWindowsMergeKeyByKey(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		fn := window.Custom("first", "size=10ms", merging{})
		as := []said{{"k", "a", 0}, {"k", "b", 9}, {"k", "c", 10}, {"j", "d", 5}, {"k", "e", 45}, {"k", "f", 19}}
		out := grouped(p, fn, as...)
		passert.Equals("check", out, "[0,10) k ab", "[10,20) k cf", "[45,55) k e", "[5,15) j d")
		again := sdk.Map("again", out, func(s string) sdk.KV[string, string] { return sdk.Pair("all", s[:1]) })
		passert.Equals("they have merged", shown("show 2", sdk.GroupByKey("group 2", again)), "[0,10) all [", "[10,20) all [", "[45,55) all [", "[5,15) all [")
		return nil
	})
}

func TestCustomWindowsAreCheckedAtConstruction(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(in sdk.PCollection[sdk.KV[string, string]])
		want  string
	}{
		{"no assigner", func(in sdk.PCollection[sdk.KV[string, string]]) {
			sdk.WindowInto("step", in, window.Custom("mine", "", nil))
		}, `custom windows "mine": no Assigner given`},
		{"merged and unlike", func(in sdk.PCollection[sdk.KV[string, string]]) {
			sdk.Flatten("step", sdk.WindowInto("a", in, window.Custom("mine", "size=1", doubles{1})), sdk.WindowInto("b", in, window.Custom("mine", "size=2", doubles{2})))
		}, `input 2 into custom windows "mine" with "size=2"`},
		{"keyed state", func(in sdk.PCollection[sdk.KV[string, string]]) {
			n := sdk.MapValues("n", in, func(string) int64 { return 1 })
			sdk.ParDoPerKey("step", sdk.WindowInto("w", n, window.Custom("mine", "", merging{})), &visits{})
		}, `windows that merge, custom windows "mine", and`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sdk.NewPipeline("p")
			c.build(stream(p, said{"k", "a", 0}))
			if err := p.Err(); err == nil || !strings.Contains(err.Error(), `step "step" (ownwindows_test.go:`) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
