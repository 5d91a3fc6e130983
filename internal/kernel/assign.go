package kernel

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// windowOp assigns each element to its windows: in place, unless the user says which.
type windowOp[T any] struct {
	stateless
	fn     window.Fn
	out    Output
	copies copies[T]
}

// NewWindow returns an operator that assigns windows by fn. With sliding windows, elements get the slice that
// they are in, see NewSliced and NewUnslice; those in no window go.
func NewWindow[T any](fn window.Fn) Operator { return &windowOp[T]{fn: fn} }

func (w *windowOp[T]) Open(c *OpenContext) error {
	w.out = c.Outputs[0]
	w.copies.out = w.out
	return nil
}

func (w *windowOp[T]) Process(_ int, b Batch) error {
	r := b.(*Rows[T])
	switch fn := w.fn.(type) {
	case window.FixedFn:
		assignOne(r.E, fn)
	case window.CalendarFn:
		assignOne(r.E, fn)
	case window.CustomFn:
		return w.copies.assign(r.E, fn)
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

// assignOne assigns windows of which one holds each time.
func assignOne[T any, F interface {
	Assign(eventtime.Time) window.Window
}](rows []Element[T], fn F) {
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
	fn     window.SlidingFn
	copies copies[T]
}

// NewUnslice returns an operator that gives elements in slices of fn the windows of fn, a copy each.
func NewUnslice[T any](fn window.SlidingFn) Operator { return &unslice[T]{fn: fn} }

func (u *unslice[T]) Open(c *OpenContext) error {
	u.copies.out = c.Outputs[0]
	return nil
}

func (u *unslice[T]) Process(_ int, b Batch) error {
	var last window.Window
	c := &u.copies
	for i, e := range b.(*Rows[T]).E {
		if i == 0 || e.Window != last {
			last = e.Window
			c.windows = u.fn.Assign(c.windows[:0], last.StartTime())
		}
		if err := c.add(e); err != nil {
			return err
		}
	}
	return c.emit()
}

// copies emits elements that are in several windows, a copy for each.
type copies[T any] struct {
	windows []window.Window
	out     Output
	buf     Rows[T]
}

// assign emits elements in the windows of fn.
func (c *copies[T]) assign(rows []Element[T], fn window.CustomFn) (err error) {
	for i, e := range rows {
		if i == 0 || e.Time != rows[i-1].Time {
			if c.windows, err = fn.Assign(c.windows, e.Time); err != nil {
				return err
			}
		}
		if err = c.add(e); err != nil {
			return err
		}
	}
	return c.emit()
}

// add emits e in each of c.windows, at the latest with emit.
func (c *copies[T]) add(e Element[T]) error {
	for _, w := range c.windows {
		e.Window = w
		c.buf.E = append(c.buf.E, e)
		if full(c.buf.E) {
			if err := c.emit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *copies[T]) emit() error {
	if len(c.buf.E) == 0 {
		return nil
	}
	err := c.out.Emit(&c.buf)
	clear(c.buf.E)
	c.buf.E = c.buf.E[:0]
	return err
}
