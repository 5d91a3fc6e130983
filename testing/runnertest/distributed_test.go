package runnertest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/seeds"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, clustertest.Pipelines{"cases": func(p *sdk.Pipeline, names []string) error {
		cases, err := Named(names...)
		Build(p, cases)
		if marks := os.Getenv("MILLSTREAM_FAILPOINTS_ONCE"); marks != "" && !(len(cases) == 1 && cases[0].Alone) {
			sdk.Map("nothing", sdk.Read("until a crash", p, untilCrash(marks)), func(i int64) int64 { return i })
		}
		return err
	}})
}

// untilCrash is an empty source that does not end before a process has been killed, of which it finds the mark in a directory.
type untilCrash string

func (u untilCrash) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (u untilCrash) SplitID(int64) string                    { return "crash" }
func (u untilCrash) Open(context.Context, connector.Subtask) (connector.Reader[int64, int64], error) {
	return waiting{string(u), new(int)}, nil
}

type waiting struct {
	marks string
	reads *int
}

func (w waiting) Assign([]int64) error { return nil }
func (w waiting) Close() error         { return nil }

// Read gives up after some minutes of reads, 10 ms apart: then the test fails.
func (w waiting) Read(context.Context, int) (b connector.Batch[int64, int64], err error) {
	found, err := os.ReadDir(w.marks)
	b.Status = connector.Idle
	if *w.reads++; len(found) > 0 || *w.reads > 20_000 {
		b.Status = connector.End
	}
	return b, err
}

// distributedGaps are the gaps of the distributed runner.
var distributedGaps = map[string]string{"ProcessingTimeTrigger": scripted, "ProcessingTimers": scripted}

const scripted = "a script cannot move the clocks of several processes; the case of that name with ByTheClock passes"

// onWorkers is the distributed runner.
func onWorkers(name string, undisturbed bool, opts func() []clustertest.Option, see func(clustertest.Outcome)) Runner {
	return Runner{
		Name: name, Together: !*apart, Undisturbed: undisturbed,
		Gaps: distributedGaps,
		Run: func(t testing.TB, cases []Case) (steps []Step, err error) {
			var names []string
			for _, c := range cases {
				names = append(names, c.Name)
			}
			var out clustertest.Outcome
			if err := clustertest.Try(t, "cases", names, append(opts(), clustertest.Result(&out))...); err != nil {
				return nil, err
			}
			if !cases[0].Alone { // it may have ended before it was to be killed
				see(out)
			}
			for _, s := range out.Steps {
				steps = append(steps, Step{s.Name, s.RecordsIn, s.Figures})
			}
			return steps, nil
		},
	}
}

// crashes are where the distributed runner is killed, at a pass drawn from a seed; the coordinator only if its checkpoints
// survive that.
var crashes = []string{"before-prepare", "before-publish", "before-prepare", "after-publish"}

// Flags of these tests, for a case or two: -conformance.cases=Sessions,TTL -conformance.apart -conformance.all
var (
	every = flag.Bool("conformance.all", false, "run on workers in all ways, instead of some that are drawn from the seed")
	only  = flag.String("conformance.cases", "", "run only these cases, separated by commas")
	apart = flag.Bool("conformance.apart", false, "run each case in a job of its own")
)

// chosen are the cases that the flags leave.
func chosen(t *testing.T) {
	t.Cleanup(func() { Cases = all })
	if *only == "" {
		return
	}
	var err error
	if Cases, err = Named(strings.Split(*only, ",")...); err != nil {
		t.Fatal(err)
	}
}

func TestDistributedRunner(t *testing.T) {
	chosen(t)
	seed, _ := seeds.From(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 1))
	way, passed, gaps, ways := 0, 0, 0, 0
	for _, backend := range clustertest.Backends() {
		for _, parallelism := range []int{1, 3} {
			for _, mode := range []string{"aligned", "unaligned"} {
				for _, crash := range []bool{false, true} {
					opts := []clustertest.Option{
						clustertest.Backend(backend), clustertest.Parallelism(parallelism), clustertest.Mode(mode),
						clustertest.Interval(10 * time.Millisecond), clustertest.Cache(1 << 20),
					}
					skip := !*every && rnd.IntN(8) > 0
					name := fmt.Sprintf("%s, parallelism %d, %s", backend, parallelism, mode)
					place := ""
					if crash {
						place = crashes[way%len(crashes)]
						way++
						if backend == "memory" {
							place = "before-prepare"
						}
						place = fmt.Sprintf("%s=kill@%d", place, 2+rnd.IntN(2))
						name += ", " + place
						opts = append(opts, clustertest.Failpoints(place))
						if strings.Contains(place, "publish") {
							opts = append(opts, clustertest.CoordinatorApart())
						}
					}
					if skip {
						continue
					}
					t.Run(name, func(t *testing.T) {
						n := Run(t, onWorkers(name, !crash, func() []clustertest.Option { return opts }, func(out clustertest.Outcome) {
							if crash && out.Restored == 0 {
								t.Error("nothing was restored: the job had ended before it was to be killed, or before its first checkpoint")
							}
							t.Logf("restored from checkpoint %d, %d crashes of the coordinator", out.Restored, out.Crashes)
						}))
						t.Logf("%d cases pass, %d gaps", n.Passed, n.Gaps)
						passed, gaps, ways = passed+n.Passed, gaps+n.Gaps, ways+1
					})
				}
			}
		}
	}
	t.Logf("in %d ways of 8 a backend: %d passes, %d gaps that are still there", ways, passed, gaps)
	if t.Failed() {
		t.Log(seeds.Rerun(t, seed))
	}
}
