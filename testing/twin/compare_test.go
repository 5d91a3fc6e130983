package twin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// altered is a system that says something else than the twin.
type altered struct {
	System
	change func(*Step)
}

func (a altered) Do(e Event) (Step, error) {
	s, err := a.System.Do(e)
	s.Panes, s.Late = slices.Clone(s.Panes), slices.Clone(s.Late)
	a.change(&s)
	return s, err
}

func TestCompareFindsFaults(t *testing.T) {
	means := func(change func(*Strategy)) func(Strategy) (System, error) {
		return func(s Strategy) (System, error) {
			change(&s)
			return New(s)
		}
	}
	says := func(change func(*Step)) func(Strategy) (System, error) {
		return func(s Strategy) (System, error) {
			twin, err := New(s)
			return altered{twin, change}, err
		}
	}
	for _, c := range []struct {
		name string
		open func(Strategy) (System, error)
	}{
		{"lateness ends a millisecond early", means(func(s *Strategy) { s.Lateness = max(0, s.Lateness-1) })},
		{"panes accumulate", means(func(s *Strategy) { s.Accumulation = max(s.Accumulation, Accumulating) })},
		{"nothing is taken back", means(func(s *Strategy) { s.Accumulation = min(s.Accumulation, Accumulating) })},
		{"the latest timestamp is the earliest", means(func(s *Strategy) { s.Timestamps = min(s.Timestamps, Earliest) })},
		{"empty panes on time are left out", means(func(s *Strategy) { s.EmptyOnTime = false })},
		{"empty last panes are left out", means(func(s *Strategy) { s.EmptyLast = false })},
		{"the trigger never finishes", means(func(s *Strategy) { s.Trigger = trigger.Repeatedly(s.Trigger) })},
		{"the late part is lost", means(func(s *Strategy) {
			if w, ok := s.Trigger.(trigger.Watermark); ok && w.LatePart != nil {
				s.Trigger = w.Late(trigger.AfterCount(1))
			}
		})},
		{"sessions do not merge", means(func(s *Strategy) {
			if fn, ok := s.Fn.(window.SessionsFn); ok {
				s.Fn = window.Sliding(fn.Gap, ms)
			}
		})},
		{"the watermark is not held", says(func(s *Step) { s.Watermark = eventtime.Max })},
		{"drops are not told", says(func(s *Step) { s.Late = nil })},
		{"no pane is the last", says(func(s *Step) {
			for i := range s.Panes {
				s.Panes[i].Info.Last = false
			}
		})},
		{"windows that are due together fire backwards", says(func(s *Step) { slices.Reverse(s.Panes) })},
		{"what is taken back comes after its correction", says(func(s *Step) {
			for i := range len(s.Panes) - 1 {
				if s.Panes[i].Retraction && !s.Panes[i+1].Retraction {
					s.Panes[i], s.Panes[i+1] = s.Panes[i+1], s.Panes[i]
					return
				}
			}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			strategies, streams := Strategies(Windows(), Triggers(3)), Streams()
			for seed := range 400 {
				if Difference(c.open, strategies.Example(seed), streams.Example(seed)) != nil {
					t.Logf("found by random case %d", seed)
					return
				}
			}
			t.Error("400 random cases do not find it")
		})
	}
}

func TestCompareTakesAnyOrderThatIsNotPromised(t *testing.T) {
	events, err := Parse(`
		b 1@1
		a 2@1
		a 3@2
		W end`)
	if err != nil {
		t.Fatal(err)
	}
	open := func(s Strategy) (System, error) {
		twin, err := New(s)
		return altered{twin, func(s *Step) {
			slices.Reverse(s.Panes)
			for _, p := range s.Panes {
				slices.Reverse(p.Values)
			}
		}}, err
	}
	Compare(t, open, Strategy{Fn: window.Fixed(10 * ms), Trigger: trigger.AfterWatermark()}, events)
}

// What Compare says names the event, the strategy, what differs, and the events so far in the form that Parse reads.
func TestCompareTellsTheCase(t *testing.T) {
	events, err := Parse(`
		k 1@3
		W 10
		k 2@4`)
	if err != nil {
		t.Fatal(err)
	}
	s := Strategy{Fn: window.Fixed(10 * ms), Trigger: trigger.AfterWatermark(), Timestamps: Earliest}
	open := func(s Strategy) (System, error) {
		s.Timestamps = EndOfWindow
		return New(s)
	}
	err = Difference(open, s, events)
	if err == nil {
		t.Fatal("no difference")
	}
	for _, part := range []string{"after event 2, W 10:", "window.FixedFn{Size:10ms Shift:0s}, AfterWatermark, discarding, earliest",
		"\n-> k [0,10) {1} @3, ON_TIME 0/0 first last\n", "\n+> k [0,10) {1} @9, ON_TIME 0/0 first last\n", "k 1@3\nW 10\n> "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("does not say %q:\n%v", part, err)
		}
	}
	if err := Difference(func(Strategy) (System, error) { return nil, errors.ErrUnsupported }, s, events); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a system that does not open: %v", err)
	}
}

