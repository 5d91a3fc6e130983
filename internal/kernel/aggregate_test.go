package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
	"github.com/millstream/millstream/testing/seeds"
)

type (
	reading = coder.KV[string, int64]
	total   struct{ Sum, Count int64 }
	sums    = kernel.Aggregation[string, total, total]
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// sumCase is an aggregation of readings to sum and count, in fixed windows of size ms.
type sumCase struct {
	kernel.Windowing
	size     int64     // 0: the global window
	fn       window.Fn // instead of size: sliding windows or sessions
	identity bool
	script   string
}

// run gives the operator a script and returns what it says. A script is a line an input:
//
//	a 5@3 7@4    readings of key a: value@time, in one batch; more keys follow after a comma
//	W 10         the watermark
//	  …          expected after it
//
// The answer is the script with what was said.
func (c sumCase) run(t *testing.T) {
	t.Helper()
	spec := sums{
		Key: must(coder.KeyOf[string]()), Acc: must(coder.Of[total]()),
		Create: func() total { return total{} }, Extract: func(a total) total { return a }, Merge: func(a, b total) total {
			return total{a.Sum + b.Sum, a.Count + b.Count}
		},
		Windowing: c.Windowing, Identity: c.identity,
	}
	if spec.LateCount == 0 {
		spec.LateCount = 1
	}
	tc := operatortest.Case{
		Keyed: true,
		New: func() kernel.Operator {
			inputs := func() []kernel.AggregateInput[string, total, total] {
				return []kernel.AggregateInput[string, total, total]{
					kernel.InputOf[string, int64, total, total](0, func(a total, v int64) total {
						return total{a.Sum + v, a.Count + 1}
					}),
				}
			}
			switch fn := c.fn.(type) {
			case window.SlidingFn:
				return kernel.NewSliced(spec, fn, inputs)
			case window.SessionsFn:
				spec.Merging = &kernel.Merging{}
				return kernel.NewPanes(spec, inputs)
			}
			return kernel.NewAggregate(spec, inputs)
		},
		Ports: []operatortest.Print{
			operatortest.Lines(func(e kernel.Element[coder.KV[string, total]]) string {
				if e.Time != e.Window.MaxTimestamp() {
					return fmt.Sprintf("pane at %v, not at the end of %v", e.Time, e.Window)
				}
				p := e.Pane.Info()
				marks := ""
				if p.First {
					marks += " first"
				}
				if p.Last {
					marks += " last"
				}
				return fmt.Sprintf("%s %s sum %d of %d, %v %d/%d%s", brief(e.Window), e.Value.Key, e.Value.Value.Sum, e.Value.Value.Count, p.Timing, p.Index, p.OnTimeIndex, marks)
			}),
			operatortest.Lines(func(e kernel.Element[reading]) string {
				return fmt.Sprintf("late %s %d@%d for %s", e.Value.Key, e.Value.Value, int64(e.Time), brief(e.Window))
			}),
		},
	}
	var lines []string
	for line := range strings.Lines(c.script) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, ">") {
			continue
		}
		lines = append(lines, line)
		tc.Inputs = append(tc.Inputs, c.input(t, line))
	}
	var got strings.Builder
	for i, said := range operatortest.Run(t, tc) {
		fmt.Fprintf(&got, "%s\n", lines[i])
		for _, s := range said {
			fmt.Fprintf(&got, "> %s\n", s)
		}
	}
	var want strings.Builder
	for line := range strings.Lines(c.script) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(&want, "%s\n", line)
		}
	}
	if d := cmp.Diff(want.String(), got.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func (c sumCase) input(t *testing.T, line string) operatortest.Input {
	var w string
	if n, _ := fmt.Sscanf(line, "W %s", &w); n == 1 {
		if w == "end" {
			return operatortest.Watermark(eventtime.Max)
		}
		return operatortest.Watermark(eventtime.Time(parse(t, w)))
	}
	var es []kernel.Element[reading]
	for part := range strings.SplitSeq(line, ",") {
		f := strings.Fields(part)
		for _, r := range f[1:] {
			v, at, ok := strings.Cut(r, "@")
			if !ok {
				t.Fatalf("%q: not a reading", r)
			}
			e := kernel.Element[reading]{Value: reading{Key: f[0], Value: parse(t, v)}, Time: eventtime.Time(parse(t, at)), Window: window.GlobalWindow}
			switch fn := c.fn.(type) {
			case window.SlidingFn:
				in := false
				if e.Window, in = fn.Slice(e.Time); !in {
					continue
				}
			case window.SessionsFn:
				e.Window = fn.Assign(e.Time)
			default:
				if c.size > 0 {
					e.Window = window.Fixed(time.Duration(c.size) * time.Millisecond).Assign(e.Time)
				}
			}
			es = append(es, e)
		}
	}
	return operatortest.Batch(0, es...)
}

func parse(t *testing.T, s string) (n int64) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return n
}

