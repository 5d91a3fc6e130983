package state_test

import (
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/state"
)

type total struct{}

func (total) CreateAccumulator() int64           { return 0 }
func (total) AddInput(a int64, v int64) int64    { return a + v }
func (total) MergeAccumulators(a, b int64) int64 { return a + b }
func (total) ExtractOutput(a int64) string       { return fmt.Sprint("sum ", a) }

func at(ms int64) time.Time { return time.UnixMilli(ms) }

// Beam issues 18582 and 18567: what was read changed by a later write.
func TestBagThatWasReadDoesNotChange(t *testing.T) {
	d := &decl{}
	bag := state.NewBag[int](d, "bag")
	k := newKey(d)
	k.call(func() { bag.Add(1) })
	k.call(func() {
		r, n := bag.All(), bag.Len()
		bag.Add(17)
		if got := slices.Collect(r); !slices.Equal(got, []int{1}) || n != 1 {
			t.Errorf("what was read became %v, %d", got, n)
		}
		again := bag.All()
		if got := slices.Collect(again); !slices.Equal(got, []int{1, 17}) || bag.Len() != 2 {
			t.Errorf("the second read is %v, %d", got, bag.Len())
		}
		bag.Clear()
		bag.Add(2)
		for _, c := range []struct {
			got  iter.Seq[int]
			want []int
		}{{r, []int{1}}, {again, []int{1, 17}}, {bag.All(), []int{2}}} {
			if got := slices.Collect(c.got); !slices.Equal(got, c.want) {
				t.Errorf("after Clear: %v, want %v", got, c.want)
			}
		}
	})
}

func TestCollectionsMayChangeWhileTheyAreRead(t *testing.T) {
	d := &decl{}
	bag, m, l := state.NewBag[int](d, "bag"), state.NewMap[int, int](d, "map"), state.NewOrderedList[int](d, "list")
	k := newKey(d)
	k.call(func() {
		for i := range 1000 { // several blocks
			bag.Add(i)
			m.Put(i, i)
			l.Add(at(int64(i)), i)
		}
	})
	k.call(func() {
		n := 0
		for v := range bag.All() {
			bag.Add(v)
			n++
		}
		if n != 1000 || bag.Len() != 2000 {
			t.Errorf("%d of the bag read, %d are there", n, bag.Len())
		}
		n = 0
		for key, v := range m.All() {
			if v != key {
				t.Fatalf("%d: %d", key, v)
			}
			m.Put(999-key, -1)
			m.Delete(key)
			n++
		}
		if n != 1000 || m.Len() != 500 {
			t.Errorf("%d of the map read, %d are there", n, m.Len())
		}
		n = 0
		for ts, v := range l.Range(at(100), at(200)) {
			l.ClearRange(ts, at(150))
			l.Add(ts, v)
			n++
		}
		if n != 100 || l.Len() != 1050 { // the last 50 were added once more
			t.Errorf("%d of the list read, %d are there", n, l.Len())
		}
		for v := range bag.All() {
			if v > 3 {
				break // a reader may stop
			}
		}
	})
}

func TestMapKeysAreEqualAsKeysAre(t *testing.T) {
	d := &decl{}
	m := state.NewMap[float64, string](d, "map")
	newKey(d).call(func() {
		m.Put(math.Copysign(0, -1), "zero")
		m.Put(math.NaN(), "none")
		m.Put(0, "nought")
		if v, ok := m.Lookup(math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)); !ok || v != "none" {
			t.Errorf("another NaN has %q, %v", v, ok)
		}
		for key := range m.All() {
			if math.Signbit(key) {
				t.Error("what comes out depends on which zero came first")
			}
		}
		if m.Len() != 2 || m.Get(0) != "nought" || m.Get(1) != "" {
			t.Errorf("%d keys, %v", m.Len(), maps.Collect(m.All()))
		}
		m.Delete(7)
		m.Delete(0)
		if _, ok := m.Lookup(0); ok || m.Len() != 1 {
			t.Error("a deleted key is there")
		}
	})
}

