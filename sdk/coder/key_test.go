package coder

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vector is one row of docs/format/keys.md.
type vector struct{ typ, key, bytes, hash, group string }

func vectorOf[K comparable](typ, key string, k K) func(*testing.T) vector {
	return func(t *testing.T) vector {
		c := must(KeyOf[K]())(t)
		b, err := c.Append(nil, k)
		if err != nil {
			t.Fatal(err)
		}
		h := must(c.Hash(k))(t)
		if h != HashKey(b) {
			t.Errorf("%s %s: Hash gives %016x, HashKey of the bytes %016x", typ, key, h, HashKey(b))
		}
		if typ == "" {
			typ = fmt.Sprintf("%T", k)
		}
		return vector{typ, key, hex.EncodeToString(b), fmt.Sprintf("%016x", h), strconv.FormatUint(h%256, 10)}
	}
}

type vehicle struct {
	Line string
	Run  int32
}

var (
	berlin = time.FixedZone("CET", 3600)
	answer = int64(42)
	copied = answer
)

var vectors = []func(*testing.T) vector{
	vectorOf("", "false", false),
	vectorOf("", "true", true),
	vectorOf("", "0", 0),
	vectorOf("", "1", 1),
	vectorOf("", "-1", -1),
	vectorOf("", "127", 127),
	vectorOf("", "128", 128),
	vectorOf("int8", "-128", int8(-128)),
	vectorOf("int32", "2147483647", int32(math.MaxInt32)),
	vectorOf("int64", "1234567", int64(1234567)),
	vectorOf("int64", "-9223372036854775808", int64(math.MinInt64)),
	vectorOf("uint8", "200", uint8(200)),
	vectorOf("uint16", "65535", uint16(65535)),
	vectorOf("uint64", "18446744073709551615", uint64(math.MaxUint64)),
	vectorOf("float64", "0.0", 0.0),
	vectorOf("float64", "-0.0", math.Copysign(0, -1)),
	vectorOf("float64", "1.5", 1.5),
	vectorOf("float64", "-Inf", math.Inf(-1)),
	vectorOf("float64", "NaN (any)", math.Float64frombits(0xfff8dead00000001)),
	vectorOf("float32", "-0.0", float32(math.Copysign(0, -1))),
	vectorOf("float32", "NaN (any)", math.Float32frombits(0xffc00001)),
	vectorOf("string", `""`, ""),
	vectorOf("string", `"a"`, "a"),
	vectorOf("string", `"key"`, "key"),
	vectorOf("string", `"key2"`, "key2"),
	vectorOf("string", `"MILLSTREAM12"`, "MILLSTREAM12"),
	vectorOf("string", `"日本"`, "日本"),
	vectorOf("string", `"\xff\xfe"`, "\xff\xfe"),
	vectorOf("string", `"x" 127 times`, strings.Repeat("x", 127)),
	vectorOf("string", `"x" 128 times`, strings.Repeat("x", 128)),
	vectorOf("string", `"x" 300 times`, strings.Repeat("x", 300)),
	vectorOf("[4]byte", "{1, 2, 3, 4}", digest{1, 2, 3, 4}),
	vectorOf("[2]float64", "{-0.0, NaN}", [2]float64{math.Copysign(0, -1), math.NaN()}),
	vectorOf("time.Time", "1970-01-01T00:00:00Z", time.Unix(0, 0)),
	vectorOf("time.Time", "1970-01-01T01:00:00+01:00", time.Unix(0, 0).In(berlin)),
	vectorOf("time.Time", "2024-02-29T23:59:59.999999999Z", time.Date(2024, 2, 29, 23, 59, 59, 999999999, time.UTC)),
	vectorOf("time.Time", "zero", time.Time{}),
	vectorOf("struct {Line string; Run int32}", `{"M10", 7}`, vehicle{"M10", 7}),
	vectorOf("coder.KV[string, int64]", `{"MILLSTREAM12", 123456}`, aPair),
	vectorOf("struct {}", "{}", struct{}{}),
	vectorOf("*int64", "pointer to 42", &answer),
	vectorOf("*int64", "another pointer to 42", &copied),
	vectorOf("*int64", "nil", (*int64)(nil)),
	vectorOf("struct {P *int64}", "{pointer to 42}", struct{ P *int64 }{&answer}),
	vectorOf("netip.Addr", "10.0.0.1", netip.MustParseAddr("10.0.0.1")),
}

