package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/twin"
)

// anyOrder draws cases for runs in which several subtasks and splits go on side by side, on the clock of the machine.
func anyOrder() *rapid.Generator[aCase] {
	return rapid.Custom(func(t *rapid.T) (c aCase) {
		c = cases(twin.Windows()).Draw(t, "case")
		c.twice = c.twice && c.Accumulation != twin.Accumulating // else it has things twice
		c.events = slices.DeleteFunc(c.events, func(e twin.Event) bool { return e.Kind == twin.ClockEvent })
		c.splits = rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "splits")
		c.batch = rapid.SampledFrom([]int{1, 1, 3, 100}).Draw(t, "batch")
		if c.merges() && !c.pinned() {
			c.Lateness = 1000 // whether an element joins what has expired would depend on the order
		}
		return c
	})
}

func (c aCase) merges() bool {
	_, ok := window.Merging(c.Fn)
	return ok
}

// pinned says whether each key meets the elements and the watermark in the order of the events: those of one split, of which each is read alone.
func (c aCase) pinned() bool { return c.splits == 1 && c.batch == 1 }

// check tells what is wrong with the rows of a case, or nil.
//
// If the order is pinned, lateness and windows are those of the twin, and so is each pane but for its timestamp, which depends on
// what other keys of the subtask hold, unless the trigger follows the clock. Otherwise an element may be late if its own
// split had told a watermark past the expiry before it, for the watermark of all splits is the least; and must not be else.
func (c aCase) check(rows []row) error {
	panes, late, again := said(rows)
	err := twin.Legal(c.Strategy, panes)
	got, ferr := twin.Final(c.Strategy, panes)
	if err = errors.Join(err, ferr, c.closes(panes, got)); err != nil {
		return fmt.Errorf("%w\n%s", err, c.told(rows))
	}
	diff, err := c.differsAgain(got, again)
	switch {
	case diff != "" || err != nil:
	case c.pinned():
		diff, err = c.differs(panes, late, got)
	case c.merges():
		diff = difference("final values", c.connected(), got) + difference("late elements", []string(nil), lines(late))
	default:
		diff = c.loses(late, got)
	}
	if err == nil && diff != "" {
		err = errors.New(diff)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.told(rows))
	}
	return nil
}

// told is the case and what came out.
func (c aCase) told(rows []row) string {
	var b strings.Builder
	fmt.Fprintln(&b, c)
	for _, e := range c.events {
		fmt.Fprintln(&b, e)
	}
	panes, late, again := said(rows)
	for _, p := range panes {
		fmt.Fprintln(&b, ">", p)
	}
	for _, p := range again {
		fmt.Fprintln(&b, "> again", p)
	}
	for _, d := range late {
		fmt.Fprintln(&b, ">", d)
	}
	return b.String()
}

// closes tells of windows that have no last pane, if each must.
func (c aCase) closes(panes []twin.Pane, final map[twin.Place][]int64) (err error) {
	if !c.EmptyLast {
		return nil
	}
	last := map[twin.Place]bool{}
	for _, p := range panes {
		last[twin.Place{Key: p.Key, Window: p.Window}] = p.Info.Last
	}
	for at := range final {
		if !last[at] {
			err = errors.Join(err, fmt.Errorf("%s %v has no last pane", at.Key, at.Window))
		}
	}
	return err
}

// differs is check for a case whose order is pinned.
func (c aCase) differs(panes []twin.Pane, late []twin.Drop, got map[twin.Place][]int64) (string, error) {
	steps, err := twin.Run(c.Strategy, c.events)
	if err != nil {
		return "", err
	}
	wantPanes, wantLate := flat(steps)
	want, err := twin.Final(c.Strategy, wantPanes)
	if err != nil {
		return "", err
	}
	diff := difference("final values", want, got)
	if c.lateTo {
		diff += difference("late elements", lines(wantLate), lines(late))
	}
	if strings.Contains(fmt.Sprint(c.Trigger), "ProcessingTime") {
		return diff, nil
	}
	return diff + difference("panes", traces(c.timeless(wantPanes)), traces(c.timeless(panes))), nil
}

