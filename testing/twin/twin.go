// Package twin evaluates windowing, triggers and lateness the slow and obvious way.
//
// A Twin keeps all that ever happened to each key and window, and works everything out from that, again and again: what
// waits, how far the trigger is, which pane is next, where the watermark is held. What is fast must say the same: see
// Compare, and Transcripts for Beam's own cases. The rules are in docs/design/panes.md.
package twin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// Accumulation says what a pane contains, and Combiner which timestamp it has: names, which the kernel shares, and no more.
type (
	Accumulation = kernel.Accumulation
	Combiner     = kernel.TimestampCombiner
)

const (
	Discarding   = kernel.Discarding
	Accumulating = kernel.Accumulating
	Retracting   = kernel.Retracting

	EndOfWindow = kernel.EndOfWindow
	Earliest    = kernel.Earliest
	Latest      = kernel.Latest
)

// Strategy is how elements are grouped in time.
type Strategy struct {
	Fn           window.Fn
	Trigger      trigger.Trigger
	Lateness     int64 // ms after the end of a window during which it takes elements
	Accumulation Accumulation
	Timestamps   Combiner
	EmptyOnTime  bool // a pane when the trigger fires at the end of the window, also if nothing came since the pane before
	EmptyLast    bool // a last pane also if nothing came since the pane before
	// OutputTime changes the time that an element gives to its pane; nil: it does not. Only a case of Beam's has it.
	OutputTime func(eventtime.Time) eventtime.Time
}

// Validate tells what is wrong with s, or nil.
func (s Strategy) Validate() error {
	if err := window.Validate(s.Fn); err != nil {
		return err
	}
	if s.Lateness < 0 {
		return fmt.Errorf("allowed lateness %dms: must not be negative", s.Lateness)
	}
	return trigger.Validate(s.Trigger)
}

// Kind is what happens in an Event.
type Kind uint8

// An element comes, the input watermark goes on, or the processing time.
const (
	ElementEvent Kind = iota
	WatermarkEvent
	ClockEvent
)

// Event is what happens to an aggregation. Key and Value belong to elements; Time is their timestamp, or where the watermark or
// the clock now stands. Before the first, the watermark is at eventtime.Min and the clock at 0.
type Event struct {
	Kind  Kind
	Key   string
	Value int64
	Time  eventtime.Time
	// In is the window of an element that another aggregation has put out. The zero Window: those that the strategy assigns.
	In window.Window
}

// Element is an event.
func Element(key string, value int64, t eventtime.Time) Event {
	return Event{Kind: ElementEvent, Key: key, Value: value, Time: t}
}

// Watermark is an event. At eventtime.Max the input has ended.
func Watermark(t eventtime.Time) Event { return Event{Kind: WatermarkEvent, Time: t} }

// Clock is an event.
func Clock(t eventtime.Time) Event { return Event{Kind: ClockEvent, Time: t} }

// Pane is what came out of one firing of a key and window.
type Pane struct {
	Key    string
	Window window.Window
	Values []int64 // in ascending order
	Time   eventtime.Time
	Info   window.Pane
	// Retraction says that this pane, which is the same as one before but for this mark, is taken back.
	Retraction bool

	due eventtime.Time // by which the twin ordered it within one watermark
}

// Drop is an element that came too late for one of its windows.
type Drop struct {
	Key    string
	Value  int64
	Time   eventtime.Time
	Window window.Window
}

// Step is what one event leads to.
type Step struct {
	Panes     []Pane
	Late      []Drop
	Watermark eventtime.Time // of the output, after the event
}

// Twin is an aggregation of keyed elements into panes that list them.
type Twin struct {
	s       Strategy
	trigger trigger.Trigger // canonical
	now     moment
	came    int // elements
	windows map[string][]*life
	step    *Step
}

// moment is how things stand when something happens.
type moment struct {
	watermark, output eventtime.Time // of input and output
	clock             eventtime.Time
}

// New returns a Twin to which nothing has happened.
func New(s Strategy) (*Twin, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Twin{s: s, trigger: trigger.Canonical(s.Trigger), now: moment{eventtime.Min, eventtime.Min, 0}, windows: map[string][]*life{}}, nil
}

