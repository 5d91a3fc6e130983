package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/testing/seeds"
)

// Every value is within its bucket, buckets are next to each other, and none is wider than an eighth of what is in it.
func TestHistogramBucketsCoverAllValues(t *testing.T) {
	next := int64(0)
	for i := 1; i < histogramBuckets; i++ {
		least, greatest := bucketRange(i)
		if least != next {
			t.Fatalf("bucket %d begins at %d, the one before ends before %d", i, least, next)
		}
		if greatest-least > least/8 {
			t.Fatalf("bucket %d from %d to %d is too wide", i, least, greatest)
		}
		for _, v := range []int64{least, greatest, least + (greatest-least)/2} {
			if bucketOf(v) != i {
				t.Fatalf("%d is in bucket %d, want %d", v, bucketOf(v), i)
			}
		}
		next = greatest + 1
	}
	if next != math.MinInt64 {
		t.Errorf("the last bucket ends before %d", next)
	}
	for _, v := range []int64{-1, math.MinInt64} {
		if bucketOf(v) != 0 {
			t.Errorf("%d is in bucket %d", v, bucketOf(v))
		}
	}
}

func TestHistogramQuantilesAreNearTheExactOnes(t *testing.T) {
	seeds.Each(t, 50, func(seed uint64) error {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var all []int64
		var merged Buckets
		for range 1 + rnd.IntN(4) { // subtasks
			var h Histogram
			for range rnd.IntN(400) {
				v := rnd.Int64() >> rnd.IntN(63)
				h.Observe(v)
				all = append(all, v)
			}
			merged = merged.Merge(h.Value())
		}
		slices.Sort(all)
		if merged.Count != int64(len(all)) {
			t.Fatalf("seed %d: count %d, want %d", seed, merged.Count, len(all))
		}
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			want := int64(0)
			if n := len(all); n > 0 {
				want = all[max(0, int(math.Ceil(q*float64(n)))-1)]
			}
			got := merged.Quantile(q)
			if diff := math.Abs(float64(got) - float64(want)); diff > float64(want)/16 {
				t.Fatalf("seed %d: quantile %v of %d values is %d, exact %d\n%s", seed, q, len(all), got, want, seeds.Rerun(t, seed))
			}
		}
		return nil
	})
}

func TestHistogramOfValuesBelowZero(t *testing.T) {
	var h Histogram
	for _, v := range []int64{-5, -70, 3} {
		h.Observe(v)
	}
	b := h.Value()
	for q, want := range map[float64]int64{0.1: -70, 0.6: -70, 0.9: 3, 1: 3} {
		if got := b.Quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

// A step's figures are those of its subtasks together, whatever the order: of gauges the latest.
func TestFiguresAreMerged(t *testing.T) {
	now := eventtime.Time(0)
	clock := func() eventtime.Time { return now }
	var all [3]Figures
	for i := range all {
		var m Metrics
		m.Counter("n").Inc(int64(i + 1))
		m.Distribution("d").Observe(int64(10 * i))
		m.Histogram("h").Observe(int64(i))
		m.Gauge("never set", clock)
		g := m.Gauge("g", clock)
		now = eventtime.Time(100 + 7*i%10) // 100, 107, 104
		g.Set(int64(i))
		now++
		if i == 2 {
			m.Counter("of one").Inc(5)
		}
		all[i] = m.Figures()
	}
	want := Figures{
		Counters:      map[string]int64{"n": 6, "of one": 5},
		Distributions: map[string]Summary{"d": {3, 30, 0, 20}},
		Gauges:        map[string]Reading{"g": {1, 107}},
		Histograms:    map[string]Buckets{"h": {Summary{3, 3, 0, 2}, []int64{0, 1, 1, 1}}},
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		var got Figures
		for _, i := range order {
			got.Merge(all[i])
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("order %v: -want +got\n%s", order, d)
		}
	}
	if d := cmp.Diff(int64(1), all[0].Counters["n"]); d != "" {
		t.Errorf("merging changed what was merged: %s", d)
	}
}

// Beam 37110: names travel as UTF-8, and stand in tables.
func TestMetricNamesAreMadePrintable(t *testing.T) {
	var m Metrics
	for _, name := range []string{"\xff\xfe", "two\nlines\x00", strings.Repeat("é", 300), "plain name"} {
		m.Counter(name).Inc(1)
		m.Counter(name).Inc(1)
	}
	f := m.Figures()
	if len(f.Counters) != 4 || f.Counters["plain name"] != 2 || f.Counters["\uFFFD"] != 2 {
		t.Errorf("counters %v", f.Counters)
	}
	for name := range f.Counters {
		if !utf8.ValidString(name) || strings.ContainsAny(name, "\n\x00") || len(name) > 210 {
			t.Errorf("name %q", name)
		}
	}
}
