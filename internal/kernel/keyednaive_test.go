package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// What TestKeyedStepAgreesWithNaive runs: a program that is the same above the operator and above a naive twin.

const nCells = 2

// aTimer is a timer of the program, or one of a family.
type aTimer struct {
	name   string // of the declaration
	tag    string
	clock  bool
	family bool
}

// allTimers are declared in this order, families at their first.
var allTimers = []aTimer{
	{name: "T0"}, {name: "C0", clock: true}, {"E", "a", false, true}, {"E", "b", false, true}, {name: "T1"},
	{"P", "a", true, true}, {"P", "", true, true}, {"P", "bb", true, true}, {name: "C1", clock: true}, {name: "T2"},
}

func (t aTimer) String() string {
	if t.family {
		return t.name + "(" + t.tag + ")"
	}
	return t.name
}

// setting is a Set or SetIn.
type setting struct {
	at, in eventtime.Time // in instead of at, if not noTime
	out    eventtime.Time // OutputAt; noTime: none
}

// keyAPI is what a call may do with its key.
type keyAPI interface {
	now() eventtime.Time  // processing time
	when() eventtime.Time // for which the timer was set that fires
	get(i int) (int64, bool)
	set(i int, v int64)
	clear(i int)
	setTimer(i int, s setting)
	clearTimer(i int)
	emit(s string)
}

// delays of timers, in ms: within a bucket, a minute, a day, beyond it, and the past.
var delays = []int64{0, 1, 7, 150, 700, 1500, 9000, 70_000, 3_600_000, 4_000_000, 90_000_000, 800_000_000, -300, -5000}

// act is a call: what it does follows from its arguments and from what it reads.
func act(a keyAPI, what string, at eventtime.Time, x uint64) {
	h := x*0x9E3779B97F4A7C15 ^ uint64(at) ^ uint64(a.when())<<20 ^ uint64(a.now())<<32
	line := fmt.Sprintf("%s@%d", what, at)
	for i := range nCells {
		if v, ok := a.get(i); ok {
			line += fmt.Sprintf(" %d=%d", i, v)
			h += uint64(v) * 31
		}
	}
	a.emit(line)
	next := func(n uint64) uint64 {
		h ^= h >> 29
		h *= 0xBF58476D1CE4E5B9
		h ^= h >> 32
		return h % n
	}
	delay := func() eventtime.Time { return eventtime.Time(delays[next(uint64(len(delays)))]) }
	handler := what != "P"
	for range next(4) {
		switch i := int(next(uint64(len(allTimers)))); {
		case next(2) == 0 && (!handler || next(3) > 0): // handlers that arm more than fires never end
			s := setting{at: at, in: noTime, out: noTime}
			if allTimers[i].clock {
				s.at = a.now()
			}
			s.at += delay()
			if next(4) == 0 {
				s.in = delay()
			}
			if next(2) == 0 {
				s.out = at + max(0, delay())
			}
			a.setTimer(i, s)
		case next(3) == 0:
			a.clearTimer(i)
		case next(2) == 0:
			a.clear(i % nCells)
		default:
			v, _ := a.get(i % nCells)
			a.set(i%nCells, v+int64(next(100)))
		}
	}
	if v, ok := a.get(0); ok {
		a.emit(fmt.Sprintf("then 0=%d", v))
	}
}

// ---- on the operator ----

// keyedProgram is the program as the operator runs it. Its output is prefixed with the key.
type keyedProgram[K comparable] struct {
	cells    [nCells]state.Value[int64]
	timers   map[string]Timer
	families map[string]TimerFamily
	index    func(K) int
	clock    func() eventtime.Time
	op       *keyedParDo[K, int64, string]

	key int // of the call
	out *Emitter[string]
}

func (p *keyedProgram[K]) now() eventtime.Time     { return p.clock() }
func (p *keyedProgram[K]) when() eventtime.Time    { return p.op.call.at }
func (p *keyedProgram[K]) get(i int) (int64, bool) { return p.cells[i].Lookup() }
func (p *keyedProgram[K]) set(i int, v int64)      { p.cells[i].Set(v) }
func (p *keyedProgram[K]) clear(i int)             { p.cells[i].Clear() }
func (p *keyedProgram[K]) emit(s string)           { p.out.Emit(fmt.Sprintf("%d %s", p.key, s)) }

