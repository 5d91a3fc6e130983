package kernel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// countOfFive counts elements, and emits the count at a timer that the first of five sets and the fifth clears.
func countOfFive(delay eventtime.Time) KeyedFns[string, int64, string] {
	var n state.Value[int64]
	var timer Timer
	return KeyedFns[string, int64, string]{
		Declare: func(d *KeyedDecl) {
			n = state.NewValue[int64](d, "n")
			timer = EventTimer(d, "timer", func(_ *ProcessContext, k string, out *Emitter[string]) error {
				out.Emit(fmt.Sprintf("%s had %d", k, n.Get()))
				return nil
			})
		},
		Process: func(c *ProcessContext, k string, v int64, out *Emitter[string]) error {
			n.Set(n.Get() + 1)
			switch n.Get() {
			case 1:
				timer.Set(ms(c.at.time + delay))
			case 5:
				timer.Clear()
			}
			return nil
		},
	}
}

// Beam issue 35090: a timer that ran before its time, and a clear in a later bundle that was ignored.
func TestTimerClearedByLaterBatchDoesNotFire(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		g := newKeyedRig(t, countOfFive(10)).start()
		for at := range eventtime.Time(5) {
			g.put("k", 0, at, window.GlobalWindow)
			after(g)
			g.to(at + 1)
			after(g)
		}
		g.to(30)
		g.want()
	})
}

func TestTimerFiresOnceTheWatermarkIsAtItsTime(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		g := newKeyedRig(t, countOfFive(2)).start()
		for at := range eventtime.Time(5) {
			g.put("k", 0, at, window.GlobalWindow)
			after(g)
			g.to(at)
			after(g)
			if at < 2 {
				g.want()
			}
			if at == 2 {
				g.want("0 @2 k had 3")
			}
		}
		g.to(eventtime.Max)
		g.want()
	})
}

// stepOf is a step with one cell, timers a, b and c, and calls that a test gives.
type stepOf struct {
	cell    state.Value[int64]
	a, b, c Timer
	element func(s *stepOf, c *ProcessContext, v int64)
	timer   func(s *stepOf, name string, c *ProcessContext)
	expiry  func(s *stepOf, c *ProcessContext)
}

func (s *stepOf) fns() KeyedFns[string, int64, string] {
	return KeyedFns[string, int64, string]{
		Declare: func(d *KeyedDecl) {
			on := func(name string) Timer {
				return EventTimer(d, name, func(c *ProcessContext, k string, out *Emitter[string]) error {
					out.Emit(name + " of " + k)
					if s.timer != nil {
						s.timer(s, name, c)
					}
					return nil
				})
			}
			s.cell = state.NewValue[int64](d, "cell")
			s.a, s.b, s.c = on("a"), on("b"), on("c")
			if s.expiry != nil {
				OnWindowExpiry(d, func(c *ProcessContext, k string, out *Emitter[string]) error {
					out.Emit(fmt.Sprintf("expiry of %s with %d", k, s.cell.Get()))
					s.expiry(s, c)
					return nil
				})
			}
		},
		Process: func(c *ProcessContext, k string, v int64, out *Emitter[string]) error {
			s.element(s, c, v)
			return nil
		},
	}
}

func TestTimersOfAKeyFireInOrderOfTimeThenDeclaration(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) {
			s.c.Set(ms(5))
			s.b.Set(ms(9000))
			s.a.Set(ms(9000))
		}}
		g := newKeyedRig(t, s.fns()).start()
		g.put("k", 0, 1, window.GlobalWindow)
		after(g)
		g.to(20_000)
		g.want("0 @5 c of k", "0 @9000 a of k", "0 @9000 b of k")
	})
}

func TestHandlerSetsAndClearsOtherTimers(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &stepOf{
			element: func(s *stepOf, c *ProcessContext, v int64) {
				s.a.Set(ms(10))
				s.b.Set(ms(20))
			},
			timer: func(s *stepOf, name string, c *ProcessContext) {
				if name == "a" {
					s.b.Clear()
					s.c.Set(ms(5)) // before its own time: one millisecond after it
				}
			},
		}
		g := newKeyedRig(t, s.fns()).start()
		g.put("k", 0, 1, window.GlobalWindow)
		after(g)
		g.to(10)
		after(g)
		g.want("0 @10 a of k")
		g.to(11)
		after(g)
		g.to(1000)
		g.want("0 @11 c of k")
	})
}

