// Package runners runs a pipeline by the settings that its program is given. Only main packages import it.
//
//	func main() { runners.Main("flight-delays", build) }
package runners

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/version"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// Exit codes of Main.
const (
	exitOK        = 0 // done, or stopped on request
	exitFailed    = 1 // the job failed, or a worker was refused
	exitUsage     = 2 // unknown flags, values or settings; nothing was run
	exitOrphan    = distributed.ExitOrphan
	exitDeposed   = 4   // another coordinator leads the job
	exitRefused   = 5   // --plan-diff: the program could not go on from a checkpoint of the saved plan
	exitInterrupt = 130 // a second SIGINT or SIGTERM
)

// exitCode says how a process ends whose job has ended with err.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, distributed.ErrDeposed):
		return exitDeposed
	}
	return exitFailed
}

// Option gives Main what a program links in.
type Option func(*linked)

type linked struct {
	backends map[string]statebackend.Driver
	storages []storage.Driver
}

// WithBackend makes a state backend available as --state-backend, by its name.
func WithBackend(d statebackend.Driver) Option {
	return func(l *linked) { l.backends[d.Name()] = d }
}

// WithStorage makes a kind of durable storage available to --checkpoint-dir, by its scheme. Files are
// always available.
func WithStorage(d storage.Driver) Option {
	return func(l *linked) { l.storages = append(l.storages, d) }
}

// Main parses the program's flags and the runners', lets build describe the pipeline, runs it and exits.
// build is called in every process of a job and may depend on nothing but the arguments.
func Main(name string, build func(*sdk.Pipeline) error, opts ...Option) {
	l := linked{backends: map[string]statebackend.Driver{"memory": memory.Driver{}}, storages: []storage.Driver{file.Driver}}
	for _, o := range opts {
		o(&l)
	}
	os.Exit(run(name, build, l, flag.CommandLine, os.Args[1:], os.Stdout, os.Stderr))
}

func run(name string, build func(*sdk.Pipeline) error, l linked, fs *flag.FlagSet, args []string, stdout, stderr io.Writer) int {
	c := NewConfig()
	c.RegisterFlags(fs)
	showVersion := fs.Bool("version", false, "print what this program was built from, and exit")
	printConfig := fs.Bool("print-config", false, "print every setting with its value, and exit")
	var printed planForm
	fs.Var(&printed, "plan", "print the plan of the pipeline as `json` (Apache Beam's pipeline proto), text or mermaid (a flowchart), and exit without running it; --plan alone is json")
	planDiff := fs.String("plan-diff", "", "compare the pipeline with a plan that --plan saved to `file`: which steps and which state change; exit with 5 if a checkpoint of that plan could not be restored")
	fs.Init(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are ours to print
	fs.Usage = func() {}
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return code
	}
	if err := applyEnv(fs); err != nil {
		return fail(exitUsage, err)
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout, name, fs)
		return exitOK
	case err != nil:
		return fail(exitUsage, clearer(fs, err))
	}
	switch {
	case *showVersion:
		fmt.Fprintln(stdout, version.String())
		return exitOK
	case *printConfig:
		fs.VisitAll(func(f *flag.Flag) { fmt.Fprintf(stdout, "--%s=%s\n", f.Name, f.Value) })
		return exitOK
	case fs.NArg() > 0:
		return fail(exitUsage, fmt.Errorf("unexpected argument %q: settings are flags, see --help", fs.Arg(0)))
	}
	if err := c.validate(); err != nil {
		return fail(exitUsage, err)
	}
	if c.Role != "worker" { // whose environment is that of its coordinator, as a rule
		for _, w := range misspelt(os.Environ()) {
			fmt.Fprintf(stderr, "%s: %s\n", name, w)
		}
	}
	if printed != "" || *planDiff != "" {
		code, err := showPlan(stdout, name, build, printed, *planDiff)
		if err != nil {
			return fail(code, err)
		}
		return code
	}
	c.imply(given(fs))
	if c.Runner == "distributed" {
		return runDistributed(name, build, l, c, fs, args, stderr)
	}
	if err := c.validateDirect(fs, l); err != nil {
		return fail(exitUsage, err)
	}
	return runDirect(name, build, l.backends[c.StateBackend], c.directOptions(fs), stderr)
}

