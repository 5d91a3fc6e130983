package triggering

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

// harness runs a machine over windows as an operator does: it asks at elements and when a wake-up has come, and never else.
type harness struct {
	m       *Machine
	now     Now // its End is not used
	windows map[string]*window
}

type window struct {
	State
	end eventtime.Time
}

const firstEnd = 10 // of the windows of a harness

func newHarness(m *Machine) *harness {
	return &harness{m: m, now: Now{Watermark: eventtime.Min}, windows: map[string]*window{}}
}

func (h *harness) at(w *window) Now {
	now := h.now
	now.End = w.end
	return now
}

func (h *harness) window(name string) *window {
	if h.windows[name] == nil {
		h.windows[name] = &window{end: firstEnd}
	}
	return h.windows[name]
}

// fire says whether w fired a pane.
func (h *harness) fire(w *window) bool {
	if !h.m.Ready(&w.State, h.at(w)) {
		return false
	}
	if finished := h.m.Fired(&w.State, h.at(w)); finished != h.m.Finished(&w.State) {
		panic(fmt.Sprintf("Fired says finished %v, Finished does not", finished))
	}
	return true
}

func (h *harness) element(w *window) bool {
	h.m.Element(&w.State, h.at(w))
	return h.fire(w)
}

// advance moves the times and returns the windows that fired. A window without a wake-up must not change.
func (h *harness) advance(watermark, clock eventtime.Time) (fired string, err error) {
	was := h.now
	h.now.Watermark, h.now.Clock = watermark, clock
	for _, name := range strings.Split("abcdef", "") {
		w := h.windows[name]
		if w == nil {
			continue
		}
		before := was
		before.End = w.end
		wakeW, wakeC := h.m.Wake(&w.State, before)
		if wakeW <= was.Watermark || wakeC <= was.Clock {
			return "", fmt.Errorf("%s wakes at %d and %d, which are not after %d and %d", name, wakeW, wakeC, was.Watermark, was.Clock)
		}
		ready := h.m.Ready(&w.State, before)
		if watermark < wakeW && clock < wakeC {
			if !ready && h.m.Ready(&w.State, h.at(w)) {
				return "", fmt.Errorf("%s became ready at %d and %d without a wake-up: they were %d and %d", name, watermark, clock, wakeW, wakeC)
			}
			continue
		}
		if h.fire(w) {
			fired += name
		}
	}
	return fired, nil
}

// script runs steps, separated by spaces:
//
//	a       an element of window a; a! it fires a pane
//	w10     the watermark is 10; w10!ab and windows a and b fire
//	c10     the clock is 10; c10!a and window a fires
//	a+b+c@20  windows b and c go into a, which now ends at 20; a@20: a alone changes
//	a.      a is finished
//	a?10,-  a's wake-ups: watermark 10, no clock
func (h *harness) script(text string) error {
	for i, step := range strings.Fields(text) {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("step %d, %s: %s", i+1, step, fmt.Sprintf(format, args...))
		}
		name := step[:1]
		what, fires, _ := strings.Cut(step, "!")
		switch {
		case name == "w" || name == "c":
			watermark, clock := h.now.Watermark, h.now.Clock
			to := &watermark
			if name == "c" {
				to = &clock
			}
			if _, err := fmt.Sscan(what[1:], to); err != nil {
				return fail("%v", err)
			}
			if fired, err := h.advance(watermark, clock); err != nil || fired != fires {
				return fail("fired %q, want %q; %v", fired, fires, err)
			}
		case strings.Contains(step, "@"):
			names, end, _ := strings.Cut(step, "@")
			into := h.window(name)
			if _, err := fmt.Sscan(end, &into.end); err != nil {
				return fail("%v", err)
			}
			var from []State
			for _, n := range strings.Split(names, "+")[1:] {
				from = append(from, h.window(n).State)
				delete(h.windows, n)
			}
			h.m.Merge(&into.State, from, h.at(into))
		case step == name+".":
			if !h.m.Finished(&h.window(name).State) {
				return fail("it is not finished")
			}
		case strings.HasPrefix(step, name+"?"):
			w := h.window(name)
			watermark, clock := h.m.Wake(&w.State, h.at(w))
			if got := timeText(watermark) + "," + timeText(clock); got != step[2:] {
				return fail("it wakes at %s", got)
			}
		case what == name:
			if h.m.Finished(&h.window(name).State) {
				return fail("it is finished")
			}
			if fired := h.element(h.window(name)); fired != strings.HasSuffix(step, "!") {
				return fail("fired: %v", fired)
			}
		default:
			return fail("what is that?")
		}
	}
	return nil
}

