package enginetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

var viewCoder = func() coder.Coder[kernel.ViewPart[int64]] {
	c, err := coder.Of[kernel.ViewPart[int64]]()
	Must(err)
	return c
}()

var listCoder = func() coder.Coder[[]int64] { c, err := coder.Of[[]int64](); Must(err); return c }()

// sided adds a step that adds, to each element, the sum of a side collection in the window of its own window's end. Both
// are windowed first. It is a map, or a keyed step that also emits the view again at the end of the window.
func (g *Graph) sided(r *rand.Rand, main, side *kernel.Node, size time.Duration) *kernel.Node {
	small, large := window.Fixed(size), window.Fixed(size*time.Duration(1+r.IntN(3)))
	assign := func(from *kernel.Node, fn window.FixedFn) *kernel.Node {
		return g.Add(&kernel.Node{Kind: "window", Inputs: []kernel.Edge{Edge(from, kernel.Forward)},
			New: func() kernel.Operator { return kernel.NewWindow[KV](fn) }},
			func(in [][]elem) (out []elem) {
				for _, e := range in[0] {
					w := fn.Assign(e.T)
					e.Start, e.End = w.StartTime(), w.EndTime()
					out = append(out, e)
				}
				return out
			})
	}
	main, side = assign(main, small), assign(side, large)
	spec := SumSpec(false)
	sum := g.Add(&kernel.Node{Kind: "sum", Keyed: true, Inputs: []kernel.Edge{Edge(side, kernel.ByKey)}, New: func() kernel.Operator {
		return kernel.NewAggregate(spec, func() []kernel.AggregateInput[int64, int64, int64] {
			return []kernel.AggregateInput[int64, int64, int64]{
				kernel.InputOf[int64, int64, int64, int64](0, func(a, v int64) int64 { return a + v }),
			}
		})
	}}, naiveSum)
	list := kernel.Aggregation[bool, []int64, []int64]{
		Acc: listCoder, Create: func() []int64 { return nil }, Extract: func(a []int64) []int64 { return a },
		Merge: func(a, b []int64) []int64 { return append(a, b...) }, Windowing: kernel.Windowing{LateCount: 1},
	}
	var err error
	list.Key, err = coder.KeyOf[bool]()
	Must(err)
	type sumOf = coder.KV[bool, int64]
	sums, err := coder.Of[sumOf]()
	Must(err)
	codec := kernel.NewCodec(sums)
	one := g.Add(&kernel.Node{Kind: "one", Inputs: []kernel.Edge{Edge(sum, kernel.Forward)}, New: func() kernel.Operator {
		return kernel.NewMap(func(kv KV) sumOf { return sumOf{Value: kv.Value} })
	}}, func(in [][]elem) []elem { return in[0] })
	group := g.Add(&kernel.Node{Kind: "group", Keyed: true,
		Inputs: []kernel.Edge{{From: one, Exchange: kernel.ByKey, Codec: codec, Splitter: kernel.Keyed(list.Key, codec)}},
		New: func() kernel.Operator {
			return kernel.NewAggregate(list, func() []kernel.AggregateInput[bool, []int64, []int64] {
				return []kernel.AggregateInput[bool, []int64, []int64]{
					kernel.InputOf[bool, int64, []int64, []int64](0, func(a []int64, v int64) []int64 { return append(a, v) }),
				}
			})
		}}, func(in [][]elem) []elem { return in[0] })
	panes, err := coder.Of[pane]()
	Must(err)
	paneCodec := kernel.NewCodec(panes)
	parts := g.Add(&kernel.Node{Kind: "parts",
		Inputs: []kernel.Edge{{From: group, Exchange: kernel.Forward, Codec: paneCodec, Splitter: kernel.Unkeyed(paneCodec)}},
		New:    func() kernel.Operator { return &cut{} }}, func(in [][]elem) []elem { return in[0] })

	def := &kernel.ViewDef{Name: "sums"}
	main2 := Edge(main, kernel.Forward)
	inner := func() kernel.Operator {
		return kernel.NewParDo(kernel.ParDoFns[KV, KV]{Process: func(c *kernel.ProcessContext, v KV, out *kernel.Emitter[KV]) error {
			v.Value += kernel.ReadView[int64](c, def)
			out.Emit(v)
			return nil
		}}, false)
	}
	perKey := r.IntN(2) == 0
	if perKey {
		main2 = Edge(main, kernel.ByKey)
		inner = func() kernel.Operator { return addPerKey(def) }
	}
	view := kernel.NewCodec(viewCoder)
	sided := kernel.SidedSpec[KV]{
		Inner: inner, Codec: kernel.NewCodec(kvCoder),
		Views: func() []kernel.SideView {
			return []kernel.SideView{kernel.NewView(kernel.ViewSpec[int64, int64]{
				Def: def, Items: listCoder, MaxBytes: 1 << 30,
				Window: func(w window.Window) window.Window { return large.Assign(w.MaxTimestamp()) },
				Make: func(vs []int64, _ window.Window) (sum int64, _ error) {
					for _, v := range vs {
						sum += v
					}
					return sum, nil
				},
			})}
		},
	}
	return g.Add(&kernel.Node{Kind: "sided", Keyed: true,
		Inputs: []kernel.Edge{main2, {
			From: parts, Exchange: kernel.Broadcast, Codec: view, Splitter: kernel.Unkeyed(view), Side: &kernel.Side{View: "sums", Kind: "singleton"},
		}},
		New: func() kernel.Operator { return kernel.NewSided(sided) },
	}, func(in [][]elem) (out []elem) {
		sums := map[eventtime.Time]int64{} // by the end of a window
		for _, e := range in[1] {
			sums[e.End] += e.V
		}
		ended := map[elem]bool{}
		for _, e := range in[0] {
			sum := sums[large.Assign(e.End-1).EndTime()]
			e.V += sum
			out = append(out, e)
			if end := (elem{e.K, sum, e.End - 1, e.Start, e.End}); perKey && !ended[end] {
				ended[end] = true
				out = append(out, end)
			}
		}
		return out
	})
}