// Run is what each of the events leads to.
func Run(s Strategy, events []Event) ([]Step, error) {
	t, err := New(s)
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, e := range events {
		step, err := t.Do(e)
		if err != nil {
			return nil, err
		}
		out = append(out, step)
	}
	return out, nil
}

// Do is what the next event leads to. Neither watermark nor clock go back.
func (t *Twin) Do(e Event) (Step, error) {
	t.step = &Step{}
	switch e.Kind {
	case ElementEvent:
		windows := []window.Window{e.In}
		if e.In == (window.Window{}) {
			windows = t.s.Assign(e.Time)
		}
		for _, w := range windows {
			t.element(e, w)
		}
	case WatermarkEvent:
		if e.Time < t.now.watermark {
			return Step{}, fmt.Errorf("the watermark goes back from %v to %v", t.now.watermark, e.Time)
		}
		t.watermark(e.Time)
	case ClockEvent:
		if e.Time < t.now.clock {
			return Step{}, fmt.Errorf("the clock goes back from %v to %v", t.now.clock, e.Time)
		}
		t.clock(e.Time)
	}
	// The watermark of the output follows that of the input, but for what is held.
	next := t.now.watermark
	for _, ls := range t.windows {
		for _, l := range ls {
			if at, ok := t.counted(l); ok {
				next = min(next, at)
			}
			if t.s.Accumulation == Retracting { // what is to be taken back must find its window
				for _, p := range l.standing() {
					if p.Window != l.win {
						next = min(next, t.s.Expiry(p.Window)-1)
					}
				}
			}
		}
	}
	t.now.output = max(t.now.output, next)
	t.step.Watermark = t.now.output
	return *t.step, nil
}

// Assign is the windows of an element, before any merging.
func (s Strategy) Assign(at eventtime.Time) []window.Window {
	switch fn := s.Fn.(type) {
	case window.FixedFn:
		return []window.Window{fn.Assign(at)}
	case window.SlidingFn:
		return fn.Assign(nil, at)
	case window.SessionsFn:
		return []window.Window{fn.Assign(at)}
	case window.GlobalFn:
		return []window.Window{window.GlobalWindow}
	case window.CalendarFn:
		return []window.Window{fn.Assign(at)}
	case window.CustomFn:
		ws, err := fn.Assign(nil, at)
		if err != nil {
			panic(err)
		}
		return ws
	}
	panic(fmt.Sprintf("windows by %T are unknown here", s.Fn))
}

// Expiry is the watermark from which a window takes no element. No lateness reaches beyond the end of the global window.
func (s Strategy) Expiry(w window.Window) eventtime.Time {
	return max(w.EndTime(), min(w.EndTime().Add(s.Lateness), eventtime.EndOfGlobalWindow))
}

func (t *Twin) merges() bool { return merging(t.s.Fn) }

func merging(fn window.Fn) bool {
	_, ok := window.Merging(fn)
	return ok
}

// element adds an element to one of its windows.
func (t *Twin) element(e Event, w window.Window) {
	l := (*life)(nil)
	if t.s.Expiry(w) > t.now.watermark {
		l = t.place(e.Key, w)
	}
	if l == nil {
		t.step.Late = append(t.step.Late, Drop{e.Key, e.Value, e.Time, w})
		return
	}
	t.came++
	l.history = append(l.history, entry{at: t.now, element: &element{t.came, e.Value, e.Time, t.now, l.win.EndTime(), l.win.EndTime() - 1, false}})
	t.evaluate(e.Key, l, occasion{due: t.now.watermark})
}

