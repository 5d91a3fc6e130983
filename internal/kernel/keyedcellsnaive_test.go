package kernel

import (
	"fmt"
	"slices"
	"sort"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// ---- naive ----

// naiveElement is an element of any cell; a Value and a Combining have one.
type naiveElement struct {
	key  string
	time int64
	v    string
	n    int64
	at   eventtime.Time
}

type naiveCells struct {
	cells [cellKinds][2][]naiveElement
	timer eventtime.Time
}

type cellKey struct {
	key string
	win window.Window
}

type naiveCellStep struct {
	ttls     [cellKinds]ttlOf
	lateness int64
	w        eventtime.Time
	passed   eventtime.Time
	clock    eventtime.Time
	states   map[cellKey]*naiveCells
	out      map[cellKey][]string
	expired  int

	k      cellKey
	kind   byte
	firing eventtime.Time
	now    [cell.Clocks]eventtime.Time
	stamp  [cell.Clocks]eventtime.Time
}

func (n *naiveCellStep) clone() *naiveCellStep {
	c := *n
	c.states, c.out = map[cellKey]*naiveCells{}, map[cellKey][]string{}
	for k, s := range n.states {
		t := *s
		for kind := range t.cells {
			for i := range t.cells[kind] {
				t.cells[kind][i] = slices.Clone(t.cells[kind][i])
			}
		}
		c.states[k] = &t
	}
	for k, l := range n.out {
		c.out[k] = slices.Clone(l)
	}
	return &c
}

// live removes what has expired from a cell and returns it.
func (n *naiveCellStep) live(kind cellKind, i int) *[]naiveElement {
	c := &n.states[n.k].cells[kind][i]
	if t := n.ttls[kind]; i == 1 {
		before := len(*c)
		*c = slices.DeleteFunc(*c, func(e naiveElement) bool { return e.at.Add(t.d) <= n.now[t.clock] })
		n.expired += before - len(*c)
	}
	return c
}

func (n *naiveCellStep) stampOf(kind cellKind) eventtime.Time { return n.stamp[n.ttls[kind].clock] }

func (n *naiveCellStep) refresh(kind cellKind, i int, e *naiveElement) {
	if i == 1 && n.ttls[kind].refresh == state.OnReadAndWrite {
		e.at = max(e.at, n.stampOf(kind))
	}
}

func (n *naiveCellStep) read(kind cellKind, i int, from, to int64) (s string) {
	c := *n.live(kind, i)
	switch kind {
	case aList:
		for j := range c {
			if e := &c[j]; from <= e.time && e.time < to {
				s += fmt.Sprintf("%d:%d,", e.time, e.n)
				n.refresh(kind, i, e)
			}
		}
		return s
	case aValue, aCombining:
		if len(c) == 0 {
			return fmt.Sprint(0, false)
		}
		n.refresh(kind, i, &c[0])
		return fmt.Sprint(c[0].n, true)
	}
	return n.readWhile(kind, i, func() {})
}

func (n *naiveCellStep) readWhile(kind cellKind, i int, change func()) (s string) {
	if kind == aValue || kind == aCombining {
		return n.read(kind, i, 0, 0)
	}
	c := *n.live(kind, i)
	for j := range c {
		e := &c[j]
		n.refresh(kind, i, e)
		switch kind {
		case aBag:
			s += fmt.Sprint(e.n, ",")
		case aMap:
			s += e.key + ":" + e.v + ","
		case aList:
			s += fmt.Sprint(e.time, ":", e.n) + ","
		}
	}
	if len(c) > 0 {
		change()
	}
	return s
}

func (n *naiveCellStep) lookup(i int, k string) string {
	c := *n.live(aMap, i)
	for j := range c {
		if c[j].key == k {
			n.refresh(aMap, i, &c[j])
			return fmt.Sprint(c[j].v, true)
		}
	}
	return fmt.Sprint("", false)
}

func (n *naiveCellStep) length(kind cellKind, i int) int {
	if kind == aValue || kind == aCombining {
		return 0
	}
	return len(*n.live(kind, i))
}

func (n *naiveCellStep) write(kind cellKind, i int, k, v int64) {
	c := n.live(kind, i)
	e := naiveElement{key: mapKey(k), time: k, v: fmt.Sprint(v), n: v, at: n.stampOf(kind)}
	switch kind {
	case aValue, aCombining:
		if len(*c) > 0 {
			e.at = max(e.at, (*c)[0].at)
			if kind == aCombining {
				e.n += (*c)[0].n
			}
		}
		*c = []naiveElement{e}
	case aBag:
		*c = append(*c, e)
	case aMap:
		for j := range *c {
			if (*c)[j].key == e.key {
				e.at = max(e.at, (*c)[j].at)
				(*c)[j] = e
				return
			}
		}
		*c = append(*c, e)
		sort.Slice(*c, func(a, b int) bool { return encoded((*c)[a].key) < encoded((*c)[b].key) })
	case aList:
		*c = append(*c, e)
		sort.SliceStable(*c, func(a, b int) bool { return (*c)[a].time < (*c)[b].time })
	}
}

// encoded is the canonical encoding of a short string.
func encoded(s string) string { return string(rune(len(s))) + s }

func (n *naiveCellStep) remove(kind cellKind, i int, k, to int64) {
	c := n.live(kind, i)
	switch kind {
	case aMap:
		*c = slices.DeleteFunc(*c, func(e naiveElement) bool { return e.key == mapKey(max(k, 0)) })
	case aList:
		*c = slices.DeleteFunc(*c, func(e naiveElement) bool { return k <= e.time && e.time < to })
	}
}

func (n *naiveCellStep) clear(kind cellKind, i int) { n.states[n.k].cells[kind][i] = nil }
func (n *naiveCellStep) emit(s string)              { n.out[n.k] = append(n.out[n.k], s) }

func (n *naiveCellStep) expiry(w window.Window) eventtime.Time { return w.EndTime().Add(n.lateness) }

func (n *naiveCellStep) setTimer(at eventtime.Time) {
	last := min(n.expiry(n.k.win), eventtime.EndOfGlobalWindow)
	s := n.states[n.k]
	switch n.kind {
	case 'X':
		return
	case 'T':
		if s.timer == noTime && (n.firing == last || last == eventtime.EndOfGlobalWindow && n.w >= last) {
			return
		}
		at = max(at, n.firing+1)
	default:
		at = max(at, min(n.firing, n.w))
	}
	s.timer = min(at, last)
}

func (n *naiveCellStep) call(kind byte, k cellKey, at, stamp eventtime.Time, x uint64) {
	if n.states[k] == nil {
		n.states[k] = &naiveCells{timer: noTime}
	}
	n.k, n.kind, n.firing = k, kind, at
	n.now = [cell.Clocks]eventtime.Time{n.passed, n.clock}
	if kind != 'P' {
		n.now[0] = max(n.passed, at)
	}
	n.stamp = [cell.Clocks]eventtime.Time{max(n.now[0], at, eventtime.Min+1), n.clock}
	actOnCells(n, string(kind), stamp, x)
}

func (n *naiveCellStep) process(k cellKey, at eventtime.Time, x uint64) {
	if n.w < n.expiry(k.win) {
		n.call('P', k, at, at, x)
	}
}

func (n *naiveCellStep) fire() {
	for k, s := range n.states {
		for s.timer <= n.w {
			at := s.timer
			s.timer = noTime
			n.call('T', k, at, n.stampIn(k, at), uint64(len(k.key)))
		}
	}
}

func (n *naiveCellStep) stampIn(k cellKey, at eventtime.Time) eventtime.Time {
	if at == k.win.EndTime() {
		return at - 1
	}
	return at
}

func (n *naiveCellStep) watermark(w eventtime.Time) {
	n.w = w
	n.fire()
	for k, s := range n.states {
		x := min(n.expiry(k.win), eventtime.EndOfGlobalWindow)
		if n.expiry(k.win) > w {
			continue
		}
		n.k, n.now = k, [cell.Clocks]eventtime.Time{max(n.passed, x), n.clock}
		some := false
		for kind := range s.cells {
			some = some || len(*n.live(cellKind(kind), 0))+len(*n.live(cellKind(kind), 1)) > 0
		}
		if some {
			n.call('X', k, x, k.win.MaxTimestamp(), uint64(len(k.key)))
		}
		delete(n.states, k)
	}
	n.passed = w
}
