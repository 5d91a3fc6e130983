package sdk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// View is a collection that is wholly visible to other steps: AsSingleton, AsSlice, AsMap and AsMultimap make it,
// With gives it to a step, whose code reads it by Get.
//
//	rates := sdk.AsMap("rates", rateTable)
//	euros := sdk.ParDoFunc("to euros", sales, func(c *sdk.ProcessContext, s Sale, emit *sdk.Emitter[Sale]) error {
//		s.Amount *= rates.Get(c)[s.Currency]
//		emit.Emit(s)
//		return nil
//	}, sdk.With(rates))
//
// A view has a content for each window of its collection. An element sees that of the window that holds the last
// millisecond of its own window. It waits until that window has had its first pane or, if there is none, has ended.
// Where the collection's trigger fires again, elements that come later see the newer content; elements that went on
// are not processed again.
//
// Every subtask of the step keeps the whole view in its state: it is for what is small beside the main input.
type View[T any] struct {
	def *kernel.ViewDef
	use *viewUse // nil after an error in the step that should have made it
	p   *Pipeline
}

// viewUse is a view, its type erased.
type viewUse struct {
	p     *Pipeline
	name  string
	kind  string
	fn    window.Fn
	edge  kernel.Edge
	state kernel.StatePart
	side  func(fn func(window.Window) window.Window, lateness int64) kernel.SideView
}

var zeroView = &kernel.ViewDef{Name: "that is the zero View"}

// Get is the content of the view for the element that c is about. It is called during a call of a step's code, for an
// element or timer. What it returns is shared: it must not be changed. A singleton without an element and without a default
// fails the job.
func (v View[T]) Get(c *ProcessContext) T {
	if v.def == nil {
		return kernel.ReadView[T](c, zeroView)
	}
	return kernel.ReadView[T](c, v.def)
}

// With lets the code of a step read a view.
func With[T any](v View[T]) StepOption {
	return stepOption(func(c *stepConfig) {
		if v.p == nil {
			c.views = append(c.views, nil)
			return
		}
		u := v.use
		if u == nil {
			u = &viewUse{p: v.p} // its mistake is reported
		}
		c.views = append(c.views, u)
	})
}

// ViewOption refines a view.
type ViewOption interface{ applyView(*viewConfig) }

type viewConfig struct{ maxBytes int64 }

type viewOption func(*viewConfig)

func (f viewOption) applyView(c *viewConfig) { f(c) }

// DefaultMaxViewBytes is what the elements of one window of a view may take unless MaxViewBytes says else.
const DefaultMaxViewBytes = 128 << 20

// MaxViewBytes sets how much memory the elements of one window of a view may take, about. More fails the job: every
// subtask that reads the view keeps it. Default DefaultMaxViewBytes.
func MaxViewBytes(n int64) ViewOption { return viewOption(func(c *viewConfig) { c.maxBytes = n }) }

// AsSingleton makes a view of a collection with one element a window, such as the result of CombineGlobally. A later
// element takes the place of the one before: of those that come at once, that of the later pane. Two at once that are not panes of
// one key and window fail the job.
func AsSingleton[T any](name string, in PCollection[T], opts ...ViewOption) View[T] {
	return asView(name, "singleton", in, paneOf[T], oneKey[T], func(vs []paned[T], _ window.Window) (v T, err error) {
		if len(vs) == 0 {
			return v, fmt.Errorf("it has no element there: use AsSingletonOr with a value for such windows")
		}
		return vs[len(vs)-1].Value, nil
	}, opts)
}

// AsSingletonOr is AsSingleton with a value for windows without an element.
func AsSingletonOr[T any](name string, in PCollection[T], none T, opts ...ViewOption) View[T] {
	return asView(name, "singleton", in, paneOf[T], oneKey[T], func(vs []paned[T], _ window.Window) (T, error) {
		if len(vs) == 0 {
			return none, nil
		}
		return vs[len(vs)-1].Value, nil
	}, opts)
}

// paned is an element of a singleton view with its pane.
type paned[T any] struct {
	Value T
	Pane  int64 // index; -1: no aggregation has made it
}

func paneOf[T any](v T, p kernel.Pane) paned[T] {
	if p == kernel.NoPane {
		return paned[T]{v, -1}
	}
	return paned[T]{v, p.Info().Index}
}

