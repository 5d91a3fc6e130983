package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// clockStep is a step with a cell, a timer of event time, one of the clock and a family of each, and calls that a test gives.
type clockStep struct {
	cell       state.Value[int64]
	event      Timer
	clock      Timer
	eventTags  TimerFamily
	clockTags  TimerFamily
	element    func(s *clockStep, c *ProcessContext, v int64)
	timer      func(s *clockStep, name string, c *ProcessContext)
	withExpiry bool
}

func (s *clockStep) fns() KeyedFns[string, int64, string] {
	return KeyedFns[string, int64, string]{
		Declare: func(d *KeyedDecl) {
			fired := func(name string, c *ProcessContext, out *Emitter[string]) error {
				out.Emit(name)
				if s.timer != nil {
					s.timer(s, name, c)
				}
				return nil
			}
			on := func(name string) keyedHandler[string, string] {
				return func(c *ProcessContext, _ string, out *Emitter[string]) error { return fired(name, c, out) }
			}
			tagged := func(name string) tagHandler[string, string] {
				return func(c *ProcessContext, _, tag string, out *Emitter[string]) error { return fired(name+" "+tag, c, out) }
			}
			s.cell = state.NewValue[int64](d, "cell")
			s.event, s.clock = EventTimer(d, "event", on("event")), ProcessingTimer(d, "clock", on("clock"))
			s.eventTags, s.clockTags = EventTimerFamily(d, "events", tagged("event")), ProcessingTimerFamily(d, "clocks", tagged("clock"))
			if s.withExpiry {
				OnWindowExpiry(d, on("expiry"))
			}
		},
		Process: func(c *ProcessContext, _ string, v int64, _ *Emitter[string]) error {
			s.element(s, c, v)
			return nil
		},
	}
}

func TestProcessingTimerFiresOnceTheClockIsAtItsTime(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) { s.clock.SetIn(time.Duration(v) * time.Millisecond) }}
		g := newKeyedRig(t, s.fns())
		g.now = 1000
		g.start()
		g.put("k", 70_000, 3, window.GlobalWindow)
		after(g)
		g.to(40)
		after(g)
		g.at(70_999)
		after(g)
		g.want()
		g.at(71_000)
		after(g)
		g.want("0 @3 clock")
		g.at(1_000_000)
		g.want()
		if next := g.op.NextClock(); next <= eventtime.Max {
			t.Errorf("there is something to do at %d", next)
		}
	})
}

// Beam's BEAM-14244: what a timer of the clock emits had the present watermark as its timestamp.
func TestProcessingTimerHoldsTheWatermarkAtItsElement(t *testing.T) {
	element := func(s *clockStep, c *ProcessContext, v int64) { s.clock.SetIn(5 * time.Millisecond) }
	for name, c := range map[string]struct {
		win      window.Window
		lateness int64
	}{"global window": {window.GlobalWindow, 0}, "window that is late": {win(0, 10), 100}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, after func(*keyedRig)) {
				g := newKeyedRig(t, (&clockStep{element: element}).fns())
				g.spec.Lateness = c.lateness
				g.start()
				g.put("k", 1, 2, c.win)
				after(g)
				g.to(1)
				g.holds(1)
				g.to(50)
				after(g)
				g.holds(2)
				g.at(4)
				after(g)
				g.want()
				g.holds(2)
				g.at(6)
				g.want("0 @2 clock")
				after(g)
				g.holds(50)
			})
		})
	}
	t.Run("window that ends", func(t *testing.T) {
		each(t, func(t *testing.T, after func(*keyedRig)) {
			g := newKeyedRig(t, (&clockStep{element: element}).fns()).start()
			g.put("k", 1, 2, win(0, 10))
			after(g)
			g.to(9)
			g.holds(2)
			g.to(50)
			after(g)
			g.want("0 @2 clock") // its window can wait no longer
			g.holds(50)
			g.at(1000)
			g.want()
		})
	})
}

