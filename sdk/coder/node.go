package coder

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"time"
	"unsafe"
)

// A node is what Of made of one type: how to append the value at an address, and how to decode into
// an address. Nodes form a tree as types do, and are never changed once compiled.
//
// An address passed to append holds a valid value; one passed to decode holds a zero value. Neither
// is kept, nor shown to foreign code.
type node struct {
	op     op
	native bool // Go's == is the same relation as equality of canonical bytes
	text   bool // opMarshal: by text
	typ    reflect.Type
	size   uintptr // of typ, in memory
	spec   Spec
	det    error // why equal values may have different bytes, or nil

	len  int     // opArray, opByteArray
	key  *node   // opMap, opKV
	elem *node   // opPointer, opSlice, opArray; the value of opMap, opKV
	off  uintptr // opKV: where the value is

	alloc func(n int) unsafe.Pointer // opSlice: memory of n zero elements
	maps  mapPool                    // opMap

	header   []byte  // opRow: the field count
	fields   []field // opRow
	nullable []int   // opRow: indexes of the nullable fields

	customAppend func(dst []byte, p unsafe.Pointer) ([]byte, error)
	customDecode func(p unsafe.Pointer, src []byte) ([]byte, error)
}

type field struct {
	node     *node // of what is pointed to, if op is opPointer
	op       op
	nullable bool // pointer, slice or map: nil is a null bit
	off      uintptr
	name     string
}

type op uint8

const (
	opBool op = iota
	opByte
	opInt8
	opInt16
	opInt32
	opInt64
	opUint16
	opUint32
	opUint64
	opFloat32
	opFloat64
	opFloat32Key // one zero, one NaN
	opFloat64Key
	opString
	opBytes
	opByteArray
	opTime
	opPointer
	opSlice
	opArray
	opMap
	opRow
	opKV
	opMarshal
	opCustom
)

// slice is the memory of any Go slice.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

// varint returns the number at p as it goes into a varint, if the op is one.
func (o op) varint(p unsafe.Pointer) (uint64, bool) {
	switch o {
	case opInt8:
		return uint64(*(*int8)(p)), true
	case opInt16:
		return uint64(*(*int16)(p)), true
	case opInt32:
		return uint64(*(*int32)(p)), true
	case opInt64, opUint64:
		return *(*uint64)(p), true
	case opUint16:
		return uint64(*(*uint16)(p)), true
	case opUint32:
		return uint64(*(*uint32)(p)), true
	}
	return 0, false
}

// setVarint is the inverse. It reports whether x is in range.
func (o op) setVarint(p unsafe.Pointer, x uint64) bool {
	switch o {
	case opInt8:
		*(*int8)(p) = int8(x)
	case opInt16:
		*(*int16)(p) = int16(x)
	case opInt32:
		*(*int32)(p) = int32(x)
	case opInt64, opUint64:
		*(*uint64)(p) = x
	case opUint16:
		*(*uint16)(p) = uint16(x)
	case opUint32:
		*(*uint32)(p) = uint32(x)
	}
	got, _ := o.varint(p)
	return got == x
}

// The canonical bits of floats in keys.
const (
	nan32 = 0x7fc00000
	nan64 = 0x7ff8000000000000
)

func canonical32(f float32) uint32 {
	switch {
	case f != f:
		return nan32
	case f == 0:
		return 0
	}
	return math.Float32bits(f)
}

func canonical64(f float64) uint64 {
	switch {
	case f != f:
		return nan64
	case f == 0:
		return 0
	}
	return math.Float64bits(f)
}