// The file is what other programs and later versions rely on; a difference here is a lost state.
func TestKeyVectorsAreThoseOfTheFormat(t *testing.T) {
	var got, want []vector
	for _, v := range vectors {
		x := v(t)
		if len(x.bytes) > 64 {
			x.bytes = x.bytes[:8] + "…"
		}
		got = append(got, x)
	}
	for _, row := range docTable(t, "../../docs/format/keys.md", "| type | key |") {
		want = append(want, vector{row[0], row[1], row[2], row[3], row[4]})
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(vector{})); d != "" {
		t.Errorf("docs/format/keys.md and the code (-file +code):\n%s", d)
	}
}

// docTable returns the rows of the table with this head in a Markdown file, without back quotes.
func docTable(t *testing.T, file, head string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(text), "\n"+head)
	if !ok {
		t.Fatalf("%s has no table %q", file, head)
	}
	for _, line := range strings.Split(body, "\n")[2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(c), "`"))
		}
		rows = append(rows, cells)
	}
	if len(rows) == 0 {
		t.Fatalf("%s: table %q is empty", file, head)
	}
	return rows
}

// I1: keys group by their encodings, and the same way wherever they are compared.
func TestKeysThatCountAsOneHaveOneEncoding(t *testing.T) {
	type key struct {
		F [2]float64
		P *float32
		T time.Time
	}
	c := must(KeyOf[key]())(t)
	nan, minus := float32(math.NaN()), float32(math.Copysign(0, -1))
	otherNaN, zero := math.Float32frombits(0x7fc12345), float32(0)
	at := time.Date(2024, 5, 6, 7, 8, 9, 10, time.UTC)
	for _, pair := range [][2]key{
		{{F: [2]float64{0, math.NaN()}}, {F: [2]float64{math.Copysign(0, -1), math.Float64frombits(0x7ff0000000000001)}}},
		{{P: &nan}, {P: &otherNaN}},
		{{P: &minus}, {P: &zero}},
		{{T: at}, {T: at.In(berlin)}},
	} {
		a, err := c.Append(nil, pair[0])
		if err != nil {
			t.Fatal(err)
		}
		if b, err := c.Append(nil, pair[1]); err != nil || hex.EncodeToString(a) != hex.EncodeToString(b) {
			t.Errorf("%+v and %+v: %x and %x, error %v", pair[0], pair[1], a, b, err)
		}
		if ha, hb := must(c.Hash(pair[0]))(t), must(c.Hash(pair[1]))(t); ha != hb {
			t.Errorf("%+v and %+v: hashes differ", pair[0], pair[1])
		}
	}
	if b, err := must(Of[float64]())(t).Append(nil, math.Copysign(0, -1)); err != nil || b[0] != 0x80 {
		t.Errorf("as a value, -0.0 must stay: %x, %v", b, err)
	}
}

func TestNativeMeansGoEquality(t *testing.T) {
	check := func(name string, got bool, err error, want bool) {
		if err != nil || got != want {
			t.Errorf("%s: native %v, error %v, want %v", name, got, err, want)
		}
	}
	k1, err := KeyOf[vehicle]()
	check("struct of string and int32", k1.Native, err, true)
	k2, err := KeyOf[KV[[2]string, level]]()
	check("kv of native", k2.Native, err, true)
	k3, err := KeyOf[[16]byte]()
	check("byte array", k3.Native, err, true)
	k4, err := KeyOf[struct{ F float32 }]()
	check("float", k4.Native, err, false)
	k5, err := KeyOf[[1]time.Time]()
	check("time", k5.Native, err, false)
	k6, err := KeyOf[*int]()
	check("pointer", k6.Native, err, false)
	k7, err := KeyOf[netip.Addr]()
	check("marshaler", k7.Native, err, false)
	k8, err := KeyOf[struct {
		A int
		_ float64
	}]()
	check("a blank field, which == ignores too", k8.Native, err, true)
	k9, err := KeyOf[vehicle](WithCoder[vehicle](detCoder{}))
	check("custom coder", k9.Native, err, false)
}

