package coder

import (
	"bytes"
	"cmp"
	"encoding/binary"
	goflag "flag"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/testing/seeds"
)

// Random types and values of them, against a naive twin that encodes by reflection and knows nothing
// of nodes. check gives rapid its seeds.

// check is rapid.Check with the seeds of package seeds.
func check(t *testing.T, f func(*rapid.T)) {
	t.Helper()
	seed, runs := seeds.From(t, 100)
	if seeds.Given() && runs == 1 {
		runs = 100 // rapid draws all of them from one seed
	}
	for name, value := range map[string]string{"rapid.seed": strconv.FormatUint(seed, 10), "rapid.checks": strconv.Itoa(runs)} {
		if err := goflag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if t.Failed() {
			t.Log(seeds.RerunMany(t, seed, runs))
		}
	}()
	rapid.Check(t, f)
}

// anyType draws a type of at most this depth; comparable ones only, if asked.
func anyType(t *rapid.T, depth int, comparable bool) reflect.Type {
	leaves := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](),
		reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[uint](), reflect.TypeFor[uint8](),
		reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](),
		reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[time.Time](), reflect.TypeFor[digest](),
		reflect.TypeFor[symbol](), reflect.TypeFor[level](), reflect.TypeFor[KV[string, int64]](),
		reflect.TypeFor[KV[float32, [2]float64]](),
	}
	if !comparable {
		leaves = append(leaves, reflect.TypeFor[[]byte]())
	}
	kinds := []string{"leaf", "array", "struct", "struct"}
	if !comparable {
		kinds = append(kinds, "slice", "map", "pointer")
	}
	if depth == 0 {
		kinds = kinds[:1]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "array":
		return reflect.ArrayOf(rapid.IntRange(0, 3).Draw(t, "length"), anyType(t, depth-1, comparable))
	case "slice":
		return reflect.SliceOf(anyType(t, depth-1, false))
	case "map":
		return reflect.MapOf(anyType(t, depth-1, true), anyType(t, depth-1, false))
	case "pointer":
		return reflect.PointerTo(anyType(t, depth-1, false))
	case "struct":
		var fs []reflect.StructField
		for i := range rapid.IntRange(0, 10).Draw(t, "fields") {
			fs = append(fs, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: anyType(t, depth-1, comparable)})
		}
		return reflect.StructOf(fs)
	}
	return rapid.SampledFrom(leaves).Draw(t, "leaf")
}

// fill gives v a random value. Nil slices and maps are drawn only where they come back nil.
func fill(t *rapid.T, v reflect.Value, inStruct bool) {
	if v.Type() == timeType {
		sec, nsec := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "sec"), rapid.Int64Range(0, 1e9-1).Draw(t, "nsec")
		v.Set(reflect.ValueOf(time.Unix(sec, nsec).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		shift := 64 - v.Type().Bits()
		v.SetInt(rapid.Int64().Draw(t, "int") << shift >> shift)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		shift := 64 - v.Type().Bits()
		v.SetUint(rapid.Uint64().Draw(t, "uint") << shift >> shift)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1)})).Draw(t, "float"))
	case reflect.String:
		v.SetString(string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "string")))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "present") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), false)
		}
	case reflect.Slice:
		if inStruct && rapid.Bool().Draw(t, "nil") {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 4).Draw(t, "n"), 4))
		for i := range v.Len() {
			fill(t, v.Index(i), false)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), false)
		}
	case reflect.Map:
		if inStruct && rapid.Bool().Draw(t, "nil") {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, k, false)
			fill(t, e, false)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), !isKV(v.Type()))
		}
	default:
		t.Fatalf("no values of %v", v.Type())
	}
}