func runDistributed(name string, build func(*sdk.Pipeline) error, l linked, c *Config, fs *flag.FlagSet, args []string, stderr io.Writer) int {
	program := distributed.Program{
		Name: name, Build: build, Args: args, Backends: l.backends, Storages: l.storages,
		Parse: func(args, _ []string) error { return parseOwn(fs, args) },
		Flags: func() map[string]string { return ownFlags(fs) },
	}
	config := distributed.Config{
		Role: c.Role, Workers: c.Workers, Parallelism: c.Parallelism, Coordinator: c.Coordinator, Listen: c.Listen,
		StateBackend: c.StateBackend, StateCache: int64(c.StateCache), CheckpointDir: c.CheckpointDir,
		CheckpointInterval: c.CheckpointInterval, CheckpointMode: c.CheckpointMode, AlignmentTimeout: c.AlignmentTimeout,
		RetainCheckpoints: c.RetainCheckpoints, MaxRetries: c.MaxRetries, WatermarkInterval: c.WatermarkInterval,
		Restore: c.Restore, NewRun: c.NewRun, AllowReplay: c.AllowReplay,
		HTTP: c.HTTP, TokenFile: c.TokenFile, TLSCert: c.TLSCert, TLSKey: c.TLSKey, TLSCA: c.TLSCA,
		Logger: slog.New(slog.NewTextHandler(stderr, nil)),
	}
	if err := config.Validate(program); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUsage
	}
	ctx := interruptible(stderr, c.Role)
	run := distributed.Run
	report := newReport(stderr)
	var steps []direct.Step // written by one goroutine, read when it is over
	if c.Role == "worker" {
		run = distributed.RunWorker
	} else {
		config.OnProgress = func(now coordinator.Progress) {
			steps = steps[:0]
			p := direct.Progress{Watermark: int64(eventtime.Max), Checkpoints: now.Checkpoints, CheckpointAge: now.CheckpointAge}
			for _, s := range now.Steps {
				steps = append(steps, direct.Step{Name: s.Name, RecordsIn: s.RecordsIn, RecordsOut: s.RecordsOut, LateDropped: s.LateDropped, LateTo: s.LateTo, Figures: s.Figures})
				if s.RecordsIn == 0 { // a source
					p.RecordsRead += s.RecordsOut
					p.Watermark = min(p.Watermark, s.Watermark)
				}
			}
			report.began(now.Attempt, now.Restored)
			report.progress(p)
		}
	}
	err := run(ctx, config, program)
	report.clear()
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitCode(err)
	case c.Role == "worker":
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "stopped before the end, after a last checkpoint")
		if c.CheckpointDir != "" {
			fmt.Fprintln(stderr, "the same command with --restore=latest goes on from there")
		}
	default:
		report.table(steps)
	}
	return exitOK
}

// parseOwn sets the program's own flags from the coordinator's arguments. Those of the runners in them are
// the coordinator's affair: a worker is told its settings.
func parseOwn(fs *flag.FlagSet, args []string) error {
	var err error
	fs.VisitAll(func(f *flag.Flag) {
		if !runnerFlag(f.Name) {
			err = errors.Join(err, f.Value.Set(f.DefValue))
		}
	})
	return errors.Join(err, fs.Parse(args))
}

// ownFlags returns the program's own flags, values by name.
func ownFlags(fs *flag.FlagSet) map[string]string {
	own := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) {
		if !runnerFlag(f.Name) {
			own[f.Name] = f.Value.String()
		}
	})
	return own
}

