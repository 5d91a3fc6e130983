//go:build rocksdb

// Command spill measures a keyed sum over state ten times the cache, with uniform keys: Millstream's direct runner over
// RocksDB beside loop/loop.cc, a loop by hand over RocksDB's C++ interface that reads and writes the same entries.
//
//	make bench-state
//
// Each run is a process of its own on one processor. The figures are its processor time, RocksDB's threads included, and
// its wall time, from the first to the last record after every key is there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/rocksdb"
)

var (
	keys    = flag.Int64("keys", 2_000_000, "keys")
	records = flag.Int64("records", 2_000_000, "records after each key is there")
	runs    = flag.Int("runs", 5, "runs of each")
	loop    = flag.String("loop", "", "`program` made of loop/loop.cc, to run beside")
	batch   = flag.Int("batch", 1024, "records read at once")
	one     = flag.Bool("one", false, "run Millstream once, in this process")
	dir     = flag.String("dir", "", "where state lives; default: the directory for temporary files")
	profile = flag.String("cpuprofile", "", "with -one: write a profile of the processor time to this `file`")
)

// entryBytes is about what an entry takes in RocksDB: a key of 29 bytes and a value of 7.
const entryBytes = 36

// cache is a tenth of the state: what the table may keep, and, again, what RocksDB may.
func cache() int64 { return max(*keys*entryBytes/10, 4<<20) }

// result is what one run says.
type result struct {
	CPU, Wall float64 // seconds
	Checksum  uint64
}

func main() {
	flag.Parse()
	var err error
	if *one {
		err = measure()
	} else {
		err = compare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "spill:", err)
		os.Exit(1)
	}
}

// compare runs both in turn and prints the medians.
func compare() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The loop has no table above RocksDB. It is run with the block cache that RocksDB has below Millstream, and with all
	// the memory that both have there.
	contenders := []struct {
		name string
		args []string
	}{
		{"millstream", []string{self, "-one"}},
		{"loop", []string{*loop, strconv.FormatInt(cache(), 10)}},
		{"loop, memory of both", []string{*loop, strconv.FormatInt(2*cache(), 10)}},
	}
	all := make([][]result, len(contenders))
	for i := range *runs {
		for k, c := range contenders {
			scratch, err := os.MkdirTemp(*dir, "spill-")
			if err != nil {
				return err
			}
			args := append([]string{"-c", "0"}, c.args...)
			if k == 0 {
				args = append(args, "-keys", fmt.Sprint(*keys), "-records", fmt.Sprint(*records), "-batch", fmt.Sprint(*batch), "-dir", scratch)
			} else {
				args = append(args, fmt.Sprint(*keys), fmt.Sprint(*records), fmt.Sprint(*batch), scratch)
			}
			cmd := exec.Command("taskset", args...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			os.RemoveAll(scratch)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			var r result
			if err := json.Unmarshal(out, &r); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			all[k] = append(all[k], r)
			fmt.Printf("run %d  %-22s cpu %6.2f s  wall %6.2f s  checksum %016x\n", i+1, c.name, r.CPU, r.Wall, r.Checksum)
			if r.Checksum != all[0][0].Checksum {
				return fmt.Errorf("%s: checksum %016x, want %016x", c.name, r.Checksum, all[0][0].Checksum)
			}
		}
	}
	fmt.Printf("\n%d records, %d keys, %.1f MB of state, %.1f MB of cache; medians of %d runs\n", *records, *keys, float64(*keys)*entryBytes/1e6, float64(cache())/1e6, *runs)
	fmt.Printf("%-22s %12s %12s %10s %10s\n", "", "krec/cpu-s", "krec/s", "of cpu", "of wall")
	ours := [2]float64{}
	for k, c := range contenders {
		cpu := median(all[k], func(r result) float64 { return r.CPU })
		wall := median(all[k], func(r result) float64 { return r.Wall })
		if k == 0 {
			ours = [2]float64{cpu, wall}
		}
		n := float64(*records) / 1e3
		fmt.Printf("%-22s %12.1f %12.1f %10.2f %10.2f\n", c.name, n/cpu, n/wall, cpu/ours[0], wall/ours[1])
	}
	fmt.Println("the last columns: Millstream's speed as a part of the loop's")
	return nil
}

