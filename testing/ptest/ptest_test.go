package ptest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/transforms/stats"
)

func TestCollectSortsValues(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
		return sdk.Map("double", sdk.Create[int64]("numbers", p, 300, -1, 2, 2), func(v int64) int64 { return 2 * v })
	})
	if d := cmp.Diff([]int64{-2, 4, 4, 600}, got); d != "" {
		t.Error(d)
	}
}

func TestCollectPanesHasTimestampWindowAndPane(t *testing.T) {
	at := func(v int64) time.Time { return time.UnixMilli(v) }
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
		in := sdk.Read("numbers", p, memio.Source([]int64{3, 14, 5}), sdk.EventTime(at, watermark.Bounded(10*time.Millisecond)))
		w := sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond))
		return sdk.CombinePerKey("sum", sdk.KeyBy("key", w, func(int64) string { return "k" }), stats.Sum[int64]{})
	})
	pane := window.Pane{Timing: window.OnTime, First: true, Last: true}
	want := []ptest.Element[sdk.KV[string, int64]]{
		{Value: sdk.Pair("k", int64(8)), Time: at(9).UTC(), Window: window.New(0, 10), Pane: pane},
		{Value: sdk.Pair("k", int64(14)), Time: at(19).UTC(), Window: window.New(10, 20), Pane: pane},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// memory keeps a count where no checkpoint sees it.
type memory struct{ n int64 }

func (m *memory) ProcessElement(_ *sdk.ProcessContext, _ int64, emit *sdk.Emitter[int64]) error {
	m.n++
	emit.Emit(m.n)
	return nil
}

func TestStateOutsideOfCheckpointsIsFound(t *testing.T) {
	failure := failing.Of(t, func(t testing.TB) {
		ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			return sdk.ParDo("number", sdk.Create[int64]("in", p, 7, 7, 7, 7, 7, 7, 7, 7), &memory{})
		}, ptest.RestoreEvery(2))
	})
	if !strings.Contains(failure, "another answer than in the first run") || !strings.Contains(failure, "restored every 2 records") {
		t.Errorf("failure: %s", failure)
	}
}

// Crashes need no records to be read, and find what restores between two records do not.
func TestCrashesFindStateOutsideOfCheckpoints(t *testing.T) {
	build := func(p *sdk.Pipeline) sdk.PCollection[int64] {
		return sdk.ParDo("number", sdk.Create[int64]("in", p, 7, 7, 7, 7, 7, 7, 7, 7), &memory{})
	}
	if failure := failing.Of(t, func(t testing.TB) { ptest.Collect(t, build, ptest.RestoreEvery(0), ptest.Runs(3)) }); failure != "" {
		t.Fatalf("without a crash: %s", failure)
	}
	calls := 0
	counted := func(p *sdk.Pipeline) sdk.PCollection[int64] {
		return sdk.Map("count", sdk.Create[int64]("in", p, 1, 2, 3, 4), func(v int64) int64 { calls++; return v })
	}
	got := ptest.Collect(t, counted, ptest.RestoreEvery(0), ptest.Crash(), ptest.Runs(30), ptest.SimulatedOnly())
	if d := cmp.Diff([]int64{1, 2, 3, 4}, got); d != "" {
		t.Error(d)
	}
	if !seeds.Given() && calls <= 30*4 {
		t.Errorf("%d calls for 4 elements in 30 runs: no crash took anything back", calls)
	}
	if failure := failing.Of(t, func(t testing.TB) {
		ptest.Collect(t, build, ptest.RestoreEvery(3), ptest.Crash(), ptest.Runs(30))
	}); !strings.Contains(failure, "another answer than in the first run") {
		t.Errorf("failure: %s", failure)
	}
}

func TestFailureSaysHowToRepeatIt(t *testing.T) {
	build := func(p *sdk.Pipeline) sdk.PCollection[int64] {
		return sdk.MapErr("never", sdk.Create[int64]("in", p, 7), func(int64) (int64, error) { return 0, errors.New("no way") })
	}
	t.Setenv(seeds.SeedVar, "")
	t.Setenv(seeds.RunsVar, "")
	var failure string
	t.Run("sub", func(t *testing.T) {
		failure = failing.Of(t, func(t testing.TB) { ptest.Collect(t, build) })
	})
	for _, want := range []string{`step "never"`, "no way", `run 1, simulated`, "MILLSTREAM_RUNS=3 go test ./testing/ptest -run '^TestFailureSaysHowToRepeatIt$/^sub$'"} {
		if !strings.Contains(failure, want) {
			t.Errorf("failure lacks %q: %s", want, failure)
		}
	}
	if !regexp.MustCompile(`MILLSTREAM_SEED=\d+ `).MatchString(failure) {
		t.Errorf("failure has no seed: %s", failure)
	}
}

// The runs differ in the order of what two subtasks do, or they would be worth nothing.
func TestInterleavingsDiffer(t *testing.T) {
	t.Setenv(seeds.SeedVar, "") // a fresh one each time
	orders := map[string]bool{}
	for range 20 {
		var order strings.Builder
		ptest.Run(t, func(p *sdk.Pipeline) error {
			in := sdk.Read("in", p, memio.Source([]int{1, 2, 3, 4, 5, 6, 7, 8}, memio.Splits(2)))
			sdk.Map("note", in, func(v int) int { // one goroutine at a time
				fmt.Fprint(&order, v)
				return v
			})
			return nil
		}, ptest.SimulatedOnly(), ptest.Runs(1))
		orders[order.String()] = true
	}
	if len(orders) < 3 {
		t.Errorf("20 runs had only the orders %v", orders)
	}
}