// Beam issue 33595: a timer that arms itself for ever kept a job from draining.
func TestLoopingProcessingTimerDoesNotBlockTheEnd(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		loop := func(s *clockStep, c *ProcessContext) {
			s.cell.Set(s.cell.Get() + 1)
			s.clock.SetIn(10*time.Millisecond, OutputAt(c.Window().End()))
		}
		s := &clockStep{
			element: func(s *clockStep, c *ProcessContext, v int64) { loop(s, c) },
			timer: func(s *clockStep, name string, c *ProcessContext) {
				if name == "clock" {
					loop(s, c)
				}
			},
			withExpiry: true,
		}
		g := newKeyedRig(t, s.fns()).start()
		g.put("k", 1, 7, window.GlobalWindow)
		for now := eventtime.Time(0); now <= 35; now += 5 {
			g.at(now)
			after(g)
			g.holds(g.told) // it moves its timestamp on, so it holds nothing back
		}
		end := fmt.Sprintf("0 @%d ", eventtime.EndOfGlobalWindow-1)
		g.want(end+"clock", end+"clock", end+"clock") // at 10, 20 and 30
		g.to(100)
		g.holds(100)
		g.to(eventtime.Max)
		g.want(end+"clock", end+"expiry") // what was pending is not lost, and does not set itself again
		g.holds(eventtime.Max)
		g.to(eventtime.Max)
		g.at(1_000_000)
		g.want()
	})
}

func TestOutputTimestampHoldsTheWatermark(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) {
			switch at := c.Timestamp(); v {
			case 1: // a timer of event time that emits as of its element
				s.event.SetIn(time.Second, OutputAt(at))
			case 2: // and one that does not
				s.event.SetIn(time.Second)
			case 3:
				s.event.Clear()
			case 4: // two of them: the least holds
				s.eventTags.Set("a", ms(3000), OutputAt(ms(700)))
				s.clockTags.SetIn("a", time.Hour, OutputAt(ms(600)))
			case 5:
				s.clockTags.Clear("a")
			case 6: // beyond the end of the window, and after its own time
				s.event.Set(ms(1_000_100), OutputAt(ms(5_000_000)))
			}
		}}
		g := newKeyedRig(t, s.fns()).start()
		w := win(0, 2_000_000)
		for _, step := range []struct {
			v, at, to, holds int64
			lines            []string
		}{
			{1, 10, 20, 10, nil},
			{1, 30, 40, 30, nil}, // set again: the hold moves
			{3, 50, 60, 60, nil}, // cleared
			{1, 70, 80, 70, nil},
			{2, 75, 90, 90, nil}, // without
			{1, 95, 200, 95, nil},
			{4, 300, 900, 95, nil},
			{4, 310, 2000, 600, []string{"0 @95 event"}},
			{5, 320, 2500, 700, nil},
			{4, 310, 2999, 700, nil}, // nothing can be held back at 600 any more
			{5, 340, 3001, 3001, []string{"0 @700 event a"}},
			{6, 3100, 1_000_000, 1_000_000, nil},
			{9, 3200, 1_000_100, 1_000_100, []string{"0 @1999999 event"}},
		} {
			g.put("k", step.v, eventtime.Time(step.at), w)
			after(g)
			g.to(eventtime.Time(step.to))
			after(g)
			g.holds(eventtime.Time(step.holds))
			g.want(step.lines...)
		}
	})
}

