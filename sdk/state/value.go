package state

import (
	"fmt"
	"reflect"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/sdk/coder"
)

// Value is a cell with one T for each key and window. It is a handle, cheap to copy; the zero Value
// belongs to no step, and using it panics.
//
// What Set was given and what Get returns belongs to the state: to change what it refers to (an element of
// a slice, a map), Set a changed copy. Otherwise a snapshot may have half of the change.
type Value[T any] struct{ c *valueCell[T] }

type valueCell[T any] struct {
	set   *cell.Set
	at    int
	fixed bool // a T refers to no further memory
}

// NewValue declares a Value. name is unique in the step and stays the same for as long as the values are
// to be kept. A T without an encoding, or a second cell with the name, is an error of the step's
// construction.
func NewValue[T any](d Declarer, name string, opts ...Option) Value[T] {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	c, err := coderFor[T](&o)
	v := &valueCell[T]{set: SetOf(d), fixed: isFixed(reflect.TypeFor[T]())}
	decl := cell.Decl{Name: name, Codec: &valueCodec[T]{coder: c, fixed: v.fixed}}
	if err == nil {
		decl.Type, decl.Coder = "value", coder.SpecOf(c)
	}
	v.at = v.set.Declare(decl, err)
	return Value[T]{v}
}

// WithCoder encodes the values of a cell with c instead of coder.Of[T].
func WithCoder[T any](c coder.Coder[T]) Option { return withCoder[T]{c} }

type withCoder[T any] struct{ c coder.Coder[T] }

func (w withCoder[T]) apply(o *options) { o.coder = w.c }

func coderFor[T any](o *options) (coder.Coder[T], error) {
	if o.coder == nil {
		return coder.Of[T]()
	}
	c, ok := o.coder.(coder.Coder[T])
	if !ok {
		return nil, fmt.Errorf("WithCoder has a %T, which does not encode %v", o.coder, reflect.TypeFor[T]())
	}
	return c, nil
}

func (v Value[T]) bound() *valueCell[T] {
	if v.c == nil {
		panic(fmt.Sprintf("a state.Value[%v] that was not made by state.NewValue in Declare", reflect.TypeFor[T]()))
	}
	return v.c
}

// Get returns the value, or the zero T if there is none.
func (v Value[T]) Get() T {
	t, _ := v.Lookup()
	return t
}

// Lookup returns the value and whether there is one.
func (v Value[T]) Lookup() (t T, ok bool) {
	c := v.bound()
	p, ok := c.set.Get(c.at).(*T)
	if ok {
		t = *p
	}
	return t, ok
}

// Set stores t.
func (v Value[T]) Set(t T) {
	c := v.bound()
	slots := c.set.Change(c.at)
	if slots == nil {
		return
	}
	p, ok := slots[c.at].(*T)
	if !ok {
		p = new(T)
		slots[c.at] = p
	}
	*p = t
	if !ok || !c.fixed {
		c.set.Resized()
	}
}

// Clear removes the value, so that the key takes no room once all its cells are cleared.
func (v Value[T]) Clear() {
	c := v.bound()
	if c.set.Get(c.at) == nil {
		return
	}
	if slots := c.set.Change(c.at); slots != nil {
		slots[c.at] = nil
		c.set.Cleared()
	}
}

// valueCodec is the cell.Codec of a Value, in one subtask.
type valueCodec[T any] struct {
	coder coder.Coder[T]
	fixed bool
	buf   []byte
}

func (c *valueCodec[T]) Append(dst []byte, slot any) ([]byte, error) {
	return c.coder.Append(dst, *slot.(*T))
}

func (c *valueCodec[T]) Decode(src []byte) (any, error) {
	t, rest, err := c.coder.Decode(src)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return nil, err
	}
	return &t, nil
}

func (c *valueCodec[T]) Size(slot any) int {
	n := int(reflect.TypeFor[T]().Size())
	if c.fixed {
		return n
	}
	switch p := slot.(type) {
	case *string:
		return n + len(*p)
	case *[]byte:
		return n + cap(*p)
	}
	// What a T refers to is about as large as its encoding.
	b, err := c.coder.Append(c.buf[:0], *slot.(*T))
	if err != nil {
		return n // it will fail, with its key, when it is to be stored
	}
	c.buf = b
	return n + len(b)
}

// isFixed says whether a value of type t refers to no memory outside itself.
func isFixed(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isFixed(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isFixed(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return false
	}
	return true
}
