package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
	"github.com/millstream/millstream/testing/seeds"
)

const sideSize, mainSize = 30, 10 // ms

// sidedCase is a step with two views of fixed windows, one of which replaces and the other of which adds, before code that emits
// each element with what it sees.
func sidedCase(lateness int64, inputs []operatortest.Input) operatortest.Case {
	texts, err := coder.Of[string]()
	if err != nil {
		panic(err)
	}
	lists, err := coder.Of[[]string]()
	if err != nil {
		panic(err)
	}
	defs := []*kernel.ViewDef{{Name: "replaces"}, {Name: "adds"}}
	codec := kernel.NewCodec(texts)
	spec := kernel.SidedSpec[string]{
		Codec: codec, LatePort: 1,
		Views: func() (views []kernel.SideView) {
			for i, def := range defs {
				views = append(views, kernel.NewView(kernel.ViewSpec[string, string]{
					Def: def, Items: lists, Window: sideOf, Lateness: lateness, Replace: i == 0, MaxBytes: 1 << 20,
					Make: func(items []string, _ window.Window) (string, error) { return strings.Join(items, "+"), nil },
				}))
			}
			return views
		},
		Inner: func() kernel.Operator {
			return kernel.NewParDo(kernel.ParDoFns[string, string]{Process: func(c *kernel.ProcessContext, v string, out *kernel.Emitter[string]) error {
				out.Emit(v + " " + kernel.ReadView[string](c, defs[0]) + "/" + kernel.ReadView[string](c, defs[1]))
				return nil
			}}, false)
		},
	}
	line := operatortest.Lines(func(e kernel.Element[string]) string { return fmt.Sprintf("%d %v %s", e.Time, e.Window, e.Value) })
	return operatortest.Case{
		New: func() kernel.Operator { return kernel.NewSided(spec) }, Keyed: true, Ports: []operatortest.Print{line, line}, Inputs: inputs,
		Output: func(w eventtime.Time) string { return fmt.Sprintf("watermark %d", w) },
	}
}

func mainOf(t eventtime.Time) window.Window {
	return window.Fixed(mainSize * time.Millisecond).Assign(t)
}

func sideOf(main window.Window) window.Window {
	return window.Fixed(sideSize * time.Millisecond).Assign(main.MaxTimestamp())
}

// sidedTwin evaluates a step with two views the obvious way.
type sidedTwin struct {
	lateness int64
	w, told  eventtime.Time
	sides    [2]sideTwin
	waiting  []waitingTwin
}

type sideTwin struct {
	w       eventtime.Time
	content map[window.Window][]string // of windows that had a pane
	coming  map[window.Window][]string
}

type waitingTwin struct {
	e    kernel.Element[string]
	hold eventtime.Time
}

func (s *sidedTwin) expired(win window.Window) bool {
	return s.told >= win.EndTime().Add(s.lateness)
}

func (s *sidedTwin) ready(win window.Window) bool {
	for _, side := range s.sides {
		if _, ok := side.content[win]; !ok && side.w < win.EndTime() {
			return false
		}
	}
	return true
}

func (s *sidedTwin) element(e kernel.Element[string]) (said []string) {
	if s.expired(sideOf(e.Window)) {
		return []string{fmt.Sprintf("port 1: %d %v %s", e.Time, e.Window, e.Value)}
	}
	s.waiting = append(s.waiting, waitingTwin{e, max(e.Time, s.told)})
	return s.goOn()
}

// goOn lets go what can, and the watermark.
func (s *sidedTwin) goOn() (said []string) {
	s.waiting = slices.DeleteFunc(s.waiting, func(w waitingTwin) bool {
		win := sideOf(w.e.Window)
		if !s.ready(win) {
			return false
		}
		said = append(said, fmt.Sprintf("%d %v %s %s/%s", w.e.Time, w.e.Window, w.e.Value,
			strings.Join(s.sides[0].content[win], "+"), strings.Join(s.sides[1].content[win], "+")))
		return true
	})
	next := s.w
	for _, w := range s.waiting {
		next = min(next, w.hold)
	}
	s.told = max(s.told, next)
	return said
}

