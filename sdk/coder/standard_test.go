package coder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/millstream/millstream/internal/eventtime"
)

// notRun names each URN of standard_coders.yaml whose cases are not run, with the reason. There is
// none at present; a newer copy of the file may bring some.
var notRun = map[string]string{}

type yamlCase struct {
	Coder    yamlCoder
	Nested   *bool // nil: both contexts
	Examples map[string]any
}

type yamlCoder struct {
	URN              string
	Components       []yamlCoder
	Payload          string
	NonDeterministic bool `yaml:"non_deterministic"`
}

// key names the coder with its components, such as kv(bytes,varint).
func (c yamlCoder) key() string {
	k := strings.TrimSuffix(strings.TrimPrefix(c.URN, "beam:coder:"), ":v1")
	if len(c.Components) > 0 {
		var parts []string
		for _, p := range c.Components {
			parts = append(parts, p.key())
		}
		k += "(" + strings.Join(parts, ",") + ")"
	}
	if c.URN == urnRow { // the schema ends with its own UUID
		k += " " + c.Payload[len(c.Payload)-36:]
	}
	return k
}

type (
	rowPlain struct {
		Str string   `beam:"str"`
		I32 int32    `beam:"i32"`
		F64 float64  `beam:"f64"`
		Arr []string `beam:"arr"`
	}
	rowNullable struct {
		Str *string  `beam:"str"`
		I32 *int32   `beam:"i32"`
		F64 *float64 `beam:"f64"`
	}
	rowBytes struct {
		Bool  bool   `beam:"f_bool"`
		Bytes []byte `beam:"f_bytes"`
	}
	rowMap struct {
		Map map[string]*int64 `beam:"f_map"`
	}
)

// beamRunners maps a coder of the file to the check of one of its cases.
var beamRunners = map[string]func(*testing.T, yamlCase){
	"bytes":       runCase(Bytes(), yamlBytes),
	"string_utf8": runCase(StringUTF8(), yamlString),
	"bool":        runCase(Bool(), yamlAs[bool]),
	"varint":      runCase(VarInt(), yamlInt),
	"double":      runCase(Double(), yamlFloat),

	"kv(bytes,varint)": runCase(KVOf(Bytes(), VarInt()), yamlKV(yamlBytes, yamlInt)),
	"kv(bytes,bytes)":  runCase(KVOf(Bytes(), Bytes()), yamlKV(yamlBytes, yamlBytes)),
	"kv(bytes,bool)":   runCase(KVOf(Bytes(), Bool()), yamlKV(yamlBytes, yamlAs[bool])),

	"iterable(varint)":        runCase(IterableOf(VarInt()), yamlList(yamlInt)),
	"iterable(bool)":          runCase(IterableOf(Bool()), yamlList(yamlAs[bool])),
	"iterable(global_window)": runCase(IterableOf(GlobalWindow()), yamlList(yamlGlobal)),
	"iterable(bytes)": func(t *testing.T, c yamlCase) {
		if c.Coder.NonDeterministic { // the form of unknown length; ours writes one chunk, as these are
			c.Coder.NonDeterministic = false
			runCase(UnknownLengthIterableOf(Bytes()), yamlList(yamlBytes))(t, c)
			c.Coder.NonDeterministic = true
		}
		runCase(IterableOf(Bytes()), yamlList(yamlBytes))(t, c)
	},

	"interval_window":                        runCase(IntervalWindow(), yamlInterval),
	"global_window":                          runCase(GlobalWindow(), yamlGlobal),
	"windowed_value(varint,global_window)":   runCase(WindowedValueOf(VarInt(), GlobalWindow()), yamlWindowed(yamlGlobal)),
	"windowed_value(varint,interval_window)": runCase(WindowedValueOf(VarInt(), IntervalWindow()), yamlWindowed(yamlInterval)),
	"param_windowed_value(varint,interval_window)": func(t *testing.T, c yamlCase) {
		p := must(ParamWindowedValueOf(VarInt(), IntervalWindow(), latin1(t, c.Coder.Payload)))(t)
		runCase(p, yamlWindowed(yamlInterval))(t, c)
	},
	"param_windowed_value(varint,global_window)": func(t *testing.T, c yamlCase) {
		p := must(ParamWindowedValueOf(VarInt(), GlobalWindow(), latin1(t, c.Coder.Payload)))(t)
		runCase(p, yamlWindowed(yamlGlobal))(t, c)
	},
	"timer(string_utf8,global_window)": runCase(TimerOf(StringUTF8(), GlobalWindow()), yamlTimer),

	"row 4e5e554c-d4c1-4a5d-b5e1-f3293a6b9f05": runRow(func(m map[string]any) (r rowPlain, err error) {
		r.Str, r.I32 = m["str"].(string), int32(m["i32"].(int))
		if r.F64, err = yamlFloat(m["f64"]); err == nil {
			r.Arr, err = yamlList(yamlString)(m["arr"])
		}
		return r, err
	}),
	"row b20c6545-57af-4bc8-b2a9-51ace21c7393": runRow(func(m map[string]any) (r rowNullable, err error) {
		r.Str = nilOr(m["str"], func(v any) string { return v.(string) })
		r.I32 = nilOr(m["i32"], func(v any) int32 { return int32(v.(int)) })
		r.F64 = nilOr(m["f64"], func(v any) (f float64) { f, err = yamlFloat(v); return f })
		return r, err
	}),
	"row eea1b747-7571-43d3-aafa-9255afdceafb": runRow(func(m map[string]any) (r rowBytes, err error) {
		r.Bool = m["f_bool"].(bool)
		if m["f_bytes"] != nil {
			r.Bytes, err = yamlBytes(m["f_bytes"])
		}
		return r, err
	}),
	"row d8c8f969-14e6-457f-a8b5-62a1aec7f1cd": runRow(func(m map[string]any) (r rowMap, err error) {
		r.Map = map[string]*int64{}
		for k, v := range m["f_map"].(map[string]any) {
			r.Map[k] = nilOr(v, func(v any) int64 { return int64(v.(int)) })
		}
		return r, nil
	}),
}

