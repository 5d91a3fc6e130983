// Package worker runs the subtasks that a coordinator gives to this process.
//
// A worker joins a coordinator by a control session (session.go): it proves that it runs the same program,
// builds the pipeline from the coordinator's arguments, and then does as it is told. Each attempt to run
// the job (attempt.go) is an engine.Job with the subtasks that are here, joined to those at other workers by a
// mesh of data connections.
package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// Options configure a worker.
type Options struct {
	Coordinator string       // host:port
	Listener    net.Listener // of the data port; Run closes it
	Token       []byte
	ServerTLS   *tls.Config // nil: plain
	ClientTLS   *tls.Config

	// Scratch is a directory for local state, which Run wipes. Workers do not share it.
	Scratch    string
	Executable string // SHA-256
	// Build makes the pipeline from the coordinator's arguments and environment, and returns the program's own
	// flags as lines of name=value.
	Build    func(args, env []string) (g *kernel.Graph, flags string, err error)
	Backends map[string]statebackend.Driver // by name
	Storages []storage.Driver

	Logger *slog.Logger
}

// Run joins the coordinator, and joins again when the connection is lost, until the job is over or ctx ends.
// Then it returns nil, or why the job failed or this worker was refused.
func Run(ctx context.Context, o Options) error {
	// The control connection notices a coordinator whose machine is gone.
	conn, err := grpc.NewClient(o.Coordinator,
		grpc.WithTransportCredentials(control.Credentials(o.Token, o.ClientTLS)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(control.MaxMessage), grpc.MaxCallSendMsgSize(control.MaxMessage)))
	if err != nil {
		return errors.Join(fmt.Errorf("reach the coordinator at %s: %w", o.Coordinator, err), o.Listener.Close())
	}
	defer conn.Close()
	ln := share(o.Listener)
	defer func() {
		if err := ln.close(); err != nil {
			o.Logger.Warn("close the data port", "error", err)
		}
	}()
	client := control.NewControlClient(conn)
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 3*time.Second) {
		joined, err := runSession(ctx, o, ln, client)
		var d *dismissal
		switch {
		case errors.As(err, &d) && d.failed:
			return fmt.Errorf("dismissed by the coordinator at %s: %s", o.Coordinator, d.reason)
		case errors.As(err, &d):
			return nil
		case ctx.Err() != nil:
			return nil
		}
		if joined {
			delay = 100 * time.Millisecond
		}
		o.Logger.Warn("no session with the coordinator; trying again", "coordinator", o.Coordinator, "error", control.Plain(err))
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// dismissal is how the coordinator ends a session for good.
type dismissal struct {
	reason string
	failed bool
}

func (d *dismissal) Error() string { return "dismissed: " + d.reason }

// process describes this process, for people.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
