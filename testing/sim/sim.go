// Package sim runs the goroutines of a job one at a time, in an order drawn from a seed, under a clock
// that moves only when nothing else can: every interleaving can be repeated, and a job that is stuck is
// seen to be.
package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
)

// Scheduler is an engine.Scheduler. Its goroutines must wait in their Parker and nowhere else.
type Scheduler struct {
	rnd   *rand.Rand
	now   eventtime.Time
	procs []*proc
	back  chan struct{} // a goroutine gives control back
	steps int
	at    int // step at which after is called; 0: never
	after func()

	// MaxSteps is the number of switches after which Run gives up; 0: 10 million.
	MaxSteps int
	// Switch is the chance, in percent, that Yield lets others run first.
	Switch int
}

var _ engine.Scheduler = (*Scheduler)(nil)

// New returns a Scheduler whose choices follow from seed.
func New(seed uint64) *Scheduler {
	r := rand.New(rand.NewPCG(seed, 0x9E3779B97F4A7C15))
	return &Scheduler{rnd: r, back: make(chan struct{}), Switch: []int{0, 10, 50, 100}[r.IntN(4)]}
}

type proc struct {
	s      *Scheduler
	name   string
	resume chan struct{}
	live   bool
	slow   bool // gets a tenth of the turns
	parked bool
	yields bool // parked by Yield: a Wake meanwhile is for the next Park
	woken  bool
	until  eventtime.Time
}

// NewParker implements engine.Scheduler.
func (s *Scheduler) NewParker(name string) engine.Parker {
	return &proc{s: s, name: name, resume: make(chan struct{}), slow: s.rnd.IntN(4) == 0}
}

// Go implements engine.Scheduler. The goroutine runs once Run chooses it.
func (s *Scheduler) Go(name string, p engine.Parker, run func()) {
	q := p.(*proc)
	q.live = true
	s.procs = append(s.procs, q)
	go func() {
		<-q.resume
		defer func() {
			q.live = false
			s.back <- struct{}{}
		}()
		run()
	}()
}

// Now implements engine.Scheduler.
func (s *Scheduler) Now() eventtime.Time { return s.now }

// Rand is the source of the choices, for the goroutines it runs.
func (s *Scheduler) Rand() *rand.Rand { return s.rnd }

// Run runs everything that was and will be started, until all goroutines have returned. It fails if they
// wait for each other for ever, or do not come to an end.
func (s *Scheduler) Run() error {
	limit := s.MaxSteps
	if limit == 0 {
		limit = 10_000_000
	}
	var runnable []*proc
	for {
		runnable = runnable[:0]
		next, alive := eventtime.Max, 0
		kept := s.procs[:0]
		for _, p := range s.procs {
			if !p.live {
				continue
			}
			kept = append(kept, p)
			alive++
			if p.parked && !p.yields && !p.woken && s.now < p.until {
				next = min(next, p.until)
				continue
			}
			runnable = append(runnable, p)
		}
		s.procs = kept
		if alive == 0 {
			return nil
		}
		if len(runnable) == 0 {
			if next >= eventtime.Max {
				return fmt.Errorf("stuck: %s wait for each other", s.describe())
			}
			s.now = next
			continue
		}
		if s.steps++; s.steps > limit {
			return fmt.Errorf("no end after %d steps: %s", limit, s.describe())
		}
		if s.steps == s.at {
			s.after()
		}
		p := runnable[s.rnd.IntN(len(runnable))]
		for p.slow && s.rnd.IntN(10) > 0 && len(runnable) > 1 {
			p = runnable[s.rnd.IntN(len(runnable))]
		}
		if !p.yields {
			p.woken = false
		}
		p.parked, p.yields = false, false
		p.resume <- struct{}{}
		<-s.back
	}
}

// After makes Run call f, once, after n more steps; f does not wait. A later call replaces an earlier one.
func (s *Scheduler) After(n int, f func()) { s.at, s.after = s.steps+max(1, n), f }

// Steps is the number of switches so far.
func (s *Scheduler) Steps() int { return s.steps }

func (s *Scheduler) describe() string {
	var names []string
	for _, p := range s.procs {
		state := "runnable"
		if p.parked && !p.woken && !p.yields && s.now < p.until {
			state = fmt.Sprintf("parked until %v", p.until)
		}
		names = append(names, p.name+" "+state)
	}
	return strings.Join(names, ", ")
}

// Park implements engine.Parker.
func (p *proc) Park(until eventtime.Time) {
	p.parked, p.until = true, until
	p.s.back <- struct{}{}
	<-p.resume
}

// Wake implements engine.Parker.
func (p *proc) Wake() { p.woken = true }

// Yield implements engine.Parker.
func (p *proc) Yield() {
	if p.s.rnd.IntN(100) < p.s.Switch {
		p.yields = true
		p.Park(eventtime.Max)
	}
}
