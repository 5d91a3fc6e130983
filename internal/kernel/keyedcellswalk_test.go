package kernel

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// ---- the walk ----

type cellsWalk struct {
	r      *rand.Rand
	stats  *cellStats
	ttls   [cellKinds]ttlOf
	global bool
	always bool
	cache  int64
	most   int // keys to look at in one go; 0: as usual
	kept

	op    *keyedParDo[string, int64, string]
	out   map[cellKey][]string
	naive *naiveCellStep
	at    eventtime.Time // about where elements are
	w     eventtime.Time

	pending   KeyedSnapshot
	pendingAt *cellsPoint
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
		r: r, stats: stats, global: r.IntN(3) == 0, always: r.IntN(4) == 0, cache: []int64{0, 6000, 1 << 20}[r.IntN(3)], most: []int{0, 0, 1, 2}[r.IntN(4)],
		kept: kept{files: files{}}, out: map[cellKey][]string{}, w: eventtime.Min, at: eventtime.Time(r.Int64N(8_000_000) - 4_000_000),
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
	for range 1000 {
		if _, err := w.op.Watermark(eventtime.Max, 1000); err != nil {
			return err
		}
	}
	n := w.op.state.resident + len(w.op.state.segments)
	for _, l := range w.op.ttl.indexes() {
		if l == nil {
			continue
		}
		n += l.table.resident + len(l.table.segments)
	}
	if n != 0 {
		return fmt.Errorf("at the end %d entries and segments are left", n)
	}
	return w.op.Close()
}

func (w *cellsWalk) open(p *cellsPoint) error {
	b, err := w.kept.open()
	if err != nil {
		return err
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
	if err := w.op.Open(oc); err != nil {
		return err
	}
	if w.most > 0 && w.op.ttl != nil {
		w.op.ttl.most = w.most
	}
	return nil
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
	case n == 8:
		w.tick()
		for done := w.op.NextClock() > w.naive.clock; !done; {
			var err error
			if done, err = w.op.Clock(w.naive.clock, 1+w.r.IntN(50)); err != nil {
				return err
			}
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("after the clock: %w", err)
		}
		return w.rest()
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
	if err := w.keep(p, w.r.IntN(3) > 0); err != nil {
		return err
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
	for clock, l := range o.ttl.indexes() {
		if l == nil {
			continue
		}
		if err := w.checkLookups(cell.Clock(clock), l, states); err != nil {
			return err
		}
	}
	return nil
}

// checkLookups: whatever has expired, but for the lag, is gone, for the lookup of a state comes in time.
func (w *cellsWalk) checkLookups(clock cell.Clock, l *lookupIndex[string], states map[dumped]keyState) error {
	o := w.op
	w.stats.spilledLooks += l.table.spilled
	if t := o.expiredBy(clock); l.next() <= t && w.most == 0 {
		return fmt.Errorf("lookups are due at %v, it is %v", l.next(), t)
	}
	index, err := dump(l.table, wakeKeys[string]{o.Key}, wakeTail)
	if err != nil {
		return err
	}
	for at, s := range states {
		has := o.ttl.of(&s)[clock]
		first, lag := o.ttl.first(&s, clock)
		if clock == cell.EventTime && first >= expiry(at.win, w.naive.lateness) {
			first = noTime // it goes with its window, whatever lookup there is
		}
		if has == (window.Window{}) {
			if first != noTime {
				return fmt.Errorf("key %q: something expires at %v and there is no lookup", at.key, first)
			}
			continue
		}
		// What had expired when it was written is looked at next.
		if first != noTime && has.EndTime() > max(first, o.expiredBy(clock)+1).Add(lag) {
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
		delete(index, dumped{has, string(key)})
	}
	for at := range index { // of no state: their windows have gone
		k, _, err := wakeKeys[string]{o.Key}.Decode([]byte(at.key))
		if err != nil {
			return err
		}
		if o.state.lookup(k.win) != nil && (l.table.firing == nil || at.win != l.table.firing.win) { // that goes as a whole
			return fmt.Errorf("key %q: bucket %v has a lookup that its state does not know", k.key, at.win)
		}
	}
	return nil
}
