package state

import (
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/sdk/coder"
)

// Map is a cell with a V for each of any number of K, for each key and window of the step. Equality of K is that of keys:
// -0 is 0, and all NaNs are one. It is a handle, cheap to copy; the zero Map belongs to no step, and using it panics.
type Map[K comparable, V any] struct{ c *mapCell[K, V] }

// pair is an element of a Map. They are in the order of enc.
type pair[K comparable, V any] struct {
	enc string // k, canonical
	k   K      // as enc decodes
	v   V
}

type mapCell[K comparable, V any] struct {
	collectionCell[pair[K, V]]
	key    coder.Key[K]
	values coder.Coder[V]
	buf    []byte
}

// NewMap declares a Map: see NewValue. The encoding of K is canonical, as that of keys.
func NewMap[K comparable, V any](d Declarer, name string, opts ...Option) Map[K, V] {
	o := optionsOf(opts)
	c := &mapCell[K, V]{}
	var err, keyErr error
	c.values, err = coderFor[V](o)
	switch k := o.key.(type) {
	case nil:
		c.key, keyErr = coder.KeyOf[K]()
	case coder.Key[K]:
		c.key = k
	default:
		keyErr = fmt.Errorf("WithKeyCoder has a %T, which does not encode keys %v", k, reflect.TypeFor[K]())
	}
	err = errors.Join(keyErr, err)
	var spec coder.Spec
	if err == nil {
		spec = coder.SpecOf(coder.KVOf(coder.Coder[K](c.key), c.values))
	}
	keyHeap, valueHeap := cell.Footprint[K](), cell.Footprint[V]()
	c.fixed = elementBytes[pair[K, V]]()
	c.heap = func(p *pair[K, V]) int {
		n := len(p.enc)
		if keyHeap != nil {
			n += keyHeap(&p.k)
		}
		if valueHeap != nil {
			n += valueHeap(&p.v)
		}
		return n
	}
	c.encode = func(dst []byte, _, p *pair[K, V]) ([]byte, error) {
		out, err := c.values.Append(append(dst, p.enc...), p.v)
		if err != nil {
			return dst, fmt.Errorf("value of %v: %w", p.k, err)
		}
		return out, nil
	}
	c.decode = c.decodePair
	c.declare(d, name, "map", spec, c, o, err)
	return Map[K, V]{c}
}

func (c *mapCell[K, V]) decodePair(src []byte, before *pair[K, V]) (p pair[K, V], rest []byte, err error) {
	if p.k, rest, err = c.key.Decode(src); err != nil {
		return p, src, fmt.Errorf("key: %w", err)
	}
	p.enc = string(src[:len(src)-len(rest)])
	if before != nil && p.enc <= before.enc {
		return p, src, errors.New("keys are out of order")
	}
	if p.v, rest, err = c.values.Decode(rest); err != nil {
		return p, src, fmt.Errorf("value: %w", err)
	}
	return p, rest, nil
}

// bound returns the cell.
func (m Map[K, V]) bound() *mapCell[K, V] {
	if m.c == nil {
		unbound(fmt.Sprintf("Map[%v, %v]", reflect.TypeFor[K](), reflect.TypeFor[V]()))
	}
	return m.c
}

// find encodes k into buf and returns where it is, or belongs, in s.
func (c *mapCell[K, V]) find(s *collection[pair[K, V]], k K) (p place, found bool) {
	var err error
	if c.buf, err = c.key.Append(c.buf[:0], k); err != nil {
		c.set.Fail(c.at, fmt.Errorf("encode key %v: %w", k, err))
		return place{}, false
	}
	if s == nil {
		return place{}, false
	}
	enc := c.buf
	p = s.seek(func(o *pair[K, V]) bool { return o.enc < string(enc) })
	return p, p.block < len(s.list) && s.at(p).p.enc == string(enc)
}

// Get returns the value of k, or the zero V if there is none.
func (m Map[K, V]) Get(k K) V {
	v, _ := m.Lookup(k)
	return v
}

// Lookup returns the value of k and whether there is one.
func (m Map[K, V]) Lookup(k K) (v V, ok bool) {
	c := m.bound()
	s := c.get()
	p, found := c.find(s, k)
	if !found || c.expired(s.at(p).at) {
		return v, false
	}
	e := s.at(p)
	v = e.p.v
	if c.onRead && e.at < c.stamp() && c.set.Change(c.at) != nil {
		e.at = c.stamp() // first stays a bound from below
	}
	return v, true
}

// Put gives k the value v.
func (m Map[K, V]) Put(k K, v V) {
	c := m.bound()
	s := c.get()
	p, found := c.find(s, k)
	if found {
		c.overwrite(s, p, v)
		return
	}
	e := element[pair[K, V]]{p: pair[K, V]{enc: string(c.buf), k: k, v: v}, at: c.stamp()}
	if !c.key.Native {
		var err error // equal keys may differ: what comes out does not depend on which came first
		if e.p.k, _, err = c.key.Decode(c.buf); err != nil {
			c.set.Fail(c.at, fmt.Errorf("decode key %v: %w", k, err))
			return
		}
	}
	if c.isFull() {
		return
	}
	if s = c.change(true); s != nil {
		c.added(s, s.insert(p, e))
	}
}

func (c *mapCell[K, V]) overwrite(s *collection[pair[K, V]], p place, v V) {
	if c.set.Change(c.at) == nil {
		return
	}
	e := &s.own(p.block).e[p.at]
	before := c.sizeOf(&e.p)
	e.p.v, e.at = v, max(e.at, c.stamp())
	if more := c.sizeOf(&e.p) - before; more != 0 {
		s.bytes += more
		c.set.Resized()
		c.full(s.bytes)
	}
}

// Delete removes the value of k.
func (m Map[K, V]) Delete(k K) {
	c := m.bound()
	s := c.get()
	p, found := c.find(s, k)
	if !found || c.change(false) == nil {
		return
	}
	c.removeRange(s, p, s.after(p))
}

// All returns what is in the map now, in the order of the bytes of the encoded keys: what is put or deleted later, also
// while it is read, does not change it.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	all := m.bound().all()
	return func(yield func(K, V) bool) {
		all.each(func(e *element[pair[K, V]]) bool { return yield(e.p.k, e.p.v) })
	}
}

// Len returns the number of keys in the map now.
func (m Map[K, V]) Len() int { return m.bound().length() }

// Clear empties the map.
func (m Map[K, V]) Clear() {
	c := m.bound()
	c.set.Remove(c.at)
}
