package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/millstream/millstream/internal/eventtime"
)

// collection is a slot of a Bag, Map or OrderedList. It is never empty.
type collection[P any] struct {
	blocks[P]
	bytes int            // of memory, roughly
	first eventtime.Time // no later than at of any element
}

// collectionCell is what the collection cells share. P is what they keep of an element.
type collectionCell[P any] struct {
	base
	fixed  int          // bytes of each element
	heap   func(*P) int // what it refers to; nil: nothing
	encode func(dst []byte, before, p *P) ([]byte, error)
	decode func(src []byte, before *P) (p P, rest []byte, err error)
}

const collectionBytes = 128 // of a slot, about

// get returns what is stored, expired elements too; nil is nothing.
func (c *collectionCell[P]) get() *collection[P] {
	s, _ := c.set.Get(c.at).(*collection[P])
	return s
}

// change returns what is stored in order to change it, nil if that must not be. With make, there is something; the
// caller adds to it.
func (c *collectionCell[P]) change(make bool) *collection[P] {
	slots := c.set.Change(c.at)
	if slots == nil {
		return nil
	}
	s, ok := slots[c.at].(*collection[P])
	if !ok && make {
		s = &collection[P]{bytes: collectionBytes, first: eventtime.Max}
		slots[c.at] = s
	}
	c.set.Resized()
	return s
}

func (c *collectionCell[P]) sizeOf(p *P) int {
	if c.heap == nil {
		return c.fixed
	}
	return c.fixed + c.heap(p)
}

// isFull says that nothing more may be added: the call fails.
func (c *collectionCell[P]) isFull() bool {
	s := c.get()
	return s != nil && c.full(s.bytes)
}

// added notes an element that was added.
func (c *collectionCell[P]) added(s *collection[P], e *element[P]) {
	s.bytes += c.sizeOf(&e.p)
	s.first = min(s.first, e.at)
	c.full(s.bytes)
}

// visible returns what is stored and not expired, as of now; nil is nothing. It is for reads that return the elements for
// which read is true, and refreshes those if reads do.
func (c *collectionCell[P]) visible(read func(*P) bool) *collection[P] {
	s := c.get()
	if s == nil || c.ttl == 0 || !c.onRead && !c.expired(s.first) {
		return s
	}
	if !c.onRead {
		return c.live(s)
	}
	now, left, older := c.stamp(), 0, 0
	s.each(func(e *element[P]) bool {
		if !c.expired(e.at) {
			left++
			if e.at < now && read(&e.p) {
				older++
			}
		}
		return true
	})
	switch {
	case left == 0:
		return nil
	case older == 0 && left == s.n:
		return s
	}
	if s = c.change(false); s == nil {
		return nil
	}
	c.Expire(s, c.set.Now[c.clock])
	s.first = eventtime.Max
	s.each(func(e *element[P]) bool {
		if read(&e.p) {
			e.at = max(e.at, now) // of a shared block too: a snapshot does not look at it
		}
		s.first = min(s.first, e.at)
		return true
	})
	return s
}

// live is a copy of s without what has expired, or nil.
func (c *collectionCell[P]) live(s *collection[P]) *collection[P] {
	out := &collection[P]{}
	s.each(func(e *element[P]) bool {
		if !c.expired(e.at) {
			out.push(*e)
		}
		return true
	})
	if out.n == 0 {
		return nil
	}
	return out
}

// count is the number of elements that have not expired.
func (c *collectionCell[P]) count(s *collection[P]) (n int) {
	switch {
	case s == nil:
		return 0
	case !c.expired(s.first):
		return s.n
	}
	s.each(func(e *element[P]) bool {
		if !c.expired(e.at) {
			n++
		}
		return true
	})
	return n
}

// length is Len.
func (c *collectionCell[P]) length() int { return c.count(c.get()) }

// all is a snapshot of everything.
func (c *collectionCell[P]) all() blocks[P] {
	if s := c.visible(func(*P) bool { return true }); s != nil {
		return s.snapshot()
	}
	return blocks[P]{}
}

// removeRange takes elements away, from one place up to another that is behind it.
func (c *collectionCell[P]) removeRange(s *collection[P], from, to place) {
	for p := from; p != to; p = s.after(p) {
		s.bytes -= c.sizeOf(&s.at(p).p)
	}
	if s.remove(from, to); s.n == 0 {
		c.set.Remove(c.at)
	}
}

// Append implements cell.Codec (docs/format/keyed-state.md).
func (c *collectionCell[P]) Append(dst []byte, slot any) ([]byte, error) {
	s := slot.(*collection[P])
	dst = binary.AppendUvarint(dst, uint64(s.n))
	from := len(dst)
	var at eventtime.Time
	var before *P
	var err error
	s.each(func(e *element[P]) bool {
		if c.ttl > 0 {
			dst = binary.AppendVarint(dst, int64(e.at-at))
			at = e.at
		}
		dst, err = c.encode(dst, before, &e.p)
		before = &e.p
		return err == nil
	})
	if err == nil && s.n > len(dst)-from+mostWithoutBytes {
		err = fmt.Errorf("%d elements of no bytes, of at most %d: count them in a state.Value", s.n, mostWithoutBytes)
	}
	return dst, err
}

// mostWithoutBytes is how many elements a reader makes of nothing.
const mostWithoutBytes = 1 << 16

// Decode implements cell.Codec.
func (c *collectionCell[P]) Decode(src []byte) (any, error) {
	n, w := binary.Uvarint(src)
	if w <= 0 || n == 0 || n > uint64(len(src)-w)+mostWithoutBytes {
		return nil, errors.New("the number of elements is malformed")
	}
	src = src[w:]
	s := &collection[P]{bytes: collectionBytes, first: eventtime.Max}
	var at eventtime.Time
	var before *P
	for i := range n {
		var e element[P]
		var err error
		if c.ttl > 0 {
			at, src, err = decodeTime(src, at)
		}
		if err == nil {
			e.at = at
			e.p, src, err = c.decode(src, before)
		}
		if err != nil {
			return nil, fmt.Errorf("element %d of %d: %w", i, n, err)
		}
		in := s.push(e)
		before = &in.p
		s.bytes += c.sizeOf(before)
		s.first = min(s.first, at)
	}
	if len(src) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(src))
	}
	return s, nil
}

// Size implements cell.Codec.
func (c *collectionCell[P]) Size(slot any) int { return slot.(*collection[P]).bytes }

// First implements cell.Expirer.
func (c *collectionCell[P]) First(slot any) eventtime.Time {
	return slot.(*collection[P]).first.Add(c.ttl)
}

// Expire implements cell.Expirer.
func (c *collectionCell[P]) Expire(slot any, now eventtime.Time) bool {
	s := slot.(*collection[P])
	s.first, s.bytes = eventtime.Max, collectionBytes
	s.filter(func(e *element[P]) bool {
		if e.at.Add(c.ttl) <= now {
			return false
		}
		s.bytes += c.sizeOf(&e.p)
		s.first = min(s.first, e.at)
		return true
	})
	return s.n > 0
}

// elementBytes is what an element takes without what it refers to.
func elementBytes[P any]() int { return int(reflect.TypeFor[element[P]]().Size()) }
