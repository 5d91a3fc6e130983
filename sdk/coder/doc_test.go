package coder

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// docExample checks one row of docs/format/coders.md: v and the row's bytes are each other's image,
// and no beginning of the bytes is a value.
func docExample[T any](c Coder[T], v T) func(t *testing.T, encoded []byte) {
	return func(t *testing.T, encoded []byte) {
		for cut := range encoded {
			if got, _, err := c.Decode(encoded[:cut]); err == nil {
				t.Errorf("the first %d bytes decode to %+v", cut, got)
			}
		}
		b, err := c.Append(nil, v)
		if err != nil || hex.EncodeToString(b) != hex.EncodeToString(encoded) {
			t.Errorf("encoding is %x, error %v", b, err)
		}
		got, rest, err := c.Decode(encoded)
		if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, v) {
			t.Errorf("the file's bytes decode to %+v, leaving %x, error %v", got, rest, err)
		}
	}
}

// standardExample checks the coder's name too.
func standardExample[T any](c Coder[T], v T) func(t *testing.T, encoded []byte) {
	return func(t *testing.T, encoded []byte) {
		spec := SpecOf(c)
		spec.Payload = nil // the table does not show it
		_, name, _ := strings.Cut(t.Name(), "/")
		name, _, _ = strings.Cut(name, "#") // of a second example
		if strings.ReplaceAll(spec.String(), " ", "_") != name {
			t.Errorf("the coder calls itself %v", spec)
		}
		docExample(c, v)(t, encoded)
	}
}

func ofExample[T any](v T) func(t *testing.T, encoded []byte) {
	return func(t *testing.T, encoded []byte) { docExample(must(Of[T]())(t), v)(t, encoded) }
}

func TestStandardCodersAreAsDocumented(t *testing.T) {
	five := int64(5)
	param := must(ParamWindowedValueOf(VarInt(), GlobalWindow(), []byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x0f\x00")))(t)
	checkDoc(t, "| coder | value |", []func(*testing.T, []byte){
		standardExample(Bytes(), []byte("abc")),
		standardExample(StringUTF8(), "é"),
		standardExample(VarInt(), 200),
		standardExample(Double(), -2),
		standardExample(Bool(), true),
		standardExample(KVOf(StringUTF8(), VarInt()), KV[string, int64]{"a", 1}),
		standardExample(NullableOf(VarInt()), nil),
		standardExample(NullableOf(VarInt()), &five),
		standardExample(LengthPrefixOf(StringUTF8()), "ab"),
		standardExample(LengthPrefixOf(VarInt()), 200),
		standardExample(ShardedKeyOf(StringUTF8()), ShardedKey[string]{"k", []byte{0x11, 0x22}}),
		standardExample(IterableOf(VarInt()), []int64{1, 200}),
		standardExample(UnknownLengthIterableOf(VarInt()), []int64{1, 200}),
		standardExample(StateBackedIterableOf(VarInt()), StateBacked[int64]{[]int64{1}, []byte{0xaa, 0xbb}}),
		standardExample(StateBackedIterableOf(VarInt()), StateBacked[int64]{Elements: []int64{1}}),
		standardExample(GlobalWindow(), Global{}),
		standardExample(IntervalWindow(), Interval{1000, 2000}),
		standardExample(CustomWindowOf(StringUTF8()), CustomWindow[string]{1999, "w"}),
		standardExample(WindowedValueOf(VarInt(), IntervalWindow()),
			WindowedValue[int64, Interval]{5, 1500, []Interval{{1000, 2000}}, Pane{First: true, Last: true, Timing: TimingOnTime}}),
		standardExample(param, WindowedValue[int64, Global]{5, 0, []Global{{}}, NoFiring}),
		standardExample(TimerOf(StringUTF8(), GlobalWindow()), Timer[string, Global]{"k", "t", []Global{{}}, false, 1, 0, NoFiring}),
		standardExample(TimerOf(StringUTF8(), GlobalWindow()), Timer[string, Global]{Key: "k", Tag: "t", Windows: []Global{{}}, Clear: true}),
	})
}

func TestGoTypesAreEncodedAsDocumented(t *testing.T) {
	type two struct {
		A int64
		B string
	}
	type nullables struct {
		A *int64
		B []int64
		C int64
	}
	five := int64(5)
	checkDoc(t, "| Go type | value |", []func(*testing.T, []byte){
		ofExample(true),
		ofExample(int64(300)),
		ofExample(int8(-1)),
		ofExample(uint64(1<<64 - 1)),
		ofExample(uint8(200)),
		ofExample(1.5),
		ofExample(float32(1.5)),
		ofExample("ab"),
		ofExample([]byte{1, 2}),
		ofExample([2]byte{1, 2}),
		ofExample(time.Unix(1, 2).UTC()),
		ofExample(time.Millisecond),
		ofExample[*int64](nil),
		ofExample(&five),
		ofExample([]int64{1, 2}),
		ofExample([2]int64{1, 2}),
		ofExample(map[string]int64{"b": 2, "a": 1}),
		ofExample(KV[string, int64]{"a", 1}),
		ofExample(two{5, "b"}),
		ofExample(nullables{nil, nil, 7}),
		ofExample(nullables{&five, []int64{}, 7}),
		ofExample(netip.MustParseAddr("10.0.0.1")),
		ofExample(*big.NewInt(-12)),
	})
}

func checkDoc(t *testing.T, head string, examples []func(*testing.T, []byte)) {
	rows := docTable(t, "../../docs/format/coders.md", head)
	if len(rows) != len(examples) {
		t.Fatalf("the table has %d rows, the test %d", len(rows), len(examples))
	}
	for i, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			b, err := hex.DecodeString(strings.NewReplacer("`", "", " ", "").Replace(row[2]))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s", row[1], row[2])
			examples[i](t, b)
		})
	}
}

