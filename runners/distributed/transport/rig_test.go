package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
)

// pipeListener accepts the far ends of pipes: connections without a kernel, so that what was written has been
// read, and a write beyond that means that what was read has been dealt with.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watchedConn counts the writes that are done, and lets a test hold them up.
type watchedConn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	begun   int
	done    int
	held    bool
}

func watch(c net.Conn) *watchedConn {
	w := &watchedConn{Conn: c}
	w.changed.L = &w.mu
	return w
}

func (w *watchedConn) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.begun++
	w.changed.Broadcast()
	for w.held {
		w.changed.Wait()
	}
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	w.mu.Lock()
	w.done++
	w.changed.Broadcast()
	w.mu.Unlock()
	return n, err
}

func (w *watchedConn) hold(held bool) {
	w.mu.Lock()
	w.held = held
	w.changed.Broadcast()
	w.mu.Unlock()
}

func (w *watchedConn) until(cond func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !cond() {
		w.changed.Wait()
	}
}

// rig is worker a, which has the source, and worker b, which has the only other step. A test plays the source
// by hand, with items that a real one has made.
type rig struct {
	t            *testing.T
	a, b         *Endpoint
	meshA, meshB *Mesh
	jobA, jobB   *engine.Job
	conn         *watchedConn // a's
	sender       engine.Sender
	parker       engine.Parker
	batches      []engine.Item // "0", "1" …
	encoded      [][]byte      // the same
	statuses     []engine.Item

	mu        sync.Mutex
	changed   sync.Cond
	got       []string // processed at b
	snapshots []*engine.SubtaskSnapshot
	processed []int // len(got) at each
}

var (
	runOne    = Run{Generation: 1, Attempt: 1}
	addresses = map[string]string{"a": "pipe", "b": "pipe"}
	workers   = func(stage string, _ int) string { return map[string]string{"source": "a", "collect": "b"}[stage] }
)

