package triggering

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/testing/seeds"
)

// The second implementation: what a trigger says follows from all that has happened to it since it began. It keeps no state, and looks
// at the whole history each time. A composite trigger hands each of its parts a history of its own.

// event is an element, the firing of a pane of this trigger, or the loss of the pane that it waited for to another.
type event struct {
	kind byte // 'e', 'f', 'c'
	now  Now
}

// waiting are the elements of the pane that comes next.
func waiting(h []event) (elements []event) {
	for _, e := range h {
		if e.kind != 'e' {
			elements = nil
		} else {
			elements = append(elements, e)
		}
	}
	return elements
}

func firings(h []event) (n int) {
	for _, e := range h {
		if e.kind == 'f' {
			n++
		}
	}
	return n
}

// ended is the number of events up to and with the firing of the end, 0 if it has not fired.
func ended(h []event) int {
	for i, e := range h {
		if e.kind == 'f' && e.now.Watermark >= e.now.End {
			return i + 1
		}
	}
	return 0
}

// turns gives each event of AfterEach to the part whose turn it is, and returns the number of that part and its history.
func turns(ts []trigger.Trigger, h []event) (turn int, own []event) {
	for _, e := range h {
		own = append(own, e)
		if e.kind == 'f' && isFinished(ts[turn], own) {
			turn, own = turn+1, nil
			if turn == len(ts) {
				break
			}
		}
	}
	return turn, own
}

// round is the history of a repeated trigger since it began anew.
func round(t trigger.Trigger, h []event) (own []event) {
	for _, e := range h {
		own = append(own, e)
		if e.kind == 'f' && isFinished(t, own) {
			own = nil
		}
	}
	return own
}

// split is the histories of main and until, up to the firing that finishes the whole, and whether there was one.
func split(t trigger.Finally, h []event) (main, until []event, over bool) {
	for _, e := range h {
		if e.kind == 'f' && isReady(t.Until, until, e.now) {
			return main, until, true
		}
		main = append(main, e)
		if e.kind == 'f' && isFinished(t.Main, main) {
			return main, until, true
		}
		if e.kind != 'f' {
			until = append(until, e)
		}
	}
	return main, until, false
}

func isReady(t trigger.Trigger, h []event, now Now) bool {
	switch t := t.(type) {
	case trigger.NeverFires:
		return false
	case trigger.AlwaysFires:
		return len(waiting(h)) > 0
	case trigger.Count:
		return int64(len(waiting(h))) >= t.N
	case trigger.ProcessingTime:
		elements := waiting(h)
		if len(elements) == 0 {
			return false
		}
		at := int64(elements[0].now.Clock) + t.Delay.Milliseconds()
		for p := t.Period.Milliseconds(); p > 0 && (at-t.Offset.Milliseconds())%p != 0; {
			at++
		}
		return int64(now.Clock) >= at
	case trigger.Watermark:
		if n := ended(h); n > 0 {
			return t.LatePart != nil && isReady(t.LatePart, round(t.LatePart, h[n:]), now)
		}
		return now.Watermark >= now.End || t.EarlyPart != nil && isReady(t.EarlyPart, round(t.EarlyPart, h), now)
	case trigger.First:
		for _, p := range t.Of {
			if isReady(p, h, now) {
				return true
			}
		}
		return false
	case trigger.All:
		for _, p := range t.Of {
			if !isReady(p, h, now) {
				return false
			}
		}
		return true
	case trigger.Each:
		turn, own := turns(t.Of, h)
		return isReady(t.Of[turn], own, now)
	case trigger.Finally:
		main, until, _ := split(t, h)
		return isReady(t.Main, main, now) || isReady(t.Until, until, now)
	case trigger.Repeat:
		return isReady(t.Of, round(t.Of, h), now)
	}
	panic(fmt.Sprintf("%T", t))
}

func isFinished(t trigger.Trigger, h []event) bool {
	switch t := t.(type) {
	case trigger.Count, trigger.ProcessingTime, trigger.First, trigger.All:
		return firings(h) > 0
	case trigger.Watermark:
		return t.LatePart == nil && ended(h) > 0
	case trigger.Each:
		turn, _ := turns(t.Of, h)
		return turn == len(t.Of)
	case trigger.Finally:
		_, _, over := split(t, h)
		return over
	}
	return false
}

// randomTrigger has at most n parts.
func randomTrigger(r *rand.Rand, n int) trigger.Trigger {
	leaves := []func() trigger.Trigger{
		func() trigger.Trigger { return after(1 + r.IntN(4)) },
		func() trigger.Trigger { return after(1 + r.IntN(3)) },
		func() trigger.Trigger { return ms(r.IntN(8)) },
		func() trigger.Trigger { return aligned(r.IntN(4), 1+r.IntN(5), r.IntN(7)-3) },
		func() trigger.Trigger { return end() },
		func() trigger.Trigger { return trigger.Always() },
		func() trigger.Trigger { return trigger.Never() },
	}
	if n < 2 {
		return leaves[r.IntN(len(leaves))]()
	}
	part := func() trigger.Trigger { return randomTrigger(r, 1+r.IntN(n-1)) }
	some := func() (ts []trigger.Trigger) {
		for range 1 + r.IntN(3) {
			ts = append(ts, part())
		}
		return ts
	}
	switch r.IntN(8) {
	case 0:
		return trigger.AfterFirst(some()...)
	case 1:
		return trigger.AfterAll(some()...)
	case 2, 3:
		return trigger.AfterEach(some()...)
	case 4:
		return trigger.OrFinally(part(), part())
	case 5:
		return trigger.Repeatedly(part())
	default:
		w := trigger.AfterWatermark()
		if r.IntN(3) > 0 {
			w = w.Early(part())
		}
		if r.IntN(3) > 0 {
			w = w.Late(part())
		}
		return w
	}
}