// naive is docs/format/coders.md once more, as simply as it can be said.
func naive(v reflect.Value, key bool) []byte {
	list := func(parts ...[]byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(parts))), bytes.Join(parts, nil)...)
	}
	prefixed := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	if v.Type() == timeType {
		at := v.Interface().(time.Time)
		return binary.AppendUvarint(binary.AppendUvarint([]byte{2, 0}, uint64(at.Unix())), uint64(at.Nanosecond()))
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return []byte{1}
		}
		return []byte{0}
	case reflect.Uint8:
		return []byte{byte(v.Uint())}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendUvarint(nil, uint64(v.Int()))
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(nil, v.Uint())
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		if key && math.IsNaN(f) {
			f = math.Float64frombits(0x7ff8000000000000)
		}
		if key {
			f += 0 // -0 + 0 is 0
		}
		if v.Kind() == reflect.Float32 {
			return binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(f)))
		}
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(f))
	case reflect.String:
		return prefixed([]byte(v.String()))
	case reflect.Pointer:
		if v.IsNil() {
			return []byte{0}
		}
		return append([]byte{1}, naive(v.Elem(), key)...)
	case reflect.Slice, reflect.Array:
		var parts [][]byte
		for i := range v.Len() {
			parts = append(parts, naive(v.Index(i), key))
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return prefixed(bytes.Join(parts, nil))
		}
		return list(parts...)
	case reflect.Map:
		var parts [][2]string
		for k, e := range v.Seq2() {
			parts = append(parts, [2]string{string(naive(k, key)), string(naive(e, key))})
		}
		sort.Slice(parts, func(i, j int) bool { return slices.Compare(parts[i][:], parts[j][:]) < 0 })
		var flat [][]byte
		for _, p := range parts {
			flat = append(flat, []byte(p[0]+p[1]))
		}
		return list(flat...)
	}
	if isKV(v.Type()) {
		return append(naive(v.Field(0), key), naive(v.Field(1), key)...)
	}
	var nulls, body []byte
	for i := range v.NumField() {
		f := v.Field(i)
		switch k := f.Kind(); {
		case (k == reflect.Pointer || k == reflect.Slice || k == reflect.Map) && f.IsNil():
			for len(nulls) <= i/8 {
				nulls = append(nulls, 0)
			}
			nulls[i/8] |= 1 << (i % 8)
		case k == reflect.Pointer:
			body = append(body, naive(f.Elem(), key)...)
		default:
			body = append(body, naive(f, key)...)
		}
	}
	return append(append(binary.AppendUvarint(nil, uint64(v.NumField())), prefixed(nulls)...), body...)
}

// equalValues compares as a coder must: NaN is NaN, and nil is not empty.
var equalValues = gocmp.Options{
	cmpopts.EquateNaNs(),
	// Go forgets the bits of a NaN key, and so cmp cannot look it up: maps with one are told by their bytes.
	gocmp.FilterValues(func(a, b any) bool { return hasNaNKey(a) || hasNaNKey(b) }, gocmp.Comparer(func(a, b any) bool {
		return bytes.Equal(naive(reflect.ValueOf(a), false), naive(reflect.ValueOf(b), false))
	})),
}

func hasNaNKey(m any) bool {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Map {
		return false
	}
	for k := range v.Seq() {
		if !v.MapIndex(k).IsValid() {
			return true
		}
	}
	return false
}