func (s *sidedTwin) part(i int, win window.Window, p kernel.ViewPart[string]) []string {
	if s.expired(win) {
		return nil
	}
	side := &s.sides[i]
	side.coming[win] = append(side.coming[win], p.Items...)
	if p.Last {
		if i == 1 {
			side.coming[win] = append(slices.Clone(side.content[win]), side.coming[win]...)
		}
		side.content[win], side.coming[win] = side.coming[win], nil
	}
	return s.goOn()
}

// TestSidedAsItsTwin compares random inputs, undisturbed and with snapshot and restore everywhere, with the twin: what
// each element sees, what is late, and where the watermark stands, after each input.
func TestSidedAsItsTwin(t *testing.T) {
	start, runs := seeds.From(t, 60)
	saw := map[string]int{}
	for i := range runs {
		seed := start + uint64(i)
		r := rand.New(rand.NewPCG(seed, 9))
		twin := &sidedTwin{lateness: r.Int64N(2) * 15, w: eventtime.Min, told: eventtime.Min}
		for k := range twin.sides {
			twin.sides[k] = sideTwin{eventtime.Min, map[window.Window][]string{}, map[window.Window][]string{}}
		}
		var inputs []operatortest.Input
		var want [][]string
		add := func(in operatortest.Input, said []string) {
			said = append(said, fmt.Sprintf("watermark %d", twin.told))
			sort.Strings(said)
			inputs, want = append(inputs, in), append(want, said)
		}
		elements, items := 0, 0
		var opened [2]map[window.Window]bool // panes that miss their last part
		for k := range opened {
			opened[k] = map[window.Window]bool{}
		}
		w, sideW := eventtime.Time(0), [2]eventtime.Time{}
		for range 30 + r.IntN(30) {
			switch k := r.IntN(2); r.IntN(5) {
			case 0, 1:
				var es []kernel.Element[string]
				var said []string
				for range 1 + r.IntN(5) {
					elements++
					at := max(0, w+eventtime.Time(r.Int64N(70)-25))
					e := kernel.Element[string]{Value: fmt.Sprint("m", elements), Time: at, Window: mainOf(at)}
					es = append(es, e)
					more := twin.element(e)
					said = append(said, more...)
				}
				if len(twin.waiting) > 0 {
					saw["waits"]++
				}
				add(operatortest.Batch(0, es...), said)
			case 2:
				at := max(0, sideW[k]+eventtime.Time(r.Int64N(90)-20))
				win := window.Fixed(sideSize * time.Millisecond).Assign(at)
				for parts := 1 + r.IntN(2); parts > 0; parts-- {
					p := kernel.ViewPart[string]{Last: parts == 1 && r.IntN(3) > 0}
					for range r.IntN(3) {
						items++
						p.Items = append(p.Items, fmt.Sprint("s", items))
					}
					if opened[k][win] && p.Last {
						saw["pane in parts"]++
					}
					opened[k][win] = !p.Last
					before := len(twin.sides[k].content[win])
					e := kernel.Element[kernel.ViewPart[string]]{Value: p, Time: win.MaxTimestamp(), Window: win}
					said := twin.part(k, win, p)
					if p.Last && before > 0 {
						saw["second pane"]++
					}
					add(operatortest.Batch(1+k, e), said)
				}
			case 3:
				w += eventtime.Time(r.Int64N(25))
				twin.w = w
				said := twin.goOn()
				if twin.told < w {
					saw["holds"]++
				}
				add(operatortest.Watermark(w), said)
			case 4:
				sideW[k] += eventtime.Time(r.Int64N(40))
				twin.sides[k].w = sideW[k]
				said := twin.goOn()
				if len(said) > 0 {
					saw["let go by a watermark"]++
				}
				add(operatortest.SideWatermark(1+k, sideW[k]), said)
			}
		}
		twin.w = eventtime.Max
		add(operatortest.Watermark(eventtime.Max), twin.goOn())
		for k := range twin.sides {
			twin.sides[k].w = eventtime.Max
			add(operatortest.SideWatermark(1+k, eventtime.Max), twin.goOn())
		}
		if len(twin.waiting) > 0 {
			t.Fatal("something waits for ever")
		}
		for _, said := range want {
			for _, line := range said {
				if strings.HasPrefix(line, "port 1") {
					saw["late"]++
				}
			}
		}
		got, err := operatortest.Check(sidedCase(twin.lateness, inputs))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, seeds.Rerun(t, seed))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: -want +got, input by input:\n%s\n%s", seed, d, seeds.Rerun(t, seed))
		}
	}
	for _, what := range []string{"waits", "holds", "pane in parts", "second pane", "let go by a watermark", "late"} {
		if runs > 20 && saw[what] == 0 {
			t.Errorf("never seen: %s (%v)", what, saw)
		}
	}
}