// newRig makes both workers and does not connect them.
func newRig(t *testing.T, o Options) *rig {
	r := &rig{t: t, parker: engine.Real{}.NewParker("a")}
	r.changed.L = &r.mu
	r.makeItems()
	o.Job, o.Name = "test", "b"
	ln := newPipeListener()
	o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		c, err := ln.dial(ctx, address)
		r.conn = watch(c)
		return r.conn, err
	}
	r.b = NewEndpoint(ln, o)
	o.Name = "a"
	r.a = NewEndpoint(newPipeListener(), o)
	r.meshA, r.meshB = r.a.NewMesh(runOne, workers), r.b.NewMesh(runOne, workers)
	r.jobA = r.job(engine.Options{Local: r.meshA.Local, Remote: func(e *engine.StageEdge, from, to int) engine.Sender {
		r.sender = r.meshA.Sender(e, from, to)
		return r.sender
	}})
	r.jobB = r.job(engine.Options{Local: r.meshB.Local, Remote: r.meshB.Sender, Room: o.Room, Checkpoints: true, OnSnapshot: func(s *engine.SubtaskSnapshot) {
		r.tell(func() {
			r.snapshots = append(r.snapshots, s)
			r.processed = append(r.processed, len(r.got))
		})
	}})
	t.Cleanup(func() {
		r.jobB.Cancel(errors.New("the test is over"))
		_ = r.jobB.Wait() // what a test wants of it, it has looked at
		r.meshA.Close(nil)
		r.meshB.Close(nil)
		if err := errors.Join(r.a.Close(), r.b.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newConnectedRig is for tests of what comes after the handshake.
func newConnectedRig(t *testing.T, o Options) *rig {
	r := newRig(t, o)
	errA, errB := r.connect()
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) connect() (errA, errB error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		errA = r.meshA.Connect(ctx, r.jobA, addresses)
		if errA != nil {
			cancel()
		}
	})
	both.Go(func() { errB = r.meshB.Connect(ctx, r.jobB, addresses) })
	both.Wait()
	return errA, errB
}

func (r *rig) job(o engine.Options) *engine.Job {
	j, err := engine.NewJob(context.Background(), r.graph(), r.with(o))
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

func (r *rig) with(o engine.Options) engine.Options {
	o.Parallelism = 1
	o.Splits = func(*kernel.Node, int, int) [][]byte { return nil }
	return o
}

func stringCodec() *kernel.Codec[string] {
	c, err := coder.Of[string]()
	if err != nil {
		panic(err)
	}
	return kernel.NewCodec(c)
}

func (r *rig) graph() *kernel.Graph {
	codec := stringCodec()
	source := &kernel.Node{ID: 0, Name: "source", Ports: []kernel.Port{{}}, New: func() kernel.Operator { return &countTo{n: 20} }}
	collect := &kernel.Node{ID: 1, Name: "collect", New: func() kernel.Operator { return collector{r} },
		Inputs: []kernel.Edge{{From: source, Exchange: kernel.RoundRobin, Codec: codec, Splitter: kernel.Unkeyed(codec)}}}
	return &kernel.Graph{Name: "test", Nodes: []*kernel.Node{source, collect}}
}

// makeItems runs the source once and keeps what it sends.
func (r *rig) makeItems() {
	var job *engine.Job
	job = r.job(engine.Options{
		Local:  func(stage string, _ int) bool { return stage == "source" },
		Remote: func(*engine.StageEdge, int, int) engine.Sender { return (*keep)(r) },
		OnEnd:  func(string, int) { job.Stop() },
	})
	job.Start()
	if err := job.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

// keep is a Sender that keeps what is pushed.
type keep rig

func (k *keep) Overtake(int64) error { return nil }
func (k *keep) Push(it engine.Item, _ engine.Parker, _ bool) (bool, error) {
	switch {
	case it.Batch() != nil:
		b, err := it.Append(nil, stringCodec())
		if err != nil {
			return false, err
		}
		k.batches, k.encoded = append(k.batches, it), append(k.encoded, b)
	case it.IsStatus():
		k.statuses = append(k.statuses, it)
	}
	return true, nil
}

// countTo is a source of n batches of one string.
type countTo struct {
	i, n int
	out  kernel.Output
}

func (c *countTo) Open(o *kernel.OpenContext) error            { c.out = o.Outputs[0]; return nil }
func (c *countTo) Process(int, kernel.Batch) error             { return nil }
func (c *countTo) Watermark(eventtime.Time, int) (bool, error) { return true, nil }
func (c *countTo) Close() error                                { return nil }
func (c *countTo) Poll(eventtime.Time) (kernel.Polled, error) {
	if c.i == c.n {
		return kernel.Polled{Status: connector.End, Watermark: eventtime.Max}, nil
	}
	e := kernel.Element[string]{Value: fmt.Sprint(c.i), Time: eventtime.Time(c.i), Window: window.New(0, 100)}
	c.i++
	err := c.out.Emit(&kernel.Rows[string]{E: []kernel.Element[string]{e}})
	return kernel.Polled{Records: 1, Watermark: eventtime.Time(c.i)}, err
}

// collector keeps the strings that it is given.
type collector struct{ r *rig }

func (collector) Open(*kernel.OpenContext) error              { return nil }
func (collector) Watermark(eventtime.Time, int) (bool, error) { return true, nil }
func (collector) Close() error                                { return nil }
func (c collector) Process(_ int, b kernel.Batch) error {
	c.r.tell(func() {
		for _, e := range b.(*kernel.Rows[string]).E {
			c.r.got = append(c.r.got, e.Value)
		}
	})
	return nil
}

func (r *rig) tell(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.changed.Broadcast()
}

func (r *rig) until(cond func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		r.changed.Wait()
	}
}

func (r *rig) push(it engine.Item, force bool) bool {
	r.t.Helper()
	ok, err := r.sender.Push(it, r.parker, force)
	if err != nil {
		r.t.Fatal(err)
	}
	return ok
}
