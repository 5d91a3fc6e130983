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
	if !slices.Contains(os.Args[1:], "--role=worker") {
		os.Exit(m.Run())
	}
	if err := work(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "clustertest: worker process %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work runs a worker with the arguments that a coordinator starts it with.
func work(args []string) error {
	c := distributed.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	fs.String("runner", "", "")
	fs.StringVar(&c.Role, "role", "", "")
	fs.StringVar(&c.Coordinator, "coordinator", "", "")
	fs.StringVar(&c.Listen, "listen", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return distributed.RunWorker(context.Background(), c, program(nil))
}

// drivers are what keeps state. A file with the tag rocksdb adds to them.
var drivers = map[string]statebackend.Driver{"memory": memory.Driver{}}

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
		Storages: []storage.Driver{file.Driver},
	}
}

// Option changes how a pipeline is run.
type Option func(*config)

type config struct {
	workers, parallelism int
	backend, mode        string
	interval             time.Duration
	kill                 bool
	steps                *[]coordinator.Step
}

// Workers sets the number of worker processes. Default 2.
func Workers(n int) Option { return func(c *config) { c.workers = n } }

// Parallelism sets the number of subtasks of each step. Default 2.
func Parallelism(n int) Option { return func(c *config) { c.parallelism = n } }

// Backend sets what keeps state: memory, filesystem, which is memory with durable checkpoints, or, with -tags rocksdb, rocksdb. Default
// filesystem.
func Backend(name string) Option { return func(c *config) { c.backend = name } }

// Mode sets how barriers go: aligned, unaligned, or auto, which is aligned and after 20 ms unaligned. Default aligned.
func Mode(mode string) Option { return func(c *config) { c.mode = mode } }

// Interval sets the time between two checkpoints. Default 100 ms.
func Interval(d time.Duration) Option { return func(c *config) { c.interval = d } }

// KillWorker kills a worker, as kill -9 does, when it has taken its part of a checkpoint that is then not completed.
// Another takes its place, and the job goes on from the checkpoint before, or from the start.
func KillWorker() Option { return func(c *config) { c.kill = true } }

// Steps sets dst to what each step has counted since the job was restored last: records, and the metrics of its code.
func Steps(dst *[]coordinator.Step) Option { return func(c *config) { c.steps = dst } }

// Run runs the pipeline of that name to its end; it must be bounded. A job that fails, fails the test. It sets
// variables of the environment, so the test cannot be parallel.
func Run(t testing.TB, name string, args []string, opts ...Option) {
	t.Helper()
	if registered == nil {
		t.Fatal("clustertest: TestMain must call clustertest.Main, for the workers are processes of this test binary")
	}
	c := config{workers: 2, parallelism: 2, backend: "filesystem", mode: "aligned", interval: 100 * time.Millisecond}
	for _, o := range opts {
		o(&c)
	}
	if c.kill {
		// Read by the workers when they start. One of them fires, once.
		t.Setenv("MILLSTREAM_FAILPOINTS", "after-prepare=kill")
		t.Setenv("MILLSTREAM_FAILPOINTS_ONCE", t.TempDir())
	}
	var progress func(coordinator.Progress)
	if c.steps != nil {
		progress = func(p coordinator.Progress) { *c.steps = p.Steps } // called by one goroutine, which ends with Run
	}
	dir := ""
	if c.backend != "memory" {
		dir = "file://" + t.TempDir()
	}
	err := distributed.Run(t.Context(), distributed.Config{
		OnProgress: progress,
		Role:       "local", Workers: c.workers, Parallelism: c.parallelism,
		StateBackend: c.backend, StateCache: 64 << 20, CheckpointDir: dir,
		CheckpointInterval: c.interval, CheckpointMode: c.mode, AlignmentTimeout: 20 * time.Millisecond, RetainCheckpoints: 3,
		Scratch: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, program(append([]string{name}, args...)))
	if err != nil {
		t.Fatalf("clustertest: pipeline %q: %v", name, err)
	}
}
