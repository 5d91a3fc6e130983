package seeds

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millstream/millstream/testing/failing"
)

func TestVariablesChooseTheSeeds(t *testing.T) {
	for _, c := range []struct {
		seed, runs string
		n          int
	}{
		{"", "", 5}, {"7", "", 1}, {"0", "", 1}, {"", "9", 9}, {"7", "9", 9},
	} {
		t.Setenv(SeedVar, c.seed)
		t.Setenv(RunsVar, c.runs)
		var seen []uint64
		Each(t, 5, func(seed uint64) error { seen = append(seen, seed); return nil })
		if len(seen) != c.n || c.seed != "" && fmt.Sprint(seen[0]) != c.seed || seen[len(seen)-1] != seen[0]+uint64(c.n)-1 {
			t.Errorf("seed %q, runs %q: ran %d", c.seed, c.runs, seen)
		}
		if Given() != (c.seed != "") {
			t.Errorf("seed %q: given is %v", c.seed, Given())
		}
	}
	t.Setenv(SeedVar, "")
	a, _ := From(t, 1)
	if b, _ := From(t, 1); a == b {
		t.Errorf("twice the seed %d: they are not fresh", a)
	}
}

func TestAFailureSaysHowToRepeatIt(t *testing.T) {
	t.Setenv(RunsVar, "")
	t.Run("a [part] (of 2)", func(t *testing.T) {
		t.Setenv(SeedVar, "41")
		got := failing.Of(t, func(tb testing.TB) { Each(tb, 3, func(uint64) error { return errors.New("broken") }) })
		want := "seed 41: broken\nrerun: MILLSTREAM_SEED=41 go test ./testing/seeds -run '^TestAFailureSaysHowToRepeatIt$/^a_\\[part\\]_\\(of_2\\)$'"
		if got != want {
			t.Errorf("it said\n%s\nand should\n%s", got, want)
		}
	})
	t.Setenv(SeedVar, "lots")
	if got := failing.Of(t, func(tb testing.TB) { From(tb, 1) }); !strings.Contains(got, "MILLSTREAM_SEED=lots: must be a number") {
		t.Errorf("of a seed that is no number: %s", got)
	}
}