// append appends the value at p. After an error the result means nothing.
func (n *node) append(dst []byte, p unsafe.Pointer) ([]byte, error) {
	switch n.op {
	case opInt64, opUint64:
		return appendVarint(dst, *(*uint64)(p)), nil
	case opString:
		s := *(*string)(p)
		return append(appendVarint(dst, uint64(len(s))), s...), nil
	case opRow:
		return n.appendRow(dst, p)
	case opKV:
		dst, err := n.key.append(dst, p)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if dst, err = n.elem.append(dst, unsafe.Add(p, n.off)); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return dst, nil
	case opBool:
		return appendBool(dst, *(*bool)(p)), nil
	case opByte:
		return append(dst, *(*byte)(p)), nil
	case opFloat32:
		return binary.BigEndian.AppendUint32(dst, *(*uint32)(p)), nil
	case opFloat64:
		return binary.BigEndian.AppendUint64(dst, *(*uint64)(p)), nil
	case opFloat32Key:
		return binary.BigEndian.AppendUint32(dst, canonical32(*(*float32)(p))), nil
	case opFloat64Key:
		return binary.BigEndian.AppendUint64(dst, canonical64(*(*float64)(p))), nil
	case opBytes:
		b := *(*[]byte)(p)
		return append(appendVarint(dst, uint64(len(b))), b...), nil
	case opByteArray:
		return append(appendVarint(dst, uint64(n.len)), unsafe.Slice((*byte)(p), n.len)...), nil
	case opTime:
		t := *(*time.Time)(p)
		dst = appendVarint(append(dst, timeHeader...), uint64(t.Unix()))
		return appendVarint(dst, uint64(t.Nanosecond())), nil
	case opPointer:
		q := *(*unsafe.Pointer)(p)
		if q == nil {
			return append(dst, 0), nil
		}
		return n.elem.append(append(dst, 1), q)
	case opSlice:
		s := *(*slice)(p)
		return n.appendElements(dst, s.data, s.len)
	case opArray:
		return n.appendElements(dst, p, n.len)
	case opMap:
		return n.appendMap(dst, p)
	case opMarshal:
		return n.appendMarshal(dst, p)
	case opCustom:
		out, err := n.customAppend(dst, p)
		if err == nil && len(out) < len(dst) {
			err = fmt.Errorf("coder of %v returned less than it was given", n.typ)
		}
		return out, err
	}
	x, _ := n.op.varint(p)
	return appendVarint(dst, x), nil
}

// timeHeader begins the row {seconds, nanos}: two fields, no null.
const timeHeader = "\x02\x00"

func (n *node) appendElements(dst []byte, p unsafe.Pointer, count int) ([]byte, error) {
	dst, err := appendCount(dst, count)
	if err != nil {
		return nil, err
	}
	zeroes := 0
	for i := range count {
		before := len(dst)
		if dst, err = n.elem.append(dst, unsafe.Add(p, uintptr(i)*n.elem.size)); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if len(dst) == before {
			if zeroes++; zeroes > maxZeroWidth {
				return nil, errZeroWidth
			}
		}
	}
	return dst, nil
}