func brief(w window.Window) string {
	if w == window.GlobalWindow {
		return "[global]"
	}
	return fmt.Sprintf("[%d,%d)", int64(w.StartTime()), int64(w.EndTime()))
}

func TestAggregatePanes(t *testing.T) {
	for _, c := range []struct {
		name string
		sumCase
	}{
		{"a sensor: the window fires when the watermark is at its end, and what comes then is late", sumCase{size: 10_000, script: `
			sensor_1 10@1000
			W -2000
			sensor_1 20@4000
			W 1000
			sensor_1 30@2000
			W 1000
			sensor_1 40@13500
			W 10500
			> [0,10000) sensor_1 sum 60 of 3, ON_TIME 0/0 first last
			sensor_1 50@5000
			> port 1: late sensor_1 50@5000 for [0,10000)
			W end
			> [10000,20000) sensor_1 sum 40 of 1, ON_TIME 0/0 first last`}},
		{"three users, out of order", sumCase{size: 10_000, script: `
			alice 50@100000
			W 97000
			bob 30@102000
			W 99000
			alice 20@101000
			W 99000
			alice 15@112000
			W 109000
			bob 40@115000
			W 112000
			> [100000,110000) alice sum 70 of 2, ON_TIME 0/0 first last
			> [100000,110000) bob sum 30 of 1, ON_TIME 0/0 first last
			charlie 99@103000
			> port 1: late charlie 99@103000 for [100000,110000)
			W end
			> [110000,120000) alice sum 15 of 1, ON_TIME 0/0 first last
			> [110000,120000) bob sum 40 of 1, ON_TIME 0/0 first last`}},
		{"windows before the epoch are half-open like others", sumCase{size: 10, script: `
			k 1@-1 2@-10 4@-11 8@0
			W -10
			> [-20,-10) k sum 4 of 1, ON_TIME 0/0 first last
			W end
			> [-10,0) k sum 3 of 2, ON_TIME 0/0 first last
			> [0,10) k sum 8 of 1, ON_TIME 0/0 first last`}},
		{"a window fires at its end, not before, and an element behind the watermark is not late by that", sumCase{size: 10, script: `
			k 1@1
			W 9
			k 2@3
			W 10
			> [0,10) k sum 3 of 2, ON_TIME 0/0 first last`}},
		{"early panes by count, discarding: each has what came since the one before", sumCase{size: 10, Windowing: kernel.Windowing{EarlyCount: 2}, script: `
			k 1@1
			k 2@2
			> [0,10) k sum 3 of 2, EARLY 0/-1 first
			k 4@3 8@4 16@5
			> [0,10) k sum 12 of 2, EARLY 1/-1
			W 10
			> [0,10) k sum 16 of 1, ON_TIME 2/0 last`}},
		{"early panes by count, accumulating: each has all", sumCase{size: 10, Windowing: kernel.Windowing{EarlyCount: 2, Accumulating: true}, script: `
			k 1@1 2@2
			> [0,10) k sum 3 of 2, EARLY 0/-1 first
			k 4@3
			W 10
			> [0,10) k sum 7 of 3, ON_TIME 1/0 last`}},
		{"no empty pane when all has been fired early", sumCase{size: 10, Windowing: kernel.Windowing{EarlyCount: 1, Accumulating: true}, script: `
			k 1@1
			> [0,10) k sum 1 of 1, EARLY 0/-1 first
			W 10
			W end`}},
		{"early panes count each key alone", sumCase{size: 10, Windowing: kernel.Windowing{EarlyCount: 2}, script: `
			a 1@1, b 2@1
			a 4@1
			> [0,10) a sum 5 of 2, EARLY 0/-1 first
			W 10
			> [0,10) b sum 2 of 1, ON_TIME 0/0 first last`}},
		{"late elements fire while the lateness lasts, and drop when it is over", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, Accumulating: true}, script: `
			k 1@1
			W 10
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@2
			> [0,10) k sum 3 of 2, LATE 1/1
			W 29
			k 4@3 8@3
			> [0,10) k sum 15 of 4, LATE 3/3
			> [0,10) k sum 7 of 3, LATE 2/2
			W 30
			k 16@9
			> port 1: late k 16@9 for [0,10)`}},
		{"late panes, discarding", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20}, script: `
			k 1@1
			W 10
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@2
			> [0,10) k sum 2 of 1, LATE 1/1
			W end`}},
		{"late panes by count, and at the expiry a last one with the rest", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, LateCount: 2, Accumulating: true}, script: `
			k 1@1
			W 10
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@2
			k 4@3
			> [0,10) k sum 7 of 3, LATE 1/1
			k 8@4
			W 30
			> [0,10) k sum 15 of 4, LATE 2/2 last`}},
		{"a last pane, discarding, has what came since", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, LateCount: 3}, script: `
			k 1@1
			W 15
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@2 4@2
			W end
			> [0,10) k sum 6 of 2, LATE 1/1 last`}},
		{"no last pane if nothing came since the pane before", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, Accumulating: true}, script: `
			k 1@1
			W 10
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			W 30
			W end`}},
		{"a key born late fires at its first element, then by the late trigger", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, LateCount: 3, Accumulating: true}, script: `
			a 1@1
			W 10
			> [0,10) a sum 1 of 1, ON_TIME 0/0 first
			b 2@2
			> [0,10) b sum 2 of 1, LATE 0/0 first
			b 4@2
			b 8@2
			b 16@2
			> [0,10) b sum 30 of 4, LATE 1/1
			W 30`}},
		{"a window born late fires at its first element", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, LateCount: 2}, script: `
			W 15
			k 1@1
			> [0,10) k sum 1 of 1, LATE 0/0 first
			k 2@1 4@1
			> [0,10) k sum 6 of 2, LATE 1/1
			k 8@1
			W 30
			> [0,10) k sum 8 of 1, LATE 2/2 last`}},
		{"all fired early, then late elements by the late trigger", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 20, EarlyCount: 1, LateCount: 2}, script: `
			k 1@1
			> [0,10) k sum 1 of 1, EARLY 0/-1 first
			W 10
			k 2@1
			k 4@1
			> [0,10) k sum 6 of 2, LATE 1/0
			W end`}},
		{"lateness is judged for each window: one batch, one open, one late, one closed", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 10}, script: `
			W 25
			k 1@5 2@15 4@25
			> [10,20) k sum 2 of 1, LATE 0/0 first
			> port 1: late k 1@5 for [0,10)
			W end
			> [20,30) k sum 4 of 1, ON_TIME 0/0 first`}},
		{"windows fire in the order of their ends, keys of one watermark together", sumCase{size: 10, script: `
			a 1@25 2@5, b 4@15 8@5
			W 20
			> [0,10) a sum 2 of 1, ON_TIME 0/0 first last
			> [0,10) b sum 8 of 1, ON_TIME 0/0 first last
			> [10,20) b sum 4 of 1, ON_TIME 0/0 first last
			W end
			> [20,30) a sum 1 of 1, ON_TIME 0/0 first last`}},
		{"one watermark passes end and expiry: the pane is not marked as last, none follows", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 5}, script: `
			k 1@1
			W 100
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@1
			> port 1: late k 2@1 for [0,10)`}},
		{"the global window ends a day before the end of time", sumCase{script: `
			k 1@1 2@9223371950454774
			W 9223371950454774
			W 9223371950454775
			> [global] k sum 3 of 2, ON_TIME 0/0 first last
			k 4@1
			> port 1: late k 4@1 for [global]`}},
		{"a lateness beyond the end of time does not wrap", sumCase{size: 10, Windowing: kernel.Windowing{Lateness: 1<<63 - 1}, script: `
			k 1@1
			W 10
			> [0,10) k sum 1 of 1, ON_TIME 0/0 first
			k 2@1
			> [0,10) k sum 2 of 1, LATE 1/1
			W end
			k 4@1
			> port 1: late k 4@1 for [0,10)`}},
		{"nothing came: the identity, once", sumCase{identity: true, script: `
			W 100
			W end
			> [global]  sum 0 of 0, ON_TIME 0/0 first last
			W end`}},
		{"something came: no identity", sumCase{identity: true, script: `
			k 5@5
			W end
			> [global] k sum 5 of 1, ON_TIME 0/0 first last`}},
		{"nothing came and no identity is wanted", sumCase{script: `
			W end`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
		})
	}
}

