package ptest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/seeds"
)

// Job is one run of a pipeline by another runner than the direct one. It is for package clustertest.
type Job struct {
	T           testing.TB
	Call        int // of Run or Collect within the test, from 0
	Build       func(*sdk.Pipeline) error
	Parallelism int
	Backend     string
	Overtaking  bool // barriers overtake
	Kill        bool // a worker, after its part of a checkpoint
}

// Runner runs a job to its end. In a process that is a worker of another call it returns nil and no error: that call is then run by
// the direct runner, for what the test does with its answer.
type Runner func(Job) (*direct.Result, error)

// runners are what -ptest.runner can name besides direct.
var runners = map[string]Runner{}

// AddRunner gives -ptest.runner another name. It is for package clustertest.
func AddRunner(name string, r Runner) { runners[name] = r }

var calls struct {
	sync.Mutex
	n map[string]int // by name of the test
}

// nextCall numbers the calls of a test.
func nextCall(t testing.TB) int {
	calls.Lock()
	defer calls.Unlock()
	n, again := calls.n[t.Name()]
	if !again {
		if calls.n == nil {
			calls.n = map[string]int{}
		}
		t.Cleanup(func() { // for -count
			calls.Lock()
			defer calls.Unlock()
			delete(calls.n, t.Name())
		})
	}
	calls.n[t.Name()] = n + 1
	return n
}

// runElsewhere runs the pipeline by the runner of the flag: once undisturbed, and once with the barriers that the seed draws, and with Crash
// a kill. It returns false if the pipeline is to be run directly instead.
func (c *config) runElsewhere(t testing.TB, build func(*sdk.Pipeline) error, seed uint64, check func() string) (first *direct.Result, ok bool) {
	t.Helper()
	run := runners[runnerName]
	if run == nil {
		names := append([]string{"direct"}, slices.Sorted(maps.Keys(runners))...)
		t.Fatalf("-ptest.runner=%s: this test has %s; distributed needs import _ \"github.com/millstream/millstream/testing/clustertest\"", runnerName, strings.Join(names, ", "))
	}
	call := nextCall(t)
	if why := c.directOnly(t, build); why != "" {
		t.Fatalf("-ptest.runner=%s: %s: leave the flag out for this test", runnerName, why)
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	for i := range 2 {
		j := Job{T: t, Call: call, Build: build, Parallelism: c.parallelism, Backend: backendName}
		if i > 0 {
			j.Overtaking, j.Kill = rnd.IntN(2) == 0, c.crash
		}
		r, err := run(j)
		if r == nil && err == nil {
			return nil, false
		}
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = check()
		}
		if wrong != "" {
			t.Fatalf("%s on %s, run %d, overtaking %v, a worker is killed %v: %s\n%s -ptest.runner=%[1]s -ptest.backend=%[2]s", runnerName, backendName, i+1, j.Overtaking, j.Kill, wrong, seeds.Rerun(t, seed))
		}
		if i == 0 {
			first = r
		}
	}
	return first, true
}

// directOnly says why the pipeline cannot be run by another runner, if that is so.
func (c *config) directOnly(t testing.TB, build func(*sdk.Pipeline) error) string {
	if _, benchmark := t.(*testing.B); benchmark {
		return "workers run tests, not benchmarks"
	}
	switch {
	case c.simulated:
		return "with SimulatedOnly it needs the scheduler of the direct runner"
	case len(c.each) > 0:
		return "it has options of the direct runner"
	}
	if g, err := sdk.Build(t.Name(), build); err == nil && g.Clock != nil && len(g.Clock.Movers) > 0 {
		return fmt.Sprintf("the script of step %q moves the processing time, which in several processes is that of the machine", g.Clock.Movers[0])
	}
	return "" // what cannot be built is reported by the run
}