// appendRow appends the field count, a bitmap of the null fields (without trailing zero bytes), and
// the fields that are not null.
func (n *node) appendRow(dst []byte, p unsafe.Pointer) (_ []byte, err error) {
	dst = append(dst, n.header...)
	last := -1
	for _, i := range n.nullable {
		if *(*unsafe.Pointer)(unsafe.Add(p, n.fields[i].off)) == nil {
			last = i
		}
	}
	if last < 0 {
		dst = append(dst, 0)
	} else {
		dst = appendVarint(dst, uint64(last/8+1))
		at := len(dst)
		for range last/8 + 1 {
			dst = append(dst, 0)
		}
		for _, i := range n.nullable {
			if *(*unsafe.Pointer)(unsafe.Add(p, n.fields[i].off)) == nil {
				dst[at+i/8] |= 1 << (i % 8)
			}
		}
	}
	for i := range n.fields {
		f := &n.fields[i]
		q := unsafe.Add(p, f.off)
		switch f.op { // the two commonest are here too: a call saved a field
		case opInt64:
			dst = appendVarint(dst, *(*uint64)(q))
			continue
		case opString:
			s := *(*string)(q)
			dst = append(appendVarint(dst, uint64(len(s))), s...)
			continue
		}
		if f.nullable {
			first := *(*unsafe.Pointer)(q)
			if first == nil {
				continue
			}
			if f.op == opPointer {
				q = first
			}
		}
		if dst, err = f.node.append(dst, q); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	return dst, nil
}

// decode reads the value from the front of src into p and returns what follows it.
func (n *node) decode(p unsafe.Pointer, src []byte) (rest []byte, err error) {
	switch n.op {
	case opInt64, opUint64:
		*(*uint64)(p), rest, err = decodeVarint(src)
		return rest, err
	case opString:
		b, rest, err := cutBytes(src)
		if err != nil {
			return nil, fmt.Errorf("string: %w", err)
		}
		*(*string)(p) = string(b)
		return rest, nil
	case opRow:
		return n.decodeRow(p, src)
	case opKV:
		if rest, err = n.key.decode(p, src); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if rest, err = n.elem.decode(unsafe.Add(p, n.off), rest); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return rest, nil
	case opBool:
		*(*bool)(p), rest, err = decodeBool(src)
		return rest, err
	case opByte:
		if len(src) == 0 {
			return nil, errShort
		}
		*(*byte)(p) = src[0]
		return src[1:], nil
	case opFloat32, opFloat32Key:
		*(*uint32)(p), rest, err = decodeFixed32(src)
		return rest, err
	case opFloat64, opFloat64Key:
		*(*uint64)(p), rest, err = decodeFixed64(src)
		return rest, err
	case opBytes:
		b, rest, err := cutBytes(src)
		if err != nil {
			return nil, fmt.Errorf("bytes: %w", err)
		}
		*(*[]byte)(p) = append([]byte{}, b...)
		return rest, nil
	case opByteArray:
		b, rest, err := cutBytes(src)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", n.typ, err)
		}
		if len(b) != n.len {
			return nil, fmt.Errorf("%v: %d bytes", n.typ, len(b))
		}
		copy(unsafe.Slice((*byte)(p), n.len), b)
		return rest, nil
	case opTime:
		*(*time.Time)(p), rest, err = decodeTime(src)
		return rest, err
	case opPointer:
		present, rest, err := decodeBool(src)
		if err != nil {
			return nil, fmt.Errorf("null indicator: %w", err)
		}
		if !present {
			return rest, nil
		}
		return n.elem.decodeNew(p, rest)
	case opSlice:
		return n.decodeSlice(p, src)
	case opArray:
		count, rest, err := decodeFixed32(src)
		if err != nil {
			return nil, fmt.Errorf("count: %w", err)
		}
		if int64(count) != int64(n.len) {
			return nil, fmt.Errorf("%v: %d elements", n.typ, int32(count))
		}
		for i := range n.len {
			if rest, err = n.elem.decode(unsafe.Add(p, uintptr(i)*n.elem.size), rest); err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
		}
		return rest, nil
	case opMap:
		return n.decodeMap(p, src)
	case opMarshal:
		return n.decodeMarshal(p, src)
	case opCustom:
		rest, err := n.customDecode(p, src)
		if err == nil && len(rest) > len(src) {
			err = fmt.Errorf("coder of %v returned more than it was given", n.typ)
		}
		return rest, err
	}
	x, rest, err := decodeVarint(src)
	if err != nil {
		return nil, err
	}
	if !n.op.setVarint(p, x) {
		return nil, fmt.Errorf("%d does not fit %v", int64(x), n.typ)
	}
	return rest, nil
}

// decodeNew allocates a value, decodes into it and makes the pointer at p point to it.
func (n *node) decodeNew(p unsafe.Pointer, src []byte) ([]byte, error) {
	q := reflect.New(n.typ).UnsafePointer()
	*(*unsafe.Pointer)(p) = q
	return n.decode(q, src)
}

func decodeTime(src []byte) (t time.Time, rest []byte, err error) {
	if len(src) < len(timeHeader) || string(src[:len(timeHeader)]) != timeHeader {
		return t, nil, fmt.Errorf("time: not a row of seconds and nanos")
	}
	sec, rest, err := decodeVarint(src[len(timeHeader):])
	if err != nil {
		return t, nil, fmt.Errorf("time: seconds: %w", err)
	}
	nsec, rest, err := decodeVarint(rest)
	if err != nil {
		return t, nil, fmt.Errorf("time: nanos: %w", err)
	}
	if nsec >= 1e9 {
		return t, nil, fmt.Errorf("time: %d nanos", int64(nsec))
	}
	return time.Unix(int64(sec), int64(nsec)).UTC(), rest, nil
}

