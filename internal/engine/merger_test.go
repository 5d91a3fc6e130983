package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/testing/seeds"
)

func TestMergerByExample(t *testing.T) {
	const start = eventtime.Min
	type step struct {
		input  int
		w      eventtime.Time
		idle   bool
		finish bool
		want   eventtime.Time
		asleep bool // all are idle
	}
	for _, c := range []struct {
		name   string
		inputs int
		steps  []step
	}{
		{"the least input rules, and all must have spoken", 2, []step{
			{input: 0, w: 10, want: start},
			{input: 1, w: 5, want: 5},
			{input: 1, w: 20, want: 10},
		}},
		{"no input goes back", 1, []step{
			{input: 0, w: 10, want: 10},
			{input: 0, w: 5, want: 10},
		}},
		{"an idle input holds nobody", 2, []step{
			{input: 0, w: 10, want: start},
			{input: 1, w: start, idle: true, want: 10},
			{input: 0, w: 30, want: 30},
		}},
		{"an input that returns lowers nothing and holds until it has caught up", 2, []step{
			{input: 1, w: 5, idle: true, want: start},
			{input: 0, w: 30, want: 30},
			{input: 1, w: 6, want: 30},
			{input: 0, w: 40, want: 30},
			{input: 1, w: 35, want: 35},
		}},
		{"when all are idle time stands at the least that they said", 2, []step{
			{input: 0, w: 10, want: start},
			{input: 1, w: 20, want: 10},
			{input: 0, w: 10, idle: true, want: 20},
			{input: 1, w: 50, idle: true, want: 20, asleep: true},
			{input: 0, w: 30, idle: true, want: 30, asleep: true},
			{input: 0, w: 40, want: 40},
		}},
		{"the watermark of an input that goes idle with it is not lost", 1, []step{
			{input: 0, w: 10, want: 10},
			{input: 0, w: 50, idle: true, want: 50, asleep: true},
		}},
		{"finished inputs do not count, and when all are, time is at its end", 2, []step{
			{input: 0, w: 10, want: start},
			{input: 1, finish: true, want: 10},
			{input: 0, finish: true, want: eventtime.Max},
		}},
		{"an idle input holds the end of time", 2, []step{
			{input: 0, w: 10, want: start},
			{input: 0, w: 10, idle: true, want: start},
			{input: 1, finish: true, want: 10, asleep: true},
			{input: 0, finish: true, want: eventtime.Max},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMerger(c.inputs)
			for i, s := range c.steps {
				if s.finish {
					m.Finish(s.input)
				} else {
					m.Observe(s.input, s.w, s.idle)
				}
				if m.Watermark() != s.want || m.Idle() != s.asleep {
					t.Fatalf("step %d, %+v: watermark %v, idle %v", i, s, m.Watermark(), m.Idle())
				}
			}
		})
	}
}

// What an input said before a restore stands, but that it was idle, or at its end, it must say again
// (FLINK-32828: inputs that had not spoken since the restore were left out).
func TestRestoredMergerWaitsForSilentInputs(t *testing.T) {
	m := NewMerger(3)
	m.Observe(0, 10, false)
	m.Observe(1, 5, true)
	m.Finish(2)
	if m.Watermark() != 10 {
		t.Fatal(m.Watermark())
	}
	r := NewMerger(3)
	r.Restore(m.State())
	r.Observe(0, 200, false)
	if r.Watermark() != 10 || r.Idle() {
		t.Errorf("watermark %v, idle %v: two inputs have not spoken", r.Watermark(), r.Idle())
	}
	r.Observe(1, 60, false)
	if r.Watermark() != 10 {
		t.Errorf("watermark %v: the last input has not ended again", r.Watermark())
	}
	r.Finish(2)
	if r.Watermark() != 60 {
		t.Errorf("watermark %v, want 60", r.Watermark())
	}
}

// TestMergerAgreesWithItsDefinition runs random events through a Merger and through its definition,
// worked out anew from everything that was said.
func TestMergerAgreesWithItsDefinition(t *testing.T) {
	seeds.Each(t, 50_000, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 1 + r.IntN(4)
		m := NewMerger(n)
		twin := naiveMerger{said: make([][]said, n)}
		merged := eventtime.Min
		for step := range 12 {
			i := r.IntN(n)
			switch {
			case r.IntN(12) == 0:
				s := m.State()
				m = NewMerger(n)
				m.Restore(s)
				twin.restore(merged)
			case r.IntN(10) == 0:
				m.Finish(i)
				twin.said[i] = append(twin.said[i], said{finished: true})
			default:
				w := eventtime.Time(r.IntN(20))
				switch r.IntN(12) {
				case 0:
					w = eventtime.Max
				case 1:
					w = eventtime.Min
				}
				idle := r.IntN(4) == 0
				m.Observe(i, w, idle)
				twin.said[i] = append(twin.said[i], said{w: w, idle: idle})
			}
			if m.Watermark() < merged {
				return fmt.Errorf("step %d: watermark went back from %v to %v", step, merged, m.Watermark())
			}
			merged = m.Watermark()
			if w, idle := twin.watermark(), twin.idle(); merged != w || m.Idle() != idle {
				return fmt.Errorf("step %d: watermark %v, idle %v, want %v, %v after %+v", step, merged, m.Idle(), w, idle, twin.said)
			}
		}
		return nil
	})
}

type said struct {
	w              eventtime.Time
	idle, finished bool
}

// naiveMerger keeps all that was said.
type naiveMerger struct {
	said  [][]said
	floor eventtime.Time // the merged watermark so far
	begun bool
}

// restore forgets idleness and ends, not watermarks.
func (m *naiveMerger) restore(merged eventtime.Time) {
	for i, ss := range m.said {
		m.said[i] = nil
		if w := highest(ss); w > eventtime.Min {
			m.said[i] = []said{{w: w}}
		}
	}
	m.floor, m.begun = merged, true
}

func highest(ss []said) eventtime.Time {
	w := eventtime.Min
	for _, s := range ss {
		if !s.finished {
			w = max(w, s.w)
		}
	}
	return w
}

func finished(ss []said) bool {
	return slices.ContainsFunc(ss, func(s said) bool { return s.finished })
}

func idle(ss []said) bool {
	for i := len(ss) - 1; i >= 0; i-- {
		if !ss[i].finished {
			return ss[i].idle
		}
	}
	return false
}

func (m *naiveMerger) idle() bool {
	open := 0
	for _, ss := range m.said {
		if !finished(ss) {
			open++
			if !idle(ss) {
				return false
			}
		}
	}
	return open > 0
}

func (m *naiveMerger) watermark() eventtime.Time {
	if !m.begun {
		m.floor, m.begun = eventtime.Min, true
	}
	var active, waiting []eventtime.Time
	for _, ss := range m.said {
		switch {
		case finished(ss):
		case idle(ss):
			waiting = append(waiting, highest(ss))
		default:
			active = append(active, highest(ss))
		}
	}
	var w eventtime.Time
	switch {
	case len(active) > 0:
		w = slices.Min(active)
	case len(waiting) == 0:
		w = eventtime.Max
	default:
		w = slices.Min(waiting)
	}
	if w == eventtime.Max && len(waiting) > 0 && slices.Min(waiting) < eventtime.Max {
		w = m.floor // idle inputs hold the end of time
	}
	m.floor = max(m.floor, w)
	return m.floor
}
