package ptest

import (
	"flag"
	"strings"
	"testing"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/seeds"
)

func TestSeedFlagsAreTheVariables(t *testing.T) {
	t.Setenv(seeds.SeedVar, "")
	t.Setenv(seeds.RunsVar, "")
	for name, v := range map[string]string{"ptest.seed": "41", "ptest.runs": "6"} {
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	if first, n := seeds.From(t, 1); first != 41 || n != 6 {
		t.Errorf("seed %d and %d runs, want 41 and 6", first, n)
	}
}

func TestBackendFlagNamesADriver(t *testing.T) {
	was := drivers
	defer func() { drivers = was }()
	drivers = map[string]statebackend.Driver{"mine": memory.Driver{}}
	if d, err := backendOf("mine"); err != nil || d != (memory.Driver{}) {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := backendOf("memory"); err != nil || d != nil {
		t.Errorf("%v, %v: memory is what the runner takes", d, err)
	}
	if _, err := backendOf("paper"); err == nil || !strings.Contains(err.Error(), "-ptest.backend=paper: this test has memory, mine") {
		t.Errorf("error %v", err)
	}
}
