package twin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/testing/seeds"
)

// TestMachinesFireAsTheTwinSays: the triggers of windows that take elements, fire, grow and merge, one step after the other.
func TestMachinesFireAsTheTwinSays(t *testing.T) {
	type win struct {
		n     *node
		s     triggering.State
		end   eventtime.Time
		empty bool
	}
	fired, mergers := 0, 0
	seeds.Each(t, 3000, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 0))
		tr := trigger.Canonical(Triggers(2).Example(int(seed)))
		m := triggering.Compile(tr)
		now := instant{eventtime.Min, 0, 0}
		var ws []*win
		number := 0
		trace := tr.String() + ":"
		at := func(w *win) (instant, triggering.Now) {
			now.end = w.end
			return now, triggering.Now{End: w.end, Watermark: now.watermark, Clock: now.clock}
		}
		look := func(i int) error {
			w := ws[i]
			if w.empty {
				return nil
			}
			i1, i2 := at(w)
			want := w.n.ready(i1)
			if got := m.Ready(&w.s, i2); got != want {
				return fmt.Errorf("%s: window %d ready %v, want %v", trace, i, got, want)
			}
			if want {
				fired++
				trace += fmt.Sprintf(" fire%d", i)
				w.n.fire(i1)
				m.Fired(&w.s, i2)
			}
			if got := m.Finished(&w.s); got != w.n.done {
				return fmt.Errorf("%s: window %d finished %v, want %v", trace, i, got, w.n.done)
			}
			return nil
		}
		for range 10 + r.IntN(30) {
			switch step := r.IntN(12); {
			case len(ws) == 0 || step == 0:
				trace += " new"
				ws = append(ws, &win{n: fresh(tr), end: max(now.watermark, 0) + eventtime.Time(r.IntN(9)) - 2, empty: true})
			case step == 1:
				now.watermark = max(now.watermark, 0) + eventtime.Time(r.IntN(4))
				trace += fmt.Sprintf(" w%d", now.watermark)
				for i := range ws {
					if err := look(i); err != nil {
						return err
					}
				}
			case step == 2:
				now.clock += eventtime.Time(r.IntN(5))
				trace += fmt.Sprintf(" c%d", now.clock)
				for i := range ws {
					if err := look(i); err != nil {
						return err
					}
				}
			case step <= 4:
				mergers++
				into := r.IntN(len(ws))
				w := ws[into]
				var nodes []*node
				var states []triggering.State
				if !w.empty {
					nodes = append(nodes, w.n)
				}
				for i := 0; i < len(ws); i++ {
					if ws[i] != w && r.IntN(2) == 0 {
						trace += fmt.Sprintf(" take%d", i)
						states = append(states, ws[i].s)
						if !ws[i].empty {
							nodes = append(nodes, ws[i].n)
						}
						w.end = max(w.end, ws[i].end)
						ws[i] = nil
					}
				}
				w.end += eventtime.Time(r.IntN(3))
				trace += fmt.Sprintf(" into%d@%d", into, w.end)
				ws = slices.DeleteFunc(ws, func(w *win) bool { return w == nil })
				i1, i2 := at(w)
				m.Merge(&w.s, states, i2)
				if len(nodes) > 0 {
					w.n, w.empty = merged(tr, nodes, i1), false
				}
				if got := m.Finished(&w.s); got != w.n.done {
					return fmt.Errorf("%s: finished %v, want %v", trace, got, w.n.done)
				}
			default:
				i := r.IntN(len(ws))
				w := ws[i]
				if w.n.done {
					continue
				}
				trace += fmt.Sprintf(" e%d", i)
				_, i2 := at(w)
				w.empty = false
				number++
				w.n.see(&element{number: number, at: moment{clock: now.clock, watermark: now.watermark}})
				m.Element(&w.s, i2)
				if err := look(i); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if !seeds.Given() && (fired < 1000 || mergers < 1000) {
		t.Errorf("only %d firings and %d mergers", fired, mergers)
	}
}
