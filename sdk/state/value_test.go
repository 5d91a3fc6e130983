package state_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/sdk/state"
)

// decl is a Declarer, as sdk.KeyedDecl is one.
type decl struct{ state.Cells }

// key is what an operator keeps for one key.
type key struct {
	set    *cell.Set
	slots  cell.Slots
	writes int
}

func newKey(d *decl) *key {
	k := &key{set: state.SetOf(d)}
	k.set.Write = func() (cell.Slots, bool) {
		k.writes++
		if k.slots == nil {
			k.slots = make(cell.Slots, len(k.set.Decls))
		}
		return k.slots, true
	}
	return k
}

// call runs f as a call for the key.
func (k *key) call(f func()) (written, resized, cleared bool) {
	k.set.Begin(k.slots)
	f()
	return k.set.End()
}

func TestValueKeepsWhatWasSet(t *testing.T) {
	d := &decl{}
	n, s := state.NewValue[int](d, "n"), state.NewValue[string](d, "s")
	k, other := newKey(d), newKey(d)
	k.set.Write = func() (cell.Slots, bool) { k.writes++; k.slots = make(cell.Slots, 2); return k.slots, true }
	k.call(func() {
		if v, ok := n.Lookup(); ok || v != 0 || n.Get() != 0 {
			t.Errorf("a new key has %v, %v", v, ok)
		}
		if k.writes != 0 {
			t.Error("a read asked to write")
		}
		n.Set(4)
		n.Set(n.Get() + 1)
		s.Set("x")
		if n.Get() != 5 || s.Get() != "x" {
			t.Errorf("a write is not seen by the next read: %d, %q", n.Get(), s.Get())
		}
		if k.writes != 1 {
			t.Errorf("one call asked to write %d times", k.writes)
		}
	})
	other.call(func() {
		if _, ok := n.Lookup(); ok {
			t.Error("another key has the value")
		}
	})
	_, _, cleared := k.call(func() {
		if v, ok := n.Lookup(); !ok || v != 5 {
			t.Errorf("the next call has %v, %v", v, ok)
		}
	})
	if cleared || k.writes != 1 {
		t.Errorf("a call that reads wrote (%d) or cleared (%v)", k.writes, cleared)
	}
}

// Beam issues 18582 and 18567: what was read changed by a later write.
func TestValueThatWasReadDoesNotChange(t *testing.T) {
	d := &decl{}
	v := state.NewValue[[2]int](d, "v")
	newKey(d).call(func() {
		v.Set([2]int{1, 2})
		read := v.Get()
		v.Set([2]int{3, 4})
		if read != [2]int{1, 2} {
			t.Errorf("what was read became %v", read)
		}
		v.Clear()
		if _, ok := v.Lookup(); ok || read != [2]int{1, 2} {
			t.Error("a cleared value is there, or changed what was read")
		}
		v.Set([2]int{5, 6})
		if v.Get() != [2]int{5, 6} {
			t.Error("a value set after Clear is lost")
		}
	})
}

func TestClearOfNothingWritesNothing(t *testing.T) {
	d := &decl{}
	v := state.NewValue[int](d, "v")
	k := newKey(d)
	written, _, cleared := k.call(func() { v.Clear() })
	if written || cleared || k.writes != 0 {
		t.Error("a key without state was written")
	}
	k.call(func() { v.Set(1) })
	if _, _, cleared := k.call(func() { v.Clear() }); !cleared || k.slots[0] != nil {
		t.Errorf("cleared %v, slot %v", cleared, k.slots[0])
	}
}

func TestSetAgainAllocatesNothing(t *testing.T) {
	d := &decl{}
	v := state.NewValue[[4]int64](d, "v")
	k := newKey(d)
	k.call(func() { v.Set([4]int64{}) })
	n := testing.AllocsPerRun(100, func() {
		k.call(func() {
			x := v.Get()
			x[0]++
			v.Set(x)
		})
	})
	if n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestCellOutsideACallIsAnError(t *testing.T) {
	uses := map[string]func(state.Value[int]){
		"get":   func(v state.Value[int]) { v.Get() },
		"set":   func(v state.Value[int]) { v.Set(1) },
		"clear": func(v state.Value[int]) { v.Clear() },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			d := &decl{}
			v := state.NewValue[int](d, "count")
			k := newKey(d)
			k.call(func() { v.Set(7) })
			use(v)
			if err := k.set.Err(); err == nil || !strings.Contains(err.Error(), `cell "count" was used outside a call`) {
				t.Errorf("error %v", err)
			}
			k.call(func() {
				if v.Get() != 7 {
					t.Errorf("the key's value became %d", v.Get())
				}
			})
		})
	}
}