func TestLegalFindsFaults(t *testing.T) {
	at := func(end eventtime.Time, index, onTime int64, timing window.Timing, values ...int64) Pane {
		return Pane{Key: "k", Window: window.New(0, end), Values: values, Time: end - 1,
			Info: window.Pane{Timing: timing, Index: index, OnTimeIndex: onTime, First: index == 0}}
	}
	with := func(p Pane, change func(*Pane)) Pane { change(&p); return p }
	byTwo := trigger.AfterWatermark().Early(trigger.AfterCount(2))
	for _, c := range []struct {
		name string
		Accumulation
		panes []Pane
	}{
		{"a number is left out", Discarding, []Pane{at(10, 0, -1, window.Early, 1, 2), at(10, 2, 0, window.OnTime, 3)}},
		{"a number occurs twice", Discarding, []Pane{at(10, 0, -1, window.Early, 1, 2), at(10, 0, 0, window.OnTime, 3)}},
		{"an early pane has a number of those that are not", Discarding, []Pane{at(10, 0, 0, window.Early, 1, 2)}},
		{"early after on time", Discarding, []Pane{at(10, 0, 0, window.OnTime, 1), at(10, 1, -1, window.Early, 2, 3)}},
		{"on time twice", Discarding, []Pane{at(10, 0, 0, window.OnTime, 1), at(10, 1, 1, window.OnTime, 2)}},
		{"one after the last", Discarding, []Pane{with(at(10, 0, 0, window.OnTime, 1), func(p *Pane) { p.Info.Last = true }), at(10, 1, 1, window.Late, 2)}},
		{"an early pane of too few", Discarding, []Pane{at(10, 0, -1, window.Early, 1)}},
		{"a pane of nothing", Discarding, []Pane{at(10, 0, 0, window.OnTime)}},
		{"it has less than the one before", Accumulating, []Pane{at(10, 0, -1, window.Early, 1, 2), at(10, 1, 0, window.OnTime, 1, 3)}},
		{"it has the same", Accumulating, []Pane{at(10, 0, -1, window.Early, 1, 2), at(10, 1, 0, window.OnTime, 1, 2)}},
		{"nothing was taken back", Retracting, []Pane{at(10, 0, -1, window.Early, 1, 2), at(10, 1, 0, window.OnTime, 1, 2, 3)}},
		{"something else was taken back", Retracting, []Pane{at(10, 0, -1, window.Early, 1, 2), with(at(10, 0, -1, window.Early, 1), func(p *Pane) { p.Retraction = true })}},
		{"a timestamp outside", Discarding, []Pane{with(at(10, 0, 0, window.OnTime, 1), func(p *Pane) { p.Time = 10 })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if Legal(Strategy{Fn: window.Fixed(10 * ms), Trigger: byTwo, Accumulation: c.Accumulation}, c.panes) == nil {
				t.Error("legal")
			}
		})
	}
}
