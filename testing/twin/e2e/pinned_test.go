package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/sim"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/testing/twin"
)

// disturbance is how a run on the direct runner is disturbed, which must make no difference.
type disturbance struct {
	seed         uint64
	parallelism  int
	restoreEvery int
	overtaking   bool
	cache        int64
	crashes      []int // steps of the scheduler after each start
}

func disturbances(least, most int) *rapid.Generator[disturbance] {
	return rapid.Custom(func(t *rapid.T) disturbance {
		return disturbance{
			seed:         uint64(rapid.IntRange(0, 1<<20).Draw(t, "scheduler")),
			parallelism:  rapid.IntRange(least, most).Draw(t, "parallelism"),
			restoreEvery: rapid.SampledFrom([]int{0, 1, 2, 5, 11}).Draw(t, "restore every"),
			overtaking:   rapid.Bool().Draw(t, "overtaking"),
			cache:        rapid.SampledFrom([]int64{0, 1}).Draw(t, "cache"),
			crashes:      rapid.SliceOfN(rapid.IntRange(1, 600), 0, 3).Draw(t, "crashes"),
		}
	})
}

// run runs a pipeline so disturbed.
func (d disturbance) run(t interface {
	Fatalf(format string, args ...any)
}, build func(*sdk.Pipeline) error, told fmt.Stringer) *direct.Result {
	s := sim.New(d.seed)
	o := direct.Options{Parallelism: d.parallelism, RestoreEvery: d.restoreEvery, Overtaking: d.overtaking, CacheBytes: d.cache, Scheduler: s}
	if d.restoreEvery > 0 {
		o.ReadBatch = d.restoreEvery
	}
	if left := d.crashes; len(left) > 0 {
		o.CheckpointInterval = 20 * time.Millisecond
		o.Crash = func(crash func()) {
			if len(left) > 0 {
				s.After(left[0], crash)
				left = left[1:]
			}
		}
	}
	r, err := direct.Run(background, "case", build, o)
	if err != nil {
		t.Fatalf("%v\n%+v\n%v", err, d, told)
	}
	return r
}

// script is events as a source plays them.
func script(events []twin.Event) (s teststream.Script[reading]) {
	for _, e := range events[:len(events)-1] {
		switch at := e.Time.Time(); e.Kind {
		case twin.ElementEvent:
			s = s.At(at, sdk.Pair(e.Key, e.Value))
		case twin.WatermarkEvent:
			s = s.Watermark(at)
		case twin.ClockEvent:
			s = s.Clock(at)
		}
	}
	return s
}

// subtask is where a key is.
func subtask(key string, parallelism int) int {
	keys, err := coder.KeyOf[string]()
	if err != nil {
		panic(err)
	}
	h, err := keys.Hash(key)
	if err != nil {
		panic(err)
	}
	const groups = statebackend.DefaultKeyGroups
	return statebackend.SubtaskOf(statebackend.KeyGroup(h%groups), parallelism, groups)
}

// expected is what a twin in each subtask says.
func expected(c aCase, parallelism int) (steps []twin.Step, err error) {
	steps = make([]twin.Step, len(c.events))
	for i := range parallelism {
		own, err := twin.New(c.Strategy)
		if err != nil {
			return nil, err
		}
		step := twin.Step{Watermark: eventtime.Min}
		for k, e := range c.events {
			step.Panes, step.Late = nil, nil
			if e.Kind != twin.ElementEvent || subtask(e.Key, parallelism) == i {
				if step, err = own.Do(e); err != nil {
					return nil, err
				}
			}
			all := &steps[k]
			if all.Panes, all.Late = append(all.Panes, step.Panes...), append(all.Late, step.Late...); i == 0 || step.Watermark < all.Watermark {
				all.Watermark = step.Watermark
			}
		}
	}
	return steps, nil
}