// Every standard coder is in the documented table, and so is run.
func TestEveryStandardCoderHasAnExample(t *testing.T) {
	have := map[string]bool{urnRow: true} // in the table of Go types
	for _, row := range docTable(t, "../../docs/format/coders.md", "| coder | value |") {
		name, _, _ := strings.Cut(row[0], "(")
		have[fmt.Sprintf("beam:coder:%s:v1", name)] = true
	}
	want := map[string]bool{}
	for _, urn := range []string{urnBytes, urnString, urnVarInt, urnDouble, urnBool, urnKV, urnNullable, urnLengthPrefix,
		urnShardedKey, urnIterable, urnStateBackedIterable, urnIntervalWindow, urnGlobalWindow, urnCustomWindow,
		urnWindowedValue, urnParamWindowedValue, urnTimer, urnRow} {
		want[urn] = true
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("standard coders (-known +documented):\n%s", d)
	}
}

func TestPanes(t *testing.T) {
	for _, c := range []struct {
		p    Pane
		want string
	}{
		{NoFiring, "0f"},
		{Pane{Timing: TimingOnTime}, "04"},
		{Pane{First: true, Timing: TimingEarly, NonSpeculativeIndex: -1}, "1100"},
		{Pane{Timing: TimingEarly, Index: 3, NonSpeculativeIndex: -1}, "1003"},
		{Pane{Last: true, Timing: TimingLate, Index: 4, NonSpeculativeIndex: 4}, "1a04"},
		{Pane{Last: true, Timing: TimingOnTime, Index: 200, NonSpeculativeIndex: 0}, "26c80100"},
	} {
		b, err := appendPane(nil, c.p)
		if err != nil || hex.EncodeToString(b) != c.want {
			t.Errorf("%+v = %x, %v, want %s", c.p, b, err, c.want)
		}
		if got, rest, err := decodePane(b); err != nil || len(rest) != 0 || got != c.p {
			t.Errorf("%x = %+v, %v, want %+v", b, got, err, c.p)
		}
	}
	// Java writes an early first pane so; Beam's PaneInfo gives it the index -1.
	if got, _, err := decodePane([]byte{0x01}); err != nil || got != (Pane{First: true, Timing: TimingEarly, NonSpeculativeIndex: -1}) {
		t.Errorf("01 = %+v, %v", got, err)
	}
	for _, p := range []Pane{
		{Timing: TimingUnknown, Index: 1}, {Timing: TimingEarly}, {Timing: TimingLate, NonSpeculativeIndex: -1}, {Timing: TimingOnTime, Index: -1}, {Timing: 4},
	} {
		if _, err := appendPane(nil, p); err == nil {
			t.Errorf("%+v is encoded", p)
		}
	}
	for _, b := range []string{"", "30", "80", "1c00", "210000", "14", "1480", "14ffffffffffffffffff01", "2400"} {
		x, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if p, _, err := decodePane(x); err == nil {
			t.Errorf("%s decodes to %+v", b, p)
		}
	}
}