func (p *keyedProgram[K]) setTimer(i int, s setting) {
	t := allTimers[i]
	var opts []TimerOption
	if s.out != noTime {
		opts = append(opts, OutputAt(s.out.Time()))
	}
	in := time.Duration(s.in) * time.Millisecond
	switch {
	case s.in == noTime && t.family:
		p.families[t.name].Set(t.tag, s.at.Time(), opts...)
	case s.in == noTime:
		p.timers[t.name].Set(s.at.Time(), opts...)
	case t.family:
		p.families[t.name].SetIn(t.tag, in, opts...)
	default:
		p.timers[t.name].SetIn(in, opts...)
	}
}

func (p *keyedProgram[K]) clearTimer(i int) {
	if t := allTimers[i]; t.family {
		p.families[t.name].Clear(t.tag)
	} else {
		p.timers[t.name].Clear()
	}
}

func (p *keyedProgram[K]) declare(d *KeyedDecl) {
	for i := range nCells {
		p.cells[i] = state.NewValue[int64](d, fmt.Sprintf("cell %d", i))
	}
	call := func(what string, c *ProcessContext, k K, out *Emitter[string]) error {
		p.key, p.out = p.index(k), out
		act(p, what, c.at.time, uint64(p.key))
		return nil
	}
	handler := func(what string) keyedHandler[K, string] {
		return func(c *ProcessContext, k K, out *Emitter[string]) error { return call(what, c, k, out) }
	}
	p.timers, p.families = map[string]Timer{}, map[string]TimerFamily{}
	for _, t := range allTimers {
		byTag := func(c *ProcessContext, k K, tag string, out *Emitter[string]) error {
			return call(aTimer{t.name, tag, t.clock, true}.String(), c, k, out)
		}
		_, declared := p.families[t.name]
		switch {
		case declared:
		case t.family && t.clock:
			p.families[t.name] = ProcessingTimerFamily(d, t.name, byTag)
		case t.family:
			p.families[t.name] = EventTimerFamily(d, t.name, byTag)
		case t.clock:
			p.timers[t.name] = ProcessingTimer(d, t.name, handler(t.name))
		default:
			p.timers[t.name] = EventTimer(d, t.name, handler(t.name))
		}
	}
	OnWindowExpiry(d, handler("X"))
}

func (p *keyedProgram[K]) process(c *ProcessContext, k K, v int64, out *Emitter[string]) error {
	p.key, p.out = p.index(k), out
	act(p, "P", c.at.time, uint64(v))
	return nil
}

// ---- naive ----

type naiveKey struct {
	key int
	win window.Window
}

type naiveState struct {
	cells  map[int]int64
	timers map[int]naiveTimer // by index in allTimers
}

type naiveTimer struct {
	at, out eventtime.Time
	late    bool // set by what was late itself
}

type naiveStep struct {
	lateness int64
	w        eventtime.Time
	clock    eventtime.Time
	passed   eventtime.Time // the watermark of the outputs
	states   map[naiveKey]*naiveState
	out      map[naiveKey][]string
	late     int
	flushed  int // timers of the clock that fired at an expiry
	wrong    string

	// Of the call:
	k       naiveKey
	kind    byte // 'P' an element, 'T' a timer of event time, 'C' one of the clock, 'X' the expiry
	firing  eventtime.Time
	stamped eventtime.Time
	isLate  bool
}

func (n *naiveStep) clone() *naiveStep {
	c := *n
	c.states, c.out = map[naiveKey]*naiveState{}, map[naiveKey][]string{}
	for k, s := range n.states {
		t := &naiveState{map[int]int64{}, map[int]naiveTimer{}}
		for i, v := range s.cells {
			t.cells[i] = v
		}
		for i, v := range s.timers {
			t.timers[i] = v
		}
		c.states[k] = t
	}
	for k, l := range n.out {
		c.out[k] = slices.Clone(l)
	}
	return &c
}

func (n *naiveStep) now() eventtime.Time     { return n.clock }
func (n *naiveStep) when() eventtime.Time    { return n.firing }
func (n *naiveStep) get(i int) (int64, bool) { v, ok := n.states[n.k].cells[i]; return v, ok }
func (n *naiveStep) set(i int, v int64)      { n.states[n.k].cells[i] = v }
func (n *naiveStep) clear(i int)             { delete(n.states[n.k].cells, i) }
func (n *naiveStep) clearTimer(i int)        { delete(n.states[n.k].timers, i) }
func (n *naiveStep) expiry(w window.Window) eventtime.Time {
	return w.EndTime().Add(n.lateness)
}

func (n *naiveStep) emit(s string) {
	n.out[n.k] = append(n.out[n.k], s)
	if n.stamped < n.passed && !n.isLate && n.wrong == "" {
		n.wrong = fmt.Sprintf("%q of %v is late: the watermark of the outputs is %d", s, n.k, n.passed)
	}
}

