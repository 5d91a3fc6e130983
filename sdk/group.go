package sdk

import (
	"bytes"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// CombineFn aggregates values of one key and window. One value serves all subtasks at once, so its methods
// must not change it. AddInput and MergeAccumulators may change and return the accumulator that they are
// given; ExtractOutput returns nothing that the accumulator keeps.
//
// MergeAccumulators(CreateAccumulator(), a) is a, and adding to one accumulator or to several that are
// merged comes to the same.
type CombineFn[In, Acc, Out any] interface {
	CreateAccumulator() Acc
	AddInput(Acc, In) Acc
	MergeAccumulators(a, b Acc) Acc
	ExtractOutput(Acc) Out
}

// Remover is an optional part of a CombineFn. RemoveInput undoes AddInput of an equal value; it may change and return the accumulator.
// A CombineFn needs it if its input may have retractions. One of another package is given it by embedding:
//
//	type total struct{ other.Sum }
//
//	func (total) RemoveInput(sum, v int64) int64 { return sum - v }
type Remover[In, Acc any] interface{ RemoveInput(Acc, In) Acc }

// withoutRetractions is an optional part of a CombineFn or sink inside a transform or test kit, whose user knows neither: it says what
// takes no retractions, and what to do.
type withoutRetractions interface{ WithoutRetractions() string }

// refused says why fn, a CombineFn, takes no retractions.
func refused(fn any) string {
	if w, ok := fn.(withoutRetractions); ok {
		return w.WithoutRetractions()
	}
	typ := fmt.Sprintf("%T", fn)
	return fmt.Sprintf("%s cannot remove an element: give it a method RemoveInput(Acc, In) Acc (see sdk.Remover), if it is of another package by embedding it: type remover struct{ %s }", typ, strings.TrimPrefix(typ, "*"))
}

// GroupOption refines an aggregation.
type GroupOption interface{ applyGroup(*groupConfig) }

type groupConfig struct{ late []lateTo }

// groupConfigOf applies options. What they point to belongs to p from now on; see configOf.
func groupConfigOf(p *Pipeline, opts []GroupOption) (c groupConfig) {
	for _, o := range opts {
		o.applyGroup(&c)
	}
	for _, l := range c.late {
		l.set(p, nil, 0)
	}
	return c
}

// connect calls set with each LateTo and the first input of its type that has none yet.
func (c groupConfig) connect(p *Pipeline, step string, types []reflect.Type, set func(l lateTo, input int)) {
	free := slices.Clone(types)
	for _, l := range c.late {
		switch i := slices.Index(free, l.typ); {
		case l.null:
			p.errorf(step, "LateTo%s", nowhere)
		case i >= 0:
			free[i] = nil
			set(l, i)
		case slices.Contains(types, l.typ):
			p.errorf(step, "it has more LateTo of *PCollection[%v] than inputs of that type: leave one out", l.typ)
		default:
			p.errorf(step, "LateTo wants a PCollection of the elements of its input, *PCollection[%v], not [%v]", types[0], l.typ)
		}
	}
}

// lateTo is a LateTo option, its type erased.
type lateTo struct{ outputTo }

func (l lateTo) applyGroup(c *groupConfig) { c.late = append(c.late, l) }
func (l lateTo) applyStep(c *stepConfig)   { c.once(&c.lateTo, l.outputTo, "LateTo") }

// GroupOrStepOption is an option of aggregations and of keyed steps.
type GroupOrStepOption interface {
	GroupOption
	StepOption
}

// LateTo sets dst to the elements that an aggregation, or ParDoPerKey, drops because their window has
// expired, each with that window in its context. For CoGroupByKey it may be given for any of the inputs; of inputs that
// have one type, the first LateTo is that of the first.
func LateTo[T any](dst *PCollection[T]) GroupOrStepOption { return lateTo{newOutputTo("late", dst)} }

// GroupByKey gives, for each key and window, all values, in no particular order.
func GroupByKey[K comparable, V any](name string, in PCollection[KV[K, V]], opts ...GroupOption) PCollection[KV[K, Iterable[V]]] {
	useIterable[V](in.p)
	a := aggregation[K, []V, Iterable[V]]{
		name: name, kind: "group by key",
		create:  func() []V { return nil },
		extract: given[V],
		merge:   func(a, b []V) []V { return append(a, b...) },
		clone:   func(vs []V) ([]V, error) { return slices.Clip(vs), nil }, // merging into it moves the values
		size:    func(vs *[]V) int { return memory(*vs) },
	}
	return aggregate(a, groupConfigOf(in.p, opts), inputOf(&a, in, func(vs []V, v V) []V { return append(vs, v) }, removeValue[V](in.p)))
}

// removeValue returns a function that removes one value equal to v, as encoded, from a copy of vs.
func removeValue[V any](p *Pipeline) func(vs []V, v V) []V {
	if p == nil {
		return nil // reported by usable
	}
	c, err := CoderOf[V](p)
	if err != nil {
		return nil // the accumulator has no coder, which is reported
	}
	return func(vs []V, v V) []V {
		want, err := c.Append(nil, v)
		if err != nil {
			panic(fmt.Errorf("a retraction cannot be encoded: %w", err))
		}
		var buf []byte
		for i := range vs {
			if buf, err = c.Append(buf[:0], vs[i]); err == nil && bytes.Equal(buf, want) {
				return slices.Concat(vs[:i], vs[i+1:])
			}
		}
		panic(fmt.Errorf("a retraction of %v takes back what never came: what is taken back must be equal, byte for byte, to what was emitted", kernel.Brief(v)))
	}
}

// CombinePerKey aggregates, for each key and window, the values by fn.
func CombinePerKey[K comparable, V, A, Out any, F CombineFn[V, A, Out]](name string, in PCollection[KV[K, V]], fn F, opts ...GroupOption) PCollection[KV[K, Out]] {
	a := aggregation[K, A, Out]{
		name: name, kind: "combine", create: fn.CreateAccumulator, extract: fn.ExtractOutput, merge: fn.MergeAccumulators, combine: true, size: kernel.Footprint[A](),
		fn: fmt.Sprintf("%T", fn), refuses: refused(fn), spec: []string{fmt.Sprintf("fn=%T", fn)},
	}
	return aggregate(a, groupConfigOf(in.p, opts), inputOf(&a, in, fn.AddInput, remover[V, A](fn)))
}

// remover is the RemoveInput of a CombineFn, or nil.
func remover[V, A any](fn any) func(A, V) A {
	if r, ok := fn.(Remover[V, A]); ok {
		return r.RemoveInput
	}
	return nil
}

// CombineGlobally aggregates all elements of each window by fn, in one subtask. In the global window the
// result of nothing is fn's identity; other windows without elements give nothing.
func CombineGlobally[V, A, Out any, F CombineFn[V, A, Out]](name string, in PCollection[V], fn F, opts ...GroupOption) (out PCollection[Out]) {
	config := groupConfigOf(in.p, opts)
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	in.p.Scope(name, func() {
		one := step[V, KV[bool, V]]("key", "key by", in, func() kernel.Operator {
			return kernel.NewMap(func(v V) KV[bool, V] { return KV[bool, V]{Value: v} })
		})
		a := aggregation[bool, A, Out]{
			name: "combine", kind: "combine", create: fn.CreateAccumulator, extract: fn.ExtractOutput, merge: fn.MergeAccumulators, combine: true, size: kernel.Footprint[A](),
			fn: fmt.Sprintf("%T", fn), refuses: refused(fn), spec: []string{fmt.Sprintf("fn=%T", fn)}, global: true,
		}
		var late PCollection[KV[bool, V]]
		var opts []GroupOption
		if len(config.late) > 0 {
			opts = []GroupOption{LateTo(&late)}
		}
		all := aggregate(a, groupConfigOf(in.p, opts), inputOf(&a, one, fn.AddInput, remover[V, A](fn)))
		value := func(kv KV[bool, V]) V { return kv.Value }
		config.connect(in.p, "combine", []reflect.Type{reflect.TypeFor[V]()}, func(l lateTo, _ int) {
			v := Map("late", late, value)
			l.set(in.p, v.node, v.port)
		})
		out = Map("value", all, func(kv KV[bool, Out]) Out { return kv.Value })
	})
	return out
}

// aggregation is what the aggregating steps have in common.
type aggregation[K comparable, A, Out any] struct {
	name, kind string
	create     func() A
	extract    func(A) Out
	merge      func(a, b A) A
	clone      func(A) (A, error) // see kernel.Aggregation; nil: by the coder, if it is needed
	size       func(*A) int
	fn         string
	refuses    string // why fn takes no retractions, if it does not
	spec       []string
	global     bool
	combine    bool // by a CombineFn: it may be lifted
	inputs     int
}

// aggregateInput is one input of an aggregation, with the type of its values erased.
type aggregateInput[K comparable, A, Out any] struct {
	p      *Pipeline
	ok     bool
	info   collection
	typ    reflect.Type                                                // of the elements
	whole  func() aggregateInput[K, A, Out]                            // the same input, but in whole windows
	edge   func(a kernel.Aggregation[K, A, Out], lift int) kernel.Edge // lift: kernel.Lifting.Max
	late   func(p *Pipeline) kernel.Port
	kernel func() kernel.AggregateInput[K, A, Out]
	takes  bool // retractions
}

// inputOf is an input of an aggregation. remove undoes add, or is nil.
func inputOf[K comparable, V, A, Out any](a *aggregation[K, A, Out], in PCollection[KV[K, V]], add, remove func(A, V) A) aggregateInput[K, A, Out] {
	i := a.inputs
	a.inputs++
	return inputAt[K, V, A, Out](a.name, i, in, add, remove)
}

func inputAt[K comparable, V, A, Out any](name string, i int, in PCollection[KV[K, V]], add, remove func(A, V) A) aggregateInput[K, A, Out] {
	if !in.usable(name) {
		return aggregateInput[K, A, Out]{p: in.p}
	}
	return aggregateInput[K, A, Out]{
		p: in.p, ok: true, info: in.info(), typ: reflect.TypeFor[KV[K, V]](),
		whole: func() aggregateInput[K, A, Out] {
			return inputAt[K, V, A, Out](name, i, whole(name, i, in), add, remove)
		},
		edge: func(a kernel.Aggregation[K, A, Out], lift int) kernel.Edge {
			e := forward(in)
			return kernel.Lifting[K, V, A]{
				Key: a.Key, Acc: a.Acc, Create: a.Create, Add: add, Max: lift, Codec: e.Codec.(*kernel.Codec[KV[K, V]]),
			}.Edge(e)
		},
		late: func(p *Pipeline) kernel.Port { return port[KV[K, V]](p, "late") },
		kernel: func() kernel.AggregateInput[K, A, Out] {
			if in.info().retracts {
				return kernel.RetractedInputOf[K, V, A, Out](i, add, remove)
			}
			return kernel.InputOf[K, V, A, Out](i, add)
		},
		takes: remove != nil,
	}
}

// inputText names input i of n.
func inputText(i, n int) string {
	if n == 1 {
		return "its input"
	}
	return fmt.Sprintf("its input %d", i+1)
}

func aggregate[K comparable, A, Out any](a aggregation[K, A, Out], config groupConfig, inputs ...aggregateInput[K, A, Out]) PCollection[KV[K, Out]] {
	p := inputs[0].p
	out := PCollection[KV[K, Out]]{p: p}
	var types []reflect.Type
	bounded := true // all inputs
	for i, in := range inputs {
		if !in.ok {
			return out
		}
		if in.p != p {
			p.errorf(a.name, "input %d belongs to another pipeline", i+1)
			return out
		}
		types = append(types, in.typ)
		bounded = bounded && in.info.bounded
	}
	key, err := coder.KeyOf[K](p.coders...)
	if err != nil {
		p.errorf(a.name, "its key: %w", err)
		return out
	}
	acc, ok := coderFor[A](p, a.name, "its accumulator is kept in checkpoints")
	if !ok {
		return out
	}
	w := inputs[0].info.windowing
	early, late, counts := trigger.Counts(w.Trigger)
	if w.Fn == window.Fn(window.Global()) && !bounded && !trigger.FiresEarly(w.Trigger) {
		p.errorf(a.name, "its input is unbounded and in the global window, which never ends, so nothing would come out: use WindowInto, or a trigger that fires earlier, as trigger.AfterWatermark().Early(…) does")
		return out
	}
	retracted := false
	for i, in := range inputs {
		if !in.info.retracts {
			continue
		}
		retracted = true
		if !in.takes {
			p.errorf(a.name, "%s may have retractions, and %s", inputText(i, len(inputs)), a.refuses)
			return out
		}
		if w.Accumulation == kernel.Discarding {
			p.errorf(a.name, "%s may have retractions, of elements that a discarding pane has forgotten: window it with Accumulating or AccumulatingAndRetracting", inputText(i, len(inputs)))
			return out
		}
	}
	// What the operators that fire whole windows cannot do is for panes.
	general := !counts || retracted || w.Accumulation == kernel.Retracting || w.Timestamps != kernel.EndOfWindow || w.EmptyOnTime || w.EmptyLast
	// Slices serve windows that fire once, at their end; otherwise each element goes into each of its windows.
	sliced := !general && early == 0 && w.AllowedLateness == 0
	for _, in := range inputs {
		sliced = sliced && in.info.sliced
	}
	for i, in := range inputs {
		if in.info.sliced && !sliced {
			inputs[i] = in.whole()
		}
	}
	spec := kernel.Aggregation[K, A, Out]{
		Key: key, Acc: acc, Create: a.create, Extract: a.extract, Merge: a.merge, Clone: a.clone, Size: a.size, Identity: a.global && w.Fn == window.Fn(window.Global()),
		Windowing: kernel.Windowing{
			Lateness: w.AllowedLateness, EarlyCount: early, LateCount: late,
			Accumulating: w.Accumulation != kernel.Discarding, Retracting: w.Accumulation == kernel.Retracting,
			Timestamps: w.Timestamps, EmptyOnTime: w.EmptyOnTime, EmptyLast: w.EmptyLast,
		},
	}
	if !counts {
		spec.Trigger = triggering.Compile(w.Trigger)
	}
	if spec.Retracting {
		if spec.Out, ok = coderFor[Out](p, a.name, "its result is kept until it is taken back"); !ok {
			return out
		}
	}
	n := &kernel.Node{
		Kind: a.kind, Keyed: true, Single: a.global, LateTo: len(config.late) == len(inputs), Ports: []kernel.Port{port[KV[K, Out]](p, "out")},
		State: []kernel.StatePart{
			encodedBy("key", key.Spec()), encodedBy("accumulator", coder.SpecOf(acc)), {Kind: "windows", Type: fmt.Sprintf("%+v", w.Fn)},
		},
		Fn: a.fn, Spec: append(slices.Clone(a.spec), "windowing="+w.String()),
	}
	c := inputs[0].info
	c.bounded = bounded
	newInputs := func() (ks []kernel.AggregateInput[K, A, Out]) {
		for _, in := range inputs {
			ks = append(ks, in.kernel())
		}
		return ks
	}
	n.New = func() kernel.Operator { return kernel.NewAggregate(spec, newInputs) }
	switch fn := w.Fn.(type) {
	case window.SlidingFn:
		if !sliced {
			break
		}
		if spec.Clone == nil && hasPointers(reflect.TypeFor[A]()) {
			spec.Clone = func(a A) (A, error) { return copyOf(acc, a) }
		}
		n.State = append(n.State, kernel.StatePart{Kind: "slices", Type: "true"})
		n.New = func() kernel.Operator { return kernel.NewSliced(spec, fn, newInputs) }
	}
	if fn, merges := window.Merging(w.Fn); merges {
		spec.Merging = &kernel.Merging{}
		if _, sessions := fn.(window.SessionsFn); !sessions {
			spec.Merging.Fn = fn
		}
	}
	if general || spec.Merging != nil {
		n.New = func() kernel.Operator { return kernel.NewPanes(spec, newInputs) }
	}
	if general {
		n.State = append(n.State, kernel.StatePart{Kind: "panes", Type: fmt.Sprintf("%v, %v, timestamps %v, retracted %v", w.Trigger, w.Accumulation, w.Timestamps, retracted)})
	}
	lift := 0 // kernel.Lifting.Max
	if a.combine {
		why := notLifted(w, early, len(config.late) > 0, general)
		if why == "" {
			lift = liftMax(reflect.TypeFor[A]())
			n.Spec = append(n.Spec, "lifting=on")
		} else {
			n.Spec = append(n.Spec, "lifting=off: "+why)
		}
	}
	c.sliced = false
	c.windowing.Fn = window.Merged(c.windowing.Fn)
	c.retracts = spec.Retracting && (early > 0 || w.AllowedLateness > 0 || !counts || retracted)
	c.windowing.Trigger = trigger.Canonical(trigger.Continuation(c.windowing.Trigger))
	outs := []collection{c}
	for _, in := range inputs {
		n.Inputs = append(n.Inputs, in.edge(spec, lift))
		n.Ports = append(n.Ports, in.late(p))
		in.info.sliced = false // late elements are in the windows that they missed
		outs = append(outs, in.info)
	}
	if !p.add(a.name, n, outs...) {
		return out
	}
	config.connect(p, a.name, types, func(l lateTo, input int) { l.set(p, n, 1+input) })
	out.node = n
	return out
}

// notLifted says why a combine is not lifted: its panes depend on more than the watermark. It returns "" if it is.
func notLifted(w kernel.Strategy, early int64, late, general bool) string {
	_, merges := window.Merging(w.Fn)
	switch {
	case general:
		return "panes that depend on elements"
	case merges:
		return "windows that merge"
	case early > 0:
		return "early panes"
	case w.AllowedLateness > 0:
		return "allowed lateness"
	case late:
		return "LateTo"
	}
	return ""
}

// liftMax is kernel.Lifting.Max of a combine that is lifted.
func liftMax(acc reflect.Type) int {
	if hasPointers(acc) {
		return 256 // accumulators may be large
	}
	return 16 << 10
}

// Iterable is the values of one key and window.
type Iterable[V any] struct{ vs []V }

// IterableOf makes an Iterable of values, for tests.
func IterableOf[V any](vs ...V) Iterable[V] { return Iterable[V]{vs} }

// All iterates over the values. It may be called again.
func (it Iterable[V]) All() iter.Seq[V] { return slices.Values(it.vs) }

// Len is the number of values.
func (it Iterable[V]) Len() int { return len(it.vs) }

// useIterable makes p encode an Iterable[V] as it does a []V: with the coders of UseCoder, which an
// Iterable's own methods do not know, and without their allocations.
func useIterable[V any](p *Pipeline) {
	if p == nil {
		return // reported by usable
	}
	if c, err := CoderOf[[]V](p); err == nil { // else the accumulator has none, which is reported
		UseCoder(p, iterableCoder[V]{c})
	}
}

type iterableCoder[V any] struct{ slice coder.Coder[[]V] }

func (c iterableCoder[V]) Append(dst []byte, it Iterable[V]) ([]byte, error) {
	return c.slice.Append(dst, it.vs)
}

func (c iterableCoder[V]) Decode(src []byte) (it Iterable[V], rest []byte, err error) {
	it.vs, rest, err = c.slice.Decode(src)
	return it, rest, err
}

func (c iterableCoder[V]) Spec() coder.Spec { return coder.SpecOf(c.slice) }

// MarshalBinary encodes the values by the coder of their slice.
func (it Iterable[V]) MarshalBinary() ([]byte, error) {
	c, err := coder.Of[[]V]()
	if err != nil {
		return nil, err
	}
	return c.Append(nil, it.vs)
}

// UnmarshalBinary undoes MarshalBinary.
func (it *Iterable[V]) UnmarshalBinary(data []byte) error {
	c, err := coder.Of[[]V]()
	if err != nil {
		return err
	}
	vs, rest, err := c.Decode(data)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	it.vs = vs
	return err
}