// A timer set later leaves its wake-up where it was; one set earlier moves it, out of another level too.
func TestTimerMayMoveBothWays(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) { s.a.Set(ms(eventtime.Time(v))) }}
		g := newKeyedRig(t, s.fns()).start()
		const day = dayWidth
		for _, at := range []int64{500, 9 * day, 30 * day, 2 * day, 700} {
			g.put("k", at, 1, window.GlobalWindow)
			after(g)
		}
		g.to(600)
		after(g)
		g.want()
		g.put("k", 3*day, 600, window.GlobalWindow)
		g.to(3*day - 1)
		after(g)
		g.want()
		g.to(40 * day)
		g.want(fmt.Sprintf("0 @%d a of k", 3*day))
	})
}

func TestTimerSetBehindTheWatermarkFiresAfterItsBatch(t *testing.T) {
	s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) { s.a.Set(ms(eventtime.Time(v))) }}
	g := newKeyedRig(t, s.fns()).start()
	g.to(1_000_000)
	g.put("k", 7, 3, window.GlobalWindow)
	g.want("0 @7 a of k")
	g.put("k", 1_000_000, 3, window.GlobalWindow)
	g.want("0 @1000000 a of k")
	g.put("k", 1_000_001, 3, window.GlobalWindow)
	g.want()
	// An element that is not late makes nothing that is: its timer is at the watermark.
	g.put("k", 7, 1_000_020, window.GlobalWindow)
	g.want("0 @1000000 a of k")
	// Nor is one that is late made later.
	g.put("k", 7, 500, window.GlobalWindow)
	g.want("0 @500 a of k")
}

// A timer may be set before the time of the element that sets it, such as the earliest of a buffer.
func TestTimerBeforeItsElementFiresOnTime(t *testing.T) {
	s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) { s.a.Set(ms(eventtime.Time(v))) }}
	g := newKeyedRig(t, s.fns()).start()
	g.to(40)
	g.put("k", 50, 50, window.GlobalWindow)
	g.put("k", 50, 100, window.GlobalWindow)
	g.to(49)
	g.want()
	g.to(60)
	g.want("0 @50 a of k")
}

// A batch fires so many timers and no more: the rest follows the next batch, or watermark.
func TestFiringAfterABatchIsBounded(t *testing.T) {
	s := &stepOf{
		element: func(s *stepOf, c *ProcessContext, v int64) { s.a.Set(ms(eventtime.Time(v))) },
		timer:   func(s *stepOf, name string, c *ProcessContext) { s.a.Set(c.Timestamp()) },
	}
	g := newKeyedRig(t, s.fns()).start()
	g.to(3 * BatchSize)
	g.put("k", 1, 1, window.GlobalWindow)
	first := len(g.lines)
	g.put("other", 9*BatchSize, 3, window.GlobalWindow)
	second := len(g.lines)
	g.to(3 * BatchSize)
	if first == 0 || first > BatchSize || second <= first || second > 2*BatchSize || len(g.lines) != 3*BatchSize {
		t.Errorf("%d timers fired after the first batch, %d after the second, and %d in the end; want at most %d, twice that, and %d",
			first, second, len(g.lines), BatchSize, 3*BatchSize)
	}
}

// A time after the window's life becomes its end, so that what was buffered is still flushed.
func TestTimerBeyondTheExpiryFiresAtTheExpiry(t *testing.T) {
	for _, lateness := range []int64{0, 5} {
		t.Run(fmt.Sprint(lateness), func(t *testing.T) {
			each(t, func(t *testing.T, after func(*keyedRig)) {
				s := &stepOf{
					element: func(s *stepOf, c *ProcessContext, v int64) {
						s.cell.Set(v)
						s.a.Set(ms(500))
					},
					timer: func(s *stepOf, name string, c *ProcessContext) {
						s.cell.Set(s.cell.Get() + 1)
						s.a.Set(ms(1000)) // nothing comes after the expiry
						s.b.Set(ms(1000))
					},
					expiry: func(s *stepOf, c *ProcessContext) { s.a.Set(ms(1000)) },
				}
				g := newKeyedRig(t, s.fns())
				g.spec.Lateness, g.spec.LateTo, g.ports = lateness, true, 2
				g.start()
				g.put("k", 7, 3, win(0, 10))
				after(g)
				g.to(eventtime.Time(9 + lateness))
				g.want()
				g.to(eventtime.Time(10 + lateness))
				after(g)
				at := []int64{9, 15}[lateness/5] // within the window, at its end; else when it is
				g.want(fmt.Sprintf("0 @%d a of k", at), "0 @9 expiry of k with 8")
				g.put("k", 7, 3, win(0, 10))
				g.want("1 @3 {k 7}")
				if n := g.metrics.LateDropped.Load(); n != 1 {
					t.Errorf("%d elements were counted as late, want 1", n)
				}
				if n := g.op.state.resident + g.op.state.spilled; n != 0 {
					t.Errorf("%d entries and windows are left", n)
				}
			})
		})
	}
}

