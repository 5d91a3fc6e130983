package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
)

// Parallel is an engine.Scheduler that runs the goroutines of a job at once, as production does, so that
// the race detector sees them, but under a clock that moves only when all of them wait. Its goroutines
// must wait in their Parker and nowhere else.
type Parallel struct {
	now atomic.Int64 // event time; written by Run only

	mu      sync.Mutex
	quiet   *sync.Cond // running fell to 0
	live    []*parallelProc
	running int // of live, those that do not wait
	steps   int
	at      int // step at which after is called; 0: never
	after   func()
}

var _ engine.Scheduler = (*Parallel)(nil)

// NewParallel returns a Parallel whose clock stands at 0.
func NewParallel() *Parallel {
	s := &Parallel{}
	s.quiet = sync.NewCond(&s.mu)
	return s
}

// parallelProc is the Parker of one goroutine. All fields are guarded by Parallel.mu.
type parallelProc struct {
	s      *Parallel
	name   string
	resume *sync.Cond
	parked bool
	woken  bool // since Park last returned, while not parked
	until  eventtime.Time
}

// NewParker implements engine.Scheduler.
func (s *Parallel) NewParker(name string) engine.Parker {
	return &parallelProc{s: s, name: name, resume: sync.NewCond(&s.mu)}
}

// Go implements engine.Scheduler.
func (s *Parallel) Go(_ string, p engine.Parker, run func()) {
	q := p.(*parallelProc)
	s.mu.Lock()
	s.live = append(s.live, q)
	s.running++
	s.mu.Unlock()
	go func() {
		defer func() {
			s.mu.Lock()
			s.live = slices.DeleteFunc(s.live, func(p *parallelProc) bool { return p == q })
			s.stopped()
			s.mu.Unlock()
		}()
		run()
	}()
}

// Now implements engine.Scheduler.
func (s *Parallel) Now() eventtime.Time { return eventtime.Time(s.now.Load()) }

// After makes a goroutine that parks call f, once, after n more steps; f does not wait. A later call replaces an earlier one.
func (s *Parallel) After(n int, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.after = s.steps+max(1, n), f
}

// Steps is how often a goroutine has parked so far.
func (s *Parallel) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}

// step counts one, and calls what is due.
func (s *Parallel) step() {
	s.mu.Lock()
	var f func()
	if s.steps++; s.steps == s.at {
		f = s.after
	}
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// stopped counts one goroutine that no longer runs. The caller holds mu.
func (s *Parallel) stopped() {
	if s.running--; s.running == 0 {
		s.quiet.Signal()
	}
}

// Run moves the clock until all goroutines have returned. It fails if they wait for each other for ever.
func (s *Parallel) Run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.running > 0 {
			s.quiet.Wait()
		}
		if len(s.live) == 0 {
			return nil
		}
		next := eventtime.Max
		for _, p := range s.live {
			next = min(next, p.until)
		}
		if next >= eventtime.Max {
			var names []string
			for _, p := range s.live {
				names = append(names, p.name)
			}
			return fmt.Errorf("stuck: %s wait for each other", strings.Join(names, ", "))
		}
		s.now.Store(int64(max(next, s.Now())))
		for _, p := range s.live {
			if p.until <= next {
				p.unpark()
			}
		}
	}
}

// unpark lets a parked goroutine run. The caller holds mu.
func (p *parallelProc) unpark() {
	p.parked = false
	p.s.running++
	p.resume.Signal()
}

// Park implements engine.Parker.
func (p *parallelProc) Park(until eventtime.Time) {
	p.s.step()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.woken && p.s.Now() < until {
		p.parked, p.until = true, until
		p.s.stopped()
		for p.parked {
			p.resume.Wait()
		}
	}
	p.woken = false
}

// Wake implements engine.Parker.
func (p *parallelProc) Wake() {
	p.s.mu.Lock()
	if p.parked {
		p.unpark()
	} else {
		p.woken = true
	}
	p.s.mu.Unlock()
}

// Yield implements engine.Parker.
func (p *parallelProc) Yield() {}
