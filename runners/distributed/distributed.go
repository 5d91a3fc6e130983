// Package distributed runs a pipeline as a coordinator and worker processes, exactly once through crashes of
// any of them.
//
//	Run        leads the job: role coordinator, or role local, which starts its own workers
//	RunWorker  runs subtasks for a coordinator: role worker
//
// Reading order: this file, local.go, then coordinator/core.go, worker/worker.go, and
// docs/design/coordinator.md.
package distributed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/runners/distributed/worker"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// Config is how a job is run. The fields are the flags of runners.Main.
type Config struct {
	Role        string // local, coordinator or worker
	Workers     int    // processes; the first start waits for so many
	Parallelism int    // subtasks of each step
	KeyGroups   int    // up to statebackend.MaxKeyGroups; default statebackend.DefaultKeyGroups
	Coordinator string // host:port, of a worker
	Listen      string // host:port; default a free port on loopback

	StateBackend string // memory, filesystem or rocksdb
	StateCache   int64  // bytes, for a worker process
	Scratch      string // directory for local state of workers; default that of temporary files

	CheckpointDir      string // URL
	CheckpointInterval time.Duration
	CheckpointMode     string // aligned, unaligned or auto
	AlignmentTimeout   time.Duration
	RetainCheckpoints  int
	MaxRetries         int
	WatermarkInterval  time.Duration

	Restore     string // none, latest or an entry of the log
	NewRun      bool
	AllowReplay bool

	HTTP      string // host:port of the status API; empty: none
	TokenFile string
	TLSCert   string
	TLSKey    string
	TLSCA     string

	// HeartbeatTimeout is how long a worker may say nothing; default 15s.
	HeartbeatTimeout time.Duration
	// RestartGrace is how long a restart waits for replacements of lost workers; default 5s.
	RestartGrace time.Duration

	// OnProgress, if set, is told about once a second how the job goes, and when it is over, from a goroutine of Run.
	OnProgress func(coordinator.Progress)

	Logger *slog.Logger // default: to standard error
}

// Program is what every process of a job has in common.
type Program struct {
	Name  string
	Build func(*sdk.Pipeline) error
	// Args are the program's arguments, which the coordinator hands to its workers.
	Args []string
	// Parse sets the program's own flags from the coordinator's arguments and environment. It may be called
	// again with others. Nil: there are none.
	Parse func(args, env []string) error
	// Flags returns the program's own flags, values by name. Nil: there are none.
	Flags    func() map[string]string
	Backends map[string]statebackend.Driver
	Storages []storage.Driver
}

func (p *Program) parse(args, env []string) error {
	if p.Parse == nil {
		return nil
	}
	return p.Parse(args, env)
}

func (p *Program) flags() map[string]string {
	if p.Flags == nil {
		return nil
	}
	return p.Flags()
}

// identity is the flags as lines of --name=value, by name, that processes compare.
func identity(flags map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "--%s=%s\n", name, flags[name])
	}
	return b.String()
}

// driver is the name of the backend that keeps state in a worker.
func (c *Config) driver() string {
	if c.StateBackend == "filesystem" {
		return "memory" // with durable checkpoints
	}
	return c.StateBackend
}

// anyPort is an address that only this machine reaches.
const anyPort = "127.0.0.1:0"

