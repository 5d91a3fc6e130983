package coder

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type (
	level   int8
	symbol  string
	digest  [4]byte
	stamp   time.Time
	celsius float32

	base struct{ ID int }

	order struct {
		base
		Symbol symbol
		Level  level
		Sum    digest
		Temp   celsius
		Raw    []byte
		Tags   []string
		Parent *base
		Lines  []line
		Prices map[string]float64
		When   time.Time
		Pair   KV[string, int64]
		Grid   [2][2]uint16
		Took   time.Duration
		_      struct{}
	}
	line struct {
		SKU string
		Qty uint32
		Sub **int
	}
)

func roundTrip[T any](t *testing.T, v T, wantHex string) {
	t.Helper()
	c := must(Of[T]())(t)
	b, err := c.Append([]byte("head"), v)
	if err != nil {
		t.Fatalf("encode %T %+v: %v", v, v, err)
	}
	if got := hex.EncodeToString(b[4:]); string(b[:4]) != "head" || wantHex != "" && got != wantHex {
		t.Errorf("encoding of %T %+v = %s, want %s", v, v, got, wantHex)
	}
	got, rest, err := c.Decode(append(b[4:], "tail"...))
	if err != nil || string(rest) != "tail" {
		t.Fatalf("decode %T from %x leaves %q, error %v", v, b, rest, err)
	}
	if !reflect.DeepEqual(got, v) {
		t.Errorf("%T %+v came back as %+v", v, v, got)
	}
}

func TestOfRoundTripsEveryKind(t *testing.T) {
	roundTrip(t, true, "01")
	roundTrip(t, int(-1), "ffffffffffffffffff01")
	roundTrip(t, int8(-128), "80ffffffffffffffff01")
	roundTrip(t, int16(300), "ac02")
	roundTrip(t, int32(1<<31-1), "ffffffff07")
	roundTrip(t, int64(-1<<63), "80808080808080808001")
	roundTrip(t, uint(300), "ac02")
	roundTrip(t, uint8(200), "c8")
	roundTrip(t, uint16(1<<16-1), "ffff03")
	roundTrip(t, uint32(1<<32-1), "ffffffff0f")
	roundTrip(t, uint64(1<<64-1), "ffffffffffffffffff01")
	roundTrip(t, float32(1.5), "3fc00000")
	roundTrip(t, -2.0, "c000000000000000")
	roundTrip(t, "日本", "06e697a5e69cac")
	roundTrip(t, []byte{1, 2}, "020102")
	roundTrip(t, level(-3), "fdffffffffffffffff01")
	roundTrip(t, digest{1, 2, 3, 4}, "0401020304")
	roundTrip(t, celsius(1.5), "3fc00000")
	roundTrip(t, stamp(time.Unix(1, 2).UTC()), "02000102")
	roundTrip(t, 3*time.Millisecond, "c08db701")
	roundTrip(t, struct{}{}, "0000")
	roundTrip(t, [2]bool{true, false}, "000000020100")
	roundTrip(t, [0]int{}, "00000000")
	roundTrip(t, []struct{}{{}, {}}, "0000000200000000")
	roundTrip(t, []*int{nil, new(int)}, "00000002000100")
	roundTrip(t, KV[string, []int]{"k", []int{1}}, "016b0000000101")
	roundTrip(t, map[string]int{"b": 2, "a": 1, "": 0}, "000000030000016101016202")
	roundTrip(t, (*string)(nil), "00")
}

var (
	seven   = 7
	pseven  = &seven
	anOrder = order{
		base: base{7}, Symbol: "X", Level: -1, Sum: digest{9}, Temp: 36.6, Raw: []byte{}, Tags: []string{"a", ""},
		Parent: &base{8}, Lines: []line{{"s", 3, &pseven}, {}}, Prices: map[string]float64{"x": 1, "a": -2},
		When: time.Date(2024, 2, 29, 23, 59, 59, 999999999, time.UTC), Pair: KV[string, int64]{"k", 5},
		Grid: [2][2]uint16{{1, 2}, {3, 4}}, Took: time.Minute,
	}
)