// oneKey refuses elements that come at once and are not the panes of one key, each with a number of its own: whether panes come
// one by one is a matter of time.
func oneKey[T any](vs []paned[T]) error {
	seen := map[int64]bool{}
	for _, v := range vs {
		if len(vs) > 1 && (v.Pane < 0 || seen[v.Pane]) {
			return fmt.Errorf("a pane of a singleton view has %d elements, %v and %v among them: combine them first, or window them "+
				"Discarding with a trigger after every element so that the newest counts", len(vs), kernel.Brief(vs[0].Value), kernel.Brief(vs[1].Value))
		}
		seen[v.Pane] = true
	}
	return nil
}

// anyPane is for views to which all elements are the same.
func anyPane[T any](v T, _ kernel.Pane) T { return v }

// AsSlice makes a view of all elements of a window, in no particular order. A later pane takes the place of what is
// there if the collection is windowed Accumulating, and is appended to it if Discarding.
func AsSlice[T any](name string, in PCollection[T], opts ...ViewOption) View[[]T] {
	return asView(name, "slice", in, anyPane[T], func([]T) error { return nil }, func(vs []T, _ window.Window) ([]T, error) { return vs, nil }, opts)
}

// AsMap makes a view of the pairs of a window as a map. A later pane takes the place of what is there if the collection
// is windowed Accumulating. If Discarding, its pairs are added, and a key that is there takes the new value: a table that
// changes slowly. A key that comes twice in one pane fails the job: see AsMultimap.
func AsMap[K comparable, V any](name string, in PCollection[KV[K, V]], opts ...ViewOption) View[map[K]V] {
	return asView(name, "map", in, anyPane[KV[K, V]], func(kvs []KV[K, V]) error {
		seen := make(map[K]struct{}, len(kvs))
		for _, kv := range kvs {
			if _, ok := seen[kv.Key]; ok {
				return fmt.Errorf("key %s comes twice in a pane of a map view: use AsMultimap, or combine the values of each key first, with AccumulatingAndRetracting if each has several panes", kernel.Brief(kv.Key))
			}
			seen[kv.Key] = struct{}{}
		}
		return nil
	}, func(kvs []KV[K, V], _ window.Window) (map[K]V, error) {
		m := make(map[K]V, len(kvs))
		for _, kv := range kvs {
			m[kv.Key] = kv.Value
		}
		return m, nil
	}, opts)
}

// AsMultimap makes a view of the pairs of a window as a map of all values of each key. Later panes are as for AsSlice.
func AsMultimap[K comparable, V any](name string, in PCollection[KV[K, V]], opts ...ViewOption) View[map[K][]V] {
	return asView(name, "multimap", in, anyPane[KV[K, V]], func([]KV[K, V]) error { return nil }, func(kvs []KV[K, V], _ window.Window) (map[K][]V, error) {
		m := map[K][]V{}
		for _, kv := range kvs {
			m[kv.Key] = append(m[kv.Key], kv.Value)
		}
		return m, nil
	}, opts)
}

