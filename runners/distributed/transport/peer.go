package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
)

// peer is another worker of the run and the connection to it, with two goroutines: one reads, and reports
// whatever goes wrong; one writes.
type peer struct {
	mesh *Mesh
	name string

	out map[uint32]*sender   // by channel; complete before the connection starts
	in  map[uint32]*receiver // likewise
	up  chan struct{}        // closed when the connection starts

	mu      sync.Mutex
	more    sync.Cond   // the writer waits here
	taken   uint64      // how often the writer has taken the queue
	queue   []*frame    // bounded by credits, by what was forced, and a status between any two of them
	credits []*receiver // to give credits back for
	conn    net.Conn
	state   peerState
	gone    bool   // nothing can be sent any more
	leaving bool   // Close was called: say goodbye after what is queued
	reason  string // why, if it is not the end of the job; what is queued is of no use then
	failed  error  // of the writer
}

type peerState uint8

const (
	peerAbsent   peerState = iota
	peerReserved           // a handshake is at its end
	peerUp
	peerClosed // the mesh was closed before
)

func newPeer(m *Mesh, name string) *peer {
	p := &peer{mesh: m, name: name, out: map[uint32]*sender{}, in: map[uint32]*receiver{}, up: make(chan struct{})}
	p.more.L = &p.mu
	return p
}

// reserve makes sure that a peer has one connection.
func (p *peer) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != peerAbsent {
		return false
	}
	p.state = peerReserved
	return true
}

func (p *peer) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == peerReserved {
		p.state = peerAbsent
	}
}

// start begins to use a reserved connection. room is that of the peer.
func (p *peer) start(c net.Conn, r *frameReader, room int) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	r.limit = p.mesh.end.o.MaxFrame
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != peerReserved {
		return fmt.Errorf("the connection to worker %q comes too late: the run was closed", p.name)
	}
	p.state, p.conn = peerUp, c
	for _, s := range p.out {
		s.granted(room)
	}
	p.mesh.running.Go(func() { p.run(c, r, room) })
	close(p.up)
	return nil
}

// run reads until the connection is over, and sees the writer out.
func (p *peer) run(c net.Conn, r *frameReader, room int) {
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := p.write(c); err != nil {
			// The peer may have said why it went: the reader looks for that before it reports.
			p.mu.Lock()
			p.failed = err
			p.mu.Unlock()
			_ = c.SetReadDeadline(time.Now().Add(time.Second)) // fails only if c is closed: the reader sees that too
		}
	})
	err := kernel.Guard(func() error { return p.read(r, room) }) // coders run in it
	c.Close()
	p.mu.Lock()
	if err != nil && p.failed != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = p.failed
	}
	leaving := p.leaving
	p.mu.Unlock()
	if err != nil && !leaving {
		// Before a subtask can stop because the peer is gone, or the job might seem to be at its end.
		p.mesh.fail(fmt.Errorf("connection to worker %q: %w", p.name, err))
	}
	p.mu.Lock()
	p.gone = true
	for _, s := range p.out {
		if s.waiting != nil {
			s.waiting.Wake()
			s.waiting = nil
		}
	}
	p.more.Signal()
	p.mu.Unlock()
	writer.Wait()
}

// noMore is what a subtask gets that sends to a peer that is gone. If the peer was lost the job is cancelled
// already. If it has said goodbye it should not have, for nobody does while there is something to send.
func (p *peer) noMore() error {
	p.mesh.fail(fmt.Errorf("worker %q left before the end of the job", p.name))
	return engine.ErrStopped
}