func TestOfRoundTripsAStructOfEverything(t *testing.T) {
	full := anOrder
	roundTrip(t, full, "")
	roundTrip(t, order{}, "") // nil slices, maps and pointers stay nil, and the zero time is zero
	roundTrip(t, &full, "")
	roundTrip(t, []order{full, {}, full}, "")
	roundTrip(t, map[symbol]*order{"a": &full, "b": nil}, "")
}

func TestRowHeaderHoldsANullBitForEachNilField(t *testing.T) {
	roundTrip(t, struct{ A, B *int }{nil, nil}, "020103")
	roundTrip(t, struct {
		A int
		B *int
	}{1, nil}, "02010201")
	// The example of beam_runner_api.proto: nulls at 0, 4, 7 and 9 of ten.
	one := 1
	p := &one
	roundTrip(t, struct{ A, B, C, D, E, F, G, H, I, J *int }{B: p, C: p, D: p, F: p, G: p, I: p}, "0a029102010101010101")
}

// I3: the bytes of a string are data, valid UTF-8 or not.
func TestStringsNeedNotBeUTF8(t *testing.T) {
	for _, s := range []string{"\xff\xfe", "", "a\x00b", strings.Repeat("x", 1<<20)} {
		roundTrip(t, s, "")
		roundTrip(t, KV[string, struct{ S symbol }]{s, struct{ S symbol }{symbol(s)}}, "")
		roundTrip(t, map[string]string{s: s}, "")
	}
}

func TestTimeKeepsItsInstantAndLosesItsZone(t *testing.T) {
	c := must(Of[time.Time]())(t)
	for _, v := range []time.Time{
		{}, time.Unix(0, 0), time.Unix(-1, 999999999), time.Now(),
		time.Date(9999, 1, 1, 0, 0, 0, 1, time.FixedZone("x", 5*3600)), time.Date(-5000, 1, 1, 0, 0, 0, 7, time.UTC),
	} {
		b, err := c.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := c.Decode(b)
		if err != nil || !got.Equal(v) || got.Location() != time.UTC || got.IsZero() != v.IsZero() {
			t.Errorf("%v came back as %v, error %v", v, got, err)
		}
	}
}

