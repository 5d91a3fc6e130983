// Package transport carries the batches and markers of a job between its workers: one TCP connection for
// each pair of them, shared by all channels that cross, with credits so that no receiver has to queue more than
// it has room for.
//
// A worker process has one Endpoint, which listens. Each attempt to run the job has one Mesh, which the engine
// gets its Senders from, and which connects to the peers:
//
//	mesh := endpoint.NewMesh(run, place)
//	options.Local, options.Remote = mesh.Local, mesh.Sender
//	job, err := engine.NewJob(ctx, graph, options)
//	err = mesh.Connect(ctx, job, addresses)   // returns when all peers are connected
//	job.Start()
//	err = job.Wait()                          // a lost connection has cancelled it
//	mesh.Close(err)
//
// Reading order: frame.go, handshake.go, sender.go (credits), peer.go (one connection), mesh.go, this file.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/engine"
)

// Options configure an Endpoint.
type Options struct {
	Name string // of this worker; unlike that of any other worker of the job
	Job  string // its name: workers of another job are refused

	// Dial opens a connection to a peer's address. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Token is a secret that all workers share. It does not cross the wire. Without one, and without TLS that
	// asks for certificates, whoever can reach the address can join: listen on the loopback interface.
	Token []byte
	// TLS encrypts connections, both those that are dialled and those that are accepted; nil: plain TCP.
	TLS *tls.Config

	Room             int           // batches of each channel that a peer may send before they are popped; default engine.DefaultRoom
	MaxFrame         int           // greatest length in bytes of a frame, which holds one batch; default 64 MiB
	WriteTimeout     time.Duration // a peer that takes nothing for so long is lost; default 30 s
	HandshakeTimeout time.Duration // default 10 s

	Logger *slog.Logger // default: none
}

// Endpoint is where a worker process is reached by its peers. Its methods may be called by any goroutine.
type Endpoint struct {
	o      Options
	ln     net.Listener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	busy   sync.WaitGroup // the accept loop and handshakes

	mu   sync.Mutex
	mesh *Mesh // of the newest attempt; nil before the first
}

// Handshakes beyond this number at one time are turned away; a peer tries again.
const maxHandshakes = 64

// NewEndpoint accepts connections at ln, which it closes in the end.
func NewEndpoint(ln net.Listener, o Options) *Endpoint {
	if o.Room == 0 {
		o.Room = engine.DefaultRoom
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = 64 << 20
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{o: o, ln: ln}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.busy.Go(e.accept)
	return e
}

// Close stops listening and waits for the handshakes in progress to end. Meshes are closed before.
func (e *Endpoint) Close() error {
	e.cancel()
	err := e.ln.Close()
	e.busy.Wait()
	return err
}

func (e *Endpoint) accept() {
	slots := make(chan struct{}, maxHandshakes)
	for {
		c, err := e.ln.Accept()
		if err != nil {
			if e.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely too many open files: others may be closed.
			e.o.Logger.Error("accept a connection", "error", err)
			if !wait(e.ctx, time.Second) {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			e.busy.Go(func() {
				defer func() { <-slots }()
				if err := e.answer(c); err != nil {
					c.Close()
					level := slog.LevelWarn
					if r := (*refusal)(nil); errors.As(err, &r) && r.again {
						level = slog.LevelDebug // a peer was faster than we are; it warns if that lasts
					}
					e.o.Logger.Log(e.ctx, level, "refused a connection", "from", c.RemoteAddr(), "error", err)
				}
			})
		default:
			c.Close()
		}
	}
}

// answer brings a connection that was accepted through the handshake and gives it to the mesh.
func (e *Endpoint) answer(c net.Conn) error {
	keepAlive(c)
	if e.o.TLS != nil {
		c = tls.Server(c, e.o.TLS)
	}
	defer context.AfterFunc(e.ctx, func() { c.Close() })()
	if err := c.SetDeadline(time.Now().Add(e.o.HandshakeTimeout)); err != nil {
		return err
	}
	r := newFrameReader(c, maxHandshake)
	h, err := acceptHandshake(c, r, e.o)
	if err != nil {
		return err
	}
	p, err := e.admit(h)
	if err != nil {
		return errors.Join(err, refuse(c, err))
	}
	if err := send(c, frameWelcome, nil); err != nil {
		p.release()
		return err
	}
	return p.start(c, r, int(h.room))
}

// admit finds the peer whose connection this is and reserves it.
func (e *Endpoint) admit(h hello) (*peer, error) {
	e.mu.Lock()
	m := e.mesh
	e.mu.Unlock()
	switch {
	case m == nil || m.run.before(h.run):
		return nil, &refusal{reason: fmt.Sprintf("worker %q does not run %s yet", e.o.Name, h.run), again: true}
	case h.run.before(m.run):
		return nil, &refusal{reason: fmt.Sprintf("worker %q has left %s for %s", e.o.Name, h.run, m.run)}
	}
	p := m.peers[h.from]
	if p == nil || !p.reserve() {
		return nil, &refusal{reason: fmt.Sprintf("worker %q expects no connection from worker %q", e.o.Name, h.from)}
	}
	return p, nil
}

// keepAlive makes the kernel notice a peer whose machine is gone, within half a minute.
func keepAlive(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		// A socket that cannot do it is still a socket: control connections have heartbeats.
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}

// wait returns true after d, or false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
