package coder

import (
	"reflect"
	"sync"
	"unsafe"
)

// A node is what Of made of one type: how to append the value at an address, and how to decode into
// an address. Nodes form a tree as types do, and are never changed once compiled (but for the pool, many goroutines may use it).
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
	maps  sync.Pool                  // opMap: of *mapScratch

	header   []byte  // opRow: the field count
	fields   []field // opRow
	nullable []int   // opRow: indexes of the nullable fields

	// opCustom: the coder, with its type forgotten.
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
