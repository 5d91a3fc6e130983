package kernel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/seeds"
)

// TestCellsAgreeWithNaive runs a step whose every call reads and changes cells of every kind at random, with and without
// TTLs by either clock, with timers and window expiries, tiny caches, snapshots between any two slices, bases and deltas,
// and crashes. What each call reads must be what a naive evaluation with slices reads, and what has expired must be gone.
func TestCellsAgreeWithNaive(t *testing.T) {
	var sum cellStats
	seeds.Each(t, 60, func(seed uint64) error { return walkCells(seed, &sum) })
	t.Logf("%+v", sum)
	if s := sum; !seeds.Given() && min(s.expired, s.spilled, s.spilledLooks, s.far, s.crashes, s.inFiring, s.purged) == 0 {
		t.Errorf("something was never met: %+v", sum)
	}
}

type cellStats struct {
	expired           int // reads that met something expired
	spilled           int // steps after which there were states in the backend alone
	spilledLooks, far int // likewise lookups; lookups that come early
	crashes, inFiring int
	purged            int // states that a step without elements made fewer
}

// ---- the program ----

// cellKind is one of the kinds; each is there twice, without and with a TTL.
type cellKind int

const (
	aValue cellKind = iota
	aBag
	aMap
	aList
	aCombining
	cellKinds
)

// cellsAPI is what a call may do; i is 1 for the cell with the TTL.
type cellsAPI interface {
	read(kind cellKind, i int, from, to int64) string // [from, to) of a list
	lookup(i int, k string) string                    // of a map
	length(kind cellKind, i int) int
	write(kind cellKind, i int, k int64, v int64)
	remove(kind cellKind, i int, k, to int64) // a key of a map, a range of a list
	clear(kind cellKind, i int)
	// readWhile reads all, and calls change after the first element.
	readWhile(kind cellKind, i int, change func()) string
	setTimer(at eventtime.Time)
	emit(s string)
}

func mapKey(k int64) string { return strings.Repeat("k", int(k%3)) + fmt.Sprint(k%40) }

func actOnCells(a cellsAPI, what string, at eventtime.Time, x uint64) {
	h := x*0x9E3779B97F4A7C15 ^ uint64(at)
	next := func(n int64) int64 {
		h ^= h >> 29
		h *= 0xBF58476D1CE4E5B9
		h ^= h >> 32
		return int64(h % uint64(n))
	}
	line := fmt.Sprintf("%s@%d", what, at)
	note := func(s string) { line += " " + s }
	for range 1 + next(6) {
		kind, i := cellKind(next(int64(cellKinds))), int(next(2))
		switch op := next(12); {
		case op < 4:
			n := int64(1)
			if next(12) == 0 {
				n = 1 + next(300) // several blocks
			}
			for range n {
				a.write(kind, i, next(200), next(1000))
			}
		case op < 6:
			from := next(220) - 10
			note(fmt.Sprintf("r%d.%d=%s", kind, i, a.read(kind, i, from, from+next(80))))
		case op == 6:
			note(fmt.Sprintf("n%d.%d=%d", kind, i, a.length(kind, i)))
		case op == 7:
			note("l" + a.lookup(i, mapKey(next(120))))
		case op == 8:
			k := next(220) - 10
			a.remove(kind, i, k, k+next(100))
		case op == 9 && next(3) == 0:
			a.clear(kind, i)
		case op == 10:
			k, v, clear := next(200), next(1000), next(3) == 0
			note(fmt.Sprintf("w%d.%d=%s", kind, i, a.readWhile(kind, i, func() {
				if clear {
					a.clear(kind, i)
				}
				a.write(kind, i, k, v)
			})))
		case op == 11 && (what[0] != 'T' || next(3) > 0):
			a.setTimer(at + eventtime.Time(delays[next(8)]))
		}
	}
	a.emit(line)
}

// ---- on the operator ----

type sumFn struct{}

func (sumFn) CreateAccumulator() *int64            { return new(int64) }
func (sumFn) AddInput(a *int64, v int64) *int64    { *a += v; return a } // in place
func (sumFn) MergeAccumulators(a, b *int64) *int64 { *a += *b; return a }
func (sumFn) ExtractOutput(a *int64) int64         { return *a }

