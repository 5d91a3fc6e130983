package coder

import (
	"encoding/binary"
	"testing"
)

// The record that the benchmarks encode, and the encoder that a careful programmer would write for
// it by hand: the ratio to that one, in the same run, is what counts.
type trade struct {
	ID, Price, Volume int64
	Symbol            string
}

type handTrade struct{}

func (handTrade) Append(dst []byte, v trade) ([]byte, error) {
	dst = append(dst, 4, 0)
	dst = binary.AppendUvarint(dst, uint64(v.ID))
	dst = binary.AppendUvarint(dst, uint64(v.Price))
	dst = binary.AppendUvarint(dst, uint64(v.Volume))
	dst = binary.AppendUvarint(dst, uint64(len(v.Symbol)))
	return append(dst, v.Symbol...), nil
}

func (handTrade) Decode(src []byte) (v trade, rest []byte, err error) {
	if len(src) < 2 || src[0] != 4 || src[1] != 0 {
		return trade{}, nil, errShort
	}
	src = src[2:]
	for _, p := range []*int64{&v.ID, &v.Price, &v.Volume} {
		x, n := binary.Uvarint(src)
		if n <= 0 {
			return trade{}, nil, errShort
		}
		*p, src = int64(x), src[n:]
	}
	l, n := binary.Uvarint(src)
	if n <= 0 || l > uint64(len(src)-n) {
		return trade{}, nil, errShort
	}
	v.Symbol = string(src[n : n+int(l)])
	return v, src[n+int(l):], nil
}

type handKV struct{}

func (handKV) Append(dst []byte, v KV[string, int64]) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(v.Key)))
	dst = append(dst, v.Key...)
	return binary.AppendUvarint(dst, uint64(v.Value)), nil
}

func (handKV) Decode(src []byte) (v KV[string, int64], rest []byte, err error) {
	l, n := binary.Uvarint(src)
	if n <= 0 || l > uint64(len(src)-n) {
		return v, nil, errShort
	}
	v.Key, src = string(src[n:n+int(l)]), src[n+int(l):]
	x, n := binary.Uvarint(src)
	if n <= 0 {
		return KV[string, int64]{}, nil, errShort
	}
	v.Value = int64(x)
	return v, src[n:], nil
}

var (
	aTrade = trade{ID: 1234567, Price: 10250, Volume: 77, Symbol: "MILLSTREAM12"}
	aPair  = KV[string, int64]{"MILLSTREAM12", 123456}
)

func BenchmarkTrade(b *testing.B) {
	c := must(Of[trade]())(b)
	b.Run("append/hand", func(b *testing.B) { benchAppend(b, handTrade{}, aTrade) })
	b.Run("append/of", func(b *testing.B) { benchAppend(b, c, aTrade) })
	b.Run("decode/hand", func(b *testing.B) { benchDecode(b, handTrade{}, aTrade) })
	b.Run("decode/of", func(b *testing.B) { benchDecode(b, c, aTrade) })
}

func BenchmarkKV(b *testing.B) {
	c := must(Of[KV[string, int64]]())(b)
	std := KVOf(StringUTF8(), VarInt())
	b.Run("append/hand", func(b *testing.B) { benchAppend(b, handKV{}, aPair) })
	b.Run("append/of", func(b *testing.B) { benchAppend(b, c, aPair) })
	b.Run("append/kvof", func(b *testing.B) { benchAppend(b, std, aPair) })
	b.Run("decode/hand", func(b *testing.B) { benchDecode(b, handKV{}, aPair) })
	b.Run("decode/of", func(b *testing.B) { benchDecode(b, c, aPair) })
	b.Run("decode/kvof", func(b *testing.B) { benchDecode(b, std, aPair) })
}

func BenchmarkMap(b *testing.B) {
	c := must(Of[map[string]int64]())(b)
	m := map[string]int64{"a": 1, "bb": 2, "ccc": 3, "dddd": 4}
	b.Run("append", func(b *testing.B) { benchAppend(b, c, m) })
	b.Run("decode", func(b *testing.B) { benchDecode(b, c, m) })
}

func benchAppend[T any](b *testing.B, c Coder[T], v T) {
	b.ReportAllocs()
	buf := make([]byte, 0, 1024)
	for b.Loop() {
		var err error
		if buf, err = c.Append(buf[:0], v); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDecode[T any](b *testing.B, c Coder[T], v T) {
	b.ReportAllocs()
	buf, err := c.Append(nil, v)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := c.Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	ints, strs := must(KeyOf[int64]())(b), must(KeyOf[string]())(b)
	pairs := must(KeyOf[KV[string, int64]]())(b)
	b.Run("int64", func(b *testing.B) { benchHash(b, ints, 1234567) })
	b.Run("string12", func(b *testing.B) { benchHash(b, strs, "MILLSTREAM12") })
	b.Run("kv", func(b *testing.B) { benchHash(b, pairs, aPair) })
}

func benchHash[K comparable](b *testing.B, key Key[K], k K) {
	b.ReportAllocs()
	var sum uint64
	for b.Loop() {
		h, err := key.Hash(k)
		if err != nil {
			b.Fatal(err)
		}
		sum += h
	}
	if sum == 0 {
		b.Log("the hashes add up to 0")
	}
}
