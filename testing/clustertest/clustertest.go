// Package clustertest runs pipelines as a coordinator and worker processes in go test.
//
// The test process is the coordinator; its workers are processes of the same test binary, which becomes one in Main.
// They cannot see closures and variables of a test, so the pipelines are registered by name, and build may depend on
// nothing but its arguments:
//
//	func TestMain(m *testing.M) {
//		clustertest.Main(m, clustertest.Pipelines{"copy": buildCopy})
//	}
//
//	func TestCopy(t *testing.T) {
//		clustertest.Run(t, "copy", []string{from, to}, clustertest.KillWorker())
//		// compare what is in to
//	}
//
// Pipelines of package ptest run on processes too, in a test binary that imports this package:
//
//	go test ./… -ptest.runner=distributed -ptest.backend=filesystem
//
// runs each twice, the second time with a worker killed if it has ptest.Crash. A worker is then a process that runs the same test from its
// beginning, TestMain included, up to the same call of ptest.Run or Collect, counted within the test: the code of the test before
// the call runs in each worker too. Calls before it are run there by the direct runner. So a test must come to the same calls in the same order in
// every process, and what the pipeline is built of must be the same: no chance but that of -ptest.seed, no iteration over a map. What needs the
// direct runner fails, and says why: SimulatedOnly, Direct, scripts that move the clock, benchmarks.
//
// Sinks commit in the test process: what a memio.Collector has collected can be looked at there. Most of what can
// go wrong in a pipeline is found by package ptest, a hundred times faster; this one finds what needs processes: state
// in variables, a build that is not the same everywhere, types without an encoding, connectors that need one machine.
//
// It is apart from ptest so that not every test links the distributed runner.
package clustertest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// Pipelines are the pipelines that tests of a package run, by name. Each is built from the arguments that a test
// gives to Run.
type Pipelines map[string]func(p *sdk.Pipeline, args []string) error

var registered Pipelines // by Main, before any test

// Main runs the tests of a package and exits; or, in a process that a test has started as a worker, is that worker.
// It is the only thing that TestMain does.
func Main(m *testing.M, pipelines Pipelines) {
	registered = pipelines
	var err error
	switch {
	case slices.Contains(os.Args[1:], "--role=worker"):
		err = work(os.Args[1:], program(nil))
	case os.Getenv(jobFile) != "":
		err = lead(os.Getenv(jobFile))
	default:
		os.Exit(m.Run())
	}
	exit(err)
}

// exit ends a process of a job.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "clustertest: process %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work runs a worker with the arguments that a coordinator starts it with.
func work(args []string, p distributed.Program) error {
	c := distributed.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	fs.String("runner", "", "")
	fs.StringVar(&c.Role, "role", "", "")
	fs.StringVar(&c.Coordinator, "coordinator", "", "")
	fs.StringVar(&c.Listen, "listen", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return distributed.RunWorker(context.Background(), c, p)
}

// drivers are what keeps state. A file with the tag rocksdb adds to them.
var drivers = map[string]statebackend.Driver{"memory": memory.Driver{}}

var storages = []storage.Driver{file.Driver}

// Backends are the names that Backend takes.
func Backends() []string {
	names := []string{"filesystem"}
	for name := range drivers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// program is a registered pipeline; args are its name and then its arguments, which a worker learns later.
func program(args []string) distributed.Program {
	return distributed.Program{
		Name: "clustertest", Args: args,
		Parse: func(from, _ []string) error { args = from; return nil },
		Flags: func() map[string]string { return map[string]string{"args": strings.Join(args, "\n")} },
		Build: func(p *sdk.Pipeline) error {
			if len(args) == 0 || registered[args[0]] == nil {
				return fmt.Errorf("clustertest: no pipeline %q was given to Main", args[:min(1, len(args))])
			}
			return registered[args[0]](p, args[1:])
		},
		Backends: drivers,
		Storages: storages,
	}
}

// Option changes how a pipeline is run.
type Option func(*config)

type config struct {
	job
	failpoints string
	apart      bool
	outcome    *Outcome
}

// Outcome is how a job went.
type Outcome struct {
	Steps    []coordinator.Step // what each step has counted since the job was restored last
	Restored int64              // the checkpoint from which it was restored last; 0: none
	Crashes  int                // of the coordinator
}

// Workers sets the number of worker processes. Default 2.
func Workers(n int) Option { return func(c *config) { c.job.Workers = n } }

// Parallelism sets the number of subtasks of each step. Default 2.
func Parallelism(n int) Option { return func(c *config) { c.job.Parallelism = n } }

// Backend sets what keeps state: memory, filesystem, which is memory with durable checkpoints, or, with -tags rocksdb, rocksdb. Default
// filesystem.
func Backend(name string) Option { return func(c *config) { c.job.Backend = name } }

// Mode sets how barriers go: aligned, unaligned, or auto, which is aligned and after 20 ms unaligned. Default aligned.
func Mode(mode string) Option { return func(c *config) { c.job.Mode = mode } }

// Interval sets the time between two checkpoints. Default 100 ms.
func Interval(d time.Duration) Option { return func(c *config) { c.job.Interval = d } }

// KillWorker kills a worker, as kill -9 does, when it has taken its part of a checkpoint that is then not completed.
// Another takes its place, and the job goes on from the checkpoint before, or from the start.
func KillWorker() Option { return Failpoints(killWorker) }

const killWorker = "after-prepare=kill"

// Failpoints arms named places, of package failpoint, in all processes of the job. Each fires once.
func Failpoints(spec string) Option { return func(c *config) { c.failpoints = spec } }

// Cache sets the bytes of state that a worker process keeps decoded. Default 64 MiB.
func Cache(bytes int64) Option { return func(c *config) { c.job.Cache = bytes } }

// CoordinatorApart runs the coordinator as a process too, which may be killed: another then goes on from its checkpoints. The
// test process sees nothing of what sinks commit there.
func CoordinatorApart() Option { return func(c *config) { c.apart = true } }

// Result sets dst to how the job went; its Steps have the metrics of the pipeline's code.
func Result(dst *Outcome) Option { return func(c *config) { c.outcome = dst } }

// Run runs the pipeline of that name to its end; it must be bounded. A job that fails, fails the test. It sets
// variables of the environment, so the test cannot be parallel.
func Run(t testing.TB, name string, args []string, opts ...Option) {
	t.Helper()
	if err := Try(t, name, args, opts...); err != nil {
		t.Fatalf("clustertest: pipeline %q: %v", name, err)
	}
}

// Try is Run, and returns the error of a job that fails.
func Try(t testing.TB, name string, args []string, opts ...Option) error {
	t.Helper()
	if registered == nil {
		t.Fatal("clustertest: TestMain must call clustertest.Main, for the workers are processes of this test binary")
	}
	c := config{job: newJob(t)}
	c.Args = append([]string{name}, args...)
	for _, o := range opts {
		o(&c)
	}
	if c.failpoints != "" { // read by processes when they start
		t.Setenv("MILLSTREAM_FAILPOINTS", c.failpoints)
		t.Setenv("MILLSTREAM_FAILPOINTS_ONCE", t.TempDir())
	}
	if c.Backend != "memory" {
		c.Checkpoints = fileURL(t.TempDir())
	}
	var out Outcome
	var err error
	if c.apart {
		err = c.job.apart(t, &out)
	} else {
		err = c.run(t.Context(), t.Output(), program(c.Args), &out)
	}
	if c.outcome != nil {
		*c.outcome = out
	}
	return err
}
