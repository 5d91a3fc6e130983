package kernel_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
	"github.com/millstream/millstream/testing/seeds"
)

func TestSlidingWindows(t *testing.T) {
	sliding := func(size, period time.Duration) window.Fn {
		return window.Sliding(size*time.Millisecond, period*time.Millisecond)
	}
	for _, c := range []struct {
		name string
		sumCase
	}{
		{"each window has what lies in it", sumCase{fn: sliding(10, 5), script: `
			k 1@1 2@4 4@5 8@12
			W 5
			> [-5,5) k sum 3 of 2, ON_TIME 0/0 first last
			W 9
			W 10
			> [0,10) k sum 7 of 3, ON_TIME 0/0 first last
			W end
			> [10,20) k sum 8 of 1, ON_TIME 0/0 first last
			> [5,15) k sum 12 of 2, ON_TIME 0/0 first last`}},
		{"an element is late for those of its windows that have ended", sumCase{fn: sliding(10, 5), script: `
			k 1@4
			W 11
			> [-5,5) k sum 1 of 1, ON_TIME 0/0 first last
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first last
			k 2@7
			> port 1: late k 2@7 for [0,10)
			k 4@3
			> port 1: late k 4@3 for [-5,5)
			> port 1: late k 4@3 for [0,10)
			W end
			> [5,15) k sum 2 of 1, ON_TIME 0/0 first last`}},
		{"what lies between windows is in none, and not late", sumCase{fn: sliding(5, 10), script: `
			k 1@1 2@4 4@5 8@9 16@10
			W 7
			> [0,5) k sum 3 of 2, ON_TIME 0/0 first last
			k 32@6
			k 64@3
			> port 1: late k 64@3 for [0,5)
			W end
			> [10,15) k sum 16 of 1, ON_TIME 0/0 first last`}},
		{"a size that is no multiple of the period", sumCase{fn: sliding(7, 3), script: `
			k 1@0, j 2@3, k 4@4 8@6
			W 4
			> [-3,4) j sum 2 of 1, ON_TIME 0/0 first last
			> [-3,4) k sum 1 of 1, ON_TIME 0/0 first last
			> [-6,1) k sum 1 of 1, ON_TIME 0/0 first last
			W end
			> [0,7) j sum 2 of 1, ON_TIME 0/0 first last
			> [0,7) k sum 13 of 3, ON_TIME 0/0 first last
			> [3,10) j sum 2 of 1, ON_TIME 0/0 first last
			> [3,10) k sum 12 of 2, ON_TIME 0/0 first last
			> [6,13) k sum 8 of 1, ON_TIME 0/0 first last`}},
		{"windows at the end of time end with it", sumCase{fn: sliding(10, 5), script: `
			k 1@9223371950454770
			W 9223371950454775
			> [9223371950454765,9223371950454775) k sum 1 of 1, ON_TIME 0/0 first last
			k 2@9223371950454771
			> port 1: late k 2@9223371950454771 for [9223371950454765,9223371950454775)
			W end
			> [9223371950454770,9223371950454780) k sum 3 of 2, ON_TIME 0/0 first last
			k 2@9223371950454771
			> port 1: late k 2@9223371950454771 for [9223371950454765,9223371950454775)
			> port 1: late k 2@9223371950454771 for [9223371950454770,9223371950454780)`}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

func TestSessions(t *testing.T) {
	gap := window.Sessions(10 * time.Millisecond)
	for _, c := range []struct {
		name string
		sumCase
	}{
		{"elements less than a gap apart are one session, key by key", sumCase{fn: gap, script: `
			a 1@0 2@9, b 4@5
			a 8@19
			W 19
			> [0,19) a sum 3 of 2, ON_TIME 0/0 first last
			> [5,15) b sum 4 of 1, ON_TIME 0/0 first last
			W end
			> [19,29) a sum 8 of 1, ON_TIME 0/0 first last`}},
		{"an element between two sessions makes them one", sumCase{fn: gap, script: `
			k 1@0
			k 2@15
			k 4@8
			W end
			> [0,25) k sum 7 of 3, ON_TIME 0/0 first last`}},
		{"one that ends where another begins does not join it", sumCase{fn: gap, script: `
			k 1@20
			k 2@10
			k 4@0
			W end
			> [0,10) k sum 4 of 1, ON_TIME 0/0 first last
			> [10,20) k sum 2 of 1, ON_TIME 0/0 first last
			> [20,30) k sum 1 of 1, ON_TIME 0/0 first last`}},
		{"what was closed is not touched", sumCase{fn: window.Sessions(5 * time.Millisecond), script: `
			k 1@0
			W 6
			> [0,5) k sum 1 of 1, ON_TIME 0/0 first last
			k 2@3
			W 8
			> [3,8) k sum 2 of 1, ON_TIME 0/0 first last
			k 4@2
			> port 1: late k 4@2 for [2,7)
			W end`}},
		{"an element is late by its own session, not by the one it would have joined", sumCase{fn: gap, script: `
			k 1@0 2@8 4@16
			W 20
			k 8@5
			> port 1: late k 8@5 for [5,15)
			k 16@11
			W end
			> [0,26) k sum 23 of 4, ON_TIME 0/0 first last`}},
		{"a session that goes on after its end fires again at its new end", sumCase{fn: gap, Windowing: kernel.Windowing{Lateness: 20, Accumulating: true}, script: `
			k 1@0
			W 12
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@8
			W 18
			> [0,18) k sum 3 of 2, ON_TIME 0/0 first
			k 4@2
			> [0,18) k sum 7 of 3, LATE 1/1
			W end`}},
		{"two that have fired are joined by a late element", sumCase{fn: gap, Windowing: kernel.Windowing{Lateness: 50}, script: `
			k 1@0 2@15
			W 30
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			> [15,25) k sum 2 of 1, ON_TIME 0/0 first
			k 4@7
			> [0,25) k sum 4 of 1, LATE 0/0 first
			W end`}},
		{"one born late fires at its first element", sumCase{fn: gap, Windowing: kernel.Windowing{Lateness: 50, LateCount: 2}, script: `
			W 30
			k 1@0
			> [0,10) k sum 1 of 1, LATE 0/0 first
			k 2@5
			k 4@6
			> [0,16) k sum 6 of 2, LATE 0/0 first
			k 8@6
			W 66
			> [0,16) k sum 8 of 1, LATE 1/1 last`}},
		{"the panes of a session that becomes another window are counted anew", sumCase{fn: gap, Windowing: kernel.Windowing{Lateness: 50, EarlyCount: 1, Accumulating: true}, script: `
			k 1@0
			> [0,10) k sum 1 of 1, EARLY 0/-1 first
			k 1@1
			> [0,11) k sum 2 of 2, EARLY 0/-1 first
			k 2@15
			> [15,25) k sum 2 of 1, EARLY 0/-1 first
			W 26
			k 8@16
			> [15,26) k sum 10 of 2, LATE 0/0 first
			k 4@8
			> [0,26) k sum 16 of 5, LATE 0/0 first
			W end`}},
		{"early panes count the elements of all that became one", sumCase{fn: gap, Windowing: kernel.Windowing{EarlyCount: 3, Accumulating: true}, script: `
			k 1@0
			k 2@15
			k 4@8
			> [0,25) k sum 7 of 3, EARLY 0/-1 first
			W end`}},
		{"no session reaches beyond the end of the global window", sumCase{fn: gap, script: `
			k 1@9223371950454773
			W 9223371950454774
			k 2@9223371950454780 4@9223372036854774
			W 9223371950454775
			> [9223371950454773,9223371950454775) k sum 7 of 3, ON_TIME 0/0 first last
			k 8@9223371950454773
			> port 1: late k 8@9223371950454773 for [9223371950454773,9223371950454775)
			W end`}},
		{"nor a lateness", sumCase{fn: gap, Windowing: kernel.Windowing{Lateness: 1000}, script: `
			k 1@9223371950454743
			W 9223371950454755
			> [9223371950454743,9223371950454753) k sum 1 of 1, ON_TIME 0/0 first
			k 2@9223371950454740
			> [9223371950454740,9223371950454753) k sum 2 of 1, LATE 0/0 first
			W 9223371950454776
			k 8@9223371950454743
			> port 1: late k 8@9223371950454743 for [9223371950454743,9223371950454753)
			W end`}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

// naive is the panes of random elements, worked out from lists of elements.
type naive struct {
	fn   window.Fn
	spec kernel.Windowing
	w    eventtime.Time
	open map[string][]*naiveWindow
	said []string
}

type naiveWindow struct {
	win   window.Window
	all   []int64 // values
	fresh int     // of them, since the last pane
	panes int64
	early int64
	ended bool
}

func (n *naive) pane(k string, w *naiveWindow, timing window.Timing, last bool) {
	vs := w.all
	if !n.spec.Accumulating {
		vs = vs[len(vs)-w.fresh:]
	}
	p := window.Pane{Timing: timing, Index: w.panes, OnTimeIndex: w.panes - w.early, First: w.panes == 0, Last: last}
	if timing == window.Early {
		p.OnTimeIndex = -1
		w.early++
	}
	w.panes++
	w.fresh = 0
	sum := int64(0)
	for _, v := range vs {
		sum += v
	}
	n.said = append(n.said, fmt.Sprint(k, w.win, sum, p))
}

func (n *naive) late(k string, v int64, w window.Window) {
	n.said = append(n.said, fmt.Sprintf("port 1: %v %v %v late", k, v, w))
}

func (n *naive) add(k string, v int64, t eventtime.Time) {
	switch fn := n.fn.(type) {
	case window.SlidingFn:
		for _, w := range fn.Assign(nil, t) {
			if n.w >= w.EndTime() {
				n.late(k, v, w)
				continue
			}
			i := slices.IndexFunc(n.open[k], func(o *naiveWindow) bool { return o.win == w })
			if i < 0 {
				i = len(n.open[k])
				n.open[k] = append(n.open[k], &naiveWindow{win: w})
			}
			o := n.open[k][i]
			o.all, o.fresh = append(o.all, v), o.fresh+1
		}
	case window.SessionsFn:
		w := &naiveWindow{win: fn.Assign(t), all: []int64{v}, fresh: 1}
		if n.w >= w.win.EndTime().Add(n.spec.Lateness) {
			n.late(k, v, w.win)
			return
		}
		for again := true; again; {
			again = false
			for i, o := range n.open[k] {
				if o.win.StartTime() < w.win.EndTime() && w.win.StartTime() < o.win.EndTime() {
					// Values that fired come first, so that fresh ones are at the end.
					old, fresh := o.all[:len(o.all)-o.fresh], o.all[len(o.all)-o.fresh:]
					wold, wfresh := w.all[:len(w.all)-w.fresh], w.all[len(w.all)-w.fresh:]
					w = &naiveWindow{
						win: window.New(min(o.win.StartTime(), w.win.StartTime()), max(o.win.EndTime(), w.win.EndTime())),
						all: slices.Concat(old, wold, fresh, wfresh), fresh: o.fresh + w.fresh,
						ended: o.ended || w.ended,
					}
					if w.win == o.win { // it has not become another window
						w.panes, w.early = o.panes, o.early
					}
					n.open[k] = slices.Delete(n.open[k], i, i+1)
					again = true
					break
				}
			}
		}
		n.open[k] = append(n.open[k], w)
		w.ended = w.ended && w.win.EndTime() <= n.w
		switch {
		case w.win.EndTime() > n.w:
			if n.spec.EarlyCount > 0 && w.fresh >= int(n.spec.EarlyCount) {
				n.pane(k, w, window.Early, false)
			}
		case !w.ended || w.fresh >= int(n.spec.LateCount):
			n.pane(k, w, window.Late, false)
			w.ended = true
		}
	}
}

func (n *naive) watermark(w eventtime.Time) {
	n.w = w
	for k, open := range n.open {
		slices.SortFunc(open, func(a, b *naiveWindow) int { return a.win.Compare(b.win) })
		for _, o := range open {
			if !o.ended && o.win.EndTime() <= w {
				o.ended = true
				if o.fresh > 0 {
					n.pane(k, o, window.OnTime, n.spec.Lateness == 0)
				}
			}
			if o.ended && o.win.EndTime().Add(n.spec.Lateness) <= w && o.fresh > 0 {
				n.pane(k, o, window.Late, true)
			}
		}
		n.open[k] = slices.DeleteFunc(open, func(o *naiveWindow) bool { return o.win.EndTime().Add(n.spec.Lateness) <= w })
	}
}

// TestSlidingWindowsAndSessionsAreExact compares random windows, elements and watermarks with naive panes, input
// by input, however the operator is disturbed. The accumulator has heap memory of its own.
func TestSlidingWindowsAndSessionsAreExact(t *testing.T) {
	panes := 0
	seeds.Each(t, 25, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 7))
		ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
		n := &naive{w: eventtime.Min, open: map[string][]*naiveWindow{}, spec: kernel.Windowing{LateCount: 1}}
		if r.IntN(2) == 0 {
			n.fn = window.Sliding(ms(1+r.Int64N(40)), ms(1+r.Int64N(15))).Offset(ms(r.Int64N(10)))
		} else {
			n.fn = window.Sessions(ms(1 + r.Int64N(20)))
			n.spec = kernel.Windowing{Lateness: r.Int64N(3) * 15, EarlyCount: r.Int64N(4), LateCount: 1 + r.Int64N(3), Accumulating: r.IntN(2) == 0}
		}
		int64s := must(coder.Of[[]int64]())
		spec := kernel.Aggregation[string, []int64, int64]{
			Key: must(coder.KeyOf[string]()), Acc: int64s,
			Create: func() []int64 { return nil },
			Merge: func(a, b []int64) []int64 {
				both := slices.Concat(a, b)
				clear(a) // a merge may change both
				clear(b)
				return both
			},
			Extract: func(a []int64) (sum int64) {
				for _, v := range a {
					sum += v
				}
				return sum
			},
			Clone: func(a []int64) ([]int64, error) { return slices.Clone(a), nil },
			Size:  func(a *[]int64) int { return 8 * cap(*a) }, Windowing: n.spec,
		}
		c := operatortest.Case{
			Keyed: true,
			New: func() kernel.Operator {
				inputs := func() []kernel.AggregateInput[string, []int64, int64] {
					return []kernel.AggregateInput[string, []int64, int64]{
						kernel.InputOf[string, int64, []int64, int64](0, func(a []int64, v int64) []int64 { return append(a, v) }),
					}
				}
				if fn, ok := n.fn.(window.SlidingFn); ok {
					return kernel.NewSliced(spec, fn, inputs)
				}
				spec.Merging = &kernel.Merging{}
				return kernel.NewPanes(spec, inputs)
			},
			Ports: []operatortest.Print{
				operatortest.Lines(func(e kernel.Element[reading]) string {
					return fmt.Sprint(e.Value.Key, e.Window, e.Value.Value, e.Pane.Info())
				}),
				operatortest.Lines(func(e kernel.Element[reading]) string {
					return fmt.Sprintf("%v %v %v late", e.Value.Key, e.Value.Value, e.Window)
				}),
			},
		}
		var want [][]string
		keys, w := 1+r.IntN(8), eventtime.Time(0)
		for range 60 {
			if r.IntN(3) == 0 {
				w += eventtime.Time(r.IntN(15))
				c.Inputs = append(c.Inputs, operatortest.Watermark(w))
				n.watermark(w)
			} else {
				var es []kernel.Element[reading]
				for range r.IntN(8) {
					at := w + eventtime.Time(r.IntN(60)-30)
					k, v := string(rune('a'+r.IntN(keys))), r.Int64N(100)
					e := kernel.Element[reading]{Value: reading{Key: k, Value: v}, Time: at}
					in := true
					switch fn := n.fn.(type) {
					case window.SlidingFn:
						e.Window, in = fn.Slice(at)
					case window.SessionsFn:
						e.Window = fn.Assign(at)
					}
					if in {
						es = append(es, e)
						n.add(k, v, at)
					}
				}
				c.Inputs = append(c.Inputs, operatortest.Batch(0, es...))
			}
			slices.Sort(n.said)
			want, n.said = append(want, n.said), nil
		}
		c.Inputs = append(c.Inputs, operatortest.Watermark(eventtime.Max))
		n.watermark(eventtime.Max)
		slices.SortFunc(n.said, cmp.Compare)
		want = append(want, n.said)
		got, err := operatortest.Check(c)
		if err != nil {
			return err
		}
		panes += len(slices.Concat(got...))
		for i := range got {
			if d := gocmp.Diff(append([]string{}, want[i]...), append([]string{}, got[i]...)); d != "" {
				return fmt.Errorf("%+v %+v, input %d (-naive +said):\n%s", n.fn, n.spec, i, d)
			}
		}
		return nil
	})
	if panes < 300 {
		t.Errorf("only %d panes in all", panes)
	}
}
