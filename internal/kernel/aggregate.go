package kernel

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// Windowing is what an aggregation needs to know of the windows of its input.
type Windowing struct {
	Lateness     int64 // ms after the end of a window during which it takes elements
	EarlyCount   int64 // elements that make an early pane due; 0: no early panes
	LateCount    int64 // elements that make a late pane due; at least 1
	Accumulating bool  // a pane has all elements of its window so far; else those since the pane before

	// What only NewPanes can do.
	Trigger     *triggering.Machine // instead of the counts; nil: these
	Retracting  bool                // the pane before is taken back; needs Out
	Timestamps  TimestampCombiner
	EmptyOnTime bool // see Strategy
	EmptyLast   bool
	Merging     *Merging // nil: windows do not merge
}

// Merging says how windows of a key become one: as Fn says, or, if it is nil, those that overlap.
type Merging struct{ Fn window.MergingFn }

// Aggregation is the specification of an operator that keeps an accumulator for each key and window and
// emits it in panes.
type Aggregation[K comparable, A, Out any] struct {
	Key     coder.Key[K]
	Acc     coder.Coder[A]
	Create  func() A
	Extract func(A) Out        // the result shares nothing that AddInput or Merge changes
	Merge   func(a, b A) A     // may change and keep both
	Out     coder.Coder[Out]   // for Retracting
	Clone   func(A) (A, error) // a copy that may be merged; nil if accumulators hold no pointers
	Size    func(*A) int       // bytes of an accumulator beyond its struct; nil if there are none
	Windowing
	// Identity emits Extract(Create()) at the end of the global window if nothing came: a global combine of
	// nothing is the identity. It is for a Single node.
	Identity bool
	Inputs   []AggregateInput[K, A, Out]
}

// AggregateInput adds the elements of one input port; InputOf makes it.
type AggregateInput[K comparable, A, Out any] interface {
	process(o *aggregate[K, A, Out], b Batch) error
	join(o *panes[K, A, Out], b Batch) error
	emitLate(o *paneOutput[K, Out]) error
}

// Port 0 of the operator has the panes; port 1+i the late elements of input i.
type aggregate[K comparable, A, Out any] struct {
	Aggregation[K, A, Out]
	paneOutput[K, Out]
	table  *Table[K, A]
	inputs []AggregateInput[K, A, Out]
	slices *slicing[K, A] // nil unless elements are in slices of sliding windows

	w eventtime.Time
	// Segments by their windows: before their end, and after it but not expired.
	open, closed []*segment[K, A]
	any          bool              // an element came, ever: see Identity
	recent       [4]*segment[K, A] // by window, so that disorder over a few windows costs no map lookup
}

// NewAggregate returns an aggregating operator. inputs makes a fresh set of inputs for it.
func NewAggregate[K comparable, A, Out any](a Aggregation[K, A, Out], inputs func() []AggregateInput[K, A, Out]) Operator {
	return &aggregate[K, A, Out]{Aggregation: a, inputs: inputs()}
}

func (o *aggregate[K, A, Out]) Open(c *OpenContext) error {
	o.table = newTable(tableConfig[K, A]{o.Key, o.Acc, o.Size}, c)
	o.outs, o.m, o.w = c.Outputs, c.Metrics, eventtime.Min
	if c.Restore == nil {
		return nil
	}
	o.w = c.Restore.Watermark
	o.any = len(c.Restore.Blob) > 0 && c.Restore.Blob[0] == 1
	// Every restored window counts as open: the host repeats the watermark, and the headers of the entries
	// tell what has fired.
	return o.table.restore(func(s *segment[K, A]) {
		o.arm(s)
		o.open = insertSorted(o.open, s)
	})
}

func (o *aggregate[K, A, Out]) Close() error { return nil }

// arm sets when a pane of the segment is due.
func (o *aggregate[K, A, Out]) arm(s *segment[K, A]) {
	switch {
	case s.late:
		s.fireAt = 1 // the first element of a key fires; later ones by LateCount, see added
	case o.EarlyCount > 0:
		s.fireAt = o.EarlyCount
	}
}

func (o *aggregate[K, A, Out]) Process(port int, b Batch) error {
	err := o.inputs[port].process(o, b)
	if err == nil {
		err = o.inputs[port].emitLate(&o.paneOutput)
	}
	if err == nil {
		err = o.emit()
	}
	if err == nil {
		err = o.table.evict()
	}
	return err
}

func recentSlot(w window.Window) uint64 { return uint64(w.EndTime()) * 0x9E3779B97F4A7C15 >> 62 }

// enter returns the segment of a window, or nil if the window has expired.
func (o *aggregate[K, A, Out]) enter(w window.Window) *segment[K, A] {
	if o.slices != nil {
		return o.enterSlice(w)
	}
	if o.expired(w) {
		return nil
	}
	s, made := o.table.segment(w)
	o.recent[recentSlot(w)] = s
	if made {
		s.late = o.w >= w.EndTime()
		o.arm(s)
		if s.late {
			o.closed = insertSorted(o.closed, s)
		} else {
			o.open = insertSorted(o.open, s)
		}
		o.any = true
	}
	return s
}

