//go:build rocksdb

// Command stall measures what checkpoints take from the record path of the direct runner over RocksDB, with state
// inside the cache: throughput with a checkpoint every second beside none, and how long the path stands still.
//
//	go run -tags rocksdb ./stall
//
// The path is a map, a fixed window and a sum for each of so many keys, all of which change between two checkpoints.
// The source times the gaps between its reads: while it is not asked for records, its subtask does something else. Of
// each checkpoint, the longest gap counts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend/rocksdb"
)

var (
	seconds = flag.Int("seconds", 12, "length of a run")
	runs    = flag.Int("runs", 3, "runs of each")
	profile = flag.String("cpuprofile", "", "write a profile of the processor time of all runs to this `file`")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
		os.Exit(1)
	}
}

func run() error {
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("%-8s %-12s %12s %12s %8s %8s\n", "keys", "checkpoints", "Mrec/s", "Mrec/cpu-s", "of wall", "of cpu")
	for _, keys := range []int64{10_000, 100_000} {
		var plain [2]float64
		for _, every := range []time.Duration{0, time.Second}[:2*min(*runs, 1)] {
			var wall, cpu []float64
			for range *runs {
				r, err := measure(keys, 64, every)
				if err != nil {
					return err
				}
				wall = append(wall, r.wall)
				cpu = append(cpu, r.cpu)
			}
			m := [2]float64{median(wall), median(cpu)}
			if every == 0 {
				plain = m
			}
			fmt.Printf("%-8d %-12s %12.2f %12.2f %8.2f %8.2f\n", keys, interval(every), m[0], m[1], m[0]/plain[0], m[1]/plain[1])
		}
	}
	fmt.Printf("\n%-8s %-12s %-6s %8s %10s %10s %10s %14s\n", "keys", "checkpoints", "clock", "number", "p50", "p99", "longest", "p99 of a read")
	for _, keys := range []int64{10_000, 100_000} {
		every := 100 * time.Millisecond
		r, err := measure(keys, 0, every)
		if err != nil {
			return err
		}
		for i, d := range [][]time.Duration{r.stalls, r.worked} {
			clock := []string{"wall", "cpu"}[i]
			slices.Sort(d)
			fmt.Printf("%-8d %-12s %-6s %8d %10v %10v %10v %14v\n", keys, interval(every), clock, len(d), at(d, 0.5), at(d, 0.99), at(d, 1), r.gap)
		}
	}
	return nil
}

func interval(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return "every " + d.String()
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// at is a quantile of sorted durations.
func at(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[int(q*float64(len(d)-1)+0.5)].Round(time.Microsecond)
}

// result is what one run says.
type result struct {
	wall, cpu float64         // million records a second
	stalls    []time.Duration // longest gap of each checkpoint
	worked    []time.Duration // likewise, by processor time of the subtask's thread
	gap       time.Duration   // 99 of 100 gaps are shorter
}

type source struct{ r *reader }

func (source) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (source) SplitID(int64) string                    { return "all" }
func (s source) Open(context.Context, connector.Subtask) (connector.Reader[int64, int64], error) {
	runtime.LockOSThread() // the subtask's, for threadTime
	// Room for every gap: a slice that grows would make one.
	*s.r = reader{began: time.Now(), cpu: cpuTime(), gaps: make([]gap, 0, *seconds*100_000)}
	return s.r, nil
}

type reader struct {
	next    int64
	buf     []int64
	began   time.Time
	cpu     time.Duration
	last    time.Time
	lastCPU time.Duration
	gaps    []gap
	took    time.Duration
	tookCPU time.Duration
}

// gap is the time from one read to the next.
type gap struct {
	end       time.Duration // since the beginning
	wall, cpu time.Duration // cpu: of the subtask's thread alone
}

func (r *reader) Assign(s []int64) error { r.next = s[0]; return nil }
func (r *reader) Close() error           { return nil }
func (r *reader) Read(_ context.Context, limit int) (b connector.Batch[int64, int64], _ error) {
	now, cpu := time.Now(), threadTime()
	if !r.last.IsZero() {
		r.gaps = append(r.gaps, gap{now.Sub(r.began), now.Sub(r.last), cpu - r.lastCPU})
	}
	r.last, r.lastCPU = now, cpu
	if now.Sub(r.began) >= time.Duration(*seconds)*time.Second {
		r.took, r.tookCPU = now.Sub(r.began), cpuTime()-r.cpu
		b.Status = connector.End
		return b, nil
	}
	r.buf = r.buf[:0]
	for len(r.buf) < limit {
		r.buf = append(r.buf, r.next)
		r.next++
	}
	b.Records, b.Split = r.buf, r.next
	return b, nil
}

type sum struct{}

func (sum) CreateAccumulator() int64           { return 0 }
func (sum) AddInput(a, v int64) int64          { return a + v }
func (sum) MergeAccumulators(a, b int64) int64 { return a + b }
func (sum) ExtractOutput(a int64) int64        { return a }

// measure runs the path with so many records a key in each window; 0 is one window that does not end.
func measure(keys int64, perKey int, every time.Duration) (result, error) {
	var r reader
	build := func(p *sdk.Pipeline) error {
		ms := func(n int64) time.Time { return time.UnixMilli(n / keys) } // one record a key and millisecond
		in := sdk.Read("records", p, source{&r}, sdk.EventTime(ms, watermark.Monotonic()))
		kv := sdk.Map("pair", in, func(n int64) sdk.KV[int64, int64] { return sdk.Pair(n*2654435761%keys, n) })
		if perKey > 0 {
			kv = sdk.WindowInto("window", kv, window.Fixed(time.Duration(perKey)*time.Millisecond))
		}
		sdk.Map("drop", sdk.CombinePerKey("sum", kv, sum{}), func(kv sdk.KV[int64, int64]) bool { return true })
		return nil
	}
	dir, err := os.MkdirTemp("", "stall-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	o := direct.Options{Parallelism: 1, NoChecks: true, Backend: rocksdb.Driver{}, Dir: dir, CheckpointInterval: every, WatermarkInterval: 50 * time.Millisecond}
	res, err := direct.Run(context.Background(), "stall", build, o)
	if err != nil {
		return result{}, err
	}
	n := float64(r.next) / 1e6
	out := result{wall: n / r.took.Seconds(), cpu: n / r.tookCPU.Seconds()}
	if every > 0 {
		// Checkpoints are triggered at equal times, so each has one longest gap in its part of the run.
		out.stalls = make([]time.Duration, max(1, res.Checkpoints-1))
		out.worked = slices.Clone(out.stalls)
		part := r.took / time.Duration(len(out.stalls))
		for _, g := range r.gaps {
			k := min(int(g.end/part), len(out.stalls)-1)
			out.stalls[k] = max(out.stalls[k], g.wall)
			out.worked[k] = max(out.worked[k], g.cpu)
		}
	}
	var all []time.Duration
	for _, g := range r.gaps {
		all = append(all, g.wall)
	}
	slices.Sort(all)
	out.gap = at(all, 0.99)
	return out, nil
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
