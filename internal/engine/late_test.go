package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/enginetest"
)

// lineSink commits records as lines, each once.
type lineSink[T any] struct {
	line func(connector.Record[T]) string
	out  *lineLedger
}

type lineLedger struct {
	lines     []string
	committed map[string]bool
}

type lines struct {
	ID    string
	Lines []string
}

type lineWriter[T any] struct {
	lineSink[T]
	sub connector.Subtask
	buf []string
}

func (s lineSink[T]) Open(_ context.Context, sub connector.Subtask) (connector.Writer[T, lines], error) {
	return &lineWriter[T]{lineSink: s, sub: sub}, nil
}

func (s lineSink[T]) Commit(_ context.Context, _ int64, cs []lines) error {
	for _, c := range cs {
		if !s.out.committed[c.ID] {
			s.out.committed[c.ID] = true
			s.out.lines = append(s.out.lines, c.Lines...)
		}
	}
	return nil
}

func (w *lineWriter[T]) Write(_ context.Context, rs []connector.Record[T]) error {
	for _, r := range rs {
		w.buf = append(w.buf, w.line(r))
	}
	return nil
}

var nonce int // committables of different attempts differ

func (w *lineWriter[T]) Prepare(_ context.Context, checkpoint int64) ([]lines, error) {
	nonce++
	c := lines{fmt.Sprintf("%d/%d/%d", w.sub.Index, checkpoint, nonce), w.buf}
	w.buf = nil
	return []lines{c}, nil
}

func (w *lineWriter[T]) Close() error { return nil }

// addSink adds a lineSink behind a port and returns what it will have committed.
func addSink[T any](g *enginetest.Graph, from *kernel.Node, port int, line func(connector.Record[T]) string) *lineLedger {
	l := &lineLedger{committed: map[string]bool{}}
	linesCoder, err := coder.Of[lines]()
	enginetest.Must(err)
	spec := kernel.SinkSpec[T, lines]{Sink: lineSink[T]{line, l}, Committable: linesCoder}
	n := g.Add(&kernel.Node{Kind: "sink", Inputs: []kernel.Edge{edgeOf[T](from, port, kernel.Forward)}, Sink: spec.Node(),
		New: func() kernel.Operator { return kernel.NewSink(spec) }}, nil)
	n.Ports = nil
	g.Sinks = append(g.Sinks, n)
	return l
}

// edgeOf is an edge that need not find a key.
func edgeOf[T any](from *kernel.Node, port int, x kernel.Exchange) kernel.Edge {
	c, err := coder.Of[T]()
	enginetest.Must(err)
	codec := kernel.NewCodec(c)
	return kernel.Edge{From: from, Port: port, Exchange: x, Codec: codec, Splitter: kernel.Unkeyed(codec)}
}

func byKey[V any](from *kernel.Node) kernel.Edge {
	c, err := coder.Of[coder.KV[int64, V]]()
	enginetest.Must(err)
	codec := kernel.NewCodec(c)
	return kernel.Edge{From: from, Exchange: kernel.ByKey, Codec: codec, Splitter: kernel.Keyed(enginetest.Int64Key, codec)}
}

// addSource adds a source of numbers.
func addSource(g *enginetest.Graph, src enginetest.Numbers, strategy watermark.Strategy, batch int, rate float64) *kernel.Node {
	splitCoder, err := coder.Of[enginetest.NumberSplit]()
	enginetest.Must(err)
	spec := kernel.SourceSpec[enginetest.KV, enginetest.NumberSplit]{Source: src, Split: splitCoder, At: src.At, Strategy: strategy, MaxRate: rate}
	g.ReadBatch = batch
	return g.Add(&kernel.Node{Kind: "source", New: func() kernel.Operator { return kernel.NewSource(spec) },
		Splits: spec.EncodeSplits, SetSplits: kernel.SetSplits[enginetest.KV, enginetest.NumberSplit]}, nil)
}

