// Package ptest runs pipelines in go test, each several times under conditions that must not matter.
//
// A pipeline runs under a simulated scheduler that draws the interleaving of its goroutines from a seed, and
// under real ones for the race detector; without interruption, and stopped and restored every few records;
// with barriers that wait and barriers that overtake; always with two subtasks a step and with the checks
// of package direct. All runs must give the same answer. The clock is virtual: no test waits.
//
//	func TestSums(t *testing.T) {
//		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
//			return double(sdk.Create("numbers", p, 1, 2, 3))
//		})
//		// got is 2, 4, 6
//	}
//
// A failing test prints how to repeat it: MILLSTREAM_SEED=… MILLSTREAM_RUNS=3 go test -run '^TestSums$'. A step that waits for
// anything but its input (a lock that another holds, a reply from a network) stops the virtual clock; test it
// with DoFn.
//
// A test that imports this package has flags:
//
//	-ptest.seed=7             as MILLSTREAM_SEED=7
//	-ptest.runs=100           as MILLSTREAM_RUNS=100
//	-ptest.backend=rocksdb    where state is kept: memory (the default), or rocksdb, with -tags rocksdb
//	-ptest.runner=distributed on worker processes, twice, instead of all that: see clustertest, which the test must import
package ptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/sim"
)

// Option changes how a pipeline is run.
type Option func(*config)

type config struct {
	runs        int
	parallelism int
	restore     int // -1: chosen
	simulated   bool
	crash       bool
	each        []func(*direct.Options)
}

// Parallelism sets the number of subtasks of each step. Default 2.
func Parallelism(n int) Option { return func(c *config) { c.parallelism = n } }

// RestoreEvery stops and restores the job after every n records read, in all runs but the first. Default:
// drawn from the seed. 0: never.
func RestoreEvery(n int) Option { return func(c *config) { c.restore = n } }

// Crash breaks the job off at steps drawn from the seed, up to five times a run, in all runs but the first of each
// scheduler, and restores it from its last checkpoint. What was processed after that is processed again.
func Crash() Option { return func(c *config) { c.crash = true } }

// Runs sets the number of simulated runs. Default 3. With 1, SimulatedOnly and a fixed seed a pipeline whose
// answer depends on the interleaving can be tested.
func Runs(n int) Option { return func(c *config) { c.runs = n } }

// SimulatedOnly leaves out the runs with real goroutines.
func SimulatedOnly() Option { return func(c *config) { c.simulated = true } }

// Direct changes the options of each run, such as its state backend.
func Direct(f func(*direct.Options)) Option { return func(c *config) { c.each = append(c.each, f) } }

// Run runs the pipeline, which has its assertions in it (package passert), and returns what the first,
// uninterrupted run counted.
func Run(t testing.TB, build func(*sdk.Pipeline) error, opts ...Option) *direct.Result {
	t.Helper()
	return runAll(t, build, opts, func() string { return "" })
}

// runAll runs the pipeline in every way, calls check after each run, and fails with what it says.
func runAll(t testing.TB, build func(*sdk.Pipeline) error, opts []Option, check func() string) (first *direct.Result) {
	t.Helper()
	c := config{runs: 3, parallelism: 2, restore: -1}
	for _, o := range opts {
		o(&c)
	}
	seed, runs := seeds.From(t, c.runs)
	c.runs = runs
	goroutines := 2
	if c.simulated {
		goroutines = 0
	}
	if runnerName != "direct" {
		if r, ok := c.runElsewhere(t, build, seed, check); ok {
			return r
		}
		c.runs, goroutines = 1, 0
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	var read int64
	var steps int // of the last undisturbed run
	for i := range c.runs + goroutines {
		var s scheduler = sim.New(seed + uint64(i))
		how := fmt.Sprintf("run %d, simulated", i+1)
		if i >= c.runs {
			s, how = sim.NewParallel(), fmt.Sprintf("run %d, goroutines", i+1)
		}
		o := direct.Options{Parallelism: c.parallelism, ReadBatch: 1, Scheduler: s, Backend: backend(t)}
		if o.Backend != nil {
			o.Dir = t.TempDir()
		}
		crashes := 0
		if i > 0 {
			o.RestoreEvery, o.Overtaking = restoreEvery(c.restore, read, rnd), rnd.IntN(2) == 0
		}
		if i == c.runs { // the goroutines run undisturbed once
			o.RestoreEvery = 0
		}
		if c.crash && i > 0 && i != c.runs {
			o.CheckpointInterval = time.Duration(5+rnd.IntN(40)) * time.Millisecond
			left := 1 + rnd.IntN(5)
			o.Crash = func(crash func()) {
				if left--; left >= 0 {
					s.After(1+rnd.IntN(1+steps), func() { crashes++; crash() })
				}
			}
		}
		for _, f := range c.each {
			f(&o)
		}
		r, err := direct.Run(context.Background(), t.Name(), build, o)
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = check()
		}
		if wrong != "" {
			t.Fatalf("%s, restored every %d records, crashed %d times, overtaking %v: %s\n%s", how, o.RestoreEvery, crashes, o.Overtaking, wrong, seeds.RerunMany(t, seed, c.runs))
		}
		if i == 0 {
			first, read = r, recordsRead(r)
		}
		if i == 0 || i == c.runs {
			steps = s.Steps()
		}
	}
	return first
}

// scheduler is what runs are under.
type scheduler interface {
	engine.Scheduler
	// After calls f after n more steps; Steps counts them.
	After(n int, f func())
	Steps() int
}

// maxRestores bounds the restores of one run: each starts the job anew.
const maxRestores = 50

// restoreEvery chooses after how many records a run is restored, for a pipeline that reads so many.
func restoreEvery(fixed int, read int64, rnd *rand.Rand) int {
	if fixed >= 0 {
		return fixed
	}
	least := 1 + int(read)/maxRestores
	return least + rnd.IntN(4*least)
}

// recordsRead is the number of records that the sources of a run have read.
func recordsRead(r *direct.Result) (n int64) {
	for _, s := range r.Steps {
		if s.RecordsIn == 0 {
			n += s.RecordsOut
		}
	}
	return n
}