func (c *Config) defaults() {
	if c.KeyGroups == 0 {
		c.KeyGroups = statebackend.DefaultKeyGroups
	}
	if c.HeartbeatTimeout == 0 {
		c.HeartbeatTimeout = 15 * time.Second
	}
	if c.RestartGrace == 0 {
		c.RestartGrace = 5 * time.Second
	}
	if c.Restore == "" {
		c.Restore = "none"
	}
	if c.Listen == "" {
		c.Listen = anyPort
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
}

// Validate refuses settings that cannot be run as they are: values that contradict each other, addresses and URLs that
// are none, files that cannot be read, ports that strangers could use, and what p does not link in. It opens no port and
// no storage. Run and RunWorker call it.
func (c Config) Validate(p Program) error {
	c.defaults()
	if c.Role != "worker" {
		if err := c.validateJob(p); err != nil {
			return err
		}
	} else if _, err := splitAddress(c.Coordinator); err != nil {
		return fmt.Errorf("--coordinator=%s: %w", c.Coordinator, err)
	}
	sec, err := c.security()
	if err != nil {
		return err
	}
	if c.Role == "coordinator" {
		err = sec.check(c.Listen)
	} else {
		_, err = splitAddress(c.Listen) // of a worker, and of role local, which makes a token, Run checks the rest
	}
	if err != nil {
		return fmt.Errorf("--listen=%s: %w", c.Listen, err)
	}
	if c.HTTP != "" && c.Role != "worker" {
		if err := sec.check(c.HTTP); err != nil {
			return fmt.Errorf("--http=%s: %w", c.HTTP, err)
		}
	}
	return nil
}

// validateJob refuses settings of a job that contradict each other or that p cannot run.
func (c *Config) validateJob(p Program) error {
	for _, arg := range slices.Concat(p.Args, settingsOf(os.Environ())) {
		if !utf8.ValidString(arg) {
			return fmt.Errorf("%q is no UTF-8: workers get arguments and settings as text; rename the file, or leave it out", arg)
		}
	}
	switch {
	case c.StateBackend == "memory" && c.CheckpointDir != "":
		return errors.New("--state-backend=memory keeps checkpoints in the coordinator's memory, and --checkpoint-dir is given: take --state-backend=filesystem, or leave the directory out")
	case c.StateBackend != "memory" && c.CheckpointDir == "":
		return fmt.Errorf("--state-backend=%s needs --checkpoint-dir", c.StateBackend)
	case c.CheckpointDir == "" && c.Restore != "none":
		return fmt.Errorf("--restore=%s needs --checkpoint-dir", c.Restore)
	case c.KeyGroups < 1 || c.KeyGroups > statebackend.MaxKeyGroups:
		return fmt.Errorf("KeyGroups is %d: must be from 1 to %d", c.KeyGroups, statebackend.MaxKeyGroups)
	case c.Parallelism > c.KeyGroups:
		return fmt.Errorf("--parallelism=%d: there are %d key groups", c.Parallelism, c.KeyGroups)
	case p.Backends[c.driver()] == nil:
		return fmt.Errorf("--state-backend=%s is not part of this program: pass runners.WithBackend(%s.Driver{…}) to Main, and build with -tags %[2]s", c.StateBackend, c.driver())
	}
	if c.CheckpointDir != "" {
		if err := storage.CheckURL(c.CheckpointDir, p.Storages...); err != nil {
			return fmt.Errorf("--checkpoint-dir: %w", err)
		}
	}
	return nil
}

// ErrDeposed is wrapped by the error of a Run that has lost the job to another coordinator, also if that one was faster
// from the start. It has committed nothing since. It is not to be run again while the other one leads.
var ErrDeposed = coordinator.ErrDeposed

// Run leads the job to its end: until all input was processed and all output committed, or, when ctx ends, to a
// last checkpoint. With role local it starts the workers too.
func Run(ctx context.Context, c Config, p Program) error {
	c.defaults()
	if err := c.Validate(p); err != nil {
		return err
	}
	g, err := sdk.Build(p.Name, p.Build)
	if err != nil {
		return err
	}
	if g.Clock != nil && len(g.Clock.Movers) > 0 {
		return fmt.Errorf("step %q: its script moves the processing time, which on several machines is that of the machines: leave Clock and AdvanceClock out, or run it with the direct runner", g.Clock.Movers[0])
	}
	exe, err := executableDigest()
	if err != nil {
		return err
	}
	sec, err := c.security()
	if err != nil {
		return err
	}
	if c.Role == "local" && sec.token == nil {
		sec.token = []byte(rand.Text()) // children get it by their pipe
	}
	ln, err := sec.listen(c.Listen)
	if err != nil {
		return err
	}
	// Whatever can fail for reasons of this process comes before the claim: a claim deposes the leader before us.
	apiListener, err := sec.listenAPI(c.HTTP)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	closeAll := func(err error) error {
		err = errors.Join(err, ln.Close())
		if apiListener != nil {
			err = errors.Join(err, apiListener.Close())
		}
		return err
	}
	o := coordinator.Options{
		Name: p.Name, Graph: g, Identity: coordinator.Identity{Executable: exe, Flags: identity(p.flags()), Plan: g.Plan()},
		Flags: checkpoint.NewFlags(p.flags()),
		Args:  p.Args, Env: settingsOf(os.Environ()), Settings: c.settings(), Core: c.core(), Logger: c.Logger,
	}
	if err := c.takeUp(ctx, p, g, claimant(ln.Addr().String()), &o); err != nil {
		return closeAll(err)
	}
	server, err := coordinator.NewServer(o)
	if err != nil {
		return closeAll(err)
	}
	api := func() error { return nil }
	if apiListener != nil {
		api = sec.serveAPI(apiListener, server.Handler(), c.Logger)
	}
	rpc := grpc.NewServer(
		grpc.Creds(control.Credentials(sec.token, sec.server)), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(control.MaxMessage), grpc.MaxSendMsgSize(control.MaxMessage))
	control.RegisterControlServer(rpc, server)
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ln) }()
	address := ln.Addr().String()
	c.Logger.Info("coordinator is up", "job", p.Name, "address", address, "generation", o.Generation)

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	children := &children{c: c, address: address, token: sec.token, joined: server.Joined, ended: server.Over, hopeless: stop, done: make(chan struct{}), over: make(chan struct{})}
	if c.Role == "local" {
		children.start()
	} else {
		c.Logger.Info("waiting for workers", "join with", fmt.Sprintf("%s --role=worker --coordinator=%s", filepath.Base(os.Args[0]), address))
	}
	reported := c.report(server)
	err = server.Run(ctx)
	children.stop()
	reported()
	if cause := context.Cause(ctx); errors.Is(cause, errHopeless) {
		err = errors.Join(cause, err)
	}
	shut := time.AfterFunc(5*time.Second, rpc.Stop) // workers that hang do not hold us up
	rpc.GracefulStop()
	shut.Stop()
	children.wait()
	return errors.Join(err, <-served, api())
}

