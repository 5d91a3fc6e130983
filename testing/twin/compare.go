package twin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millstream/millstream/sdk/window"
)

// System is an aggregation under test: it lists the elements of each pane, as the Twin does.
type System interface {
	// Do is what the next event leads to, once all that it leads to has happened.
	Do(Event) (Step, error)
}

// TB is what Compare needs of *testing.T or *rapid.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Compare fails t if a system that open makes does not say the same as the twin after each event. The panes of one event may
// come in any order, but for those of a key and window after a watermark: they come in the order in which they are due.
func Compare(t TB, open func(Strategy) (System, error), s Strategy, events []Event) {
	t.Helper()
	if err := Difference(open, s, events); err != nil {
		t.Fatalf("%v", err)
	}
}

// Difference is the error of which Compare tells.
func Difference(open func(Strategy) (System, error), s Strategy, events []Event) error {
	twin, err := New(s)
	if err != nil {
		return err
	}
	system, err := open(s)
	if err != nil {
		return fmt.Errorf("open a system with %v: %w", s, err)
	}
	var want []Step
	for i, e := range events {
		step, err := twin.Do(e)
		if err != nil {
			return err
		}
		want = append(want, step)
		got, err := system.Do(e)
		if err == nil {
			err = sameStep(step, got, e.Kind == WatermarkEvent)
		}
		if err != nil {
			return fmt.Errorf("after event %d, %v: %w\n%v\nwhat should happen:\n%s", i+1, e, err, s, Text(events[:i+1], want))
		}
	}
	return nil
}

// sameStep tells what differs, line by line.
func sameStep(want, got Step, inOrder bool) error {
	lines := func(s Step) string {
		panes := slices.Clone(s.Panes)
		for i := range panes {
			panes[i].Values = slices.Sorted(slices.Values(panes[i].Values))
		}
		slices.SortFunc(s.Late, func(a, b Drop) int {
			if c := a.Window.Compare(b.Window); c != 0 {
				return c
			}
			return strings.Compare(a.String(), b.String())
		})
		s.Panes = sorted(panes)
		return Text(nil, []Step{s})
	}
	want.Late, got.Late = slices.Clone(want.Late), slices.Clone(got.Late)
	if w, g := lines(want), lines(got); w != g {
		return fmt.Errorf("(-twin +system)\n%s", lineDiff(strings.Split(w, "\n"), strings.Split(g, "\n")))
	}
	if !inOrder {
		return nil
	}
	due := map[string]Pane{}
	for _, p := range want.Panes {
		due[p.String()] = p
	}
	last := map[Place]Pane{}
	for _, p := range got.Panes {
		p.Values = slices.Sorted(slices.Values(p.Values))
		p = due[p.String()]
		at := Place{p.Key, p.Window}
		if before, ok := last[at]; ok && p.due < before.due {
			return fmt.Errorf("the pane\n%v\nwas due before\n%v\nbut came after it", p, before)
		}
		last[at] = p
	}
	return nil
}

// lineDiff is the lines of both, those of one alone marked.
func lineDiff(want, got []string) string {
	var b strings.Builder
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(want) > 0 && len(got) > 0 && want[0] == got[0]:
			fmt.Fprintf(&b, " %s\n", want[0])
			want, got = want[1:], got[1:]
		case len(want) > 0 && !slices.Contains(got, want[0]) || len(got) == 0:
			fmt.Fprintf(&b, "-%s\n", want[0])
			want = want[1:]
		default:
			fmt.Fprintf(&b, "+%s\n", got[0])
			got = got[1:]
		}
	}
	return b.String()
}

// Place is a window of a key.
type Place struct {
	Key    string
	Window window.Window
}

// Final is what is left in the end of panes that came out in any order: the values that stand for each key and window.
//
// Under Discarding these are all values; under Accumulating those of the pane with the greatest index; under Retracting what
// was said less what was taken back. What was said of a session, or another window, that became part of one that holds it, belongs
// to that one. A window that has nothing has no entry.
func Final(s Strategy, panes []Pane) (map[Place][]int64, error) {
	out, index := map[Place][]int64{}, map[Place]int64{}
	for _, p := range panes {
		at := Place{p.Key, p.Window}
		i, seen := index[at]
		switch {
		case s.Accumulation != Accumulating && !p.Retraction:
			out[at] = append(out[at], p.Values...)
		case s.Accumulation == Accumulating && (!seen || p.Info.Index > i):
			out[at], index[at] = p.Values, p.Info.Index
		}
	}
	for _, p := range panes {
		if p.Retraction {
			rest, ok := less(out[Place{p.Key, p.Window}], p.Values)
			if !ok {
				return nil, fmt.Errorf("%v: there is less to be taken back", p)
			}
			out[Place{p.Key, p.Window}] = rest
		}
	}
	if merging(s.Fn) {
		out = whole(s, out)
	}
	for at, vs := range out {
		slices.Sort(vs)
		if len(vs) == 0 {
			delete(out, at)
		}
	}
	return out, nil
}

// whole brings what sessions had before they became part of others to those.
func whole(s Strategy, parts map[Place][]int64) map[Place][]int64 {
	out := map[Place][]int64{}
	for at, vs := range parts {
		into := at
		for o := range parts {
			if o.Key == at.Key && o.Window.StartTime() <= into.Window.StartTime() && into.Window.EndTime() <= o.Window.EndTime() {
				into = o
			}
		}
		if into == at || s.Accumulation != Accumulating {
			out[into] = append(out[into], vs...)
		}
	}
	return out
}