func timeText(t eventtime.Time) string {
	if t == Never {
		return "-"
	}
	return fmt.Sprint(int64(t))
}

// Short names for scripts.
func after(n int) trigger.Trigger { return trigger.AfterCount(n) }
func ms(n int) trigger.ProcessingTime {
	return trigger.AfterProcessingTime(time.Duration(n) * time.Millisecond)
}
func aligned(n, p, offset int) trigger.Trigger {
	return ms(n).AlignedTo(time.Duration(p)*time.Millisecond, time.Duration(offset)*time.Millisecond)
}

var (
	any_   = trigger.AfterFirst
	all_   = trigger.AfterAll
	each_  = trigger.AfterEach
	until  = trigger.OrFinally
	forall = trigger.Repeatedly
	end    = trigger.AfterWatermark
)

func TestScripts(t *testing.T) {
	for _, c := range []struct {
		rule   string
		t      trigger.Trigger
		script string
	}{
		{"a window to which nothing came never fires", end(), "a?-,- w10 a!"},
		{"once at the end, then for each late element", end(), "a a?10,- a w9 w10!a a?-,- a! a!"},
		{"a window born late fires at once", end().Late(after(2)), "w10 a! a a! a a!"},
		{"early repeatedly, late repeatedly", end().Early(after(2)).Late(after(3)), "a a! a a! a w10!a a a a! a a a!"},
		{"counts of early firings do not reach into late ones", end().Early(after(3)).Late(after(2)), "a a w10!a a a!"},
		{"the end fires also if nothing came since the pane before", end().Early(after(1)), "a! w10!a"},
		{"early firings by the clock, from the first element of each pane", end().Early(ms(5)), "c1 a c3 a a?10,6 c5 c6!a a?10,- c7 a a?10,12 c12!a w10!a a?-,-"},
		{"early firings end with the window", end().Early(ms(5)).Late(after(2)), "a w10!a a a?-,- c5 a!"},
		{"late firings by the clock", end().Late(ms(5)), "a w10!a c1 a a?-,6 a c6!a c7 a a?-,12 c12!a"},
		{"early firings of several parts begin anew as a whole", end().Early(each_(after(1), after(2))), "a! a a! a! a a!"},

		{"a count finishes", after(2), "a a! a."},
		{"a count has no wake-up", after(2), "a a?-,- w10 c10 a!"},
		{"a delay counts from the first element", ms(10), "a c6 a a?-,10 c10!a a."},
		{"a delay of 0 is over at once", ms(0), "c5 a! a."},
		{"an aligned delay", aligned(10, 100, 7), "c1 a a?-,107 c107!a a."},
		{"an aligned delay that ends on a multiple", aligned(10, 100, 7), "c97 a a?-,107 c106 c107!a"},
		{"alignment floors before the epoch", aligned(0, 100, 0), "c-150 a a?-,-100 c-100!a"},
		{"a synchronized delay is none", trigger.AfterSynchronizedProcessingTime(), "a! a."},
		{"never", trigger.Never(), "a a?-,- w1000 c1000 a"},
		{"always", trigger.Always(), "a! a?-,- w10 c10 a! a!"},

		{"any", any_(after(3), ms(10)), "a c9 a a?-,10 c10!a a."},
		{"any, the other", any_(after(2), ms(10)), "a a! a."},
		{"any of parts of parts", any_(all_(after(2), end()), ms(50)), "a a a?10,50 w10!a a."},
		{"all", all_(after(2), ms(10)), "a a?-,- a a?-,10 c10!a a."},
		{"all, the element last", all_(after(2), ms(10)), "a c20 a! a."},
		{"all of the end and a count", all_(end(), after(2)), "a w10 a! a."},
		{"all finishes also if a part of it would go on", all_(forall(after(1)), after(2)), "a a! a."},
		{"all with a part that never is ready", all_(after(1), trigger.Never()), "a a w10"},

		{"each in turn, then finished", each_(after(1), after(2), ms(5)), "a! a a! c1 a a?-,6 c6!a a."},
		{"each begins with its turn", each_(after(3), ms(5), after(2)), "a a c4 a! a?-,- c20 a a?-,25 c25!a a a!"},
		{"each stays with what goes on", each_(forall(after(2)), after(1)), "a a! a a! a a!"},
		{"each keeps what a part that goes on counts over panes", each_(until(forall(after(2)), after(5)), after(1)), "a a! a a! a! a! a."},
		{"each past the end", each_(end(), after(2)), "a a w10!a a a! a."},
		{"each with early firings", each_(end().Early(after(1)), after(2)), "a! a! w10!a a a! a."},

		{"until counts over the panes of main", until(forall(after(2)), after(5)), "a a! a a! a! a."},
		{"until ends by the watermark", until(forall(after(2)), end()), "a a! a a?10,- w10!a a."},
		{"until finishes also if it would go on itself", until(forall(after(3)), forall(after(2))), "a a! a."},
		{"main finishes", until(after(2), end()), "a a! a."},
		{"both at once is until", forall(until(each_(after(2), after(1)), after(2))), "a a! a a! a a!"},

		{"repeatedly", forall(after(2)), "a a! a a! w10 a a!"},
		{"repeatedly a delay", forall(ms(10)), "a c6 a c11!a c12 a a?-,22 c22!a"},
		{"repeatedly begins anew as a whole", forall(any_(after(3), ms(10))), "a c1 a c11!a c12 a a?-,22 c13 a c15 a! a?-,- c40"},
		{"repeatedly all", forall(all_(after(2), ms(5))), "a a c5!a a a?-,- a a?-,10 c10!a"},
		{"repeatedly each", forall(each_(after(1), after(2))), "a! a a! a! a a!"},
		{"repeatedly keeps what is not finished", forall(until(forall(after(2)), after(3))), "a a! a! a a! a!"},
		{"repeatedly the end fires for each element from then on", forall(any_(end(), after(3))), "a a a! a w10!a a! a!"},
		{"the default", trigger.Default(), "a w10!a a! a!"},
		{"late part of a late part", end().Late(each_(after(2), end().Late(after(3)))), "a w10!a a a! a! a a a! a a a!"},

		// Windows that merge, or grow.
		{"counts add up", forall(after(4)), "a b b a+b@15 a!"},
		{"counts add up since the last pane", forall(after(3)), "a a a! a b a+b@15 a!"},
		{"delays are the earliest", forall(ms(10)), "c5 a c8 b b?-,18 b+a@15 b?-,15 c15!b"},
		{"a delay that waits nowhere", forall(ms(10)), "c1 a c11!a c12 b a+b@15 a?-,22"},
		{"a delay that is over in one window only waits for the others", each_(ms(5), after(2)), "a c5!a b a+b@15 a?-,10 a c10!a a a! a."},
		{"a delay that comes back counts from what waits, wherever", each_(ms(5), after(9)), "a c5!a c6 a c8 b b+a@15 b?-,11 c11!b"},
		{"a delay that is over in each of the windows is over", each_(ms(5), after(3)), "a b c5!ab a b a+b@15 a! a."},
		{"a new window takes over", forall(after(3)), "b b a+b@15 a!"},
		{"nothing came anywhere", forall(after(3)), "a+b@15 a a a!"},
		{"the end moves with the window", end(), "a a@15 a?15,- w10 w15!a"},
		{"a window that grows past the watermark after its end is early again", end().Early(after(2)).Late(after(5)),
			"a w10!a a@20 a?20,- a a! a w20!a a a a a a!"},
		{"a window that grows, but not past the watermark, stays late", end().Early(after(2)).Late(after(3)), "a w15!a a a@15 a a!"},
		{"early again counts from the last pane, also that of late elements", end().Early(after(3)).Late(after(2)),
			"a w10!a a a! a a@20 a a!"},
		{"ended in one of the windows only: it will end again", end().Late(after(5)), "a w10!a b@12 b a+b@12 a w12!a"},
		{"ended in each: late counts add up", end().Late(after(5)), "a w10!a b! a a b a+b@10 a a!"},
		{"late counts of windows that go on are forgotten at their new end", end().Late(after(3)), "a w10!a a a a@20 w20!a a a a!"},
		{"what is late begins anew after a new end", end().Late(each_(after(1), after(3))), "a w10!a a! a a@20 w20!a a! a a a!"},
		{"a finished count stays finished in a merged one", after(3), "a a a! b a+b@15 a."},
		{"a finished end comes back with a window that grows", end().Early(after(9)).Late(any_(end(), after(9))), "a w10!a a! a@20 w20!a a!"},
		{"any: finished if a part is", each_(any_(after(2), ms(50)), after(3)), "a a! b a a+b@15 a!"},
		{"any stays finished in each of the windows, whatever part was ready", each_(any_(forall(after(2)), ms(50)), after(3)),
			"a a! a@15 a a@16 a a@17 a!"},
		{"any comes back if its end does", each_(any_(end(), after(9)), after(2)), "a w10!a a@20 a a w20!a a a!"},
		{"any that comes back counts from its pane on", each_(any_(end(), after(4)), after(9)), "a a w10!a a@20 a a a a!"},
		{"all comes back if its end does", each_(all_(end(), after(1)), after(2)), "a w10!a a@20 a w20!a a a!"},
		{"all: finished only where each part is", each_(all_(end(), after(2)), after(9)), "a a w10!a b@10 b a+b@10 a!"},
		{"each goes on with the first part that is not finished", each_(after(2), after(3)), "a a! b a+b@15 a a! a."},
		{"each: what waits for a later part is counted from all windows", each_(after(2), after(4)), "a a! a b a+b@15 a a!"},
		{"each goes back if its end does", each_(end(), after(2)), "a w10!a a a@20 a w20!a a a! a."},
		{"until finished in one", each_(until(forall(after(2)), after(3)), after(4)), "a a! a! b a+b@15 a a a!"},
		{"until in each of the windows, though it would go on", each_(until(trigger.Never(), forall(after(2))), after(2)), "a a! a@15 a a@16 a!"},
		{"until counts over windows", until(forall(after(10)), after(4)), "a a b a+b@15 a! a."},
		{"repeatedly merges what it repeats", forall(each_(after(1), after(4))), "a! a b! b a+b@15 a a!"},
		{"always merges", trigger.Always(), "a! b! a+b@15 a!"},
	} {
		t.Run(strings.ReplaceAll(c.rule, " ", "_"), func(t *testing.T) {
			if err := newHarness(compile(t, c.t)).script(c.script); err != nil {
				t.Errorf("%v: %v", c.t, err)
			}
		})
	}
}