func (n *naiveStep) setTimer(i int, s setting) {
	last := min(n.expiry(n.k.win), eventtime.EndOfGlobalWindow)
	timers, clock := n.states[n.k].timers, allTimers[i].clock
	_, pending := timers[i]
	switch at := s.at; {
	case n.kind == 'X':
		return
	case n.kind != 'P' && !pending && (n.kind == 'T' && n.firing >= last || last == eventtime.EndOfGlobalWindow && n.w >= last):
		return
	case clock:
		if s.in != noTime {
			at = n.clock + s.in
		}
		if n.kind != 'P' {
			at = max(at, n.clock+1)
		}
		s.at = at
	default:
		from := n.stamped
		if n.kind == 'T' {
			from = n.firing
		}
		if s.in != noTime {
			at = from + s.in
		}
		if n.kind == 'T' {
			at = max(at, n.firing+1)
		} else {
			at = max(at, min(n.stamped, n.w))
		}
		s.at = min(at, last)
	}
	if s.out == noTime && clock {
		s.out = n.stamped
	}
	if s.out != noTime {
		s.out = max(n.stamped, min(s.out, n.k.win.EndTime()-1))
	}
	timers[i] = naiveTimer{s.at, s.out, n.isLate}
}

func (n *naiveStep) call(kind byte, what string, k naiveKey, at, stamp eventtime.Time, late bool, x uint64) {
	if n.states[k] == nil {
		n.states[k] = &naiveState{map[int]int64{}, map[int]naiveTimer{}}
	}
	n.k, n.kind, n.firing, n.stamped, n.isLate = k, kind, at, stamp, late
	act(n, what, stamp, x)
}

func (n *naiveStep) process(k naiveKey, at eventtime.Time, x uint64) {
	if n.w >= n.expiry(k.win) {
		n.late++
		return
	}
	n.call('P', "P", k, 0, at, at < n.passed, x)
}

func (n *naiveStep) stamp(k naiveKey, at eventtime.Time) eventtime.Time {
	if at == k.win.EndTime() {
		return at - 1
	}
	return at
}

// due calls the timers of a key that are due, one after the other.
func (n *naiveStep) due(k naiveKey, s *naiveState, clock bool, now eventtime.Time, kind byte) {
	for n.dueOne(k, s, clock, now, kind) {
	}
}

func (n *naiveStep) dueOne(k naiveKey, s *naiveState, clock bool, now eventtime.Time, kind byte) bool {
	first := -1
	for i, t := range s.timers {
		if allTimers[i].clock == clock && t.at <= now && (first < 0 || t.at < s.timers[first].at || t.at == s.timers[first].at && firesBefore(i, first)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	t := s.timers[first]
	delete(s.timers, first)
	stamp := t.out
	if stamp == noTime {
		stamp = n.stamp(k, t.at)
	}
	if kind == 'X' {
		n.flushed++
	}
	n.call(kind, allTimers[first].String(), k, t.at, stamp, t.late, uint64(k.key))
	return true
}

// firesBefore is the order of timers of one time.
func firesBefore(i, j int) bool {
	if a, b := allTimers[i], allTimers[j]; a.name == b.name {
		return a.tag < b.tag
	}
	return i < j
}

func (n *naiveStep) fire() {
	for k, s := range n.states {
		n.due(k, s, false, n.w, 'T')
	}
}

func (n *naiveStep) watermark(w eventtime.Time) {
	n.w = w
	n.fire()
	for k, s := range n.states {
		if x := n.expiry(k.win); x <= w {
			n.due(k, s, true, eventtime.Max, 'X')
			if len(s.cells) > 0 {
				n.call('X', "X", k, 0, k.win.MaxTimestamp(), true, uint64(k.key))
			}
			delete(n.states, k)
		}
	}
	n.release()
}

// tick is what is due by the clock. What a timer of it sets at or before the watermark comes next.
func (n *naiveStep) tick() {
	for k, s := range n.states {
		for n.dueOne(k, s, true, n.clock, 'C') {
			n.due(k, s, false, n.w, 'T')
		}
	}
	n.release()
}

// hold is where the watermark is held back; eventtime.Max if nowhere at or before w.
func (n *naiveStep) hold() eventtime.Time {
	least := noTime
	for _, s := range n.states {
		for i, t := range s.timers {
			if allTimers[i].clock || t.out < t.at {
				least = min(least, max(t.out, n.passed))
			}
		}
	}
	if least > n.w {
		return eventtime.Max
	}
	return least
}

func (n *naiveStep) release() { n.passed = max(n.passed, min(n.w, n.hold())) }