var _ state.Combiner[int64, *int64, int64] = sumFn{}

// ttlOf is the TTL of the cells that have one.
type ttlOf struct {
	d       int64
	refresh state.Refresh
	clock   state.Clock
}

type cellsProgram struct {
	ttls  [cellKinds]ttlOf
	value [2]state.Value[int64]
	bag   [2]state.Bag[int64]
	kv    [2]state.Map[string, string]
	list  [2]state.OrderedList[int64]
	sum   [2]state.Combining[int64, *int64, int64]
	timer Timer

	key string
	out *Emitter[string]
}

func (p *cellsProgram) declare(d *KeyedDecl) {
	for i := range 2 {
		opts := func(kind cellKind) []state.Option {
			if i == 0 {
				return nil
			}
			t := p.ttls[kind]
			return []state.Option{state.TTL(time.Duration(t.d)*time.Millisecond, t.refresh, t.clock)}
		}
		name := func(s string) string { return fmt.Sprint(s, i) }
		p.value[i] = state.NewValue[int64](d, name("value"), opts(aValue)...)
		p.bag[i] = state.NewBag[int64](d, name("bag"), opts(aBag)...)
		p.kv[i] = state.NewMap[string, string](d, name("map"), opts(aMap)...)
		p.list[i] = state.NewOrderedList[int64](d, name("list"), opts(aList)...)
		p.sum[i] = state.NewCombining(d, name("sum"), sumFn{}, opts(aCombining)...)
	}
	handler := func(what string) keyedHandler[string, string] {
		return func(c *ProcessContext, k string, out *Emitter[string]) error {
			p.key, p.out = k, out
			actOnCells(p, what, c.at.time, uint64(len(k)))
			return nil
		}
	}
	p.timer = EventTimer(d, "timer", handler("T"))
	OnWindowExpiry(d, handler("X"))
}

func (p *cellsProgram) process(c *ProcessContext, k string, v int64, out *Emitter[string]) error {
	p.key, p.out = k, out
	actOnCells(p, "P", c.at.time, uint64(v))
	return nil
}

func (p *cellsProgram) read(kind cellKind, i int, from, to int64) (s string) {
	switch kind {
	case aList:
		for t, v := range p.list[i].Range(time.UnixMilli(from), time.UnixMilli(to)) {
			s += fmt.Sprintf("%d:%d,", t.UnixMilli(), v)
		}
		return s
	case aValue:
		v, ok := p.value[i].Lookup()
		return fmt.Sprint(v, ok)
	case aCombining:
		empty := p.sum[i].IsEmpty()
		return fmt.Sprint(p.sum[i].Get(), !empty)
	}
	return p.readWhile(kind, i, func() {})
}

func (p *cellsProgram) readWhile(kind cellKind, i int, change func()) (s string) {
	first := true
	then := func(text string) {
		s += text + ","
		if first {
			change()
		}
		first = false
	}
	switch kind {
	case aBag:
		for v := range p.bag[i].All() {
			then(fmt.Sprint(v))
		}
	case aMap:
		for k, v := range p.kv[i].All() {
			then(k + ":" + v)
		}
	case aList:
		for t, v := range p.list[i].All() {
			then(fmt.Sprint(t.UnixMilli(), ":", v))
		}
	default:
		return p.read(kind, i, 0, 0)
	}
	return s
}

func (p *cellsProgram) lookup(i int, k string) string {
	v, ok := p.kv[i].Lookup(k)
	return fmt.Sprint(v, ok)
}

func (p *cellsProgram) length(kind cellKind, i int) int {
	switch kind {
	case aBag:
		return p.bag[i].Len()
	case aMap:
		return p.kv[i].Len()
	case aList:
		return p.list[i].Len()
	}
	return 0
}

func (p *cellsProgram) write(kind cellKind, i int, k, v int64) {
	switch kind {
	case aValue:
		p.value[i].Set(v)
	case aBag:
		p.bag[i].Add(v)
	case aMap:
		p.kv[i].Put(mapKey(k), fmt.Sprint(v))
	case aList:
		p.list[i].Add(time.UnixMilli(k), v)
	case aCombining:
		p.sum[i].Add(v)
	}
}