func TestBeamReferenceEncodings(t *testing.T) {
	f, err := os.Open("testdata/standard_coders.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	used, examples := map[string]bool{}, 0
	for dec, i := yaml.NewDecoder(f), 0; ; i++ {
		var c yamlCase
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if c.Coder.URN == "" || len(c.Examples) == 0 {
			t.Fatalf("case %d has no coder or no examples: the file's shape is not the one this test reads", i)
		}
		if why, ok := notRun[c.Coder.URN]; ok {
			t.Logf("%s is not run: %s", c.Coder.URN, why)
			continue
		}
		key := c.Coder.key()
		run, ok := beamRunners[key]
		if !ok {
			t.Errorf("case %d, coder %s: neither run nor in the table notRun", i, key)
			continue
		}
		used[key] = true
		examples += len(c.Examples)
		t.Run(fmt.Sprintf("%d/%s", i, key), func(t *testing.T) { run(t, c) })
	}
	for key := range beamRunners {
		if !used[key] {
			t.Errorf("%s is in the table of runners, but the file has no case of it", key)
		}
	}
	t.Logf("%d coders, %d examples", len(used), examples)
}

// runCase checks c against the examples of one case, both ways, in the contexts that it names.
func runCase[T any](c Coder[T], parse func(any) (T, error)) func(*testing.T, yamlCase) {
	return func(t *testing.T, yc yamlCase) {
		for enc, val := range yc.Examples {
			want, err := parse(val)
			if err != nil {
				t.Fatalf("the file's value %v: %v", val, err)
			}
			encoded := latin1(t, enc)
			if yc.Nested == nil || *yc.Nested {
				checkNested(t, c, want, encoded, yc.Coder.NonDeterministic)
			}
			if yc.Nested == nil || !*yc.Nested {
				checkOuter(t, c, want, encoded, yc.Coder.NonDeterministic)
			}
		}
	}
}

func checkNested[T any](t *testing.T, c Coder[T], want T, encoded []byte, decodeOnly bool) {
	t.Helper()
	const suffix = "suffix"
	got, rest, err := c.Decode(append(slices.Clone(encoded), suffix...))
	if err != nil || string(rest) != suffix {
		t.Fatalf("Decode(%x…) leaves %q, error %v", encoded, rest, err)
	}
	if d := cmp.Diff(want, got, sameValue...); d != "" {
		t.Errorf("Decode(%x) (-want +got):\n%s", encoded, d)
	}
	if decodeOnly {
		return
	}
	for _, v := range []T{want, got} { // got too, for -0 compares equal to 0
		if b, err := c.Append([]byte("prefix"), v); err != nil || string(b) != "prefix"+string(encoded) {
			t.Errorf("Append(prefix, %+v) = %x, %v; want prefix and %x", v, b, err, encoded)
		}
	}
}

func checkOuter[T any](t *testing.T, c Coder[T], want T, encoded []byte, decodeOnly bool) {
	t.Helper()
	got, err := decodeOuter(c, encoded)
	if err != nil {
		t.Fatalf("top-level decode of %x: %v", encoded, err)
	}
	if d := cmp.Diff(want, got, sameValue...); d != "" {
		t.Errorf("top-level decode of %x (-want +got):\n%s", encoded, d)
	}
	if decodeOnly {
		return
	}
	if b, err := appendOuter(c, nil, want); err != nil || !bytes.Equal(b, encoded) {
		t.Errorf("top-level encoding of %+v = %x, %v; want %x", want, b, err, encoded)
	}
}

var sameValue = cmp.Options{cmpopts.EquateNaNs()}

func runRow[T any](parse func(map[string]any) (T, error)) func(*testing.T, yamlCase) {
	return func(t *testing.T, c yamlCase) {
		row := must(Of[T]())(t)
		runCase(row, func(v any) (T, error) { return parse(v.(map[string]any)) })(t, c)
	}
}

// latin1 turns the file's strings into bytes: one character is one byte.
func latin1(t *testing.T, s string) []byte {
	b := []byte{}
	for _, r := range s {
		if r > 0xff {
			t.Fatalf("%q is not a byte", r)
		}
		b = append(b, byte(r))
	}
	return b
}

func yamlAs[T any](v any) (T, error) {
	x, ok := v.(T)
	if !ok {
		return x, fmt.Errorf("%T is not %T", v, x)
	}
	return x, nil
}

func yamlString(v any) (string, error)     { return yamlAs[string](v) }
func yamlGlobal(any) (g Global, err error) { return g, nil }

func yamlBytes(v any) ([]byte, error) {
	s, err := yamlAs[string](v)
	return []byte(s), err
}

func yamlInt(v any) (int64, error) {
	i, err := yamlAs[int](v)
	return int64(i), err
}

func yamlFloat(v any) (float64, error) {
	s, err := yamlAs[string](v)
	if err != nil {
		return 0, err
	}
	if s == "NaN" {
		return math.Float64frombits(0x7ff8000000000000), nil // Java's; Go's own differs in the last bit
	}
	return strconv.ParseFloat(s, 64)
}

func yamlKV[K, V any](key func(any) (K, error), value func(any) (V, error)) func(any) (KV[K, V], error) {
	return func(v any) (kv KV[K, V], err error) {
		m := v.(map[string]any)
		if kv.Key, err = key(m["key"]); err == nil {
			kv.Value, err = value(m["value"])
		}
		return kv, err
	}
}

func yamlList[T any](elem func(any) (T, error)) func(any) ([]T, error) {
	return func(v any) ([]T, error) {
		out := []T{}
		for _, e := range v.([]any) {
			x, err := elem(e)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		return out, nil
	}
}

func yamlInterval(v any) (Interval, error) {
	m := v.(map[string]any)
	end, span := m["end"].(int), m["span"].(int)
	return Interval{eventtime.Time(end - span), eventtime.Time(end)}, nil
}

func yamlPane(v any) Pane {
	m := v.(map[string]any)
	timing := map[string]Timing{"EARLY": TimingEarly, "ON_TIME": TimingOnTime, "LATE": TimingLate, "UNKNOWN": TimingUnknown}
	return Pane{
		First: m["is_first"].(bool), Last: m["is_last"].(bool), Timing: timing[m["timing"].(string)],
		Index: int64(m["index"].(int)), NonSpeculativeIndex: int64(m["on_time_index"].(int)),
	}
}

func yamlWindowed[W any](window func(any) (W, error)) func(any) (WindowedValue[int64, W], error) {
	return func(v any) (w WindowedValue[int64, W], err error) {
		m := v.(map[string]any)
		w.Value, w.Timestamp = int64(m["value"].(int)), eventtime.Time(m["timestamp"].(int))
		w.Pane = yamlPane(m["pane"])
		w.Windows, err = yamlList(window)(m["windows"])
		return w, err
	}
}

func yamlTimer(v any) (t Timer[string, Global], err error) {
	m := v.(map[string]any)
	t.Key, t.Tag, t.Clear = m["userKey"].(string), m["dynamicTimerTag"].(string), m["clearBit"].(bool)
	if t.Windows, err = yamlList(yamlGlobal)(m["windows"]); err != nil || t.Clear {
		return t, err
	}
	t.Fire, t.Hold = eventtime.Time(m["fireTimestamp"].(int)), eventtime.Time(m["holdTimestamp"].(int))
	t.Pane = yamlPane(m["pane"])
	return t, nil
}

func nilOr[T any](v any, f func(any) T) *T {
	if v == nil {
		return nil
	}
	x := f(v)
	return &x
}
