package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/transport"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/enginetest"
	"github.com/millstream/millstream/testing/seeds"
)

// TestRandomJobsAreExactOverSockets runs the engine's random jobs at two or three workers that are connected by
// loopback sockets, some with TLS, takes aligned, overtaking and timed-out checkpoints, cuts connections at
// random bytes and restores the last complete checkpoint with a new mesh; what is committed must equal a naive
// evaluation. The interleaving is the machine's, so a seed repeats the job but not always its failure.
func TestRandomJobsAreExactOverSockets(t *testing.T) {
	start, runs := seeds.From(t, 30)
	var sum figures
	for i := range runs {
		seed := start + uint64(i)
		if err := runSpread(t, seed, &sum); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, seeds.Rerun(t, seed))
		}
	}
	t.Logf("seeds %d to %d: %+v", start, start+uint64(runs)-1, sum)
	// A run that exercises nothing proves nothing.
	if runs >= 30 && (sum.Checkpoints == 0 || sum.Cuts == 0 || sum.Restores == 0 || sum.Recorded == 0 || sum.Elements == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}

type figures struct{ Attempts, Checkpoints, Cuts, Restores, Recorded, Elements int }

func runSpread(t *testing.T, seed uint64, sum *figures) error {
	r := rand.New(rand.NewPCG(seed, 2))
	g := enginetest.Random(r, true)
	s := &spread{g: g, r: r, sum: sum, store: &checkpoint.MemoryStore{}, parallelism: 2 + r.IntN(2), mode: r.IntN(3), cuts: r.IntN(4)}
	s.news.L = &s.mu
	o := transport.Options{Job: "test", Token: []byte("secret"), Room: 1 + r.IntN(3)}
	if r.IntN(4) == 0 {
		o.TLS = selfSigned(t)
	}
	o.Dial = s.dial
	addresses := map[string]string{}
	for i := range 2 + r.IntN(2) {
		o.Name = fmt.Sprintf("worker %d", i)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		w := &worker{name: o.Name, end: transport.NewEndpoint(ln, o)}
		defer w.end.Close()
		s.workers = append(s.workers, w)
		addresses[w.name] = ln.Addr().String()
	}
	for attempt := uint64(1); ; attempt++ {
		done, err := s.attempt(attempt, addresses, o.Room)
		if err != nil {
			return fmt.Errorf("attempt %d, %d workers, mode %d: %w", attempt, len(s.workers), s.mode, err)
		}
		if done {
			break
		}
		if s.last != nil {
			sum.Restores++
		}
	}
	n, err := g.Compare()
	sum.Elements += n
	return err
}

// spread is a coordinator reduced to what the test needs, and its workers.
type spread struct {
	g           *enginetest.Graph
	r           *rand.Rand // of the coordinator
	sum         *figures
	store       *checkpoint.MemoryStore
	parallelism int
	mode        int // 0 aligned, 1 overtaking, 2 timeout
	cuts        int // that are still to be made
	workers     []*worker
	last        *checkpoint.Checkpoint
	nextID      int64

	cutAfter atomic.Int64 // bytes that the next connection is given before it is cut; 0: it is not
	cut      atomic.Int64 // connections that were cut

	mu      sync.Mutex
	news    sync.Cond // something below has changed
	records int       // read in this attempt
	parts   []checkpoint.Part
	ended   int
	failed  error // of a job or a snapshot
	subs    int
}

type worker struct {
	name   string
	end    *transport.Endpoint
	mesh   *transport.Mesh
	job    *engine.Job
	keeper *checkpoint.Keeper
	err    error // of the job
}

// cutConn is closed after so many bytes were written, in the midst of whatever it was.
type cutConn struct {
	net.Conn
	left *atomic.Int64
	cut  *atomic.Int64
}

func (c *cutConn) Write(b []byte) (int, error) {
	left := c.left.Add(-int64(len(b)))
	if left > 0 {
		return c.Conn.Write(b)
	}
	n := max(0, left+int64(len(b)))
	n2, err := c.Conn.Write(b[:n])
	c.cut.Add(1)
	return n2, errors.Join(err, c.Conn.Close(), errors.New("cut by the test"))
}

func (s *spread) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if n := s.cutAfter.Swap(0); n > 0 {
		left := new(atomic.Int64)
		left.Store(n)
		c = &cutConn{c, left, &s.cut}
	}
	return c, nil
}

