// Package runnertest holds what any runner must do with a pipeline: cases, each of which is an exported function that
// builds a pipeline with its assertions in it (package passert), and Run, which runs them all against a runner.
//
//	func TestMyRunner(t *testing.T) {
//		runnertest.Run(t, runnertest.Runner{
//			Name: "mine",
//			Run:  func(t testing.TB, cases []runnertest.Case) ([]runnertest.Step, error) { … },
//			Gaps: map[string]string{"Drain": "it has none"},
//		})
//	}
//
// A case that a runner cannot pass is declared in Gaps with the reason. One that passes all the same fails the test, so
// that a list of gaps stays true. docs/capabilities.md is made from the cases and from what the runners here declare.
package runnertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

// Case is a pipeline with its assertions.
type Case struct {
	Name  string
	Rows  []Row // of the capability matrix that it shows
	Build func(p *sdk.Pipeline)
	Alone bool // not in a job with others: it goes by the clock, which stands still where there are scripts
	// Metrics, if set, looks at what the steps of the pipeline counted, by their names without that of the case. It is called
	// for runners whose Undisturbed is set.
	Metrics func(steps map[string]direct.Figures) error
}

// Runner is something that runs pipelines, in one way.
type Runner struct {
	Name string
	// Run runs the cases in one job, built by Build, and returns the figures of its steps. An assertion that does
	// not hold is an error of the job.
	Run func(t testing.TB, cases []Case) ([]Step, error)
	// Together says that the cases may be in one job, but for those that are Alone.
	Together bool
	// Undisturbed says that the figures of steps are of the whole run, for nothing was restored.
	Undisturbed bool
	// Gaps are the names of cases that the runner cannot pass, each with the reason.
	Gaps map[string]string
}

// Step is what a step counted. Its name begins with that of its case and a slash.
type Step struct {
	Name      string
	RecordsIn int64
	direct.Figures
}

// Build adds the pipelines of cases to p.
func Build(p *sdk.Pipeline, cases []Case) {
	for _, c := range cases {
		p.Scope(c.Name, func() { c.Build(p) })
	}
}

// Named returns the cases of these names.
func Named(names ...string) (cs []Case, _ error) {
	for _, n := range names {
		i := slices.IndexFunc(all, func(c Case) bool { return c.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("runnertest: there is no case %q", n)
		}
		cs = append(cs, all[i])
	}
	return cs, nil
}

// Counts are what Run has run: cases that passed, and gaps that are still there.
type Counts struct{ Passed, Gaps int }

// Run runs all cases against a runner.
func Run(t *testing.T, r Runner) Counts {
	t.Helper()
	return run(t, r)
}

func run(t testing.TB, r Runner) (n Counts) {
	t.Helper()
	var one []Case
	for _, c := range Cases {
		switch why, gap := r.Gaps[c.Name]; {
		case gap && why == "":
			t.Errorf("%s: case %q is a gap for no reason", r.Name, c.Name)
		case gap:
			if err := r.check(t, []Case{c}); err == nil {
				t.Errorf("%s: case %q passes, and is declared a gap: %s", r.Name, c.Name, why)
			}
			n.Gaps++
		case r.Together && !c.Alone:
			one = append(one, c)
		default:
			if err := r.check(t, []Case{c}); err != nil {
				t.Errorf("%s: case %q: %v", r.Name, c.Name, err)
				continue
			}
			n.Passed++
		}
	}
	for name := range r.Gaps {
		if _, err := Named(name); err != nil {
			t.Errorf("%s: a gap: %v", r.Name, err)
		}
	}
	if len(one) == 0 {
		return n
	}
	err := r.check(t, one)
	if err == nil {
		n.Passed += len(one)
		return n
	}
	t.Errorf("%s: all cases in one job: %v", r.Name, err)
	for _, c := range one { // which of them?
		if err := r.check(t, []Case{c}); err != nil {
			t.Errorf("%s: case %q alone: %v", r.Name, c.Name, err)
			continue
		}
		n.Passed++
	}
	return n
}

// check runs cases, and makes sure that every assertion was made.
func (r *Runner) check(t testing.TB, cases []Case) error {
	steps, err := r.Run(t, cases)
	if err != nil || !r.Undisturbed {
		return err
	}
	for _, c := range cases {
		checks, figures := 0, map[string]direct.Figures{}
		for _, s := range steps {
			name, ok := strings.CutPrefix(s.Name, c.Name+"/")
			if !ok {
				continue
			}
			figures[name] = s.Figures
			if !strings.HasSuffix(name, "/check") {
				continue
			}
			if checks++; s.RecordsIn != 1 {
				return fmt.Errorf("the assertion %q was made %d times, not once", s.Name, s.RecordsIn)
			}
		}
		if checks == 0 {
			return fmt.Errorf("case %q has no assertion", c.Name)
		}
		if c.Metrics != nil {
			if err := c.Metrics(figures); err != nil {
				return fmt.Errorf("case %q: %w", c.Name, err)
			}
		}
	}
	return nil
}
