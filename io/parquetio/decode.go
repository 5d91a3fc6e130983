package parquetio

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"
)

// decoder turns the values of a page, or of a dictionary, into Go's.
type decoder[G any] interface {
	// load takes n values; they are valid until the page is released.
	load(v encoding.Values, n int) error
	// decode stores values [from, to) at dst. On an error it returns how many it had stored.
	decode(dst strided[G], from, to int) (int, error)
}

// strided is memory that holds a G every step bytes: one field of a slice of structs.
type strided[G any] struct {
	p    unsafe.Pointer // of the first; never moved on, for behind the last it would point to other memory
	skip int            // Gs that come before element 0
	step uintptr
}

func sliceOf[G any](s []G) strided[G] {
	return strided[G]{unsafe.Pointer(unsafe.SliceData(s)), 0, unsafe.Sizeof(*new(G))}
}

func (s strided[G]) at(i int) *G { return (*G)(unsafe.Add(s.p, uintptr(s.skip+i)*s.step)) }

func (s strided[G]) from(i int) strided[G] { return strided[G]{s.p, s.skip + i, s.step} }

// fixed decodes values of one size by a conversion.
type fixed[V, G any] struct {
	of   func(encoding.Values) []V
	to   func(V) (G, error)
	vals []V
}

func (d *fixed[V, G]) load(v encoding.Values, n int) error {
	d.vals = d.of(v)
	return enough(len(d.vals), n)
}

func (d *fixed[V, G]) decode(dst strided[G], from, to int) (int, error) {
	for i, v := range d.vals[from:to] {
		g, err := d.to(v)
		if err != nil {
			return i, err
		}
		*dst.at(i) = g
	}
	return to - from, nil
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// ints decodes integers and checks that they fit.
type ints[V, G integer] struct {
	of   func(encoding.Values) []V
	vals []V
}

func (d *ints[V, G]) load(v encoding.Values, n int) error {
	d.vals = d.of(v)
	return enough(len(d.vals), n)
}

func (d *ints[V, G]) decode(dst strided[G], from, to int) (int, error) {
	for i, v := range d.vals[from:to] {
		g := G(v)
		if V(g) != v || (g < 0) != (v < 0) {
			return i, fmt.Errorf("%d does not fit into a %T", v, g)
		}
		*dst.at(i) = g
	}
	return to - from, nil
}

// bools decodes bits.
type bools struct{ bits []byte }

func (d *bools) load(v encoding.Values, n int) error {
	d.bits = v.Boolean()
	return enough(8*len(d.bits), n)
}

func (d *bools) decode(dst strided[bool], from, to int) (int, error) {
	for i := from; i < to; i++ {
		*dst.at(i - from) = d.bits[i/8]>>(i%8)&1 != 0
	}
	return to - from, nil
}

// byteStrings decodes strings of bytes, of any length or of one.
type byteStrings[G any] struct {
	to      func(*arena, []byte) G
	data    []byte
	offsets []uint32 // value i is data[offsets[i]:offsets[i+1]]; nil if all have length
	length  int
	arena   arena
}

func (d *byteStrings[G]) load(v encoding.Values, n int) error {
	if v.Kind() == encoding.FixedLenByteArray {
		d.data, d.length = v.FixedLenByteArray()
		d.offsets = nil
		if d.length <= 0 {
			return fmt.Errorf("the file is damaged: values of %d bytes", d.length)
		}
		return enough(len(d.data)/d.length, n)
	}
	d.data, d.offsets = v.ByteArray()
	return enough(len(d.offsets)-1, n)
}

func (d *byteStrings[G]) decode(dst strided[G], from, to int) (int, error) {
	if d.offsets == nil {
		for i := from; i < to; i++ {
			*dst.at(i - from) = d.to(&d.arena, d.data[i*d.length:(i+1)*d.length])
		}
		return to - from, nil
	}
	for i := from; i < to; i++ {
		start, end := d.offsets[i], d.offsets[i+1]
		if start > end || int64(end) > int64(len(d.data)) {
			return i - from, fmt.Errorf("the file is damaged: a value at bytes [%d, %d) of %d", start, end, len(d.data))
		}
		*dst.at(i - from) = d.to(&d.arena, d.data[start:end])
	}
	return to - from, nil
}

// arena copies short strings into blocks, one allocation for many. A block lives as long as one of its
// strings is kept, so it is small: a key that stays in state for days holds arenaBlock bytes, not a page.
type arena struct{ free []byte }

const arenaBlock = 1024

func (a *arena) bytes(b []byte) []byte {
	if len(b) > len(a.free) {
		if len(b) > arenaBlock/4 {
			return append(make([]byte, 0, len(b)), b...)
		}
		a.free = make([]byte, arenaBlock)
	}
	out := a.free[:len(b):len(b)]
	a.free = a.free[len(b):]
	copy(out, b)
	return out
}

func (a *arena) string(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	c := a.bytes(b)
	return unsafe.String(unsafe.SliceData(c), len(c)) // nobody else has the bytes
}

func enough(have, want int) error {
	if have < want {
		return fmt.Errorf("the file is damaged: a page of %d values has %d", want, have)
	}
	return nil
}

type int96 = deprecated.Int96

func int32s(v encoding.Values) []int32     { return v.Int32() }
func int64s(v encoding.Values) []int64     { return v.Int64() }
func uint32s(v encoding.Values) []uint32   { return v.Uint32() }
func uint64s(v encoding.Values) []uint64   { return v.Uint64() }
func int96s(v encoding.Values) []int96     { return v.Int96() }
func float32s(v encoding.Values) []float32 { return v.Float() }
func float64s(v encoding.Values) []float64 { return v.Double() }

func same[V any](v V) (V, error)        { return v, nil }
func widen(v float32) (float64, error)  { return float64(v), nil }
func micros(v int64) (time.Time, error) { return time.UnixMicro(v).UTC(), nil }
func millis(v int64) (time.Time, error) { return time.UnixMilli(v).UTC(), nil }
func nanos(v int64) (time.Time, error)  { return time.Unix(0, v).UTC(), nil }
func dateOf(v int32) (time.Time, error) { return time.Unix(int64(v)*(24*60*60), 0).UTC(), nil }

// timeOf96 reads the timestamps of old Impala, Hive and Spark: nanoseconds of the day, then the Julian day.
func timeOf96(v int96) (time.Time, error) {
	const julianDayOfEpoch = 2440588
	nanos := int64(uint64(v[1])<<32 | uint64(v[0]))
	if nanos < 0 || nanos >= int64(24*time.Hour) {
		return time.Time{}, fmt.Errorf("an INT96 of %d nanoseconds is not a time of day", nanos)
	}
	day := int64(int32(v[2])) - julianDayOfEpoch
	return time.Unix(day*(24*60*60), nanos).UTC(), nil
}

// timeOf64 returns the conversion of a timestamp column, or nil if it is none.
func timeOf64(t parquet.Type) func(int64) (time.Time, error) {
	l := t.LogicalType()
	if l == nil || t.Kind() != parquet.Int64 {
		return nil
	}
	ts, ok := l.Value.(*format.TimestampType)
	if !ok {
		return nil
	}
	switch ts.Unit.Value.(type) {
	case *format.MilliSeconds:
		return millis
	case *format.MicroSeconds:
		return micros
	case *format.NanoSeconds:
		return nanos
	}
	return nil
}

func isDate(t parquet.Type) bool {
	l := t.LogicalType()
	if l == nil || t.Kind() != parquet.Int32 {
		return false
	}
	_, ok := l.Value.(*format.DateType)
	return ok
}
