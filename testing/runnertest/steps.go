package runnertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/transforms/distinct"
	"github.com/millstream/millstream/transforms/periodic"
	"github.com/millstream/millstream/transforms/stats"
)

func upper(s string) string { return strings.ToUpper(s) }

// Create: a collection of given elements, or of none.
func Create(p *sdk.Pipeline) {
	passert.Equals("letters", sdk.Create("letters", p, "a", "b", "a"), "a", "a", "b")
	passert.Empty("none", sdk.Create[string]("none", p))
}

// ElementWise: Map, Filter and FlatMap, in a row and beside each other.
func ElementWise(p *sdk.Pipeline) {
	in := sdk.Create("letters", p, "a", "b", "cc")
	passert.Equals("map", sdk.Map("upper", in, upper), "A", "B", "CC")
	passert.Equals("filter", sdk.Filter("long", in, func(s string) bool { return len(s) > 1 }), "cc")
	twice := sdk.FlatMap("twice", sdk.Map("upper too", in, upper), func(s string, emit *sdk.Emitter[string]) error {
		emit.Emit(s)
		emit.Emit(s)
		return nil
	})
	passert.Equals("flat map", twice, "A", "A", "B", "B", "CC", "CC")
	passert.Equals("as it was", in, "a", "b", "cc")
}

// splitter is a DoFn with all that one can have.
type splitter struct {
	open  bool
	short *sdk.Emitter[string]
	seen  *sdk.Counter
}

func (s *splitter) Declare(d *sdk.Decl) {
	s.short = sdk.NewOutput[string](d, "short")
	s.seen = d.Counter("seen")
}
func (s *splitter) Setup(context.Context, sdk.Subtask) error { s.open = true; return nil }
func (s *splitter) ProcessElement(_ *sdk.ProcessContext, v string, emit *sdk.Emitter[string]) error {
	if !s.open {
		return errors.New("an element before Setup")
	}
	s.seen.Inc(1)
	if len(v) == 1 {
		s.short.Emit(v)
		return nil
	}
	emit.Emit(v)
	return nil
}

// ParDo: a DoFn with Setup, two outputs and a counter.
func ParDo(p *sdk.Pipeline) {
	var short sdk.PCollection[string]
	long := sdk.ParDo("split", sdk.Create("letters", p, "a", "bb", "c"), &splitter{}, sdk.OutputTo("short", &short))
	passert.Equals("long", long, "bb")
	passert.Equals("short", short, "a", "c")
}

func parDoMetrics(steps map[string]direct.Figures) error {
	if n := steps["split"].Counters["seen"]; n != 3 {
		return fmt.Errorf("the counter is %d, not 3", n)
	}
	return nil
}

// Metrics: counters, distributions, gauges and histograms of a step.
func Metrics(p *sdk.Pipeline) {
	passert.Equals("sizes", sdk.ParDo("measure", sdk.Create("letters", p, "a", "bb", "cccc"), &measure{}), 1, 2, 4)
}

type measure struct {
	seen *sdk.Counter
	size *sdk.Distribution
	last *sdk.Gauge
	hist *sdk.Histogram
}

func (m *measure) Declare(d *sdk.Decl) {
	m.seen, m.size, m.last, m.hist = d.Counter("seen"), d.Distribution("size"), d.Gauge("last"), d.Histogram("sizes")
}

func (m *measure) ProcessElement(_ *sdk.ProcessContext, s string, emit *sdk.Emitter[int64]) error {
	n := int64(len(s))
	m.seen.Inc(1)
	m.size.Observe(n)
	m.last.Set(7)
	m.hist.Observe(n)
	emit.Emit(n)
	return nil
}

func metricsMetrics(steps map[string]direct.Figures) error {
	f := steps["measure"]
	if got, want := fmt.Sprint(f.Counters["seen"], f.Distributions["size"], f.Gauges["last"].Value, f.Histograms["sizes"].Count), "3 {3 7 1 4} 7 3"; got != want {
		return fmt.Errorf("the metrics are %s, not %s", got, want)
	}
	return nil
}

// ErrorsTo: what user code fails on goes to an output, with the error.
func ErrorsTo(p *sdk.Pipeline) {
	var failed sdk.PCollection[sdk.Failed[string]]
	ok := sdk.MapErr("check", sdk.Create("letters", p, "a", "bad", "c"), func(s string) (string, error) {
		if s == "bad" {
			return "", errors.New("no letter")
		}
		return s, nil
	}, sdk.ErrorsTo(&failed))
	passert.Equals("ok", ok, "a", "c")
	passert.Equals("failed", failed, sdk.Failed[string]{Value: "bad", Err: "no letter"})
}

// Flatten: collections of several origins, one of them empty, and one twice.
func Flatten(p *sdk.Pipeline) {
	in := sdk.Create("letters", p, "a", "b")
	all := sdk.Flatten("all", in, sdk.Create[string]("none", p), sdk.Map("upper", in, upper), in)
	passert.Equals("all", all, "A", "B", "a", "a", "b", "b")
}

// Partition: every element is in one part.
func Partition(p *sdk.Pipeline) {
	parts := sdk.Partition("by size", sdk.Create("letters", p, "", "a", "b", "cc"), 3, func(s string) int { return len(s) })
	passert.Equals("none", parts[0], "")
	passert.Equals("one", parts[1], "a", "b")
	passert.Equals("two", parts[2], "cc")
}

// Reshuffle: elements go to other subtasks as they are, with their timestamps.
func Reshuffle(p *sdk.Pipeline) {
	in := read(p, script{}.At(at(3), of("a", 1, 2, 3)...).Watermark(at(5)).At(at(1), of("late", 4)...))
	passert.Equals("same", showTimes("show", sdk.Reshuffle("anywhere", in)), "a=1@3", "a=2@3", "a=3@3", "late=4@1")
}

// MapAsync: calls that overlap, in any order or in that of the elements.
func MapAsync(p *sdk.Pipeline) {
	in := sdk.Create("letters", p, "a", "b", "c")
	call := func(_ context.Context, s string) (string, error) { return upper(s), nil }
	passert.Equals("any order", sdk.MapAsync("call", in, call, sdk.Concurrency(2)), "A", "B", "C")
	passert.Equals("ordered", sdk.MapAsync("call in order", in, call, sdk.Ordered()), "A", "B", "C")
}

// Composite: transforms made of others, and of their own scopes.
func Composite(p *sdk.Pipeline) {
	in := sdk.Create("letters", p, "a", "b", "a")
	counts := sdk.Map("text", stats.Count("count", in), func(e sdk.KV[string, int64]) string { return fmt.Sprint(e.Key, e.Value) })
	passert.Equals("counts", counts, "a2", "b1")
	passert.Equals("distinct", distinct.Values("distinct", in), "a", "b")
}

// Periodic: elements at set times, which are over.
func Periodic(p *sdk.Pipeline) {
	ticks := periodic.Sequence("ticks", p, 10*second, periodic.From(at(0)), periodic.Until(at(30)))
	passert.Equals("ticks", sdk.Map("keys", ticks, seconds), "0", "10", "20")
}

// Sources: splits are read side by side, each once.
func Sources(p *sdk.Pipeline) {
	var rows []int64
	for i := range int64(100) {
		rows = append(rows, i)
	}
	in := sdk.Read("rows", p, memio.Source(rows, memio.Splits(7), memio.Batch(3)))
	passert.Equals("rows", in, rows...)
	passert.Equals("count", sdk.CombineGlobally("count", in, stats.CountFn[int64]{}), 100)
}
