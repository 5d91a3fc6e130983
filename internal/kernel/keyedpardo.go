package kernel

import (
	"context"
	"fmt"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// KeyedFns is the code of a keyed step, bound to one subtask; nil functions are left out.
type KeyedFns[K comparable, V, Out any] struct {
	Declare      func(*KeyedDecl)
	Setup        func(context.Context, connector.Subtask) error
	Process      func(*ProcessContext, K, V, *Emitter[Out]) error
	FinishBundle func(context.Context, *Emitter[Out]) error
	Teardown     func() error
}

// KeyedSpec is the specification of a keyed step.
type KeyedSpec[K comparable, V, Out any] struct {
	Fns      KeyedFns[K, V, Out]
	Key      coder.Key[K]
	Lateness int64 // ms after the end of a window during which it has state and takes elements
	LateTo   bool  // elements of expired windows have a port, the one after the declared outputs
	ErrorsTo bool  // elements on which Process failed have a port, the last
}

// NewKeyedParDo returns an operator that calls user code for each element, with cells and timers of the
// element's key and window. Its input is KV[K, V], spread by key. Port 0 has its output; see KeyedSpec for
// the others.
func NewKeyedParDo[K comparable, V, Out any](s KeyedSpec[K, V, Out]) Operator {
	return &keyedParDo[K, V, Out]{KeyedSpec: s}
}

type keyedParDo[K comparable, V, Out any] struct {
	KeyedSpec[K, V, Out]
	c        ProcessContext
	out      Emitter[Out]
	decl     KeyedDecl
	handlers []keyedHandler[K, Out] // by index of the timer; nil for families
	families []tagHandler[K, Out]   // by index of the timer; nil for others
	expiring keyedHandler[K, Out]   // OnWindowExpiry, or nil
	emits    []emitter
	failed   *Emitter[Failed[coder.KV[K, V]]]
	lateOut  Output
	late     Rows[coder.KV[K, V]]
	m        *Metrics
	set      bool

	w       eventtime.Time
	schema  *schema
	cells   *cell.Set
	state   *Table[K, keyState]
	windows []*segment[K, keyState] // in the order of their ends
	wakes   *wakeups[K]
	overdue bool           // a timer was set at or before w by an element, or by a timer of the clock
	fired   eventtime.Time // the last watermark for which all timers have
	ttl     *expiries[K]   // nil if no cell has a TTL
	keyedClock[K]

	call   call[K] // in progress
	bundle bundle
	misuse error // of a timer
}

// call is one call of user code and the key that it is for.
type call[K comparable] struct {
	kind callKind
	key  K
	win  window.Window
	s    *segment[K, keyState] // nil if the window has no state
	e    *entry[K, keyState]   // nil if the key has none
	by   domain                // of the timer that fires
	at   eventtime.Time        // for which it was set

	wrote   bool  // a timer was set or cleared
	cleared bool  // a timer was cleared
	resized bool  // timers take more or less memory
	err     error // of state
}

type callKind uint8

const (
	noCall callKind = iota
	callProcess
	callTimer
	callExpiry // of the window: OnWindowExpiry, or a timer of the clock that can wait no longer
)

func (o *keyedParDo[K, V, Out]) Open(c *OpenContext) error {
	o.c = ProcessContext{ctx: c.Context, logger: c.Logger, views: c.views}
	o.m, o.w, o.fired = c.Metrics, eventtime.Min, eventtime.Min
	o.keyedClock = keyedClock[K]{now: c.Now, passed: eventtime.Min, held: eventtime.Max, seen: eventtime.Min}
	o.decl.metrics, o.decl.now = c.Metrics, c.Now
	o.cells = state.SetOf(&o.decl)
	if o.Fns.Declare != nil {
		o.Fns.Declare(&o.decl)
	}
	if err := CheckKeyed[K, Out](&o.decl); err != nil {
		return err
	}
	o.cells.Write = o.writeCells
	for _, t := range o.decl.timers {
		t.host = o
		handler, _ := t.handler.(keyedHandler[K, Out])
		family, _ := t.handler.(tagHandler[K, Out])
		o.handlers, o.families = append(o.handlers, handler), append(o.families, family)
	}
	o.expiring, _ = o.decl.expiry.(keyedHandler[K, Out])
	o.connect(c.Outputs)
	if err := o.openState(c); err != nil {
		return err
	}
	if o.Fns.Setup != nil {
		if err := o.Fns.Setup(c.Context, c.Subtask); err != nil {
			return &UserError{Err: err}
		}
	}
	o.set = true
	return o.misused()
}

func (o *keyedParDo[K, V, Out]) connect(outs []Output) {
	o.out.open(outs[0])
	o.emits = append(o.emits, &o.out)
	for i, d := range o.decl.Outputs {
		d.emitter.open(outs[1+i])
		o.emits = append(o.emits, d.emitter)
	}
	if o.LateTo {
		o.lateOut = outs[1+len(o.decl.Outputs)]
	}
	if o.ErrorsTo {
		o.failed = &Emitter[Failed[coder.KV[K, V]]]{}
		o.failed.open(outs[len(outs)-1])
		o.emits = append(o.emits, o.failed)
	}
	for _, e := range o.emits {
		e.hold(o.heldInCall)
	}
}

func (o *keyedParDo[K, V, Out]) openState(c *OpenContext) (err error) {
	var names map[fieldName]uint64
	var free uint64
	var b keyedBlob
	if c.Restore != nil {
		o.w, o.held = c.Restore.Watermark, eventtime.Min // until the host has repeated the watermark
		if b, free, names, err = parseBlob(c.Restore.Blob); err != nil {
			return err
		}
		if o.fired = b.fired; b.first {
			o.fired = o.w
		}
	}
	cells := o.cells.Decls
	if o.ttl, err = openExpiries(cells, o.Key, c); err != nil {
		return err
	}
	if o.ttl != nil {
		cells = append(cells[:len(cells):len(cells)], looksDecl())
	}
	o.schema = newSchema(cells, o.decl.timers, names, free)
	o.state = newTable(tableConfig[K, keyState]{o.Key, o.schema, o.schema.size}, c)
	if o.wakes, err = newWakeups(o.Key, c, wakeupTable); err != nil {
		return err
	}
	if err = o.openClock(o.Key, c); err != nil {
		return err
	}
	o.shareCache(c.CacheMax)
	if c.Restore == nil {
		return nil
	}
	err = o.state.restore(func(s *segment[K, keyState]) { o.windows = insertSorted(o.windows, s) })
	if err == nil {
		err = o.wakes.restore(b.indexes[0])
	}
	if err == nil && !b.first {
		err = o.restoreClock(b)
	}
	return err
}

// shareCache gives the tables their parts of the cache: a quarter to each index that is used, an eighth to that of holds.
func (o *keyedParDo[K, V, Out]) shareCache(all int64) {
	o.wakes.table.max, o.clock.table.max, o.holds.table.max = all/4, all/4, all/8
	if o.schema.has(byWatermark) {
		o.state.max -= o.wakes.table.max
	}
	if o.schema.has(byClock) {
		o.state.max -= o.clock.table.max + o.holds.table.max
	}
	o.state.max -= o.ttl.cacheBytes()
}

// Process implements Operator.
func (o *keyedParDo[K, V, Out]) Process(_ int, b Batch) error {
	rows := b.(*Rows[coder.KV[K, V]]).E
	o.begin()
	err := o.processRows(rows)
	if err == nil && o.overdue {
		budget, done := BatchSize, false
		done, err = o.fire(&budget)
		o.overdue = !done
	}
	if err == nil {
		err = o.expireCells(2 * BatchSize)
	}
	err = o.end(err)
	o.release(o.w, err == nil && !o.overdue)
	return err
}

func (o *keyedParDo[K, V, Out]) processRows(rows []Element[coder.KV[K, V]]) error {
	t := o.state
	if t.spilled > 0 {
		if err := o.load(rows); err != nil {
			return err
		}
	}
	process := o.Fns.Process
	var s *segment[K, keyState]
	var win window.Window
	known, expired := false, false
	for i := range rows {
		r := &rows[i]
		if !known || r.Window != win {
			win, known = r.Window, true
			s, expired = t.lookup(win), o.w >= expiry(win, o.Lateness)
		}
		if expired {
			o.late.E = append(o.late.E, *r)
			continue
		}
		var e *entry[K, keyState]
		if s != nil {
			if t.native {
				e = s.native.get(t.hasher.hash(r.Value.Key), r.Value.Key)
			} else {
				var err error
				if e, err = t.find(s, r.Value.Key); err != nil {
					return err
				}
			}
		}
		o.start(callProcess, r.Value.Key, win, s, e)
		o.stamp(elementHeader{r.Time, win, r.Pane})
		o.ttl.at(o.cells, o.fired, r.Time)
		uerr := process(&o.c, r.Value.Key, r.Value.Value, &o.out)
		written, err := o.finish()
		if err == nil && written {
			err = o.settle(0)
		}
		if err != nil {
			return fmt.Errorf("element %s: %w", Brief(r.Value), err)
		}
		s = o.call.s
		if uerr != nil {
			if o.failed == nil {
				return &UserError{Brief(r.Value), uerr}
			}
			o.failed.Emit(Failed[coder.KV[K, V]]{r.Value, toValidUTF8(uerr.Error())})
		}
	}
	return o.emitLate()
}

// load fetches the states of a batch that were evicted, all at once.
func (o *keyedParDo[K, V, Out]) load(rows []Element[coder.KV[K, V]]) error {
	for i := range rows {
		r := &rows[i]
		if o.w >= expiry(r.Window, o.Lateness) {
			continue
		}
		if err := o.want(r.Value.Key, r.Window); err != nil {
			return err
		}
	}
	return o.state.load()
}

// want notes a state for load, if it may be in the backend alone.
func (o *keyedParDo[K, V, Out]) want(k K, win window.Window) error {
	s := o.state.lookup(win)
	if s == nil || !s.spilled {
		return nil
	}
	e, err := o.state.find(s, k)
	if err == nil && e == nil {
		err = o.state.miss(s, k)
	}
	return err
}

// emitLate sends the elements of the batch whose windows had expired.
func (o *keyedParDo[K, V, Out]) emitLate() (err error) {
	if n := len(o.late.E); n > 0 {
		o.m.LateDropped.Store(o.m.LateDropped.Load() + int64(n))
		if o.lateOut != nil {
			err = o.lateOut.Emit(&o.late)
		}
		clear(o.late.E)
		o.late.E = o.late.E[:0]
	}
	return err
}

// start makes cells and timers stand for a key and window, during a call.
func (o *keyedParDo[K, V, Out]) start(kind callKind, k K, win window.Window, s *segment[K, keyState], e *entry[K, keyState]) {
	o.call = call[K]{kind: kind, key: k, win: win, s: s, e: e}
	if e == nil {
		o.cells.Begin(nil)
		return
	}
	o.cells.Begin(e.acc.cells)
	if o.state.evicts {
		e.flags |= flagUsed
	}
}

// stamp sets what the call emits with.
func (o *keyedParDo[K, V, Out]) stamp(at elementHeader) {
	o.c.at = at
	if o.Fns.FinishBundle != nil {
		o.bundle.add(at.time, o.passed)
	}
}

// finish ends a call.
func (o *keyedParDo[K, V, Out]) finish() (written bool, err error) {
	c := &o.call
	written, resized, cleared := o.cells.End()
	c.cleared = c.cleared || cleared
	if (resized || c.resized) && c.kind != callExpiry && c.err == nil {
		o.state.resized(c.e)
	}
	c.kind = noCall
	if c.err != nil {
		return false, c.err
	}
	return written || c.wrote, o.misused()
}

// misused tells of a cell or timer that was used as it must not be.
func (o *keyedParDo[K, V, Out]) misused() error {
	err := o.misuse
	if err == nil {
		err = o.cells.Err()
	}
	if err != nil {
		err = &UserError{Err: err}
	}
	return err
}

// writable makes the entry of the call's key one that may be changed.
func (o *keyedParDo[K, V, Out]) writable() bool {
	c := &o.call
	if c.kind == callExpiry {
		return true // see expireKey
	}
	if c.err == nil && c.e == nil {
		c.err = o.create()
	}
	if c.err == nil && c.e.epoch != o.state.epoch {
		c.err = o.state.touch(c.s, c.e)
	}
	return c.err == nil
}

func (o *keyedParDo[K, V, Out]) create() (err error) {
	c := &o.call
	if c.s == nil {
		made := false
		if c.s, made = o.state.segment(c.win); made {
			o.windows = insertSorted(o.windows, c.s)
		}
	}
	if c.e, err = o.state.insert(c.s, c.key); err != nil {
		return err
	}
	c.e.acc = o.schema.newState()
	o.state.resized(c.e)
	return nil
}

// writeCells is cell.Set.Write.
func (o *keyedParDo[K, V, Out]) writeCells() (cell.Slots, bool) {
	if !o.writable() {
		return nil, false
	}
	return o.call.e.acc.cells, true
}

// woken says by which indexes a key has been woken: 1<<byWatermark, 1<<byClock, or both.
type woken uint8

// settle makes state and indexes agree after writes: a state with nothing in it goes, and a wake-up comes no
// later than the first timer. A wake-up that has come moves to the first timer.
func (o *keyedParDo[K, V, Out]) settle(w woken) error {
	c := &o.call
	k := &c.e.acc
	next := noTime
	if k.more == nil { // as most are
		for _, t := range k.timers[:o.schema.events] {
			next = min(next, t)
		}
	} else {
		_, next = o.schema.next(k, byWatermark)
	}
	empty := next == noTime && (c.cleared || w != 0) && !k.hasCell()
	if k.more != nil {
		_, clock := o.schema.next(k, byClock)
		empty = empty && clock == noTime
		if err := o.settleMore(w, clock, empty); err != nil {
			return err
		}
	}
	if empty {
		if k.wake != noTime {
			if err := o.wakes.move(wakeKey[K]{c.key, c.win}, k.wake, noTime); err != nil {
				return err
			}
		}
		if err := o.forgetLookups(); err != nil {
			return err
		}
		e := c.e
		c.e = nil
		return o.state.remove(c.s, e)
	}
	if next < k.wake || w&(1<<byWatermark) != 0 {
		if err := o.wakes.move(wakeKey[K]{c.key, c.win}, k.wake, next); err != nil {
			return err
		}
		if !o.writable() {
			return c.err
		}
		k.wake = next
	}
	return o.settleLookups()
}

// begin opens the emitters, and end closes them, sends what they hold, and brings the tables below their
// limits.
func (o *keyedParDo[K, V, Out]) begin() {
	for _, e := range o.emits {
		e.begin(&o.c.at)
	}
	o.read = false
	if o.ttl.goBy(cell.ProcessingTime) {
		o.ttl.time[cell.ProcessingTime] = o.time()
	}
}

func (o *keyedParDo[K, V, Out]) end(err error) error {
	for _, e := range o.emits {
		e.begin(nil)
		if err == nil {
			err = e.flush()
		}
	}
	if err == nil {
		err = o.state.evict()
	}
	if err == nil {
		err = o.wakes.table.evict()
	}
	if err == nil {
		err = o.evictClock()
	}
	if err == nil {
		err = o.ttl.evict()
	}
	return err
}

// Flush implements Flusher: it finishes the bundle.
func (o *keyedParDo[K, V, Out]) Flush() error {
	if !o.bundle.open {
		return nil
	}
	o.begin()
	for _, e := range o.emits {
		e.finish(&o.bundle)
	}
	o.bundle.open = false
	err := o.Fns.FinishBundle(o.c.ctx, &o.out)
	if err != nil {
		err = &UserError{Err: fmt.Errorf("finish bundle: %w", err)}
	} else {
		err = o.misused()
	}
	return o.end(err)
}

// Snapshot implements Stateful.
func (o *keyedParDo[K, V, Out]) Snapshot(checkpoint int64, base bool) (OpSnapshot, error) {
	tables := []cutTable{o.state, o.wakes.table, o.clock.table, o.holds.table}
	for _, l := range o.ttl.indexes() {
		if l != nil {
			tables = append(tables, l.table)
		}
	}
	p, err := cutTogether(base, o.state.backend, tables...)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("checkpoint %d: %w", checkpoint, err)
	}
	b := keyedBlob{indexes: [3]horizons{o.wakes.horizons(), o.clock.horizons(), o.holds.horizons()}, passed: o.passed, fired: o.fired}
	return OpSnapshot{Blob: o.schema.appendBlob(nil, b), Keyed: p}, nil
}

// Close implements Operator.
func (o *keyedParDo[K, V, Out]) Close() error {
	if o.set && o.Fns.Teardown != nil {
		if err := o.Fns.Teardown(); err != nil {
			return &UserError{Err: fmt.Errorf("tear down: %w", err)}
		}
	}
	return nil
}
