package kernel

import (
	"fmt"

	"github.com/millstream/millstream/sdk/window"
)

// windowOp assigns each element to its window, in place.
type windowOp[T any] struct {
	stateless
	fn  window.Fn
	out Output
}

// NewWindow returns an operator that assigns windows by fn. With sliding windows, elements get the slice that
// they are in, see NewSliced and NewUnslice; those in no window go.
func NewWindow[T any](fn window.Fn) Operator { return &windowOp[T]{fn: fn} }

func (w *windowOp[T]) Open(c *OpenContext) error {
	w.out = c.Outputs[0]
	return nil
}

func (w *windowOp[T]) Process(_ int, b Batch) error {
	r := b.(*Rows[T])
	switch fn := w.fn.(type) {
	case window.FixedFn:
		assignFixed(r.E, fn)
	case window.SlidingFn:
		all := r.E
		r.E = assignSlices(r.E, fn)
		err := w.out.Emit(b)
		r.E = all
		return err
	case window.SessionsFn:
		for i := range r.E {
			r.E[i].Window = fn.Assign(r.E[i].Time)
		}
	case window.GlobalFn:
		for i := range r.E {
			r.E[i].Window = window.GlobalWindow
		}
	default:
		return fmt.Errorf("window function %T is unknown", w.fn)
	}
	return w.out.Emit(b)
}

func assignFixed[T any](rows []Element[T], fn window.FixedFn) {
	// Most elements are in the window of the one before, or in one of the last few: those cost no division.
	var recent [4]window.Window
	var win window.Window
	for i := range rows {
		e := &rows[i]
		t := e.Time
		for k := 0; t < win.StartTime() || t >= win.EndTime(); k++ {
			if k == len(recent) {
				win = fn.Assign(t)
				copy(recent[1:], recent[:])
				recent[0] = win
				break
			}
			win = recent[k]
		}
		e.Window = win
	}
}

// assignSlices moves the elements that are in some window to the front, and returns those.
func assignSlices[T any](rows []Element[T], fn window.SlidingFn) []Element[T] {
	var win window.Window
	known, in := false, false
	n := 0
	for i := range rows {
		t := rows[i].Time
		if !known || t < win.StartTime() || t >= win.EndTime() {
			win, in = fn.Slice(t)
			known = in // what lies between windows is not a slice
		}
		if !in {
			continue
		}
		if n != i {
			rows[n] = rows[i]
		}
		rows[n].Window = win
		n++
	}
	return rows[:n]
}

// unslice copies each element into the windows that hold its slice.
type unslice[T any] struct {
	stateless
	fn      window.SlidingFn
	windows []window.Window
	out     Output
	buf     Rows[T]
}

// NewUnslice returns an operator that gives elements in slices of fn the windows of fn, a copy each.
func NewUnslice[T any](fn window.SlidingFn) Operator { return &unslice[T]{fn: fn} }

func (u *unslice[T]) Open(c *OpenContext) error {
	u.out = c.Outputs[0]
	return nil
}

func (u *unslice[T]) Process(_ int, b Batch) error {
	var last window.Window
	for i, e := range b.(*Rows[T]).E {
		if i == 0 || e.Window != last {
			last = e.Window
			u.windows = u.fn.Assign(u.windows[:0], last.StartTime())
		}
		for _, w := range u.windows {
			e.Window = w
			u.buf.E = append(u.buf.E, e)
			if len(u.buf.E) == BatchSize {
				if err := u.emit(); err != nil {
					return err
				}
			}
		}
	}
	return u.emit()
}

func (u *unslice[T]) emit() error {
	if len(u.buf.E) == 0 {
		return nil
	}
	err := u.out.Emit(&u.buf)
	clear(u.buf.E)
	u.buf.E = u.buf.E[:0]
	return err
}
