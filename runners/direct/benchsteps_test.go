package direct_test

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/batches"
)

// benchStep is a way to the sums of BenchmarkPath that costs more than the shortest one.
type benchStep struct {
	name  string
	build func(*sdk.Pipeline, pairs) pairs
	pause int64 // see stream
}

// benchSteps begins with path (a), which the others are compared with. A key has 40 records a window of it.
var benchSteps = []benchStep{
	{name: "path (a)", build: only(summed)},
	{name: "early pane every 10", build: only(func(in pairs) pairs { return early(in, 1, trigger.AfterCount(10), sdk.Discarding) })},
	// What waits for the clock is a matter of the trigger machine, which keeps a state for each key and window.
	{name: "the same, or after a minute of the clock", build: only(func(in pairs) pairs {
		return early(in, 1, trigger.AfterFirst(trigger.AfterCount(10), trigger.AfterProcessingTime(time.Minute)), sdk.Discarding)
	})},
	{name: "early pane every 100, long windows", build: only(func(in pairs) pairs { return early(in, 10, trigger.AfterCount(100), sdk.Discarding) })},
	{name: "retracting, early pane every 10", build: only(func(in pairs) pairs {
		changes := sdk.Changes("changes", early(in, 1, trigger.AfterCount(10), sdk.AccumulatingAndRetracting))
		return sdk.Map("signed", changes, func(c sdk.Change[sdk.KV[int64, int64]]) sdk.KV[int64, int64] {
			if c.Retraction {
				c.Value.Value = -c.Value.Value
			}
			return c.Value
		})
	})},
	{name: "sessions", build: only(func(in pairs) pairs {
		return sdk.CombinePerKey("sum", sdk.WindowInto("sessions", in, window.Sessions(sessionGap*time.Millisecond)), sum{})
	}), pause: 20_000_000 + 2*sessionGap},
	{name: "cell: Value", build: only(func(in pairs) pairs { return sdk.ParDoPerKey("sum", windowed(in), &valueSum{}) })},
	{name: "cell: Map of 10", build: only(func(in pairs) pairs { return sdk.ParDoPerKey("sum", windowed(in), &mapSum{}) })},
	{name: "cell: Value, and a timer that moves on", build: only(func(in pairs) pairs { return sdk.ParDoPerKey("sum", windowed(in), &timerSum{}) })},
	{name: "group by key", build: only(func(in pairs) pairs {
		return sdk.MapValues("sum", sdk.GroupByKey("group", windowed(in)), func(vs sdk.Iterable[int64]) int64 { return totalOf(vs.All()) })
	})},
	{name: "batches of 10", build: only(func(in pairs) pairs { return batched(in, batches.Limits{Count: 10}) })},
	{name: "batches of 10, or of 64 bytes, or after a minute of the clock", build: only(func(in pairs) pairs {
		return batched(in, batches.Limits{Count: 10, Bytes: 64, Within: time.Minute})
	})},
	{name: "batches of 40", build: only(func(in pairs) pairs { return batched(in, batches.Limits{Count: 40}) })},
	{name: "side view", build: func(p *sdk.Pipeline, in pairs) pairs {
		var rates []sdk.KV[int64, int64]
		for i := range int64(100) {
			rates = append(rates, sdk.Pair(i, int64(1)))
		}
		view := sdk.AsMap("rates", sdk.Create("rate", p, rates...))
		return summed(sdk.MapWith("times", in, view, func(kv sdk.KV[int64, int64], rates map[int64]int64) (sdk.KV[int64, int64], error) {
			return sdk.Pair(kv.Key, kv.Value*rates[kv.Key%100]), nil
		}))
	}},
}

// sessionGap, in ms, is four times what is between two records of a key.
const sessionGap = 1_000_000

func only(f func(pairs) pairs) func(*sdk.Pipeline, pairs) pairs {
	return func(_ *sdk.Pipeline, in pairs) pairs { return f(in) }
}

func windowed(in pairs) pairs {
	return sdk.WindowInto("window", in, window.Fixed(benchWindow*time.Millisecond))
}

func early(in pairs, windows time.Duration, t trigger.Trigger, a sdk.Accumulation) pairs {
	w := sdk.WindowInto("window", in, window.Fixed(windows*benchWindow*time.Millisecond), sdk.Trigger(trigger.AfterWatermark().Early(t)), a)
	return sdk.CombinePerKey("sum", w, invertibleSum{})
}

func batched(in pairs, l batches.Limits) pairs {
	return sdk.MapValues("sum", batches.ByKey("batch", windowed(in), l), func(vs []int64) int64 { return totalOf(slices.Values(vs)) })
}

func totalOf(vs iter.Seq[int64]) (n int64) {
	for v := range vs {
		n += v
	}
	return n
}

type invertibleSum struct{ sum }

func (invertibleSum) RemoveInput(a, v int64) int64 { return a - v }

// valueSum is a sum by hand.
type valueSum struct{ sum state.Value[int64] }