func (n *node) decodeSlice(p unsafe.Pointer, src []byte) ([]byte, error) {
	c, rest, err := decodeFixed32(src)
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	if c > math.MaxInt32 {
		return nil, fmt.Errorf("count %d is negative", int32(c))
	}
	count, zeroes := int(c), 0
	room := firstCap(uint64(count), n.elem.size, len(rest))
	data := n.alloc(room)
	for i := range count {
		if i == room {
			more := min(2*room, count)
			grown := n.alloc(more)
			et := n.elem.typ
			reflect.Copy(reflect.SliceAt(et, grown, more), reflect.SliceAt(et, data, room))
			data, room = grown, more
		}
		before := len(rest)
		if rest, err = n.elem.decode(unsafe.Add(data, uintptr(i)*n.elem.size), rest); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if len(rest) == before {
			if zeroes++; zeroes > maxZeroWidth {
				return nil, errZeroWidth
			}
		}
	}
	*(*slice)(p) = slice{data, count, room}
	return rest, nil
}

func (n *node) decodeRow(p unsafe.Pointer, src []byte) (rest []byte, err error) {
	count, nulls := len(n.fields), []byte(nil)
	if h := len(n.header); len(src) > h && string(src[:h]) == string(n.header) && src[h] == 0 {
		rest = src[h+1:] // all fields, and none is null
	} else if count, nulls, rest, err = n.decodeRowHeader(src); err != nil {
		return nil, err
	}
	for i := range n.fields[:count] {
		f := &n.fields[i]
		if i/8 < len(nulls) && nulls[i/8]>>(i%8)&1 != 0 {
			if !f.nullable {
				return nil, fmt.Errorf("field %s is null", f.name)
			}
			continue
		}
		q := unsafe.Add(p, f.off)
		switch f.op {
		case opInt64:
			*(*uint64)(q), rest, err = decodeVarint(rest)
		case opString:
			var b []byte
			b, rest, err = cutBytes(rest)
			*(*string)(q) = string(b)
		case opPointer:
			rest, err = f.node.decodeNew(q, rest)
		default:
			rest, err = f.node.decode(q, rest)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	return rest, nil
}

// decodeRowHeader returns how many fields follow and which of them are null.
func (n *node) decodeRowHeader(src []byte) (count int, nulls, rest []byte, err error) {
	c, rest, err := decodeVarint(src)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("field count: %w", err)
	}
	if c > uint64(len(n.fields)) {
		return 0, nil, nil, fmt.Errorf("a row of %d fields, but %v has %d", c, n.typ, len(n.fields))
	}
	if nulls, rest, err = cutBytes(rest); err != nil {
		return 0, nil, nil, fmt.Errorf("null bitmap: %w", err)
	}
	count = int(c)
	if len(nulls) > (count+7)/8 {
		return 0, nil, nil, fmt.Errorf("null bitmap of %d bytes for %d fields", len(nulls), count)
	}
	if extra := count % 8; extra != 0 && len(nulls) == (count+7)/8 && nulls[len(nulls)-1]>>extra != 0 {
		return 0, nil, nil, fmt.Errorf("null bitmap %x has a bit beyond its %d fields", nulls, count)
	}
	return count, nulls, rest, nil
}

// appendOuter and decodeOuter are append and decode in Beam's outer context (see outer).
func (n *node) appendOuter(dst []byte, p unsafe.Pointer) ([]byte, error) {
	switch n.op {
	case opString:
		return append(dst, *(*string)(p)...), nil
	case opBytes:
		return append(dst, *(*[]byte)(p)...), nil
	case opByteArray:
		return append(dst, unsafe.Slice((*byte)(p), n.len)...), nil
	case opKV:
		dst, err := n.key.append(dst, p)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		return n.elem.appendOuter(dst, unsafe.Add(p, n.off))
	}
	return n.append(dst, p)
}

func (n *node) decodeOuter(p unsafe.Pointer, src []byte) error {
	switch n.op {
	case opString, opBytes, opByteArray:
		_, err := n.decode(p, append(appendVarint(nil, uint64(len(src))), src...))
		return err
	case opKV:
		rest, err := n.key.decode(p, src)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		return n.elem.decodeOuter(unsafe.Add(p, n.off), rest)
	}
	rest, err := n.decode(p, src)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(rest))
	}
	return err
}