func TestWhatStandardCodersRefuse(t *testing.T) {
	refuse := func(name string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	enc := func(b []byte, err error) error {
		if len(b) > 0 {
			t.Errorf("with the error %v come the bytes %x", err, b)
		}
		return err
	}
	dec := func(c Coder[Interval], s string) error { _, _, err := c.Decode([]byte(s)); return err }
	refuse("inverted window", enc(IntervalWindow().Append(nil, Interval{5, 4})), "ends before it starts")
	refuse("window before time", enc(IntervalWindow().Append(nil, Interval{-1 << 63, 4})), "not in Beam's range")
	refuse("window after time", enc(IntervalWindow().Append(nil, Interval{0, 1<<63 - 1})), "outside Beam's range")
	refuse("window span", dec(IntervalWindow(), "\x80\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "span -1 ms")
	refuse("instant", dec(IntervalWindow(), "\xff\x00\x00\x00\x00\x00\x00\x00\x00"), "outside Beam's range")
	refuse("cleared timer", enc(TimerOf(VarInt(), GlobalWindow()).Append(nil, Timer[int64, Global]{Clear: true, Fire: 1})), "clears, yet has a time")
	_, err := ParamWindowedValueOf(VarInt(), GlobalWindow(), []byte("\x80"))
	refuse("payload", err, "payload of param windowed value: decode timestamp: input ends early")
	_, err = ParamWindowedValueOf(VarInt(), GlobalWindow(), []byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x0f\x00\x00"))
	refuse("long payload", err, "payload of param windowed value: 1 bytes are left over")
	param := must(ParamWindowedValueOf(VarInt(), GlobalWindow(), []byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x0f\x00")))(t)
	refuse("other timestamp", enc(param.Append(nil, WindowedValue[int64, Global]{Timestamp: 1, Windows: []Global{{}}, Pane: NoFiring})), "are not the coder's own")
	_, _, err = LengthPrefixOf(VarInt()).Decode([]byte{2, 1, 1})
	refuse("length prefix", err, "decode after length prefix: 1 bytes are left over")
	_, _, err = IterableOf(VarInt()).Decode([]byte{0x80, 0, 0, 0})
	refuse("iterable", err, "count -2147483648 is negative")
	_, _, err = IterableOf(VarInt()).Decode([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	refuse("a token where none may be", err, "chunk of -1 elements")
}

func TestLengthPrefixIsOneLength(t *testing.T) {
	long := strings.Repeat("x", 300) // its length takes two bytes
	for _, c := range []Coder[string]{StringUTF8(), must(Of[string]())(t)} {
		docExample(LengthPrefixOf(c), long)(t, append([]byte{0xac, 0x02}, long...))
	}
	type pair = KV[string, []byte]
	for _, c := range []Coder[pair]{KVOf(StringUTF8(), Bytes()), must(Of[pair]())(t)} {
		docExample(LengthPrefixOf(c), pair{"k", []byte("v")})(t, []byte("\x03\x01kv"))
	}
	docExample(LengthPrefixOf(must(Of[digest]())(t)), digest{1, 2, 3, 4})(t, []byte{4, 1, 2, 3, 4})
}

// aliasing decodes b, overwrites it, and checks that the value is still v.
func aliasing[T any](t *testing.T, c Coder[T], v T) {
	t.Helper()
	b, err := c.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := c.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !reflect.DeepEqual(got, v) {
		t.Errorf("after the bytes were cleared: %+v, want %+v", got, v)
	}
}

func TestStandardCodersDoNotAliasTheirBytes(t *testing.T) {
	aliasing(t, Bytes(), []byte("abc"))
	aliasing(t, StringUTF8(), "abc")
	aliasing(t, LengthPrefixOf(Bytes()), []byte("abc"))
	aliasing(t, LengthPrefixOf(KVOf(StringUTF8(), Bytes())), KV[string, []byte]{"k", []byte("abc")})
	aliasing(t, ShardedKeyOf(StringUTF8()), ShardedKey[string]{"k", []byte("abc")})
	aliasing(t, StateBackedIterableOf(VarInt()), StateBacked[int64]{[]int64{1}, []byte("abc")})
}

func TestParamWindowedValuesDoNotShareTheirWindows(t *testing.T) {
	payload, err := WindowedValueOf(Bytes(), IntervalWindow()).Append(nil,
		WindowedValue[[]byte, Interval]{nil, 5, []Interval{{0, 10}}, NoFiring})
	if err != nil {
		t.Fatal(err)
	}
	c := must(ParamWindowedValueOf(VarInt(), IntervalWindow(), payload))(t)
	first, _, err := c.Decode([]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	first.Windows[0] = Interval{1, 2}
	second, _, err := c.Decode([]byte{1})
	if err != nil || second.Windows[0] != (Interval{0, 10}) {
		t.Errorf("the second value has the window %v, error %v", second.Windows, err)
	}
}

// Where an element cannot be encoded, what is around it fails, says why, and leaves dst as it was.
func TestErrorsOfElementsComeThrough(t *testing.T) {
	bad := must(Of[failing]())(t)
	minus := failing{-1}
	head := []byte("head")
	check := func(name string, b []byte, err error) {
		t.Helper()
		if !errors.Is(err, errNegative) || string(b) != "head" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	windows := []failing{minus}
	b, err := KVOf(bad, VarInt()).Append(head, KV[failing, int64]{Key: minus})
	check("key", b, err)
	b, err = KVOf(VarInt(), bad).Append(head, KV[int64, failing]{Value: minus})
	check("value", b, err)
	b, err = NullableOf(bad).Append(head, &minus)
	check("nullable", b, err)
	b, err = LengthPrefixOf(bad).Append(head, minus)
	check("length prefix", b, err)
	b, err = ShardedKeyOf(bad).Append(head, ShardedKey[failing]{Key: minus})
	check("sharded key", b, err)
	b, err = IterableOf(bad).Append(head, windows)
	check("iterable", b, err)
	b, err = UnknownLengthIterableOf(bad).Append(head, windows)
	check("chunk", b, err)
	b, err = StateBackedIterableOf(bad).Append(head, StateBacked[failing]{windows, []byte{}})
	check("state-backed iterable", b, err)
	b, err = CustomWindowOf(bad).Append(head, CustomWindow[failing]{Window: minus})
	check("custom window", b, err)
	b, err = WindowedValueOf(bad, GlobalWindow()).Append(head, WindowedValue[failing, Global]{Value: minus, Pane: NoFiring})
	check("windowed value", b, err)
	b, err = WindowedValueOf(VarInt(), bad).Append(head, WindowedValue[int64, failing]{Windows: windows, Pane: NoFiring})
	check("window", b, err)
	b, err = TimerOf(bad, GlobalWindow()).Append(head, Timer[failing, Global]{Key: minus})
	check("timer key", b, err)
	b, err = TimerOf(VarInt(), bad).Append(head, Timer[int64, failing]{Windows: windows})
	check("timer window", b, err)
	b, err = must(Of[map[string]failing]())(t).Append(head, map[string]failing{"k": minus})
	check("map value", b, err)
	b, err = must(Of[map[failing]int]())(t).Append(head, map[failing]int{minus: 1})
	check("map key", b, err)
	b, err = must(Of[[1]failing]())(t).Append(head, [1]failing{minus})
	check("array", b, err)
	b, err = must(Of[KV[failing, int]]())(t).Append(head, KV[failing, int]{Key: minus})
	check("key by Of", b, err)
}