func addWindow(g *enginetest.Graph, from *kernel.Node, size int64) *kernel.Node {
	fn := window.Fixed(time.Duration(size) * time.Millisecond)
	return g.Add(&kernel.Node{Kind: "window", Inputs: []kernel.Edge{enginetest.Edge(from, kernel.Forward)},
		New: func() kernel.Operator { return kernel.NewWindow[enginetest.KV](fn) }}, nil)
}

func add(a, v int64) int64 { return a + v }

// TestPanesAndLatenessAreExact runs one split whose watermark is asserted after each record, and too early, so
// that elements are late. What is early, on time, late or dropped then follows from the records alone, and
// must be the same as in an evaluation record by record, whatever crashes, and wherever the subtasks of the source are that have no split.
func TestPanesAndLatenessAreExact(t *testing.T) {
	sum := runSeeds(t, func(seed uint64) (st stats, err error) {
		r := rand.New(rand.NewPCG(seed, 6))
		g := &enginetest.Graph{}
		src := enginetest.Numbers{SplitCount: 1, PerSplit: 20 + r.IntN(80), Keys: 1 + r.Int64N(8), Disorder: 50 + r.Int64N(400), Salt: r.Uint64()}
		bound, size := r.Int64N(src.Disorder), 30+r.Int64N(200)
		windowing := kernel.Windowing{
			Lateness: []int64{0, 50, 150}[r.IntN(3)], EarlyCount: r.Int64N(4), LateCount: 1 + r.Int64N(3), Accumulating: r.IntN(2) == 0,
		}
		n := addSource(g, src, watermark.Bounded(time.Duration(bound)*time.Millisecond), 1, 0)
		n = addWindow(g, n, size)
		par := 1 + r.IntN(3)
		if par == 1 && r.IntN(2) == 0 { // else the watermark would come by several ways
			n = g.Add(&kernel.Node{Kind: "reshuffle", Inputs: []kernel.Edge{enginetest.Edge(n, kernel.RoundRobin)}, New: kernel.NewPass}, nil)
		}
		spec := enginetest.SumSpec(false)
		spec.Windowing = windowing
		n = g.Add(&kernel.Node{Kind: "sum", Inputs: []kernel.Edge{enginetest.Edge(n, kernel.ByKey)}, Keyed: true, Ports: []kernel.Port{{Name: "late"}},
			New: func() kernel.Operator {
				return kernel.NewAggregate(spec, func() []kernel.AggregateInput[int64, int64, int64] {
					return []kernel.AggregateInput[int64, int64, int64]{kernel.InputOf[int64, int64, int64, int64](0, add)}
				})
			}}, nil)
		panes := addSink(g, n, 0, func(r connector.Record[enginetest.KV]) string {
			return naivePane{r.Value.Key, r.Window.StartTime(), r.Value.Value, r.Pane}.String()
		})
		late := addSink(g, n, 1, func(r connector.Record[enginetest.KV]) string { return fmt.Sprint(r.Value.Value) })

		st.Jobs = 1
		h := newHarness(g, par, r, &st)
		if err := h.run(seed); err != nil {
			return st, err
		}
		wantPanes, wantLate := naivePanes(src, bound, size, windowing)
		for _, c := range []struct {
			what      string
			want, got []string
		}{{"panes", wantPanes, panes.lines}, {"late elements", wantLate, late.lines}} {
			slices.Sort(c.want)
			slices.Sort(c.got)
			if d := cmp.Diff(c.want, c.got); d != "" {
				return st, fmt.Errorf("%s differ with %+v (-want +got):\n%s", c.what, windowing, d)
			}
			if c.what != "panes" {
				st.Late += len(c.want)
			} else {
				st.Panes += len(c.want)
			}
		}
		return st, nil
	})
	if sum.Jobs >= 100 && (sum.Crashes == 0 || sum.Recorded == 0 || sum.Bases == 0 || sum.Panes == 0 || sum.Late == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}

type naivePane struct {
	key   int64
	start eventtime.Time
	sum   int64
	pane  window.Pane
}

func (p naivePane) String() string {
	return fmt.Sprintf("%d from %v: %d, %v %d/%d first %v last %v", p.key, p.start, p.sum, p.pane.Timing, p.pane.Index, p.pane.OnTimeIndex, p.pane.First, p.pane.Last)
}

// naivePanes works out the panes and the late elements, record by record.
func naivePanes(src enginetest.Numbers, bound, size int64, o kernel.Windowing) (panes, late []string) {
	type at struct {
		start eventtime.Time
		key   int64
	}
	type cell struct {
		sum, since, n, early int64
		seen                 bool // its window's end has been seen
	}
	cells := map[at]*cell{}
	w := eventtime.Min
	fire := func(a at, c *cell, timing window.Timing, last bool) {
		p := window.Pane{Timing: timing, Index: c.n, OnTimeIndex: c.n - c.early, First: c.n == 0, Last: last}
		if timing == window.Early {
			p.OnTimeIndex = -1
			c.early++
		} else {
			c.seen = true
		}
		c.n++
		c.since = 0
		panes = append(panes, naivePane{a.key, a.start, c.sum, p}.String())
		if !o.Accumulating {
			c.sum = 0
		}
	}
	advance := func(to eventtime.Time) {
		for a, c := range cells {
			end := a.start + eventtime.Time(size)
			if end <= to && end > w {
				if c.since > 0 {
					fire(a, c, window.OnTime, o.Lateness == 0)
				}
				c.seen = true
			}
			if end.Add(o.Lateness) <= to {
				if c.since > 0 {
					fire(a, c, window.Late, true)
				}
				delete(cells, a)
			}
		}
		w = max(w, to)
	}
	for i := range src.PerSplit {
		v, t := src.Record(0, int64(i))
		a := at{t.Floor(size, 0), v.Key}
		end := a.start + eventtime.Time(size)
		if w >= end.Add(o.Lateness) {
			late = append(late, fmt.Sprint(v.Value))
		} else {
			c := cells[a]
			if c == nil {
				c = &cell{}
				cells[a] = c
			}
			c.sum += v.Value
			c.since++
			switch {
			case w >= end:
				if !c.seen || c.since >= o.LateCount {
					fire(a, c, window.Late, false)
				}
			case o.EarlyCount > 0 && c.since >= o.EarlyCount:
				fire(a, c, window.Early, false)
			}
		}
		advance(max(w, t.Add(-bound)))
	}
	advance(eventtime.Max)
	return panes, late
}

type leftRight struct{ Sum, Left, Right int64 }

// TestLastPanesAreExact runs sources that fall silent for long, whose silence must not hold the others back,
// and sources with a limited rate, into one aggregation of two sides that takes late elements for ever. Which
// panes come depends on the order of things; the last pane of each key and window must hold everything.
func TestLastPanesAreExact(t *testing.T) {
	sum := runSeeds(t, func(seed uint64) (st stats, err error) {
		r := rand.New(rand.NewPCG(seed, 8))
		g := &enginetest.Graph{}
		size := 50 + r.Int64N(300)
		want := map[string]leftRight{}
		side := func(count func(*leftRight)) *kernel.Node {
			src := enginetest.Numbers{SplitCount: 1 + r.IntN(4), PerSplit: 10 + r.IntN(60), Keys: 1 + r.Int64N(10), Disorder: r.Int64N(100), Salt: r.Uint64(), Silent: r.IntN(30)}
			for sp := range src.SplitCount {
				for i := range src.PerSplit {
					v, at := src.Record(int64(sp), int64(i))
					id := fmt.Sprintf("%d from %v", v.Key, at.Floor(size, 0))
					all := want[id]
					all.Sum += v.Value
					count(&all)
					want[id] = all
				}
			}
			var strategy watermark.Strategy = watermark.Bounded(time.Duration(src.Disorder) * time.Millisecond)
			if r.IntN(3) > 0 {
				strategy = watermark.WithIdleness(strategy, 50*time.Millisecond)
			}
			rate := []float64{0, 0, 300, 3000}[r.IntN(4)]
			n := addSource(g, src, strategy, 0, rate)
			if r.IntN(2) == 0 {
				n = g.Add(&kernel.Node{Kind: "reshuffle", Inputs: []kernel.Edge{enginetest.Edge(n, kernel.RoundRobin)}, New: kernel.NewPass}, nil)
			}
			return addWindow(g, n, size)
		}
		left := side(func(a *leftRight) { a.Left++ })
		right := side(func(a *leftRight) { a.Right++ })
		text := g.Add(&kernel.Node{Kind: "text", Inputs: []kernel.Edge{enginetest.Edge(right, kernel.Forward)},
			New: func() kernel.Operator {
				return kernel.NewMap(func(v enginetest.KV) coder.KV[int64, string] {
					return coder.KV[int64, string]{Key: v.Key, Value: fmt.Sprint(v.Value)}
				})
			}}, nil)
		acc, err := coder.Of[leftRight]()
		enginetest.Must(err)
		windowing := kernel.Windowing{Lateness: 1 << 60, EarlyCount: r.Int64N(4), LateCount: 1 + r.Int64N(3), Accumulating: true}
		joined := g.Add(&kernel.Node{Kind: "join", Inputs: []kernel.Edge{byKey[int64](left), byKey[string](text)}, Keyed: true,
			Ports: []kernel.Port{{Name: "late"}, {Name: "late"}},
			New: func() kernel.Operator {
				return kernel.NewAggregate(kernel.Aggregation[int64, leftRight, leftRight]{
					Key: enginetest.Int64Key, Acc: acc, Create: func() leftRight { return leftRight{} }, Extract: func(a leftRight) leftRight { return a },
					Windowing: windowing,
				}, func() []kernel.AggregateInput[int64, leftRight, leftRight] {
					return []kernel.AggregateInput[int64, leftRight, leftRight]{
						kernel.InputOf[int64, int64, leftRight, leftRight](0, func(a leftRight, v int64) leftRight {
							return leftRight{a.Sum + v, a.Left + 1, a.Right}
						}),
						kernel.InputOf[int64, string, leftRight, leftRight](1, func(a leftRight, s string) leftRight {
							var v int64
							_, err := fmt.Sscan(s, &v)
							enginetest.Must(err)
							return leftRight{a.Sum + v, a.Left, a.Right + 1}
						}),
					}
				})
			}}, nil)
		panes := addSink(g, joined, 0, func(r connector.Record[coder.KV[int64, leftRight]]) string {
			return fmt.Sprintf("%d from %v|%d|%v", r.Value.Key, r.Window.StartTime(), r.Pane.Index, r.Value.Value)
		})
		lateLeft := addSink(g, joined, 1, func(r connector.Record[enginetest.KV]) string { return fmt.Sprint(r.Value) })

		st.Jobs = 1
		h := newHarness(g, 1+r.IntN(3), r, &st)
		if err := h.run(seed); err != nil {
			return st, err
		}
		got, index := map[string]leftRight{}, map[string]int64{}
		for _, line := range panes.lines {
			f := strings.Split(line, "|")
			var i int64
			var v leftRight
			_, err := fmt.Sscanf(f[1]+" "+f[2], "%d {%d %d %d}", &i, &v.Sum, &v.Left, &v.Right)
			enginetest.Must(err)
			if _, ok := got[f[0]]; !ok || i > index[f[0]] {
				got[f[0]], index[f[0]] = v, i
			}
		}
		st.Panes, st.Late = len(panes.lines), len(panes.lines)-len(got)
		if d := cmp.Diff(want, got); d != "" {
			return st, fmt.Errorf("last panes differ with %+v (-want +got):\n%s", windowing, d)
		}
		if len(lateLeft.lines) > 0 {
			return st, fmt.Errorf("dropped as late: %v", lateLeft.lines)
		}
		return st, nil
	})
	if sum.Jobs >= 100 && (sum.Crashes == 0 || sum.Recorded == 0 || sum.Bases == 0 || sum.Panes == 0 || sum.Late == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}
