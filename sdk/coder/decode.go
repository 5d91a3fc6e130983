package coder

import (
	"fmt"
	"math"
	"reflect"
	"time"
	"unsafe"
)

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

// decodeOuter is decode in Beam's outer context: it reads all of src.
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
