package window

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
)

// assigner and merger are what a test says.
type assigner func(dst []Window, t time.Time) []Window

func (f assigner) Assign(dst []Window, t time.Time) []Window { return f(dst, t) }

type merger struct {
	assigner
	merge func(dst []Merge, open []Window) []Merge
}

func (m merger) Merge(dst []Merge, open []Window) []Merge { return m.merge(dst, open) }

var show = cmp.AllowUnexported(Window{})

func TestCustomWindowsAreSortedAndOnce(t *testing.T) {
	f := Custom("three", "", assigner(func(dst []Window, t time.Time) []Window {
		return append(dst, Between(t, t.Add(time.Hour)), Between(t, t.Add(time.Minute)), Between(t, t.Add(time.Hour)))
	}))
	got, err := f.Assign([]Window{GlobalWindow}, 0)
	if d := cmp.Diff([]Window{New(0, 60_000), New(0, 3600_000)}, got, show); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestCustomWindowsBeyondTimeAreAtItsEnds(t *testing.T) {
	f := Custom("around", "", assigner(func(dst []Window, t time.Time) []Window {
		return append(dst, Between(t.Add(-2*time.Hour), t.Add(-time.Hour)), Between(t.Add(time.Hour), t.Add(2*time.Hour)))
	}))
	hour := eventtime.Time(3600_000)
	for _, c := range []struct {
		t    eventtime.Time
		want []Window
	}{
		{eventtime.Min, []Window{New(eventtime.Min, eventtime.Min+1), New(eventtime.Min+hour, eventtime.Min+2*hour)}},
		{eventtime.Max - 1, []Window{New(eventtime.Max-1-2*hour, eventtime.Max-1-hour), New(eventtime.Max-1, eventtime.Max)}},
	} {
		got, err := f.Assign(nil, c.t)
		if d := cmp.Diff(c.want, got, show); d != "" || err != nil {
			t.Errorf("%v at %d (-want +got):\n%s", err, c.t, d)
		}
	}
}

func TestCustomMergingWindowsEndWithTheGlobalWindow(t *testing.T) {
	f := Custom("m", "", merger{assigner: func(dst []Window, t time.Time) []Window { return append(dst, Between(t, t.Add(time.Hour))) }})
	for _, at := range []eventtime.Time{eventtime.EndOfGlobalWindow - 5, eventtime.Max - 1} {
		got, err := f.Assign(nil, at)
		want := []Window{New(min(at, eventtime.EndOfGlobalWindow-1), eventtime.EndOfGlobalWindow)}
		if d := cmp.Diff(want, got, show); d != "" || err != nil {
			t.Errorf("%v at %d (-want +got):\n%s", err, at, d)
		}
	}
}

func TestWhatAnAssignerDoesWrongIsNamed(t *testing.T) {
	for want, assign := range map[string]assigner{
		`"bad" put the element at 1970-01-01T00:00:00.005Z into the window [1970-01-01T00:00:00.005Z, 1970-01-01T00:00:00.005Z), which is empty`: func(dst []Window, t time.Time) []Window {
			return append(dst, Between(t, t))
		},
		"which is empty": func(dst []Window, t time.Time) []Window { return append(dst, Window{}) },
		"into 10001 windows: at most 10000": func(dst []Window, t time.Time) []Window {
			for i := range 10_001 {
				dst = append(dst, Between(t, t.Add(time.Duration(1+i)*time.Second)))
			}
			return dst
		},
	} {
		if _, err := Custom("bad", "", assign).Assign(nil, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestWhatAMergerDoesWrongIsNamed(t *testing.T) {
	a, b, c, d := New(0, 10), New(5, 15), New(20, 30), New(40, 50)
	for _, x := range []struct {
		want   string
		merges []Merge
	}{
		{"both must not be empty", []Merge{{nil, a}}},
		{"both must not be empty", []Merge{{[]Window{a}, New(5, 5)}}},
		{"merge [1970-01-01T00:00:00.000Z, 1970-01-01T00:00:00.010Z) twice", []Merge{{[]Window{a, b}, New(0, 15)}, {[]Window{a, c}, New(0, 30)}}},
		{"twice", []Merge{{[]Window{a, a}, b}}},
		{"which is not open", []Merge{{[]Window{a, d}, New(0, 50)}}},
		{"merge twice into", []Merge{{[]Window{a}, d}, {[]Window{b}, d}}},
		{"which is open and not among what is merged", []Merge{{[]Window{a, b}, c}}},
	} {
		f := Custom("bad", "", merger{merge: func(dst []Merge, _ []Window) []Merge { return append(dst, x.merges...) }})
		if _, err := f.Merge(nil, []Window{a, b, c}); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("error %v, want %q", err, x.want)
		}
	}
	less := Custom("bad", "", merger{merge: func([]Merge, []Window) []Merge { return nil }})
	if _, err := less.Merge([]Merge{{[]Window{a}, a}}, []Window{b}); err == nil || !strings.Contains(err.Error(), "less than it was given") {
		t.Errorf("error %v", err)
	}
	ok := Custom("ok", "", merger{merge: func(dst []Merge, open []Window) []Merge {
		return append(dst, Merge{open[:2], open[1]}, Merge{open[2:], New(0, eventtime.Max)})
	}})
	got, err := ok.Merge([]Merge{{[]Window{d}, d}}, []Window{a, b, c})
	if diff := cmp.Diff([]Merge{{[]Window{d}, d}, {[]Window{a, b}, b}, {[]Window{c}, New(0, eventtime.EndOfGlobalWindow)}}, got, show); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestSessionsMergeWhatOverlaps compares with joining any two that overlap until none do.
func TestSessionsMergeWhatOverlaps(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var open []Window
		for range rapid.IntRange(0, 12).Draw(r, "n") {
			s := eventtime.Time(rapid.IntRange(-40, 40).Draw(r, "start"))
			open = append(open, New(s, s+eventtime.Time(rapid.IntRange(1, 12).Draw(r, "size"))))
		}
		slices.SortFunc(open, CompareStarts)
		open = slices.Compact(open)
		want := slices.Clone(open)
		for again := true; again; {
			again = false
			for i, a := range want {
				for j := i + 1; j < len(want) && !again; j++ {
					if b := want[j]; a.start < b.end && b.start < a.end {
						want[i] = Window{min(a.start, b.start), max(a.end, b.end)}
						want, again = slices.Delete(want, j, j+1), true
					}
				}
				if again {
					break
				}
			}
		}
		merges, err := Sessions(time.Second).Merge(nil, open)
		if err != nil {
			r.Fatal(err)
		}
		got := slices.Clone(open)
		for _, m := range merges {
			if len(m.From) < 2 {
				r.Fatalf("%v alone is merged", m.From)
			}
			got = slices.DeleteFunc(got, func(w Window) bool { return slices.Contains(m.From, w) })
			got = append(got, m.Into)
		}
		slices.SortFunc(got, CompareStarts)
		slices.SortFunc(want, CompareStarts)
		if d := cmp.Diff(want, got, show); d != "" {
			r.Fatalf("%v (-want +got):\n%s", open, d)
		}
	})
}

func TestWindowsMergeUntilAnAggregationHasMergedThem(t *testing.T) {
	merges := Custom("m", "", merger{})
	for _, fn := range []Fn{Sessions(time.Second), merges} {
		if _, ok := Merging(fn); !ok || HasMerged(fn) {
			t.Errorf("%v does not merge", fn)
		}
		m := Merged(fn)
		if _, ok := Merging(m); ok || !HasMerged(m) || Validate(m) == nil {
			t.Errorf("%v merges, or a user may make it", m)
		}
	}
	for _, fn := range []Fn{Fixed(1), Sliding(1, 1), Global(), Days(1), Custom("c", "", assigner(nil))} {
		if _, ok := Merging(fn); ok || HasMerged(Merged(fn)) {
			t.Errorf("%v merges", fn)
		}
	}
}

func TestCustomWindowsAreKnownByNameAndParams(t *testing.T) {
	for fn, want := range map[string]string{
		fmt.Sprintf("%+v", Custom("a", "b=1\n", assigner(nil))):     `{Custom:"a" Params:"b=1\n"}`,
		fmt.Sprintf("%+v", Merged(Custom("a", "b=1\n", merger{}))):  `{Custom:"a" Params:"b=1\n" Merged:true}`,
		fmt.Sprintf("%+v", Custom(`a" Params:"b=1"`, "", merger{})): `{Custom:"a\" Params:\"b=1\"" Params:""}`,
	} {
		if fn != want {
			t.Errorf("%s, want %s", fn, want)
		}
	}
	for _, bad := range []CustomFn{Custom("", "p", assigner(nil)), Custom("a", "", nil), Custom("a\xff", "", assigner(nil)), Custom("a", "\xff", assigner(nil))} {
		if Validate(bad) == nil {
			t.Errorf("%v accepted", bad)
		}
	}
}

func TestSideWindowsHoldTheLastInstantOfTheMainWindow(t *testing.T) {
	ms := time.Millisecond
	two := Custom("two", "", assigner(func(dst []Window, t time.Time) []Window {
		if t.UnixMilli() < 0 {
			return dst
		}
		return append(dst, Between(t, t.Add(30*ms)), Between(t.Add(-10*ms), t.Add(20*ms)))
	}))
	for _, c := range []struct {
		side       Fn
		main, want Window
	}{
		{Global(), GlobalWindow, GlobalWindow},
		{Global(), New(0, 10), GlobalWindow},
		{Fixed(10 * ms), New(-15, 10), New(0, 10)},
		{Fixed(10 * ms), New(-15, 11), New(10, 20)},
		{Fixed(10 * ms), New(-15, -9), New(-10, 0)},
		{Days(1), New(0, 24*3600_000), New(0, 24*3600_000)},
		{Sliding(10*ms, 3*ms), New(0, 10), New(0, 10)}, // also in [3, 13), [6, 16) and [9, 19)
		{Sliding(10*ms, 3*ms), New(0, 11), New(3, 13)}, // Beam: the earliest
		{Sliding(3*ms, 10*ms), New(0, 3), New(0, 3)},   // its last instant, 2
		{Sliding(3*ms, 10*ms), New(0, 4), New(10, 13)}, // 3 lies between windows
		{Sliding(3*ms, 10*ms), New(-9, -6), New(0, 3)}, // and -7
		{Sliding(3*ms, 10*ms).Offset(5 * ms), New(0, 1), New(5, 8)},
		{two, New(0, 11), New(0, 30)},
	} {
		if got, err := MapSide(c.side, c.main); got != c.want || err != nil {
			t.Errorf("MapSide(%+v, %v) = %v, %v, want %v", c.side, c.main, got, err, c.want)
		}
	}
	for _, c := range []struct {
		side Fn
		main Window
		want string
	}{
		{Sessions(ms), New(0, 1), "window.Sessions(1ms), are known key by key"},
		{Merged(Sessions(ms)), New(0, 1), "key by key"},
		{Custom("m", "", merger{}), New(0, 1), "key by key"},
		{Merged(Custom("m", "", merger{})), New(0, 1), "key by key"},
		{Fixed(ms), GlobalWindow, "the global window has no last instant that one of window.Fixed(1ms) would hold"},
		{two, New(-5, -3), `custom windows "two" have none for 1969-12-31T23:59:59.996Z`},
	} {
		if got, err := MapSide(c.side, c.main); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("MapSide(%+v, %v) = %v, %v, want %q", c.side, c.main, got, err, c.want)
		}
	}
	if err := CheckSide(Fixed(ms), Fixed(ms)); err != nil {
		t.Error(err)
	}
}

// TestWindowsHoldTheirTime: floor arithmetic for every sign, offset and ratio of size and period, up to the ends of time.
func TestWindowsHoldTheirTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string) time.Duration {
			return time.Duration(rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, 200*365*24*3600_000)).Draw(r, name)) * time.Millisecond
		}
		size := draw("size")
		period := max(draw("period"), (size / 200).Truncate(time.Millisecond)) // few windows
		shift := draw("shift") * time.Duration(rapid.SampledFrom([]int{1, -1}).Draw(r, "sign"))
		at := eventtime.Time(rapid.OneOf(
			rapid.Int64Range(-100, 100), rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Max)-1),
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Min)+100), rapid.Int64Range(int64(eventtime.Max)-100, int64(eventtime.Max)-1),
		).Draw(r, "t"))
		hold := func(fn Fn, ws ...Window) {
			for _, w := range ws {
				if w.start > at || at >= w.end || w.start < eventtime.Min || w.end > eventtime.Max {
					r.Fatalf("%+v: %d is not in %d..%d", fn, at, w.start, w.end)
				}
			}
		}
		fixed := Fixed(size).Offset(shift)
		hold(fixed, fixed.Assign(at))
		sliding := Sliding(size, period).Offset(shift)
		ws := sliding.Assign(nil, at)
		hold(sliding, ws...)
		slice, in := sliding.Slice(at)
		// Without overlap one of size/period elements is in a window; else it is in size/period of them, rounded either way.
		if n := len(ws); in != (n > 0) || n < int(size/period) || n > int((size+period-1)/period) {
			r.Fatalf("%+v: %d is in %d windows, slice %v", sliding, at, n, in)
		}
		if in {
			hold(sliding, slice)
		}
		if at < eventtime.EndOfGlobalWindow {
			sessions := Sessions(size)
			hold(sessions, sessions.Assign(at))
		}
	})
}
