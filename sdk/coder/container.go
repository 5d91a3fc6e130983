package coder

import (
	"bytes"
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"unsafe"
)

// Here are the parts of nodes that need the reflect package per value: memory of a type known only
// at run time, maps, and types that marshal themselves.

// allocator returns a function that makes the array of a slice of type t.
func allocator(t reflect.Type) func(n int) unsafe.Pointer {
	elem := t.Elem()
	size := elem.Size()
	switch {
	case size == 0:
		return func(int) unsafe.Pointer { return unsafe.Pointer(&struct{}{}) }
	case !hasPointers(elem):
		// To the collector all memory without pointers is the same; words give the alignment.
		return func(n int) unsafe.Pointer {
			return unsafe.Pointer(unsafe.SliceData(make([]uint64, (uintptr(n)*size+7)/8)))
		}
	case elem.Kind() == reflect.String:
		return func(n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(make([]string, n))) }
	case elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Map:
		return func(n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(make([]unsafe.Pointer, n))) }
	}
	return func(n int) unsafe.Pointer { return reflect.MakeSlice(t, n, n).UnsafePointer() }
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}

// mapScratch is what one append or decode of a map needs; it is pooled, one pool a map type.
type mapScratch struct {
	// m is the map under work. It is here, and not where the caller keeps it, since reflect's iterator
	// points at it, and pointers from the heap into a stack are not adjusted when the stack moves.
	m          unsafe.Pointer
	mv         reflect.Value // the map at m
	key, value reflect.Value // addressable
	iter       reflect.MapIter
	entries    []entry
	sorted     []byte
}

// entry is where one encoded entry is in dst: key [key, value), value [value, end).
type entry struct{ key, value, end int }

func (n *node) getScratch() *mapScratch {
	if s, ok := n.maps.Get().(*mapScratch); ok {
		return s
	}
	s := &mapScratch{key: reflect.New(n.key.typ).Elem(), value: reflect.New(n.elem.typ).Elem()}
	s.mv = reflect.NewAt(n.typ, unsafe.Pointer(&s.m)).Elem()
	return s
}

func (n *node) putScratch(s *mapScratch) {
	s.m = nil
	s.iter.Reset(reflect.Value{})
	s.key.SetZero()
	s.value.SetZero()
	s.entries, s.sorted = s.entries[:0], s.sorted[:0]
	if cap(s.sorted)+cap(s.entries) <= 1<<16 { // one huge map must not hold its memory for ever
		n.maps.Put(s)
	}
}

// appendMap appends the count and the entries in the order of their encoded keys (then values: a map
// may hold several NaNs), so that equal maps have equal bytes.
func (n *node) appendMap(dst []byte, p unsafe.Pointer) ([]byte, error) {
	s := n.getScratch()
	defer n.putScratch(s)
	s.m = *(*unsafe.Pointer)(p)
	dst, err := appendCount(dst, s.mv.Len())
	if err != nil {
		return nil, err
	}
	start := len(dst)
	for s.iter.Reset(s.mv); s.iter.Next(); {
		s.key.SetIterKey(&s.iter)
		s.value.SetIterValue(&s.iter)
		e := entry{key: len(dst)}
		if dst, err = n.key.append(dst, s.key.Addr().UnsafePointer()); err != nil {
			return nil, fmt.Errorf("map key: %w", err)
		}
		e.value = len(dst)
		if dst, err = n.elem.append(dst, s.value.Addr().UnsafePointer()); err != nil {
			return nil, fmt.Errorf("map value: %w", err)
		}
		e.end = len(dst)
		s.entries = append(s.entries, e)
	}
	slices.SortFunc(s.entries, func(a, b entry) int {
		return cmp.Or(
			bytes.Compare(dst[a.key:a.value], dst[b.key:b.value]),
			bytes.Compare(dst[a.value:a.end], dst[b.value:b.end]))
	})
	for _, e := range s.entries {
		s.sorted = append(s.sorted, dst[e.key:e.end]...)
	}
	copy(dst[start:], s.sorted)
	return dst, nil
}

func (n *node) decodeMap(p unsafe.Pointer, src []byte) ([]byte, error) {
	count, rest, err := decodeFixed32(src)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	if count > math.MaxInt32 {
		return nil, fmt.Errorf("count %d is negative", int32(count))
	}
	s := n.getScratch()
	defer n.putScratch(s)
	m := reflect.MakeMapWithSize(n.typ, firstCap(uint64(count), 2*(n.key.size+n.elem.size), len(rest)))
	*(*unsafe.Pointer)(p) = m.UnsafePointer()
	for i := range int(count) {
		s.key.SetZero()
		s.value.SetZero()
		if rest, err = n.key.decode(s.key.Addr().UnsafePointer(), rest); err != nil {
			return nil, fmt.Errorf("map key %d: %w", i, err)
		}
		if rest, err = n.elem.decode(s.value.Addr().UnsafePointer(), rest); err != nil {
			return nil, fmt.Errorf("map value %d: %w", i, err)
		}
		m.SetMapIndex(s.key, s.value)
		if m.Len() != i+1 {
			return nil, fmt.Errorf("map key %d is there twice", i)
		}
	}
	return rest, nil
}

// appendMarshal appends what the value says of itself, after its length. The methods get a copy, for
// they might keep their receiver.
func (n *node) appendMarshal(dst []byte, p unsafe.Pointer) ([]byte, error) {
	v := reflect.New(n.typ)
	v.Elem().Set(reflect.NewAt(n.typ, p).Elem())
	var b []byte
	var err error
	if n.text {
		b, err = v.Interface().(encoding.TextMarshaler).MarshalText()
	} else {
		b, err = v.Interface().(encoding.BinaryMarshaler).MarshalBinary()
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n.typ, err)
	}
	return append(appendVarint(dst, uint64(len(b))), b...), nil
}

func (n *node) decodeMarshal(p unsafe.Pointer, src []byte) ([]byte, error) {
	b, rest, err := cutBytes(src)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n.typ, err)
	}
	v := reflect.New(n.typ)
	if n.text {
		err = v.Interface().(encoding.TextUnmarshaler).UnmarshalText(b)
	} else {
		err = v.Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n.typ, err)
	}
	reflect.NewAt(n.typ, p).Elem().Set(v.Elem())
	return rest, nil
}
