// Package coder turns values into bytes and back, in Beam's standard encodings.
package coder

// Coder encodes values of one type. It is used by many goroutines at once and keeps no state.
//
// Encodings are self-delimiting (Beam's nested context): Decode reads exactly what Append wrote and
// returns the rest.
type Coder[T any] interface {
	// Append appends the encoding of v to dst. It fails, naming what is wrong, for a value that would
	// not come back equal.
	Append(dst []byte, v T) ([]byte, error)
	// Decode reads one value from the front of src and returns the bytes after it. The value does not
	// alias src. Hostile input gives an error; allocation is bounded by a small multiple of len(src).
	Decode(src []byte) (v T, rest []byte, err error)
}

// KV is a pair of a key and a value, Beam's kv: encoded as the key followed by the value.
type KV[K, V any] struct {
	Key   K
	Value V
}
