package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
)

// OrderedList is a cell with any number of T for each key and window, each at a time (to the millisecond): in the order of
// times, and at the same time in the order in which they were added. It is a handle, cheap to copy; the zero OrderedList
// belongs to no step, and using it panics.
type OrderedList[T any] struct{ c *collectionCell[timed[T]] }

type timed[T any] struct {
	t eventtime.Time
	v T
}

// NewOrderedList declares an OrderedList: see NewValue.
func NewOrderedList[T any](d Declarer, name string, opts ...Option) OrderedList[T] {
	o := optionsOf(opts)
	values, err := coderFor[T](o)
	c := &collectionCell[timed[T]]{fixed: elementBytes[timed[T]]()}
	if heap := cell.Footprint[T](); heap != nil {
		c.heap = func(e *timed[T]) int { return heap(&e.v) }
	}
	c.encode = func(dst []byte, before, e *timed[T]) ([]byte, error) {
		return values.Append(binary.AppendVarint(dst, int64(e.t-timeOf(before))), e.v)
	}
	c.decode = func(src []byte, before *timed[T]) (e timed[T], rest []byte, err error) {
		if e.t, rest, err = decodeTime(src, timeOf(before)); err != nil {
			return e, src, err
		}
		if before != nil && e.t < before.t {
			return e, src, errors.New("times are out of order")
		}
		e.v, rest, err = values.Decode(rest)
		return e, rest, err
	}
	c.declare(d, name, "ordered list", specOf(values, err), c, o, err)
	return OrderedList[T]{c}
}

func timeOf[T any](before *timed[T]) eventtime.Time {
	if before == nil {
		return 0
	}
	return before.t
}

func (l OrderedList[T]) bound() *collectionCell[timed[T]] {
	if l.c == nil {
		unbound(fmt.Sprintf("OrderedList[%v]", reflect.TypeFor[T]()))
	}
	return l.c
}

// span is times [from, to).
type span struct{ from, to eventtime.Time }

// spanOf is what Range and ClearRange are given; a zero time is no limit.
func spanOf(from, to time.Time) span {
	s := span{eventtime.Min, eventtime.Max + 1}
	if !from.IsZero() {
		s.from = eventtime.FromTime(from)
	}
	if !to.IsZero() {
		s.to = eventtime.FromTime(to)
	}
	return s
}

func (s span) holds(t eventtime.Time) bool { return s.from <= t && t < s.to }

// placesIn returns where the elements in s begin and end in a list, and false if there are none.
func placesIn[T any](l *collection[timed[T]], s span) (from, to place, ok bool) {
	from = l.seek(func(e *timed[T]) bool { return e.t < s.from })
	to = l.seek(func(e *timed[T]) bool { return e.t < s.to })
	return from, to, from.block < to.block || from.block == to.block && from.at < to.at
}

// Add adds v at a time, behind what is there at the same time. The zero time fails the job.
func (l OrderedList[T]) Add(at time.Time, v T) {
	c := l.bound()
	if at.IsZero() {
		c.set.Fail(c.at, errors.New("Add at the zero time, which is the time of nothing"))
		return
	}
	if c.isFull() {
		return
	}
	if s := c.change(true); s != nil {
		t := eventtime.FromTime(at)
		behind := s.seek(func(e *timed[T]) bool { return e.t <= t })
		c.added(s, s.insert(behind, element[timed[T]]{timed[T]{t, v}, c.stamp()}))
	}
}

// Range returns what the list has now at times from from up to, but not at, to, in order; the zero time is no limit. What
// is added or cleared later, also while it is read, does not change it.
func (l OrderedList[T]) Range(from, to time.Time) iter.Seq2[time.Time, T] {
	c := l.bound()
	var some blocks[timed[T]]
	times := spanOf(from, to)
	if s := c.visible(func(e *timed[T]) bool { return times.holds(e.t) }); s != nil {
		if first, end, ok := placesIn(s, times); ok {
			some = s.slice(first, end)
		}
	}
	return func(yield func(time.Time, T) bool) {
		some.each(func(e *element[timed[T]]) bool { return yield(e.p.t.Time(), e.p.v) })
	}
}

// All returns all that the list has now, as Range does.
func (l OrderedList[T]) All() iter.Seq2[time.Time, T] { return l.Range(time.Time{}, time.Time{}) }

// ClearRange removes what is at times from from up to, but not at, to; the zero time is no limit.
func (l OrderedList[T]) ClearRange(from, to time.Time) {
	c := l.bound()
	s := c.get()
	if s == nil {
		return
	}
	if first, end, ok := placesIn(s, spanOf(from, to)); ok && c.change(false) != nil {
		c.removeRange(s, first, end)
	}
}

// Len returns the number of elements in the list now.
func (l OrderedList[T]) Len() int { return l.bound().length() }

// Clear empties the list.
func (l OrderedList[T]) Clear() {
	c := l.bound()
	c.set.Remove(c.at)
}
