// Package fieldtest replays faults that public trackers report of systems like this one: each is a small input with its
// right answer. Where it may matter they run as processes too, of which one is killed.
package fieldtest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, clustertest.Pipelines{
		"reshuffle": collected(reshuffle), "keys": collected(keys), "strings": collected(oddStrings), "failing": collected(failing),
	})
}

const ms = time.Millisecond

// lines is what a pipeline run as processes has committed in this process.
var lines memio.Collector[string]

func collected(build func(p *sdk.Pipeline) sdk.PCollection[string]) func(p *sdk.Pipeline, args []string) error {
	return func(p *sdk.Pipeline, _ []string) error {
		memio.Write("collect", build(p), &lines)
		return nil
	}
}

// everywhere runs a pipeline by ptest and as processes, undisturbed and with a worker killed, and compares its lines.
func everywhere(t *testing.T, name string, build func(p *sdk.Pipeline) sdk.PCollection[string], want ...string) {
	t.Helper()
	slices.Sort(want)
	for _, parallelism := range []int{1, 3} {
		got := ptest.Collect(t, build, ptest.Parallelism(parallelism))
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("direct, parallelism %d: -want +got\n%s", parallelism, d)
		}
	}
	for i, opts := range [][]clustertest.Option{nil, {clustertest.KillWorker()}} {
		before := len(lines.Rows())
		clustertest.Run(t, name, nil, opts...)
		got := slices.Sorted(slices.Values(lines.Rows()[before:]))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("processes, run %d: -want +got\n%s", i, d)
		}
	}
}

// https://github.com/apache/beam/issues/36609: elements that are in no window crashed the runner. They are not late either.
func TestElementsBetweenSlidingWindowsVanish(t *testing.T) {
	var vs []int64
	for v := range int64(10) {
		vs = append(vs, 1+v)
	}
	script := teststream.Script[int64]{}
	for _, v := range vs {
		script = script.At(time.UnixMilli(v), v)
	}
	for _, lateness := range []time.Duration{0, 100 * ms} { // in slices, and in whole windows
		r := ptest.Run(t, func(p *sdk.Pipeline) error {
			w := sdk.WindowInto("windows", teststream.Read("in", p, script), window.Sliding(5*ms, 10*ms), sdk.AllowedLateness(lateness))
			var late sdk.PCollection[sdk.KV[string, int64]]
			groups := sdk.GroupByKey("group", sdk.KeyBy("one key", w, func(int64) string { return "k" }), sdk.LateTo(&late))
			passert.Equals("groups", sdk.ParDoFunc("line", groups, func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[int64]], emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint(c.Window().Start().UnixMilli(), " ", slices.Sorted(kv.Value.All())))
				return nil
			}), "0 [1 2 3 4]", "10 [10]")
			passert.Empty("late", late)
			return nil
		})
		if n := r.Step("group").LateDropped; n != 0 {
			t.Errorf("lateness %v: %d elements counted as late", lateness, n)
		}
	}
}

type stamped struct {
	At   int64
	Name string
}

func (s stamped) time() time.Time { return time.UnixMilli(s.At) }

// reshuffle sends a late element through a reshuffle.
func reshuffle(p *sdk.Pipeline) sdk.PCollection[string] {
	in := memio.Read("in", p, []stamped{{100, "on time"}, {5, "x"}, {5, "x"}, {107, "y"}}, sdk.EventTime(stamped.time, watermark.Bounded(0)))
	spread := sdk.Reshuffle("spread", sdk.WindowInto("windows", in, window.Fixed(10*ms)))
	return sdk.ParDoFunc("line", spread, func(c *sdk.ProcessContext, s stamped, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprintf("%s @%d [%d, %d)", s.Name, c.Timestamp().UnixMilli(), c.Window().Start().UnixMilli(), c.Window().End().UnixMilli()))
		return nil
	})
}