// place returns where an element with the window w goes: nil if nowhere, for the trigger of its window is finished.
func (t *Twin) place(key string, w window.Window) *life {
	if fn, ok := t.s.Fn.(window.CustomFn); ok && t.merges() {
		return t.placeBy(fn, key, w)
	}
	belongs := func(l *life) bool { return l.win == w }
	if t.merges() {
		belongs = func(l *life) bool { return l.win.StartTime() < w.EndTime() && w.StartTime() < l.win.EndTime() }
	}
	var parts, others []*life
	whole := w
	for _, l := range t.windows[key] {
		if !belongs(l) {
			others = append(others, l)
			continue
		}
		if t.root(l).done {
			return nil
		}
		parts = append(parts, l)
		whole = window.New(min(whole.StartTime(), l.win.StartTime()), max(whole.EndTime(), l.win.EndTime()))
	}
	if len(parts) == 1 && parts[0].win == whole {
		return parts[0]
	}
	l := &life{win: whole}
	if len(parts) > 0 {
		l.history = []entry{{at: t.now, parts: parts}}
	}
	t.windows[key] = append(others, l)
	return l
}

// placeBy is place where the user says what merges: all open windows are asked about whenever one comes that is not among them.
func (t *Twin) placeBy(fn window.CustomFn, key string, w window.Window) *life {
	find := func(w window.Window) *life {
		for _, l := range t.windows[key] {
			if l.win == w {
				return l
			}
		}
		return nil
	}
	home, finished := w, false
	if l := find(w); l == nil {
		open := []window.Window{w}
		for _, l := range t.windows[key] {
			open = append(open, l.win)
		}
		slices.SortFunc(open, window.CompareStarts)
		merges, err := fn.Merge(nil, open)
		if err != nil {
			panic(err)
		}
		for _, m := range merges {
			mine, closed := slices.Contains(m.From, w), false
			var parts []*life
			for _, from := range m.From {
				if l := find(from); l != nil {
					parts, closed = append(parts, l), closed || t.root(l).done
				}
			}
			finished = finished || mine && closed
			if mine {
				home = m.Into
			}
			if closed || len(parts) == 0 || len(parts) == 1 && parts[0].win == m.Into {
				continue
			}
			one := &life{win: m.Into, history: []entry{{at: t.now, parts: parts}}}
			t.windows[key] = append(slices.DeleteFunc(t.windows[key], func(l *life) bool { return slices.Contains(parts, l) }), one)
			for _, e := range one.pending() {
				e.most = min(e.most, m.Into.EndTime()-1)
				e.void = e.void || m.Into.EndTime()-1 < t.now.output
			}
			if !mine && t.root(one).ready(t.instant(one)) {
				t.evaluate(key, one, occasion{due: t.now.watermark})
			}
		}
	}
	if finished {
		return nil
	}
	l := find(home)
	if l == nil {
		l = &life{win: home}
		t.windows[key] = append(t.windows[key], l)
	}
	if t.root(l).done {
		return nil
	}
	return l
}

// occasion is why a trigger is looked at.
type occasion struct {
	due    eventtime.Time // when that was due
	end    bool           // the watermark passes the end of the window
	expiry bool           // it passes the expiry
}

// watermark takes each window that is due through its end and its expiry, in the order in which they are due.
func (t *Twin) watermark(w eventtime.Time) {
	due := t.list(func(l *life) (out []occasion) {
		end, expiry := l.win.EndTime(), t.s.Expiry(l.win)
		passes := end <= w && !l.ended()
		if passes {
			out = append(out, occasion{end, true, end == expiry})
		}
		if expiry <= w && !(passes && end == expiry) {
			out = append(out, occasion{expiry, false, true})
		}
		return out
	})
	t.now.watermark = w
	t.all(due)
}

// clock looks at each trigger that waits for a processing time that has come.
func (t *Twin) clock(c eventtime.Time) {
	due := t.list(func(l *life) []occasion {
		var out []occasion
		for _, at := range t.root(l).waits(t.instant(l)) {
			if t.now.clock < at && at <= c && (len(out) == 0 || at < out[0].due) {
				out = []occasion{{due: at}}
			}
		}
		return out
	})
	t.now.clock = c
	t.all(due)
}

type dueLife struct {
	occasion
	key  string
	life *life
}