// asView adds the steps that bring the panes of in together and cut them into parts, which travel to every subtask.
// item is what an element is in them.
func asView[E, I, T any](name, kind string, in PCollection[E], item func(E, kernel.Pane) I, check func([]I) error, build func([]I, window.Window) (T, error), opts []ViewOption) View[T] {
	v := View[T]{p: in.p, def: &kernel.ViewDef{}}
	config := viewConfig{maxBytes: DefaultMaxViewBytes}
	for _, o := range opts {
		o.applyView(&config)
	}
	if !in.usable(name) {
		return v
	}
	p, w := in.p, in.info().windowing
	v.def.Name = p.fullName(name)
	if config.maxBytes <= 0 {
		p.errorf(name, "MaxViewBytes(%d): must be positive", config.maxBytes)
		return v
	}
	if !sideWindowing(p, name, "a side view", w) {
		return v
	}
	items, ok := coderFor[[]I](p, name, "its elements are kept in checkpoints")
	if !ok {
		return v
	}
	var parts PCollection[kernel.ViewPart[I]]
	p.Scope(name, func() {
		one := step[E, KV[bool, I]]("key", "key by", in, func() kernel.Operator {
			return kernel.NewMapPane(func(e E, p kernel.Pane) KV[bool, I] { return KV[bool, I]{Value: item(e, p)} })
		})
		one.setWindowing(gathered(w, kind == "singleton" && !in.info().retracts))
		parts = step[KV[bool, Iterable[I]], kernel.ViewPart[I]]("parts", "view", GroupByKey("group", one), func() kernel.Operator {
			return kernel.NewViewParts(func(kv KV[bool, Iterable[I]]) []I { return kv.Value.vs }, check)
		})
	})
	if parts.node == nil {
		return v
	}
	v.use = &viewUse{
		p: p, name: v.def.Name, kind: kind, fn: w.Fn, edge: broadcast(parts, v.def.Name, kind),
		state: kernel.StatePart{Kind: "view", Name: v.def.Name, Type: fmt.Sprintf("%+v", w.Fn), Coder: specPointer(coder.SpecOf(items))},
		side: func(fn func(window.Window) window.Window, lateness int64) kernel.SideView {
			return kernel.NewView(kernel.ViewSpec[I, T]{
				Def: v.def, Items: items, Window: fn, Lateness: lateness, Make: build, MaxBytes: config.maxBytes,
				Replace: w.Accumulation != kernel.Discarding || kind == "singleton",
			})
		},
	}
	return v
}

// gathered is the windowing in which a view's elements are brought together: that of the elements, without panes that have none. Of
// a singleton it is the newest element that counts, and not those of earlier panes: these are left out, unless they must be
// there to be taken back.
func gathered(w kernel.Strategy, newest bool) kernel.Strategy {
	w.EmptyOnTime, w.EmptyLast = false, false
	if newest {
		w.Accumulation = kernel.Discarding
	}
	return w
}

func specPointer(s coder.Spec) *coder.Spec { return &s }

// sideWindowing refuses windows that no window of a main input can be mapped to.
func sideWindowing(p *Pipeline, name, what string, w kernel.Strategy) bool {
	if err := window.CheckSide(w.Fn, window.Fixed(time.Hour)); err != nil {
		p.errorf(name, "%s of %w", what, err)
		return false
	}
	return true
}

// sideWindow returns the function that maps windows of a main input to those of a view.
func sideWindow(name string, fn window.Fn) func(main window.Window) window.Window {
	return func(main window.Window) window.Window {
		w, err := window.MapSide(fn, main)
		if err == nil && w.EndTime() <= main.MaxTimestamp() {
			err = fmt.Errorf("%v, the window of %+v, ends before %v does, whose elements would see it", w, fn, main)
		}
		if err != nil {
			panic(kernel.Unwound{Err: fmt.Errorf("view %q: %w", name, err)})
		}
		return w
	}
}

// broadcast is a side input: all of it goes to every subtask.
func broadcast[T any](in PCollection[T], name, kind string) kernel.Edge {
	e := forward(in)
	e.Exchange, e.Side = kernel.Broadcast, &kernel.Side{View: name, Kind: kind}
	return e
}

