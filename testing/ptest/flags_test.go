package ptest

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/failing"
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
	if _, err := backendOf("filesystem"); err == nil || !strings.Contains(err.Error(), "filesystem -ptest.runner=distributed") {
		t.Errorf("error %v: the direct runner has no filesystem", err)
	}
}

func TestRunnerFlagNamesARunner(t *testing.T) {
	was := runners
	defer func() { runners, runnerName = was, "direct" }()
	for _, known := range []bool{false, true} {
		runners, runnerName = map[string]Runner{"mine": func(Job) (*direct.Result, error) { return nil, errors.New("mine ran") }}, "mine"
		want := "mine ran"
		if !known {
			runnerName, want = "theirs", `-ptest.runner=theirs: this test has direct, mine; distributed needs import _ "github.com/millstream/millstream/testing/clustertest"`
		}
		got := failing.Of(t, func(t testing.TB) { Run(t, func(p *sdk.Pipeline) error { sdk.Create("in", p, 1); return nil }) })
		if !strings.Contains(got, want) {
			t.Errorf("it says %q, not %q", got, want)
		}
	}
}

// Calls are numbered anew when a test begins again, as with -count.
func TestCallsAreNumberedWithinATest(t *testing.T) {
	for range 2 {
		f := &cleans{TB: t}
		if a, b := nextCall(f), nextCall(f); a != 0 || b != 1 {
			t.Errorf("calls %d and %d, want 0 and 1", a, b)
		}
		f.end()
	}
}

// cleans is a testing.TB that ends when it is told to.
type cleans struct {
	testing.TB
	end func()
}

func (c *cleans) Cleanup(f func()) { c.end = f }