// BEAM-1721, https://github.com/apache/beam/pull/2246 and 33542: a reshuffle moved timestamps, or dropped what was late.
func TestReshuffleNeitherDropsNorShifts(t *testing.T) {
	everywhere(t, "reshuffle", reshuffle, "on time @100 [100, 110)", "x @5 [0, 10)", "x @5 [0, 10)", "y @107 [100, 110)")
}

// BEAM-3296, https://github.com/apache/beam/issues/24683: the least of nothing was 0, and windows without elements had rows.
func TestAggregatesOfNothing(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		none := sdk.Create[int64]("none", p)
		passert.Equals("sum", sdk.CombineGlobally("s", none, stats.Sum[int64]{}), 0)
		passert.Equals("count", sdk.CombineGlobally("c", none, stats.CountFn[int64]{}), 0)
		passert.Equals("least", sdk.CombineGlobally("m", none, stats.Min[int64]{}), math.MaxInt64)
		script := teststream.Script[int64]{}.At(time.UnixMilli(12), 5).At(time.UnixMilli(31), 7)
		sums := sdk.CombineGlobally("sums", sdk.WindowInto("windows", teststream.Read("in", p, script), window.Fixed(10*ms)), stats.Sum[int64]{})
		passert.Equals("windows", sdk.ParDoFunc("line", sums, func(c *sdk.ProcessContext, n int64, emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprintf("[%d, %d) %d", c.Window().Start().UnixMilli(), c.Window().End().UnixMilli(), n))
			return nil
		}), "[10, 20) 5", "[30, 40) 7")
		return nil
	})
}