// addViews makes a step read the views that it was given. outputs is the number of extra outputs that its code declares.
func addViews[In any](name string, n *kernel.Node, in PCollection[In], config stepConfig, outputs int) bool {
	if len(config.views) == 0 {
		return true
	}
	p, w := in.p, in.info().windowing
	if in.node == nil {
		return false
	}
	views := slices.Clone(config.views)
	for _, v := range views {
		switch {
		case v == nil:
			p.errorf(name, "With(the zero View): pass what AsSingleton, AsSlice, AsMap or AsMultimap returned")
			return false
		case v.p != p:
			p.errorf(name, "the view %q belongs to another pipeline", v.name)
			return false
		case v.side == nil:
			return false
		}
		if err := window.CheckSide(v.fn, w.Fn); err != nil {
			p.errorf(name, "the view %q: %w", v.name, err)
			return false
		}
	}
	if in.info().retracts && n.Kind != "wait" {
		p.errorf(name, "its input may have retractions, and it could make another thing of them than of what they take back, for a view changes: window what is before it Accumulating, not AccumulatingAndRetracting")
		return false
	}
	if len(views) > kernel.MaxViews {
		p.errorf(name, "it reads %d views, more than %d: put some together", len(views), kernel.MaxViews)
		return false
	}
	// Their order is part of what a checkpoint holds.
	slices.SortFunc(views, func(a, b *viewUse) int { return strings.Compare(a.name, b.name) })
	for i, v := range views[1:] {
		if views[i].name == v.name {
			p.errorf(name, "it is given the view %q twice: leave one out", v.name)
			return false
		}
	}
	elem, ok := coderFor[In](p, name, "elements that wait for a view are kept in checkpoints")
	if !ok {
		return false
	}
	for _, v := range views {
		n.Inputs = append(n.Inputs, v.edge)
		n.Spec = append(n.Spec, fmt.Sprintf("view %q %s", v.name, v.kind))
		n.State = append(n.State, v.state)
	}
	n.Keyed, n.LateTo = true, n.LateTo || config.lateTo != nil
	n.State = append(n.State, encodedBy("waiting", coder.SpecOf(elem)))
	spec := kernel.SidedSpec[In]{
		Inner: n.New, Codec: in.node.Ports[in.port].Codec.(*kernel.Codec[In]),
		Views: func() (all []kernel.SideView) {
			for _, v := range views {
				all = append(all, v.side(sideWindow(v.name, v.fn), w.AllowedLateness))
			}
			return all
		},
	}
	if config.lateTo != nil {
		spec.LatePort = 1 + outputs
	}
	n.New = func() kernel.Operator { return kernel.NewSided(spec) }
	return true
}

// MapWith is MapErr with a function that is given the content of a view.
func MapWith[In, T, Out any](name string, in PCollection[In], view View[T], f func(In, T) (Out, error), opts ...StepOption) PCollection[Out] {
	return ParDoFunc(name, in, func(c *ProcessContext, v In, emit *Emitter[Out]) error {
		out, err := f(v, view.Get(c))
		if err == nil {
			emit.Emit(out)
		}
		return err
	}, append(slices.Clip(opts), With(view))...)
}

// Signal is a PCollection of any type, as WaitOn takes it.
type Signal interface {
	signal(p *Pipeline, step string, number int) *viewUse
}

// signal makes a side input of the collection. Only its watermark matters: no element travels.
func (c PCollection[T]) signal(p *Pipeline, step string, number int) *viewUse {
	if !c.usable(step) || c.p != p {
		return &viewUse{p: c.p, name: "a signal"}
	}
	w := c.info().windowing
	if !sideWindowing(p, step, "a signal", w) {
		return &viewUse{p: p}
	}
	def := &kernel.ViewDef{Name: p.fullName(fmt.Sprintf("%s/signal %d", step, number))}
	var none PCollection[T]
	p.Scope(step, func() { none = Filter(fmt.Sprintf("signal %d", number), c, func(T) bool { return false }) })
	if none.node == nil {
		return &viewUse{p: p}
	}
	return &viewUse{
		p: p, name: def.Name, kind: "signal", fn: w.Fn, edge: broadcast(none, def.Name, "signal"),
		state: kernel.StatePart{Kind: "view", Name: def.Name, Type: fmt.Sprintf("signal in %+v", w.Fn)},
		side: func(fn func(window.Window) window.Window, _ int64) kernel.SideView {
			return kernel.NewSignal(def, fn, w.AllowedLateness)
		},
	}
}

// WaitOn passes in on, each element once the windows of the signals that it would see as a View are done: ended, and
// their allowed lateness over. What the elements of the signals say does not matter. It is for steps whose effects must
// come one after the other: write, then, when all of a window has been written, tell.
func WaitOn[T any](name string, in PCollection[T], signals ...Signal) PCollection[T] {
	if !in.usable(name) {
		return in
	}
	in = whole(name, 0, in)
	var config stepConfig
	if len(signals) == 0 {
		in.p.errorf(name, "it has no signal to wait for: give it one, or leave it out")
		return PCollection[T]{p: in.p}
	}
	for i, s := range signals {
		config.views = append(config.views, s.signal(in.p, name, i+1))
	}
	if in.node == nil {
		return in
	}
	n := &kernel.Node{
		Kind: "wait", Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[T](in.p, "out")}, New: kernel.NewPass,
	}
	if !addViews(name, n, in, config, 0) || !in.p.add(name, n, in.info()) {
		return PCollection[T]{p: in.p}
	}
	return PCollection[T]{p: in.p, node: n}
}
