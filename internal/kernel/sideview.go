package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// ViewDef is the identity of a side view: a pipeline has one for each.
type ViewDef struct{ Name string }

// Unwound is what user code is left by when it asks for something that cannot be had. The host makes an error of the
// step of it.
type Unwound struct{ Err error }

func (u Unwound) Error() string { return u.Err.Error() }

// ReadView is the content of a view for the element that c is about. The step must read the view.
func ReadView[T any](c *ProcessContext, def *ViewDef) T {
	for _, v := range c.views {
		if s, ok := v.(*viewSlot[T]); ok && s.def == def {
			if !s.known || s.main != c.at.window {
				s.read(c.at.window)
			}
			return s.value
		}
	}
	panic(Unwound{fmt.Errorf("it reads the view %q, which it was not given: add sdk.With for it", def.Name)})
}

// viewSlot is a view as a step's code reads it: the value for the window that was asked for last.
type viewSlot[T any] struct {
	def   *ViewDef
	main  window.Window
	known bool
	value T
	load  func(main window.Window) (T, error)
}

func (s *viewSlot[T]) read(main window.Window) {
	v, err := s.load(main)
	if err != nil {
		panic(Unwound{err})
	}
	s.main, s.value, s.known = main, v, true
}

// SideView is one side input of a step, in one subtask. NewView and NewSignal make them.
type SideView interface {
	name() string
	open(c *OpenContext, table statebackend.Table, cacheMax int64) error
	slot() any // a *viewSlot, or nil if there is nothing to read
	// receive takes what comes on the port. What is for a window whose life ended before now is dropped.
	receive(b Batch, now eventtime.Time) error
	watermark(w eventtime.Time)
	ready(main window.Window) bool
	// gone says that the view of a main window is no longer kept at now.
	gone(main window.Window, now eventtime.Time) bool
	collect(now eventtime.Time) error // the garbage of before now
	evict() error
	cut(renewBase bool) (cutPart, error) // nil: there is no table
	appendBlob(dst []byte) []byte
	parseBlob(src []byte) (rest []byte, err error)
}

// ViewPart is an element of a side input: a part of a pane. The parts of a pane come one after the other.
type ViewPart[E any] struct {
	Items []E
	Last  bool
}

// ViewSpec is a side view of elements E that user code sees as a T.
type ViewSpec[E, T any] struct {
	Def   *ViewDef
	Items coder.Coder[[]E]
	// Window is the window of the side input that a window of the main input sees.
	Window func(main window.Window) window.Window
	// Lateness, of the main input in ms, is how long after its end a window of the side input is kept.
	Lateness int64
	// Replace makes a pane take the place of the panes before it; else it is added to them.
	Replace bool
	// Make makes a T of a window's elements, in the order of their panes. It keeps items, and nobody changes them.
	Make func(items []E, w window.Window) (T, error)
	// MaxBytes is what the elements of one window may take.
	MaxBytes int64
}

// view keeps the parts of panes in a table: key is a number that rises in each window.
type view[E, T any] struct {
	ViewSpec[E, T]
	table   *Table[uint64, chunk] // of []E
	size    func(*[]E) int
	w       eventtime.Time
	windows map[window.Window]*viewWindow
	order   []*viewWindow // by window
	read    viewSlot[T]
	recent  [2]recentView[T] // the newer first: two windows of the main input meet where one ends
}

// viewWindow is a window of the side input. Parts first to next are its content, those from next to end a pane
// that is not whole yet.
type viewWindow struct {
	win              window.Window
	first, next, end uint64
	bytes, coming    int64 // of the content, and of the pane that is not whole
}

type recentView[T any] struct {
	win   window.Window
	known bool
	value T
}

// NewView returns a side view.
func NewView[E, T any](s ViewSpec[E, T]) SideView {
	v := &view[E, T]{ViewSpec: s, w: eventtime.Min, windows: map[window.Window]*viewWindow{}, size: Footprint[[]E]()}
	v.read = viewSlot[T]{def: s.Def, load: v.load}
	return v
}

func (v *view[E, T]) open(c *OpenContext, table statebackend.Table, cacheMax int64) error {
	v.table = newTable(tableConfig[uint64, chunk]{newOwnedKey(c), itemsCoder[E]{v.Items}, func(c *chunk) int {
		items, _ := (*c).([]E) // none before it has a value
		return v.size(&items)
	}}, c)
	v.table.id, v.table.max, v.table.native, v.table.tail = table, cacheMax, true, ownedTail
	if c.Restore == nil {
		return nil
	}
	return v.table.restore(func(*segment[uint64, chunk]) {})
}

func (v *view[E, T]) name() string               { return v.Def.Name }
func (v *view[E, T]) slot() any                  { return &v.read }
func (v *view[E, T]) watermark(w eventtime.Time) { v.w = max(v.w, w) }

func (v *view[E, T]) ready(main window.Window) bool {
	s := v.Window(main)
	if w := v.windows[s]; w != nil && w.next > w.first {
		return true
	}
	return v.w >= s.EndTime()
}

func (v *view[E, T]) gone(main window.Window, now eventtime.Time) bool {
	return now >= expiry(v.Window(main), v.Lateness)
}

func (v *view[E, T]) receive(b Batch, now eventtime.Time) error {
	rows := b.(*Rows[ViewPart[E]]).E
	for i := range rows {
		if now >= expiry(rows[i].Window, v.Lateness) {
			continue
		}
		if err := v.add(rows[i].Window, rows[i].Value); err != nil {
			return err
		}
	}
	return nil
}