func TestFamiliesFireByTimeThenDeclarationThenTag(t *testing.T) {
	each(t, func(t *testing.T, after func(*keyedRig)) {
		s := &clockStep{
			element: func(s *clockStep, c *ProcessContext, v int64) {
				for _, tag := range []string{"b", "", "a"} {
					s.eventTags.Set(tag, ms(100))
					s.clockTags.Set(tag, ms(100))
				}
				s.eventTags.Set("first", ms(50))
				s.eventTags.Set("moved", ms(10))
				s.eventTags.Set("moved", ms(9000))
				s.eventTags.Set("cleared", ms(10))
				s.eventTags.Clear("cleared")
				s.eventTags.Clear("never set")
				s.event.Set(ms(100))
				s.clock.Set(ms(100))
			},
			timer: func(s *clockStep, name string, c *ProcessContext) {
				if name == "event first" {
					s.eventTags.SetIn("second", 7*time.Millisecond)
				}
			},
		}
		g := newKeyedRig(t, s.fns()).start()
		g.put("k", 0, 1, window.GlobalWindow)
		after(g)
		g.to(99)
		after(g)
		g.want("0 @50 event first", "0 @57 event second")
		g.to(100)
		after(g)
		g.want("0 @100 event", "0 @100 event ", "0 @100 event a", "0 @100 event b")
		g.at(100)
		after(g)
		g.want("0 @1 clock", "0 @1 clock ", "0 @1 clock a", "0 @1 clock b")
		g.to(9000)
		g.want("0 @9000 event moved")
		if n := g.op.state.resident + g.op.wakes.table.resident + g.op.clock.table.resident; n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

func TestTagsOfAKeyAreBounded(t *testing.T) {
	s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) {
		s.eventTags.Set(fmt.Sprint(v), ms(eventtime.Time(maxTags-v)))
		s.clockTags.Set("cleared at once", ms(5))
		s.clockTags.Clear("cleared at once")
	}}
	g := newKeyedRig(t, s.fns())
	g.cache = 16 << 20
	g.start()
	for v := range int64(maxTags - 1) {
		g.put("k", v, 1, window.GlobalWindow)
	}
	g.put("k", 5, 1, window.GlobalWindow) // pending: it is moved
	g.put("other", 5, 1, window.GlobalWindow)
	before := g.op.state.used
	g.to(maxTags)
	if len(g.lines) != maxTags || g.lines[0] != "0 @2 event 9998" && g.lines[1] != "0 @2 event 9998" {
		t.Errorf("%d timers fired, %v first", len(g.lines), g.lines[:2])
	}
	if before < maxTags*40 || g.op.state.used != 0 {
		t.Errorf("the states took %d bytes, and then %d", before, g.op.state.used)
	}
	g.to(eventtime.Max - 1_000_000_000)
	s.element = func(s *clockStep, c *ProcessContext, v int64) {
		for i := range maxTags + 1 {
			s.clockTags.SetIn(fmt.Sprint(i), time.Hour)
		}
	}
	err := g.tryPut("k", 1, 1, window.GlobalWindow)
	if err == nil || !strings.Contains(err.Error(), `timer "clocks": 10000 tags are pending for key k, which is the most`) {
		t.Errorf("one tag too many: %v", err)
	}
}

// A timer that is overdue when its step is restored fires at once.
func TestOverdueProcessingTimerFiresAfterARestore(t *testing.T) {
	s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) { s.clockTags.SetIn("a", time.Hour) }}
	g := newKeyedRig(t, s.fns()).start()
	g.put("k", 1, 2, window.GlobalWindow)
	g.to(10)
	g.now = 4_000_000
	g.restart()
	g.holds(10)
	g.want("0 @2 clock a")
}

// A handler may set timers of the other kind of time: neither keeps the other at one time for ever.
func TestTimersThatSetEachOtherBringTimeForward(t *testing.T) {
	s := &clockStep{
		element: func(s *clockStep, c *ProcessContext, v int64) { s.clock.SetIn(0) },
		timer: func(s *clockStep, name string, c *ProcessContext) {
			if name == "clock" {
				s.event.SetIn(0)
			} else {
				s.clock.SetIn(0)
			}
		},
	}
	g := newKeyedRig(t, s.fns()).start()
	g.to(100)
	g.put("k", 1, 3, window.GlobalWindow)
	for now := range eventtime.Time(3) {
		g.at(now)
		g.want("0 @3 clock", "0 @3 event")
	}
}

