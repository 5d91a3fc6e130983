package twin

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

type windowFn = window.Fn

// drawn is a random case and what the twin says.
type drawn struct {
	Strategy
	events []Event
	steps  []Step
}

func draw(r *rapid.T) (d drawn) { return drawIn(r, Windows()) }

func drawIn(r *rapid.T, fns *rapid.Generator[window.Fn]) (d drawn) {
	d.Strategy, d.events = Stretched(Strategies(fns, Triggers(3)).Draw(r, "strategy"), Streams().Draw(r, "events"))
	d.run(r)
	return d
}

func (d *drawn) run(r *rapid.T) {
	steps, err := Run(d.Strategy, d.events)
	if err != nil {
		r.Fatal(err)
	}
	d.steps = steps
}

func (d drawn) String() string { return fmt.Sprintf("%v\n%s", d.Strategy, Text(d.events, d.steps)) }

func (d drawn) panes() (out []Pane) {
	for _, s := range d.steps {
		out = append(out, s.Panes...)
	}
	return out
}

// kept is the values that came, for each key and window, less those that were dropped. Sessions are not known by this: theirs
// are in the global window.
func (d drawn) kept() map[Place][]int64 {
	out := map[Place][]int64{}
	for i, e := range d.events {
		if e.Kind != ElementEvent {
			continue
		}
		for _, w := range d.Assign(e.Time) {
			if slices.Contains(d.steps[i].Late, Drop{e.Key, e.Value, e.Time, w}) {
				continue
			}
			if merging(d.Fn) {
				w = window.GlobalWindow
			}
			out[Place{e.Key, w}] = append(out[Place{e.Key, w}], e.Value)
		}
	}
	return out
}

// byKey brings everything of a key into the global window.
func byKey(m map[Place][]int64) map[Place][]int64 {
	out := map[Place][]int64{}
	for at, vs := range m {
		at.Window = window.GlobalWindow
		out[at] = append(out[at], vs...)
		slices.Sort(out[at])
	}
	return out
}

// Nothing is lost and nothing is there twice: what stands in the end is what came and was not dropped, whatever the trigger and
// the accumulation.
func TestWhatStandsIsWhatCame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := draw(r)
		got, err := Final(d.Strategy, d.panes())
		if err != nil {
			r.Fatalf("%v\n%v", err, d)
		}
		if merging(d.Fn) {
			got = byKey(got)
		}
		if diff := cmp.Diff(d.kept(), got, cmp.AllowUnexported(window.Window{})); diff != "" {
			r.Fatalf("(-came +stands)\n%s\n%v", diff, d)
		}
	})
}

// Of sessions that all can still join, those that are left have no order of arrival in them.
func TestSessionsAreConnectedElements(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		gap := rapid.IntRange(1, 12).Draw(r, "gap")
		d := drawIn(r, rapid.Just[window.Fn](window.Sessions(ms*time.Duration(gap))))
		d.Lateness = 1000
		// A trigger that never finishes.
		d.Trigger = Counts().Draw(r, "counts")
		d.run(r)
		got, err := Final(d.Strategy, d.panes())
		if err != nil {
			r.Fatalf("%v\n%v", err, d)
		}
		want := map[Place][]int64{}
		for _, key := range []string{"a", "b"} {
			var es []Event
			for _, e := range d.events {
				if e.Kind == ElementEvent && e.Key == key {
					es = append(es, e)
				}
			}
			slices.SortStableFunc(es, func(a, b Event) int { return int(a.Time - b.Time) })
			for i := 0; i < len(es); {
				start, values := es[i].Time, []int64{}
				end := start
				for ; i < len(es) && (len(values) == 0 || es[i].Time < end); i++ {
					values, end = append(values, es[i].Value), es[i].Time+eventtime.Time(gap)
				}
				slices.Sort(values)
				want[Place{key, window.New(start, end)}] = values
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(window.Window{})); diff != "" {
			r.Fatalf("(-connected +sessions)\n%s\n%v", diff, d)
		}
	})
}

// Every trace is legal, and a pane that was held on time is on time.
func TestTracesAreLegal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := draw(r)
		if err := Legal(d.Strategy, d.panes()); err != nil {
			r.Fatalf("%v\n%v", err, d)
		}
		input, output := eventtime.Min, eventtime.Min
		for i, s := range d.steps {
			if d.events[i].Kind == WatermarkEvent {
				input = d.events[i].Time
			}
			if s.Watermark < output || s.Watermark > input {
				r.Fatalf("event %d: the watermark of the output goes from %v to %v, and that of the input is %v\n%v", i+1, output, s.Watermark, input, d)
			}
			for _, p := range s.Panes {
				if p.Info.Timing != window.Late && !p.Retraction && p.Time < output {
					r.Fatalf("event %d: %v is behind the watermark of the output, %v\n%v", i+1, p, output, d)
				}
			}
			output = s.Watermark
		}
		if output != eventtime.Max {
			r.Fatalf("the watermark of the output ends at %v\n%v", output, d)
		}
	})
}

// When panes fire and what they are called does not depend on what is in them; but what a window that merged has said holds the
// watermark until it is taken back.
func TestAccumulationOnlyChangesContents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := draw(r)
		modes := []Accumulation{Discarding, Accumulating, Retracting}
		if merging(d.Fn) {
			modes = modes[:2]
		}
		var traces []string
		for _, d.Accumulation = range modes {
			d.run(r)
			for i := range d.steps {
				s := &d.steps[i]
				s.Panes = slices.DeleteFunc(s.Panes, func(p Pane) bool { return p.Retraction })
				for k := range s.Panes {
					s.Panes[k].Values = nil
				}
			}
			traces = append(traces, Text(d.events, d.steps))
		}
		for _, trace := range traces[1:] {
			if trace != traces[0] {
				r.Fatalf("%v\n%s", d.Strategy, cmp.Diff(traces[0], trace))
			}
		}
	})
}

// Keys touch each other by the watermark of the output alone.
func TestKeysAreApart(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := draw(r)
		d.Timestamps = EndOfWindow // which the watermark of the output does not change
		d.run(r)
		strip := func(ps []Pane) (out []string) {
			for _, p := range ps {
				if p.Key == "a" {
					out = append(out, p.String())
				}
			}
			return out
		}
		alone := d
		alone.events = slices.DeleteFunc(slices.Clone(d.events), func(e Event) bool { return e.Key == "b" })
		alone.run(r)
		if diff := cmp.Diff(strip(alone.panes()), strip(d.panes())); diff != "" {
			r.Fatalf("(-alone +beside b)\n%s\n%v", diff, d)
		}
	})
}

// The generators draw what the properties are about: enough of each kind of pane.
func TestGeneratorsReachAll(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		d := draw(r)
		for _, s := range d.steps {
			if len(s.Late) > 0 {
				seen["dropped"]++
			}
			for _, p := range s.Panes {
				seen[p.Info.Timing.String()]++
				for what, is := range map[string]bool{"retraction": p.Retraction, "last": p.Info.Last, "empty": len(p.Values) == 0,
					"own timestamp": p.Time != p.Window.EndTime()-1, "third": p.Info.Index == 2, "third not early": p.Info.OnTimeIndex == 2} {
					if is {
						seen[what]++
					}
				}
			}
		}
	})
	for _, what := range []string{"dropped", "EARLY", "ON_TIME", "LATE", "retraction", "last", "empty", "own timestamp", "third", "third not early"} {
		if seen[what] == 0 {
			t.Errorf("never drawn: %s; drawn: %v", what, slices.Sorted(maps.Keys(seen)))
		}
	}
	t.Log(seen)
}