func (v *view[E, T]) add(win window.Window, p ViewPart[E]) error {
	w := v.windows[win]
	if w == nil {
		w = &viewWindow{win: win}
		v.enter(w)
	}
	s, _ := v.table.segment(win)
	if err := v.table.put(s, w.end, p.Items); err != nil {
		return err
	}
	w.end++
	w.coming += int64(v.size(&p.Items))
	kept := w.coming
	if !v.Replace {
		kept += w.bytes
	}
	if kept > v.MaxBytes {
		return fmt.Errorf("view %q: its elements for window %v take more than %d bytes, the limit, and every subtask keeps them: "+
			"leave out what is not looked up, use a join (CoGroupByKey), or raise the limit with sdk.MaxViewBytes", v.Def.Name, win, v.MaxBytes)
	}
	if !p.Last {
		return nil
	}
	if v.Replace {
		for k := w.first; k < w.next; k++ {
			if err := v.table.removeKey(s, k); err != nil {
				return err
			}
		}
		w.first = w.next
	}
	w.next, w.bytes, w.coming = w.end, kept, 0
	v.forget(win)
	return nil
}

func (v *view[E, T]) enter(w *viewWindow) {
	v.windows[w.win] = w
	i := sort.Search(len(v.order), func(i int) bool { return w.win.Compare(v.order[i].win) < 0 })
	v.order = slices.Insert(v.order, i, w)
}

// forget makes code read a window anew.
func (v *view[E, T]) forget(win window.Window) {
	v.read.known = false
	for i := range v.recent {
		if v.recent[i].win == win {
			v.recent[i] = recentView[T]{}
		}
	}
}

// load is the view of a main window.
func (v *view[E, T]) load(main window.Window) (value T, err error) {
	s := v.Window(main)
	for i := range v.recent {
		if r := v.recent[i]; r.known && r.win == s {
			v.recent[0], v.recent[i] = r, v.recent[0]
			return r.value, nil
		}
	}
	if !v.ready(main) {
		return value, fmt.Errorf("view %q has nothing for window %v yet, and only an element waits for it: read it where elements are processed", v.Def.Name, main)
	}
	items, err := v.items(s)
	if err == nil {
		value, err = v.Make(items, s)
	}
	if err != nil {
		return value, fmt.Errorf("view %q of window %v: %w", v.Def.Name, s, err)
	}
	v.recent[0], v.recent[1] = recentView[T]{s, true, value}, v.recent[0]
	return value, nil
}

// items is the content of a window.
func (v *view[E, T]) items(win window.Window) ([]E, error) {
	w := v.windows[win]
	if w == nil || w.first == w.next {
		return nil, nil
	}
	s, _ := v.table.segment(win)
	for k := w.first; k < w.next; k++ {
		if e, err := v.table.find(s, k); err != nil {
			return nil, err
		} else if e == nil {
			if err := v.table.miss(s, k); err != nil {
				return nil, err
			}
		}
	}
	if err := v.table.load(); err != nil {
		return nil, err
	}
	var all []E
	for k := w.first; k < w.next; k++ {
		e, err := v.table.find(s, k)
		if err != nil {
			return nil, err
		}
		if e == nil {
			return nil, fmt.Errorf("part %d is missing in the state", k)
		}
		items := e.acc.([]E)
		if w.next-w.first == 1 {
			return slices.Clip(items), nil
		}
		all = append(all, items...)
	}
	return slices.Clip(all), nil
}

func (v *view[E, T]) collect(now eventtime.Time) error {
	n := 0
	for ; n < len(v.order) && now >= expiry(v.order[n].win, v.Lateness); n++ {
		win := v.order[n].win
		s, _ := v.table.segment(win)
		if err := v.table.dropSegment(s); err != nil {
			return err
		}
		delete(v.windows, win)
		v.forget(win)
	}
	v.order = slices.Delete(v.order, 0, n)
	return nil
}

func (v *view[E, T]) evict() error                        { return v.table.evict() }
func (v *view[E, T]) cut(renewBase bool) (cutPart, error) { return v.table.cut(renewBase) }

func (v *view[E, T]) appendBlob(dst []byte) []byte {
	dst = binary.AppendVarint(dst, int64(v.w))
	dst = binary.AppendUvarint(dst, uint64(len(v.order)))
	for _, w := range v.order {
		dst = appendWindow(dst, w.win, 0)
		for _, n := range []uint64{w.first, w.next - w.first, w.end - w.next, uint64(w.bytes), uint64(w.coming)} {
			dst = binary.AppendUvarint(dst, n)
		}
	}
	return dst
}

func (v *view[E, T]) parseBlob(src []byte) ([]byte, error) {
	d := varints{src: src}
	v.w = eventtime.Clamp(eventtime.Time(d.signed("watermark")))
	for n := d.unsigned("number of windows"); n > 0 && d.err == nil; n-- {
		w := &viewWindow{win: d.window(0)}
		w.first = d.unsigned("first part")
		w.next = w.first + d.unsigned("number of parts")
		w.end = w.next + d.unsigned("number of parts to come")
		w.bytes, w.coming = int64(d.unsigned("size")), int64(d.unsigned("size to come"))
		if v.windows[w.win] != nil {
			d.fail("list of windows")
		}
		v.enter(w)
	}
	return d.src, d.err
}

// itemsCoder is a coder of []E as chunks.
type itemsCoder[E any] struct{ items coder.Coder[[]E] }

func (c itemsCoder[E]) Append(dst []byte, items chunk) ([]byte, error) {
	return c.items.Append(dst, items.([]E))
}

func (c itemsCoder[E]) Decode(src []byte) (chunk, []byte, error) {
	items, rest, err := c.items.Decode(src)
	return items, rest, err
}
