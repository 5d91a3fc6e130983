package kernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/state"
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