// Beam issue 33595: a timer that arms itself for ever kept a job from draining.
func TestLoopingTimerDoesNotBlockTheEnd(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &stepOf{
			element: func(s *stepOf, c *ProcessContext, v int64) {
				s.cell.Set(1)
				s.a.Set(ms(c.at.time + 10))
				s.c.Set(ms(55))
			},
			timer: func(s *stepOf, name string, c *ProcessContext) {
				if name == "a" {
					s.a.Set(ms(c.at.time + 10))
				}
				if c.at.time == 40 {
					s.c.Set(ms(1_000_000)) // pending: it may be moved, and then fires
				}
			},
			expiry: func(*stepOf, *ProcessContext) {},
		}
		g := newKeyedRig(t, s.fns()).start()
		g.put("k", 0, 0, window.GlobalWindow)
		after(g)
		for w := eventtime.Time(0); w <= 35; w += 5 {
			g.to(w)
			after(g)
		}
		g.want("0 @10 a of k", "0 @20 a of k", "0 @30 a of k")
		g.to(eventtime.Max)
		g.want("0 @40 a of k", "0 @1000000 c of k", fmt.Sprintf("0 @%d expiry of k with 1", eventtime.EndOfGlobalWindow-1))
	})
}

// A timer that always sets its own time goes on by the millisecond until its window ends.
func TestTimerThatSetsItsOwnTimeEndsWithItsWindow(t *testing.T) {
	s := &stepOf{
		element: func(s *stepOf, c *ProcessContext, v int64) { s.a.Set(ms(10)) },
		timer:   func(s *stepOf, name string, c *ProcessContext) { s.a.Set(c.Timestamp()) },
	}
	g := newKeyedRig(t, s.fns()).start()
	g.put("k", 0, 0, win(0, 5000))
	for slices := 0; !g.slice(eventtime.Max, 10); slices++ {
		if slices > 600 {
			t.Fatal("it does not end")
		}
	}
	if len(g.lines) != 5000-10+1 {
		t.Errorf("it fired %d times, want once a millisecond from 10 to 5000", len(g.lines))
	}
}

// A snapshot between any two firings has those that were, with their effects, and not those to come.
func TestSnapshotInTheMidstOfAFiringIsExact(t *testing.T) {
	for _, cache := range []int64{0, 1 << 20} {
		s := &stepOf{
			element: func(s *stepOf, c *ProcessContext, v int64) {
				s.cell.Set(v)
				s.a.Set(ms(10))
				s.b.Set(ms(20))
			},
			timer:  func(s *stepOf, name string, c *ProcessContext) { s.cell.Set(s.cell.Get() + 1) },
			expiry: func(*stepOf, *ProcessContext) {},
		}
		g := newKeyedRig(t, s.fns())
		g.cache = cache
		g.start()
		for i := range int64(20) {
			g.put(fmt.Sprint("k", i), 100*i, 1, win(0, 30))
		}
		// A slice of 30 can look at all 20 keys, and fire ten times or, if what it looked at was restored,
		// never; so slices differ.
		slices := 0
		for budget := 30; !g.slice(50, budget); budget = 75 - budget {
			g.restore()
			slices++
		}
		if slices < 3 {
			t.Errorf("cache %d: the firing took %d slices: nothing was interrupted", cache, slices)
		}
		fired := map[string]int{}
		for _, l := range g.lines {
			fired[l[strings.LastIndex(l, "@"):]]++
		}
		want := map[string]int{}
		for i := range 20 {
			want[fmt.Sprintf("@10 a of k%d", i)] = 1
			want[fmt.Sprintf("@20 b of k%d", i)] = 1
			want[fmt.Sprintf("@29 expiry of k%d with %d", i, 100*i+2)] = 1
		}
		if d := cmp.Diff(want, fired); d != "" {
			t.Errorf("cache %d: (-want +got):\n%s", cache, d)
		}
	}
}