// expired says whether elements of a window, or slice, come too late for any pane.
func (o *aggregate[K, A, Out]) expired(w window.Window) bool {
	if o.slices != nil {
		return o.slices.ended(w, o.w) == o.slices.windows(w)
	}
	return o.w >= expiry(w, o.Lateness)
}

// InputOf returns an input of elements with values V, added by add.
func InputOf[K comparable, V, A, Out any](port int, add func(A, V) A) AggregateInput[K, A, Out] {
	return &aggregateInput[K, V, A, Out]{port: port, add: add}
}

// RetractedInputOf is InputOf for elements that may be taken back, by remove.
func RetractedInputOf[K comparable, V, A, Out any](port int, add, remove func(A, V) A) AggregateInput[K, A, Out] {
	return &aggregateInput[K, V, A, Out]{port: port, add: add, remove: remove}
}

type aggregateInput[K comparable, V, A, Out any] struct {
	port   int
	add    func(A, V) A
	remove func(A, V) A
	late   Rows[coder.KV[K, V]]
}

func (in *aggregateInput[K, V, A, Out]) process(o *aggregate[K, A, Out], b Batch) error {
	if sums, ok := b.(*Rows[coder.KV[K, lifted[A]]]); ok {
		return in.processLifted(o, sums.E)
	}
	rows := b.(*Rows[coder.KV[K, V]]).E
	t := o.table
	if err := loadRows(o, rows); err != nil {
		return err
	}
	native, add := t.native, in.add
	var s *segment[K, A]
	var win window.Window
	known := false
	for i := range rows {
		r := &rows[i]
		if !known || r.Window != win {
			win, known = r.Window, true
			if s = o.recent[recentSlot(win)]; s == nil || s.win != win {
				s = o.enter(win)
			}
		}
		if s == nil {
			in.tooLate(o, r)
			continue
		}
		var e *entry[K, A]
		var err error
		if native {
			e = s.native.get(t.hasher.hash(r.Value.Key), r.Value.Key)
		} else if e, err = t.find(s, r.Value.Key); err != nil {
			return err
		}
		if e == nil {
			if e, err = t.insert(s, r.Value.Key); err != nil {
				return err
			}
			e.acc = o.Create()
		}
		if e.epoch != t.epoch {
			if err := t.touch(s, e); err != nil {
				return err
			}
		}
		e.acc = add(e.acc, r.Value.Value)
		e.since++
		if t.evicts {
			e.flags |= flagUsed
		}
		if t.size != nil {
			t.resized(e)
		}
		if e.since >= s.fireAt {
			if o.slices != nil {
				in.tooLate(o, r)
			} else if err := o.added(s, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// tooLate keeps an element for the late output, once for each window that it missed.
func (in *aggregateInput[K, V, A, Out]) tooLate(o *aggregate[K, A, Out], r *Element[coder.KV[K, V]]) {
	if o.slices == nil {
		in.late.E = append(in.late.E, *r)
		return
	}
	first, _ := o.slices.fn.Ends(r.Window.StartTime())
	for i := range o.slices.ended(r.Window, o.w) {
		e := *r
		e.Window = o.slices.fn.Ending(first + eventtime.Time(i)*o.slices.period)
		in.late.E = append(in.late.E, e)
	}
}

// loadRows fetches the entries of a batch that were evicted, all at once.
func loadRows[K comparable, V, A, Out any](o *aggregate[K, A, Out], rows []Element[coder.KV[K, V]]) error {
	t := o.table
	if t.spilled == 0 {
		return nil
	}
	for i := range rows {
		r := &rows[i]
		s := t.segments[r.Window]
		if s == nil || !s.spilled || o.expired(r.Window) {
			continue
		}
		e, err := t.find(s, r.Value.Key)
		if err == nil && e == nil {
			err = t.miss(s, r.Value.Key)
		}
		if err != nil {
			return err
		}
	}
	return t.load()
}

// emitLate sends the elements of the batch whose windows had expired.
func (in *aggregateInput[K, V, A, Out]) emitLate(o *paneOutput[K, Out]) error {
	n := len(in.late.E)
	if n == 0 {
		return nil
	}
	o.dropped(int64(n))
	var err error
	if 1+in.port < len(o.outs) {
		err = o.outs[1+in.port].Emit(&in.late)
	}
	clear(in.late.E)
	in.late.E = in.late.E[:0]
	return err
}

// added fires a pane for a key that has enough elements.
func (o *aggregate[K, A, Out]) added(s *segment[K, A], e *entry[K, A]) error {
	if !s.late {
		return o.fire(s, e, window.Early, false)
	}
	// A key that came only after the end of its window fires at its first element, and then as often as
	// the late trigger says (Beam's AfterWatermark: its late part starts once the end has fired).
	if e.onTime && e.since < o.LateCount {
		return nil
	}
	return o.fire(s, e, window.Late, false)
}

// fire emits a pane. The entry is touched.
func (o *aggregate[K, A, Out]) fire(s *segment[K, A], e *entry[K, A], timing window.Timing, last bool) error {
	err := o.pane(e.key, o.Extract(e.acc), s.win, e.fired(timing, last))
	if !o.Accumulating && !last {
		e.acc = o.Create()
		if o.Size != nil {
			o.table.resized(e)
		}
	}
	return err
}

// Watermark implements Operator: windows fire at their end and go at their expiry, in the order of time.
func (o *aggregate[K, A, Out]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = w
	clear(o.recent[:]) // some will go
	for {
		done, err := o.next(w, &budget)
		if err != nil {
			return false, err
		}
		if done || budget <= 0 {
			if err := o.emit(); err != nil {
				return false, err
			}
			return done, o.table.evict() // the pass may have brought evicted entries back
		}
	}
}

// next goes on with the window that is due first, and returns true if none is.
func (o *aggregate[K, A, Out]) next(w eventtime.Time, budget *int) (bool, error) {
	due := eventtime.Max
	var ending, expiring *segment[K, A]
	if len(o.open) > 0 && o.open[0].win.EndTime() <= w {
		ending, due = o.open[0], o.open[0].win.EndTime()
	}
	if len(o.closed) > 0 {
		if x := expiry(o.closed[0].win, o.Lateness); x <= w && (ending == nil || x <= due) {
			ending, expiring = nil, o.closed[0]
		}
	}
	switch {
	case expiring != nil:
		done, err := o.table.pass(expiring, budget, true, o.expire)
		if err != nil || !done {
			return false, err
		}
		o.closed = popFront(o.closed)
		return false, o.table.dropSegment(expiring)
	case ending == nil:
		return true, o.identity(w)
	case expiry(ending.win, o.Lateness) == ending.win.EndTime():
		done, err := o.table.pass(ending, budget, true, o.endAndExpire)
		if err != nil || !done {
			return false, err
		}
		o.open = popFront(o.open)
		return false, o.table.dropSegment(ending)
	}
	done, err := o.table.pass(ending, budget, false, o.end)
	if err != nil || !done {
		return false, err
	}
	o.open = popFront(o.open)
	ending.late = true
	o.arm(ending)
	o.closed = insertSorted(o.closed, ending)
	return false, nil
}

func popFront[E any](s []*E) []*E {
	copy(s, s[1:])
	s[len(s)-1] = nil
	return s[:len(s)-1]
}

// end is the end of a window that will take late elements.
func (o *aggregate[K, A, Out]) end(s *segment[K, A], e *entry[K, A]) error {
	if e.onTime {
		return nil // it has fired: before a restore, or before it was evicted
	}
	if e.epoch != o.table.epoch {
		if err := o.table.touch(s, e); err != nil {
			return err
		}
	}
	if e.since == 0 {
		e.onTime = true // all it has was fired early; no empty pane
		return nil
	}
	return o.fire(s, e, window.OnTime, false)
}

// expire is the expiry of a window: a last pane if elements came since the pane before.
func (o *aggregate[K, A, Out]) expire(s *segment[K, A], e *entry[K, A]) error {
	if e.since == 0 {
		return nil
	}
	return o.last(s, e, window.Late)
}

// endAndExpire is the end of a window that takes no late elements.
func (o *aggregate[K, A, Out]) endAndExpire(s *segment[K, A], e *entry[K, A]) error {
	if e.since == 0 {
		return nil
	}
	return o.last(s, e, window.OnTime)
}

// last fires the last pane of an entry that is about to go.
func (o *aggregate[K, A, Out]) last(s *segment[K, A], e *entry[K, A], timing window.Timing) error {
	if p := o.table.pending; p != nil {
		if err := p.save(s, e); err != nil {
			return err
		}
	}
	return o.fire(s, e, timing, true)
}

// identity emits the result of nothing, once, when the global window ends without an element.
func (o *aggregate[K, A, Out]) identity(w eventtime.Time) error {
	if !o.Identity || o.any || w < eventtime.EndOfGlobalWindow {
		return nil
	}
	o.any = true
	var k K
	s := &segment[K, A]{win: window.GlobalWindow}
	return o.fire(s, &entry[K, A]{key: k, acc: o.Create()}, window.OnTime, true)
}

// Snapshot implements Stateful.
func (o *aggregate[K, A, Out]) Snapshot(checkpoint int64, base bool) (OpSnapshot, error) {
	p, err := o.table.snapshot(base)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("checkpoint %d: %w", checkpoint, err)
	}
	blob := []byte{0}
	if o.any {
		blob[0] = 1
	}
	return OpSnapshot{Blob: blob, Keyed: p}, nil
}
