package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// SidedSpec is a step with side inputs: another operator, which is told only of elements whose views are ready.
type SidedSpec[In any] struct {
	Inner    func() Operator
	Views    func() []SideView // of ports 1 and up
	Codec    *Codec[In]        // of the main input, port 0, whose elements may have to wait
	LatePort int               // output port of elements whose view is no longer kept; 0: there is none
}

// NewSided returns an operator with side inputs (docs/design/sideviews.md). Its node needs a state backend.
func NewSided[In any](s SidedSpec[In]) Operator { return &sided[In]{SidedSpec: s} }

// sided stands before an operator and shares its backend. An element goes on at once if all its views are ready; else it
// waits in state, and the operator's watermark with it.
type sided[In any] struct {
	SidedSpec[In]
	inner   Operator
	views   []SideView
	wait    *waiting[In]
	backend statebackend.Backend
	late    Rows[In]
	lateOut Output // or nil
	m       *Metrics

	w      eventtime.Time // the host has said
	told   eventtime.Time // the inner operator was told: the least of w and what waits
	done   eventtime.Time // it is done with that
	firing bool           // it is not done with told
	moved  bool           // a view has: elements may be due
	due    []*waitQueue   // their views are ready
}

var (
	_ SideReader = (*sided[int])(nil)
	_ Holder     = (*sided[int])(nil)
	_ Clocked    = (*sided[int])(nil)
	_ Stateful   = (*sided[int])(nil)
	_ Flusher    = (*sided[int])(nil)
)

// The tables of a step's side inputs, apart from those that the step itself has.
const (
	waitingTable = statebackend.Table(64)
	viewTable    = statebackend.Table(65) // and up
)

// MaxViews is the greatest number of side inputs of a step.
const MaxViews = 64

const sidedVersion = 1

func (o *sided[In]) Open(c *OpenContext) (err error) {
	o.inner, o.views, o.backend, o.m = o.Inner(), o.Views(), c.Backend, c.Metrics
	o.w, o.told, o.done = eventtime.Min, eventtime.Min, eventtime.Min
	if o.LatePort > 0 {
		o.lateOut = c.Outputs[o.LatePort]
	}
	inner := *c
	share := c.CacheMax / 2
	if _, ok := o.inner.(Stateful); ok {
		share, inner.CacheMax = c.CacheMax/4, c.CacheMax/2
	}
	if o.wait, err = newWaiting(o.Codec, c, waitingTable, share); err != nil {
		return err
	}
	for i, v := range o.views {
		if err := v.open(c, viewTable+statebackend.Table(i), share/int64(len(o.views))); err != nil {
			return err
		}
		if s := v.slot(); s != nil {
			inner.views = append(inner.views, s)
		}
	}
	if c.Restore != nil {
		blob, err := o.parseBlob(c.Restore.Blob)
		if err != nil {
			return fmt.Errorf("restore side inputs: %w", err)
		}
		o.w = c.Restore.Watermark
		o.firing, o.moved = true, true // it may not have been done: say it again
		inner.Restore = &OpRestore{Checkpoint: c.Restore.Checkpoint, Blob: blob, Watermark: o.told}
	}
	return o.inner.Open(&inner)
}

// Process implements Operator: port 0 is the main input.
func (o *sided[In]) Process(port int, b Batch) error {
	if port > 0 {
		o.moved = true
		if err := o.views[port-1].receive(b, o.told); err != nil {
			return err
		}
		return o.views[port-1].evict()
	}
	r := b.(*Rows[In])
	all := r.E
	n, err := o.sort(all)
	if err != nil {
		return err
	}
	if n > 0 {
		r.E = all[:n]
		err = o.inner.Process(0, r)
		r.E = all
	}
	if err == nil {
		err = o.emitLate()
	}
	return o.evict(err)
}

// verdict is what becomes of the elements of a window.
type verdict uint8

const (
	goesOn verdict = iota
	waits
	tooLate
)

func (o *sided[In]) judge(win window.Window) verdict {
	if _, ok := o.wait.queues[win]; ok {
		return waits // behind those that came before
	}
	v := goesOn
	for _, view := range o.views {
		if view.gone(win, o.told) {
			return tooLate
		}
		if !view.ready(win) {
			v = waits
		}
	}
	return v
}

// sort moves the rows that go on to the front and returns how many they are.
func (o *sided[In]) sort(rows []Element[In]) (n int, err error) {
	for i := 0; i < len(rows); {
		win, k := rows[i].Window, i+1
		for k < len(rows) && rows[k].Window == win {
			k++
		}
		switch o.judge(win) {
		case goesOn:
			if n != i {
				copy(rows[n:], rows[i:k])
			}
			n += k - i
		case waits:
			if err := o.wait.add(rows[i:k]); err != nil {
				return 0, err
			}
		case tooLate:
			o.late.E = append(o.late.E, rows[i:k]...)
		}
		i = k
	}
	return n, nil
}

