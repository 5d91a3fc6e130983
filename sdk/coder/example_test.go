package coder_test

import (
	"fmt"
	"math"
	"time"

	"github.com/millstream/millstream/sdk/coder"
)

type Reading struct {
	Sensor  string
	Celsius float64
	Note    *string
	At      time.Time
}

func ExampleOf() {
	c, err := coder.Of[Reading]()
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := c.Append(nil, Reading{Sensor: "roof", Celsius: -1.5, At: time.Unix(1700000000, 0)})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, rest, err := c.Decode(b)
	fmt.Printf("%x\n%v %v %v %v, %d bytes left, %v\n", b, r.Sensor, r.Celsius, r.Note, r.At, len(rest), err)
	fmt.Println(coder.SpecOf(c))
	// Output:
	// 04010404726f6f66bff8000000000000020080e2cfaa0600
	// roof -1.5 <nil> 2023-11-14 22:13:20 +0000 UTC, 0 bytes left, <nil>
	// row{Sensor string_utf8; Celsius double; Note? string_utf8; At row<beam:logical_type:nanos_instant:v1>{seconds varint; nanos varint}}
}

func ExampleOf_unsupported() {
	type Order struct {
		Items []struct{ Done chan int }
	}
	_, err := coder.Of[Order]()
	fmt.Println(err)
	// Output:
	// coder: type coder_test.Order, field Items[].Done: chan int has no encoding; leave it out, or pass coder.WithCoder for it or for the type around it
}

// Money keeps its amount to itself, so Of cannot encode it.
type Money struct{ cents int64 }

// moneyCoder can.
type moneyCoder struct{}

func (moneyCoder) Append(dst []byte, m Money) ([]byte, error) {
	return coder.VarInt().Append(dst, m.cents)
}

func (moneyCoder) Decode(src []byte) (Money, []byte, error) {
	cents, rest, err := coder.VarInt().Decode(src)
	return Money{cents}, rest, err
}

func ExampleWithCoder() {
	type Sale struct {
		Item  string
		Price Money
	}
	_, err := coder.Of[Sale]()
	fmt.Println(err)
	c, err := coder.Of[Sale](coder.WithCoder[Money](moneyCoder{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := c.Append(nil, Sale{"tea", Money{250}})
	fmt.Printf("%x %v\n", b, err)
	// Output:
	// coder: type coder_test.Sale, field Price.cents: unexported, so it would be lost; export it, give coder_test.Money the methods MarshalBinary and UnmarshalBinary, or pass coder.WithCoder for coder_test.Money
	// 020003746561fa01 <nil>
}

func ExampleKeyOf() {
	type Cell struct{ Lat, Lon float64 }
	key, err := coder.KeyOf[Cell]()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, lat := range []float64{0, math.Copysign(0, -1)} {
		hash, err := key.Hash(Cell{lat, 13.5})
		fmt.Println(lat, hash%256, err)
	}
	fmt.Println("native:", key.Native)
	// Output:
	// 0 89 <nil>
	// -0 89 <nil>
	// native: false
}

func ExampleKVOf() {
	c := coder.KVOf(coder.StringUTF8(), coder.IterableOf(coder.VarInt()))
	b, err := c.Append(nil, coder.KV[string, []int64]{Key: "k", Value: []int64{1, 2}})
	fmt.Printf("%x %v\n", b, err)
	// Output:
	// 016b000000020102 <nil>
}
