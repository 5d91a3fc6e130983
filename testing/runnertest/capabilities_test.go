package runnertest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("conformance.update", false, "write docs/capabilities.md")

func TestCapabilitiesAreDocumented(t *testing.T) {
	const file = "../../docs/capabilities.md"
	var runners []Runner
	for _, name := range []string{"direct", "memory", "filesystem", "rocksdb"} {
		r := Runner{Name: name}
		if name != "direct" {
			r.Name, r.Gaps = "distributed, "+name, distributedGaps
		}
		runners = append(runners, r)
	}
	want := Capabilities(runners)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("docs/capabilities.md is not what the cases say, run `make conformance`: -want +got\n%s", d)
	}
}

func TestEveryRowHasCasesOrAReason(t *testing.T) {
	for _, q := range Matrix {
		for _, row := range q.Rows {
			found := notes[row] != ""
			for _, c := range all {
				for _, r := range c.Rows {
					found = found || r == row
				}
			}
			if !found {
				t.Errorf("row %q has no case, and no note says why", row)
			}
		}
	}
}

// A runner that claims to pass, one with a gap that is none, and one with a gap that is no case: none passes.
func TestRunnersThatLieAreFound(t *testing.T) {
	nothing := func(testing.TB, []Case) ([]Step, error) { return nil, nil }
	for want, r := range map[string]Runner{
		"has no assertion":        {Name: "idle", Run: nothing, Undisturbed: true},
		"is declared a gap":       {Name: "modest", Run: nothing, Gaps: map[string]string{"Create": "it cannot"}},
		"a gap for no reason":     {Name: "silent", Run: nothing, Gaps: map[string]string{"Create": ""}},
		`there is no case "None"`: {Name: "confused", Run: nothing, Gaps: map[string]string{"None": "it cannot"}},
	} {
		said := &recorder{}
		run(said, r)
		if !strings.Contains(said.said.String(), want) {
			t.Errorf("runner %q: %q was not said: %s", r.Name, want, said.said.String())
		}
	}
}

// recorder is a testing.TB that keeps what is said of failures.
type recorder struct {
	testing.TB
	said strings.Builder
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	fmt.Fprintf(&r.said, format+"\n", args...)
}
