package sim

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
)

func TestParallelClockMovesOnlyWhenAllWait(t *testing.T) {
	s := NewParallel()
	sleeper, worker := s.NewParker("sleeper"), s.NewParker("worker")
	var work atomic.Int64
	var slept eventtime.Time
	var seen int64
	s.Go("sleeper", sleeper, func() {
		for until := s.Now() + 10; s.Now() < until; {
			sleeper.Park(until)
		}
		slept, seen = s.Now(), work.Load()
		worker.Wake()
	})
	s.Go("worker", worker, func() {
		for work.Add(1) < 100_000 {
		}
		for s.Now() < 10 {
			worker.Park(eventtime.Max)
		}
	})
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if slept != 10 || seen != 100_000 {
		t.Errorf("woke at %d ms after %d pieces of work, want 10 ms after 100000", slept, seen)
	}
}

// A wake-up between two parks, or during one, must not be lost: this never ends if one is.
func TestParallelLosesNoWakeUp(t *testing.T) {
	s := NewParallel()
	a, b := s.NewParker("a"), s.NewParker("b")
	var turn atomic.Int64
	const turns = 10_000
	play := func(me, other engine.Parker, parity int64) func() {
		return func() {
			for {
				n := turn.Load()
				switch {
				case n >= turns:
					other.Wake()
					return
				case n%2 == parity:
					turn.Add(1)
					other.Wake()
				default:
					me.Park(eventtime.Max)
				}
			}
		}
	}
	s.Go("a", a, play(a, b, 0))
	s.Go("b", b, play(b, a, 1))
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if got := turn.Load(); got != turns {
		t.Errorf("%d turns, want %d", got, turns)
	}
}

func TestParallelFindsGoroutinesThatWaitForEachOther(t *testing.T) {
	s := NewParallel()
	a, b := s.NewParker("reader"), s.NewParker("writer")
	s.Go("reader", a, func() { a.Park(eventtime.Max) })
	s.Go("writer", b, func() { b.Park(eventtime.Max) })
	err := s.Run()
	if err == nil || !strings.HasPrefix(err.Error(), "stuck: ") || !strings.Contains(err.Error(), "reader") || !strings.Contains(err.Error(), "writer") {
		t.Errorf("Run = %v, want stuck, naming reader and writer", err)
	}
	a.Wake()
	b.Wake()
	if err := s.Run(); err != nil {
		t.Errorf("after both were woken: %v", err)
	}
}