func (s *spread) options(w *worker, room int) engine.Options {
	o := engine.Options{
		Parallelism: s.parallelism, Room: room, CacheBytes: 3000, Checkpoints: true, Budget: 7, Splits: enginetest.Splits,
		Local: w.mesh.Local, Remote: w.mesh.Sender,
		OpenBackend: func(ctx context.Context, n *kernel.Node, sub, par int) (statebackend.Backend, error) {
			return s.last.Open(ctx, s.store, memory.Driver{}, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)}, n.Name, sub)
		},
		RenewBase: w.keeper.RenewBase,
		OnRecords: func(n int) bool { s.tell(func() { s.records += n }); return false },
		OnEnd:     func(string, int) { s.tell(func() { s.ended++ }) },
		OnSnapshot: func(snap *engine.SubtaskSnapshot) {
			p, err := w.keeper.Persist(context.Background(), snap)
			s.tell(func() {
				if err != nil {
					s.failed = err
				}
				if snap.Checkpoint == s.nextID && !snap.Aborted {
					s.parts = append(s.parts, p)
				}
				for _, c := range snap.Channels {
					if len(c) > 0 {
						s.sum.Recorded++
					}
				}
			})
		},
		OnFailure: func() { s.tell(func() { s.failed = errors.Join(s.failed, errJob) }) },
	}
	if s.mode == 2 {
		o.AlignTimeout = 1
	}
	if s.last != nil {
		o.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return s.last.Restore(context.Background(), s.store, stage, subtask)
		}
	}
	return o
}

var errJob = errors.New("a job failed")

func (s *spread) tell(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.news.Broadcast()
}

// until waits for a condition, or for a failure.
func (s *spread) until(cond func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.failed == nil && !cond() {
		s.news.Wait()
	}
	return s.failed == nil
}

func (s *spread) attempt(number uint64, addresses map[string]string, room int) (done bool, err error) {
	s.sum.Attempts++
	s.records, s.parts, s.ended, s.failed, s.subs = 0, nil, 0, nil, 0
	if s.cuts > 0 {
		s.cuts--
		s.cutAfter.Store(1 + s.r.Int64N([]int64{400, 20_000}[s.r.IntN(2)]))
	} else {
		s.cutAfter.Store(0)
	}
	cut := s.cut.Load()
	offset := s.r.IntN(len(s.workers))
	place := func(stage string, subtask int) string {
		return s.workers[(len(stage)+subtask+offset)%len(s.workers)].name
	}
	for _, w := range s.workers {
		w.mesh = w.end.NewMesh(transport.Run{Generation: 1, Attempt: number}, place)
		w.keeper = checkpoint.NewKeeper(s.store, s.last)
		if w.job, err = engine.NewJob(context.Background(), &s.g.Graph, s.options(w, room)); err != nil {
			return false, err
		}
		s.subs += w.job.Subtasks()
	}
	var all sync.WaitGroup
	for _, w := range s.workers {
		all.Go(func() { // a worker's life
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if w.err = w.mesh.Connect(ctx, w.job, addresses); w.err == nil {
				w.job.Start()
				w.err = w.job.Wait()
			} else {
				s.tell(func() { s.failed = errors.Join(s.failed, errJob) })
			}
			w.mesh.Close(w.err)
		})
	}
	done, err = s.coordinate()
	for _, w := range s.workers {
		if done {
			w.job.Stop()
		} else {
			w.job.Cancel(errCancelled)
		}
	}
	all.Wait()
	if n := int(s.cut.Load() - cut); n > 0 {
		s.sum.Cuts += n
		done = false // the last checkpoint may be complete all the same; restoring it must change nothing
	}
	for _, w := range s.workers {
		if err == nil && w.err != nil && (done || !expected(w.err)) {
			err = fmt.Errorf("%s: %w", w.name, w.err)
		}
	}
	if done && err == nil && s.failed != nil {
		err = s.failed
	}
	return done, err
}

var errCancelled = errors.New("cancelled by the coordinator")

// expected says that a job ended because of a cut, here or elsewhere: no step is to blame.
func expected(err error) bool {
	var step *engine.StepError
	return !errors.As(err, &step) && (errors.Is(err, errCancelled) || strings.Contains(err.Error(), "worker"))
}

// coordinate takes checkpoints at random points until everything has been processed, or something fails.
func (s *spread) coordinate() (done bool, err error) {
	for {
		more, seen := s.r.IntN(150), 0
		if !s.until(func() bool {
			if seen == 0 {
				seen = s.records
			}
			return s.ended == s.subs || s.records >= seen+more
		}) {
			return false, nil
		}
		s.mu.Lock()
		last := s.ended == s.subs
		s.nextID++
		s.parts = nil
		s.mu.Unlock()
		for _, w := range s.workers {
			w.job.Trigger(s.nextID, s.mode == 1)
		}
		if !s.until(func() bool { return len(s.parts) == s.subs }) {
			return false, nil
		}
		c, err := checkpoint.Assemble(s.last, s.parts)
		if err != nil {
			return false, err
		}
		s.last = c
		s.sum.Checkpoints++
		for _, n := range s.g.Sinks {
			for _, pre := range c.Prepared(n.Name) {
				if err := n.Sink.Commit(context.Background(), pre.Checkpoint, pre.Committables); err != nil {
					return false, err
				}
			}
		}
		for _, w := range s.workers {
			w.keeper.Completed(c.ID)
		}
		s.store.Retain(c)
		if last {
			return true, nil
		}
	}
}
