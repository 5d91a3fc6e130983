package clustertest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkersHaveTheFlagsOfTheTest(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{nil, []string{"-test.run=^TestA$/^b\\[1\\]$"}},
		{[]string{"-test.v", "-test.run", "X", "-test.timeout=1m", "-ptest.seed=7", "-test.short", "--ptest.runner", "distributed", "-test.count", "3", "a", "-test.v"},
			[]string{"-test.run=^TestA$/^b\\[1\\]$", "-ptest.seed=7", "-test.short", "--ptest.runner", "distributed", "a", "-test.v"}},
		{[]string{"-test.v=true", "--", "-x"}, []string{"-test.run=^TestA$/^b\\[1\\]$", "--", "-x"}},
		{[]string{"-test.run"}, []string{"-test.run=^TestA$/^b\\[1\\]$"}},
	} {
		if d := cmp.Diff(c.want, testArgs(c.args, "TestA/b[1]")); d != "" {
			t.Errorf("%q: -want +got:\n%s", c.args, d)
		}
	}
}