// A program without its timer of processing time releases what the timer held, and what it was waiting for, when its time
// comes.
func TestTimerThatIsGoneReleasesItsHold(t *testing.T) {
	s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) { s.clock.SetIn(5 * time.Millisecond) }}
	g := newKeyedRig(t, s.fns()).start()
	g.put("k", 1, 2, window.GlobalWindow)
	g.put("in a window", 1, 3, win(0, 40))
	g.to(30)
	g.holds(2)
	g.spec.Fns = countOfFive(10)
	g.restart()
	g.holds(2)
	g.to(40) // the window ends
	g.at(5)
	g.holds(40)
	g.want()
	if n := g.op.state.resident + g.op.clock.table.resident + g.op.holds.table.resident; n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A step is restored while its index of the clock is being taken apart, and then the watermark fires timers that move wake-ups in it.
func TestIndexIsTakenApartBeforeUserCodeMovesTimers(t *testing.T) {
	s := &clockStep{
		element: func(s *clockStep, c *ProcessContext, v int64) {
			s.clock.Set(ms(3_600_050))
			s.event.Set(ms(50))
		},
		timer: func(s *clockStep, name string, c *ProcessContext) {
			if name == "event" {
				s.clock.Set(ms(3_600_010)) // before the time that it had, but near it
			}
		},
	}
	g := newKeyedRig(t, s.fns()).start()
	for i := range 20 {
		g.put(fmt.Sprint("k", i), 1, 5, window.GlobalWindow)
	}
	g.to(10)
	g.now = 3_590_000
	if done, err := g.op.Clock(g.now, 5); done || err != nil {
		t.Fatalf("done: %v, %v", done, err)
	}
	g.restore()
	g.to(50)
	if len(g.lines) != 20 {
		t.Fatalf("%d timers of event time fired, want 20", len(g.lines))
	}
	g.lines = nil
	g.at(3_600_009)
	g.want()
	g.at(3_600_010)
	if len(g.lines) != 20 {
		t.Errorf("%d timers of the clock fired, want 20", len(g.lines))
	}
}

// The end of many windows whose keys wait for the clock can be interrupted anywhere.
func TestExpiryOfProcessingTimersIsInterruptedExactly(t *testing.T) {
	for _, cache := range []int64{0, 1 << 20} {
		s := &clockStep{
			element: func(s *clockStep, c *ProcessContext, v int64) {
				s.cell.Set(v)
				s.clock.SetIn(time.Duration(v) * time.Minute)
				s.clockTags.SetIn("a", 0, OutputAt(ms(20)))
			},
			timer:      func(s *clockStep, name string, c *ProcessContext) { s.cell.Set(s.cell.Get() + 1); s.clock.SetIn(0) },
			withExpiry: true,
		}
		g := newKeyedRig(t, s.fns())
		g.cache = cache
		g.start()
		for i := range int64(20) {
			g.put(fmt.Sprint("k", i), i, eventtime.Time(10+i%5), win(0, 30))
		}
		slices := 0
		for budget := 1; !g.slice(50, budget); budget++ {
			s, err := g.op.Snapshot(1, false)
			if err == nil {
				_, err = s.Keyed.Encode(1 << 30)
			}
			if err != nil {
				t.Fatal(err)
			}
			g.deltas = append(g.deltas, joined(s.Keyed.Delta())...)
			if err := g.open(s.Blob); err != nil {
				t.Fatal(err)
			}
			slices++
		}
		got := map[string]int{}
		for _, l := range g.lines {
			got[l]++
		}
		want := map[string]int{"0 @20 clock a": 20, "0 @29 expiry": 20}
		for i := range 5 {
			want[fmt.Sprintf("0 @%d clock", 10+i)] = 4
		}
		if d := cmp.Diff(want, got); d != "" || slices < 3 {
			t.Errorf("cache %d, %d slices: (-want +got):\n%s", cache, slices, d)
		}
		g.holds(50)
	}
}