func (p *cellsProgram) remove(kind cellKind, i int, k, to int64) {
	switch kind {
	case aMap:
		p.kv[i].Delete(mapKey(max(k, 0)))
	case aList:
		p.list[i].ClearRange(time.UnixMilli(k), time.UnixMilli(to))
	}
}

func (p *cellsProgram) clear(kind cellKind, i int) {
	switch kind {
	case aValue:
		p.value[i].Clear()
	case aBag:
		p.bag[i].Clear()
	case aMap:
		p.kv[i].Clear()
	case aList:
		p.list[i].Clear()
	case aCombining:
		p.sum[i].Clear()
	}
}

func (p *cellsProgram) setTimer(at eventtime.Time) { p.timer.Set(at.Time()) }
func (p *cellsProgram) emit(s string)              { p.out.Emit(p.key + " " + s) }

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
			n.call('X', k, x, n.stampIn(k, x), uint64(len(k.key)))
		}
		delete(n.states, k)
	}
	n.passed = w
}

// ---- the walk ----

type cellsWalk struct {
	r      *rand.Rand
	stats  *cellStats
	ttls   [cellKinds]ttlOf
	global bool
	always bool
	cache  int64
	files  files

	op    *keyedParDo[string, int64, string]
	out   map[cellKey][]string
	naive *naiveCellStep
	at    eventtime.Time // about where elements are
	w     eventtime.Time

	pending   KeyedSnapshot
	pendingAt *cellsPoint
	base      *savedBase
	deltas    [][]byte
	completed *cellsPoint
}

type cellsPoint struct {
	blob  []byte
	w, at eventtime.Time
	told  eventtime.Time
	naive *naiveCellStep
	out   map[cellKey][]string
}

const cellKeys = 8

func walkCells(seed uint64, stats *cellStats) error {
	r := rand.New(rand.NewPCG(seed, 5))
	w := &cellsWalk{
		r: r, stats: stats, global: r.IntN(3) == 0, always: r.IntN(4) == 0, cache: []int64{0, 6000, 1 << 20}[r.IntN(3)],
		files: files{}, out: map[cellKey][]string{}, w: eventtime.Min, at: eventtime.Time(r.Int64N(8_000_000) - 4_000_000),
	}
	for i := range w.ttls {
		w.ttls[i] = ttlOf{[]int64{1, 30, 700, 5000, 90_000, 40_000_000}[r.IntN(6)], state.Refresh(r.IntN(2)), state.Clock(r.IntN(2))}
	}
	w.naive = &naiveCellStep{ttls: w.ttls, lateness: []int64{0, 2000}[r.IntN(2)], w: eventtime.Min, passed: eventtime.Min,
		clock: eventtime.Time(r.Int64N(1_000_000)), states: map[cellKey]*naiveCells{}, out: map[cellKey][]string{}}
	w.completed = w.point(nil, eventtime.Min)
	if err := w.open(nil); err != nil {
		return err
	}
	for i := range 50 {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	for w.w < eventtime.Max {
		if err := w.watermark(eventtime.Max); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	stats.expired += w.naive.expired
	w.naive.clock += 1 << 40
	for range 3 {
		if _, err := w.op.Watermark(eventtime.Max, 1000); err != nil {
			return err
		}
	}
	n := w.op.state.resident + len(w.op.state.segments)
	_ = w.op.ttl.each(func(_ cell.Clock, l *lookupIndex[string]) error {
		n += l.table.resident + len(l.table.segments)
		return nil
	})
	if n != 0 {
		return fmt.Errorf("at the end %d entries and segments are left", n)
	}
	return w.op.Close()
}

func (w *cellsWalk) open(p *cellsPoint) error {
	c := statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)}
	deltas := w.deltas
	if w.base != nil {
		c.Restore = []statebackend.Restore{{Handle: w.base.handle, Fetcher: w.files}}
		deltas = append([][]byte{w.base.companion}, deltas...)
	}
	b, err := memory.Driver{}.Open(context.Background(), c)
	if err != nil {
		return err
	}
	for _, d := range deltas {
		batch, err := statebackend.ParseBatch(bytes.Clone(d))
		if err == nil {
			err = b.Write(batch)
		}
		if err != nil {
			return err
		}
	}
	key, err := coder.KeyOf[string]()
	if err != nil {
		return err
	}
	prog := &cellsProgram{ttls: w.ttls}
	w.op = NewKeyedParDo(KeyedSpec[string, int64, string]{
		Key: key, Lateness: w.naive.lateness, Fns: KeyedFns[string, int64, string]{Declare: prog.declare, Process: prog.process},
	}).(*keyedParDo[string, int64, string])
	oc := &OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups,
		Outputs: []Output{outputFunc(w.take)}, Backend: b, CacheMax: w.cache, Track: true, Metrics: &Metrics{},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() eventtime.Time { return w.naive.clock },
	}
	if p != nil {
		oc.Restore = &OpRestore{Checkpoint: 1, Blob: p.blob, Watermark: p.told}
	}
	return w.op.Open(oc)
}

