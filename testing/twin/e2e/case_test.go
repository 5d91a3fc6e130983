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

// aCase is a random aggregation and what comes in.
type aCase struct {
	twin.Strategy
	events []twin.Event // of which the last ends the input
	group  bool         // by GroupByKey, else CombinePerKey
	lateTo bool         // late elements are put out
	splits int          // among which the events are dealt
	batch  int          // the greatest number of events that are read at once
}

func (c aCase) String() string {
	return fmt.Sprintf("%v\ngroup=%v lateTo=%v splits=%d batch=%d", c.Strategy, c.group, c.lateTo, c.splits, c.batch)
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

// strategies draws what sdk takes. A third are plain, for which sdk has operators of their own.
func strategies(fns *rapid.Generator[window.Fn]) *rapid.Generator[twin.Strategy] {
	return rapid.Custom(func(t *rapid.T) twin.Strategy {
		s := twin.Strategies(fns, triggers()).Draw(t, "strategy")
		if rapid.IntRange(0, 2).Draw(t, "plain") == 0 {
			s.Accumulation, s.Timestamps = min(s.Accumulation, twin.Accumulating), twin.EndOfWindow
			s.EmptyOnTime, s.EmptyLast = false, false
		}
		return s
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

// row is a pane or a late element, as the sink has it.
type row struct {
	Case             int64
	Late, Retraction bool
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
	if c.group {
		groups := sdk.Changes("changes", sdk.GroupByKey("group", windowed, lateTo...))
		memio.Write("panes", sdk.ParDoFunc("pane", groups, func(c *sdk.ProcessContext, v sdk.Change[sdk.KV[string, sdk.Iterable[int64]]], emit *sdk.Emitter[row]) error {
			r := at(c)
			r.Retraction, r.Key, r.Values = v.Retraction, v.Value.Key, slices.Sorted(v.Value.Value.All())
			emit.Emit(r)
			return nil
		}), to)
	} else {
		sums := sdk.Changes("changes", sdk.CombinePerKey("combine", windowed, list{}, lateTo...))
		memio.Write("panes", sdk.ParDoFunc("pane", sums, func(c *sdk.ProcessContext, v sdk.Change[sdk.KV[string, []int64]], emit *sdk.Emitter[row]) error {
			r := at(c)
			r.Retraction, r.Key, r.Values = v.Retraction, v.Value.Key, v.Value.Value
			emit.Emit(r)
			return nil
		}), to)
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

// said is rows as the twin says them: panes and late elements, each in their order.
func said(rows []row) (panes []twin.Pane, late []twin.Drop) {
	for _, r := range rows {
		w := window.New(eventtime.Time(r.Start), eventtime.Time(r.End))
		if r.Late {
			late = append(late, twin.Drop{Key: r.Key, Value: r.Values[0], Time: eventtime.Time(r.Time), Window: w})
			continue
		}
		panes = append(panes, twin.Pane{Key: r.Key, Window: w, Values: append([]int64{}, r.Values...), Time: eventtime.Time(r.Time), Info: r.Pane, Retraction: r.Retraction})
	}
	return panes, late
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
