// Package coder turns values into bytes and back, in Beam's standard encodings.
//
// Of chooses the coder of a Go type; KeyOf gives the canonical bytes by which keys are grouped; the
// constructors (VarInt, KVOf, WindowedValueOf …) are Beam's standard coders one by one. Every
// encoding is written out with an example in docs/format/coders.md and docs/format/keys.md.
package coder

// Coder encodes values of one type. It is used by many goroutines at once and keeps no state.
//
// Encodings are self-delimiting (Beam's nested context): Decode reads exactly what Append wrote and
// returns the rest.
type Coder[T any] interface {
	// Append appends the encoding of v to dst. It fails, naming what is wrong, for a value that would
	// not come back equal; dst up to its length is then unchanged.
	Append(dst []byte, v T) ([]byte, error)
	// Decode reads one value from the front of src and returns the bytes after it. The value does not
	// alias src. Hostile input gives an error; allocation is bounded by len(src) times a factor that
	// the type alone decides (an int64 of one byte takes eight).
	Decode(src []byte) (v T, rest []byte, err error)
}

// Deterministic is implemented by a Coder that may encode keys: Deterministic returns nil if equal
// values always have equal bytes, else an error that says why not.
type Deterministic interface {
	Deterministic() error
}

// KV is a pair of a key and a value, Beam's kv: encoded as the key followed by the value.
type KV[K, V any] struct {
	Key   K
	Value V
}
