// Package enginetest makes random jobs for the engine and compares what they commit with a naive evaluation.
package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// KV is the element of most collections.
type KV = coder.KV[int64, int64]

// elem is an element as a test compares it.
type elem struct {
	K, V       int64
	T          eventtime.Time
	Start, End eventtime.Time
}

func (e elem) less(o elem) bool {
	a, b := [5]int64{e.K, e.V, int64(e.T), int64(e.Start), int64(e.End)}, [5]int64{o.K, o.V, int64(o.T), int64(o.Start), int64(o.End)}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

var kvCoder = func() coder.Coder[KV] { c, err := coder.Of[KV](); Must(err); return c }()

// Int64Key is how keys are encoded.
var Int64Key = func() coder.Key[int64] { c, err := coder.KeyOf[int64](); Must(err); return c }()
var int64Coder = func() coder.Coder[int64] { c, err := coder.Of[int64](); Must(err); return c }()

// Must panics on an error that no input can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// dup emits each element twice, and keeps some back until Flush.
type dup struct {
	out  kernel.Output
	kept kernel.Rows[KV]
}

func (d *dup) Open(c *kernel.OpenContext) error            { d.out = c.Outputs[0]; return nil }
func (d *dup) Watermark(eventtime.Time, int) (bool, error) { return true, nil }
func (d *dup) Close() error                                { return nil }
func (d *dup) Flush() error {
	if len(d.kept.E) == 0 {
		return nil
	}
	err := d.out.Emit(&d.kept)
	d.kept.E = nil
	return err
}
func (d *dup) Process(_ int, b kernel.Batch) error {
	for _, e := range b.(*kernel.Rows[KV]).E {
		d.kept.E = append(d.kept.E, e, e)
	}
	if len(d.kept.E) > 20 {
		return d.Flush()
	}
	return nil
}

// Graph is a job with what it must commit.
type Graph struct {
	kernel.Graph
	Sinks     []*kernel.Node // whose output is to be committed
	ReadBatch int            // engine.Options.ReadBatch

	eval []func(in [][]elem) []elem // naive, of each node
	out  *ledger
}

// Splits is engine.Options.Splits.
func Splits(n *kernel.Node, subtask, parallelism int) (mine [][]byte) {
	all, err := n.Splits(context.Background())
	Must(err)
	for i := subtask; i < len(all); i += parallelism {
		mine = append(mine, all[i])
	}
	return mine
}

// Compare holds what was committed against the naive evaluation. It returns the number of elements.
func (g *Graph) Compare() (n int, err error) {
	for i, want := range g.want() {
		if d := cmp.Diff(want, sorted(g.out.rows[i])); d != "" {
			return n, fmt.Errorf("sink %d differs (-want +got):\n%s", i, d)
		}
		n += len(want)
	}
	return n, nil
}

// Add adds a node with its naive evaluation, or nil if the test has another.
func (g *Graph) Add(n *kernel.Node, eval func([][]elem) []elem) *kernel.Node {
	n.ID = len(g.Nodes)
	n.Name = fmt.Sprintf("%s %d", n.Kind, n.ID)
	n.Ports = append([]kernel.Port{{}}, n.Ports...)
	g.Nodes = append(g.Nodes, n)
	g.eval = append(g.eval, eval)
	return n
}

// Edge is an edge of a collection of KV.
func Edge(from *kernel.Node, x kernel.Exchange) kernel.Edge {
	codec := kernel.NewCodec(kvCoder)
	return kernel.Edge{From: from, Exchange: x, Codec: codec, Splitter: kernel.Keyed(Int64Key, codec)}
}

// SumSpec sums by key and window.
func SumSpec(accumulating bool) kernel.Aggregation[int64, int64, int64] {
	return kernel.Aggregation[int64, int64, int64]{
		Key: Int64Key, Acc: int64Coder,
		Create: func() int64 { return 0 }, Extract: func(a int64) int64 { return a }, Merge: func(a, b int64) int64 { return a + b },
		Windowing: kernel.Windowing{LateCount: 1, Accumulating: accumulating},
	}
}

// Random makes a graph of one or two sources, two to eight steps (exchanges, flattens, aggregations, delays, several
// readers of one output) and one or two sinks. A busy source always has something to read; others wait now and
// then for 10 ms of the scheduler's time.
func Random(r *rand.Rand, busy bool) *Graph {
	g := &Graph{out: &ledger{rows: map[int][]elem{}, committed: map[string]bool{}}}
	splitCoder, err := coder.Of[NumberSplit]()
	Must(err)
	rowsCoder, err := coder.Of[rows]()
	Must(err)
	var open []*kernel.Node
	for range 1 + r.IntN(2) {
		src := Numbers{SplitCount: 1 + r.IntN(4), PerSplit: 20 + r.IntN(150), Keys: 1 + r.Int64N(20), Disorder: r.Int64N(100), Salt: r.Uint64(), Busy: busy}
		spec := kernel.SourceSpec[KV, NumberSplit]{
			Source: src, Split: splitCoder, At: src.At,
			Strategy: watermark.Bounded(time.Duration(src.Disorder) * time.Millisecond),
		}
		open = append(open, g.Add(&kernel.Node{
			Kind: "source", New: func() kernel.Operator { return kernel.NewSource(spec) },
			Splits: spec.EncodeSplits, SetSplits: kernel.SetSplits[KV, NumberSplit],
		}, func([][]elem) (out []elem) {
			for sp := range src.SplitCount {
				for i := range src.PerSplit {
					v, t := src.Record(int64(sp), int64(i))
					out = append(out, elem{v.Key, v.Value, t, eventtime.Min, eventtime.EndOfGlobalWindow})
				}
			}
			return out
		}))
	}
	pick := func() *kernel.Node { return open[r.IntN(len(open))] }
	size := int64(50)
	for range 2 + r.IntN(7) {
		from := pick()
		each := func(f func(elem) []elem) func([][]elem) []elem {
			return func(in [][]elem) (out []elem) {
				for _, e := range in[0] {
					out = append(out, f(e)...)
				}
				return out
			}
		}
		var n *kernel.Node
		switch r.IntN(9) {
		case 0:
			f := func(v KV) KV { return KV{Key: v.Key, Value: v.Value*3 + 1} }
			n = g.Add(&kernel.Node{Kind: "map", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewMap(f) }},
				each(func(e elem) []elem { e.V = e.V*3 + 1; return []elem{e} }))
		case 1:
			m := 1 + r.Int64N(9)
			f := func(v KV) KV { return KV{Key: ((v.Key+v.Value)%m + m) % m, Value: v.Value} }
			n = g.Add(&kernel.Node{Kind: "rekey", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewMap(f) }},
				each(func(e elem) []elem { e.K = ((e.K+e.V)%m + m) % m; return []elem{e} }))
		case 2:
			n = g.Add(&kernel.Node{Kind: "filter", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewFilter(func(v KV) bool { return v.Value%3 != 0 }) }},
				each(func(e elem) []elem {
					if e.V%3 == 0 {
						return nil
					}
					return []elem{e}
				}))
		case 3:
			n = g.Add(&kernel.Node{Kind: "dup", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
				New: func() kernel.Operator { return &dup{} }},
				each(func(e elem) []elem { return []elem{e, e} }))
		case 4:
			n = g.Add(&kernel.Node{Kind: "reshuffle", Inputs: []kernel.Edge{Edge(from, kernel.RoundRobin)}, New: kernel.NewPass},
				each(func(e elem) []elem { return []elem{e} }))
		case 5:
			in := []kernel.Edge{Edge(from, kernel.Forward)}
			for range 1 + r.IntN(2) {
				in = append(in, Edge(pick(), kernel.Forward))
			}
			n = g.Add(&kernel.Node{Kind: "flatten", Inputs: in, New: kernel.NewPass}, func(in [][]elem) (out []elem) {
				for _, es := range in {
					out = append(out, es...)
				}
				return out
			})
		case 6, 7:
			size += r.Int64N(200)
			n = g.sum(r, from, time.Duration(size)*time.Millisecond)
		case 8:
			in, byClock := time.Duration(r.IntN(60))*time.Millisecond, r.IntN(3) > 0
			n = g.Add(&kernel.Node{Kind: "delay", Keyed: true, Inputs: []kernel.Edge{Edge(from, kernel.ByKey)},
				New: func() kernel.Operator { return Delay(in, byClock) }},
				each(func(e elem) []elem { return []elem{e} }))
		}
		open = append(open, n)
	}
	for i := range 1 + r.IntN(2) {
		from := pick()
		if i == 0 {
			from = open[len(open)-1]
		}
		spec := kernel.SinkSpec[KV, rows]{Sink: ledgerSink{g.out, i}, Committable: rowsCoder}
		sink := g.Add(&kernel.Node{Kind: "sink", Inputs: []kernel.Edge{Edge(from, kernel.Forward)}, Sink: spec.Node(),
			New: func() kernel.Operator { return kernel.NewSink(spec) }}, func(in [][]elem) []elem { return in[0] })
		sink.Ports = nil
		g.Sinks = append(g.Sinks, sink)
	}
	return g
}

