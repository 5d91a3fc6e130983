package passert_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

var ten = window.New(0, 10)

// sums has an early pane 3, an on-time one 7 and a late one 12 of ann in the first window, and one of bob.
func sums(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
	kv := func(k string, v int64) sdk.KV[string, int64] { return sdk.Pair(k, v) }
	in := teststream.Read("script", p, teststream.Script[sdk.KV[string, int64]]{}.
		At(at(1), kv("ann", 1), kv("ann", 2)).At(at(3), kv("ann", 4)).At(at(5), kv("bob", 9)).
		Watermark(at(10)).At(at(4), kv("ann", 5)).Watermark(at(40)))
	w := sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(2)).Late(trigger.AfterCount(1))),
		sdk.AllowedLateness(20*time.Millisecond), sdk.Accumulating)
	return sdk.CombinePerKey("sum", w, stats.Sum[int64]{})
}

var (
	earlyPane  = window.Pane{Timing: window.Early, First: true, OnTimeIndex: -1}
	onTimePane = window.Pane{Timing: window.OnTime, Index: 1}
	latePane   = window.Pane{Timing: window.Late, Index: 2, OnTimeIndex: 1}
)

func TestAssertionsOfPanesThatHold(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sums(p)
		passert.ForKey("ann's", in, "ann").Equals(3, 7, 12)
		passert.ForKey("ann's panes", in, "ann").Panes(
			passert.Pane[int64]{Value: 3, Time: at(9), Window: ten, Pane: earlyPane},
			passert.Pane[int64]{Value: 7, Time: at(9), Window: ten, Pane: onTimePane},
			passert.Pane[int64]{Value: 12, Time: at(9), Window: ten, Pane: latePane},
		)
		passert.That("early", in).Early().Equals(sdk.Pair("ann", int64(3)))
		passert.That("on time", in).InWindow(ten).OnTime().Equals(sdk.Pair("ann", int64(7)), sdk.Pair("bob", int64(9)))
		passert.That("late", in).Late().Equals(sdk.Pair("ann", int64(12)))
		passert.That("second", in).PaneIndex(1).Equals(sdk.Pair("ann", int64(7)))
		passert.ForKey("nobody", in, "cyd").Empty()
		passert.That("elsewhere", in).InWindow(window.New(10, 20)).Empty()
		passert.ForKey("sorted", in, "ann").Satisfies(func(got []int64) error {
			if fmt.Sprint(got) != "[3 7 12]" {
				return fmt.Errorf("got %v", got)
			}
			return nil
		})
		p.Scope("no panes", func() { passert.That("all are last", numbers(p)).Final().Equals(1, 3, 3, 12, 25) })
		return nil
	})
}

// A restriction does not change the assertion that it is called on.
func TestRestrictionsAreValues(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		base := passert.That("base", sums(p)).InWindow(ten)
		base.Early()
		base.Satisfies(func(got []sdk.KV[string, int64]) error {
			if len(got) != 4 {
				return fmt.Errorf("%v, want four", got)
			}
			return nil
		})
		return nil
	})
}

func TestAssertionsOfPanesThatDoNotHold(t *testing.T) {
	type in = sdk.PCollection[sdk.KV[string, int64]]
	pair := func(k string, v int64) sdk.KV[string, int64] { return sdk.Pair(k, v) }
	wrong := latePane
	wrong.OnTimeIndex = 2
	for _, c := range []struct {
		name  string
		check func(in)
		want  []string
	}{
		{"early", func(x in) { passert.That("check", x).Early().Equals(pair("ann", 7)) },
			[]string{`step "check/check"`, "passert.Equals at panes_test.go:", ", early: not the elements wanted (-want +got)", "3", "7"}},
		{"on time", func(x in) { passert.That("check", x).InWindow(ten).OnTime().Equals(pair("ann", 7)) },
			[]string{", in window [1970-01-01T00:00:00.000Z, 1970-01-01T00:00:00.010Z), on time: ", "bob"}},
		{"late", func(x in) { passert.That("check", x).Late().Empty() }, []string{"passert.Empty at", ", late: ", "12"}},
		{"final", func(x in) { passert.That("check", x).Final().Equals(pair("bob", 7)) }, []string{", in last panes: "}},
		{"index", func(x in) { passert.That("check", x).PaneIndex(2).Empty() }, []string{", in pane 2: "}},
		{"key", func(x in) { passert.ForKey("check", x, "ann").Equals(3, 7) }, []string{", of key ann: ", "12"}},
		{"no such key", func(x in) { passert.ForKey("check", x, "cyd").Equals(3) }, []string{", of key cyd: ", "3"}},
		{"timestamp", func(x in) {
			passert.ForKey("check", x, "ann").Late().Panes(passert.Pane[int64]{Value: 12, Time: at(8), Window: ten, Pane: latePane})
		}, []string{"passert.Panes at", "Time:"}},
		{"window", func(x in) {
			passert.ForKey("check", x, "ann").Late().Panes(passert.Pane[int64]{Value: 12, Time: at(9), Window: window.New(0, 11), Pane: latePane})
		}, []string{"Window:"}},
		{"pane", func(x in) {
			passert.ForKey("check", x, "ann").Late().Panes(passert.Pane[int64]{Value: 12, Time: at(9), Window: ten, Pane: wrong})
		}, []string{"OnTimeIndex:"}},
		{"function", func(x in) {
			passert.That("check", x).Satisfies(func(got []sdk.KV[string, int64]) error { return errors.New("too dull") })
		}, []string{"passert.Satisfies at panes_test.go:", "too dull"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := direct.Run(context.Background(), "p", func(p *sdk.Pipeline) error { c.check(sums(p)); return nil }, direct.Options{Parallelism: 2})
			if err == nil {
				t.Fatal("the run succeeds")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}
