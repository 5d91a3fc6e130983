package kernel

import (
	"context"
	"errors"
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
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
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
	clocked, atExpiry, held  int // timers of processing time that fired, of these at an expiry; steps after which something was held
	tags                     int // timers of families that fired
	crashes, inFiring        int // crashes, and of these in the midst of a firing
	spilledState, spilledIdx int // steps after which there was something in the backend alone
	minutes, days            int // steps after which wake-ups waited in a minute or day
}

func walkSeeds[K comparable](t *testing.T, runs int, key func(*rand.Rand, int) K) {
	var sum keyedStats
	seeds.Each(t, runs, func(seed uint64) error { return walkKeyed(seed, key, &sum) })
	t.Logf("%+v", sum)
	// A test that meets nothing proves nothing.
	if s := sum; !seeds.Given() && min(s.fired, s.expired, s.late, s.clocked, s.atExpiry, s.tags, s.held, s.crashes, s.inFiring, s.spilledState, s.spilledIdx, s.minutes, s.days) == 0 {
		t.Errorf("something was never met: %+v", sum)
	}
}

// ---- the walk ----

type keyedWalk[K comparable] struct {
	r     *rand.Rand
	key   func(*rand.Rand, int) K
	coder coder.Key[K]
	index map[string]int
	kept
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
	clock eventtime.Time // processing time

	pending   KeyedSnapshot
	pendingAt *keyedPoint
	completed *keyedPoint
}