func TestAtTheEndsOfTime(t *testing.T) {
	m := compile(t, end().Early(aligned(1<<40, 1000, 0)))
	var s State
	now := Now{End: eventtime.EndOfGlobalWindow, Watermark: eventtime.Min, Clock: eventtime.Max - 5}
	m.Element(&s, now)
	if w, c := m.Wake(&s, now); w != eventtime.EndOfGlobalWindow || c != eventtime.Max {
		t.Errorf("wakes at %v and %v", w, c)
	}
	now.Clock = eventtime.Max
	if !m.Ready(&s, now) {
		t.Error("not ready at the end of the clock")
	}
	m.Fired(&s, now)
	now.Watermark = eventtime.Max
	if !m.Ready(&s, now) {
		t.Error("not ready at the end of event time")
	}
}

func TestFollows(t *testing.T) {
	for _, c := range []struct {
		t                trigger.Trigger
		watermark, clock bool
	}{
		{end(), true, false},
		{end().Early(ms(5)), true, true},
		{forall(after(2)), false, false},
		{forall(any_(after(2), ms(3))), false, true},
		{until(trigger.Always(), end()), true, false},
	} {
		if m := compile(t, c.t); m.FollowsWatermark() != c.watermark || m.FollowsClock() != c.clock {
			t.Errorf("%v follows the watermark %v, the clock %v", c.t, m.FollowsWatermark(), m.FollowsClock())
		}
	}
}

// TestSixtyFourParts: the last bit is a bit like others.
func TestSixtyFourParts(t *testing.T) {
	parts := []trigger.Trigger{end()}
	script := ""
	for i := range 61 {
		parts = append(parts, after(i+1))
		script += strings.Repeat(" a", i+1) + "!"
	}
	m := compile(t, forall(each_(parts...)))
	if len(m.nodes) != trigger.MaxParts || m.nodes[63].bit == 0 || m.nodes[0].subtree != 1<<64-1 {
		t.Fatalf("%d nodes, last bit %x, root %x", len(m.nodes), m.nodes[63].bit, m.nodes[0].subtree)
	}
	if err := newHarness(m).script("a w10!a" + script + " a!" + script); err != nil {
		t.Error(err)
	}
}