// connected is what each key and window has in the end, if nothing is late and windows merge until none do.
func (c aCase) connected() map[twin.Place][]int64 {
	fn, _ := window.Merging(c.Fn)
	out := map[twin.Place][]int64{}
	for _, key := range []string{"a", "b"} {
		var open []window.Window
		for _, e := range c.elements(key) {
			open = append(open, c.Assign(e.Time)...)
		}
		for merged := true; merged; {
			slices.SortFunc(open, window.CompareStarts)
			open = slices.Compact(open)
			merges, err := fn.Merge(nil, slices.Clone(open))
			if err != nil {
				panic(err)
			}
			merged = false
			for _, m := range merges {
				if len(m.From) > 1 {
					merged = true
					open = append(slices.DeleteFunc(open, func(w window.Window) bool { return slices.Contains(m.From, w) }), m.Into)
				}
			}
		}
		for _, e := range c.elements(key) {
			own := c.Assign(e.Time)[0]
			for _, w := range open {
				if w.StartTime() <= own.StartTime() && own.EndTime() <= w.EndTime() {
					out[twin.Place{Key: key, Window: w}] = append(out[twin.Place{Key: key, Window: w}], e.Value)
				}
			}
		}
	}
	return out
}

func (c aCase) elements(key string) (out []twin.Event) {
	for _, e := range c.events {
		if e.Kind == twin.ElementEvent && e.Key == key {
			out = append(out, e)
		}
	}
	return out
}

// loses tells of elements that are in no pane, or are late, though they must not be; and of those that are there twice.
func (c aCase) loses(late []twin.Drop, got map[twin.Place][]int64) string {
	type one struct {
		twin.Place
		value int64
	}
	text := func(of map[one]bool) (out []string) {
		for o := range of {
			out = append(out, fmt.Sprintf("%s %v: %d", o.Key, o.Window, o.value))
		}
		slices.Sort(out)
		return out
	}
	all, never := map[one]bool{}, map[one]bool{}
	s := newSource(c)
	for _, sp := range s.list() {
		w := eventtime.Min
		for _, i := range s.items[sp.From:sp.To] {
			if i.Watermark {
				w = max(w, eventtime.Time(i.Time))
				continue
			}
			for _, in := range c.Assign(eventtime.Time(i.Time)) {
				o := one{twin.Place{Key: i.Key, Window: in}, i.Value}
				all[o], never[o] = true, c.Expiry(in) > w
			}
		}
	}
	maps.DeleteFunc(never, func(_ one, is bool) bool { return !is })
	kept, dropped, twice := map[one]bool{}, map[one]bool{}, map[one]bool{}
	for at, values := range got {
		for _, v := range values {
			o := one{at, v}
			twice[o] = twice[o] || kept[o]
			kept[o] = true
		}
	}
	for _, d := range late {
		o := one{twin.Place{Key: d.Key, Window: d.Window}, d.Value}
		twice[o] = twice[o] || kept[o] || dropped[o]
		dropped[o] = true
	}
	maps.DeleteFunc(twice, func(_ one, is bool) bool { return !is })
	invented, lost := maps.Clone(kept), maps.Clone(never)
	maps.Copy(invented, dropped)
	if c.lateTo {
		lost = maps.Clone(all) // what is in no pane must have been told of
		maps.DeleteFunc(lost, func(o one, _ bool) bool { return dropped[o] && !never[o] })
	}
	maps.DeleteFunc(lost, func(o one, _ bool) bool { return kept[o] })
	maps.DeleteFunc(invented, func(o one, _ bool) bool { return all[o] })
	none := []string(nil)
	return difference("lost", none, text(lost)) + difference("there twice", none, text(twice)) + difference("never came", none, text(invented))
}

// With several subtasks, splits and batches, and crashes, what must be so in any order is so.
func TestPipelinesAreTheTwinInAnyOrder(t *testing.T) {
	n := tally{}
	prove := func(r interface {
		Fatalf(format string, args ...any)
	}, c aCase, d disturbance) {
		var out memio.Collector[row]
		result := d.run(r, func(p *sdk.Pipeline) error {
			c.add(p, newSource(c).read(p), 0, &out)
			return nil
		}, c)
		n.count(c, result.Restores)
		if err := c.check(out.Rows()); err != nil {
			r.Fatalf("%v\n%+v", err, d)
		}
	}
	if seeds.Given() { // a case of the distributed runner, in some ways
		seeds.Each(t, 1, func(seed uint64) error {
			for i := range 100 {
				prove(t, anyOrder().Example(int(seed)), disturbances(1, 3).Example(i))
			}
			return nil
		})
		return
	}
	rapid.Check(t, func(r *rapid.T) {
		prove(r, anyOrder().Draw(r, "case"), disturbances(2, 3).Draw(r, "disturbance"))
	})
	n.report(t)
}