// quix-streams issue 1122: to expire one key took entries of keys that its bytes begin.
func TestKeysThatBeginWithEachOtherAreApart(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) {
			if v == 0 {
				s.cell.Clear()
				s.a.Clear()
				return
			}
			s.cell.Set(v)
			s.a.Set(ms(eventtime.Time(v)))
		}}
		g := newKeyedRig(t, s.fns())
		g.cache = 0
		g.start()
		keys := []string{"key", "key2", "key-1", "ke", "", "key\x00"}
		for i, k := range keys {
			g.put(k, int64(10+i), 1, window.GlobalWindow)
			after(g)
		}
		g.put("key", 0, 1, window.GlobalWindow)
		after(g)
		g.to(100)
		slices.Sort(g.lines)
		g.want("0 @11 a of key2", "0 @12 a of key-1", "0 @13 a of ke", "0 @14 a of ", "0 @15 a of key\x00")
	})
}

func TestKeyWithNothingLeftTakesNoRoom(t *testing.T) {
	s := &stepOf{element: func(s *stepOf, c *ProcessContext, v int64) {
		switch v {
		case 0:
			s.cell.Get()
		case 1:
			s.cell.Set(1)
			s.a.Set(ms(100))
		case 2:
			s.cell.Clear()
		case 3:
			s.a.Clear()
		}
	}}
	g := newKeyedRig(t, s.fns()).start()
	for _, c := range []struct{ v, states, wakes int }{{0, 0, 0}, {1, 1, 1}, {2, 1, 1}, {3, 0, 0}} {
		g.put("k", int64(c.v), 1, window.GlobalWindow)
		if got := [2]int{g.op.state.resident, g.op.wakes.table.resident}; got != [2]int{c.states, c.wakes} {
			t.Errorf("after %d: %d states and wake-ups, want %d and %d", c.v, got, c.states, c.wakes)
		}
	}
}

// A later version of a program has other cells and timers, in another order.
func TestCellsAndTimersAreFoundByName(t *testing.T) {
	type version struct{ cells, timers []string }
	var cells map[string]state.Value[int64]
	var timers map[string]Timer
	step := func(v version) KeyedFns[string, int64, string] {
		return KeyedFns[string, int64, string]{
			Declare: func(d *KeyedDecl) {
				cells, timers = map[string]state.Value[int64]{}, map[string]Timer{}
				for _, n := range v.cells {
					cells[n] = state.NewValue[int64](d, n)
				}
				for _, n := range v.timers {
					timers[n] = EventTimer(d, n, func(_ *ProcessContext, k string, out *Emitter[string]) error {
						out.Emit("timer " + n)
						return nil
					})
				}
			},
			Process: func(_ *ProcessContext, k string, value int64, out *Emitter[string]) error {
				line := ""
				for _, n := range v.cells {
					if x, ok := cells[n].Lookup(); ok {
						line += fmt.Sprintf("%s=%d ", n, x)
					}
					if value > 0 {
						cells[n].Set(value)
					}
				}
				if value > 0 {
					for i, n := range v.timers {
						timers[n].Set(ms(eventtime.Time(100 + i)))
					}
				}
				out.Emit(line)
				return nil
			},
		}
	}
	g := newKeyedRig(t, step(version{[]string{"x", "y"}, []string{"t", "u"}})).start()
	g.put("k", 1, 1, window.GlobalWindow)
	g.want("0 @1 ")

	g.spec.Fns = step(version{[]string{"z", "y"}, []string{"u"}})
	g.restore()
	g.put("k", 0, 2, window.GlobalWindow)
	g.want("0 @2 y=1 ")

	// x and t come back: they are new.
	g.spec.Fns = step(version{[]string{"y", "x"}, []string{"t", "u"}})
	g.restore()
	g.put("k", 0, 3, window.GlobalWindow)
	g.to(1000)
	g.want("0 @3 y=1 ", "0 @101 timer u")
}

