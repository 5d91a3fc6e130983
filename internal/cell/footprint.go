package cell

import (
	"reflect"
	"unsafe"
)

// Footprint returns a function that estimates the bytes that values of A refer to, for the books of what state takes: memory of
// strings, slices, maps and pointers. It is nil if there are none. What is behind an interface, a channel or a function
// counts as 16 bytes, and of a long slice a few elements stand for all, so that its cost does not grow with the value.
func Footprint[A any]() func(*A) int {
	f := footprint(reflect.TypeFor[A](), nil)
	if f == nil {
		return nil
	}
	return func(a *A) int { return f(unsafe.Pointer(a)) }
}

// sampled is the number of elements of a slice that are looked at.
const sampled = 4

// footprint compiles the function for values of t. within are the types that it is part of: a type that refers to
// itself counts as 16 bytes there.
func footprint(t reflect.Type, within []reflect.Type) func(unsafe.Pointer) int {
	for _, w := range within {
		if w == t {
			return func(unsafe.Pointer) int { return 16 }
		}
	}
	within = append(within[:len(within):len(within)], t)
	switch t.Kind() {
	case reflect.String:
		return func(p unsafe.Pointer) int { return len(*(*string)(p)) }
	case reflect.Slice:
		size, elem := t.Elem().Size(), footprint(t.Elem(), within)
		return func(p unsafe.Pointer) int {
			s := *(*[]byte)(p) // length and capacity count elements
			n := cap(s) * int(size)
			if elem == nil || len(s) == 0 {
				return n
			}
			some := min(len(s), sampled)
			sum := 0
			for i := range some {
				sum += elem(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), uintptr(i*len(s)/some)*size))
			}
			return n + sum*len(s)/some
		}
	case reflect.Map:
		// A value in a map has no address: what keys and values refer to counts as 16 bytes each.
		entry := int(t.Key().Size()+t.Elem().Size()) + 16
		for _, part := range []reflect.Type{t.Key(), t.Elem()} {
			if footprint(part, within) != nil {
				entry += 16
			}
		}
		return func(p unsafe.Pointer) int { return reflect.NewAt(t, p).Elem().Len() * entry }
	case reflect.Pointer:
		size, elem := int(t.Elem().Size()), footprint(t.Elem(), within)
		return func(p unsafe.Pointer) int {
			to := *(*unsafe.Pointer)(p)
			switch {
			case to == nil:
				return 0
			case elem == nil:
				return size
			}
			return size + elem(to)
		}
	case reflect.Array:
		elem := footprint(t.Elem(), within)
		if elem == nil || t.Len() == 0 {
			return nil
		}
		n, size := t.Len(), t.Elem().Size()
		return func(p unsafe.Pointer) (sum int) {
			for i := range n {
				sum += elem(unsafe.Add(p, uintptr(i)*size))
			}
			return sum
		}
	case reflect.Struct:
		type field struct {
			offset uintptr
			f      func(unsafe.Pointer) int
		}
		var fields []field
		for i := range t.NumField() {
			if f := footprint(t.Field(i).Type, within); f != nil {
				fields = append(fields, field{t.Field(i).Offset, f})
			}
		}
		if fields == nil {
			return nil
		}
		return func(p unsafe.Pointer) (sum int) {
			for _, f := range fields {
				sum += f.f(unsafe.Add(p, f.offset))
			}
			return sum
		}
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return func(unsafe.Pointer) int { return 16 }
	}
	return nil
}