func (s *valueSum) Declare(d *sdk.KeyedDecl) {
	s.sum = state.NewValue[int64](d, "sum")
	sdk.OnWindowExpiry(d, s.emit)
}

func (s *valueSum) ProcessElement(_ *sdk.ProcessContext, _, v int64, _ *sdk.Emitter[sdk.KV[int64, int64]]) error {
	s.sum.Set(s.sum.Get() + v)
	return nil
}

func (s *valueSum) emit(_ *sdk.ProcessContext, k int64, out *sdk.Emitter[sdk.KV[int64, int64]]) error {
	out.Emit(sdk.Pair(k, s.sum.Get()))
	return nil
}

// mapSum has a sum for each last digit of the price.
type mapSum struct{ sums state.Map[int64, int64] }

func (s *mapSum) Declare(d *sdk.KeyedDecl) {
	s.sums = state.NewMap[int64, int64](d, "sums")
	sdk.OnWindowExpiry(d, s.emit)
}

func (s *mapSum) ProcessElement(_ *sdk.ProcessContext, _, v int64, _ *sdk.Emitter[sdk.KV[int64, int64]]) error {
	s.sums.Put(v%10, s.sums.Get(v%10)+v)
	return nil
}

func (s *mapSum) emit(_ *sdk.ProcessContext, k int64, out *sdk.Emitter[sdk.KV[int64, int64]]) error {
	var all int64
	for _, sum := range s.sums.All() {
		all += sum
	}
	out.Emit(sdk.Pair(k, all))
	return nil
}

// timerSum emits the sum of a key that was silent for four times what is usual, or at the end of its window.
type timerSum struct {
	sum   state.Value[int64]
	quiet sdk.Timer
}

func (s *timerSum) Declare(d *sdk.KeyedDecl) {
	s.sum = state.NewValue[int64](d, "sum")
	s.quiet = sdk.EventTimer(d, "quiet", s.emit)
}

func (s *timerSum) ProcessElement(c *sdk.ProcessContext, _, v int64, _ *sdk.Emitter[sdk.KV[int64, int64]]) error {
	s.sum.Set(s.sum.Get() + v)
	s.quiet.Set(c.Timestamp().Add(sessionGap * time.Millisecond))
	return nil
}

func (s *timerSum) emit(_ *sdk.ProcessContext, k int64, out *sdk.Emitter[sdk.KV[int64, int64]]) error {
	out.Emit(sdk.Pair(k, s.sum.Get()))
	s.sum.Clear()
	return nil
}

// stepCost is what one run of a step took, a record.
type stepCost struct{ nanoseconds, ratio, bytes, allocs float64 }

// BenchmarkSteps prints what a record costs by each of benchSteps, in processor time, and that as a multiple of path
// (a). Every round runs all of them, one after the other, and compares them with path (a) of the same round; the table
// has medians of the rounds. The allocations are those between the first million records and the end of reading.
func BenchmarkSteps(b *testing.B) {
	for _, disorder := range []bool{false, true} {
		order := map[bool]string{false: "ordered", true: "disordered"}[disorder]
		b.Run(order, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			want := handLoop(disorder)
			costs := make([][]stepCost, len(benchSteps))
			for b.Loop() {
				for i, s := range benchSteps {
					costs[i] = append(costs[i], s.run(b, disorder, want))
					now := &costs[i][len(costs[i])-1]
					now.ratio = now.nanoseconds / costs[0][len(costs[i])-1].nanoseconds
				}
			}
			printSteps(b, order, costs)
			b.ReportMetric(0, "ns/op") // of a round of all
		})
	}
}

func (s *benchStep) run(b *testing.B, disorder bool, want int64) stepCost {
	runtime.GC() // what the one before has left
	start := cpuTime()
	got := runBench(b, direct.Options{}, func(p *sdk.Pipeline) pairs {
		return s.build(p, paired(p, stream{disorder, s.pause}, false))
	})
	took := cpuTime() - start
	if got != want {
		b.Fatalf("%s: checksum %d, want %d", s.name, got, want)
	}
	records := float64(benchRecords - 1<<20)
	return stepCost{
		nanoseconds: float64(took.Nanoseconds()) / benchRecords,
		bytes:       float64(steady.to.TotalAlloc-steady.from.TotalAlloc) / records,
		allocs:      float64(steady.to.Mallocs-steady.from.Mallocs) / records,
	}
}

func printSteps(b *testing.B, order string, costs [][]stepCost) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s, %d rounds\tcpu-ns/rec\tof path (a)\tB/rec\tallocs/rec\t\n", order, len(costs[0]))
	for i, of := range costs {
		median := func(f func(stepCost) float64) float64 {
			var v []float64
			for _, c := range of {
				v = append(v, f(c))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.2f\t%.4f\t\n", benchSteps[i].name,
			median(func(c stepCost) float64 { return c.nanoseconds }), median(func(c stepCost) float64 { return c.ratio }),
			median(func(c stepCost) float64 { return c.bytes }), median(func(c stepCost) float64 { return c.allocs }))
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}