// TestSidedStepFiresTimersWithItsViews: a keyed step behind side inputs goes on with its firing after a restore, and its timers
// read the view of the window that ends.
func TestSidedStepFiresTimersWithItsViews(t *testing.T) {
	type kv = coder.KV[int64, string]
	pairs, err := coder.Of[kv]()
	if err != nil {
		t.Fatal(err)
	}
	lists, err := coder.Of[[]string]()
	if err != nil {
		t.Fatal(err)
	}
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	def := &kernel.ViewDef{Name: "v"}
	spec := kernel.SidedSpec[kv]{
		Codec: kernel.NewCodec(pairs),
		Views: func() []kernel.SideView {
			return []kernel.SideView{kernel.NewView(kernel.ViewSpec[string, string]{
				Def: def, Items: lists, Window: sideOf, MaxBytes: 1 << 20,
				Make: func(items []string, _ window.Window) (string, error) { return strings.Join(items, "+"), nil },
			})}
		},
		Inner: func() kernel.Operator {
			var end kernel.Timer
			return kernel.NewKeyedParDo(kernel.KeyedSpec[int64, string, string]{Key: key, Fns: kernel.KeyedFns[int64, string, string]{
				Declare: func(d *kernel.KeyedDecl) {
					end = kernel.EventTimer(d, "end", func(c *kernel.ProcessContext, k int64, out *kernel.Emitter[string]) error {
						out.Emit(fmt.Sprint("end of ", k, " ", kernel.ReadView[string](c, def)))
						return nil
					})
				},
				Process: func(c *kernel.ProcessContext, k int64, v string, out *kernel.Emitter[string]) error {
					end.Set(c.Window().End())
					return nil
				},
			}})
		},
	}
	element := func(k int64, at eventtime.Time) kernel.Element[kv] {
		return kernel.Element[kv]{Value: kv{Key: k}, Time: at, Window: mainOf(at)}
	}
	part := func(at eventtime.Time, item string) operatortest.Input {
		win := sideOf(mainOf(at))
		return operatortest.Batch(1, kernel.Element[kernel.ViewPart[string]]{Value: kernel.ViewPart[string]{Items: []string{item}, Last: true}, Window: win})
	}
	got := operatortest.Run(t, operatortest.Case{
		New: func() kernel.Operator { return kernel.NewSided(spec) }, Keyed: true,
		Ports: []operatortest.Print{operatortest.Lines(func(e kernel.Element[string]) string { return e.Value })},
		Inputs: []operatortest.Input{
			operatortest.Batch(0, element(1, 5), element(2, 6), element(3, 25), element(4, 35)),
			operatortest.Watermark(20),
			part(5, "a"), // keys 1 to 3 go on, and the watermark to 20
			part(5, "b"),
			operatortest.Watermark(30),
			operatortest.SideWatermark(1, 60), // key 4 goes on without a view
			operatortest.Watermark(40),
		},
	})
	want := [][]string{nil, nil, {"end of 1 a", "end of 2 a"}, nil, {"end of 3 a+b"}, nil, {"end of 4 "}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got, input by input:\n%s", d)
	}
}
