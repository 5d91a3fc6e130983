// Package e2e holds whole pipelines against the twin: on the direct runner and on worker processes of which some are killed.
//
//	pinned_test.go       one event at a time: panes are equal one by one
//	anyorder_test.go     several subtasks and splits: what must be so in any order
//	distributed_test.go  the same, many cases to a job, with crashes
package e2e

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/twin"
)

// reading is an element. There is one type of keys and one of values, so that this compiles fast.
type reading = sdk.KV[string, int64]

// listed is a pane of elements.
type listed = sdk.KV[string, []int64]

// aCase is a random aggregation and what comes in.
type aCase struct {
	twin.Strategy
	events []twin.Event // of which the last ends the input
	group  bool         // by GroupByKey, else CombinePerKey
	lateTo bool         // late elements are put out
	once   bool         // one pane a window, at its end: what is lifted, and slices of sliding windows
	twice  bool         // what comes out is aggregated again
	splits int          // among which the events are dealt
	batch  int          // the greatest number of events that are read at once
}

func (c aCase) String() string {
	return fmt.Sprintf("%v\ngroup=%v lateTo=%v twice=%v splits=%d batch=%d", c.Strategy, c.group, c.lateTo, c.twice, c.splits, c.batch)
}

// triggers are those that sdk takes: they never finish.
func triggers() *rapid.Generator[trigger.Trigger] {
	return rapid.Custom(func(t *rapid.T) trigger.Trigger {
		switch rapid.IntRange(0, 3).Draw(t, "trigger") {
		case 0:
			return trigger.AfterWatermark()
		case 1:
			return twin.Counts().Draw(t, "counts")
		}
		drawn := twin.Triggers(3).Draw(t, "any")
		if trigger.MayLoseData(drawn) != "" {
			return trigger.Repeatedly(drawn)
		}
		return drawn
	})
}

// cases draws what sdk takes, but for what belongs to the source. A third are plain, for which sdk has operators of their own.
func cases(fns *rapid.Generator[window.Fn]) *rapid.Generator[aCase] {
	return rapid.Custom(func(t *rapid.T) (c aCase) {
		s := twin.Strategies(fns, triggers()).Draw(t, "strategy")
		plain := rapid.IntRange(0, 5).Draw(t, "plain")
		if plain < 2 {
			s.Accumulation, s.Timestamps = min(s.Accumulation, twin.Accumulating), twin.EndOfWindow
			s.EmptyOnTime, s.EmptyLast = false, false
		}
		if c.once = plain == 0; c.once {
			s.Trigger, s.Lateness = trigger.AfterWatermark(), 0
		}
		c.group, c.lateTo = rapid.Bool().Draw(t, "group"), rapid.Bool().Draw(t, "late to")
		c.twice = rapid.Bool().Draw(t, "twice")
		if _, merges := window.Merging(s.Fn); merges && c.twice && s.Accumulation == twin.Retracting {
			s.Lateness = 1000 // what a part said is taken back when the whole fires: that would be late for the window of the part
		}
		c.Strategy, c.events = twin.Stretched(s, twin.Streams().Draw(t, "events"))
		return c
	})
}

// anyWindows are all that a pipeline may have.
func anyWindows() *rapid.Generator[window.Fn] {
	return rapid.OneOf(twin.Windows(), twin.Windows(), twin.Windows(), twin.Windows(), twin.Windows(), twin.Firsts())
}

// list collects values.
type list struct{}

func (list) CreateAccumulator() []int64             { return nil }
func (list) AddInput(a []int64, v int64) []int64    { return append(a, v) }
func (list) MergeAccumulators(a, b []int64) []int64 { return append(a, b...) }
func (list) ExtractOutput(a []int64) []int64        { return slices.Sorted(slices.Values(a)) }

// lists joins lists of values.
type lists struct{}

func (lists) CreateAccumulator() []int64             { return nil }
func (lists) AddInput(a, vs []int64) []int64         { return append(a, vs...) }
func (lists) MergeAccumulators(a, b []int64) []int64 { return append(a, b...) }
func (lists) ExtractOutput(a []int64) []int64        { return slices.Sorted(slices.Values(a)) }

// RemoveInput implements sdk.Remover.
func (lists) RemoveInput(a, vs []int64) []int64 {
	for _, v := range vs {
		i := slices.Index(a, v)
		a = slices.Delete(a, i, i+1) // that it is not there fails the step
	}
	return a
}

// row is a pane or a late element, as the sink has it.
type row struct {
	Case             int64
	Late, Retraction bool
	Again            bool // of the second aggregation
	Key              string
	Values           []int64
	Time, Start, End int64
	Pane             window.Pane
}

