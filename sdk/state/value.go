package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
)

// Value is a cell with one T for each key and window. It is a handle, cheap to copy; the zero Value
// belongs to no step, and using it panics.
type Value[T any] struct{ c *valueCell[T] }

// valueCell is a cell of one T: a Value, or the accumulator of a Combining. Its slots are *T, and *stamped[T] with a TTL.
type valueCell[T any] struct {
	base
	coder coder.Coder[T]
	heap  func(*T) int // nil: a T refers to no further memory
	bytes int          // of a slot alone
}

type stamped[T any] struct {
	v  T
	at eventtime.Time
}

// NewValue declares a Value. name is unique in the step and stays the same for as long as the values are
// to be kept. A T without an encoding, or a second cell with the name, is an error of the step's
// construction.
func NewValue[T any](d Declarer, name string, opts ...Option) Value[T] {
	return Value[T]{newValueCell[T](d, name, "value", optionsOf(opts))}
}

func newValueCell[T any](d Declarer, name, kind string, o *options) *valueCell[T] {
	var err error
	c := &valueCell[T]{heap: cell.Footprint[T](), bytes: int(reflect.TypeFor[stamped[T]]().Size())}
	if o.ttl == nil {
		c.bytes = int(reflect.TypeFor[T]().Size())
	}
	c.coder, err = coderFor[T](o)
	c.declare(d, name, kind, specOf(c.coder, err), c, o, err)
	return c
}

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

func specOf[T any](c coder.Coder[T], err error) (s coder.Spec) {
	if err == nil {
		s = coder.SpecOf(c)
	}
	return s
}

func (v Value[T]) bound() *valueCell[T] {
	if v.c == nil {
		unbound(fmt.Sprintf("Value[%v]", reflect.TypeFor[T]()))
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
	p := c.peek()
	if p == nil {
		return t, false
	}
	t = *p
	c.read()
	return t, true
}

// Set stores t.
func (v Value[T]) Set(t T) {
	c := v.bound()
	if p := c.change(); p != nil {
		*p = t
		c.changed(p)
	}
}

// Clear removes the value, so that the key takes no room once all its cells are cleared.
func (v Value[T]) Clear() {
	c := v.bound()
	c.set.Remove(c.at)
}

// peek returns what is there, to be read only; nil if there is nothing.
func (c *valueCell[T]) peek() *T {
	slot := c.set.Get(c.at)
	if c.ttl == 0 {
		p, _ := slot.(*T)
		return p
	}
	p, ok := slot.(*stamped[T])
	if !ok || c.expired(p.at) {
		return nil
	}
	return &p.v
}

// read notes a read of what is there.
func (c *valueCell[T]) read() {
	if !c.onRead {
		return
	}
	if p := c.set.Get(c.at).(*stamped[T]); p.at < c.stamp() && c.set.Change(c.at) != nil {
		p.at = c.stamp()
	}
}

// change returns the value to be written, as of now; nil if that must not be. What it is before is undefined if
// there was none.
func (c *valueCell[T]) change() *T {
	slots := c.set.Change(c.at)
	if slots == nil {
		return nil
	}
	if c.ttl == 0 {
		p, ok := slots[c.at].(*T)
		if !ok {
			p = new(T)
			slots[c.at] = p
			c.set.Resized()
		}
		return p
	}
	p, ok := slots[c.at].(*stamped[T])
	if !ok {
		p = &stamped[T]{at: c.stamp()}
		slots[c.at] = p
		c.set.Resized()
	}
	// A late write does not take what is left of the life of an earlier one.
	p.at = max(p.at, c.stamp())
	return &p.v
}

// changed follows a change of the value.
func (c *valueCell[T]) changed(p *T) {
	if c.heap != nil {
		c.set.Resized()
		c.full(c.bytes + c.heap(p))
	}
}

// Append implements cell.Codec (docs/format/keyed-state.md).
func (c *valueCell[T]) Append(dst []byte, slot any) ([]byte, error) {
	if c.ttl == 0 {
		return c.coder.Append(dst, *slot.(*T))
	}
	p := slot.(*stamped[T])
	return c.coder.Append(binary.AppendVarint(dst, int64(p.at)), p.v)
}

// Decode implements cell.Codec.
func (c *valueCell[T]) Decode(src []byte) (slot any, err error) {
	var s stamped[T]
	if c.ttl > 0 {
		if s.at, src, err = decodeTime(src, 0); err != nil {
			return nil, err
		}
	}
	s.v, src, err = c.coder.Decode(src)
	if err == nil && len(src) > 0 {
		err = fmt.Errorf("%d bytes too many", len(src))
	}
	switch {
	case err != nil:
		return nil, err
	case c.ttl > 0:
		return &s, nil
	}
	v := s.v // a *T that does not keep the stamp's memory
	return &v, nil
}

// Size implements cell.Codec.
func (c *valueCell[T]) Size(slot any) int {
	switch {
	case c.heap == nil:
		return c.bytes
	case c.ttl == 0:
		return c.bytes + c.heap(slot.(*T))
	}
	return c.bytes + c.heap(&slot.(*stamped[T]).v)
}

// First implements cell.Expirer.
func (c *valueCell[T]) First(slot any) eventtime.Time { return slot.(*stamped[T]).at.Add(c.ttl) }

// Expire implements cell.Expirer.
func (c *valueCell[T]) Expire(slot any, now eventtime.Time) bool { return c.First(slot) > now }

// decodeTime reads a time written as its difference from another.
func decodeTime(src []byte, from eventtime.Time) (t eventtime.Time, rest []byte, err error) {
	d, w := binary.Varint(src)
	t = from + eventtime.Time(d)
	if w <= 0 || t != eventtime.Clamp(t) {
		return 0, src, errors.New("a time is malformed")
	}
	return t, src[w:], nil
}
