package coder

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Key encodes the keys of one type canonically: two keys are the same key if and only if their bytes
// are equal. It is a Coder[K], used by many goroutines at once. KeyOf makes one.
type Key[K comparable] struct {
	// Native says that Go's == on K is that same relation, so that a Go map keyed by K groups as the
	// bytes do: booleans, integers, strings, and arrays and structs of these.
	Native bool
	n      *node
}

var _ Coder[string] = Key[string]{}

// KeyOf returns the canonical encoding of K. It is Of's, but that inside a key
//
//   - -0.0 is 0.0, and all NaNs are one;
//   - a time.Time is its instant, whatever the location;
//   - a pointer stands for what it points to: pointers to equal values are the same key.
//
// A type that marshals itself must give equal bytes for equal values, and a coder from WithCoder must
// implement Deterministic.
func KeyOf[K comparable](opts ...Option) (Key[K], error) {
	n, err := compileCached(reflect.TypeFor[K](), opts, true)
	if err != nil {
		return Key[K]{}, err
	}
	return Key[K]{Native: n.native, n: n}, nil
}

// Append appends the canonical bytes of k. It fails only for keys that marshal themselves or have a
// coder of their own, and for slices of more than 2³¹-1 elements behind a pointer.
func (key Key[K]) Append(dst []byte, k K) ([]byte, error) {
	return compiled[K]{key.n}.Append(dst, k)
}

// Decode reads one key from the front of src, canonical or not.
func (key Key[K]) Decode(src []byte) (K, []byte, error) { return compiled[K]{key.n}.Decode(src) }

// Deterministic returns nil: it is what a Key is for.
func (key Key[K]) Deterministic() error { return nil }

// Spec describes the encoding.
func (key Key[K]) Spec() Spec { return key.n.spec }

// Hash returns HashKey of the canonical bytes of k, without keeping them. It fails as Append does.
func (key Key[K]) Hash(k K) (uint64, error) {
	p := noescape(unsafe.Pointer(&k))
	if key.n.op == opString {
		if s := *(*string)(p); len(s) < 0x80 {
			var b [0x80]byte
			b[0] = byte(len(s))
			return xxh3.Hash(b[:1+copy(b[1:], s)]), nil
		}
	}
	if x, ok := key.n.op.varint(p); ok {
		var b [16]byte
		return xxh3.Hash(b[:putVarint(&b, x)]), nil
	}
	buf := hashBuffers.Get().(*[]byte)
	defer hashBuffers.Put(buf)
	b, err := key.n.append((*buf)[:0], p)
	if err != nil {
		return 0, fmt.Errorf("hash key of type %v: %w", key.n.typ, err)
	}
	if cap(b) <= 1<<16 { // one huge key must not hold its memory for ever
		*buf = b
	}
	return xxh3.Hash(b), nil
}

// putVarint writes x as appendVarint does and returns its length. Up to eight bytes are put together in
// a register and stored at once: the hash, which reads them in one load, would else wait for each
// (14 ns became 7).
func putVarint(b *[16]byte, x uint64) int {
	var v uint64
	y := x
	for i := range 8 {
		if y < 0x80 {
			binary.LittleEndian.PutUint64(b[:], v|y<<(8*i))
			return i + 1
		}
		v |= (y&0x7f | 0x80) << (8 * i)
		y >>= 7
	}
	return binary.PutUvarint(b[:], x)
}

var hashBuffers = sync.Pool{New: func() any { return new([]byte) }}

// HashKey is the hash by which keys are spread: XXH3 in 64 bits, with seed 0, of canonical bytes.
func HashKey(canonical []byte) uint64 { return xxh3.Hash(canonical) }