// sum adds a window and a sum per key and window, of one of several kinds.
func (g *Graph) sum(r *rand.Rand, from *kernel.Node, size time.Duration) *kernel.Node {
	accumulating, kind := r.IntN(2) == 0, r.IntN(6)
	spec := SumSpec(accumulating)
	inputs := func() []kernel.AggregateInput[int64, int64, int64] {
		return []kernel.AggregateInput[int64, int64, int64]{
			kernel.InputOf[int64, int64, int64, int64](0, func(a, v int64) int64 { return a + v }),
		}
	}
	var fn window.Fn
	var assign func(eventtime.Time) []window.Window
	eval := naiveSum
	step := &kernel.Node{Kind: "sum", Keyed: true}
	switch kind {
	case 0, 1, 2:
		fixed := window.Fixed(size)
		fn, assign = fixed, func(t eventtime.Time) []window.Window { return []window.Window{fixed.Assign(t)} }
		step.New = func() kernel.Operator { return kernel.NewAggregate(spec, inputs) }
		if kind == 0 {
			step.New = sumOfCells
		}
	case 3, 4:
		sliding := window.Sliding(size, time.Duration(1+r.Int64N(4))*size/3)
		sliding.Period = sliding.Period.Round(time.Millisecond)
		fn, assign = sliding, func(t eventtime.Time) []window.Window { return sliding.Assign(nil, t) }
		step.New = func() kernel.Operator { return kernel.NewSliced(spec, sliding, inputs) }
	case 5:
		sessions := window.Sessions(size / 4)
		sessions.Gap = sessions.Gap.Round(time.Millisecond)
		fn, assign = sessions, func(t eventtime.Time) []window.Window { return []window.Window{sessions.Assign(t)} }
		spec.Merging = &kernel.Merging{}
		step.New = func() kernel.Operator { return kernel.NewPanes(spec, inputs) }
		eval = naiveSessions
	}
	w := g.Add(&kernel.Node{Kind: "window", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
		New: func() kernel.Operator { return kernel.NewWindow[KV](fn) }},
		func(in [][]elem) (out []elem) {
			for _, e := range in[0] {
				for _, w := range assign(e.T) {
					e.Start, e.End = w.StartTime(), w.EndTime()
					out = append(out, e)
				}
			}
			return out
		})
	step.Inputs = []kernel.Edge{Edge(w, kernel.ByKey)}
	if kind >= 1 && kind <= 4 {
		// Whether it lifts or not, and whether it collects one sum or many, makes no difference.
		step.Inputs[0] = kernel.Lifting[int64, int64, int64]{
			Key: Int64Key, Acc: int64Coder, Create: spec.Create, Add: func(a, v int64) int64 { return a + v },
			Max: r.IntN(30), Codec: kernel.NewCodec(kvCoder),
		}.Edge(kernel.Edge{From: w})
	}
	return g.Add(step, eval)
}

