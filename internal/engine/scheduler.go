package engine

import (
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// Scheduler runs the goroutines of a job and is the only place where they wait. The real one is below;
// a simulated one (testing/sim) runs one goroutine at a time, in an order drawn from a seed, under a
// clock that moves when nothing else can.
type Scheduler interface {
	// Go starts a goroutine that waits only in p. It returns at once. run may end its goroutine instead of returning.
	Go(name string, p Parker, run func())
	// NewParker makes the waiting place of one goroutine.
	NewParker(name string) Parker
	// Now is the processing time.
	Now() eventtime.Time
}

// Parker is where one goroutine waits.
type Parker interface {
	// Park returns once Wake was called since Park last returned, or when the processing time has reached
	// until (eventtime.Max: no limit), or for no reason at all. Only the owner calls it.
	Park(until eventtime.Time)
	// Wake makes the owner's present or next Park return. Anyone may call it; it never waits.
	Wake()
	// Yield is where a simulated scheduler may run others first; the real one does nothing.
	Yield()
}

// Real is the Scheduler of production: goroutines, channels and the clock of the machine.
type Real struct{}

// Go implements Scheduler.
func (Real) Go(_ string, _ Parker, run func()) { go run() }

// NewParker implements Scheduler.
func (Real) NewParker(string) Parker { return &realParker{c: make(chan struct{}, 1)} }

// Now implements Scheduler.
func (Real) Now() eventtime.Time { return eventtime.Time(time.Now().UnixMilli()) }

// maxPark is in ms: a time.Duration reaches 292 years only.
const maxPark = 24 * 3600 * 1000

type realParker struct {
	c     chan struct{}
	timer *time.Timer
}

func (p *realParker) Park(until eventtime.Time) {
	if until >= eventtime.Max {
		<-p.c
		return
	}
	d := time.Duration(min(until-Real{}.Now(), maxPark)) * time.Millisecond
	if d <= 0 {
		select {
		case <-p.c:
		default:
		}
		return
	}
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.c:
		p.timer.Stop()
	case <-p.timer.C:
	}
}

func (p *realParker) Wake() {
	select {
	case p.c <- struct{}{}:
	default:
	}
}

func (p *realParker) Yield() {}
