package runnertest

import (
	"fmt"
	"testing"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/sim"
)

// directly runs cases by the direct runner.
func directly(t testing.TB, cases []Case, o direct.Options) ([]Step, error) {
	r, err := direct.Run(t.Context(), "conformance", func(p *sdk.Pipeline) error { Build(p, cases); return nil }, o)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, s := range r.Steps {
		steps = append(steps, Step{s.Name, s.RecordsIn, s.Figures})
	}
	return steps, nil
}

func TestDirectRunner(t *testing.T) {
	chosen(t)
	seed, _ := seeds.From(t, 1)
	for _, mode := range []struct {
		name string
		cut  direct.Cut
	}{{"everything", direct.CutNowhere}, {"one key", direct.CutKeys}, {"one element a key", direct.CutRepeats}, {"one element", direct.CutAll}} {
		for _, parallelism := range []int{1, 3} {
			for _, every := range []int{0, 2} {
				name := fmt.Sprintf("%s, parallelism %d, restored every %d", mode.name, parallelism, every)
				t.Run(name, func(t *testing.T) {
					n := Run(t, Runner{Name: name, Undisturbed: every == 0, Run: func(t testing.TB, cases []Case) ([]Step, error) {
						o := direct.Options{Parallelism: parallelism, Cut: mode.cut, RestoreEvery: every, Scheduler: sim.New(seed)}
						if every > 0 {
							o.ReadBatch = 1
						}
						if len(cases) == 1 && cases[0].Name == "ManyKeys" {
							o.RestoreEvery, o.ReadBatch, o.CacheBytes = every*1000, 0, 64<<10
						}
						return directly(t, cases, o)
					}})
					t.Logf("%d cases pass", n.Passed)
				})
			}
		}
	}
	if t.Failed() {
		t.Log(seeds.Rerun(t, seed))
	}
}