func (w *cellsWalk) take(b Batch) error {
	for _, e := range b.(*Rows[string]).E {
		key, line, _ := strings.Cut(e.Value, " ")
		k := cellKey{key, e.Window}
		w.out[k] = append(w.out[k], line)
	}
	return nil
}

func (w *cellsWalk) step() error {
	switch n := w.r.IntN(10); {
	case n < 5:
		return w.process()
	case n < 8:
		w.tick()
		by := []int64{1, 50, 400, 3000, 60_000, 30_000_000}[w.r.IntN(6)]
		w.at += eventtime.Time(w.r.Int64N(by) + 1)
		before := w.op.state.resident
		if err := w.watermark(w.at); err != nil {
			return err
		}
		if w.op.state.resident < before {
			w.stats.purged++
		}
		return nil
	default:
		return w.rest()
	}
}

// tick moves the processing time.
func (w *cellsWalk) tick() {
	by := []int64{1, 1, 40, 500, 20_000, 10_000_000}[w.r.IntN(6)]
	w.naive.clock += eventtime.Time(w.r.Int64N(by))
}

func (w *cellsWalk) process() error {
	w.tick()
	rows := &Rows[coder.KV[string, int64]]{}
	for range 1 + w.r.IntN(12) {
		key := strings.Repeat("x", w.r.IntN(cellKeys))
		at := w.at + eventtime.Time(w.r.Int64N(12_000)-4000)
		if w.r.IntN(20) == 0 {
			at += 100_000_000 // far ahead
		}
		win := window.GlobalWindow
		if !w.global {
			win = window.FixedFn{Size: 5_000_000_000}.Assign(at)
		}
		v := w.r.Int64()
		w.naive.process(cellKey{key, win}, at, uint64(v))
		rows.E = append(rows.E, Element[coder.KV[string, int64]]{Value: coder.KV[string, int64]{Key: key, Value: v}, Time: at, Window: win})
	}
	w.naive.fire()
	if err := w.op.Process(0, rows); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("after a batch: %w", err)
	}
	return w.rest()
}

func (w *cellsWalk) rest() error {
	crashed, err := w.between()
	if err == nil && crashed {
		err = w.advance()
	}
	return err
}

func (w *cellsWalk) watermark(to eventtime.Time) error {
	w.w = to
	w.naive.watermark(to)
	return w.advance()
}

func (w *cellsWalk) advance() error {
	for n := 0; ; n++ {
		if n > 200_000 {
			return fmt.Errorf("watermark %v is never done", w.w)
		}
		done, err := w.op.Watermark(w.w, 1+w.r.IntN(20))
		if err != nil {
			return err
		}
		if done {
			break
		}
		crashed, err := w.between()
		if err != nil {
			return err
		}
		if crashed {
			w.stats.inFiring++
		}
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("after watermark %v: %w", w.w, err)
	}
	return nil
}

func (w *cellsWalk) point(blob []byte, told eventtime.Time) *cellsPoint {
	p := &cellsPoint{blob: blob, w: w.w, at: w.at, told: told, naive: w.naive.clone(), out: map[cellKey][]string{}}
	for k, l := range w.out {
		p.out[k] = slices.Clone(l)
	}
	return p
}

func (w *cellsWalk) between() (crashed bool, err error) {
	n := w.r.IntN(12)
	if w.always || n == 0 {
		err = w.snapshot()
	}
	if err == nil && (w.always || n == 1 || n == 2) {
		err = w.encode(1 + w.r.IntN(30))
	}
	if err == nil && w.always {
		err = w.encode(1 << 30)
	}
	if err == nil && (w.always || n == 3) {
		return true, w.crash()
	}
	return false, err
}