// https://github.com/apache/beam/issues/22903: a flatten of unlike windowings was accepted, and something failed later.
func TestFlattenOfUnlikeWindowingsIsRefused(t *testing.T) {
	p := sdk.NewPipeline("p")
	in := memio.Read("in", p, []stamped{{1, "a"}}, sdk.EventTime(stamped.time, watermark.Bounded(0)))
	both := sdk.Flatten("both", sdk.WindowInto("fixed", in, window.Fixed(10*ms)), sdk.WindowInto("sliding", in, window.Sliding(10*ms, 5*ms)))
	sdk.GroupByKey("group", sdk.KeyBy("key", both, func(s stamped) string { return s.Name }))
	err := p.Err()
	if err == nil || !strings.HasPrefix(err.Error(), `step "both" (field_test.go:`) || !strings.Contains(err.Error(), "window all with the same WindowInto") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

// keys has keys that are equal by their encodings and not by ==, on the three ways of a key: lifted, exchanged, and in state.
func keys(p *sdk.Pipeline) sdk.PCollection[string] {
	floats := []float64{0, math.Copysign(0, -1), math.NaN(), math.NaN(), math.Float64frombits(math.Float64bits(math.NaN()) ^ 1), 1.5, 0}
	in := sdk.Reshuffle("spread", memio.Read("in", p, floats, memio.Splits(3)))
	sums := sdk.Map("sum line", stats.Count("lifted", in), func(kv sdk.KV[float64, int64]) string { return fmt.Sprint("sum ", kv.Key, ": ", kv.Value) })
	groups := sdk.GroupByKey("group", sdk.KeyBy("by value", in, func(f float64) float64 { return f }))
	grouped := sdk.Map("group line", groups, func(kv sdk.KV[float64, sdk.Iterable[float64]]) string {
		return fmt.Sprint("group ", kv.Key, ": ", kv.Value.Len())
	})
	pointers := sdk.GroupByKey("group of pointers", sdk.KeyBy("by pointer", in, func(f float64) *float64 { return &f }))
	pointed := sdk.Map("pointer line", pointers, func(kv sdk.KV[*float64, sdk.Iterable[float64]]) string {
		return fmt.Sprint("pointer ", *kv.Key, ": ", kv.Value.Len())
	})
	return sdk.Flatten("all", sums, grouped, pointed)
}

// BEAM-321, https://github.com/apache/beam/pull/409: grouping hashed objects and compared encodings.
func TestKeysAreTheirEncodings(t *testing.T) {
	var want []string
	for _, way := range []string{"sum", "group", "pointer"} {
		want = append(want, way+" 0: 3", way+" NaN: 3", way+" 1.5: 1")
	}
	everywhere(t, "keys", keys, want...)
}

const invalid = "\xff\xfe"

// countKinds counts strings in metrics whose names they are, and fails on one if it is told to.
type countKinds struct {
	Fail  bool
	kinds [2]*sdk.Counter
	last  *sdk.Gauge
	sizes *sdk.Histogram
}

func (c *countKinds) Declare(d *sdk.Decl) {
	c.kinds = [2]*sdk.Counter{d.Counter(invalid), d.Counter("others")}
	c.last, c.sizes = d.Gauge("last size"), d.Histogram("sizes")
}

func (c *countKinds) ProcessElement(_ *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
	c.last.Set(int64(len(s)))
	c.sizes.Observe(int64(len(s)))
	if s != invalid {
		c.kinds[1].Inc(1)
		emit.Emit(s)
		return nil
	}
	c.kinds[0].Inc(1)
	emit.Emit(s)
	if c.Fail {
		return errors.New("no good: " + s)
	}
	return nil
}

var odd = []string{invalid, "", invalid, strings.Repeat("x", 1<<20), "\xff\xfd"}

func oddLine(kv sdk.KV[string, sdk.Iterable[string]]) string {
	for v := range kv.Value.All() {
		if v != kv.Key {
			return fmt.Sprintf("key %.20q has the value %.20q", kv.Key, v)
		}
	}
	return fmt.Sprintf("%d %.6q %d", len(kv.Key), kv.Key, kv.Value.Len())
}

// oddStrings has strings that are no UTF-8, empty and large as keys and values.
func oddStrings(p *sdk.Pipeline) sdk.PCollection[string] {
	counted := sdk.ParDo("count", sdk.Reshuffle("spread", sdk.Create("in", p, odd...)), &countKinds{})
	return sdk.Map("line", sdk.GroupByKey("group", sdk.KeyBy("key", counted, func(s string) string { return s })), oddLine)
}

// failing has an error whose text is no UTF-8.
func failing(p *sdk.Pipeline) sdk.PCollection[string] {
	return sdk.ParDo("count", sdk.Create("in", p, odd...), &countKinds{Fail: true})
}

// https://github.com/apache/beam/issues/37110: a string that is no UTF-8 made the worker's reply one that could not be read,
// and the job was stuck.
func TestStringsThatAreNotUTF8(t *testing.T) {
	everywhere(t, "strings", oddStrings, `0 "" 1`, `2 "\xff\xfd" 1`, `2 "\xff\xfe" 2`, `1048576 "xxxxxx" 1`)

	var out clustertest.Outcome
	clustertest.Run(t, "strings", nil, clustertest.Result(&out))
	steps := out.Steps
	i := slices.IndexFunc(steps, func(s coordinator.Step) bool { return s.Name == "count" })
	if i < 0 {
		t.Fatalf("there is no step count in %+v", steps)
	}
	f := steps[i].Figures
	if d := cmp.Diff(map[string]int64{"\uFFFD": 2, "others": 3}, f.Counters); d != "" {
		t.Errorf("counters: -want +got\n%s", d)
	}
	if h := f.Histograms["sizes"]; h.Count != 5 || h.Max != 1<<20 || h.Min != 0 {
		t.Errorf("the histogram has %d values from %d to %d", h.Count, h.Min, h.Max)
	}
	if _, ok := f.Gauges["last size"]; !ok {
		t.Errorf("the gauge is missing: %v", f.Gauges)
	}
}

// fatal is a testing.TB that notes how a test failed.
type fatal struct {
	testing.TB
	says string
}

func (f *fatal) Helper() {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.says = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestErrorsThatAreNotUTF8EndTheJob(t *testing.T) {
	f := &fatal{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clustertest.Run(f, "failing", nil)
	}()
	<-done
	if !strings.Contains(f.says, `step "count"`) || !strings.Contains(f.says, "no good: ") || !utf8.ValidString(f.says) {
		t.Errorf("it says %q", f.says)
	}
}
