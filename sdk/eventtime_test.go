package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// reading is what the worked examples add up. At is in ms.
type reading struct {
	Key       string
	Value, At int64
}

func (r reading) time() time.Time { return time.UnixMilli(r.At) }

// total is the accumulator and the result of totals.
type total struct{ Sum, Count int64 }

type totals struct{}

func (totals) CreateAccumulator() total           { return total{} }
func (totals) AddInput(a total, r reading) total  { return total{a.Sum + r.Value, a.Count + 1} }
func (totals) MergeAccumulators(a, b total) total { return total{a.Sum + b.Sum, a.Count + b.Count} }
func (totals) ExtractOutput(a total) total        { return a }

// described is an element as text: key, sum, count, window and timing.
func described[V any](name string, in sdk.PCollection[sdk.KV[string, V]]) sdk.PCollection[string] {
	return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, kv sdk.KV[string, V], emit *sdk.Emitter[string]) error {
		w := c.Window()
		emit.Emit(fmt.Sprintf("%s %+v [%d, %d) %v", kv.Key, kv.Value, w.StartTime(), w.EndTime(), c.Pane().Timing))
		return nil
	})
}

// sums is the pipeline of all three worked examples: fixed windows of ten seconds, sums of each key, and
// what is late.
func sums(in sdk.PCollection[reading]) sdk.PCollection[string] {
	byKey := sdk.KeyBy("by key", in, func(r reading) string { return r.Key })
	w := sdk.WindowInto("10 s", byKey, window.Fixed(10*time.Second))
	var late sdk.PCollection[sdk.KV[string, reading]]
	panes := sdk.CombinePerKey("total", w, totals{}, sdk.LateTo(&late))
	return sdk.Flatten("both", described("panes", panes), sdk.Map("late", late, func(kv sdk.KV[string, reading]) string {
		return fmt.Sprintf("late: %+v", kv.Value)
	}))
}

var sensor = []reading{
	{"sensor_1", 10, 1000}, {"sensor_1", 20, 4000}, {"sensor_1", 30, 2000}, {"sensor_1", 40, 13500}, {"sensor_1", 50, 5000},
}

var sensorWant = []string{
	"late: {Key:sensor_1 Value:50 At:5000}",
	"sensor_1 {Sum:40 Count:1} [10000, 20000) ON_TIME",
	"sensor_1 {Sum:60 Count:3} [0, 10000) ON_TIME",
}

// The first worked example: with disorder of up to 3 s the watermark is 10500 after the fourth reading, which
// fires [0, 10000) with sum 60 and count 3; the fifth is then late. ptest stops and restores the job at
// many points, which must not show: the second worked example.
func TestWorkedExampleSensor(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return sums(sdk.Read("readings", p, memio.Source(sensor), sdk.EventTime(reading.time, watermark.Bounded(3*time.Second))))
	})
	if d := cmp.Diff(sensorWant, got); d != "" {
		t.Error(d)
	}
}

// As a program runs it: real clock, as many subtasks as there are processors or more.
func TestWorkedExampleSensorWithoutTestKit(t *testing.T) {
	for i := range 50 {
		var out memio.Collector[string]
		_, err := direct.Run(t.Context(), "sensor", func(p *sdk.Pipeline) error {
			in := sdk.Read("readings", p, memio.Source(sensor), sdk.EventTime(reading.time, watermark.Bounded(3*time.Second)))
			sdk.Write("write", sums(in), &out)
			return nil
		}, direct.Options{Parallelism: 1 + i%8})
		if err != nil {
			t.Fatal(err)
		}
		got := out.Rows()
		slices.Sort(got)
		if d := cmp.Diff(sensorWant, got); d != "" {
			t.Fatalf("parallelism %d: %s", 1+i%8, d)
		}
	}
}

// The same by a script, in which each watermark is written out.
func TestWorkedExampleSensorByScript(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		s := teststream.Script[reading]{}
		for i, w := range []int64{-2000, 1000, 1000, 10500, 10500} {
			s = s.At(sensor[i].time(), sensor[i]).Watermark(time.UnixMilli(w))
		}
		return sums(teststream.Read("readings", p, s))
	})
	if d := cmp.Diff(sensorWant, got); d != "" {
		t.Error(d)
	}
}

// The second: a checkpoint after two records; everything is destroyed and restored.
func TestWorkedExampleSensorRestoredAfterTwoRecords(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return sums(sdk.Read("readings", p, memio.Source(sensor), sdk.EventTime(reading.time, watermark.Bounded(3*time.Second))))
	}, ptest.RestoreEvery(2), ptest.Runs(20))
	if d := cmp.Diff(sensorWant, got); d != "" {
		t.Error(d)
	}
}