type detCoder struct{}

func (detCoder) Append(dst []byte, v vehicle) ([]byte, error) {
	return StringUTF8().Append(dst, v.Line)
}
func (detCoder) Decode(src []byte) (v vehicle, rest []byte, err error) {
	v.Line, rest, err = StringUTF8().Decode(src)
	return v, rest, err
}
func (detCoder) Deterministic() error { return nil }

type undetermined struct{ detCoder }

func (undetermined) Deterministic() error { return fmt.Errorf("it depends on the weather") }

func TestKeyOfRefusesWhatIsNotDeterministic(t *testing.T) {
	type key struct{ V vehicle }
	if _, err := KeyOf[key](WithCoder[vehicle](undetermined{})); err == nil ||
		!strings.Contains(err.Error(), "coder: type coder.key, field V: coder.vehicle cannot be in a key: it depends on the weather") {
		t.Errorf("error %v", err)
	}
	if _, err := KeyOf[secretive](WithCoder[secretive](secretiveCoder{})); err == nil ||
		!strings.Contains(err.Error(), "coder coder.secretiveCoder does not implement coder.Deterministic") {
		t.Errorf("error %v", err)
	}
	if _, err := KeyOf[any](); err == nil || !strings.Contains(err.Error(), "is an interface") {
		t.Errorf("error %v", err)
	}
	if err := must(Of[[]vehicle](WithCoder[vehicle](undetermined{})))(t).(Deterministic).Deterministic(); err == nil {
		t.Error("a list of what is not deterministic says it is")
	}
}

func TestKeysAndValuesOfFloatsHaveDifferentSpecs(t *testing.T) {
	key, value := SpecOf(must(KeyOf[KV[float64, float32]]())(t)), SpecOf(must(Of[KV[float64, float32]]())(t))
	if key.String() != "kv(double<canonical>, millstream:coder:float<canonical>)" || value.String() != "kv(double, millstream:coder:float)" {
		t.Errorf("key %v, value %v", key, value)
	}
}

func TestHashFailsAsAppendDoes(t *testing.T) {
	c := must(KeyOf[failing]())(t)
	if _, err := c.Hash(failing{-1}); err == nil || !strings.Contains(err.Error(), "hash key of type coder.failing: coder.failing: negative") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Append(nil, failing{-1}); err == nil {
		t.Error("append does not fail")
	}
}

func TestHashingDoesNotAllocate(t *testing.T) {
	ints, strs := must(KeyOf[int64]())(t), must(KeyOf[string]())(t)
	var sum uint64
	if n := testing.AllocsPerRun(100, func() {
		a, err := ints.Hash(1234567)
		b, err2 := strs.Hash("MILLSTREAM12")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		sum += a + b
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Many keys are spread evenly enough: the fullest of 256 groups holds less than twice its share.
func TestKeyGroupsAreSpreadEvenly(t *testing.T) {
	ints := must(KeyOf[int64]())(t)
	const keys, groups = 1 << 16, 256
	var count [groups]int
	for i := range int64(keys) {
		count[must(ints.Hash(i))(t)%uint64(groups)]++
	}
	for g, n := range count {
		if n == 0 || n > 2*keys/groups {
			t.Errorf("group %d has %d keys", g, n)
		}
	}
}

func TestPutVarintAgreesWithAppendVarint(t *testing.T) {
	check := func(x uint64) {
		var b [16]byte
		if n := putVarint(&b, x); !bytes.Equal(b[:n], appendVarint(nil, x)) {
			t.Errorf("%d is %x, want %x", x, b[:n], appendVarint(nil, x))
		}
	}
	for shift := range 64 {
		for _, d := range []uint64{0, 1, ^uint64(0)} {
			check(1<<shift + d)
		}
	}
}