func TestMistakesWithTimers(t *testing.T) {
	handler := func(*ProcessContext, string, *Emitter[string]) error { return nil }
	type call = func(s *clockStep, c *ProcessContext, v int64)
	for name, c := range map[string]struct {
		element call
		timer   func(s *clockStep, name string, c *ProcessContext)
		want    string
	}{
		"output before the element": {element: func(s *clockStep, c *ProcessContext, _ int64) { s.clock.SetIn(0, OutputAt(ms(4))) },
			want: `timer "clock" was set with OutputAt of 1970-01-01T00:00:00.004Z, before the timestamp 1970-01-01T00:00:00.005Z`},
		"output at the zero time": {element: func(s *clockStep, c *ProcessContext, _ int64) { s.event.Set(ms(9), OutputAt(time.Time{})) },
			want: `timer "event" was set with OutputAt of the zero time`},
		"tag at the zero time": {element: func(s *clockStep, c *ProcessContext, _ int64) { s.eventTags.Set("a", time.Time{}) },
			want: `timer "events" was set to the zero time`},
		"output before the handler": {
			element: func(s *clockStep, c *ProcessContext, _ int64) { s.event.Set(ms(8)) },
			timer:   func(s *clockStep, name string, c *ProcessContext) { s.clockTags.SetIn("a", 0, OutputAt(ms(7))) },
			want:    `timer "event" of key k at 1970-01-01T00:00:00.008Z: timer "clocks" was set with OutputAt of`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &clockStep{element: c.element, timer: c.timer}
			g := newKeyedRig(t, s.fns()).start()
			err := g.tryPut("k", 0, 5, window.GlobalWindow)
			if err == nil {
				_, err = g.op.Watermark(10, 100)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %s", err, c.want)
			}
		})
	}
	t.Run("failing handler of a tag", func(t *testing.T) {
		var f TimerFamily
		g := newKeyedRig(t, KeyedFns[string, int64, string]{
			Declare: func(d *KeyedDecl) {
				f = ProcessingTimerFamily(d, "f", func(*ProcessContext, string, string, *Emitter[string]) error { return errors.New("broken") })
			},
			Process: func(*ProcessContext, string, int64, *Emitter[string]) error { f.SetIn("x", 0); return nil },
		}).start()
		g.put("k", 0, 1, window.GlobalWindow)
		_, err := g.op.Clock(0, 10)
		if want := `timer "f" with tag x of key k at 1970-01-01T00:00:00.000Z: broken`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	})
	t.Run("declarations", func(t *testing.T) {
		d := &KeyedDecl{}
		ProcessingTimer(d, "t", handler)
		EventTimerFamily(d, "t", func(*ProcessContext, string, string, *Emitter[string]) error { return nil })
		if err := CheckKeyed[string, string](d); err == nil || !strings.Contains(err.Error(), `timer "t": declared twice`) {
			t.Error(err)
		}
		d = &KeyedDecl{}
		EventTimerFamily(d, "f", func(*ProcessContext, int, string, *Emitter[string]) error { return nil })
		if err := CheckKeyed[string, string](d); err == nil || !strings.Contains(err.Error(), `timer "f": its handler is a func(*sdk.ProcessContext, int, string`) {
			t.Error(err)
		}
		defer func() {
			if r := fmt.Sprint(recover()); !strings.Contains(r, "Declare") {
				t.Errorf("panic %q does not say what to do", r)
			}
		}()
		TimerFamily{}.Clear("a")
	})
}

