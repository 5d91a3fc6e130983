package triggering

import (
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

var benchmarks = []struct {
	name string
	t    trigger.Trigger
}{
	{"end", end()},
	{"counts", end().Early(after(100)).Late(after(1))},
	{"early-by-clock", end().Early(trigger.AfterProcessingTime(time.Minute)).Late(after(1))},
	{"repeated-count", forall(after(100))},
	{"nested", forall(any_(after(100), all_(after(10), trigger.AfterProcessingTime(time.Minute))))},
}

// BenchmarkElement is what an aggregation asks for each element: note it, is a pane due, and if so fire.
func BenchmarkElement(b *testing.B) {
	for _, c := range benchmarks {
		m := compile(b, c.t)
		b.Run(c.name, func(b *testing.B) {
			var s State
			now := Now{End: 10, Watermark: eventtime.Min}
			m.Element(&s, now)
			b.ReportAllocs()
			for b.Loop() {
				now.Clock++
				m.Element(&s, now)
				if m.Ready(&s, now) {
					m.Fired(&s, now)
				}
			}
		})
	}
}

func BenchmarkWake(b *testing.B) {
	for _, c := range benchmarks {
		m := compile(b, c.t)
		b.Run(c.name, func(b *testing.B) {
			var s State
			now := Now{End: 10, Watermark: eventtime.Min}
			m.Element(&s, now)
			for b.Loop() {
				m.Wake(&s, now)
			}
		})
	}
}

// TestNoAllocationAnElement: once the first has come.
func TestNoAllocationAnElement(t *testing.T) {
	for _, c := range benchmarks {
		m := compile(t, c.t)
		var s State
		now := Now{End: 10, Watermark: eventtime.Min}
		m.Element(&s, now)
		n := testing.AllocsPerRun(1000, func() {
			now.Clock += 1000
			m.Element(&s, now)
			if m.Ready(&s, now) {
				m.Fired(&s, now)
			}
			m.Wake(&s, now)
			from := [1]State{s}
			m.Merge(&s, from[:], now)
		})
		if n != 0 {
			t.Errorf("%s allocates %v times an element", c.name, n)
		}
	}
}
