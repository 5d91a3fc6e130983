package kernel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/seeds"
)

// TestKeyedStepAgreesWithNaive runs a step whose every call reads, sets and clears cells and timers at
// random, with elements, watermarks fired in small slices, tiny caches, snapshots between any two slices,
// bases and deltas, and crashes. What each key and window emits, in order, must be what a naive evaluation
// with a map of structs emits.
func TestKeyedStepAgreesWithNaive(t *testing.T) {
	t.Run("native keys", func(t *testing.T) {
		walkSeeds(t, 60, func(_ *rand.Rand, i int) int64 { return int64(i) - 3 })
	})
	t.Run("encoded keys", func(t *testing.T) {
		walkSeeds(t, 40, func(r *rand.Rand, i int) float64 {
			switch i { // of these, == would split the first and lose the second
			case 0:
				return math.Copysign(0, float64(r.IntN(2))-0.5)
			case 1:
				return math.Float64frombits(math.Float64bits(math.NaN()) ^ r.Uint64N(2))
			}
			return float64(i)
		})
	})
}

// keyedStats counts what a walk met.
type keyedStats struct {
	fired, expired, late     int
	crashes, inFiring        int // crashes, and of these in the midst of a firing
	spilledState, spilledIdx int // steps after which there was something in the backend alone
	minutes, days            int // steps after which wake-ups waited in a minute or day
}

func walkSeeds[K comparable](t *testing.T, runs int, key func(*rand.Rand, int) K) {
	var sum keyedStats
	seeds.Each(t, runs, func(seed uint64) error { return walkKeyed(seed, key, &sum) })
	t.Logf("%+v", sum)
	// A test that meets nothing proves nothing.
	if s := sum; !seeds.Given() && min(s.fired, s.expired, s.late, s.crashes, s.inFiring, s.spilledState, s.spilledIdx, s.minutes, s.days) == 0 {
		t.Errorf("something was never met: %+v", sum)
	}
}

// ---- the user's program, the same above both implementations ----

const nCells, nTimers = 2, 3

// keyAPI is what a call may do with its key.
type keyAPI interface {
	get(i int) (int64, bool)
	set(i int, v int64)
	clear(i int)
	setTimer(i int, at eventtime.Time)
	clearTimer(i int)
	emit(s string)
}

// delays of timers, in ms: within a bucket, a minute, a day, beyond it, and the past.
var delays = []int64{0, 1, 7, 150, 700, 1500, 9000, 70_000, 3_600_000, 4_000_000, 90_000_000, 800_000_000, -300, -5000}

