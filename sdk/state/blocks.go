package state

import (
	"slices"
	"sort"

	"github.com/millstream/millstream/internal/eventtime"
)

// blocks is a list in pieces of at most blockMax elements, so that a change in its midst moves few, and so that a
// snapshot of it is cheap: it shares the pieces, and whoever changes one that is shared copies it first.
//
//	list     [ a b c ] [ d e f g ] [ h i ]        no piece is empty
//	snapshot  shared    shared      shared
type blocks[P any] struct {
	list []block[P]
	n    int // elements
}

type block[P any] struct {
	e      []element[P]
	shared bool // with a snapshot: appending to e is all that may be done
}

// element is one element of a collection cell.
type element[P any] struct {
	p  P
	at eventtime.Time // when it was written or, with OnReadAndWrite, read last; 0 without a TTL
}

const blockMax = 128

// place is the position of an element, or the end: {len(list), 0}.
type place struct{ block, at int }

// snapshot is the list as of now, whatever happens to b. It is only read.
func (b *blocks[P]) snapshot() blocks[P] {
	for i := range b.list {
		b.list[i].shared = true
	}
	return blocks[P]{slices.Clone(b.list), b.n}
}

// own makes the elements of a block changeable.
func (b *blocks[P]) own(i int) *block[P] {
	k := &b.list[i]
	if k.shared {
		k.e, k.shared = append(make([]element[P], 0, len(k.e)+1), k.e...), false
	}
	return k
}

func (b *blocks[P]) at(p place) *element[P] { return &b.list[p.block].e[p.at] }

// seek returns the place of the first element that is not before what is looked for. All that are stand in front.
func (b *blocks[P]) seek(before func(*P) bool) place {
	i := 0
	if len(b.list) > 1 {
		i = sort.Search(len(b.list), func(i int) bool { return !before(&b.list[i].e[len(b.list[i].e)-1].p) })
		if i == len(b.list) {
			return place{i, 0}
		}
	} else if len(b.list) == 0 {
		return place{}
	}
	e := b.list[i].e
	lo, hi := 0, len(e)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); before(&e[mid].p) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(e) {
		return place{i + 1, 0}
	}
	return place{i, lo}
}

// push adds an element at the end, and returns where it is until the next change.
func (b *blocks[P]) push(e element[P]) *element[P] {
	last := len(b.list) - 1
	if last < 0 || len(b.list[last].e) >= blockMax {
		b.list = append(b.list, block[P]{})
		last++
	}
	k := &b.list[last]
	k.e = append(k.e, e) // behind what a snapshot sees
	b.n++
	return &k.e[len(k.e)-1]
}

// insert puts an element in front of the one at p, and returns where it is until the next change.
func (b *blocks[P]) insert(p place, e element[P]) *element[P] {
	if p.block == len(b.list) {
		return b.push(e)
	}
	k := b.own(p.block)
	k.e = slices.Insert(k.e, p.at, e)
	b.n++
	if len(k.e) <= blockMax {
		return &k.e[p.at]
	}
	half := len(k.e) / 2
	back := block[P]{e: slices.Clone(k.e[half:])}
	clear(k.e[half:])
	k.e = k.e[:half]
	b.list = slices.Insert(b.list, p.block+1, back)
	if p.at >= half {
		p = place{p.block + 1, p.at - half}
	}
	return b.at(p)
}

// remove takes the elements from one place up to another away.
func (b *blocks[P]) remove(from, to place) {
	if from.block == to.block {
		b.cut(from.block, from.at, to.at)
	} else {
		if to.block < len(b.list) {
			b.cut(to.block, 0, to.at)
		}
		b.cut(from.block, from.at, len(b.list[from.block].e))
		for i := from.block + 1; i < to.block; i++ {
			b.n -= len(b.list[i].e)
		}
		b.list = slices.Delete(b.list, from.block+1, to.block)
	}
	// What is left at the seam may be empty, or so little that it joins its neighbour.
	for i := min(from.block+1, len(b.list)-1); i >= max(from.block-1, 0); i-- {
		switch {
		case len(b.list[i].e) == 0:
			b.list = slices.Delete(b.list, i, i+1)
		case i+1 < len(b.list) && len(b.list[i].e)+len(b.list[i+1].e) <= blockMax/2:
			k := b.own(i)
			k.e = append(k.e, b.list[i+1].e...)
			b.list = slices.Delete(b.list, i+1, i+2)
		}
	}
}

// cut takes elements out of one block.
func (b *blocks[P]) cut(i, from, to int) {
	if from == to {
		return
	}
	k := b.own(i)
	k.e = slices.Delete(k.e, from, to)
	b.n -= to - from
}

// after is the place behind the element at p.
func (b *blocks[P]) after(p place) place {
	if p.at++; p.at == len(b.list[p.block].e) {
		return place{p.block + 1, 0}
	}
	return p
}

// filter keeps some elements. Snapshots keep theirs.
func (b *blocks[P]) filter(keep func(*element[P]) bool) {
	var out blocks[P]
	for _, k := range b.list {
		for i := range k.e {
			if keep(&k.e[i]) {
				out.push(k.e[i])
			}
		}
	}
	*b = out
}

// slice is a snapshot of the elements from one place up to another.
func (b *blocks[P]) slice(from, to place) blocks[P] {
	s := b.snapshot()
	if to.block < len(s.list) {
		s.list[to.block].e = s.list[to.block].e[:to.at]
		s.list = s.list[:to.block+1]
	}
	if from.block < len(s.list) {
		s.list[from.block].e = s.list[from.block].e[from.at:]
	}
	s.list = s.list[min(from.block, len(s.list)):]
	s.n = 0
	for _, k := range s.list {
		s.n += len(k.e)
	}
	return s
}

// each visits all elements until visit returns false.
func (b *blocks[P]) each(visit func(*element[P]) bool) {
	for i := range b.list {
		for j := range b.list[i].e {
			if !visit(&b.list[i].e[j]) {
				return
			}
		}
	}
}