func (o *sided[In]) emitLate() (err error) {
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

// evict brings the tables of the views below their limits, after code that may have read them.
func (o *sided[In]) evict(err error) error {
	for _, v := range o.views {
		if err == nil {
			err = v.evict()
		}
	}
	return err
}

// SideWatermark implements SideReader.
func (o *sided[In]) SideWatermark(port int, w eventtime.Time) {
	o.views[port-1].watermark(w)
	o.moved = true
}

// Watermark implements Operator.
func (o *sided[In]) Watermark(w eventtime.Time, budget int) (bool, error) {
	o.w = max(o.w, w)
	return o.work(&budget)
}

// work lets elements go whose views have become ready, then the watermark that they held.
func (o *sided[In]) work(budget *int) (bool, error) {
	for {
		if o.firing {
			done, err := o.inner.Watermark(o.told, max(1, *budget))
			if err = o.evict(err); err != nil || !done {
				return false, err
			}
			o.firing, o.done = false, o.told
			for _, v := range o.views {
				if err := v.collect(o.told); err != nil {
					return false, err
				}
			}
		}
		o.findDue()
		if len(o.due) > 0 {
			if *budget <= 0 {
				return false, nil
			}
			if err := o.release(budget); err != nil {
				return false, err
			}
			continue
		}
		next := min(o.w, o.wait.hold)
		if next <= o.told {
			return true, nil
		}
		if err := o.Flush(); err != nil {
			return false, err
		}
		o.told, o.firing = next, true
	}
}

// findDue looks which elements wait no longer.
func (o *sided[In]) findDue() {
	if !o.moved {
		return
	}
	o.moved = false
	o.due = o.due[:0]
	for _, q := range o.wait.order {
		if !slices.ContainsFunc(o.views, func(v SideView) bool { return !v.ready(q.win) }) {
			o.due = append(o.due, q)
		}
	}
}

// release lets the oldest chunk of the first window that is due go.
func (o *sided[In]) release(budget *int) error {
	q := o.due[0]
	rows, err := o.wait.take(q)
	if err != nil {
		return err
	}
	*budget -= len(rows)
	if q.first == q.next {
		o.due = slices.Delete(o.due, 0, 1)
	}
	return o.evict(o.inner.Process(0, &Rows[In]{rows}))
}

// pending says whether work would do something.
func (o *sided[In]) pending() bool {
	return o.firing || len(o.due) > 0 || o.moved && len(o.wait.order) > 0 || min(o.w, o.wait.hold) > o.told
}

// NextClock implements Clocked: what became due by a side input is due at once.
func (o *sided[In]) NextClock() eventtime.Time {
	if o.pending() {
		return eventtime.Min
	}
	if c, ok := o.inner.(Clocked); ok {
		return c.NextClock()
	}
	return noTime
}

// Clock implements Clocked.
func (o *sided[In]) Clock(now eventtime.Time, budget int) (bool, error) {
	if done, err := o.work(&budget); err != nil || !done {
		return false, err
	}
	c, ok := o.inner.(Clocked)
	if !ok || c.NextClock() > now {
		return true, nil
	}
	done, err := c.Clock(now, max(1, budget))
	return done, o.evict(err)
}

// Hold implements Holder.
func (o *sided[In]) Hold() eventtime.Time {
	h := eventtime.Max
	if o.done < o.w {
		h = o.done
	}
	if inner, ok := o.inner.(Holder); ok {
		h = min(h, inner.Hold())
	}
	return h
}

// Flush implements Flusher.
func (o *sided[In]) Flush() error {
	if f, ok := o.inner.(Flusher); ok {
		return f.Flush()
	}
	return nil
}

// Close implements Operator.
func (o *sided[In]) Close() error {
	if o.inner == nil {
		return nil
	}
	return o.inner.Close()
}

// Snapshot implements Stateful. Its own tables come first: what that writes to the backend is then in the base.
func (o *sided[In]) Snapshot(checkpoint int64, base bool) (s OpSnapshot, err error) {
	g := &groupSnapshot{}
	p, err := o.wait.table.cut(base)
	if err != nil {
		return s, err
	}
	g.parts = append(g.parts, p)
	for _, v := range o.views {
		p, err := v.cut(base)
		if err != nil {
			return s, err
		}
		if p != nil {
			g.parts = append(g.parts, p)
		}
	}
	if inner, ok := o.inner.(Stateful); ok {
		if s, err = inner.Snapshot(checkpoint, base); err != nil {
			return s, err
		}
	}
	if s.Keyed != nil {
		g.parts, g.base = append(g.parts, s.Keyed), s.Keyed.Base()
	} else if base {
		if g.base, err = o.backend.Snapshot(); err != nil {
			return s, fmt.Errorf("snapshot the state backend: %w", err)
		}
	}
	s.Keyed, s.Blob = g, o.appendBlob(s.Blob)
	return s, nil
}

// The blob (docs/format/side-state.md): version, the watermarks, what waits, what each view has, and that of the inner operator.
func (o *sided[In]) appendBlob(inner []byte) []byte {
	b := binary.AppendVarint([]byte{sidedVersion}, int64(o.told))
	b = o.wait.appendBlob(binary.AppendVarint(b, int64(o.done)))
	b = binary.AppendUvarint(b, uint64(len(o.views)))
	for _, v := range o.views {
		b = binary.AppendUvarint(b, uint64(len(v.name())))
		b = v.appendBlob(append(b, v.name()...))
	}
	return append(b, inner...)
}

func (o *sided[In]) parseBlob(src []byte) (inner []byte, err error) {
	if len(src) == 0 || src[0] != sidedVersion {
		return nil, errors.New("the version of its description is unknown")
	}
	d := varints{src: src[1:]}
	o.told, o.done = eventtime.Clamp(eventtime.Time(d.signed("watermark"))), eventtime.Clamp(eventtime.Time(d.signed("watermark")))
	if d.err == nil {
		d.src, d.err = o.wait.parseBlob(d.src)
	}
	if n := d.unsigned("number of views"); d.err == nil && n != uint64(len(o.views)) {
		return nil, fmt.Errorf("the checkpoint has %d views of the step, the program %d", n, len(o.views))
	}
	for _, v := range o.views {
		n := d.unsigned("name of a view")
		if d.err != nil || n > uint64(len(d.src)) {
			d.fail("name of a view")
			break
		}
		if name := string(d.src[:n]); name != v.name() {
			return nil, fmt.Errorf("the checkpoint has the view %q where the program has %q", name, v.name())
		}
		d.src, d.err = v.parseBlob(d.src[n:])
	}
	return d.src, d.err
}
