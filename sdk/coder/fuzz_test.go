package coder

import (
	"bytes"
	"math/big"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// Every decoder against hostile bytes: no panic, no allocation out of proportion, and what decodes
// encodes again, to bytes that are then a fixed point. Seeds are in testdata/fuzz; more:
//
//	go test ./sdk/coder -fuzz FuzzOf -fuzztime 1m

// fuzzOne decodes src with one coder and checks all of that.
func fuzzOne[T any](c Coder[T]) func(t *testing.T, src []byte) {
	return func(t *testing.T, src []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, rest, err := c.Decode(src)
		runtime.ReadMemStats(&after)
		// The largest type here takes some 200 bytes of memory for two of input, and slices double.
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+512*len(src)); got > limit {
			t.Fatalf("%T: %d bytes allocated to decode %d", c, got, len(src))
		}
		if err != nil {
			return
		}
		if !bytes.HasSuffix(src, rest) {
			t.Fatalf("%T: what is left is not the end of the input", c)
		}
		first, err := c.Append(nil, v)
		if err != nil {
			t.Fatalf("%T: %+v was decoded, but cannot be encoded: %v", c, v, err)
		}
		w, rest, err := c.Decode(first)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%T: %x was encoded, but cannot be decoded: %v", c, first, err)
		}
		if second, err := c.Append(nil, w); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%T: encoded as %x, then as %x, error %v", c, first, second, err)
		}
	}
}

func fuzzAll(f *testing.F, coders []func(*testing.T, []byte)) {
	for i := range coders {
		f.Add(byte(i), []byte("\x00\x00\x00\x02\x01\x01\x02"))
		f.Add(byte(i), []byte("\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
		f.Add(byte(i), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\x07\x01\x01"))
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte) { coders[int(which)%len(coders)](t, src) })
}

func fuzzOf[T any](f *testing.F) func(*testing.T, []byte) { return fuzzOne(must(Of[T]())(f)) }

func FuzzOf(f *testing.F) {
	whole, err := must(Of[order]())(f).Append(nil, anOrder)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(0), whole)
	f.Add(byte(1), append([]byte{0, 0, 0, 1}, whole...))
	f.Add(byte(2), append([]byte{0, 0, 0, 1, 1, 'k'}, whole...))
	fuzzAll(f, []func(*testing.T, []byte){
		fuzzOf[order](f),
		fuzzOf[[]order](f),
		fuzzOf[map[string]order](f),
		fuzzOf[map[float64][]string](f),
		fuzzOf[map[[2]int8]*map[bool]KV[uint16, float32]](f),
		fuzzOf[[][]struct{}](f),
		fuzzOf[[]*string](f),
		fuzzOf[[]netip.Addr](f),
		fuzzOf[big.Int](f),
		fuzzOf[[]time.Time](f),
		fuzzOf[[3]*[2]int32](f),
		fuzzOne(must(Of[[]Global](WithCoder(GlobalWindow())))(f)),
	})
}

func FuzzStandard(f *testing.F) {
	param := must(ParamWindowedValueOf(StringUTF8(), GlobalWindow(), []byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x0f\x00")))(f)
	kv := KVOf(StringUTF8(), NullableOf(Double()))
	fuzzAll(f, []func(*testing.T, []byte){
		fuzzOne(IterableOf(kv)),
		fuzzOne(UnknownLengthIterableOf(IterableOf(Bool()))),
		fuzzOne(StateBackedIterableOf(Bytes())),
		fuzzOne(IterableOf(GlobalWindow())),
		fuzzOne(LengthPrefixOf(kv)),
		fuzzOne(LengthPrefixOf(WindowedValueOf(Bytes(), IntervalWindow()))),
		fuzzOne(WindowedValueOf(kv, IntervalWindow())),
		fuzzOne(param),
		fuzzOne(TimerOf(VarInt(), CustomWindowOf(StringUTF8()))),
		fuzzOne(ShardedKeyOf(VarInt())),
	})
}

func fuzzKeyOf[K comparable](f *testing.F) func(*testing.T, []byte) {
	key := must(KeyOf[K]())(f)
	one := fuzzOne[K](key)
	return func(t *testing.T, src []byte) {
		one(t, src)
		k, _, err := key.Decode(src)
		if err != nil {
			return
		}
		b, err := key.Append(nil, k)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := key.Hash(k); err != nil || h != HashKey(b) {
			t.Fatalf("%T %+v: hash %x, error %v, but that of its bytes is %x", k, k, h, err, HashKey(b))
		}
	}
}

func FuzzKey(f *testing.F) {
	fuzzAll(f, []func(*testing.T, []byte){
		fuzzKeyOf[string](f),
		fuzzKeyOf[int32](f),
		fuzzKeyOf[uint8](f),
		fuzzKeyOf[[2]float64](f),
		fuzzKeyOf[*float32](f),
		fuzzKeyOf[time.Time](f),
		fuzzKeyOf[netip.Addr](f),
		fuzzKeyOf[KV[vehicle, digest]](f),
	})
}
