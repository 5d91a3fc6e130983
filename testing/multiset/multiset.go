// Package multiset compares collections whose order means nothing.
package multiset

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	gocmp "github.com/google/go-cmp/cmp"
)

// Diff tells how got differs from want in other than order, for people, or returns "". Values are the same
// if encode gives the same bytes for them.
func Diff[T any](encode func(T) ([]byte, error), want, got []T) (string, error) {
	count := map[string]int{}
	for i, vs := range [][]T{want, got} {
		for _, v := range vs {
			b, err := encode(v)
			if err != nil {
				return "", fmt.Errorf("encode %+v: %w", v, err)
			}
			count[string(b)] += 1 - 2*i
		}
	}
	same := true
	for _, n := range count {
		same = same && n == 0
	}
	if same {
		return "", nil
	}
	want, got = append([]T{}, want...), append([]T{}, got...)
	Sort(want)
	Sort(got)
	d := gocmp.Diff(want, got, gocmp.Exporter(func(reflect.Type) bool { return true }))
	if d == "" { // different encodings of what cmp calls equal
		d = fmt.Sprintf("-%+v\n+%+v\n", want, got)
	}
	return d, nil
}

// Sort brings values into an order that is the same for the same values: see Compare.
func Sort[T any](vs []T) { slices.SortStableFunc(vs, Compare[T]) }

// Compare orders values of one type: by their own Compare method if they have one, numbers and strings as
// usual, false before true, nil before anything, structs by their fields in order, slices and arrays by
// their elements, and all else as it is printed.
func Compare[T any](a, b T) int {
	return compare(reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
}

func compare(a, b reflect.Value) int {
	if a.CanInterface() {
		if m := a.MethodByName("Compare"); m.IsValid() {
			if t := m.Type(); t.NumIn() == 1 && t.In(0) == b.Type() && t.NumOut() == 1 && t.Out(0) == reflect.TypeFor[int]() {
				return int(m.Call([]reflect.Value{b})[0].Int())
			}
		}
	}
	switch a.Kind() {
	case reflect.Bool:
		return cmp.Compare(rank(a.Bool()), rank(b.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return cmp.Compare(a.Int(), b.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return cmp.Compare(a.Uint(), b.Uint())
	case reflect.Float32, reflect.Float64:
		return cmp.Compare(a.Float(), b.Float())
	case reflect.String:
		return cmp.Compare(a.String(), b.String())
	case reflect.Struct:
		for i := range a.NumField() {
			if c := compare(a.Field(i), b.Field(i)); c != 0 {
				return c
			}
		}
		return 0
	case reflect.Array, reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if c := compare(a.Index(i), b.Index(i)); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.Len(), b.Len())
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return cmp.Compare(rank(!a.IsNil()), rank(!b.IsNil()))
		}
		return compare(a.Elem(), b.Elem())
	}
	return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}