func (t *Twin) list(of func(*life) []occasion) (out []dueLife) {
	for _, key := range slices.Sorted(maps.Keys(t.windows)) {
		for _, l := range t.windows[key] {
			for _, o := range of(l) {
				out = append(out, dueLife{o, key, l})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b dueLife) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.key, b.key), a.life.win.Compare(b.life.win))
	})
	return out
}

func (t *Twin) all(due []dueLife) {
	for _, d := range due {
		if !t.root(d.life).done {
			t.evaluate(d.key, d.life, d.occasion)
		}
		if d.expiry {
			t.windows[d.key] = slices.DeleteFunc(t.windows[d.key], func(l *life) bool { return l == d.life })
		}
	}
}

// evaluate looks at the trigger of a window that is not finished, and emits the pane that is due, if any.
func (t *Twin) evaluate(key string, l *life, o occasion) {
	root, now := t.root(l), t.instant(l)
	fires := root.ready(now)
	if fires {
		root.fire(now)
	}
	last := root.done || o.expiry
	var said *Pane
	if fires || o.expiry {
		fresh := len(l.pending()) > 0
		if fresh || fires && o.end && t.s.EmptyOnTime || last && t.s.EmptyLast {
			said = t.pane(key, l, o, last)
		}
	}
	if said != nil && t.s.Accumulation == Retracting {
		for _, p := range l.standing() {
			p.Retraction, p.due = true, o.due
			t.step.Panes = append(t.step.Panes, p)
		}
	}
	if said != nil {
		t.step.Panes = append(t.step.Panes, *said)
	}
	// An element and what came of it are one entry.
	if e := l.history[len(l.history)-1]; e.element == nil || e.looked {
		l.history = append(l.history, entry{at: t.now})
	}
	e := &l.history[len(l.history)-1]
	e.looked, e.fired, e.pane, e.end = true, fires, said, e.end || o.end
}

// pane is the next pane of l.
func (t *Twin) pane(key string, l *life, o occasion, last bool) *Pane {
	pending := l.pending()
	content := pending
	if t.s.Accumulation != Discarding {
		content = l.elements()
	}
	p := &Pane{Key: key, Window: l.win, Values: []int64{}, Time: l.win.EndTime() - 1, due: o.due}
	for _, e := range content {
		p.Values = append(p.Values, e.value)
	}
	slices.Sort(p.Values)
	if at, ok := t.counted(l); ok {
		p.Time = at
	}
	before, notEarly := l.panes(), 0
	for _, b := range before {
		if b.Info.Timing != window.Early {
			notEarly++
		}
	}
	// On time is the first pane after the end if it comes at the end, or has an element that came before the end of its window.
	onTime := o.end
	for _, e := range pending {
		onTime = onTime || e.at.watermark < e.end
	}
	p.Info = window.Pane{Index: int64(len(before)), OnTimeIndex: int64(notEarly), First: len(before) == 0, Last: last}
	switch {
	case t.now.watermark < l.win.EndTime():
		p.Info.Timing, p.Info.OnTimeIndex = window.Early, -1
	case notEarly == 0 && onTime:
		p.Info.Timing = window.OnTime
	default:
		p.Info.Timing = window.Late
	}
	return p
}

// counted combines the times of the elements of l that wait, as far as they count: the timestamp of a pane that has them, and
// until then what holds the watermark. It returns false if none counts.
func (t *Twin) counted(l *life) (at eventtime.Time, ok bool) {
	for _, e := range l.pending() {
		own, end := e.time, l.win.EndTime()-1
		before := min(own, e.end-1) // what it was, when the element came
		own = min(own, e.most)
		if t.s.OutputTime != nil {
			own = t.s.OutputTime(e.time)
			before = own
		}
		if t.s.Timestamps == EndOfWindow {
			own, before = end, e.end-1
		}
		switch {
		case e.void:
			continue
		case before >= e.at.output: // so that the watermark can be held there
		case e.end > e.at.watermark:
			own = end
		default:
			continue
		}
		switch {
		case !ok:
			at, ok = own, true
		case t.s.Timestamps == Latest:
			at = max(at, own)
		default:
			at = min(at, own)
		}
	}
	return at, ok
}
