package coder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// outer is implemented by coders whose encoding is shorter in Beam's outer context, where the end of
// the input is the end of the value: the last byte string then has no length. Only length prefixes
// and payloads use it.
type outer[T any] interface {
	appendOuter(dst []byte, v T) ([]byte, error)
	// decodeOuter reads all of src.
	decodeOuter(src []byte) (T, error)
}

func appendOuter[T any](c Coder[T], dst []byte, v T) ([]byte, error) {
	if o, ok := c.(outer[T]); ok {
		return o.appendOuter(dst, v)
	}
	return c.Append(dst, v)
}

func decodeOuter[T any](c Coder[T], src []byte) (T, error) {
	if o, ok := c.(outer[T]); ok {
		return o.decodeOuter(src)
	}
	v, rest, err := c.Decode(src)
	if err == nil && len(rest) > 0 {
		var zero T
		return zero, fmt.Errorf("%d bytes are left over", len(rest))
	}
	return v, err
}

// Bytes is beam:coder:bytes:v1: a varint length, then the bytes. Nil comes back as empty.
func Bytes() Coder[[]byte] { return bytesCoder{} }

type bytesCoder struct{}

func (bytesCoder) Append(dst []byte, v []byte) ([]byte, error) {
	return append(appendVarint(dst, uint64(len(v))), v...), nil
}

func (bytesCoder) Decode(src []byte) ([]byte, []byte, error) {
	b, rest, err := cutBytes(src)
	if err != nil {
		return nil, nil, fmt.Errorf("decode bytes: %w", err)
	}
	return append([]byte{}, b...), rest, nil
}

func (bytesCoder) appendOuter(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (bytesCoder) decodeOuter(src []byte) ([]byte, error)           { return append([]byte{}, src...), nil }
func (bytesCoder) Spec() Spec                                       { return Spec{URN: urnBytes} }

// StringUTF8 is beam:coder:string_utf8:v1: a varint length, then the bytes. Bytes that are not valid
// UTF-8 go through unchanged.
func StringUTF8() Coder[string] { return stringCoder{} }

type stringCoder struct{}

func (stringCoder) Append(dst []byte, v string) ([]byte, error) {
	return append(appendVarint(dst, uint64(len(v))), v...), nil
}

func (stringCoder) Decode(src []byte) (string, []byte, error) {
	b, rest, err := cutBytes(src)
	if err != nil {
		return "", nil, fmt.Errorf("decode string: %w", err)
	}
	return string(b), rest, nil
}

func (stringCoder) appendOuter(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (stringCoder) decodeOuter(src []byte) (string, error)           { return string(src), nil }
func (stringCoder) Spec() Spec                                       { return Spec{URN: urnString} }

// VarInt is beam:coder:varint:v1: groups of seven bits, the lowest first; a negative number takes ten
// bytes.
func VarInt() Coder[int64] { return varIntCoder{} }

type varIntCoder struct{}

func (varIntCoder) Append(dst []byte, v int64) ([]byte, error) {
	return appendVarint(dst, uint64(v)), nil
}

func (varIntCoder) Decode(src []byte) (int64, []byte, error) {
	x, rest, err := decodeVarint(src)
	if err != nil {
		return 0, nil, fmt.Errorf("decode varint: %w", err)
	}
	return int64(x), rest, nil
}

func (varIntCoder) Spec() Spec { return Spec{URN: urnVarInt} }

// Double is beam:coder:double:v1: the IEEE 754 bits, big-endian.
func Double() Coder[float64] { return doubleCoder{} }

type doubleCoder struct{}

func (doubleCoder) Append(dst []byte, v float64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v)), nil
}

func (doubleCoder) Decode(src []byte) (float64, []byte, error) {
	x, rest, err := decodeFixed64(src)
	if err != nil {
		return 0, nil, fmt.Errorf("decode double: %w", err)
	}
	return math.Float64frombits(x), rest, nil
}

func (doubleCoder) Spec() Spec { return Spec{URN: urnDouble} }

// Bool is beam:coder:bool:v1: 00 or 01.
func Bool() Coder[bool] { return boolCoder{} }

type boolCoder struct{}

func (boolCoder) Append(dst []byte, v bool) ([]byte, error) { return appendBool(dst, v), nil }

func (boolCoder) Decode(src []byte) (bool, []byte, error) {
	v, rest, err := decodeBool(src)
	if err != nil {
		return false, nil, fmt.Errorf("decode bool: %w", err)
	}
	return v, rest, nil
}

func (boolCoder) Spec() Spec { return Spec{URN: urnBool} }

// KVOf is beam:coder:kv:v1: the key, then the value.
func KVOf[K, V any](key Coder[K], value Coder[V]) Coder[KV[K, V]] { return kvCoder[K, V]{key, value} }

type kvCoder[K, V any] struct {
	key   Coder[K]
	value Coder[V]
}

func (c kvCoder[K, V]) Append(dst []byte, v KV[K, V]) ([]byte, error) {
	return c.append(dst, v, c.value.Append)
}

func (c kvCoder[K, V]) appendOuter(dst []byte, v KV[K, V]) ([]byte, error) {
	return c.append(dst, v, func(dst []byte, v V) ([]byte, error) { return appendOuter(c.value, dst, v) })
}

func (c kvCoder[K, V]) append(dst []byte, v KV[K, V], value func([]byte, V) ([]byte, error)) ([]byte, error) {
	out, err := c.key.Append(dst, v.Key)
	if err != nil {
		return dst, fmt.Errorf("key: %w", err)
	}
	if out, err = value(out, v.Value); err != nil {
		return dst, fmt.Errorf("value: %w", err)
	}
	return out, nil
}