// read delivers what comes in. It returns nil when the peer has said goodbye at the end of the job.
func (p *peer) read(r *frameReader, room int) error {
	stopped := false // the job here: what comes is of no use, but the peer's goodbye is
	for {
		t, body, err := r.next()
		if err == io.EOF {
			return errors.New("closed without a goodbye")
		}
		if err != nil {
			return err
		}
		switch t {
		case frameItems:
			if len(body) < 4 {
				return errors.New("a frame of items is cut off")
			}
			in := p.in[binary.BigEndian.Uint32(body)]
			if in == nil {
				return fmt.Errorf("channel %d does not come from there", binary.BigEndian.Uint32(body))
			}
			if stopped {
				continue
			}
			err := in.in.Deliver(body[4:])
			stopped = errors.Is(err, engine.ErrStopped)
			if err != nil && !stopped {
				return err
			}
		case frameCredit:
			if err := p.granted(body, room); err != nil {
				return err
			}
		case frameBye:
			if len(body) > 0 {
				return fmt.Errorf("the worker stopped: %s", body)
			}
			return nil
		default:
			return fmt.Errorf("unknown frame of type %d", t)
		}
	}
}

func (p *peer) granted(body []byte, room int) error {
	if len(body) == 0 || len(body)%8 != 0 {
		return errors.New("a frame of credits is malformed")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; len(body) > 0; body = body[8:] {
		channel, n := binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
		s := p.out[channel]
		if s == nil {
			return fmt.Errorf("credits for channel %d, which does not go there", channel)
		}
		if int64(s.credit)+int64(n) > int64(room) {
			return fmt.Errorf("%d credits for channel %d, which has %d of %d", n, channel, s.credit, room)
		}
		s.granted(int(n))
	}
	return nil
}

// chunk is written under one deadline.
const chunk = 1 << 20

// write sends what is queued, as much at a time as there is, until the peer is gone or goodbye is said.
func (p *peer) write(c net.Conn) error {
	w := chunkWriter{c: c, timeout: p.mesh.end.o.WriteTimeout}
	var frames []*frame
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && len(p.credits) == 0 && !p.leaving && !p.gone {
			p.more.Wait()
		}
		if p.gone {
			p.mu.Unlock()
			return nil
		}
		frames, p.queue = p.queue, frames[:0]
		p.taken++
		if len(p.credits) > 0 {
			frames = append(frames, p.creditFrame())
		}
		leaving := p.leaving
		if leaving {
			if p.reason != "" {
				frames = frames[:0]
			}
			bye := newFrame(frameBye)
			bye.b = append(bye.b, p.reason...)
			frames = append(frames, bye.seal())
		}
		p.mu.Unlock()
		for _, f := range frames {
			if err := w.write(f.b); err != nil {
				return err
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
		for i, f := range frames {
			f.recycle()
			frames[i] = nil
		}
		if leaving {
			if h, ok := c.(interface{ CloseWrite() error }); ok {
				return h.CloseWrite()
			}
			return nil
		}
	}
}

// creditFrame gives back what was popped, under the lock.
func (p *peer) creditFrame() *frame {
	f := newFrame(frameCredit)
	for _, r := range p.credits {
		f.b = binary.BigEndian.AppendUint32(f.b, r.channel)
		f.b = binary.BigEndian.AppendUint32(f.b, uint32(r.popped))
		r.popped = 0
	}
	p.credits = p.credits[:0]
	return f.seal()
}

// leave says goodbye, because of reason, or because the job has ended if it is empty.
func (p *peer) leave(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != peerUp {
		p.state = peerClosed // a handshake that is under way comes too late
		return
	}
	p.leaving, p.reason = true, reason
	p.more.Signal()
}

// chunkWriter gathers buffers and writes them without copying, under a deadline for each chunk.
type chunkWriter struct {
	c       net.Conn
	timeout time.Duration
	list    [][]byte
	size    int
	vec     net.Buffers
}

func (w *chunkWriter) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunk-w.size)
		w.list = append(w.list, b[:n])
		b = b[n:]
		if w.size += n; w.size == chunk {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *chunkWriter) flush() error {
	if err := w.c.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}
	w.vec = w.list
	_, err := w.vec.WriteTo(w.c)
	w.list, w.size = w.list[:0], 0
	return err
}