// sumOfCells is what a sum per key and window is when a user writes it: a cell, and a timer at the end of the
// window.
func sumOfCells() kernel.Operator {
	var sum state.Value[int64]
	var end kernel.Timer
	return kernel.NewKeyedParDo(kernel.KeyedSpec[int64, int64, KV]{Key: Int64Key, Fns: kernel.KeyedFns[int64, int64, KV]{
		Declare: func(d *kernel.KeyedDecl) {
			sum = state.NewValue[int64](d, "sum")
			end = kernel.EventTimer(d, "end", func(_ *kernel.ProcessContext, k int64, out *kernel.Emitter[KV]) error {
				out.Emit(KV{Key: k, Value: sum.Get()})
				return nil
			})
		},
		Process: func(c *kernel.ProcessContext, _ int64, v int64, _ *kernel.Emitter[KV]) error {
			sum.Set(sum.Get() + v)
			end.Set(c.Window().End())
			return nil
		},
	}})
}

func naiveSum(in [][]elem) (out []elem) {
	type at struct {
		k          int64
		start, end eventtime.Time
	}
	sums := map[at]int64{}
	for _, e := range in[0] {
		sums[at{e.K, e.Start, e.End}] += e.V
	}
	for a, v := range sums {
		out = append(out, elem{a.k, v, a.end - 1, a.start, a.end})
	}
	return out
}

// naiveSessions makes one of each two windows of a key that overlap, and sums.
func naiveSessions(in [][]elem) []elem {
	all := sorted(in[0])
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].K < all[j].K || all[i].K == all[j].K && all[i].Start < all[j].Start
	})
	first := 0
	for i := range all {
		if i > 0 && (all[i].K != all[i-1].K || all[i].Start >= all[first].End) {
			first = i
		}
		all[first].End = max(all[first].End, all[i].End)
		for k := first; k <= i; k++ {
			all[k].Start, all[k].End = all[first].Start, all[first].End
		}
	}
	return naiveSum([][]elem{all})
}

// want evaluates the graph, for each sink.
func (g *Graph) want() (out [][]elem) {
	vals := make([][]elem, len(g.Nodes))
	for i, n := range g.Nodes {
		var in [][]elem
		for _, e := range n.Inputs {
			in = append(in, append([]elem(nil), vals[e.From.ID]...))
		}
		vals[i] = g.eval[i](in)
	}
	for _, n := range g.Sinks {
		out = append(out, sorted(vals[n.ID]))
	}
	return out
}

func sorted(es []elem) []elem {
	es = append([]elem{}, es...)
	sort.Slice(es, func(i, j int) bool { return es[i].less(es[j]) })
	return es
}
