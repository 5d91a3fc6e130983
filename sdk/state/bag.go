package state

import (
	"fmt"
	"iter"
	"reflect"

	"github.com/millstream/millstream/internal/cell"
)

// Bag is a cell with any number of T for each key and window, in the order in which they were added. It is a handle, cheap to copy;
// the zero Bag belongs to no step, and using it panics.
type Bag[T any] struct{ c *collectionCell[T] }

// NewBag declares a Bag: see NewValue.
func NewBag[T any](d Declarer, name string, opts ...Option) Bag[T] {
	o := optionsOf(opts)
	values, err := coderFor[T](o)
	c := &collectionCell[T]{fixed: elementBytes[T](), heap: cell.Footprint[T]()}
	c.encode = func(dst []byte, _, t *T) ([]byte, error) { return values.Append(dst, *t) }
	c.decode = func(src []byte, _ *T) (T, []byte, error) { return values.Decode(src) }
	c.declare(d, name, "bag", specOf(values, err), c, o, err)
	return Bag[T]{c}
}

func (b Bag[T]) bound() *collectionCell[T] {
	if b.c == nil {
		unbound(fmt.Sprintf("Bag[%v]", reflect.TypeFor[T]()))
	}
	return b.c
}

// Add adds t at the end.
func (b Bag[T]) Add(t T) {
	c := b.bound()
	if c.isFull() {
		return
	}
	if s := c.change(true); s != nil {
		c.added(s, s.push(element[T]{t, c.stamp()}))
	}
}

// All returns what is in the bag now: what is added or cleared later, also while it is read, does not change it.
func (b Bag[T]) All() iter.Seq[T] {
	all := b.bound().all()
	return func(yield func(T) bool) {
		all.each(func(e *element[T]) bool { return yield(e.p) })
	}
}

// Len returns the number of elements in the bag now.
func (b Bag[T]) Len() int { return b.bound().length() }

// Clear empties the bag.
func (b Bag[T]) Clear() {
	c := b.bound()
	c.set.Remove(c.at)
}