// A nil slice or map is null in a struct; where there is no null bit it comes back empty.
func TestNilOutsideAStructComesBackEmpty(t *testing.T) {
	c := must(Of[[][]byte]())(t)
	b, err := c.Append(nil, [][]byte{nil, {}})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := c.Decode(b)
	if err != nil || !reflect.DeepEqual(got, [][]byte{{}, {}}) {
		t.Errorf("got %#v, %v", got, err)
	}
	m := must(Of[map[string]int]())(t)
	if b, err = m.Append(nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, _, err := m.Decode(b); err != nil || got == nil || len(got) != 0 {
		t.Errorf("a nil map came back as %#v, %v", got, err)
	}
}

func TestFieldsMayBeAddedAtTheEnd(t *testing.T) {
	type v1 struct {
		A int
		B *string
	}
	type v2 struct {
		A int
		B *string
		C string
		D []int
		E *int
	}
	old := must(Of[v1]())(t)
	now := must(Of[v2]())(t)
	x := "x"
	b, err := old.Append(nil, v1{7, &x})
	if err != nil {
		t.Fatal(err)
	}
	got, rest, err := now.Decode(b)
	if d := cmp.Diff(v2{A: 7, B: &x}, got); err != nil || len(rest) != 0 || d != "" {
		t.Errorf("old row as new type: error %v, rest %x, (-want +got):\n%s", err, rest, d)
	}
	if b, err = now.Append(nil, v2{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := old.Decode(b); err == nil || !strings.Contains(err.Error(), "a row of 5 fields, but coder.v1 has 2") {
		t.Errorf("new row as old type: error %v", err)
	}
}

func TestTypesMayMarshalThemselves(t *testing.T) {
	type host struct {
		Addr netip.Addr
		URL  *url.URL
	}
	roundTrip(t, netip.MustParseAddr("10.0.0.1"), "040a000001")
	u, err := url.Parse("https://user:secret@example.com/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, []host{{netip.MustParseAddr("::1%eth0"), u}, {}}, "")
	roundTrip(t, struct{ N *big.Int }{big.NewInt(-12345)}, "0100062d3132333435")
	roundTrip(t, map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 1}, "")
}

// failing cannot be encoded when it is negative.
type failing struct{ n int }

var errNegative = errors.New("negative")

func (f failing) MarshalBinary() ([]byte, error) {
	if f.n < 0 {
		return nil, errNegative
	}
	return []byte{byte(f.n)}, nil
}

func (f *failing) UnmarshalBinary(b []byte) error {
	if len(b) != 1 {
		return fmt.Errorf("%d bytes", len(b))
	}
	f.n = int(b[0])
	return nil
}

func TestErrorsNameTheElement(t *testing.T) {
	type item struct{ F failing }
	type holder struct{ Items []KV[string, item] }
	c := must(Of[holder]())(t)
	head := []byte("head")
	b, err := c.Append(head, holder{[]KV[string, item]{{}, {"k", item{failing{-1}}}}})
	if !errors.Is(err, errNegative) || !strings.Contains(err.Error(),
		"encode coder.holder: field Items: element 1: value: field F: coder.failing: negative") {
		t.Errorf("error %v", err)
	}
	if !bytes.Equal(b, head) {
		t.Errorf("after the error dst is %q", b)
	}
	_, _, err = c.Decode([]byte{1, 0, 0, 0, 0, 1, 1, 'k', 1, 0, 2, 1, 2})
	if err == nil || !strings.Contains(err.Error(), "decode coder.holder: field Items: element 0: value: field F: coder.failing: 2 bytes") {
		t.Errorf("error %v", err)
	}
}

type (
	secretive struct {
		Name   string
		hidden int
	}
	tree     struct{ Kids []tree }
	loopA    struct{ B *loopB }
	loopB    struct{ A map[string]loopA }
	withChan struct {
		Items []struct {
			Ch chan int
		}
	}
)

func TestOfSaysWhatHasNoEncodingAndWhere(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{ofErr[withChan](), "coder: type coder.withChan, field Items[].Ch: chan int has no encoding; leave it out"},
		{ofErr[chan int](), "coder: type chan int: chan int has no encoding; "},
		{ofErr[func()](), "coder: type func(): func() has no encoding; "},
		{ofErr[complex128](), "complex128 has no encoding"},
		{ofErr[uintptr](), "uintptr has no encoding"},
		{ofErr[any](), "coder: type interface {}: interface {} is an interface, which does not say what to decode"},
		{ofErr[struct{ M map[string]error }](), "field M[value]: error is an interface"},
		{ofErr[struct{ K KV[string, func()] }](), "field K.Value: func() has no encoding"},
		{ofErr[[]secretive](), "field [].hidden: unexported, so it would be lost; export it, give coder.secretive the methods"},
		{ofErr[tree](), "coder: type coder.tree, field Kids[]: coder.tree contains itself, and a row is finite; pass coder.WithCoder for coder.tree"},
		{ofErr[loopA](), "field B.A[value]: coder.loopA contains itself"},
		{ofErr[struct {
			A int `beam:"-"`
		}](), `field A: tag beam:"-" is not a name, and a field cannot be left out`},
		{ofErr[struct {
			A int `beam:"x"`
			B int `beam:"x"`
		}](), `field B: a second field named "x"`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
	_ = secretive{hidden: 1}
}

func ofErr[T any]() error {
	_, err := Of[T]()
	return err
}

// growing is a coder that moves the stack and collects garbage in the middle of a value.
type growing struct{}

func (growing) Append(dst []byte, v tree) ([]byte, error) {
	burn(1 << 10)
	runtime.GC()
	return append(dst, byte(len(v.Kids))), nil
}

func (growing) Decode(src []byte) (tree, []byte, error) {
	if len(src) == 0 {
		return tree{}, nil, errShort
	}
	burn(1 << 10)
	runtime.GC()
	return tree{make([]tree, src[0])}, src[1:], nil
}

//go:noinline
func burn(n int) byte {
	var frame [1 << 10]byte
	if n > 0 {
		frame[n%len(frame)] = burn(n - 1)
	}
	return frame[0] + 1
}

// The value stays on the stack (see noescape) while foreign code runs, grows that stack and collects.
func TestValuesSurviveAMovingStackAndTheCollector(t *testing.T) {
	type moved struct {
		Before string
		Tree   tree
		Map    map[string]tree
		List   []tree
		After  string
		P      *string
	}
	c := must(Of[moved](WithCoder[tree](growing{})))(t)
	text := func(s string) string { return strings.Repeat(s, 100) } // on the heap
	for range 3 {
		errs := make(chan error)
		go func() { // a goroutine begins with a small stack
			p := text("p")
			b, err := c.Append(nil, moved{text("b"), tree{make([]tree, 3)}, map[string]tree{text("k"): {make([]tree, 2)}},
				[]tree{{}, {make([]tree, 1)}}, text("a"), &p})
			if err != nil {
				errs <- err
				return
			}
			got, _, err := c.Decode(b)
			want := moved{text("b"), tree{make([]tree, 3)}, map[string]tree{text("k"): {make([]tree, 2)}},
				[]tree{{make([]tree, 0)}, {make([]tree, 1)}}, text("a"), &p}
			if err == nil && !reflect.DeepEqual(got, want) {
				err = fmt.Errorf("got %+v", got)
			}
			errs <- err
		}()
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithCoderDecidesWhereverTheTypeOccurs(t *testing.T) {
	c := must(Of[[]secretive](WithCoder[secretive](secretiveCoder{})))(t)
	b, err := c.Append(nil, []secretive{{"a", 1}, {"b", 2}})
	if err != nil || hex.EncodeToString(b) != "00000002"+"016101"+"016202" {
		t.Fatalf("%x, %v", b, err)
	}
	got, _, err := c.Decode(b)
	if err != nil || !reflect.DeepEqual(got, []secretive{{"a", 1}, {"b", 2}}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Of[[]secretive](); err == nil {
		t.Error("the option has changed the type's own coder")
	}
}

// flag is a byte, but one that a coder of its own turns into a bool.
type flag byte

type flagCoder struct{}

func (flagCoder) Append(dst []byte, f flag) ([]byte, error) { return Bool().Append(dst, f != 0) }
func (flagCoder) Decode(src []byte) (flag, []byte, error) {
	v, rest, err := Bool().Decode(src)
	if v {
		return 1, rest, err
	}
	return 0, rest, err
}

func TestWithCoderDecidesForBytesToo(t *testing.T) {
	type flags struct {
		S []flag
		A [2]flag
		P *flag
		M map[flag]flag
	}
	c := must(Of[flags](WithCoder[flag](flagCoder{})))(t)
	one := flag(1)
	v := flags{[]flag{1, 0}, [2]flag{0, 1}, &one, map[flag]flag{1: 0}}
	b, err := c.Append(nil, v)
	if want := "0400" + "000000020100" + "000000020001" + "01" + "000000010100"; err != nil || hex.EncodeToString(b) != want {
		t.Fatalf("%x, %v, want %s", b, err, want)
	}
	if got, _, err := c.Decode(b); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("got %+v, %v", got, err)
	}
}

type secretiveCoder struct{}

func (secretiveCoder) Append(dst []byte, v secretive) ([]byte, error) {
	dst, err := StringUTF8().Append(dst, v.Name)
	if err != nil {
		return dst, err
	}
	return append(dst, byte(v.hidden)), nil
}

func (secretiveCoder) Decode(src []byte) (v secretive, rest []byte, err error) {
	if v.Name, rest, err = StringUTF8().Decode(src); err != nil {
		return v, nil, err
	}
	if len(rest) == 0 {
		return v, nil, errShort
	}
	v.hidden = int(rest[0])
	return v, rest[1:], nil
}

func TestDecodedValuesDoNotAliasTheirBytes(t *testing.T) {
	type all struct {
		S string
		B []byte
		L []string
		M map[string][]byte
		P *string
		U url.URL
	}
	c := must(Of[all]())(t)
	p := "p"
	want := all{"s", []byte("b"), []string{"l"}, map[string][]byte{"k": []byte("v")}, &p, url.URL{Host: "h"}}
	b, err := c.Append(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := c.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after the bytes were cleared: %+v", got)
	}
}

func TestOneCoderServesManyGoroutines(t *testing.T) {
	c := must(Of[map[string]order]())(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				v := map[string]order{fmt.Sprint("a", g): {Symbol: "x", Tags: []string{fmt.Sprint(i)}}, "b": {Took: time.Duration(i)}}
				b, err := c.Append(nil, v)
				if err != nil {
					t.Error(err)
					return
				}
				if got, _, err := c.Decode(b); err != nil || !reflect.DeepEqual(got, v) {
					t.Errorf("%+v came back as %+v, error %v", v, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestHostileBytesAreErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		decode func([]byte) error
		hex    string
		want   string
	}{
		{"a list of two billion", decodeErr[[]int64], "7fffffff01", "element 1: input ends early"},
		{"a list of -1", decodeErr[[]int64], "ffffffff", "count -1 is negative"},
		{"a map of two billion", decodeErr[map[string]int], "7fffffff", "map key 0"},
		{"a map with a key twice", decodeErr[map[string]int], "00000002016101016102", "map key 1 is there twice"},
		{"a long string", decodeErr[string], "ffffffffffffffff7f61", "length 9223372036854775807, but 1 bytes are left"},
		{"an endless varint", decodeErr[int64], "ffffffffffffffffffff01", "varint is longer than 64 bits"},
		{"an overflowing varint", decodeErr[int64], "ffffffffffffffffff02", "varint is longer than 64 bits"},
		{"a number too large", decodeErr[int8], "8001", "128 does not fit int8"},
		{"a negative unsigned number", decodeErr[uint32], "ffffffffffffffffff01", "-1 does not fit uint32"},
		{"a bool of 2", decodeErr[bool], "02", "a bool is 00 or 01, not 02"},
		{"a wrong array", decodeErr[[2]int], "00000003010101", "[2]int: 3 elements"},
		{"a wrong byte array", decodeErr[digest], "03010101", "coder.digest: 3 bytes"},
		{"null in a field that has none", decodeErr[base], "010101", "field ID is null"},
		{"a null bit without a field", decodeErr[base], "010102", "null bitmap 02 has a bit beyond its 1 fields"},
		{"a long bitmap", decodeErr[base], "01020000", "null bitmap of 2 bytes for 1 fields"},
		{"too many fields", decodeErr[base], "ffffffffffffffff7f00", "a row of 9223372036854775807 fields, but coder.base has 1"},
		{"a billion nanoseconds", decodeErr[time.Time], "02000080 94ebdc03", "time: 1000000000 nanos"},
		{"a time that is another row", decodeErr[time.Time], "030000", "time: not a row of seconds and nanos"},
		{"nothing", decodeErr[order], "", "field count: input ends early"},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.decode(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func decodeErr[T any](src []byte) error {
	c, err := Of[T]()
	if err != nil {
		return err
	}
	_, _, err = c.Decode(src)
	return err
}

func TestElementsOfNoBytesAreBounded(t *testing.T) {
	c := IterableOf(GlobalWindow())
	if _, err := c.Append(nil, make([]Global, maxZeroWidth)); err != nil {
		t.Error(err)
	}
	if _, err := c.Append(nil, make([]Global, maxZeroWidth+1)); !errors.Is(err, errZeroWidth) {
		t.Errorf("append: error %v", err)
	}
	if _, _, err := c.Decode([]byte{0x7f, 0xff, 0xff, 0xff}); !errors.Is(err, errZeroWidth) {
		t.Errorf("decode: error %v", err)
	}
	if _, _, err := c.Decode([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}); !errors.Is(err, errZeroWidth) {
		t.Errorf("decode of a chunk: error %v", err)
	}
	n := must(Of[[]Global](WithCoder(GlobalWindow())))(t)
	if _, err := n.Append(nil, make([]Global, maxZeroWidth+1)); !errors.Is(err, errZeroWidth) {
		t.Errorf("append by Of: error %v", err)
	}
	if _, _, err := n.Decode([]byte{0x7f, 0xff, 0xff, 0xff}); !errors.Is(err, errZeroWidth) {
		t.Errorf("decode by Of: error %v", err)
	}
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	check := func(name string, f func(buf []byte) []byte) {
		buf := f(make([]byte, 0, 1<<12))
		if n := testing.AllocsPerRun(100, func() { f(buf[:0]) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	tr, kv, od := must(Of[trade]())(t), must(Of[KV[string, int64]]())(t), must(Of[order]())(t)
	check("struct", func(b []byte) []byte { return must(tr.Append(b, aTrade))(t) })
	check("kv", func(b []byte) []byte { return must(kv.Append(b, aPair))(t) })
	noMap := anOrder
	noMap.Prices = nil // under -race the pool of a map forgets at random
	check("large struct", func(b []byte) []byte { return must(od.Append(b, noMap))(t) })
	wv := WindowedValueOf(tr, IntervalWindow())
	windows := []Interval{{0, 1000}}
	check("windowed value", func(b []byte) []byte {
		return must(wv.Append(b, WindowedValue[trade, Interval]{aTrade, 1, windows, NoFiring}))(t)
	})
}

func TestSpecDescribesTheEncoding(t *testing.T) {
	type nested struct {
		ID   int `beam:"id"`
		Name *string
		At   []time.Time
		M    map[string]uint8
		D    digest
		A    netip.Addr
		KV   KV[float64, float32]
	}
	got := SpecOf(must(Of[nested]())(t)).String()
	const want = "row{id varint; Name? string_utf8; " +
		"At? iterable(row<beam:logical_type:nanos_instant:v1>{seconds varint; nanos varint}); " +
		"M? millstream:coder:map(string_utf8, millstream:coder:byte); " +
		"D bytes<beam:logical_type:fixed_bytes:v1:4>; A millstream:coder:marshaler<netip.Addr>; " +
		"KV kv(double, millstream:coder:float)}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := SpecOf(secretiveCoder{}), (Spec{URN: urnCustom, Detail: "coder.secretiveCoder"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Wherever the stack happens to grow, a value on it is found: with -race a check of the pointer in
// noescape did that, and the value came back zero.
func TestValuesAreFoundWhereverTheStackGrows(t *testing.T) {
	c := must(Of[KV[int64, int64]]())(t)
	want := KV[int64, int64]{7, 9}
	b := must(c.Append(nil, want))(t)
	var at func(depth int) (KV[int64, int64], error)
	at = func(depth int) (KV[int64, int64], error) {
		if depth > 0 {
			return at(depth - 1)
		}
		v, _, err := c.Decode(b)
		return v, err
	}
	for depth := range 400 {
		result := make(chan error)
		go func() { // a goroutine begins with a small stack
			v, err := at(depth)
			if err == nil && v != want {
				err = fmt.Errorf("got %v", v)
			}
			result <- err
		}()
		if err := <-result; err != nil {
			t.Fatalf("%d calls deep: %v", depth, err)
		}
	}
}