// A join in all but name: readings come from one side, names from the other, and the accumulator has heap
// memory of its own. Random inputs; whatever is done to the operator, it says the same.
func TestAggregateSaysTheSameHoweverItIsDisturbed(t *testing.T) {
	seeds.Each(t, 20, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 4))
		windowing := kernel.Windowing{
			Lateness: r.Int64N(3) * 15, EarlyCount: r.Int64N(4), LateCount: 1 + r.Int64N(3), Accumulating: r.IntN(2) == 0,
		}
		spec := kernel.Aggregation[float64, sides, string]{
			Key: must(coder.KeyOf[float64]()), Acc: must(coder.Of[sides]()),
			Create: func() sides { return sides{} }, Extract: func(a sides) string { return fmt.Sprint(a) },
			Size: func(a *sides) int { return len(a.Names) }, Windowing: windowing,
		}
		c := operatortest.Case{
			Keyed: true,
			New: func() kernel.Operator {
				return kernel.NewAggregate(spec, func() []kernel.AggregateInput[float64, sides, string] {
					return []kernel.AggregateInput[float64, sides, string]{
						kernel.InputOf[float64, int64, sides, string](0, func(a sides, v int64) sides { a.Sum += v; return a }),
						kernel.InputOf[float64, string, sides, string](1, func(a sides, v string) sides { a.Names += v; return a }),
					}
				})
			},
			Ports: []operatortest.Print{
				operatortest.Lines(func(e kernel.Element[coder.KV[float64, string]]) string { return fmt.Sprint(e) }),
				operatortest.Lines(func(e kernel.Element[coder.KV[float64, int64]]) string { return fmt.Sprint(e) }),
				operatortest.Lines(func(e kernel.Element[coder.KV[float64, string]]) string { return fmt.Sprint(e) }),
			},
		}
		w := eventtime.Time(0)
		keys := 1 + r.IntN(30)
		for range 40 {
			at := func() (eventtime.Time, window.Window) {
				at := w + eventtime.Time(r.IntN(60)-30)
				s := at.Floor(10, 0)
				return at, window.New(s, s+10)
			}
			switch r.IntN(5) {
			case 0, 1:
				var es []kernel.Element[coder.KV[float64, int64]]
				for range r.IntN(20) {
					at, win := at()
					es = append(es, kernel.Element[coder.KV[float64, int64]]{Value: coder.KV[float64, int64]{Key: float64(r.IntN(keys)), Value: r.Int64N(100)}, Time: at, Window: win})
				}
				c.Inputs = append(c.Inputs, operatortest.Batch(0, es...))
			case 2, 3:
				var es []kernel.Element[coder.KV[float64, string]]
				for range r.IntN(20) {
					at, win := at()
					es = append(es, kernel.Element[coder.KV[float64, string]]{Value: coder.KV[float64, string]{Key: float64(r.IntN(keys)), Value: string(rune('a' + r.IntN(26)))}, Time: at, Window: win})
				}
				c.Inputs = append(c.Inputs, operatortest.Batch(1, es...))
			case 4:
				w += eventtime.Time(r.IntN(15))
				c.Inputs = append(c.Inputs, operatortest.Watermark(w))
			}
		}
		c.Inputs = append(c.Inputs, operatortest.Watermark(eventtime.Max))
		said, err := operatortest.Check(c)
		if err != nil {
			return err
		}
		if n := len(slices.Concat(said...)); n == 0 {
			return fmt.Errorf("nothing was said")
		}
		return nil
	})
}

type sides struct {
	Sum   int64
	Names string
}