// The third: bob's 115 s puts the watermark at 112 s, past the end of [100 s, 110 s); charlie is late.
func TestWorkedExampleAccounts(t *testing.T) {
	second := func(key string, v, at int64) reading { return reading{key, v, at * 1000} }
	in := []reading{
		second("alice", 50, 100), second("bob", 30, 102), second("alice", 20, 101),
		second("alice", 15, 112), second("bob", 40, 115), second("charlie", 99, 103),
	}
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return sums(sdk.Read("transfers", p, memio.Source(in), sdk.EventTime(reading.time, watermark.Bounded(3*time.Second))))
	})
	want := []string{
		"alice {Sum:15 Count:1} [110000, 120000) ON_TIME",
		"alice {Sum:70 Count:2} [100000, 110000) ON_TIME",
		"bob {Sum:30 Count:1} [100000, 110000) ON_TIME",
		"bob {Sum:40 Count:1} [110000, 120000) ON_TIME",
		"late: {Key:charlie Value:99 At:103000}",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// FLINK-26334: windows before the epoch are rounded down too.
func TestWindowsBeforeTheEpoch(t *testing.T) {
	in := []reading{{"a", 1, -1}, {"b", 1, -10}, {"c", 1, -11}, {"d", 1, 0}}
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		r := sdk.Read("in", p, memio.Source(in), sdk.EventTime(reading.time, watermark.Bounded(time.Second)))
		w := sdk.WindowInto("10 ms", r, window.Fixed(10*time.Millisecond))
		return described("text", sdk.CombinePerKey("total", sdk.KeyBy("key", w, func(r reading) string { return r.Key }), totals{}))
	})
	want := []string{
		"a {Sum:1 Count:1} [-10, 0) ON_TIME", "b {Sum:1 Count:1} [-10, 0) ON_TIME",
		"c {Sum:1 Count:1} [-20, -10) ON_TIME", "d {Sum:1 Count:1} [0, 10) ON_TIME",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// BEAM-1721: a reshuffle neither shifts nor drops what is late.
func TestReshufflePassesLateElementsUnchanged(t *testing.T) {
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := teststream.Read("in", p, teststream.Script[string]{}.Watermark(time.UnixMilli(100)).At(time.UnixMilli(5), "x"))
		return sdk.Reshuffle("spread", sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond)))
	})
	if len(got) != 1 || got[0].Value != "x" || !got[0].Time.Equal(time.UnixMilli(5)) || got[0].Window != window.New(0, 10) {
		t.Errorf("got %+v, want x at 5 ms in [0, 10)", got)
	}
}

// panes are the sums of a script's elements in fixed windows of 10 ms, and the elements that are dropped.
func panes(t *testing.T, script teststream.Script[int64], opts ...sdk.WindowOption) []string {
	t.Helper()
	return ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		w := sdk.WindowInto("10 ms", teststream.Read("in", p, script), window.Fixed(10*time.Millisecond), opts...)
		var late sdk.PCollection[sdk.KV[bool, int64]]
		sum := sdk.CombinePerKey("sum", sdk.KeyBy("key", w, func(int64) bool { return true }), stats.Sum[int64]{}, sdk.LateTo(&late))
		fired := sdk.ParDoFunc("panes", sum, func(c *sdk.ProcessContext, kv sdk.KV[bool, int64], emit *sdk.Emitter[string]) error {
			text := fmt.Sprintf("%d %v #%d", kv.Value, c.Pane().Timing, c.Pane().Index)
			if c.Pane().Last {
				text += " last"
			}
			if !c.Timestamp().Equal(c.Window().End().Add(-time.Millisecond)) {
				text += " at " + c.Timestamp().String()
			}
			emit.Emit(text)
			return nil
		})
		dropped := sdk.Map("dropped", late, func(kv sdk.KV[bool, int64]) string { return fmt.Sprintf("dropped %d", kv.Value) })
		return sdk.Flatten("all", sdk.WindowInto("global", fired, window.Global()), sdk.WindowInto("global too", dropped, window.Global()))
	})
}