func TestUnboundValuePanicsWithAReason(t *testing.T) {
	var v state.Value[int]
	for name, use := range map[string]func(){"get": func() { v.Get() }, "set": func() { v.Set(1) }, "clear": v.Clear} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, "state.Value[int]") || !strings.Contains(r, "NewValue in Declare") {
					t.Errorf("panic %q does not say what to do", r)
				}
			}()
			use()
		})
	}
}

// reversed stores strings backwards.
type reversed struct{}

func (reversed) Append(dst []byte, s string) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	for i := len(s) - 1; i >= 0; i-- {
		dst = append(dst, s[i])
	}
	return dst, nil
}

func (reversed) Decode(src []byte) (string, []byte, error) {
	n, w := binary.Uvarint(src)
	if w <= 0 || n > uint64(len(src)-w) {
		return "", src, errors.New("cut off")
	}
	b, err := reversed{}.Append(nil, string(src[w:w+int(n)]))
	return string(b[w:]), src[w+int(n):], err
}

func TestDeclarations(t *testing.T) {
	cases := []struct {
		name    string
		declare func(d *decl)
		want    string // of the error; "" for none
	}{
		{"two cells", func(d *decl) {
			state.NewValue[int](d, "a")
			state.NewValue[string](d, "b", state.WithCoder[string](reversed{}))
		}, ""},
		{"twice", func(d *decl) {
			state.NewValue[int](d, "a")
			state.NewValue[string](d, "a")
		}, `cell "a": declared twice`},
		{"no name", func(d *decl) { state.NewValue[int](d, "") }, `cell "": no name`},
		{"no coder", func(d *decl) { state.NewValue[func()](d, "f") }, `cell "f": `},
		{"coder of another type", func(d *decl) {
			state.NewValue[int](d, "a", state.WithCoder[string](reversed{}))
		}, `cell "a": WithCoder has a state_test.reversed, which does not encode int`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := &decl{}
			c.declare(d)
			err := state.SetOf(d).Err()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestCodecOfAValue(t *testing.T) {
	type row struct {
		Name string
		N    []int64
	}
	d := &decl{}
	state.NewValue[int32](d, "n")
	state.NewValue[row](d, "row")
	state.NewValue[string](d, "s", state.WithCoder[string](reversed{}))
	n, r, s := int32(-5), row{"x", []int64{1, 2}}, "abc"
	slots := []any{&n, &r, &s}
	for i, c := range state.SetOf(d).Decls {
		b, err := c.Append([]byte("before"), slots[i])
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		b = b[len("before"):]
		back, err := c.Decode(b)
		if diff := cmp.Diff(slots[i], back); err != nil || diff != "" {
			t.Errorf("%s came back as %v (%v):\n%s", c.Name, back, err, diff)
		}
		if _, err := c.Decode(append(b, 0)); err == nil {
			t.Errorf("%s: a byte too many was taken", c.Name)
		}
		if _, err := c.Decode(b[:len(b)-1]); err == nil {
			t.Errorf("%s: a byte too few was taken", c.Name)
		}
	}
}

// The limit of a table's memory goes by these sizes.
func TestSizeCountsWhatAValueRefersTo(t *testing.T) {
	type fixed struct {
		A [3]int64
		B bool
	}
	d := &decl{}
	state.NewValue[fixed](d, "fixed")
	state.NewValue[string](d, "string")
	state.NewValue[[]byte](d, "bytes")
	state.NewValue[map[string]int](d, "map")
	f, s, b, m := fixed{}, strings.Repeat("x", 1000), make([]byte, 10, 2000), map[string]int{}
	for i := range 100 {
		m[fmt.Sprint("key", i)] = i
	}
	least := []int{32, 1000, 2000, 4000} // of a map, its table too
	for i, slot := range []any{&f, &s, &b, &m} {
		c := state.SetOf(d).Decls[i]
		if n := c.Size(slot); n < least[i] || n > 2*least[i]+100 {
			t.Errorf("%s counts %d bytes, want %d to %d", c.Name, n, least[i], 2*least[i]+100)
		}
	}
}