// The bytes of docs/format/keyed-state.md.
func TestFormatOfTimers(t *testing.T) {
	d := &KeyedDecl{}
	EventTimer(d, "t", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	ProcessingTimer(d, "p", func(*ProcessContext, string, *Emitter[string]) error { return nil })
	EventTimerFamily(d, "f", func(*ProcessContext, string, string, *Emitter[string]) error { return nil })
	ProcessingTimerFamily(d, "g", func(*ProcessContext, string, string, *Emitter[string]) error { return nil })
	s := newSchema(nil, d.timers, nil, 0)
	k := s.newState()
	k.timers[0], k.more.outs[0] = 7, 3
	k.timers[1], k.more.outs[1] = 9, 4
	k.more.put(tagTimer{8, noTime, d.timers[2], "b"})
	k.more.put(tagTimer{7, 6, d.timers[2], "a"})
	k.more.put(tagTimer{8, 5, d.timers[3], ""})
	k.wake, k.more.clock, k.more.hold = 7, 8, 3
	none := "f0cf9adef4a6e220" // no time
	want := "05" + "0102" + "0e06" + "0202" + "1208" +
		"030f" + "0e0c" + "0161" + "10" + none + "0162" + // those of f
		"0403" + "100a" + "00" + "0003" + "0e1006"
	b, err := s.Append(nil, k)
	if got := hex.EncodeToString(b); err != nil || got != want {
		t.Errorf("the state is\n%s, want\n%s (%v)", got, want, err)
	}
	back, rest, err := s.Decode(append(b, 0xff))
	if err != nil || len(rest) != 1 {
		t.Fatalf("it comes back with %d bytes left: %v", len(rest), err)
	}
	if again, err := s.Append(nil, back); err != nil || hex.EncodeToString(again) != want {
		t.Errorf("it came back as\n%x, want\n%s (%v)", again, want, err)
	}

	blob := s.appendBlob(nil, keyedBlob{indexes: [3]horizons{{minuteWidth, dayWidth}, {0, dayWidth}, {2 * minuteWidth, dayWidth}}, passed: -1})
	if got, want := hex.EncodeToString(blob), "02"+"c0a907"+"80f0b252"+"00"+"80f0b252"+"80d30e"+"80f0b252"+"01"+"00"+"05"+"04"+
		"74010174"+"70020170"+"54030166"+"50040167"; got != want {
		t.Errorf("the blob is\n%s, want\n%s", got, want)
	}
}

// What the first version of the format has stored is read: it had cells and timers of event time.
func TestStateOfTheFirstVersionIsRead(t *testing.T) {
	blob, err := hex.DecodeString("01" + "c0a907" + "80f0b252" + "04" + "03" + "6301016e" + "63020173" + "74030174")
	if err != nil {
		t.Fatal(err)
	}
	b, free, names, err := parseBlob(blob)
	want := map[fieldName]uint64{{'c', "n"}: 1, {'c', "s"}: 2, {'t', "t"}: 3}
	if d := cmp.Diff(want, names, cmp.AllowUnexported(fieldName{})); d != "" || err != nil || free != 4 || !b.first ||
		b.indexes != [3]horizons{{minuteWidth, dayWidth}} || b.passed != eventtime.Min {
		t.Fatalf("%+v, next id %d (%v), names (-want +got):\n%s", b, free, err, d)
	}
	// Its fields are those of TestKeyedStateFormat. A step that has it wakes up.
	s := &clockStep{element: func(s *clockStep, c *ProcessContext, v int64) { s.event.Set(ms(20)) }}
	g := newKeyedRig(t, s.fns()).start()
	g.put("k", 1, 5, window.GlobalWindow)
	g.to(7)
	snap, err := g.op.Snapshot(1, false)
	if err == nil {
		_, err = snap.Keyed.Encode(1 << 30)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.deltas = joined(snap.Keyed.Delta())
	old := append([]byte{firstVersion}, g.op.wakes.horizons().append(nil)...)
	old = append(old, 3, 2, kindCell, 1, 4, 'c', 'e', 'l', 'l', 't', 2, 5, 'e', 'v', 'e', 'n', 't')
	if err := g.open(old); err != nil {
		t.Fatal(err)
	}
	g.to(7)
	g.holds(7)
	g.to(20)
	g.want("0 @20 event")
}