func TestRunReturnsWhatTheUninterruptedRunCounted(t *testing.T) {
	r := ptest.Run(t, func(p *sdk.Pipeline) error {
		sdk.Map("m", sdk.Create[int64]("in", p, 1, 2, 3, 4, 5), func(v int64) int64 { return v })
		return nil
	}, ptest.RestoreEvery(1))
	if got := r.Step("m").RecordsIn; got != 5 || r.Restores != 0 {
		t.Errorf("%d records in after %d restores, want 5 after none", got, r.Restores)
	}
}

// classify is a DoFn with everything that one may have.
type classify struct {
	Limit int64

	large   *sdk.Emitter[string]
	seen    *sdk.Counter
	sizes   *sdk.Distribution
	kept    []ptest.Element[int64]
	stopped *int
}

func (c *classify) Declare(d *sdk.Decl) {
	c.large = sdk.NewOutput[string](d, "large")
	c.seen = d.Counter("seen")
	c.sizes = d.Distribution("sizes")
}

func (c *classify) Setup(context.Context, sdk.Subtask) error {
	if c.Limit == 0 {
		return errors.New("no limit")
	}
	return nil
}

func (c *classify) ProcessElement(pc *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
	c.seen.Inc(1)
	c.sizes.Observe(v)
	switch {
	case v < 0:
		return errors.New("negative")
	case v > c.Limit:
		c.large.Emit(fmt.Sprint(v, " in ", pc.Window()))
	default:
		c.kept = append(c.kept, ptest.Element[int64]{Value: v, Time: pc.Timestamp(), Window: pc.Window()})
	}
	return nil
}

func (c *classify) FinishBundle(_ context.Context, emit *sdk.Emitter[int64]) error {
	for _, k := range c.kept {
		emit.EmitIn(k.Window, k.Time, k.Value)
	}
	c.kept = nil
	return nil
}

func (c *classify) Teardown() error { *c.stopped++; return nil }

func TestHarnessOfADoFn(t *testing.T) {
	stopped := 0
	prototype := &classify{Limit: 10, stopped: &stopped}
	h := ptest.DoFn(t, prototype)
	at, w := time.UnixMilli(5).UTC(), window.New(0, 10)
	if err := h.ProcessElement(ptest.Element[int64]{Value: 3, Time: at, Window: w}); err != nil {
		t.Fatal(err)
	}
	if got := h.Output(); got != nil {
		t.Errorf("output before the bundle is finished: %v", got)
	}
	if err := h.FinishBundle(); err != nil {
		t.Fatal(err)
	}
	want := []ptest.Element[int64]{{Value: 3, Time: at, Window: w, Pane: window.Pane{First: true, Last: true}}}
	if d := cmp.Diff(want, h.Elements(), cmp.Comparer(func(a, b window.Window) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if err := h.Process(20, -1, 30); err == nil || err.Error() != "negative" {
		t.Errorf("error %v, want the DoFn's", err)
	}
	if d := cmp.Diff([]string{"20 in [global]"}, ptest.OutputOf[string](h, "large")); d != "" {
		t.Error(d)
	}
	if got := h.Counter("seen"); got != 3 {
		t.Errorf("counter %d, want 3", got)
	}
	if d := cmp.Diff(direct.Summary{Count: 3, Sum: 22, Min: -1, Max: 20}, h.Distribution("sizes")); d != "" {
		t.Error(d)
	}
	if prototype.seen != nil || prototype.kept != nil {
		t.Error("the harness works on the prototype instead of a copy")
	}
	for range 2 {
		if err := h.Teardown(); err != nil {
			t.Fatal(err)
		}
	}
	if stopped != 1 {
		t.Errorf("torn down %d times", stopped)
	}
	if err := h.Process(1); err == nil {
		t.Error("Process after Teardown succeeds")
	}
}

func TestHarnessRefusesWhatParDoRefuses(t *testing.T) {
	var nothing *classify
	failure := failing.Of(t, func(t testing.TB) { ptest.DoFn(t, nothing) })
	if !strings.Contains(failure, "nil *ptest_test.classify") {
		t.Errorf("failure: %q", failure)
	}
	failure = failing.Of(t, func(t testing.TB) { ptest.DoFn(t, &classify{}) })
	if !strings.Contains(failure, "no limit") {
		t.Errorf("failure: %q", failure)
	}
	failure = failing.Of(t, func(t testing.TB) {
		h := ptest.DoFn(t, &classify{Limit: 1, stopped: new(int)})
		ptest.OutputOf[string](h, "huge")
	})
	if !strings.Contains(failure, `declares no output "huge"`) {
		t.Errorf("failure: %q", failure)
	}
}

func TestNaNIsTheSameInAllRuns(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[float64] {
		return sdk.Create("in", p, math.NaN(), 1)
	})
	if len(got) != 2 || !math.IsNaN(got[0]) {
		t.Errorf("got %v", got)
	}
}