// act is a call: what it does follows from its arguments and from what it reads.
func act(a keyAPI, what string, at eventtime.Time, x uint64) {
	h := x*0x9E3779B97F4A7C15 ^ uint64(at)
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
	for range next(4) {
		switch i := int(next(6)); {
		case i < nTimers && (what[0] != 'T' || next(3) > 0): // handlers that arm more than fires never end
			a.setTimer(i, at+eventtime.Time(delays[next(uint64(len(delays)))]))
		case next(3) == 0:
			a.clearTimer(i % nTimers)
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
	cells  [nCells]state.Value[int64]
	timers [nTimers]Timer
	index  func(K) int

	key int // of the call
	out *Emitter[string]
}

func (p *keyedProgram[K]) get(i int) (int64, bool)           { return p.cells[i].Lookup() }
func (p *keyedProgram[K]) set(i int, v int64)                { p.cells[i].Set(v) }
func (p *keyedProgram[K]) clear(i int)                       { p.cells[i].Clear() }
func (p *keyedProgram[K]) setTimer(i int, at eventtime.Time) { p.timers[i].Set(at.Time()) }
func (p *keyedProgram[K]) clearTimer(i int)                  { p.timers[i].Clear() }
func (p *keyedProgram[K]) emit(s string)                     { p.out.Emit(fmt.Sprintf("%d %s", p.key, s)) }

func (p *keyedProgram[K]) declare(d *KeyedDecl) {
	for i := range nCells {
		p.cells[i] = state.NewValue[int64](d, fmt.Sprintf("cell %d", i))
	}
	handler := func(what string) keyedHandler[K, string] {
		return func(c *ProcessContext, k K, out *Emitter[string]) error {
			p.key, p.out = p.index(k), out
			act(p, what, c.at.time, uint64(p.key))
			return nil
		}
	}
	for i := range nTimers {
		p.timers[i] = EventTimer(d, fmt.Sprintf("timer %d", i), handler(fmt.Sprintf("T%d", i)))
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
	timers map[int]eventtime.Time
}

type naiveStep struct {
	lateness int64
	w        eventtime.Time
	states   map[naiveKey]*naiveState
	out      map[naiveKey][]string
	late     int

	k      naiveKey       // of the call
	firing eventtime.Time // time of the element or timer
	kind   byte           // 'P', 'T' or 'X'
}

func (n *naiveStep) clone() *naiveStep {
	c := *n
	c.states, c.out = map[naiveKey]*naiveState{}, map[naiveKey][]string{}
	for k, s := range n.states {
		t := &naiveState{map[int]int64{}, map[int]eventtime.Time{}}
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

func (n *naiveStep) get(i int) (int64, bool) { v, ok := n.states[n.k].cells[i]; return v, ok }
func (n *naiveStep) set(i int, v int64)      { n.states[n.k].cells[i] = v }
func (n *naiveStep) clear(i int)             { delete(n.states[n.k].cells, i) }
func (n *naiveStep) clearTimer(i int)        { delete(n.states[n.k].timers, i) }
func (n *naiveStep) emit(s string)           { n.out[n.k] = append(n.out[n.k], s) }
func (n *naiveStep) expiry(w window.Window) eventtime.Time {
	return w.EndTime().Add(n.lateness)
}

func (n *naiveStep) setTimer(i int, at eventtime.Time) {
	last := min(n.expiry(n.k.win), eventtime.EndOfGlobalWindow)
	s := n.states[n.k]
	if n.kind == 'X' {
		return
	}
	if n.kind == 'T' {
		_, pending := s.timers[i]
		if !pending && (n.firing == last || last == eventtime.EndOfGlobalWindow && n.w >= last) {
			return
		}
		at = max(at, n.firing+1)
	} else {
		at = max(at, min(n.firing, n.w))
	}
	s.timers[i] = min(at, last)
}

func (n *naiveStep) call(kind byte, what string, k naiveKey, at, stamp eventtime.Time, x uint64) {
	if n.states[k] == nil {
		n.states[k] = &naiveState{map[int]int64{}, map[int]eventtime.Time{}}
	}
	n.k, n.kind, n.firing = k, kind, at
	act(n, what, stamp, x)
}

func (n *naiveStep) process(k naiveKey, at eventtime.Time, x uint64) {
	if n.w >= n.expiry(k.win) {
		n.late++
		return
	}
	n.call('P', "P", k, at, at, x)
}

func (n *naiveStep) stamp(k naiveKey, at eventtime.Time) eventtime.Time {
	if at == k.win.EndTime() {
		return at - 1
	}
	return at
}

func (n *naiveStep) fire() {
	for k, s := range n.states {
		for {
			at, first := noTime, -1
			for i := range nTimers {
				if t, ok := s.timers[i]; ok && t < at {
					at, first = t, i
				}
			}
			if at > n.w {
				break
			}
			delete(s.timers, first)
			n.call('T', fmt.Sprintf("T%d", first), k, at, n.stamp(k, at), uint64(k.key))
		}
	}
}

func (n *naiveStep) watermark(w eventtime.Time) {
	n.w = w
	n.fire()
	for k, s := range n.states {
		if x := n.expiry(k.win); x <= w {
			if len(s.cells) > 0 {
				n.call('X', "X", k, x, n.stamp(k, min(x, eventtime.EndOfGlobalWindow)), uint64(k.key))
			}
			delete(n.states, k)
		}
	}
}

// ---- the walk ----

type keyedWalk[K comparable] struct {
	r     *rand.Rand
	key   func(*rand.Rand, int) K
	coder coder.Key[K]
	index map[string]int
	files files
	stats *keyedStats

	global, always bool // windows; a crash after every step
	cache          int64
	lateness       int64

	op   *keyedParDo[K, int64, string]
	out  map[naiveKey][]string
	late int
	m    *Metrics

	naive *naiveStep
	now   eventtime.Time // about where elements are
	w     eventtime.Time

	pending   KeyedSnapshot
	pendingAt *keyedPoint
	base      *savedBase
	deltas    [][]byte
	completed *keyedPoint
}

// keyedPoint is all that a restore sets back.
type keyedPoint struct {
	blob  []byte
	w     eventtime.Time
	told  eventtime.Time
	now   eventtime.Time
	naive *naiveStep
	out   map[naiveKey][]string
	late  int
}

func walkKeyed[K comparable](seed uint64, key func(*rand.Rand, int) K, stats *keyedStats) error {
	r := rand.New(rand.NewPCG(seed, 3))
	kc, err := coder.KeyOf[K]()
	if err != nil {
		return err
	}
	w := &keyedWalk[K]{
		r: r, key: key, stats: stats, coder: kc, index: map[string]int{}, files: files{},
		global: r.IntN(3) == 0, always: r.IntN(4) == 0, cache: []int64{0, 3000, 1 << 20}[r.IntN(3)],
		lateness: []int64{0, 2000}[r.IntN(2)],
		out:      map[naiveKey][]string{}, w: eventtime.Min, now: eventtime.Time(r.Int64N(8_000_000) - 4_000_000),
	}
	for i := range 12 {
		b, err := kc.Append(nil, key(r, i))
		if err != nil {
			return err
		}
		w.index[string(b)] = i
	}
	w.naive = &naiveStep{lateness: w.lateness, w: eventtime.Min, states: map[naiveKey]*naiveState{}, out: map[naiveKey][]string{}}
	w.completed = w.point(nil, eventtime.Min)
	if err := w.open(nil); err != nil {
		return err
	}
	for i := range 60 {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	for w.w < eventtime.Max { // a crash goes back to an earlier one
		if err := w.watermark(eventtime.Max); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if n := w.op.state.resident + w.op.wakes.table.resident + len(w.op.state.segments) + len(w.op.wakes.table.segments); n != 0 {
		return fmt.Errorf("at the end %d entries and segments are left", n)
	}
	stats.late += w.late
	for _, lines := range w.out {
		for _, l := range lines {
			switch l[0] {
			case 'T':
				stats.fired++
			case 'X':
				stats.expired++
			}
		}
	}
	return w.op.Close()
}

func (w *keyedWalk[K]) idx(k K) int {
	b, err := w.coder.Append(nil, k)
	if err != nil {
		panic(err)
	}
	return w.index[string(b)]
}

func (w *keyedWalk[K]) open(p *keyedPoint) error {
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
	prog := &keyedProgram[K]{index: w.idx}
	w.op = NewKeyedParDo(KeyedSpec[K, int64, string]{
		Key: w.coder, Lateness: w.lateness, LateTo: true,
		Fns: KeyedFns[K, int64, string]{Declare: prog.declare, Process: prog.process},
	}).(*keyedParDo[K, int64, string])
	w.m = &Metrics{}
	oc := &OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups,
		Outputs: []Output{outputFunc(w.take), outputFunc(func(b Batch) error { w.late += b.Len(); return nil })},
		Backend: b, CacheMax: w.cache, Track: true, Metrics: w.m, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if p != nil {
		oc.Restore = &OpRestore{Checkpoint: 1, Blob: p.blob, Watermark: p.told}
	}
	return w.op.Open(oc)
}

type outputFunc func(Batch) error

func (f outputFunc) Emit(b Batch) error { return f(b) }

func (w *keyedWalk[K]) take(b Batch) error {
	for _, e := range b.(*Rows[string]).E {
		var key int
		if _, err := fmt.Sscanf(e.Value, "%d ", &key); err != nil {
			return err
		}
		k := naiveKey{key, e.Window}
		_, line, _ := strings.Cut(e.Value, " ")
		w.out[k] = append(w.out[k], line)
	}
	return nil
}

func (w *keyedWalk[K]) step() error {
	switch n := w.r.IntN(10); {
	case n < 5:
		return w.process()
	case n < 8:
		by := []int64{1, 50, 400, 3000, 60_000, 3_000_000, 200_000_000}[w.r.IntN(7)]
		if w.r.IntN(2) == 0 {
			by = min(by, 1000)
		}
		w.now += eventtime.Time(w.r.Int64N(by) + 1)
		return w.watermark(w.now)
	default:
		return w.rest()
	}
}

func (w *keyedWalk[K]) process() error {
	rows := &Rows[coder.KV[K, int64]]{}
	for range 1 + w.r.IntN(15) {
		i := w.r.IntN(12)
		at := w.now + eventtime.Time(w.r.Int64N(12_000)-4000)
		win := window.GlobalWindow
		if !w.global {
			win = window.FixedFn{Size: 5_000_000_000}.Assign(at)
		}
		v := w.r.Int64()
		w.naive.process(naiveKey{i, win}, at, uint64(v))
		rows.E = append(rows.E, Element[coder.KV[K, int64]]{
			Value: coder.KV[K, int64]{Key: w.key(w.r, i), Value: v}, Time: at, Window: win})
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

// rest is what may happen while the operator is done with its watermark.
func (w *keyedWalk[K]) rest() error {
	crashed, err := w.between()
	if err == nil && crashed {
		err = w.advance()
	}
	return err
}

func (w *keyedWalk[K]) watermark(to eventtime.Time) error {
	w.w = to
	w.naive.watermark(to)
	return w.advance()
}

// advance fires for the watermark, in slices. The naive twin has already: a snapshot in the midst has the
// twin of its end, and the watermark that the host repeats.
func (w *keyedWalk[K]) advance() error {
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

// point is the present. In the midst of a firing the twin is ahead: what it emitted is compared when the
// firing ends.
func (w *keyedWalk[K]) point(blob []byte, told eventtime.Time) *keyedPoint {
	p := &keyedPoint{blob: blob, w: w.w, told: told, now: w.now, naive: w.naive.clone(), late: w.late, out: map[naiveKey][]string{}}
	for k, l := range w.out {
		p.out[k] = slices.Clone(l)
	}
	return p
}

// between is what may happen between any two calls of the operator.
func (w *keyedWalk[K]) between() (crashed bool, err error) {
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

func (w *keyedWalk[K]) snapshot() error {
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

func (w *keyedWalk[K]) encode(budget int) error {
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
		if w.r.IntN(3) > 0 { // else it is not completed: the deltas must do
			w.base, w.deltas = &savedBase{h, bytes.Clone(p.Companion())}, nil
		}
	}
	w.completed = w.pendingAt
	return nil
}

// crash goes back to the last completed snapshot. The host must then repeat the watermark.
func (w *keyedWalk[K]) crash() error {
	p := w.completed
	w.stats.crashes++
	w.pending = nil
	w.w, w.now, w.naive, w.late = p.w, p.now, p.naive.clone(), p.late
	w.out = map[naiveKey][]string{}
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

// check compares the output, and the books of state and index to each other.
func (w *keyedWalk[K]) check() error {
	if d := cmp.Diff(w.naive.out, w.out, cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		return fmt.Errorf("the output differs (-naive +got):\n%s", d)
	}
	if w.late != w.naive.late {
		return fmt.Errorf("%d elements were late, want %d", w.late, w.naive.late)
	}
	o := w.op
	w.stats.spilledState += o.state.spilled
	w.stats.spilledIdx += o.wakes.table.spilled
	w.stats.minutes += len(o.wakes.levels[1].buckets)
	w.stats.days += len(o.wakes.levels[2].buckets)
	for name, used := range map[string][2]int64{"state": {o.state.used, o.state.max}, "index": {o.wakes.table.used, o.wakes.table.max}} {
		if used[0] > used[1] {
			return fmt.Errorf("the %s has %d bytes, its limit is %d", name, used[0], used[1])
		}
	}
	used := int64(0)
	for _, s := range o.state.segments {
		for i := range s.n {
			if e := s.at(i); e.flags&flagDead == 0 {
				used += int64(o.state.entryBytes() + o.schema.size(&e.acc))
			}
		}
	}
	if used != o.state.used {
		return fmt.Errorf("the states take %d bytes, %d are counted", used, o.state.used)
	}
	return w.checkIndex()
}

// checkIndex checks the invariants of docs/design/timers.md. No firing is unfinished.
func (w *keyedWalk[K]) checkIndex() error {
	o := w.op
	states, err := dump(o.state, w.coder, 0)
	if err != nil {
		return err
	}
	wakes, err := dump(o.wakes.table, wakeKeys[K]{w.coder}, 16)
	if err != nil {
		return err
	}
	for i, t := range o.wakes.horizons() {
		if t <= min(o.w, lastTimer) {
			return fmt.Errorf("level %d ends at %v, not beyond watermark %v", i, t, o.w)
		}
	}
	n := 0
	for at, s := range states {
		k := naiveKey{w.index[at.key], at.win}
		_, next := o.schema.next(&s, byWatermark)
		want := w.naive.states[k]
		if want == nil || len(want.cells) == 0 && len(want.timers) == 0 && s.wake == noTime {
			return fmt.Errorf("key %d has a state with nothing in it", k.key)
		}
		for i := range nTimers {
			t, ok := want.timers[i]
			if !ok {
				t = noTime
			}
			if s.timers[i] != t {
				return fmt.Errorf("timer %d of key %d is at %d, want %d", i, k.key, s.timers[i], t)
			}
		}
		for i := range nCells {
			v, ok := want.cells[i]
			got, is := s.cells[i].(*int64)
			if is != ok || ok && *got != v {
				return fmt.Errorf("cell %d of key %d is %v, want %v (%v)", i, k.key, s.cells[i], v, ok)
			}
		}
		if s.wake > next {
			return fmt.Errorf("key %d wakes up at %d, after its timer at %d", k.key, s.wake, next)
		}
		if s.wake == noTime {
			continue
		}
		n++
		key, err := wakeKeys[K]{w.coder}.Append(nil, wakeKey[K]{w.key(w.r, k.key), k.win})
		if err != nil {
			return err
		}
		if got, ok := wakes[dumped{o.wakes.bucket(s.wake), string(key)}]; !ok || got != s.wake {
			return fmt.Errorf("key %d wakes up at %d, the index has %v (%v)", k.key, s.wake, got, ok)
		}
	}
	if n != len(wakes) {
		return fmt.Errorf("%d states have a wake-up, the index has %d", n, len(wakes))
	}
	for k, s := range w.naive.states {
		if len(s.cells)+len(s.timers) > 0 && !slices.ContainsFunc(keysOf(states), func(d dumped) bool {
			return w.index[d.key] == k.key && d.win == k.win
		}) {
			return fmt.Errorf("key %d of window %v has lost its state", k.key, k.win)
		}
	}
	return nil
}

func keysOf[K comparable, V any](m map[K]V) (ks []K) {
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

// dumped is where an entry is: its window, and its key as bytes.
type dumped struct {
	win window.Window
	key string
}

// dump is all that a table holds, resident and spilled. The last bytes of its keys, tail in number, have no
// part in their key groups.
func dump[K comparable, A any](t *Table[K, A], key tableKey[K], tail int) (map[dumped]A, error) {
	if err := t.writeBack(); err != nil {
		return nil, err
	}
	out := map[dumped]A{}
	err := t.backend.Scan(statebackend.WindowedTable(t.id), func(k, v []byte) (bool, error) {
		p, ok := statebackend.ParseWindowKey(k)
		if !ok || p.Group != statebackend.KeyGroupFor(p.Key[:len(p.Key)-tail], testGroups) {
			return false, fmt.Errorf("key %x is malformed", k)
		}
		_, acc, err := t.decodeValue(v)
		out[dumped{window.New(p.Start, p.End), string(p.Key)}] = acc
		return true, err
	})
	for win, s := range t.segments {
		for i := range s.n {
			if e := s.at(i); err == nil && e.flags&flagDead == 0 {
				var b []byte
				b, err = key.Append(nil, e.key)
				out[dumped{win, string(b)}] = e.acc
			}
		}
	}
	return out, err
}
