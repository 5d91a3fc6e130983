package coder

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unsafe"
)

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

// appendOuter is append in Beam's outer context (see outer).
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
