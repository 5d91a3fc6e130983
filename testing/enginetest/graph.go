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
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

type kv = coder.KV[int64, int64]

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

var kvCoder = func() coder.Coder[kv] { c, err := coder.Of[kv](); must(err); return c }()
var int64Key = func() coder.Key[int64] { c, err := coder.KeyOf[int64](); must(err); return c }()
var int64Coder = func() coder.Coder[int64] { c, err := coder.Of[int64](); must(err); return c }()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// dup emits each element twice, and keeps some back until Flush.
type dup struct {
	out  kernel.Output
	kept kernel.Rows[kv]
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
	for _, e := range b.(*kernel.Rows[kv]).E {
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
	eval  []func(in [][]elem) []elem // naive, of each node
	out   *ledger
	sinks []*kernel.Node
}

// Sinks are the nodes whose output is to be committed.
func (g *Graph) Sinks() []*kernel.Node { return g.sinks }

// Splits is engine.Options.Splits.
func Splits(n *kernel.Node, subtask, parallelism int) (mine [][]byte) {
	all, err := n.Splits(context.Background())
	must(err)
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

func (g *Graph) add(n *kernel.Node, eval func([][]elem) []elem) *kernel.Node {
	n.ID = len(g.Nodes)
	n.Name = fmt.Sprintf("%s %d", n.Kind, n.ID)
	n.Ports = append([]kernel.Port{{}}, n.Ports...)
	g.Nodes = append(g.Nodes, n)
	g.eval = append(g.eval, eval)
	return n
}

func edge(from *kernel.Node, x kernel.Exchange) kernel.Edge {
	codec := kernel.NewCodec(kvCoder)
	return kernel.Edge{From: from, Exchange: x, Codec: codec, Splitter: kernel.Keyed(int64Key, codec)}
}

func sumSpec(accumulating bool) kernel.Aggregation[int64, int64, int64] {
	return kernel.Aggregation[int64, int64, int64]{
		Key: int64Key, Acc: int64Coder,
		Create: func() int64 { return 0 }, Extract: func(a int64) int64 { return a },
		Windowing: kernel.Windowing{LateCount: 1, Accumulating: accumulating},
	}
}

// Random makes a graph of one or two sources, two to eight steps (exchanges, flattens, aggregations, several
// readers of one output) and one or two sinks. With idle, sources have nothing to read now and then, which takes
// 10 ms of the scheduler's time.
func Random(r *rand.Rand, idle bool) *Graph {
	g := &Graph{out: &ledger{rows: map[int][]elem{}, committed: map[string]bool{}}}
	splitCoder, err := coder.Of[numberSplit]()
	must(err)
	rowsCoder, err := coder.Of[rows]()
	must(err)
	var open []*kernel.Node
	for range 1 + r.IntN(2) {
		src := numbers{splits: 1 + r.IntN(4), n: 20 + r.IntN(150), keys: 1 + r.Int64N(20), disorder: r.Int64N(100), salt: r.Uint64(), idle: idle}
		spec := kernel.SourceSpec[kv, numberSplit]{
			Source: src, Split: splitCoder, At: src.at,
			Strategy: watermark.Bounded(time.Duration(src.disorder) * time.Millisecond),
		}
		open = append(open, g.add(&kernel.Node{
			Kind: "source", New: func() kernel.Operator { return kernel.NewSource(spec) },
			Splits: spec.EncodeSplits, SetSplits: kernel.SetSplits[kv, numberSplit],
		}, func([][]elem) (out []elem) {
			for sp := range src.splits {
				for i := range src.n {
					v, t := src.record(int64(sp), int64(i))
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
		switch r.IntN(7) {
		case 0:
			f := func(v kv) kv { return kv{Key: v.Key, Value: v.Value*3 + 1} }
			n = g.add(&kernel.Node{Kind: "map", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewMap(f) }},
				each(func(e elem) []elem { e.V = e.V*3 + 1; return []elem{e} }))
		case 1:
			m := 1 + r.Int64N(9)
			f := func(v kv) kv { return kv{Key: ((v.Key+v.Value)%m + m) % m, Value: v.Value} }
			n = g.add(&kernel.Node{Kind: "rekey", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewMap(f) }},
				each(func(e elem) []elem { e.K = ((e.K+e.V)%m + m) % m; return []elem{e} }))
		case 2:
			n = g.add(&kernel.Node{Kind: "filter", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewFilter(func(v kv) bool { return v.Value%3 != 0 }) }},
				each(func(e elem) []elem {
					if e.V%3 == 0 {
						return nil
					}
					return []elem{e}
				}))
		case 3:
			n = g.add(&kernel.Node{Kind: "dup", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return &dup{} }},
				each(func(e elem) []elem { return []elem{e, e} }))
		case 4:
			n = g.add(&kernel.Node{Kind: "reshuffle", Inputs: []kernel.Edge{edge(from, kernel.RoundRobin)}, New: kernel.NewPass},
				each(func(e elem) []elem { return []elem{e} }))
		case 5:
			in := []kernel.Edge{edge(from, kernel.Forward)}
			for range 1 + r.IntN(2) {
				in = append(in, edge(pick(), kernel.Forward))
			}
			n = g.add(&kernel.Node{Kind: "flatten", Inputs: in, New: kernel.NewPass}, func(in [][]elem) (out []elem) {
				for _, es := range in {
					out = append(out, es...)
				}
				return out
			})
		case 6:
			size += r.Int64N(200)
			fn := window.Fixed(time.Duration(size) * time.Millisecond)
			w := g.add(&kernel.Node{Kind: "window", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewWindow[kv](fn) }},
				each(func(e elem) []elem {
					w := fn.Assign(e.T)
					e.Start, e.End = w.StartTime(), w.EndTime()
					return []elem{e}
				}))
			accumulating := r.IntN(2) == 0
			n = g.add(&kernel.Node{Kind: "sum", Inputs: []kernel.Edge{edge(w, kernel.ByKey)}, Keyed: true,
				New: func() kernel.Operator {
					return kernel.NewAggregate(sumSpec(accumulating), func() []kernel.AggregateInput[int64, int64, int64] {
						return []kernel.AggregateInput[int64, int64, int64]{
							kernel.InputOf[int64, int64, int64, int64](0, func(a, v int64) int64 { return a + v }),
						}
					})
				}}, naiveSum)
		}
		open = append(open, n)
	}
	for i := range 1 + r.IntN(2) {
		from := pick()
		if i == 0 {
			from = open[len(open)-1]
		}
		spec := kernel.SinkSpec[kv, rows]{Sink: ledgerSink{g.out, i}, Committable: rowsCoder}
		sink := g.add(&kernel.Node{Kind: "sink", Inputs: []kernel.Edge{edge(from, kernel.Forward)}, Sink: spec.Node(),
			New: func() kernel.Operator { return kernel.NewSink(spec) }}, func(in [][]elem) []elem { return in[0] })
		sink.Ports = nil
		g.sinks = append(g.sinks, sink)
	}
	return g
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
	for _, n := range g.sinks {
		out = append(out, sorted(vals[n.ID]))
	}
	return out
}

func sorted(es []elem) []elem {
	es = append([]elem{}, es...)
	sort.Slice(es, func(i, j int) bool { return es[i].less(es[j]) })
	return es
}