func TestMapIsReadInTheOrderOfEncodedKeys(t *testing.T) {
	d := &decl{}
	m := state.NewMap[string, int](d, "map")
	newKey(d).call(func() {
		for i, key := range []string{"bb", "a", "", "c", "aaa"} {
			m.Put(key, i)
		}
		var got []string
		for key := range m.All() {
			got = append(got, key)
		}
		if want := []string{"", "a", "c", "bb", "aaa"}; !slices.Equal(got, want) { // a length stands in front
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestOrderedListIsInTheOrderOfTimeThenOfAdding(t *testing.T) {
	d := &decl{}
	l := state.NewOrderedList[string](d, "list")
	newKey(d).call(func() {
		for _, e := range []struct {
			ms int64
			v  string
		}{{5, "a"}, {9, "b"}, {5, "c"}, {-1, "d"}, {9, "e"}, {5, "f"}} {
			l.Add(at(e.ms), e.v)
		}
		read := func(from, to time.Time) (s string) {
			for ts, v := range l.Range(from, to) {
				s += fmt.Sprint(ts.UnixMilli(), v, " ")
			}
			return s
		}
		none := time.Time{}
		for _, c := range []struct {
			from, to time.Time
			want     string
		}{
			{none, none, "-1d 5a 5c 5f 9b 9e "}, {at(5), at(9), "5a 5c 5f "}, {at(6), at(9), ""}, {none, at(5), "-1d "},
			{at(9), none, "9b 9e "}, {at(9), at(5), ""}, {at(10), none, ""}, {at(-5), at(6), "-1d 5a 5c 5f "},
		} {
			if got := read(c.from, c.to); got != c.want {
				t.Errorf("[%v, %v): %q, want %q", c.from, c.to, got, c.want)
			}
		}
		l.ClearRange(at(5), at(5))
		l.ClearRange(at(0), at(9))
		if got := read(none, none); got != "-1d 9b 9e " || l.Len() != 3 {
			t.Errorf("after ClearRange: %q, %d", got, l.Len())
		}
		l.ClearRange(none, none)
		if l.Len() != 0 {
			t.Error("ClearRange without limits left something")
		}
	})
}

func TestCombiningOfNothingIsTheIdentity(t *testing.T) {
	d := &decl{}
	c := state.NewCombining(d, "sum", total{})
	k := newKey(d)
	k.call(func() {
		if !c.IsEmpty() || c.Get() != "sum 0" || k.writes != 0 {
			t.Errorf("of nothing: %v, %q, %d writes", c.IsEmpty(), c.Get(), k.writes)
		}
		c.Add(3)
		c.Add(4)
		if c.IsEmpty() || c.Get() != "sum 7" {
			t.Errorf("%v, %q", c.IsEmpty(), c.Get())
		}
		c.Clear()
		if !c.IsEmpty() || c.Get() != "sum 0" {
			t.Errorf("after Clear: %v, %q", c.IsEmpty(), c.Get())
		}
	})
}

// slotsLeft is what k has after use.
func slotsLeft(k *key, use func()) (cleared bool, left int) {
	_, _, cleared = k.call(use)
	for _, s := range k.slots {
		if s != nil {
			left++
		}
	}
	return cleared, left
}

func TestEmptyCollectionTakesNoRoom(t *testing.T) {
	d := &decl{}
	m, l := state.NewMap[int, int](d, "map"), state.NewOrderedList[int](d, "list")
	k := newKey(d)
	if _, left := slotsLeft(k, func() { m.Put(1, 1); l.Add(at(1), 1) }); left != 2 {
		t.Fatalf("%d slots", left)
	}
	if cleared, left := slotsLeft(k, func() { m.Delete(1) }); !cleared || left != 1 {
		t.Errorf("the last Delete cleared %v, left %d", cleared, left)
	}
	if cleared, left := slotsLeft(k, func() { l.ClearRange(at(0), at(2)) }); !cleared || left != 0 {
		t.Errorf("ClearRange of the last cleared %v, left %d", cleared, left)
	}
}

func TestReadsAndClearsOfNothingDoNotWrite(t *testing.T) {
	d := &decl{}
	bag, m, l := state.NewBag[int](d, "bag"), state.NewMap[int, int](d, "map"), state.NewOrderedList[int](d, "list")
	sum := state.NewCombining(d, "sum", total{})
	k := newKey(d)
	k.call(func() {
		bag.Clear()
		m.Clear()
		l.Clear()
		sum.Clear()
		m.Delete(1)
		l.ClearRange(at(0), at(9))
		n := bag.Len() + m.Len() + l.Len() + len(slices.Collect(bag.All())) + len(maps.Collect(m.All()))
		for range l.All() {
			n++
		}
		if n != 0 {
			t.Error("something is there")
		}
	})
	if k.writes != 0 {
		t.Errorf("%d writes", k.writes)
	}
}

// With nothing new in a cell, a call allocates nothing.
func TestUseOfCellsInSteadyStateAllocatesLittle(t *testing.T) {
	d := &decl{}
	m := state.NewMap[int64, string](d, "map", state.TTL(time.Hour, state.OnWrite, state.ProcessingTime))
	sum := state.NewCombining(d, "sum", total{})
	bag := state.NewBag[int64](d, "bag")
	l := state.NewOrderedList[[2]int64](d, "list")
	k := newKey(d)
	k.call(func() {
		for i := range int64(1000) {
			m.Put(i, "x")
		}
	})
	x := int64(0)
	n := testing.AllocsPerRun(1000, func() {
		k.call(func() {
			x++
			m.Put(x%1000, "y")
			if m.Get(x%1000) != "y" || m.Len() != 1000 || bag.Len() > 2000 {
				panic("wrong")
			}
			sum.Add(1)
			bag.Add(x)
			l.Add(at(1000+x), [2]int64{})
		})
	})
	if n > 0 { // blocks now and then are less than one a call
		t.Errorf("%v allocations a call", n)
	}
}

// useAll uses every method of every kind, after a call.
func TestCollectionsOutsideACallAreAnError(t *testing.T) {
	d := &decl{}
	bag, m, l := state.NewBag[int](d, "bag"), state.NewMap[int, int](d, "map"), state.NewOrderedList[int](d, "list")
	sum := state.NewCombining(d, "sum", total{})
	uses := map[string]func(){
		"bag add": func() { bag.Add(1) }, "bag all": func() { bag.All() }, "bag len": func() { bag.Len() }, "bag clear": bag.Clear,
		"map get": func() { m.Get(1) }, "map put": func() { m.Put(1, 1) }, "map delete": func() { m.Delete(1) }, "map all": func() { m.All() },
		"map len": func() { m.Len() }, "map clear": m.Clear,
		"list add": func() { l.Add(at(1), 1) }, "list range": func() { l.Range(at(1), at(2)) }, "list all": func() { l.All() },
		"list clear range": func() { l.ClearRange(at(1), at(2)) }, "list len": func() { l.Len() }, "list clear": l.Clear,
		"sum add": func() { sum.Add(1) }, "sum get": func() { sum.Get() }, "sum empty": func() { sum.IsEmpty() }, "sum clear": sum.Clear,
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			set := state.SetOf(d)
			*set = cell.Set{Decls: set.Decls}
			k := newKey(d)
			k.call(func() { bag.Add(5); m.Put(1, 5); l.Add(at(1), 5); sum.Add(5) })
			kept := bag.All()
			*set = cell.Set{Decls: set.Decls, Write: set.Write}
			use()
			cellName, _, _ := strings.Cut(name, " ")
			if err := set.Err(); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("cell %q was used outside a call", cellName)) {
				t.Errorf("error %v", err)
			}
			_ = kept
			k.call(func() {
				if bag.Len() != 1 || m.Get(1) != 5 || l.Len() != 1 || sum.Get() != "sum 5" {
					t.Error("the key's state changed")
				}
			})
		})
	}
}

func TestUnboundCollectionsPanicWithAReason(t *testing.T) {
	for want, use := range map[string]func(){
		"state.Bag[int] that was not made by state.NewBag":                                   func() { state.Bag[int]{}.Len() },
		"state.Map[int, string] that was not made by state.NewMap":                           func() { state.Map[int, string]{}.Len() },
		"state.OrderedList[int] that was not made by state.NewOrderedList":                   func() { state.OrderedList[int]{}.Len() },
		"state.Combining[int64, int64, string] that was not made by state.NewCombining in D": func() { state.Combining[int64, int64, string]{}.Get() },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
					t.Errorf("panic %q", r)
				}
			}()
			use()
		})
	}
}