func (w *cellsWalk) snapshot() error {
	if err := w.encode(1 << 30); err != nil {
		return err
	}
	s, err := w.op.Snapshot(1, w.r.IntN(3) == 0)
	if err != nil {
		return err
	}
	w.pending, w.pendingAt = s.Keyed, w.point(s.Blob, w.op.w)
	return nil
}

func (w *cellsWalk) encode(budget int) error {
	p := w.pending
	if p == nil {
		return nil
	}
	if done, err := p.Encode(budget); !done || err != nil {
		return err
	}
	w.pending = nil
	w.deltas = append(w.deltas, bytes.Clone(p.Delta()))
	if p.Base() != nil {
		h, err := p.Base().Persist(context.Background(), w.files)
		if err == nil {
			err = p.Base().Release()
		}
		if err != nil {
			return err
		}
		if w.r.IntN(3) > 0 {
			w.base, w.deltas = &savedBase{h, bytes.Clone(p.Companion())}, nil
		}
	}
	w.completed = w.pendingAt
	return nil
}

func (w *cellsWalk) crash() error {
	p := w.completed
	w.stats.crashes++
	w.pending = nil
	w.w, w.at, w.naive = p.w, p.at, p.naive.clone()
	w.out = map[cellKey][]string{}
	for k, l := range p.out {
		w.out[k] = slices.Clone(l)
	}
	if p.blob == nil {
		w.base, w.deltas = nil, nil
		p = nil
	}
	if err := w.open(p); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// check compares the output and checks the books, with no firing unfinished.
func (w *cellsWalk) check() error {
	if d := cmp.Diff(w.naive.out, w.out, cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		return fmt.Errorf("the output differs (-naive +got):\n%s", d)
	}
	o := w.op
	w.stats.spilled += o.state.spilled
	used := int64(0)
	for _, s := range o.state.segments {
		for i := range s.n {
			if e := s.at(i); e.flags&flagDead == 0 {
				used += int64(o.state.baseBytes(&e.key) + o.schema.size(&e.acc))
			}
		}
	}
	if used != o.state.used {
		return fmt.Errorf("the states take %d bytes, %d are counted", used, o.state.used)
	}
	states, err := dump(o.state, o.Key, 0)
	if err != nil {
		return err
	}
	return o.ttl.each(func(clock cell.Clock, l *lookupIndex[string]) error { return w.checkLookups(clock, l, states) })
}

// checkLookups: whatever has expired, but for the lag, is gone, for the lookup of a state comes in time.
func (w *cellsWalk) checkLookups(clock cell.Clock, l *lookupIndex[string], states map[dumped]keyState) error {
	o := w.op
	w.stats.spilledLooks += l.table.spilled
	if t := o.expiredBy(clock); l.next() <= t {
		return fmt.Errorf("lookups are due at %v, it is %v", l.next(), t)
	}
	index, err := dump(l.table, wakeKeys[string]{o.Key}, wakeTail)
	if err != nil {
		return err
	}
	for at, s := range states {
		has := o.ttl.of(&s)[clock]
		first, lag := o.ttl.first(&s, clock)
		if has == (window.Window{}) {
			if first != noTime && (clock != cell.EventTime || first < expiry(at.win, w.naive.lateness)) {
				return fmt.Errorf("key %q: something expires at %v and there is no lookup", at.key, first)
			}
			continue
		}
		if first != noTime && has.EndTime() > first.Add(lag) {
			return fmt.Errorf("key %q: something expires at %v, the lookup comes at %v", at.key, first, has.EndTime())
		}
		if first != noTime && has.EndTime() < first {
			w.stats.far++
		}
		k, _, err := o.Key.Decode([]byte(at.key))
		if err != nil {
			return err
		}
		key, err := wakeKeys[string]{o.Key}.Append(nil, wakeKey[string]{k, at.win})
		if err != nil {
			return err
		}
		if _, ok := index[dumped{has, string(key)}]; !ok {
			return fmt.Errorf("key %q: its lookup is not in bucket %v", k, has)
		}
	}
	return nil
}