func TestPortsOfAKeyedStep(t *testing.T) {
	var more *Emitter[string]
	var n state.Value[int64]
	g := newKeyedRig(t, KeyedFns[string, int64, string]{
		Declare: func(d *KeyedDecl) {
			more = NewOutput[string](d, "more")
			n = state.NewValue[int64](d, "n")
		},
		Process: func(c *ProcessContext, k string, v int64, out *Emitter[string]) error {
			if v == 0 {
				n.Set(5)
				return errors.New("no")
			}
			out.Emit(fmt.Sprint(n.Get()))
			more.Emit("more")
			return nil
		},
	})
	g.spec.LateTo, g.spec.ErrorsTo, g.ports = true, true, 4
	g.start()
	g.put("k", 0, 1, win(0, 10))
	g.put("k", 1, 2, win(0, 10))
	g.to(10)
	g.put("k", 2, 3, win(0, 10))
	// What the failing element wrote to its state stays.
	g.want("3 @1 {{k 0} no}", "0 @2 5", "1 @2 more", "2 @3 {k 2}")
}

func TestMistakesInKeyedSteps(t *testing.T) {
	var n state.Value[int64]
	var timer Timer
	handler := func(*ProcessContext, string, *Emitter[string]) error { return nil }
	declare := func(d *KeyedDecl) {
		n = state.NewValue[int64](d, "n")
		timer = EventTimer(d, "t", handler)
	}
	nothing := func(*ProcessContext, string, int64, *Emitter[string]) error { return nil }
	cases := map[string]struct {
		fns  KeyedFns[string, int64, string]
		want string
	}{
		"timer declared twice": {KeyedFns[string, int64, string]{Declare: func(d *KeyedDecl) {
			EventTimer(d, "t", handler)
			EventTimer(d, "t", handler)
		}}, `timer "t": declared twice`},
		"handler of other types": {KeyedFns[string, int64, string]{Declare: func(d *KeyedDecl) {
			EventTimer(d, "t", func(*ProcessContext, int, *Emitter[string]) error { return nil })
		}}, `timer "t": its handler is a func(*sdk.ProcessContext, int,`},
		"expiry of other types": {KeyedFns[string, int64, string]{Declare: func(d *KeyedDecl) {
			OnWindowExpiry(d, func(*ProcessContext, string, *Emitter[int]) error { return nil })
		}}, `OnWindowExpiry: its function is a func`},
		"cell declared twice": {KeyedFns[string, int64, string]{Declare: func(d *KeyedDecl) {
			state.NewValue[int64](d, "n")
			state.NewValue[string](d, "n")
		}}, `cell "n": declared twice`},
		"cell in Setup": {KeyedFns[string, int64, string]{Declare: declare, Process: nothing,
			Setup: func(context.Context, connector.Subtask) error { n.Set(1); return nil },
		}, `cell "n" was used outside a call`},
		"timer in Setup": {KeyedFns[string, int64, string]{Declare: declare, Process: nothing,
			Setup: func(context.Context, connector.Subtask) error { timer.Set(ms(1)); return nil },
		}, `timer "t" was used outside a call`},
		"cell in FinishBundle": {KeyedFns[string, int64, string]{Declare: declare, Process: nothing,
			FinishBundle: func(context.Context, *Emitter[string]) error { n.Get(); return nil },
		}, `cell "n" was used outside a call`},
		"timer at the zero time": {KeyedFns[string, int64, string]{Declare: declare,
			Process: func(*ProcessContext, string, int64, *Emitter[string]) error { timer.Set(time.Time{}); return nil },
		}, `timer "t" was set to the zero time`},
		"failing handler": {KeyedFns[string, int64, string]{
			Declare: func(d *KeyedDecl) {
				timer = EventTimer(d, "t", func(*ProcessContext, string, *Emitter[string]) error { return errors.New("broken") })
			},
			Process: func(*ProcessContext, string, int64, *Emitter[string]) error { timer.Set(ms(5)); return nil },
		}, `timer "t" of key k at 1970-01-01T00:00:00.005Z: broken`},
		"element that fails": {KeyedFns[string, int64, string]{Declare: declare,
			Process: func(*ProcessContext, string, int64, *Emitter[string]) error { return errors.New("broken") },
		}, `element {Key:k Value:0}: broken`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := newKeyedRig(t, c.fns)
			err := g.open(nil)
			if err == nil {
				err = g.tryPut("k", 0, 1, window.GlobalWindow)
			}
			if err == nil {
				err = g.op.Flush()
			}
			if err == nil {
				_, err = g.op.Watermark(10, 100)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %s", err, c.want)
			}
		})
	}
}

