package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/failpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/internal/version"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/runners/distributed/transport"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// session is one connection to a coordinator. Its goroutine, which receives, owns it; sending has a lock.
type session struct {
	o        Options
	client   control.ControlClient
	stream   control.Control_JoinClient
	sendLock sync.Mutex

	welcome  *control.Welcome
	graph    *kernel.Graph
	backend  statebackend.Driver
	storage  *storage.Store // nil: the coordinator's memory
	endpoint *transport.Endpoint

	mu      sync.Mutex // guards current, for heartbeats
	current *attempt   // nil: none
}

// runSession joins and serves until the session ends. joined says whether the coordinator took us.
func runSession(ctx context.Context, o Options, ln *sharedListener, client control.ControlClient) (joined bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{o: o, client: client}
	if s.stream, err = client.Join(ctx); err != nil {
		return false, err
	}
	if err := s.handshake(ctx); err != nil {
		return false, err
	}
	s.endpoint = transport.NewEndpoint(ln.lend(), transport.Options{
		Name: s.welcome.Worker, Job: s.welcome.Job, Token: o.Token, TLS: o.ServerTLS, Logger: o.Logger,
	})
	var beats sync.WaitGroup
	beats.Go(func() { s.heartbeats(ctx) })
	err = s.receive(ctx)
	cancel()
	s.end(err)
	beats.Wait()
	if cerr := s.endpoint.Close(); cerr != nil {
		o.Logger.Debug("close the data port", "error", cerr)
	}
	return true, err
}

func (s *session) send(m *control.FromWorker) error {
	return s.sendMade(func() *control.FromWorker { return m })
}

// sendMade sends what is made when it is its turn: older figures must not come after newer ones, which may be the last.
func (s *session) sendMade(make func() *control.FromWorker) error {
	s.sendLock.Lock()
	defer s.sendLock.Unlock()
	return s.stream.Send(control.Sendable(make()))
}

// handshake introduces this worker and builds the pipeline.
func (s *session) handshake(ctx context.Context) error {
	if err := s.send(&control.FromWorker{Message: &control.FromWorker_Hello{Hello: &control.Hello{
		Protocol: control.Version, Version: version.String(), DataAddress: s.o.Listener.Addr().String(), Process: process(),
	}}}); err != nil {
		return err
	}
	m, err := s.stream.Recv()
	if err != nil {
		return err
	}
	if d := m.GetDismiss(); d != nil {
		return &dismissal{d.Reason, d.Failed}
	}
	if s.welcome = m.GetWelcome(); s.welcome == nil {
		return fmt.Errorf("the coordinator answered %T instead of a welcome", m.Message)
	}
	p := &control.Proof{Executable: s.o.Executable}
	if err := s.build(ctx, p); err != nil {
		p.Error = err.Error()
	}
	if err := s.send(&control.FromWorker{Message: &control.FromWorker_Proof{Proof: p}}); err != nil {
		return err
	}
	if m, err = s.stream.Recv(); err != nil {
		return err
	}
	if d := m.GetDismiss(); d != nil {
		return &dismissal{d.Reason, d.Failed}
	}
	if m.GetAccepted() == nil {
		return fmt.Errorf("the coordinator answered %T to the proof", m.Message)
	}
	return nil
}

// build makes everything from the coordinator's settings that attempts need.
func (s *session) build(ctx context.Context, p *control.Proof) (err error) {
	if s.graph, p.Flags, err = s.o.Build(s.welcome.Args, s.welcome.Env); err != nil {
		return err
	}
	p.Plan = s.graph.Plan()
	set := s.welcome.Settings
	var ok bool
	if s.backend, ok = s.o.Backends[set.StateBackend]; !ok {
		return fmt.Errorf("this program has no state backend %q", set.StateBackend)
	}
	if set.CheckpointDir != "" {
		if s.storage, err = storage.Open(ctx, set.CheckpointDir, s.o.Storages...); err != nil {
			return fmt.Errorf("open the checkpoint directory: %w", err)
		}
	}
	return nil
}

// receive does as it is told until the stream ends.
func (s *session) receive(ctx context.Context) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.Message.(type) {
		case *control.ToWorker_Deploy:
			if err := s.deploy(ctx, m.Deploy); err != nil {
				return err
			}
		case *control.ToWorker_Begin:
			if a := s.attempt(m.Begin.Attempt); a != nil {
				a.begin()
			}
		case *control.ToWorker_Cancel:
			if a := s.attempt(m.Cancel.Attempt); a != nil {
				s.drop(errCancelled)
			}
		case *control.ToWorker_Trigger:
			if a := s.attempt(m.Trigger.Attempt); a != nil {
				if err := failpoint.Hit("before-prepare"); err != nil {
					a.job.Cancel(storeError{err})
					break
				}
				a.job.Trigger(m.Trigger.Checkpoint, m.Trigger.Overtake)
			}
		case *control.ToWorker_Complete:
			if a := s.attempt(m.Complete.Attempt); a != nil {
				a.keeper.Completed(m.Complete.Checkpoint)
			}
		case *control.ToWorker_Dismiss:
			d := m.Dismiss
			if !d.Done {
				return fmt.Errorf("the coordinator ended the session: %s", d.Reason)
			}
			return &dismissal{d.Reason, d.Failed}
		default:
			return fmt.Errorf("a message of type %T has no place here", m)
		}
	}
}

// attempt returns the present attempt if it has that number.
func (s *session) attempt(n int64) *attempt {
	if s.current != nil && s.current.number == n {
		return s.current
	}
	return nil
}

// deploy builds an attempt. What goes wrong with it is reported, and ends neither the session nor the process.
func (s *session) deploy(ctx context.Context, d *control.Deploy) error {
	s.drop(errCancelled)
	a, err := newAttempt(ctx, s, d)
	if err != nil {
		return s.send(failed(&control.Failed{Attempt: d.Attempt, Error: err.Error(), Permanent: permanent(err)}))
	}
	s.mu.Lock()
	s.current = a
	s.mu.Unlock()
	a.connect()
	return nil
}

// drop ends the present attempt and waits for it.
func (s *session) drop(why error) {
	s.mu.Lock()
	a := s.current
	s.current = nil
	s.mu.Unlock()
	if a != nil {
		a.end(why)
	}
}

// end ends the session's attempt: in peace if the job is over and has not failed.
func (s *session) end(why error) {
	var d *dismissal
	if errors.As(why, &d) && !d.failed {
		why = nil
	}
	s.drop(why)
}

// heartbeats tell the coordinator that we are here and how far we are.
func (s *session) heartbeats(ctx context.Context) {
	t := time.NewTicker(time.Duration(s.welcome.Settings.HeartbeatInterval) * time.Millisecond)
	defer t.Stop()
	for {
		s.mu.Lock()
		a := s.current
		s.mu.Unlock()
		if err := s.sendMade(a.heartbeat); err != nil {
			return // the receiver sees it too
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// store returns where an attempt keeps the bulk of its checkpoints.
func (s *session) store(attempt int64) checkpoint.Store {
	if s.storage == nil {
		return &remoteStore{s.client}
	}
	return checkpoint.NewDurable(s.storage, s.welcome.Generation, attempt)
}

func failed(f *control.Failed) *control.FromWorker {
	return &control.FromWorker{Message: &control.FromWorker_Failed{Failed: f}}
}