func TestRandomTypesRoundTripAndAgreeWithTheNaiveEncoder(t *testing.T) {
	kinds := map[string]int{}
	check(t, func(t *rapid.T) {
		typ := anyType(t, 3, false)
		kinds[typ.Kind().String()]++
		n, err := compileCached(typ, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.New(typ)
		fill(t, v.Elem(), false)
		b, err := n.append([]byte("head"), v.UnsafePointer())
		if err != nil {
			t.Fatal(err)
		}
		if want := naive(v.Elem(), false); string(b) != "head"+string(want) {
			t.Fatalf("%v %+v\n got %x\nwant %x", typ, v.Elem(), b[4:], want)
		}
		got := reflect.New(typ)
		rest, err := n.decode(got.UnsafePointer(), append(b[4:], "tail"...))
		if err != nil || string(rest) != "tail" {
			t.Fatalf("decode leaves %q, error %v", rest, err)
		}
		if d := gocmp.Diff(v.Elem().Interface(), got.Elem().Interface(), equalValues); d != "" {
			t.Fatalf("%v (-want +got):\n%s", typ, d)
		}
		again, err := n.append(nil, got.UnsafePointer())
		if err != nil || !bytes.Equal(again, b[4:]) {
			t.Fatalf("encoded again: %x, %v; first %x", again, err, b[4:])
		}
	})
	t.Logf("types: %v", kinds)
}

func TestRandomTypesRefuseDamagedBytesWithoutPanic(t *testing.T) {
	check(t, func(t *rapid.T) {
		typ := anyType(t, 3, false)
		n, err := compileCached(typ, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.New(typ)
		fill(t, v.Elem(), false)
		b, err := n.append(nil, v.UnsafePointer())
		if err != nil {
			t.Fatal(err)
		}
		for cut := range b { // every proper prefix is an error: encodings are self-delimiting
			if _, err := n.decode(reflect.New(typ).UnsafePointer(), b[:cut]); err == nil {
				t.Fatalf("%v: %d bytes of %x decode without error", typ, cut, b)
			}
		}
		for range min(len(b), 20) {
			i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			old := b[i]
			b[i] = rapid.Byte().Draw(t, "byte")
			got := reflect.New(typ)
			if rest, err := n.decode(got.UnsafePointer(), b); err == nil {
				if len(rest) > len(b) {
					t.Fatalf("%v: %d bytes left of %d", typ, len(rest), len(b))
				}
				if _, err := n.append(nil, got.UnsafePointer()); err != nil {
					t.Fatalf("%v: what was decoded cannot be encoded: %v", typ, err)
				}
			}
			b[i] = old
		}
	})
}

// Two keys that differ only in what keys ignore have the same bytes, and Native means Go's ==.
func TestRandomKeysAreEqualIfTheirBytesAre(t *testing.T) {
	native := 0
	check(t, func(t *rapid.T) {
		typ := anyType(t, 3, true)
		n, err := compileCached(typ, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		a, b := reflect.New(typ), reflect.New(typ)
		fill(t, a.Elem(), false)
		if rapid.Bool().Draw(t, "another") {
			fill(t, b.Elem(), false)
		} else {
			b.Elem().Set(a.Elem())
		}
		ab, err := n.append(nil, a.UnsafePointer())
		if err != nil || !bytes.Equal(ab, naive(a.Elem(), true)) {
			t.Fatalf("%v %+v = %x, %v; want %x", typ, a.Elem(), ab, err, naive(a.Elem(), true))
		}
		bb, err := n.append(nil, b.UnsafePointer())
		if err != nil {
			t.Fatal(err)
		}
		if n.native {
			native++
			if same := a.Elem().Interface() == b.Elem().Interface(); same != bytes.Equal(ab, bb) {
				t.Fatalf("%v: %+v and %+v: == is %v, bytes %x and %x", typ, a.Elem(), b.Elem(), same, ab, bb)
			}
		}
		got := reflect.New(typ)
		if _, err := n.decode(got.UnsafePointer(), ab); err != nil {
			t.Fatal(err)
		}
		if again, err := n.append(nil, got.UnsafePointer()); err != nil || !bytes.Equal(again, ab) {
			t.Fatalf("%v: %x came back as %x, %v", typ, ab, again, err)
		}
	})
	if native == 0 {
		t.Error("no native type was drawn")
	}
}

func TestEqualMapsHaveEqualBytes(t *testing.T) {
	c := must(Of[map[string]map[int]string]())(t)
	check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.MapOf(rapid.Int(), rapid.String())).Draw(t, "map")
		other := map[string]map[int]string{}
		for _, k := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return -cmp.Compare(a, b) }) {
			other[k] = maps.Clone(m[k])
		}
		a, err := c.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := c.Append(nil, other); err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%x and %x, error %v", a, b, err)
		}
	})
}

// A Go map may hold many NaNs, which no order of keys tells apart.
func TestMapsWithNaNKeysHaveEqualBytes(t *testing.T) {
	c := must(Of[map[float64]int]())(t)
	var first []byte
	for i := range 20 {
		m := map[float64]int{}
		for j := range 10 {
			m[math.NaN()] = (i + j) % 10 // the same entries, in another order each time
		}
		b, err := c.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if !bytes.Equal(b, first) {
			t.Fatalf("%x, then %x", first, b)
		}
		got, _, err := c.Decode(b)
		if err != nil || len(got) != 10 {
			t.Fatalf("%v, error %v", got, err)
		}
	}
}