// add adds the aggregation to a pipeline. What comes out is written to the collector, with the number of the case.
func (c aCase) add(p *sdk.Pipeline, in sdk.PCollection[reading], number int64, to *memio.Collector[row]) {
	opts := []sdk.WindowOption{
		sdk.Trigger(c.Trigger), sdk.AllowedLateness(time.Duration(c.Lateness) * time.Millisecond),
		sdk.Accumulation(c.Accumulation), sdk.TimestampCombiner(c.Timestamps),
	}
	if c.EmptyOnTime {
		opts = append(opts, sdk.EmptyOnTimePane())
	}
	if c.EmptyLast {
		opts = append(opts, sdk.EmptyLastPane())
	}
	var late sdk.PCollection[reading]
	var lateTo []sdk.GroupOption
	if c.lateTo {
		lateTo = append(lateTo, sdk.LateTo(&late))
	}
	at := func(c *sdk.ProcessContext) row {
		w := c.Window()
		return row{Case: number, Time: int64(eventtime.FromTime(c.Timestamp())), Start: int64(w.StartTime()), End: int64(w.EndTime()), Pane: c.Pane()}
	}
	windowed := sdk.WindowInto("window", in, c.Fn, opts...)
	var panes sdk.PCollection[listed]
	if c.group {
		groups := sdk.GroupByKey("group", windowed, lateTo...)
		panes = sdk.Map("values", groups, func(v sdk.KV[string, sdk.Iterable[int64]]) listed {
			return sdk.Pair(v.Key, slices.Sorted(v.Value.All()))
		})
	} else {
		panes = sdk.CombinePerKey("combine", windowed, list{}, lateTo...)
	}
	write := func(name string, panes sdk.PCollection[listed], again bool) {
		changes := sdk.Changes("changes of "+name, panes)
		memio.Write(name, sdk.ParDoFunc("rows of "+name, changes, func(c *sdk.ProcessContext, v sdk.Change[listed], emit *sdk.Emitter[row]) error {
			r := at(c)
			r.Retraction, r.Again, r.Key, r.Values = v.Retraction, again, v.Value.Key, v.Value.Value
			emit.Emit(r)
			return nil
		}), to)
	}
	write("panes", panes, false)
	if c.twice {
		write("panes of panes", sdk.CombinePerKey("again", panes, lists{}), true)
	}
	if !c.lateTo {
		return
	}
	memio.Write("late", sdk.ParDoFunc("late element", late, func(c *sdk.ProcessContext, v reading, emit *sdk.Emitter[row]) error {
		r := at(c)
		r.Late, r.Key, r.Values = true, v.Key, []int64{v.Value}
		emit.Emit(r)
		return nil
	}), to)
}

// said is rows as the twin says them: panes, late elements, and panes of the second aggregation, each in their order.
func said(rows []row) (panes []twin.Pane, late []twin.Drop, again []twin.Pane) {
	for _, r := range rows {
		w := window.New(eventtime.Time(r.Start), eventtime.Time(r.End))
		if r.Late {
			late = append(late, twin.Drop{Key: r.Key, Value: r.Values[0], Time: eventtime.Time(r.Time), Window: w})
			continue
		}
		p := twin.Pane{Key: r.Key, Window: w, Values: append([]int64{}, r.Values...), Time: eventtime.Time(r.Time), Info: r.Pane, Retraction: r.Retraction}
		if r.Again {
			again = append(again, p)
		} else {
			panes = append(panes, p)
		}
	}
	return panes, late, again
}

// differsAgain tells where the second aggregation does not end with what the first does.
func (c aCase) differsAgain(final map[twin.Place][]int64, again []twin.Pane) (string, error) {
	if !c.twice {
		return "", nil
	}
	got, err := twin.Final(c.Strategy, again)
	return difference("final values of the second aggregation", final, got), err
}

func difference(what string, want, got any) string {
	if d := cmp.Diff(want, got, cmp.AllowUnexported(window.Window{})); d != "" {
		return fmt.Sprintf("%s (-want +got)\n%s", what, d)
	}
	return ""
}

// traces is what panes say of each key and window, in their order, as text.
func traces(panes []twin.Pane) map[string][]string {
	out := map[string][]string{}
	for _, p := range panes {
		at := fmt.Sprintf("%s %v", p.Key, p.Window)
		out[at] = append(out[at], p.String())
	}
	return out
}

func lines(drops []twin.Drop) (out []string) {
	for _, d := range drops {
		out = append(out, d.String())
	}
	slices.Sort(out)
	return out
}