// report calls OnProgress until the job is over.
func (c *Config) report(s *coordinator.Server) (last func()) {
	if c.OnProgress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for over := false; !over; {
			select {
			case <-t.C:
			case <-done:
				over = true
			}
			p, err := s.Progress(context.Background())
			if err != nil {
				c.Logger.Debug("ask for progress", "error", err)
				continue
			}
			c.OnProgress(p)
		}
	})
	return func() { close(done); reporting.Wait() }
}

// claimant says to people which process claims the log.
func claimant(address string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("the coordinator at %s (process %d on %s)", address, os.Getpid(), host)
}

// takeUp claims the log, or makes the memory that takes its place.
func (c *Config) takeUp(ctx context.Context, p Program, g *kernel.Graph, claimant string, o *coordinator.Options) error {
	if c.CheckpointDir == "" {
		o.Generation, o.Core.NextID = 1, 1
		o.Bulk = &checkpoint.MemoryStore{}
		o.Ledger = &coordinator.Memory{Store: o.Bulk}
		return nil
	}
	store, err := storage.Open(ctx, c.CheckpointDir, p.Storages...)
	if err != nil {
		return fmt.Errorf("open the checkpoint directory: %w", err)
	}
	taken, err := coordinator.Open(ctx, store, coordinator.Restore{
		From: c.Restore, NewRun: c.NewRun, AllowReplay: c.AllowReplay, Retain: c.RetainCheckpoints, Claimant: claimant,
	}, coordinator.Fit{Job: p.Name, Graph: g, KeyGroups: c.KeyGroups, Parallelism: c.Parallelism, Flags: p.flags()})
	if err != nil {
		return err
	}
	for _, n := range taken.Notes {
		c.Logger.Warn(n)
	}
	o.Generation, o.Ledger, o.Abandoned = taken.Generation, taken.Ledger, taken.Abandoned
	o.Core.Pending, o.Core.NextID = taken.Pending, taken.NextID
	if taken.Last != nil {
		o.Core.Last = &taken.Last.Checkpoint
		c.Logger.Info("restoring", "checkpoint", taken.Last.Checkpoint.ID, "taken at", taken.Last.Time)
	}
	return nil
}