// directOptions are the settings of a direct run. Without --checkpoint-interval it has the direct runner's own.
func (c *Config) directOptions(fs *flag.FlagSet) direct.Options {
	o := direct.Options{
		Parallelism: c.Parallelism, CacheBytes: int64(c.StateCache), WatermarkInterval: c.WatermarkInterval,
		Overtaking: c.CheckpointMode == "unaligned",
	}
	if given(fs)["checkpoint-interval"] {
		o.CheckpointInterval = c.CheckpointInterval
	}
	return o
}

func runDirect(name string, build func(*sdk.Pipeline) error, backend statebackend.Driver, options direct.Options, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitFailed
	}
	ctx := interruptible(stderr, "local")
	dir, err := os.MkdirTemp("", name+"-state-")
	if err != nil {
		return fail(fmt.Errorf("make a directory for state: %w", err))
	}
	defer os.RemoveAll(dir)
	report := newReport(stderr)
	options.Backend, options.Dir = backend, dir
	options.Logger, options.Progress = slog.New(slog.NewTextHandler(stderr, nil)), report.progress
	result, err := direct.Run(ctx, name, build, options)
	report.clear()
	if err != nil {
		return fail(err)
	}
	report.table(result.Steps)
	if result.Stopped {
		fmt.Fprintln(stderr, "stopped before the end: the output so far is committed; the direct runner cannot go on from here, --runner=distributed with --checkpoint-dir can")
	}
	return exitOK
}

// farewell is what the first SIGINT or SIGTERM does to a process.
func farewell(role string) string {
	if role == "worker" {
		return "this worker leaves the job, which goes on from its last checkpoint with other workers or when one joins; once more to stop now"
	}
	return "stopping after a last checkpoint; once more to stop now"
}

// interruptible is cancelled by the first SIGINT or SIGTERM; the second ends the process.
func interruptible(stderr io.Writer, role string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(stderr, farewell(role))
		cancel()
		<-signals
		os.Exit(exitInterrupt)
	}()
	return ctx
}

// usage prints the program's own flags first, then the runners' by group.
func usage(w io.Writer, name string, fs *flag.FlagSet) {
	fmt.Fprintf(w, "Usage: %s [flags]\n", name)
	own := false
	fs.VisitAll(func(f *flag.Flag) {
		if !runnerFlag(f.Name) {
			if !own {
				fmt.Fprintln(w, "\nFlags of this program:")
				own = true
			}
			printFlag(w, f, "")
		}
	})
	for _, g := range flagGroups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, n := range g.names {
			env := envName(n)
			if g.title == information {
				env = "" // asked for once, on a command line
			}
			if f := fs.Lookup(n); f != nil {
				printFlag(w, f, env)
			}
		}
	}
	fmt.Fprintln(w, "\nExit codes:")
	for _, c := range []struct {
		code int
		what string
	}{
		{exitOK, "done, or stopped by the first SIGINT or SIGTERM after a last checkpoint; a worker: the job is done, or it has left"},
		{exitFailed, "the job failed, or this worker was refused"},
		{exitUsage, "wrong settings; nothing was run"},
		{exitOrphan, "a worker whose parent, the coordinator, is gone"},
		{exitDeposed, "another coordinator leads the job; this one has stopped: do not start it again while the other runs"},
		{exitRefused, "--plan-diff: a checkpoint of the saved plan could not be restored"},
		{exitInterrupt, "interrupted a second time; what came after the last checkpoint is processed again by --restore=latest"},
	} {
		fmt.Fprintf(w, "  %3d  %s\n", c.code, c.what)
	}
}

func printFlag(w io.Writer, f *flag.Flag, env string) {
	arg, help := flag.UnquoteUsage(f)
	if arg != "" {
		arg = "=" + arg
	}
	fmt.Fprintf(w, "  --%s%s\n        %s", f.Name, arg, help)
	switch f.DefValue {
	case "", "false", "0", "0s":
	default:
		fmt.Fprintf(w, " (default %s)", f.DefValue)
	}
	if env != "" {
		fmt.Fprintf(w, " [%s]", env)
	}
	fmt.Fprintln(w)
}

// progressEvery is how often a job reports to a file or pipe; to a terminal it does every second.
const progressEvery = 10 * time.Second