func TestDeclarationsOfOptions(t *testing.T) {
	cases := map[string]struct {
		declare func(d *decl)
		want    string // of the error; "" for none
	}{
		"ttl":           {func(d *decl) { state.NewBag[int](d, "a", state.TTL(time.Millisecond, state.OnWrite, state.EventTime)) }, ""},
		"short ttl":     {func(d *decl) { state.NewValue[int](d, "a", state.TTL(time.Microsecond, 0, 0)) }, `cell "a": a TTL of 1µs, want whole milliseconds, at least 1`},
		"uneven ttl":    {func(d *decl) { state.NewValue[int](d, "a", state.TTL(1500*time.Microsecond, 0, 0)) }, `cell "a": a TTL of 1.5ms, want whole milliseconds, at least 1`},
		"clock":         {func(d *decl) { state.NewValue[int](d, "a", state.TTL(time.Second, 0, 5)) }, `cell "a": a TTL with Refresh 0 and Clock 5`},
		"no room":       {func(d *decl) { state.NewBag[int](d, "a", state.MaxBytes(0)) }, `cell "a": MaxBytes is 0, want 1 to 268435456`},
		"too much room": {func(d *decl) { state.NewBag[int](d, "a", state.MaxBytes(1<<30)) }, `cell "a": MaxBytes is 1073741824`},
		"key":           {func(d *decl) { state.NewMap[[1]any, int](d, "a") }, `cell "a": `},
		"coder of values": {func(d *decl) { state.NewMap[int, int](d, "a", state.WithCoder[string](reversed{})) },
			`cell "a": WithCoder has a state_test.reversed, which does not encode int`},
		"coder of keys": {func(d *decl) { state.NewMap[int, int](d, "a", state.WithKeyCoder(coder.Key[string]{})) },
			`cell "a": WithKeyCoder has a coder.Key[string], which does not encode keys int`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := &decl{}
			c.declare(d)
			err := state.SetOf(d).Err()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestTypeOfACellSaysHowItIsStored(t *testing.T) {
	d := &decl{}
	state.NewBag[string](d, "bag")
	state.NewMap[string, int](d, "map", state.TTL(time.Second, state.OnWrite, state.EventTime))
	state.NewOrderedList[bool](d, "list", state.TTL(time.Second, state.OnReadAndWrite, state.ProcessingTime))
	state.NewCombining(d, "sum", total{})
	var got []string
	for _, c := range state.SetOf(d).Decls {
		got = append(got, c.Type+": "+c.Coder.String())
	}
	want := []string{"bag: string_utf8", "map with TTL by event time: kv(string_utf8, varint)", "ordered list with TTL by processing time: bool", "combining: varint"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCellThatGrowsBeyondItsLimitFailsTheCall(t *testing.T) {
	grow := map[string]func(d *decl) func(i int){
		"bag": func(d *decl) func(int) {
			b := state.NewBag[string](d, "c", state.MaxBytes(10_000))
			return func(int) { b.Add("0123456789") }
		},
		"map": func(d *decl) func(int) {
			m := state.NewMap[int, int](d, "c", state.MaxBytes(10_000))
			return func(i int) { m.Put(i, i) }
		},
		"list": func(d *decl) func(int) {
			l := state.NewOrderedList[int](d, "c", state.MaxBytes(10_000))
			return func(i int) { l.Add(at(int64(i)), i) }
		},
		"value": func(d *decl) func(int) {
			v := state.NewValue[[]int](d, "c", state.MaxBytes(10_000))
			return func(i int) { v.Set(append(v.Get(), i)) }
		},
		"values of a map": func(d *decl) func(int) {
			m := state.NewMap[int, string](d, "c", state.MaxBytes(10_000))
			return func(i int) { m.Put(1, m.Get(1)+"0123456789") }
		},
	}
	for name, declare := range grow {
		t.Run(name, func(t *testing.T) {
			d := &decl{}
			add := declare(d)
			k := newKey(d)
			for i := range 20_000 {
				k.call(func() { add(i) })
				if state.SetOf(d).Err() != nil {
					break
				}
			}
			if err := state.SetOf(d).Err(); err == nil || !strings.Contains(err.Error(), `cell "c": it would hold about 10`) || !strings.Contains(err.Error(), "of at most 10000") {
				t.Fatalf("error %v", err)
			}
			if name == "value" || name == "values of a map" {
				return
			}
			// A call that goes on and on takes no more memory.
			k.call(func() {
				for i := range 50_000 {
					add(20_000 + i)
				}
			})
			if n := state.SetOf(d).Decls[0].Size(k.slots[0]); n > 11_000 {
				t.Errorf("it has %d bytes", n)
			}
		})
	}
}

func TestOrderedListAtTheZeroTimeIsAnError(t *testing.T) {
	d := &decl{}
	l := state.NewOrderedList[int](d, "list")
	newKey(d).call(func() { l.Add(time.Time{}, 1) })
	if err := state.SetOf(d).Err(); err == nil || !strings.Contains(err.Error(), `cell "list": Add at the zero time`) {
		t.Errorf("error %v", err)
	}
}

// clocks sets the time of a call by both clocks.
func (k *key) at(ms eventtime.Time) *key {
	k.set.Now = [cell.Clocks]eventtime.Time{ms, ms}
	k.set.Stamp = k.set.Now
	return k
}

// FLINK-40354, the part that is semantics.
func TestValueExpiresAtItsWriteTimePlusTTL(t *testing.T) {
	for _, clock := range []state.Clock{state.EventTime, state.ProcessingTime} {
		d := &decl{}
		v := state.NewValue[string](d, "v", state.TTL(10*time.Millisecond, state.OnWrite, clock))
		k := newKey(d)
		k.at(0).call(func() { v.Set("v") })
		k.at(9).call(func() {
			if v.Get() != "v" {
				t.Errorf("at 9: %q", v.Get())
			}
			v.Set("w")
		})
		k.at(18).call(func() {
			if v.Get() != "w" {
				t.Errorf("at 18: %q", v.Get())
			}
		})
		k.at(19).call(func() {
			if s, ok := v.Lookup(); ok || s != "" {
				t.Errorf("at 19: %q", s)
			}
		})
	}
}

func TestReadsProlongLifeIfTheyShall(t *testing.T) {
	d := &decl{}
	ttl := state.TTL(10*time.Millisecond, state.OnReadAndWrite, state.ProcessingTime)
	v, m, l := state.NewValue[int](d, "v", ttl), state.NewMap[int, int](d, "m", ttl), state.NewOrderedList[int](d, "l", ttl)
	bag, sum := state.NewBag[int](d, "b", ttl), state.NewCombining(d, "s", total{}, ttl)
	k := newKey(d)
	k.at(0).call(func() {
		v.Set(1)
		sum.Add(1)
		bag.Add(1)
		for i := range 2 {
			m.Put(i, 1)
			l.Add(at(int64(i)), 1)
		}
	})
	_, _, _ = k.at(8).call(func() { m.Len(); l.Len(); bag.Len(); sum.IsEmpty() }) // no reads of values
	k.at(9).call(func() {
		v.Get()
		m.Get(1)
		sum.Get()
		for range l.Range(at(0), at(1)) {
		}
	})
	k.at(15).call(func() {
		if v.Get() != 1 || m.Len() != 1 || m.Get(1) != 1 || l.Len() != 1 || bag.Len() != 0 || sum.IsEmpty() {
			t.Errorf("at 15: %d, map %d, list %d, bag %d, sum empty %v", v.Get(), m.Len(), l.Len(), bag.Len(), sum.IsEmpty())
		}
	})
	k.at(24).call(func() {
		if _, ok := v.Lookup(); !ok || m.Len() != 1 || l.Len() != 0 {
			t.Errorf("at 24: value %v, map %d, list %d", ok, m.Len(), l.Len())
		}
	})
	if written, _, _ := k.at(24).call(func() { v.Get() }); written {
		t.Error("a second read at the same time writes again")
	}
}

func TestElementsExpireOnTheirOwn(t *testing.T) {
	d := &decl{}
	ttl := state.TTL(10*time.Millisecond, state.OnWrite, state.ProcessingTime)
	m, bag := state.NewMap[string, int](d, "m", ttl), state.NewBag[int](d, "b", ttl)
	k := newKey(d)
	for ms := range eventtime.Time(20) {
		k.at(ms).call(func() {
			m.Put(fmt.Sprint(ms), int(ms))
			bag.Add(int(ms))
		})
	}
	k.at(20).call(func() {
		want := []int{11, 12, 13, 14, 15, 16, 17, 18, 19}
		if got := slices.Sorted(maps.Values(maps.Collect(m.All()))); !slices.Equal(got, want) || m.Len() != len(want) {
			t.Errorf("map: %v, %d", got, m.Len())
		}
		if got := slices.Collect(bag.All()); !slices.Equal(got, want) || bag.Len() != len(want) {
			t.Errorf("bag: %v, %d", got, bag.Len())
		}
		m.Put("3", 33) // one that has expired, and still has its room
		if m.Get("3") != 33 || m.Len() != 10 {
			t.Errorf("%d, %d", m.Get("3"), m.Len())
		}
	})
}

// The content of cells, as docs/format/keyed-state.md has it.
func TestCellsAreEncodedAsDocumented(t *testing.T) {
	d := &decl{}
	ttl := state.TTL(time.Minute, state.OnWrite, state.ProcessingTime)
	bag, m, l := state.NewBag[string](d, "bag"), state.NewMap[string, int](d, "map"), state.NewOrderedList[string](d, "list")
	sum := state.NewCombining(d, "sum", total{})
	v2, bag2, m2 := state.NewValue[int](d, "v2", ttl), state.NewBag[string](d, "bag2", ttl), state.NewMap[string, int](d, "map2", ttl)
	k := newKey(d)
	k.at(1000).call(func() {
		bag.Add("a")
		bag.Add("b")
		m.Put("bb", 300)
		m.Put("c", 1)
		l.Add(at(-3), "x")
		l.Add(at(5), "y")
		sum.Add(7)
		v2.Set(9)
		bag2.Add("a")
		m2.Put("c", 1)
	})
	k.at(1002).call(func() { bag2.Add("b"); m2.Put("bb", 300) })
	want := []string{"02" + "0161" + "0162", "02" + "016301" + "026262ac02", "02" + "05" + "0178" + "10" + "0179", "07",
		"d00f" + "09", "02" + "d00f0161" + "040162", "02" + "d00f016301" + "04026262ac02"}
	page, err := os.ReadFile("../../docs/format/cells.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range state.SetOf(d).Decls {
		if !strings.Contains(string(page), "`"+want[i]+"`") {
			t.Errorf("the page does not have the example %s", want[i])
		}
		b, err := c.Append(nil, k.slots[i])
		if got := hex.EncodeToString(b); err != nil || got != want[i] {
			t.Errorf("%s is %s, want %s (%v)", c.Name, got, want[i], err)
			continue
		}
		back, err := c.Decode(b)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if again, err := c.Append(nil, back); err != nil || hex.EncodeToString(again) != want[i] || c.Size(back) != c.Size(k.slots[i]) {
			t.Errorf("%s came back as %x of %d bytes, not %d (%v)", c.Name, again, c.Size(back), c.Size(k.slots[i]), err)
		}
		for n := range b {
			if _, err := c.Decode(b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes were taken", c.Name, n, len(b))
			}
		}
		if _, err := c.Decode(append(b, 0)); err == nil {
			t.Errorf("%s: a byte too many was taken", c.Name)
		}
	}
}

func TestElementsWithoutBytesAreLimited(t *testing.T) {
	d := &decl{}
	bag := state.NewBag[struct{ _ [0]int }](d, "bag")
	k := newKey(d)
	c := state.SetOf(d).Decls[0]
	k.call(func() { bag.Add(struct{ _ [0]int }{}) })
	if b, err := c.Append(nil, k.slots[0]); err != nil || len(b) > 5 {
		t.Errorf("%x, %v", b, err)
	}
	if _, err := c.Decode([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f")); err == nil {
		t.Error("a count of anything was taken")
	}
}

func FuzzCellDecode(f *testing.F) {
	d := &decl{}
	ttl := state.TTL(time.Minute, state.OnWrite, state.ProcessingTime)
	state.NewBag[string](d, "bag")
	state.NewMap[float64, string](d, "map")
	state.NewOrderedList[int](d, "list")
	state.NewValue[string](d, "v2", ttl)
	state.NewMap[string, int](d, "map2", ttl)
	state.NewOrderedList[int](d, "list2", ttl)
	cells := state.SetOf(d).Decls
	for i, s := range []string{"0201610162", "01000000000000000000", "0205020a02", "d00f09", "02d00f01630104026262ac02", "0102030405"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, i byte, src []byte) {
		c := cells[int(i)%len(cells)]
		slot, err := c.Decode(src)
		if err != nil {
			return
		}
		b, err := c.Append(nil, slot)
		if err != nil {
			t.Fatalf("%s does not encode: %v", c.Name, err)
		}
		if _, err := c.Decode(b); err != nil {
			t.Fatalf("%s does not come back: %v", c.Name, err)
		}
	})
}