func median(rs []result, of func(result) float64) float64 {
	var v []float64
	for _, r := range rs {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// mix is splitmix64, as in loop/loop.cc.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// recordOf is record i: first each key once, then any.
func recordOf(i int64) sdk.KV[int64, int64] {
	k := i
	if i >= *keys {
		k = int64(mix(uint64(i)) % uint64(*keys))
	}
	return sdk.Pair(int64(mix(uint64(k))>>1), i&1023)
}

type source struct{ start func() }

func (source) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (source) SplitID(int64) string                    { return "all" }
func (s source) Open(context.Context, connector.Subtask) (connector.Reader[sdk.KV[int64, int64], int64], error) {
	return &reader{source: s}, nil
}

type reader struct {
	source
	next    int64
	started bool
	buf     []sdk.KV[int64, int64]
}

func (r *reader) Assign(s []int64) error { r.next = s[0]; return nil }
func (r *reader) Close() error           { return nil }
func (r *reader) Read(_ context.Context, limit int) (b connector.Batch[sdk.KV[int64, int64], int64], _ error) {
	end := *keys
	if r.next >= end {
		if !r.started {
			r.started = true
			r.start()
		}
		end += *records
	}
	if r.next == end {
		stop()
		b.Status = connector.End
		return b, nil
	}
	r.buf = r.buf[:0]
	for ; len(r.buf) < limit && r.next < end; r.next++ {
		r.buf = append(r.buf, recordOf(r.next))
	}
	b.Records, b.Split = r.buf, r.next
	return b, nil
}

type sum struct{}

func (sum) CreateAccumulator() int64           { return 0 }
func (sum) AddInput(a, v int64) int64          { return a + v }
func (sum) MergeAccumulators(a, b int64) int64 { return a + b }
func (sum) ExtractOutput(a int64) int64        { return a }

// bounded is RocksDB with so much memory.
type bounded struct {
	rocksdb.Driver
	bytes int64
}

func (d bounded) Open(ctx context.Context, c statebackend.Config) (statebackend.Backend, error) {
	c.MemoryBytes = d.bytes
	return d.Driver.Open(ctx, c)
}

// The clock of the measured part; source and sum run in one goroutine.
var (
	began  time.Time
	cpu    time.Duration
	timing result
)

func start() {
	began, cpu = time.Now(), cpuTime()
}

func stop() {
	pprof.StopCPUProfile()
	timing.CPU, timing.Wall = (cpuTime() - cpu).Seconds(), time.Since(began).Seconds()
}

// cpuTime is the processor time of this process, RocksDB's threads with it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func measure() error {
	runtime.GOMAXPROCS(1)
	begin := start
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		begin = func() {
			if err := pprof.StartCPUProfile(f); err != nil {
				panic(err)
			}
			start()
		}
	}
	build := func(p *sdk.Pipeline) error {
		s := sdk.CombinePerKey("sum", sdk.Read("records", p, source{begin}), sum{})
		sdk.Map("checksum", s, func(kv sdk.KV[int64, int64]) bool {
			timing.Checksum += mix(uint64(kv.Key) ^ uint64(kv.Value))
			return true
		})
		return nil
	}
	o := direct.Options{
		Parallelism: 1, NoChecks: true, Backend: bounded{bytes: cache()}, Dir: *dir, CacheBytes: cache(), ReadBatch: *batch,
		WatermarkInterval: 50 * time.Millisecond,
	}
	if _, err := direct.Run(context.Background(), "spill", build, o); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(timing)
}