func validTrigger(r *rand.Rand) trigger.Trigger {
	for {
		if t := randomTrigger(r, 1+r.IntN(5)); trigger.Validate(t) == nil {
			return trigger.Canonical(t)
		}
	}
}

// TestRandomTriggersFireAsTheirHistorySays: one window, one step after the other, the state encoded and decoded now and then.
func TestRandomTriggersFireAsTheirHistorySays(t *testing.T) {
	fired, finished := 0, 0
	seeds.Each(t, 3000, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 0))
		tr := validTrigger(r)
		h := newHarness(Compile(tr))
		w := h.window("a")
		var history []event
		trace := tr.String() + ":"
		check := func(got bool) error {
			if want := len(history) > 0 && isReady(tr, history, h.at(w)); got != want {
				return fmt.Errorf("%s: fired %v, want %v", trace, got, want)
			}
			if got {
				fired++
				trace += "!"
				history = append(history, event{'f', h.at(w)})
			}
			if got, want := h.m.Finished(&w.State), isFinished(tr, history); got != want {
				return fmt.Errorf("%s: finished %v, want %v", trace, got, want)
			}
			return nil
		}
		for range 4 + r.IntN(16) {
			if h.m.Finished(&w.State) {
				finished++
				break
			}
			step := r.IntN(6)
			switch step {
			case 0, 1, 2:
				trace += " a"
				history = append(history, event{'e', h.at(w)})
				if err := check(h.element(w)); err != nil {
					return err
				}
			case 3, 4:
				to := h.now
				if step == 3 {
					to.Watermark = max(to.Watermark, eventtime.Time(r.IntN(13)))
				} else {
					to.Clock += eventtime.Time(r.IntN(6))
				}
				trace += fmt.Sprintf(" w%d c%d", to.Watermark, to.Clock)
				before := h.at(w)
				was := len(history) > 0 && isReady(tr, history, before)
				wakeW, wakeC := h.m.Wake(&w.State, before)
				names, err := h.advance(to.Watermark, to.Clock)
				if err != nil {
					return fmt.Errorf("%s: %w", trace, err)
				}
				// What is ready at all times waits for an element, or for a time at which something else may be ready.
				if names == "" && was && wakeW > to.Watermark && wakeC > to.Clock {
					continue
				}
				if err := check(names == "a"); err != nil {
					return err
				}
			case 5:
				trace += " stored"
				s, rest, err := h.m.Decode(h.m.Append(nil, &w.State))
				if err != nil || len(rest) > 0 {
					return fmt.Errorf("%s: %v, %d bytes left", trace, err, len(rest))
				}
				w.State = s
			}
		}
		return nil
	})
	if !seeds.Given() && (fired < 1000 || finished < 100) {
		t.Errorf("only %d firings, and %d finished", fired, finished)
	}
}

// TestRandomMergesDoNotDependOnOrder: windows that have become one are the same whichever merged first, and whichever took
// the others in, as long as they merged before anything else happened.
func TestRandomMergesDoNotDependOnOrder(t *testing.T) {
	revived := 0
	seeds.Each(t, 3000, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 1))
		tr := validTrigger(r)
		h := newHarness(Compile(tr))
		names := strings.Split("abcd", "")
		trace := tr.String() + ":"
		for range 4 + r.IntN(20) {
			name := names[r.IntN(len(names))]
			switch w := h.window(name); r.IntN(8) {
			case 0:
				trace += " w+2"
				if _, err := h.advance(max(h.now.Watermark, 0)+2, h.now.Clock); err != nil {
					return fmt.Errorf("%s: %w", trace, err)
				}
			case 1:
				trace += " c+2"
				if _, err := h.advance(h.now.Watermark, h.now.Clock+2); err != nil {
					return fmt.Errorf("%s: %w", trace, err)
				}
			case 2:
				trace += " " + name + "@+3"
				w.end += 3
				h.m.Merge(&w.State, nil, h.at(w))
			default:
				if !h.m.Finished(&w.State) {
					trace += " " + name
					h.element(w)
				}
			}
		}
		var want []byte
		for try := range 4 {
			r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			got, err := h.mergeAll(r, names, try == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", trace, err)
			}
			if try == 0 {
				want = got
			} else if string(got) != string(want) {
				return fmt.Errorf("%s: merged at once %x, in the order %v %x", trace, want, names, got)
			}
		}
		for _, name := range names {
			if s, _, err := h.m.Decode(want); err == nil && h.window(name).Finished&^s.Finished&h.m.ends != 0 {
				revived++
				break
			}
		}
		return nil
	})
	if !seeds.Given() && revived < 5 {
		t.Errorf("an end came back only %d times", revived)
	}
}

// mergeAll merges copies of the windows, at once or step by step, and returns the state of the whole.
func (h *harness) mergeAll(r *rand.Rand, names []string, atOnce bool) ([]byte, error) {
	var ws []window
	for _, n := range names {
		s, _, err := h.m.Decode(h.m.Append(nil, &h.window(n).State))
		if err != nil {
			return nil, err
		}
		ws = append(ws, window{s, h.window(n).end})
	}
	for len(ws) > 1 {
		n := len(ws)
		if !atOnce {
			n = 2 + r.IntN(len(ws)-1)
		}
		end := ws[0].end
		var from []State
		for _, w := range ws[1:n] {
			end = max(end, w.end)
			from = append(from, w.State)
		}
		into := ws[0]
		into.end = end
		h.m.Merge(&into.State, from, h.at(&into))
		ws = append([]window{into}, ws[n:]...)
	}
	return h.m.Append(nil, &ws[0].State), nil
}