func (c *Config) settings() *control.Settings {
	s := &control.Settings{
		Parallelism: int32(c.Parallelism), KeyGroups: int32(c.KeyGroups), StateBackend: c.driver(), StateCache: c.StateCache,
		CheckpointDir: c.CheckpointDir, WatermarkInterval: c.WatermarkInterval.Milliseconds(),
		HeartbeatInterval: min(time.Second, c.HeartbeatTimeout/5).Milliseconds(),
	}
	if c.CheckpointMode == "auto" {
		s.AlignTimeout = c.AlignmentTimeout.Milliseconds()
	}
	return s
}

// commitTries, with pauses up to 5 s, is about two minutes.
const commitTries = 30

func (c *Config) core() coordinator.Config {
	return coordinator.Config{
		Workers: c.Workers, Interval: c.CheckpointInterval.Milliseconds(), CheckpointTimeout: (10 * time.Minute).Milliseconds(),
		Overtake: c.CheckpointMode == "unaligned", HeartbeatTimeout: c.HeartbeatTimeout.Milliseconds(),
		Grace: c.RestartGrace.Milliseconds(), RestartDelay: 200, MaxRetries: c.MaxRetries, CommitTries: commitTries,
	}
}

// RunWorker runs subtasks for the coordinator until the job is over or ctx ends.
func RunWorker(ctx context.Context, c Config, p Program) error {
	c.Role = "worker"
	c.defaults()
	if err := c.Validate(p); err != nil {
		return err
	}
	token, scratch := watchParent()
	if scratch == "" {
		var err error
		if scratch, err = os.MkdirTemp(c.Scratch, scratchPattern); err != nil {
			return fmt.Errorf("make a directory for state: %w", err)
		}
	}
	defer os.RemoveAll(scratch)
	sec, err := c.security()
	if err != nil {
		return err
	}
	if sec.token == nil {
		sec.token = token
	}
	exe, err := executableDigest()
	if err != nil {
		return err
	}
	ln, err := sec.listen(c.Listen)
	if err != nil {
		return err
	}
	return worker.Run(ctx, worker.Options{
		Coordinator: c.Coordinator, Listener: ln, Token: sec.token, ServerTLS: sec.server, ClientTLS: sec.client,
		Scratch: scratch, Executable: exe, Backends: p.Backends, Storages: p.Storages, Logger: c.Logger,
		Build: func(args, env []string) (*kernel.Graph, string, error) {
			if err := p.parse(args, env); err != nil {
				return nil, "", fmt.Errorf("parse the coordinator's arguments: %w", err)
			}
			g, err := sdk.Build(p.Name, p.Build)
			return g, identity(p.flags()), err
		},
	})
}

// settingsOf are the variables that workers get from the coordinator: those of the runners, without what
// belongs to one process.
func settingsOf(env []string) (mine []string) {
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "MILLSTREAM_ROLE", "MILLSTREAM_COORDINATOR", "MILLSTREAM_LISTEN", "MILLSTREAM_HTTP", "MILLSTREAM_TOKEN_FILE",
			"MILLSTREAM_TLS_CERT", "MILLSTREAM_TLS_KEY", "MILLSTREAM_TLS_CA", "MILLSTREAM_FAILPOINTS", "MILLSTREAM_FAILPOINTS_ONCE", parentPipe:
			continue
		}
		if strings.HasPrefix(name, "MILLSTREAM_") {
			mine = append(mine, e)
		}
	}
	return mine
}