// expectedAgain is what a second twin says of what comes out of the first, and how its watermark goes: its panes list panes.
func expectedAgain(c aCase, steps []twin.Step) (panes []twin.Pane, err error) {
	s := c.Strategy
	s.Fn, s.Trigger = window.Global(), trigger.Continuation(trigger.Canonical(s.Trigger)) // each pane has its window
	second, err := twin.New(s)
	if err != nil {
		return nil, err
	}
	var first []twin.Pane
	do := func(e twin.Event) error {
		step, err := second.Do(e)
		for _, p := range step.Panes {
			var values []int64
			for _, number := range p.Values {
				values = append(values, first[number].Values...)
			}
			p.Values = append([]int64{}, slices.Sorted(slices.Values(values))...)
			panes = append(panes, p)
		}
		if err == nil && len(step.Late) > 0 {
			err = fmt.Errorf("what the first aggregation said is late for the second: %v", step.Late)
		}
		return err
	}
	w := eventtime.Min
	for _, step := range steps {
		for _, p := range step.Panes {
			e := twin.Element(p.Key, int64(len(first)), p.Time)
			e.In = p.Window
			first = append(first, p)
			err = errors.Join(err, do(e))
		}
		if step.Watermark > w {
			w = step.Watermark
			err = errors.Join(err, do(twin.Watermark(w)))
		}
	}
	return panes, err
}

// timeless is panes without their timestamps, if those depend on more than their windows.
func (c aCase) timeless(panes []twin.Pane) []twin.Pane {
	panes = slices.Clone(panes)
	for i := range panes {
		if c.Timestamps != twin.EndOfWindow {
			panes[i].Time = 0
		}
	}
	return panes
}

func flat(steps []twin.Step) (panes []twin.Pane, late []twin.Drop) {
	for _, s := range steps {
		panes, late = append(panes, s.Panes...), append(late, s.Late...)
	}
	return panes, late
}

// With one event at a time, the panes of a pipeline are those of the twin, one by one, however it is stopped and restored.
func TestPipelinesAreTheTwinEventByEvent(t *testing.T) {
	n := tally{}
	rapid.Check(t, func(r *rapid.T) {
		c, d := cases(anyWindows()).Draw(r, "case"), disturbances(1, 2).Draw(r, "disturbance")
		var out memio.Collector[row]
		result := d.run(r, func(p *sdk.Pipeline) error {
			c.add(p, teststream.Read("script", p, script(c.events)), 0, &out)
			return nil
		}, c)
		n.count(c, result.Restores)
		c.compare(r, d, out.Rows())
	})
	n.report(t)
}

// compare fails t if rows are not what twins say.
func (c aCase) compare(t twin.TB, d disturbance, rows []row) {
	t.Helper()
	steps, err := expected(c, d.parallelism)
	if err != nil {
		t.Fatalf("%v", err)
	}
	equal := func(what string, want, got any) {
		t.Helper()
		if diff := difference(what, want, got); diff != "" {
			t.Fatalf("%s\n%+v\n%v\n%s", diff, d, c, twin.Text(c.events, steps))
		}
	}
	panes, late, again := said(rows)
	wantPanes, wantLate := flat(steps)
	equal("panes", traces(wantPanes), traces(panes))
	if c.lateTo {
		equal("late elements", lines(wantLate), lines(late))
	}
	if c.twice && c.Accumulation != twin.Accumulating { // else it has things twice
		want, err := twin.Final(c.Strategy, wantPanes)
		got, gerr := twin.Final(c.Strategy, again)
		if err = errors.Join(err, gerr); err != nil {
			t.Fatalf("%v\n%+v\n%v", err, d, c)
		}
		equal("final values of the second aggregation", want, got)
	}
	if d.parallelism > 1 {
		return // subtasks commit one after the other, and the second aggregation may hear of a watermark from one before the panes of another
	}
	if c.twice && c.Accumulation != twin.Retracting {
		want, err := expectedAgain(c, steps)
		if err != nil {
			t.Fatalf("%v\n%+v\n%v", err, d, c)
		}
		equal("panes of panes", traces(c.timeless(want)), traces(c.timeless(again)))
	}
	for i, s := range steps {
		var want, got []string
		for k, p := range s.Panes {
			want, got = append(want, p.String()), append(got, panes[k].String())
		}
		panes = panes[len(want):]
		slices.Sort(want)
		slices.Sort(got)
		equal(fmt.Sprintf("after event %d, %v", i+1, c.events[i]), want, got)
	}
}