// keyedPoint is all that a restore sets back.
type keyedPoint struct {
	blob  []byte
	w     eventtime.Time
	told  eventtime.Time
	now   eventtime.Time
	clock eventtime.Time
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
		r: r, key: key, stats: stats, coder: kc, index: map[string]int{}, kept: kept{files: files{}},
		global: r.IntN(3) == 0, always: r.IntN(4) == 0, cache: []int64{0, 3000, 1 << 20}[r.IntN(3)],
		lateness: []int64{0, 2000}[r.IntN(2)],
		out:      map[naiveKey][]string{}, w: eventtime.Min, now: eventtime.Time(r.Int64N(8_000_000) - 4_000_000),
		clock: eventtime.Time(r.Int64N(8_000_000)),
	}
	for i := range 12 {
		b, err := kc.Append(nil, key(r, i))
		if err != nil {
			return err
		}
		w.index[string(b)] = i
	}
	w.naive = &naiveStep{lateness: w.lateness, w: eventtime.Min, clock: w.clock, passed: eventtime.Min, states: map[naiveKey]*naiveState{}, out: map[naiveKey][]string{}}
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
	o := w.op
	if n := o.state.resident + o.wakes.table.resident + o.clock.table.resident + o.holds.table.resident +
		len(o.state.segments) + len(o.wakes.table.segments) + len(o.holds.table.segments); n != 0 {
		return fmt.Errorf("at the end %d entries and segments are left", n)
	}
	stats.late += w.late
	stats.atExpiry += w.naive.flushed
	for _, lines := range w.out {
		for _, l := range lines {
			switch l[0] {
			case 'T':
				stats.fired++
			case 'C':
				stats.clocked++
			case 'E', 'P':
				if l[1] == '(' {
					stats.tags++
				}
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
	b, err := w.kept.open()
	if err != nil {
		return err
	}
	now := func() eventtime.Time { return w.clock }
	prog := &keyedProgram[K]{index: w.idx, clock: now}
	w.op = NewKeyedParDo(KeyedSpec[K, int64, string]{
		Key: w.coder, Lateness: w.lateness, LateTo: true,
		Fns: KeyedFns[K, int64, string]{Declare: prog.declare, Process: prog.process},
	}).(*keyedParDo[K, int64, string])
	prog.op = w.op
	w.m = &Metrics{}
	oc := &OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups,
		Outputs: []Output{outputFunc(w.take), outputFunc(func(b Batch) error { w.late += b.Len(); return nil })},
		Backend: b, CacheMax: w.cache, Track: true, Metrics: w.m, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: now,
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
	switch n := w.r.IntN(12); {
	case n < 5:
		return w.process()
	case n < 7:
		w.clock += eventtime.Time(w.r.Int64N([]int64{2, 50, 400, 3000, 60_000, 3_000_000, 200_000_000}[w.r.IntN(7)]) + 1)
		w.naive.clock = w.clock
		return w.advance()
	case n < 10:
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
	if err := w.tick(); err != nil {
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
	if err := w.tick(); err != nil {
		return fmt.Errorf("after watermark %v: %w", w.w, err)
	}
	return nil
}

// tick does what is due by the clock, in slices, as advance does.
func (w *keyedWalk[K]) tick() error {
	w.naive.tick()
	for n := 0; w.op.NextClock() <= w.clock; n++ {
		if n > 200_000 {
			return fmt.Errorf("time %v of the clock is never done", w.clock)
		}
		done := false
		for !done {
			var err error
			if done, err = w.op.Clock(w.clock, 1+w.r.IntN(20)); err != nil {
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
				return w.advance()
			}
		}
	}
	return w.check()
}

// point is the present. In the midst of a firing the twin is ahead: what it emitted is compared when the
// firing ends.
func (w *keyedWalk[K]) point(blob []byte, told eventtime.Time) *keyedPoint {
	p := &keyedPoint{blob: blob, w: w.w, told: told, now: w.now, clock: w.clock, naive: w.naive.clone(), late: w.late, out: map[naiveKey][]string{}}
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
	if err := w.keep(p, w.r.IntN(3) > 0); err != nil {
		return err
	}
	w.completed = w.pendingAt
	return nil
}

// crash goes back to the last completed snapshot. The host must then repeat the watermark.
func (w *keyedWalk[K]) crash() error {
	p := w.completed
	w.stats.crashes++
	w.pending = nil
	w.w, w.now, w.clock, w.naive, w.late = p.w, p.now, p.clock, p.naive.clone(), p.late
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
	if w.naive.wrong != "" {
		return errors.New(w.naive.wrong)
	}
	o := w.op
	if got, want := max(o.passed, min(o.w, o.Hold())), w.naive.passed; got != want || o.Hold() != w.naive.hold() {
		return fmt.Errorf("the watermark of the outputs is %d, held at %d; want %d and %d", got, o.Hold(), want, w.naive.hold())
	}
	if o.Hold() < o.w {
		w.stats.held++
	}
	w.stats.spilledState += o.state.spilled
	indexes := map[string]*buckets[K]{"wake-ups": &o.wakes.buckets, "clock": &o.clock.buckets, "holds": &o.holds.buckets}
	for name, x := range indexes {
		w.stats.spilledIdx += x.table.spilled
		w.stats.minutes += len(x.levels[1].buckets)
		w.stats.days += len(x.levels[2].buckets)
		if x.table.used > x.table.max {
			return fmt.Errorf("the index of %s has %d bytes, its limit is %d", name, x.table.used, x.table.max)
		}
	}
	if o.state.used > o.state.max {
		return fmt.Errorf("the state has %d bytes, its limit is %d", o.state.used, o.state.max)
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
	return w.checkState()
}

// checkState checks the invariants of docs/design/timers.md. No firing is unfinished.
func (w *keyedWalk[K]) checkState() error {
	o := w.op
	states, err := dump(o.state, w.coder, 0)
	if err != nil {
		return err
	}
	for i := range levels - 1 {
		if t := o.wakes.horizons()[i]; t <= min(o.w, lastTimer) {
			return fmt.Errorf("level %d ends at %v, not beyond watermark %v", i, t, o.w)
		}
	}
	for at, s := range states {
		k := naiveKey{w.index[at.key], at.win}
		if err := w.checkKey(k, &s); err != nil {
			return fmt.Errorf("key %d of window %v: %w", k.key, k.win, err)
		}
	}
	for k, s := range w.naive.states {
		if len(s.cells)+len(s.timers) > 0 && !slices.ContainsFunc(keysOf(states), func(d dumped) bool {
			return w.index[d.key] == k.key && d.win == k.win
		}) {
			return fmt.Errorf("key %d of window %v has lost its state", k.key, k.win)
		}
	}
	err = w.checkIndex(&o.wakes.buckets, states, func(s *keyState) eventtime.Time { return s.wake })
	if err == nil {
		err = w.checkIndex(&o.clock.buckets, states, func(s *keyState) eventtime.Time { return s.more.clock })
	}
	if err == nil {
		err = w.checkIndex(&o.holds.buckets, states, func(s *keyState) eventtime.Time { return s.more.hold })
	}
	return err
}

// checkKey checks the state of a key against the naive one.
func (w *keyedWalk[K]) checkKey(k naiveKey, s *keyState) error {
	o, want := w.op, w.naive.states[k]
	if want == nil || len(want.cells) == 0 && len(want.timers) == 0 && !s.wakes() {
		return errors.New("it has a state with nothing in it")
	}
	n := 0
	for i, t := range allTimers {
		at, out := noTime, noTime
		d := o.decl.timers[slices.IndexFunc(o.decl.timers, func(d *timer) bool { return d.name == t.name })]
		if !t.family {
			at, out = s.timers[d.slot], s.more.outs[d.slot]
		} else if j, ok := s.more.find(d, t.tag); ok {
			at, out = s.more.tags[d.by][j].at, s.more.tags[d.by][j].out
		}
		p, ok := want.timers[i]
		if !ok {
			p = naiveTimer{at: noTime, out: noTime}
		} else if t.family {
			n++
		}
		if at != p.at || out != p.out {
			return fmt.Errorf("timer %v is at %d with output at %d, want %d and %d", t, at, out, p.at, p.out)
		}
	}
	if got := len(s.more.tags[byWatermark]) + len(s.more.tags[byClock]); got != n {
		return fmt.Errorf("%d tags are pending, want %d", got, n)
	}
	for i := range nCells {
		v, ok := want.cells[i]
		got, is := s.cells[i].(*int64)
		if is != ok || ok && *got != v {
			return fmt.Errorf("cell %d is %v, want %v (%v)", i, s.cells[i], v, ok)
		}
	}
	_, next := o.schema.next(s, byWatermark)
	_, clock := o.schema.next(s, byClock)
	hold := o.schema.leastHold(s)
	if s.wake > next || s.more.clock > clock || (s.more.hold == noTime) != (hold == noTime) || s.more.hold < hold {
		return fmt.Errorf("it wakes up at %d and %d, after its timers at %d and %d, or holds at %d, for %d", s.wake, s.more.clock, next, clock, s.more.hold, hold)
	}
	return nil
}

// checkIndex checks that an index has what the states say, and nothing else.
func (w *keyedWalk[K]) checkIndex(x *buckets[K], states map[dumped]keyState, of func(*keyState) eventtime.Time) error {
	entries, err := dump(x.table, wakeKeys[K]{w.coder}, 16)
	if err != nil {
		return err
	}
	n := 0
	for at, s := range states {
		t := of(&s)
		if t == noTime {
			continue
		}
		n++
		k := w.index[at.key]
		key, err := wakeKeys[K]{w.coder}.Append(nil, wakeKey[K]{w.key(w.r, k), at.win})
		if err != nil {
			return err
		}
		if got, ok := entries[dumped{x.bucket(t), string(key)}]; !ok || got != t {
			return fmt.Errorf("key %d is to be in table %d at %d, which has %v (%v)", k, x.table.id, t, got, ok)
		}
	}
	if n != len(entries) {
		return fmt.Errorf("%d states have an entry in table %d, which has %d", n, x.table.id, len(entries))
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
