package engine_test

import (
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/testing/sim"
)

// spread is a job in several simulated processes: one engine.Job each, joined by a wire.
type spread struct {
	jobs    []*engine.Job
	keepers []*checkpoint.Keeper
	wire    *wire
}

func (s *spread) Start() {
	for w, j := range s.jobs {
		j.EachInbound(func(e *engine.StageEdge, from, to int, in engine.Inbound) func() {
			return s.wire.receive(w, e, from, to, in)
		})
	}
	for _, j := range s.jobs {
		j.Start()
	}
}

func (s *spread) Trigger(checkpoint int64, overtake bool) {
	for _, j := range s.jobs {
		j.Trigger(checkpoint, overtake)
	}
}

func (s *spread) Stop() {
	for _, j := range s.jobs {
		j.Stop()
	}
	s.wire.close()
}

func (s *spread) Cancel(err error) {
	for _, j := range s.jobs {
		j.Cancel(err)
	}
	s.wire.close()
}

func (s *spread) Subtasks() (n int) {
	for _, j := range s.jobs {
		n += j.Subtasks()
	}
	return n
}

func (s *spread) Describe() (out string) {
	for w, j := range s.jobs {
		out += fmt.Sprintf("process %d:\n%s", w, j.Describe())
	}
	return out
}

// Wait returns the first error that is not a crash on purpose.
func (s *spread) Wait() error {
	var errs []error
	for _, j := range s.jobs {
		if err := j.Wait(); err != nil && !errors.Is(err, errCrash) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wire is a transport without sockets: a queue of frames from each process to each other, each delivered by
// a goroutine of its own, some time later, in order. One goroutine runs at a time, so there are no locks.
type wire struct {
	sched   *sim.Scheduler
	room    int
	seed    uint64
	links   [][]*link
	senders map[int]*wireSender    // by number of channel
	inbound map[int]engine.Inbound // likewise
	batches int
	closed  bool
}

type link struct {
	parker engine.Parker
	frames []func() error
}

func newWire(sched *sim.Scheduler, workers, room int, seed uint64) *wire {
	x := &wire{sched: sched, room: room, seed: seed, senders: map[int]*wireSender{}, inbound: map[int]engine.Inbound{}}
	for from := range workers {
		x.links = append(x.links, nil)
		for to := range workers {
			l := &link{parker: sched.NewParker(fmt.Sprintf("link %d-%d", from, to))}
			x.links[from] = append(x.links[from], l)
			if from != to {
				sched.Go("link", l.parker, func() { x.run(l) })
			}
		}
	}
	return x
}

func (x *wire) place(stage string, subtask int) int {
	h := fnv.New64a()
	fmt.Fprint(h, stage, subtask, x.seed)
	return int(h.Sum64() % uint64(len(x.links)))
}

// connect sets the options of the job of process w.
func (x *wire) connect(o *engine.Options, w int) {
	o.Local = func(stage string, subtask int) bool { return x.place(stage, subtask) == w }
	o.Remote = func(e *engine.StageEdge, from, to int) engine.Sender {
		s := &wireSender{x: x, e: e, number: e.Number(from, to), credit: x.room, link: x.links[w][x.place(e.To.Name(), to)]}
		if x.senders[s.number] != nil {
			panic(fmt.Sprintf("two channels have number %d", s.number))
		}
		x.senders[s.number] = s
		return s
	}
}

func (x *wire) receive(w int, e *engine.StageEdge, from, to int, in engine.Inbound) func() {
	n := e.Number(from, to)
	x.inbound[n] = in
	back := x.links[w][x.place(e.From.Name(), from)]
	return func() { back.send(func() error { x.senders[n].granted(); return nil }) }
}

func (x *wire) run(l *link) {
	for !x.closed {
		l.parker.Yield()
		if len(l.frames) == 0 {
			l.parker.Park(eventtime.Max)
			continue
		}
		f := l.frames[0]
		l.frames = l.frames[1:]
		if err := f(); err != nil && !errors.Is(err, engine.ErrStopped) {
			panic(err)
		}
	}
}

func (x *wire) close() {
	x.closed = true
	for _, ls := range x.links {
		for _, l := range ls {
			l.parker.Wake()
		}
	}
}

func (l *link) send(frame func() error) {
	l.frames = append(l.frames, frame)
	l.parker.Wake()
}

type wireSender struct {
	x       *wire
	e       *engine.StageEdge
	link    *link
	number  int
	credit  int // negative after pushes by force
	waiting engine.Parker
}

func (s *wireSender) Push(it engine.Item, from engine.Parker, force bool) (bool, error) {
	if s.x.closed {
		return false, engine.ErrStopped
	}
	if it.Batch() != nil {
		if s.credit <= 0 && !force {
			s.waiting = from
			return false, nil
		}
		s.credit--
		s.x.batches++
	}
	b, err := it.Append(nil, s.e.Codec)
	if err != nil {
		return false, err
	}
	if it.Batch() != nil {
		s.e.Codec.Recycle(it.Batch())
	}
	s.link.send(func() error { return s.x.inbound[s.number].Deliver(b) })
	return true, nil
}

func (s *wireSender) Overtake(checkpoint int64) error {
	_, err := s.Push(engine.Overtaking(checkpoint), nil, true)
	return err
}

// granted checks that what is under way never exceeds the room but by force, in the only place that sees it.
func (s *wireSender) granted() {
	s.credit++
	if s.credit > s.x.room {
		panic(fmt.Sprintf("channel %d has %d credits of %d", s.number, s.credit, s.x.room))
	}
	if s.waiting != nil && s.credit > 0 {
		p := s.waiting
		s.waiting = nil
		p.Wake()
	}
}
