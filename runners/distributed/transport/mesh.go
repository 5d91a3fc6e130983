package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/engine"
)

// Mesh joins the subtasks of one run that are here to those that are at other workers.
type Mesh struct {
	end   *Endpoint
	run   Run
	place func(stage string, subtask int) string

	peers   map[string]*peer // workers with a channel from or to here; complete before any is connected
	job     *engine.Job      // likewise
	running sync.WaitGroup   // the connections' goroutines

	ctx    context.Context // ends with the first failure
	cancel context.CancelCauseFunc
}

// NewMesh begins a run. place names the worker of each subtask, the same at all workers.
func (e *Endpoint) NewMesh(run Run, place func(stage string, subtask int) string) *Mesh {
	m := &Mesh{end: e, run: run, place: place, peers: map[string]*peer{}}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m
}

// Local is engine.Options.Local.
func (m *Mesh) Local(stage string, subtask int) bool { return m.place(stage, subtask) == m.end.o.Name }

// Sender is engine.Options.Remote. What is pushed before the connection stands is sent when it does.
func (m *Mesh) Sender(e *engine.StageEdge, from, to int) engine.Sender {
	p := m.peer(m.place(e.To.Name(), to))
	s := &sender{peer: p, edge: e, channel: uint32(e.Number(from, to))}
	p.out[s.channel] = s
	return s
}

func (m *Mesh) peer(name string) *peer {
	p := m.peers[name]
	if p == nil {
		p = newPeer(m, name)
		m.peers[name] = p
	}
	return p
}

// Connect connects to all peers that job, which was made with Local and Sender, has channels with, and returns
// when that is done. The worker whose name is lower dials, again and again until ctx ends, for the other may not
// have come so far. addresses is by name of worker. From now on job is cancelled when a connection is lost.
func (m *Mesh) Connect(ctx context.Context, job *engine.Job, addresses map[string]string) error {
	m.job = job
	job.EachInbound(func(e *engine.StageEdge, from, to int, in engine.Inbound) func() {
		p := m.peer(m.place(e.From.Name(), from))
		r := &receiver{peer: p, in: in, channel: uint32(e.Number(from, to))}
		p.in[r.channel] = r
		return r.credit
	})
	if err := m.end.begin(m); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })()
	results := make(chan error, len(m.peers))
	for name, p := range m.peers {
		go func() { results <- m.connect(ctx, p, addresses[name]) }()
	}
	var first error
	for range m.peers {
		if err := <-results; err != nil && first == nil {
			first = fmt.Errorf("connect worker %q: %w", m.end.o.Name, err)
			cancel(first)
		}
	}
	return first
}

// begin makes m the mesh whose connections are accepted.
func (e *Endpoint) begin(m *Mesh) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mesh != nil && !e.mesh.run.before(m.run) {
		return fmt.Errorf("%s begins after %s", m.run, e.mesh.run)
	}
	e.mesh = m
	return nil
}

// connect returns when the connection to a peer has started.
func (m *Mesh) connect(ctx context.Context, p *peer, address string) error {
	if p.name < m.end.o.Name {
		select {
		case <-p.up:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("worker %q has not come: %w", p.name, context.Cause(ctx))
		}
	}
	if address == "" {
		return fmt.Errorf("worker %q has no address", p.name)
	}
	patience := time.Now().Add(m.end.o.HandshakeTimeout)
	warned := false
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		err := m.dial(ctx, p, address)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("worker %q at %s: %w", p.name, address, err)
		var r *refusal
		if errors.As(err, &r) && !r.again || errors.Is(err, errNotPeer) {
			return err
		}
		if !warned && time.Now().After(patience) {
			warned = true
			m.end.o.Logger.Warn("a worker still cannot be connected to; trying again", "run", m.run, "error", err)
		}
		if !wait(ctx, delay) {
			return err
		}
	}
}

func (m *Mesh) dial(ctx context.Context, p *peer, address string) (err error) {
	o := &m.end.o
	ctx, cancel := context.WithTimeout(ctx, o.HandshakeTimeout)
	defer cancel()
	c, err := o.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	keepAlive(c)
	if o.TLS != nil {
		conf := o.TLS.Clone()
		if conf.ServerName == "" {
			if conf.ServerName, _, err = net.SplitHostPort(address); err != nil {
				return err
			}
		}
		c = tls.Client(c, conf)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	r := newFrameReader(c, maxHandshake)
	room, err := dialHandshake(c, r, *o, m.run, p.name)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if !p.reserve() {
		return fmt.Errorf("there is a connection to worker %q", p.name)
	}
	return p.start(c, r, room)
}

// fail cancels the job. It keeps the first error.
func (m *Mesh) fail(err error) {
	m.cancel(err)
	m.job.Cancel(err)
}

// linger is how long a goodbye may take.
const linger = 5 * time.Second

// Close ends the connections and waits for their goroutines. why is what job.Wait has returned, or whatever else
// kept the job from its end; the peers are told, and their jobs fail too unless it is nil. The job is to have
// stopped, if it was started.
func (m *Mesh) Close(why error) {
	reason := ""
	if why != nil {
		reason = why.Error()
		reason = reason[:min(len(reason), 1000)]
	}
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		p := m.peers[name]
		p.leave(reason)
		if p.conn != nil {
			// The peer closes when it has read the goodbye. One that hangs does not hold us up.
			defer time.AfterFunc(linger, func() { p.conn.Close() }).Stop()
		}
	}
	m.running.Wait()
	m.cancel(nil)
}
