package fieldtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// keys has keys that are equal by their encodings and not by ==, on the three ways of a key: lifted, exchanged, and in state.
func keys(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	return keysOf(p, []float64{0, math.Copysign(0, -1), math.NaN(), math.NaN(), math.Float64frombits(math.Float64bits(math.NaN()) ^ 1), 1.5, 0})
}

func keysOf(p *sdk.Pipeline, floats []float64) sdk.PCollection[string] {
	s := teststream.Script[float64]{} // slow, so that a restore comes amid them
	for i, f := range floats {
		s = s.At(at(int64(i)), f)
	}
	in := sdk.Reshuffle("spread", teststream.Read("in", p, s))
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
	everywhere(t, "I1", want...)
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
func oddStrings(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	counted := sdk.ParDo("count", sdk.Reshuffle("spread", sdk.Create("in", p, odd...)), &countKinds{})
	return sdk.Map("line", sdk.GroupByKey("group", sdk.KeyBy("key", counted, func(s string) string { return s })), oddLine)
}

// failingStep has an error whose text is no UTF-8.
func failingStep(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	return sdk.ParDo("count", sdk.Create("in", p, odd...), &countKinds{Fail: true})
}

// https://github.com/apache/beam/issues/37110: a string that is no UTF-8 made the worker's reply one that could not be read,
// and the job was stuck.
func TestStringsThatAreNotUTF8(t *testing.T) {
	everywhere(t, "I3", `0 "" 1`, `2 "\xff\xfd" 1`, `2 "\xff\xfe" 2`, `1048576 "xxxxxx" 1`)

	var out clustertest.Outcome
	clustertest.Run(t, "I3", []string{t.TempDir()}, clustertest.Result(&out))
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

func TestErrorsThatAreNotUTF8EndTheJob(t *testing.T) {
	says := failing.Of(t, func(f testing.TB) { clustertest.Run(f, "I3 failing", []string{t.TempDir()}) })
	_, err := direct.Run(t.Context(), "failing", func(p *sdk.Pipeline) error { failingStep(p, ""); return nil }, direct.Options{})
	if err == nil || !strings.Contains(err.Error(), `step "count"`) || !strings.Contains(err.Error(), "no good: ") {
		t.Errorf("directly it says %v", err)
	}
	if !strings.Contains(says, `step "count"`) || !strings.Contains(says, "no good: ") || !utf8.ValidString(says) {
		t.Errorf("it says %q", says)
	}
}

// The rule of the group: however a key travels, there is one group for each canonical encoding, which is that of equal values, of both
// zeros, and of all NaNs.
func TestGroupsAreThoseOfEncodings(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		floats := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), 1, -1}), rapid.Map(rapid.Uint64(), math.Float64frombits)), 0, 8).Draw(r, "keys")
		counts := map[string]int{}
		for _, f := range floats {
			counts[fmt.Sprint(f+0)]++ // -0 + 0 is 0
		}
		want := []string{}
		for key, n := range counts {
			for _, way := range []string{"sum", "group", "pointer"} {
				want = append(want, fmt.Sprint(way, " ", key, ": ", n))
			}
		}
		slices.Sort(want)
		got := run(r, func(p *sdk.Pipeline) sdk.PCollection[string] { return keysOf(p, floats) }, rapid.IntRange(0, 4).Draw(r, "restored every"))
		if d := cmp.Diff(want, append([]string{}, got...)); d != "" {
			r.Fatalf("-want +got\n%s", d)
		}
	})
}
