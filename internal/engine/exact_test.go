package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/sim"
)

var (
	seedFlag  = flag.Uint64("engine.seed", 0, "run only this seed")
	runsFlag  = flag.Int("engine.runs", 300, "random jobs to run")
	startSeed = flag.Uint64("engine.start", 0, "first seed; 0: from the clock")
)

// TestRandomJobsAreExact builds random graphs (diamonds, exchanges, flattens, chains of aggregations),
// runs them under a seeded scheduler with room for one batch a channel, takes aligned, overtaking and
// timed-out checkpoints, crashes them and restores the last complete one; the committed output must equal
// that of a naive evaluation, and no job may get stuck.
func TestRandomJobsAreExact(t *testing.T) {
	sum := runSeeds(t, *runsFlag, runRandomJob)
	// A run that exercises nothing proves nothing.
	if sum.Jobs >= 100 && (sum.Crashes == 0 || sum.Checkpoints == 0 || sum.Recorded == 0 || sum.Bases == 0 || sum.Panes == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}

// runSeeds runs f for one seed after the other, fresh ones each time, and says how to repeat a failure.
func runSeeds(t *testing.T, runs int, f func(seed uint64) (stats, error)) (sum stats) {
	t.Helper()
	start := *startSeed
	if start == 0 {
		start = uint64(time.Now().UnixNano())
	}
	if *seedFlag != 0 {
		start, runs = *seedFlag, 1
	}
	for i := range runs {
		seed := start + uint64(i)
		st, err := f(seed)
		if err != nil {
			t.Fatalf("seed %d: %v\nrerun: go test ./internal/engine -run %s -engine.seed=%d", seed, err, t.Name(), seed)
		}
		sum.add(st)
	}
	t.Logf("seeds %d to %d: %+v", start, start+uint64(runs)-1, sum)
	return sum
}

type stats struct{ Jobs, Checkpoints, Aborted, Crashes, Recorded, Bases, Panes, Late, Steps int }

func (s *stats) add(o stats) {
	s.Jobs += o.Jobs
	s.Checkpoints += o.Checkpoints
	s.Aborted += o.Aborted
	s.Crashes += o.Crashes
	s.Recorded += o.Recorded
	s.Bases += o.Bases
	s.Panes += o.Panes
	s.Late += o.Late
	s.Steps += o.Steps
}

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

// ---- source: splits of numbered records ----

type numbers struct {
	splits, n int
	keys      int64
	disorder  int64
	salt      uint64
	silent    int // reads in a row that bring nothing, now and then; 10 ms each
}

type numberSplit struct{ ID, Next int64 }

func (s numbers) record(split, i int64) (kv, eventtime.Time) {
	h := uint64(split*1_000_003+i)*0x9E3779B97F4A7C15 ^ s.salt
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	t := i*10 - int64(h%uint64(s.disorder+1))
	return kv{Key: int64(h>>8) & 0xffff % s.keys, Value: split*1_000_000 + i}, eventtime.Time(t)
}

func (s numbers) Splits(context.Context) (out []numberSplit, _ error) {
	for i := range s.splits {
		out = append(out, numberSplit{ID: int64(i)})
	}
	return out, nil
}
func (s numbers) SplitID(n numberSplit) string { return fmt.Sprint(n.ID) }
func (s numbers) Open(context.Context, connector.Subtask) (connector.Reader[kv, numberSplit], error) {
	return &numberReader{s: s}, nil
}

// at recovers the time of a record from its value.
func (s numbers) at(v kv) time.Time {
	_, t := s.record(v.Value/1_000_000, v.Value%1_000_000)
	return t.Time()
}

type numberReader struct {
	s    numbers
	todo []numberSplit
	out  []kv
	turn int
	mute int // reads that will bring nothing
}

func (r *numberReader) Assign(s []numberSplit) error { r.todo = append(r.todo, s...); return nil }
func (r *numberReader) Close() error                 { return nil }
func (r *numberReader) Read(_ context.Context, max int) (b connector.Batch[kv, numberSplit], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	if r.mute > 0 {
		r.mute--
		b.Status = connector.Idle
		return b, nil
	}
	if r.turn++; r.turn%5 == 0 {
		if r.turn%20 == 0 {
			r.mute = r.s.silent
		}
		b.Status = connector.Idle
		return b, nil
	}
	sp := &r.todo[0]
	r.out = r.out[:0]
	for len(r.out) < min(max, 1+r.turn%7) && sp.Next < int64(r.s.n) {
		v, _ := r.s.record(sp.ID, sp.Next)
		r.out = append(r.out, v)
		sp.Next++
	}
	b.Records, b.Split, b.Done = r.out, *sp, sp.Next == int64(r.s.n)
	if b.Done {
		r.todo = r.todo[1:]
	}
	return b, nil
}

// ---- sink: commits once, remembers ----

type ledger struct {
	rows      map[int][]elem // by sink
	committed map[string]bool
}

type rows struct {
	ID   string
	Rows []elem
}

type ledgerSink struct {
	l  *ledger
	id int
}

func (s ledgerSink) Open(_ context.Context, sub connector.Subtask) (connector.Writer[kv, rows], error) {
	return &ledgerWriter{s: s, sub: sub}, nil
}

func (s ledgerSink) Commit(_ context.Context, _ int64, cs []rows) error {
	for _, c := range cs {
		if !s.l.committed[c.ID] {
			s.l.committed[c.ID] = true
			s.l.rows[s.id] = append(s.l.rows[s.id], c.Rows...)
		}
	}
	return nil
}

type ledgerWriter struct {
	s   ledgerSink
	sub connector.Subtask
	buf []elem
}

var nonce int // committables of different attempts differ

func (w *ledgerWriter) Write(_ context.Context, rs []connector.Record[kv]) error {
	for _, r := range rs {
		w.buf = append(w.buf, elem{r.Value.Key, r.Value.Value, eventtime.FromTime(r.Time), r.Window.StartTime(), r.Window.EndTime()})
	}
	return nil
}

func (w *ledgerWriter) Prepare(_ context.Context, cp int64) ([]rows, error) {
	if len(w.buf) == 0 {
		return nil, nil
	}
	nonce++
	c := rows{ID: fmt.Sprintf("%d/%d/%d/%d", w.s.id, w.sub.Index, cp, nonce), Rows: w.buf}
	w.buf = nil
	return []rows{c}, nil
}
func (w *ledgerWriter) Close() error { return nil }

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

// ---- random graphs ----

type testGraph struct {
	kernel.Graph
	eval []func(in [][]elem) []elem // naive
	l    *ledger
	sink map[int]*kernel.Node

	readBatch int // records a read; 0: as many as there are
}

func (g *testGraph) add(n *kernel.Node, eval func([][]elem) []elem) *kernel.Node {
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

func randomGraph(r *rand.Rand) *testGraph {
	g := &testGraph{l: &ledger{map[int][]elem{}, map[string]bool{}}, sink: map[int]*kernel.Node{}}
	splitCoder, err := coder.Of[numberSplit]()
	must(err)
	rowsCoder, err := coder.Of[rows]()
	must(err)
	var open []*kernel.Node
	for range 1 + r.IntN(2) {
		src := numbers{splits: 1 + r.IntN(4), n: 20 + r.IntN(150), keys: 1 + r.Int64N(20), disorder: r.Int64N(100), salt: r.Uint64()}
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
		switch r.IntN(8) {
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
		case 6, 7:
			size += r.Int64N(200)
			fn := window.Fixed(time.Duration(size) * time.Millisecond)
			w := g.add(&kernel.Node{Kind: "window", Inputs: []kernel.Edge{edge(from, kernel.Forward)},
				New: func() kernel.Operator { return kernel.NewWindow[kv](fn) }},
				each(func(e elem) []elem {
					w := fn.Assign(e.T)
					e.Start, e.End = w.StartTime(), w.EndTime()
					return []elem{e}
				}))
			step := &kernel.Node{Kind: "sum", Inputs: []kernel.Edge{edge(w, kernel.ByKey)}, Keyed: true}
			accumulating, cells := r.IntN(2) == 0, r.IntN(3) == 0
			step.New = func() kernel.Operator {
				if cells {
					return sumOfCells()
				}
				return kernel.NewAggregate(sumSpec(accumulating), func() []kernel.AggregateInput[int64, int64, int64] {
					return []kernel.AggregateInput[int64, int64, int64]{
						kernel.InputOf[int64, int64, int64, int64](0, func(a, v int64) int64 { return a + v }),
					}
				})
			}
			n = g.add(step, naiveSum)
		}
		open = append(open, n)
	}
	for i := range 1 + r.IntN(2) {
		from := pick()
		if i == 0 {
			from = open[len(open)-1]
		}
		spec := kernel.SinkSpec[kv, rows]{Sink: ledgerSink{g.l, i}, Committable: rowsCoder}
		g.sink[i] = g.add(&kernel.Node{Kind: "sink", Inputs: []kernel.Edge{edge(from, kernel.Forward)}, Sink: spec.Node(),
			New: func() kernel.Operator { return kernel.NewSink(spec) }}, func(in [][]elem) []elem { return in[0] })
		g.sink[i].Ports = nil
	}
	return g
}

// sumOfCells is what a sum per key and window is when a user writes it: a cell, and a timer at the end of the
// window.
func sumOfCells() kernel.Operator {
	var sum state.Value[int64]
	var end kernel.Timer
	return kernel.NewKeyedParDo(kernel.KeyedSpec[int64, int64, kv]{Key: int64Key, Fns: kernel.KeyedFns[int64, int64, kv]{
		Declare: func(d *kernel.KeyedDecl) {
			sum = state.NewValue[int64](d, "sum")
			end = kernel.EventTimer(d, "end", func(_ *kernel.ProcessContext, k int64, out *kernel.Emitter[kv]) error {
				out.Emit(kv{Key: k, Value: sum.Get()})
				return nil
			})
		},
		Process: func(c *kernel.ProcessContext, _ int64, v int64, _ *kernel.Emitter[kv]) error {
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

func (g *testGraph) want() map[int][]elem {
	vals := make([][]elem, len(g.Nodes))
	for i, n := range g.Nodes {
		var in [][]elem
		for _, e := range n.Inputs {
			in = append(in, append([]elem(nil), vals[e.From.ID]...))
		}
		vals[i] = g.eval[i](in)
	}
	out := map[int][]elem{}
	for i, n := range g.sink {
		out[i] = sorted(vals[n.ID])
	}
	return out
}

func sorted(es []elem) []elem {
	es = append([]elem{}, es...)
	sort.Slice(es, func(i, j int) bool { return es[i].less(es[j]) })
	return es
}

// ---- running with checkpoints and crashes ----

var errCrash = errors.New("crash")

func runRandomJob(seed uint64) (st stats, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	g := randomGraph(r)
	want := g.want()
	st.Jobs = 1
	h := newHarness(g, 1+r.IntN(3), r, &st)
	if err := h.run(seed); err != nil {
		return st, err
	}
	for i := range want {
		if d := cmp.Diff(want[i], sorted(g.l.rows[i])); d != "" {
			return st, fmt.Errorf("sink %d differs (-want +got):\n%s", i, d)
		}
		st.Panes += len(want[i])
	}
	return st, nil
}

// harness is a coordinator reduced to what a test needs.
type harness struct {
	g       *testGraph
	par     int
	r       *rand.Rand
	st      *stats
	store   *checkpoint.MemoryStore
	last    *checkpoint.Checkpoint
	nextID  int64
	cache   int64
	crash   int // 0 never, 1 seldom, 2 often
	mode    int // 0 aligned, 1 overtaking, 2 timeout, 3 mixed
	crashes int
}

func newHarness(g *testGraph, par int, r *rand.Rand, st *stats) *harness {
	return &harness{g: g, par: par, r: r, st: st, store: &checkpoint.MemoryStore{}, cache: []int64{400, 3000, 1 << 20}[r.IntN(3)],
		crash: r.IntN(3), mode: r.IntN(4)}
}

// run restores the job until it comes to its end.
func (h *harness) run(seed uint64) error {
	for attempt := range 200 {
		done, err := h.attempt(seed*1000 + uint64(attempt))
		if err != nil {
			return fmt.Errorf("attempt %d, parallelism %d: %w", attempt, h.par, err)
		}
		if done {
			return nil
		}
	}
	return errors.New("no end after 200 attempts")
}

func (h *harness) attempt(seed uint64) (done bool, err error) {
	sched := sim.New(seed)
	sched.MaxSteps = 500_000
	keeper := checkpoint.NewKeeper(h.store, h.last)
	var parts []checkpoint.Part
	var failed error
	ended := 0
	me := sched.NewParker("coordinator")
	opts := engine.Options{
		Scheduler: sched, Parallelism: h.par, Room: 1 + h.r.IntN(2), CacheBytes: h.cache, Checkpoints: true, ReadBatch: h.g.readBatch,
		Budget: []int{1, 3, 512}[h.r.IntN(3)],
		OpenBackend: func(ctx context.Context, n *kernel.Node, sub, par int) (statebackend.Backend, error) {
			return h.last.Open(ctx, h.store, memory.Driver{}, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)}, n.Name, sub)
		},
		Splits: func(n *kernel.Node, sub, par int) (out [][]byte) {
			all, err := n.Splits(context.Background())
			must(err)
			for i := sub; i < len(all); i += par {
				out = append(out, all[i])
			}
			return out
		},
		OnSnapshot: func(s *engine.SubtaskSnapshot) {
			p, err := keeper.Persist(context.Background(), s)
			if err != nil {
				failed = err
			}
			if s.Checkpoint == h.nextID && !s.Aborted {
				parts = append(parts, p)
			}
			for _, c := range s.Channels {
				if len(c) > 0 {
					h.st.Recorded++
				}
			}
			for _, n := range s.Nodes {
				if n.Keyed != nil && n.Keyed.Base() != nil {
					h.st.Bases++
				}
			}
			me.Wake()
		},
		OnEnd: func(string, int) { ended++; me.Wake() },
	}
	renew := rand.New(rand.NewPCG(seed, 7))
	opts.RenewBase = func(string, int) bool { return renew.IntN(3) == 0 }
	if h.mode >= 2 {
		opts.AlignTimeout = 1
	}
	if h.last != nil {
		opts.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return h.last.Restore(context.Background(), h.store, stage, subtask)
		}
	}
	job, err := engine.NewJob(context.Background(), &h.g.Graph, opts)
	if err != nil {
		return false, err
	}
	job.Start()
	// Most turns leave the clock alone, so that barriers and crashes fall into the midst of work.
	wait := func() {
		if h.r.IntN(8) == 0 {
			me.Park(sched.Now() + 1)
		} else {
			me.Park(sched.Now())
		}
	}
	coordinator := func() {
		for {
			for range h.r.IntN(60) {
				wait()
			}
			last := ended == job.Subtasks()
			if !last && h.crash > 0 && h.crashes < 20 && h.r.IntN([]int{1, 40, 6}[h.crash]) == 0 {
				h.crashes++
				h.st.Crashes++
				job.Cancel(errCrash)
				return
			}
			h.nextID++
			parts = nil
			job.Trigger(h.nextID, h.mode == 1 || h.mode == 3 && h.r.IntN(2) == 0)
			patience := 1 << 30
			if !last && h.r.IntN(5) == 0 {
				patience = h.r.IntN(40) // give up and start the next
			}
			for len(parts) < job.Subtasks() && failed == nil && patience > 0 {
				if h.crash == 2 && h.crashes < 20 && h.r.IntN(300) == 0 {
					h.crashes++
					h.st.Crashes++
					job.Cancel(errCrash)
					return
				}
				patience--
				wait()
			}
			if failed != nil {
				job.Cancel(failed)
				return
			}
			if len(parts) < job.Subtasks() {
				h.st.Aborted++
				continue
			}
			c, err := checkpoint.Assemble(h.last, parts)
			if err != nil {
				job.Cancel(err)
				return
			}
			h.last = c
			h.st.Checkpoints++
			for _, n := range h.g.sink {
				for _, pre := range c.Prepared(n.Name) {
					must(n.Sink.Commit(context.Background(), pre.Checkpoint, pre.Committables))
				}
			}
			if h.r.IntN(4) > 0 {
				keeper.Completed(c.ID) // else the news is late
			}
			h.store.Retain(c)
			if last {
				done = true
				job.Stop()
				return
			}
		}
	}
	sched.Go("coordinator", me, coordinator)
	err = sched.Run()
	h.st.Steps += sched.Steps()
	if err != nil {
		return false, fmt.Errorf("checkpoint %d, mode %d: %w\n%s", h.nextID, h.mode, err, job.Describe())
	}
	if err := job.Wait(); err != nil && !errors.Is(err, errCrash) {
		return false, err
	}
	return done, nil
}