func TestPanes(t *testing.T) {
	at := time.UnixMilli
	early := trigger.AfterWatermark().Early(trigger.AfterCount(2))
	script := teststream.Script[int64]{}.At(at(1), 1).At(at(2), 2).At(at(3), 4).Watermark(at(10)).
		At(at(4), 8).At(at(5), 16).At(at(5), 32).Watermark(at(30)).At(at(6), 64)
	for _, c := range []struct {
		name string
		opts []sdk.WindowOption
		want []string
	}{
		{"on time", nil, []string{"dropped 8", "dropped 16", "dropped 32", "dropped 64", "7 ON_TIME #0 last"}},
		{"late, discarding", []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond)},
			[]string{"dropped 64", "7 ON_TIME #0", "8 LATE #1", "16 LATE #2", "32 LATE #3"}},
		{"late, accumulating", []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond), sdk.Accumulating},
			[]string{"dropped 64", "7 ON_TIME #0", "15 LATE #1", "31 LATE #2", "63 LATE #3"}},
		{"late, each two", []sdk.WindowOption{sdk.AllowedLateness(20 * time.Millisecond), sdk.Trigger(trigger.AfterWatermark().Late(trigger.AfterCount(2)))},
			[]string{"dropped 64", "7 ON_TIME #0", "24 LATE #1", "32 LATE #2 last"}},
		{"early, discarding", []sdk.WindowOption{sdk.Trigger(early)},
			[]string{"dropped 8", "dropped 16", "dropped 32", "dropped 64", "3 EARLY #0", "4 ON_TIME #1 last"}},
		{"early, accumulating", []sdk.WindowOption{sdk.Trigger(early), sdk.Accumulating},
			[]string{"dropped 8", "dropped 16", "dropped 32", "dropped 64", "3 EARLY #0", "7 ON_TIME #1 last"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := panes(t, script, c.opts...)
			slices.Sort(c.want)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWindowOfCombineGloballyAndItsLateElements(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := teststream.Read("in", p, teststream.Script[int64]{}.
			At(time.UnixMilli(3), 1, 2).Watermark(time.UnixMilli(10)).At(time.UnixMilli(4), 4).At(time.UnixMilli(34), 8))
		w := sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond))
		var late sdk.PCollection[int64]
		sum := sdk.CombineGlobally("sum", w, stats.Sum[int64]{}, sdk.LateTo(&late))
		passert.That("first", sum).InWindow(window.New(0, 10)).Equals(3)
		passert.That("fourth", sum).InWindow(window.New(30, 40)).Equals(8)
		passert.Equals("no row for others", sum, 3, 8)
		passert.That("late", late).InWindow(window.New(0, 10)).Equals(4)
		return nil
	})
}

func TestLateElementsOfBothInputsOfAJoin(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		at := time.UnixMilli
		in := teststream.Read("in", p, teststream.Script[int64]{}.At(at(1), 1, 2).Watermark(at(10)).At(at(1), 3, 4))
		w := byParity("parity", sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond)))
		odd := func(kv sdk.KV[string, int64]) bool { return kv.Key == "odd" }
		even := func(kv sdk.KV[string, int64]) bool { return kv.Key == "even" }
		var lateLeft, lateRight pairs
		sdk.CoGroupByKey("join", sdk.Filter("left", w, odd), sdk.Filter("right", w, even), sdk.LateTo(&lateLeft), sdk.LateTo(&lateRight))
		passert.Equals("late left", lateLeft, sdk.Pair("odd", int64(3)))
		passert.Equals("late right", lateRight, sdk.Pair("even", int64(4)))
		return nil
	})
}

// What an aggregation emits is on time for the next one.
func TestAggregationsInSeries(t *testing.T) {
	var in []reading
	for i := range int64(40) {
		in = append(in, reading{fmt.Sprint(i % 5), 1, i * 700})
	}
	ptest.Run(t, func(p *sdk.Pipeline) error {
		r := sdk.Read("in", p, memio.Source(in, memio.Splits(1)), sdk.EventTime(reading.time, watermark.Bounded(0)))
		w := sdk.WindowInto("10 s", r, window.Fixed(10*time.Second))
		perKey := sdk.CombinePerKey("per key", sdk.KeyBy("key", w, func(r reading) string { return r.Key }), totals{})
		var late sdk.PCollection[sdk.KV[string, int64]]
		again := sdk.CombinePerKey("all keys", sdk.Map("one key", perKey, func(kv sdk.KV[string, total]) sdk.KV[string, int64] {
			return sdk.Pair("all", kv.Value.Count)
		}), stats.Sum[int64]{}, sdk.LateTo(&late))
		passert.Equals("counts", described("text", again), "all 15 [0, 10000) ON_TIME", "all 14 [10000, 20000) ON_TIME", "all 11 [20000, 30000) ON_TIME")
		passert.Empty("late", late)
		return nil
	})
}

// nothing is a source without splits.
type nothing struct{ *memio.SliceSource[int64] }

func (nothing) Splits(context.Context) ([]memio.Split, error) { return nil, nil }

// The identity of a combine comes at the end of time: nothing downstream may be there before it.
func TestIdentityOfASourceWithoutSplitsIsNotLate(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		none := sdk.CombineGlobally("of none", sdk.Read("none", p, nothing{}), stats.CountFn[int64]{})
		both := sdk.Flatten("both", none, sdk.Read("some", p, memio.Source([]int64{1, 2, 3}, memio.Splits(2))))
		var late sdk.PCollection[int64]
		passert.Equals("counted", sdk.CombineGlobally("count", both, stats.CountFn[int64]{}, sdk.LateTo(&late)), 4)
		passert.Empty("late", late)
		return nil
	}, ptest.Runs(20))
}