func (c kvCoder[K, V]) Decode(src []byte) (v KV[K, V], rest []byte, err error) {
	if v.Key, rest, err = c.key.Decode(src); err != nil {
		return KV[K, V]{}, nil, fmt.Errorf("key: %w", err)
	}
	if v.Value, rest, err = c.value.Decode(rest); err != nil {
		return KV[K, V]{}, nil, fmt.Errorf("value: %w", err)
	}
	return v, rest, nil
}

func (c kvCoder[K, V]) decodeOuter(src []byte) (v KV[K, V], err error) {
	if v.Key, src, err = c.key.Decode(src); err != nil {
		return KV[K, V]{}, fmt.Errorf("key: %w", err)
	}
	if v.Value, err = decodeOuter(c.value, src); err != nil {
		return KV[K, V]{}, fmt.Errorf("value: %w", err)
	}
	return v, nil
}

func (c kvCoder[K, V]) Spec() Spec {
	return Spec{URN: urnKV, Components: []Spec{SpecOf(c.key), SpecOf(c.value)}}
}

// NullableOf is beam:coder:nullable:v1: 00 for nil, or 01 and what is pointed to.
func NullableOf[T any](c Coder[T]) Coder[*T] { return nullableCoder[T]{c} }

type nullableCoder[T any] struct{ elem Coder[T] }

func (c nullableCoder[T]) Append(dst []byte, v *T) ([]byte, error) {
	if v == nil {
		return append(dst, 0), nil
	}
	out, err := c.elem.Append(append(dst, 1), *v)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (c nullableCoder[T]) Decode(src []byte) (*T, []byte, error) {
	present, rest, err := decodeBool(src)
	if err != nil {
		return nil, nil, fmt.Errorf("decode null indicator: %w", err)
	}
	if !present {
		return nil, rest, nil
	}
	v, rest, err := c.elem.Decode(rest)
	if err != nil {
		return nil, nil, err
	}
	return &v, rest, nil
}

func (c nullableCoder[T]) Spec() Spec {
	return Spec{URN: urnNullable, Components: []Spec{SpecOf(c.elem)}}
}

// LengthPrefixOf is beam:coder:length_prefix:v1: a varint length, then the value in Beam's outer
// context (so a string has one length, not two). It lets a reader skip what it cannot decode.
func LengthPrefixOf[T any](c Coder[T]) Coder[T] { return lengthPrefixCoder[T]{c} }

type lengthPrefixCoder[T any] struct{ elem Coder[T] }

func (c lengthPrefixCoder[T]) Append(dst []byte, v T) ([]byte, error) {
	return appendPrefixed(dst, func(dst []byte) ([]byte, error) { return appendOuter(c.elem, dst, v) })
}

func (c lengthPrefixCoder[T]) Decode(src []byte) (v T, rest []byte, err error) {
	b, rest, err := cutBytes(src)
	if err != nil {
		return v, nil, fmt.Errorf("decode length prefix: %w", err)
	}
	if v, err = decodeOuter(c.elem, b); err != nil {
		return v, nil, fmt.Errorf("decode after length prefix: %w", err)
	}
	return v, rest, nil
}

func (c lengthPrefixCoder[T]) Spec() Spec {
	return Spec{URN: urnLengthPrefix, Components: []Spec{SpecOf(c.elem)}}
}

// appendPrefixed appends a varint length and what body appends. The length is known only afterwards:
// one byte is kept for it, and the rare longer body is moved up.
func appendPrefixed(dst []byte, body func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(dst) + 1
	out, err := body(append(dst, 0))
	if err != nil {
		return dst, err
	}
	if len(out) < start {
		return dst, errors.New("the coder returned less than it was given")
	}
	n := len(out) - start
	if n < 0x80 {
		out[start-1] = byte(n)
		return out, nil
	}
	var prefix [binary.MaxVarintLen64]byte
	p := binary.PutUvarint(prefix[:], uint64(n))
	out = append(out, prefix[:p-1]...)
	copy(out[start-1+p:], out[start:start+n])
	copy(out[start-1:], prefix[:p])
	return out, nil
}

// ShardedKey is a key that was split into shards, to spread a hot one.
type ShardedKey[K any] struct {
	Key   K
	Shard []byte // opaque
}

// ShardedKeyOf is beam:coder:sharded_key:v1: the shard as bytes, then the key.
func ShardedKeyOf[K any](key Coder[K]) Coder[ShardedKey[K]] { return shardedKeyCoder[K]{key} }

type shardedKeyCoder[K any] struct{ key Coder[K] }

func (c shardedKeyCoder[K]) Append(dst []byte, v ShardedKey[K]) ([]byte, error) {
	out, err := c.key.Append(append(appendVarint(dst, uint64(len(v.Shard))), v.Shard...), v.Key)
	if err != nil {
		return dst, fmt.Errorf("sharded key: %w", err)
	}
	return out, nil
}

func (c shardedKeyCoder[K]) Decode(src []byte) (v ShardedKey[K], rest []byte, err error) {
	if v.Shard, rest, err = Bytes().Decode(src); err != nil {
		return ShardedKey[K]{}, nil, fmt.Errorf("shard: %w", err)
	}
	if v.Key, rest, err = c.key.Decode(rest); err != nil {
		return ShardedKey[K]{}, nil, fmt.Errorf("sharded key: %w", err)
	}
	return v, rest, nil
}

func (c shardedKeyCoder[K]) Spec() Spec {
	return Spec{URN: urnShardedKey, Components: []Spec{SpecOf(c.key)}}
}
