package coder

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// unknownLength is the count that announces chunks (Beam's fixed32(-1)).
const unknownLength = math.MaxUint32

// IterableOf is beam:coder:iterable:v1: a fixed32 count, then the elements. Decode also reads the
// form of unknown length that UnknownLengthIterableOf writes. Nil comes back as empty.
func IterableOf[T any](elem Coder[T]) Coder[[]T] { return iterableCoder[T]{list[T]{elem}, false} }

// UnknownLengthIterableOf is beam:coder:iterable:v1 as written by those who do not know the length
// beforehand: fixed32(-1), then chunks, each a varint count and that many elements, then 00. Append
// writes one chunk. It reads both forms, as IterableOf does.
func UnknownLengthIterableOf[T any](elem Coder[T]) Coder[[]T] {
	return iterableCoder[T]{list[T]{elem}, true}
}

type iterableCoder[T any] struct {
	list[T]
	chunked bool
}

func (c iterableCoder[T]) Append(dst []byte, v []T) (out []byte, err error) {
	if !c.chunked {
		return c.appendKnown(dst, v)
	}
	if out, err = c.appendChunk(dst, v); err != nil {
		return dst, err
	}
	return append(out, 0), nil
}

func (c iterableCoder[T]) Decode(src []byte) ([]T, []byte, error) {
	s, rest, err := c.list.decode(src, false)
	return s.Elements, rest, err
}

func (c iterableCoder[T]) Spec() Spec { return c.list.spec(urnIterable) }

// StateBacked is an iterable of which only the beginning is at hand.
type StateBacked[T any] struct {
	Elements []T
	// Token says where the remaining elements are; it is opaque. Nil if there are none.
	Token []byte
}

// StateBackedIterableOf is beam:coder:state_backed_iterable:v1: an iterable, whose form of unknown
// length may end in varint(-1) and a token instead of 00.
func StateBackedIterableOf[T any](elem Coder[T]) Coder[StateBacked[T]] {
	return stateBackedCoder[T]{list[T]{elem}}
}

type stateBackedCoder[T any] struct{ list[T] }

func (c stateBackedCoder[T]) Append(dst []byte, v StateBacked[T]) ([]byte, error) {
	if v.Token == nil {
		return c.appendKnown(dst, v.Elements)
	}
	out, err := c.appendChunk(dst, v.Elements)
	if err != nil {
		return dst, err
	}
	out = appendVarint(out, math.MaxUint64) // varint(-1)
	return append(appendVarint(out, uint64(len(v.Token))), v.Token...), nil
}

func (c stateBackedCoder[T]) Decode(src []byte) (StateBacked[T], []byte, error) {
	return c.list.decode(src, true)
}

func (c stateBackedCoder[T]) Spec() Spec { return c.list.spec(urnStateBackedIterable) }

// list is what the iterable coders share.
type list[T any] struct{ elem Coder[T] }

func (c list[T]) spec(urn string) Spec { return Spec{URN: urn, Components: []Spec{SpecOf(c.elem)}} }

func (c list[T]) appendKnown(dst []byte, v []T) ([]byte, error) {
	out, err := appendCount(dst, len(v))
	if err != nil {
		return dst, err
	}
	if out, err = c.appendElements(out, v); err != nil {
		return dst, err
	}
	return out, nil
}

// appendChunk appends fixed32(-1) and v as one chunk, without an end.
func (c list[T]) appendChunk(dst []byte, v []T) ([]byte, error) {
	out := append(dst, 0xff, 0xff, 0xff, 0xff)
	if len(v) == 0 {
		return out, nil // a chunk of none would be the end
	}
	out, err := c.appendElements(appendVarint(out, uint64(len(v))), v)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (c list[T]) appendElements(dst []byte, v []T) (_ []byte, err error) {
	zeroes := 0
	for i := range v {
		n := len(dst)
		if dst, err = c.elem.Append(dst, v[i]); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if len(dst) == n {
			if zeroes++; zeroes > maxZeroWidth {
				return nil, errZeroWidth
			}
		}
	}
	return dst, nil
}

var errZeroWidth = fmt.Errorf("more than %d elements of no bytes", maxZeroWidth)

func (c list[T]) decode(src []byte, tokens bool) (v StateBacked[T], rest []byte, err error) {
	count, rest, err := decodeFixed32(src)
	if err != nil {
		return v, nil, fmt.Errorf("decode iterable: count: %w", err)
	}
	d := listDecoder[T]{elem: c.elem, out: []T{}, rest: rest}
	if count != unknownLength {
		if count > math.MaxInt32 {
			return v, nil, fmt.Errorf("decode iterable: count %d is negative", int32(count))
		}
		if err := d.read(uint64(count)); err != nil {
			return v, nil, fmt.Errorf("decode iterable: %w", err)
		}
		return StateBacked[T]{Elements: d.out}, d.rest, nil
	}
	for {
		n, rest, err := decodeVarint(d.rest)
		if err != nil {
			return v, nil, fmt.Errorf("decode iterable: chunk: %w", err)
		}
		d.rest = rest
		switch {
		case n == 0:
			return StateBacked[T]{Elements: d.out}, d.rest, nil
		case n == math.MaxUint64 && tokens:
			token, rest, err := Bytes().Decode(d.rest)
			if err != nil {
				return v, nil, fmt.Errorf("decode iterable: token: %w", err)
			}
			return StateBacked[T]{Elements: d.out, Token: token}, rest, nil
		case n > math.MaxInt64:
			return v, nil, fmt.Errorf("decode iterable: chunk of %d elements", int64(n))
		}
		if err := d.read(n); err != nil {
			return v, nil, fmt.Errorf("decode iterable: %w", err)
		}
	}
}

// listDecoder collects the elements of one iterable over its chunks.
type listDecoder[T any] struct {
	elem   Coder[T]
	out    []T
	rest   []byte
	zeroes int // elements so far that took no bytes
}

func (d *listDecoder[T]) read(count uint64) error {
	var zero T
	d.out = slices.Grow(d.out, firstCap(count, unsafe.Sizeof(zero), len(d.rest)))
	for range count {
		v, rest, err := d.elem.Decode(d.rest)
		if err != nil {
			return fmt.Errorf("element %d: %w", len(d.out), err)
		}
		if len(rest) == len(d.rest) {
			if d.zeroes++; d.zeroes > maxZeroWidth {
				return errZeroWidth
			}
		}
		d.out, d.rest = append(d.out, v), rest
	}
	return nil
}
