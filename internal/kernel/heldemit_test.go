package kernel

import (
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// collects keeps a timer pending that holds the watermark at its first element, and emits at a time that a test says.
type collects struct {
	timer Timer
	clear bool           // before it emits
	at    eventtime.Time // of what the element 2 emits
}

func (s *collects) fns() KeyedFns[string, int64, string] {
	return KeyedFns[string, int64, string]{
		Declare: func(d *KeyedDecl) {
			s.timer = EventTimer(d, "end", func(_ *ProcessContext, _ string, out *Emitter[string]) error {
				out.Emit("end")
				return nil
			})
		},
		Process: func(c *ProcessContext, _ string, v int64, out *Emitter[string]) error {
			switch v {
			case 1:
				s.timer.Set(ms(1000), OutputAt(c.Timestamp()))
			case 2:
				if s.clear {
					s.timer.Clear()
				}
				out.EmitAt(s.at.Time(), "full")
				s.timer.Clear()
			}
			return nil
		},
	}
}

// What a pending timer holds the watermark for may be emitted by an element too, and is not late.
func TestWhatATimerHoldsForMayBeEmittedByAnElement(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &collects{at: 10}
		g := newKeyedRig(t, s.fns()).start()
		w := win(0, 2000)
		g.put("k", 1, 10, w)
		g.to(20)
		after(g)
		g.holds(10)
		g.put("k", 2, 30, w)
		g.want("0 @10 full")
		g.to(40)
		g.holds(40) // the timer is cleared
		g.to(3000)
		g.want()
	})
}

func TestNothingIsEmittedBeforeWhatATimerHolds(t *testing.T) {
	held := func(clear bool, at eventtime.Time, timer bool) error {
		s := &collects{clear: clear, at: at}
		g := newKeyedRig(t, s.fns()).start()
		if timer {
			g.put("k", 1, 10, win(0, 2000))
		} else {
			g.put("l", 1, 10, win(0, 2000)) // that of another key
		}
		g.to(20)
		return g.tryPut("k", 2, 30, win(0, 2000))
	}
	if err := held(false, 10, true); err != nil {
		t.Errorf("held: %v", err)
	}
	for name, err := range map[string]error{
		"before the hold": held(false, 9, true), "after it was cleared": held(true, 10, true), "held for another key": held(false, 10, false),
	} {
		if want := "before the element's timestamp " + time.UnixMilli(30).UTC().Format("2006-01-02T15:04:05.000Z07:00"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %s", name, err, want)
		}
	}
}