type pane = coder.KV[bool, []int64]

// cut makes a part of each two items of a pane, so that barriers come between parts.
type cut struct{ out kernel.Output }

func (c *cut) Open(o *kernel.OpenContext) error            { c.out = o.Outputs[0]; return nil }
func (c *cut) Watermark(eventtime.Time, int) (bool, error) { return true, nil }
func (c *cut) Close() error                                { return nil }
func (c *cut) Process(_ int, b kernel.Batch) error {
	for _, r := range b.(*kernel.Rows[pane]).E {
		for items, last := r.Value.Value, false; !last; {
			n := min(2, len(items))
			last = n == len(items)
			e := kernel.Element[kernel.ViewPart[int64]]{Value: kernel.ViewPart[int64]{Items: items[:n:n], Last: last}, Time: r.Time, Window: r.Window, Pane: r.Pane}
			if err := c.out.Emit(&kernel.Rows[kernel.ViewPart[int64]]{E: []kernel.Element[kernel.ViewPart[int64]]{e}}); err != nil {
				return err
			}
			items = items[n:]
		}
	}
	return nil
}

// addPerKey adds a view to each element, and emits it at the end of the window.
func addPerKey(def *kernel.ViewDef) kernel.Operator {
	var seen state.Value[int64]
	var end kernel.Timer
	return kernel.NewKeyedParDo(kernel.KeyedSpec[int64, int64, KV]{Key: Int64Key, Fns: kernel.KeyedFns[int64, int64, KV]{
		Declare: func(d *kernel.KeyedDecl) {
			seen = state.NewValue[int64](d, "seen")
			end = kernel.EventTimer(d, "end", func(c *kernel.ProcessContext, k int64, out *kernel.Emitter[KV]) error {
				out.Emit(KV{Key: k, Value: kernel.ReadView[int64](c, def)})
				return nil
			})
		},
		Process: func(c *kernel.ProcessContext, k int64, v int64, out *kernel.Emitter[KV]) error {
			view := kernel.ReadView[int64](c, def)
			if before, ok := seen.Lookup(); ok && before != view {
				return fmt.Errorf("key %d sees %d in window %v, where it saw %d before", k, view, c.Window(), before)
			}
			seen.Set(view)
			end.Set(c.Window().End())
			out.Emit(KV{Key: k, Value: v + view})
			return nil
		},
	}})
}
