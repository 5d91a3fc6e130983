package cell

import (
	"strings"
	"testing"
)

type tree struct {
	Name string
	Kids []*tree
}

func TestFootprintCountsWhatAValueRefersTo(t *testing.T) {
	check := func(name string, got, least, most int) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %d bytes, want %d to %d", name, got, least, most)
		}
	}
	if Footprint[struct {
		A int64
		B [3]float64
		C bool
	}]() != nil {
		t.Error("numbers refer to nothing")
	}
	s := strings.Repeat("x", 100)
	check("string", Footprint[string]()(&s), 100, 100)
	words := make([]string, 50, 80)
	for i := range words {
		words[i] = s
	}
	check("slice of strings", Footprint[[]string]()(&words), 80*16+50*100, 80*16+50*100)
	nested := struct {
		N int64
		P *[]int64
		W [2]string
	}{P: &[]int64{1, 2, 3}, W: [2]string{s, s}}
	f := Footprint[struct {
		N int64
		P *[]int64
		W [2]string
	}]()
	check("nested", f(&nested), 24+24+200, 24+24+200)
	nested.P = nil
	check("nil pointer", f(&nested), 200, 200)
	m := map[string]int64{"a": 1, "b": 2, "c": 3}
	check("map", Footprint[map[string]int64]()(&m), 3*24, 3*80)
	tr := tree{Name: s, Kids: []*tree{{Name: s}}}
	check("a type within itself", Footprint[tree]()(&tr), 100, 400)
	var empty []string
	check("nothing", Footprint[[]string]()(&empty), 0, 0)
	if n := testing.AllocsPerRun(100, func() { f(&nested) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
