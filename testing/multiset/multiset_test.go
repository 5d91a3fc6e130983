package multiset_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/testing/multiset"
)

func diff[T any](t *testing.T, want, got []T) string {
	t.Helper()
	c, err := coder.Of[T]()
	if err != nil {
		t.Fatal(err)
	}
	d, err := multiset.Diff(func(v T) ([]byte, error) { return c.Append(nil, v) }, want, got)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDiffIgnoresOrderAndNothingElse(t *testing.T) {
	if d := diff(t, []string{"a", "b", "b"}, []string{"b", "a", "b"}); d != "" {
		t.Errorf("another order: %s", d)
	}
	for _, got := range [][]string{{"a", "b"}, {"a", "a", "b"}, {"a", "b", "b", "b"}, {"a", "b", "c"}, nil} {
		if diff(t, []string{"a", "b", "b"}, got) == "" {
			t.Errorf("%q counts as a, b, b", got)
		}
	}
	if d := diff(t, []float64{math.NaN(), 1}, []float64{1, math.NaN()}); d != "" {
		t.Errorf("NaN: %s", d)
	}
	// cmp calls these equal, their encodings are not.
	if d := diff(t, []float64{0}, []float64{math.Copysign(0, -1)}); d == "" {
		t.Error("-0 counts as 0")
	}
}

func TestDiffShowsWhatIsMissing(t *testing.T) {
	d := diff(t, []int64{300, 2, 1}, []int64{1, 300, 4})
	if !strings.Contains(d, "-") || !strings.Contains(d, "2") || !strings.Contains(d, "+") || !strings.Contains(d, "4") {
		t.Errorf("diff: %s", d)
	}
}

func TestSortHasTheUsualOrder(t *testing.T) {
	type row struct {
		Key  string
		At   time.Time
		Nums []int64
		P    *int64
	}
	one, two := int64(1), int64(2)
	at := func(h int) time.Time { return time.Date(2026, 1, 1, h, 0, 0, 0, time.UTC) }
	want := []row{
		{"a", at(1), nil, nil},
		{"a", at(1), nil, &one},
		{"a", at(1), nil, &two},
		{"a", at(1), []int64{-5}, nil},
		{"a", at(1), []int64{-5, 300}, nil},
		{"a", at(1), []int64{2}, nil},
		{"a", at(12), nil, nil},
		{"aa", at(0), nil, nil},
		{"b", at(0), nil, nil},
	}
	got := make([]row, len(want))
	for i := range want {
		got[(i*5+3)%len(want)] = want[i] // 5 and 9 have no common divisor
	}
	multiset.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