func TestZeroTimerPanicsWithAReason(t *testing.T) {
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "EventTimer") {
			t.Errorf("panic %q does not say what to do", r)
		}
	}()
	Timer{}.Set(ms(1))
}

func TestStatePartsNameCellsAndTimers(t *testing.T) {
	d := &KeyedDecl{}
	state.NewValue[int64](d, "n")
	EventTimer(d, "t", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	var lines []string
	for _, p := range d.StateParts() {
		lines = append(lines, p.String())
	}
	if diff := cmp.Diff([]string{`cell "n": value varint`, `timer "t": event time`}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := CheckKeyed[string, string](d); err != nil {
		t.Error(err)
	}
}

// The bytes of docs/format/keyed-state.md; see also TestFormatOfTimers.
func TestKeyedStateFormat(t *testing.T) {
	d := &KeyedDecl{}
	state.NewValue[int64](d, "n")
	state.NewValue[string](d, "s")
	EventTimer(d, "t", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	cells := state.SetOf(d).Decls
	s := newSchema(cells, d.timers, nil, 0)
	blob := "02" + "c0a907" + "80f0b252" + "00" + "00" + "80d30e" + "80f0b252" + "e0c508" + "d804" + "04" + "03" + "6301016e" + "63020173" + "74030174"
	if got := hex.EncodeToString(s.appendBlob(nil, keyedBlob{indexes: [3]horizons{{minuteWidth, dayWidth}, {0, 0}, {2 * minuteWidth, dayWidth}}, passed: 70_000, fired: 300})); got != blob {
		t.Errorf("the blob is\n%s, want\n%s", got, blob)
	}
	n, text := int64(300), "hi"
	k := keyState{cells: cell.Slots{&n, &text}, timers: []eventtime.Time{7}, wake: 5}
	entry := "04" + "0102ac02" + "0203026869" + "03010e" + "00010a"
	b, err := s.Append(nil, k)
	if got := hex.EncodeToString(b); err != nil || got != entry {
		t.Errorf("the state is\n%s, want\n%s (%v)", got, entry, err)
	}
	back, rest, err := s.Decode(append(b, 0xff))
	if err != nil || len(rest) != 1 || *back.cells[0].(*int64) != n || *back.cells[1].(*string) != text || back.timers[0] != 7 || back.wake != 5 {
		t.Errorf("the state came back as %+v, %x left (%v)", back, rest, err)
	}
}

func FuzzKeyedStateDecode(f *testing.F) {
	d := &KeyedDecl{}
	state.NewValue[int64](d, "n")
	state.NewValue[[]string](d, "s")
	EventTimer(d, "t", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	ProcessingTimer(d, "p", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	EventTimerFamily(d, "f", func(*ProcessContext, string, string, *Emitter[string]) error { return nil })
	s := newSchema(state.SetOf(d).Decls, d.timers, nil, 0)
	for _, seed := range []string{"", "00", "020402040a00030a0c0a", "0105080e10016112120162", "040102ac02020302686903010e00010a", "0201018001018003", "02030102030104", "0200010a00010a", "ffffffffffffffffff01", "01ffffffffffffffffff01"} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		k, _, err := s.Decode(src)
		if err != nil {
			return
		}
		b, err := s.Append(nil, k)
		if err != nil {
			t.Fatalf("decoded state does not encode: %v", err)
		}
		if _, rest, err := s.Decode(b); err != nil || len(rest) > 0 {
			t.Fatalf("state does not come back: %v", err)
		}
	})
}

func FuzzKeyedStateBlob(f *testing.F) {
	d := &KeyedDecl{}
	state.NewValue[int64](d, "n")
	f.Add(newSchema(state.SetOf(d).Decls, nil, nil, 0).appendBlob(nil, keyedBlob{indexes: [3]horizons{{minuteWidth, dayWidth}, {0, 0}, {2 * minuteWidth, dayWidth}}, passed: 70_000}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, src []byte) {
		_, free, names, err := parseBlob(src)
		if err != nil {
			return
		}
		for n, id := range names {
			if id == wakeID || id >= free {
				t.Fatalf("%v has id %d, the next free one is %d", n, id, free)
			}
		}
	})
}
