package clustertest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// onWorkers sets the flags of ptest for a test.
func onWorkers(t testing.TB, backend string) {
	t.Helper()
	for name, v := range map[string]string{"ptest.runner": "distributed", "ptest.backend": backend} {
		was := flag.Lookup(name).Value.String()
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := flag.Set(name, was); err != nil {
				t.Error(err)
			}
		})
	}
}

// visits says in a directory, which the variable VISITS names to all processes, which of them have worked.
type visits struct{ dir string }

func newVisits(t *testing.T) visits {
	if os.Getenv("VISITS") == "" {
		t.Setenv("VISITS", t.TempDir())
	}
	return visits{os.Getenv("VISITS")}
}

func (v visits) note() error {
	return os.WriteFile(filepath.Join(v.dir, fmt.Sprint(os.Getpid())), nil, 0o666)
}

func (v visits) pids(t *testing.T) (pids []string) {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pids = append(pids, e.Name())
	}
	return pids
}

// A closure in the midst of a test runs in other processes, and its answer comes back. What comes before it may depend on another answer.
func TestCollectRunsOnWorkers(t *testing.T) {
	for _, backend := range clustertest.Backends() {
		t.Run(backend+": [1/2] (a) #1 100%", func(t *testing.T) {
			onWorkers(t, backend)
			v := newVisits(t)
			twos := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
				return sdk.Map("double", sdk.Create[int64]("numbers", p, 3, 1), func(v int64) int64 { return 2 * v })
			})
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[int64, int64]] {
				return stats.Count("count", sdk.MapErr("visit", sdk.Create("in", p, append(twos, twos...)...), func(i int64) (int64, error) { return i, v.note() }))
			})
			if d := cmp.Diff([]sdk.KV[int64, int64]{{Key: 2, Value: 2}, {Key: 6, Value: 2}}, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if pids := v.pids(t); len(pids) < 2 || slices.Contains(pids, fmt.Sprint(os.Getpid())) {
				t.Errorf("processes %v have worked, this is %d", pids, os.Getpid())
			}
		})
	}
}

// Calls are those of a test by its name: the first of a subtest is another than the first of its test.
func TestCallsOfATestAndItsSubtestRunOnWorkers(t *testing.T) {
	onWorkers(t, "memory")
	sum := func(t *testing.T, name string, vs ...int64) int64 {
		return ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			return sdk.CombineGlobally(name, sdk.Create("in", p, vs...), stats.Sum[int64]{})
		})[0]
	}
	three := sum(t, "outer", 1, 2)
	t.Run("inner", func(t *testing.T) {
		if got := sum(t, "inner", three, 4); got != 7 {
			t.Errorf("the sum is %d, want 7", got)
		}
	})
}

func TestCrashKillsAWorkerOfPtest(t *testing.T) {
	onWorkers(t, "filesystem")
	v := newVisits(t)
	var counted memio.Collector[sdk.KV[int, int64]]
	r := ptest.Run(t, func(p *sdk.Pipeline) error {
		in := memio.Read("in", p, slices.Repeat([]int{1, 2, 3}, 1000), memio.Splits(4))
		seen := sdk.ParDo("visit", in, &visitor{visits: v})
		counts := stats.Count("count", seen)
		passert.Equals("counts", counts, sdk.Pair(1, int64(1000)), sdk.Pair(2, int64(1000)), sdk.Pair(3, int64(1000)))
		memio.Write("collect", counts, &counted)
		return nil
	}, ptest.Crash())
	if n := len(counted.Rows()); n != 6 {
		t.Errorf("%d counts were committed here in two runs", n)
	}
	if n := r.Step("visit").RecordsIn; n != 3000 {
		t.Errorf("the first run counted %d elements", n)
	}
	if n := len(v.pids(t)); n < 5 { // two of each run, and one in the place of the one that was killed
		t.Errorf("%d processes have worked", n)
	}
}

// visitor notes its process, whether or not that has elements.
type visitor struct{ visits }

func (v *visitor) Setup(context.Context, sdk.Subtask) error { return v.note() }

func (v *visitor) ProcessElement(_ *sdk.ProcessContext, i int, emit *sdk.Emitter[int]) error {
	emit.Emit(i)
	return nil
}

func TestFailuresOnWorkersFailTheTest(t *testing.T) {
	onWorkers(t, "memory")
	got := failing.Of(t, func(t testing.TB) {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			passert.Equals("numbers", sdk.Create("in", p, 1, 2), 1, 3)
			return nil
		})
	})
	for _, want := range []string{"distributed on memory, run 1", `step "numbers/check"`, "-ptest.runner=distributed -ptest.backend=memory"} {
		if !strings.Contains(got, want) {
			t.Errorf("a wrong assertion says %q, not %q", got, want)
		}
	}
	got = failing.Of(t, func(t testing.TB) {
		onWorkers(t, "paper")
		ptest.Run(t, func(p *sdk.Pipeline) error { sdk.Create("in", p, 1); return nil })
	})
	if !strings.Contains(got, "-ptest.backend=paper: this test has filesystem, memory") {
		t.Errorf("a backend that is none says %q", got)
	}
}

// A step that fails the test and goes on does so in another process.
func TestErrorsOfATestOnWorkersFailIt(t *testing.T) {
	onWorkers(t, "memory")
	build := func(of testing.TB) func(p *sdk.Pipeline) error {
		return func(p *sdk.Pipeline) error {
			sdk.Map("wrong", sdk.Create("in", p, 1), func(i int) int { of.Errorf("%d is wrong", i); return i })
			return nil
		}
	}
	got := failing.Of(t, func(f testing.TB) { ptest.Run(f, build(t)) })
	if want := "the test has failed in a worker"; !strings.Contains(got, want) {
		t.Errorf("it says %q, not %q", got, want)
	}
}

func TestACallThatNoWorkerReachesFails(t *testing.T) {
	onWorkers(t, "memory")
	if os.Getenv("MILLSTREAM_PARENT_PIPE") != "" {
		return // this is a worker
	}
	got := failing.Of(t, func(t testing.TB) {
		ptest.Run(t, func(p *sdk.Pipeline) error { sdk.Create("in", p, 1); return nil })
	})
	if want := "a worker runs the test up to this call, which it must reach too"; !strings.Contains(got, want) {
		t.Errorf("it says %q, not %q", got, want)
	}
}

// What the direct runner alone can do is not run by another in silence.
func TestWhatOnlyTheDirectRunnerCanDoIsRefused(t *testing.T) {
	onWorkers(t, "memory")
	build := func(p *sdk.Pipeline) error { sdk.Create("in", p, 1); return nil }
	for want, run := range map[string]func(t testing.TB){
		"needs the scheduler of the direct runner": func(t testing.TB) { ptest.Run(t, build, ptest.SimulatedOnly()) },
		"has options of the direct runner":         func(t testing.TB) { ptest.Run(t, build, ptest.Direct(func(*direct.Options) {})) },
		`the script of step "in/events" moves the processing time`: func(t testing.TB) {
			ptest.Run(t, func(p *sdk.Pipeline) error {
				teststream.Read("in", p, teststream.Script[int]{}.AdvanceClock(time.Second))
				return nil
			})
		},
	} {
		if got := failing.Of(t, run); !strings.Contains(got, want) || !strings.Contains(got, "leave the flag out") {
			t.Errorf("it says %q, not %q", got, want)
		}
	}
}
