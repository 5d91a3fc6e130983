package sdk

import (
	"slices"

	"github.com/millstream/millstream/internal/kernel"
)

// Map replaces each element by f of it. f is called by all subtasks at once.
func Map[In, Out any](name string, in PCollection[In], f func(In) Out) PCollection[Out] {
	if f == nil {
		return missing[In, Out](name, in)
	}
	return step[In, Out](name, "map", in, func() kernel.Operator { return kernel.NewMap(f) })
}

// MapErr is Map with a function that can fail: an error fails the job, or goes to ErrorsTo.
func MapErr[In, Out any](name string, in PCollection[In], f func(In) (Out, error), opts ...StepOption) PCollection[Out] {
	config := configOf(in.p, opts)
	if f == nil {
		return missing[In, Out](name, in)
	}
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	if len(config.views) > 0 {
		in = whole(name, 0, in)
	}
	process := func(_ *ProcessContext, v In, emit *Emitter[Out]) error {
		out, err := f(v)
		if err == nil {
			emit.Emit(out)
		}
		return err
	}
	return parDo(name, in, "", func() kernel.ParDoFns[In, Out] { return kernel.ParDoFns[In, Out]{Process: process} }, config)
}

// FlatMap calls f for each element; f emits any number of outputs.
func FlatMap[In, Out any](name string, in PCollection[In], f func(In, *Emitter[Out]) error, opts ...StepOption) PCollection[Out] {
	if f == nil {
		return ParDoFunc[In, Out](name, in, nil, opts...)
	}
	return ParDoFunc(name, in, func(_ *ProcessContext, v In, emit *Emitter[Out]) error { return f(v, emit) }, opts...)
}

// Filter keeps the elements for which keep is true.
func Filter[T any](name string, in PCollection[T], keep func(T) bool) PCollection[T] {
	if keep == nil {
		return missing[T, T](name, in)
	}
	return step[T, T](name, "filter", in, func() kernel.Operator { return kernel.NewFilter(keep) })
}

// KeyBy makes pairs of f of the element, as the key, and the element.
func KeyBy[T any, K comparable](name string, in PCollection[T], f func(T) K) PCollection[KV[K, T]] {
	if f == nil {
		return missing[T, KV[K, T]](name, in)
	}
	return step[T, KV[K, T]](name, "key by", in, func() kernel.Operator {
		return kernel.NewMap(func(v T) KV[K, T] { return KV[K, T]{Key: f(v), Value: v} })
	})
}

// MapValues replaces the value of each pair by f of it.
func MapValues[K, V, W any](name string, in PCollection[KV[K, V]], f func(V) W) PCollection[KV[K, W]] {
	if f == nil {
		return missing[KV[K, V], KV[K, W]](name, in)
	}
	return step[KV[K, V], KV[K, W]](name, "map values", in, func() kernel.Operator {
		return kernel.NewMap(func(kv KV[K, V]) KV[K, W] { return KV[K, W]{Key: kv.Key, Value: f(kv.Value)} })
	})
}

// Flatten puts collections of one type together. They must be windowed alike.
func Flatten[T any](name string, first PCollection[T], rest ...PCollection[T]) PCollection[T] {
	p := first.p
	n := &kernel.Node{Kind: "flatten", New: kernel.NewPass}
	var c collection
	all := append([]PCollection[T]{first}, rest...)
	sliced := !slices.ContainsFunc(all, func(in PCollection[T]) bool { return in.node == nil || !in.info().sliced })
	inputs := make([]anyCollection, len(all))
	for i, in := range all {
		inputs[i] = in
	}
	if !alike(name, inputs...) {
		return PCollection[T]{p: p}
	}
	for i, in := range all {
		if !sliced {
			in = whole(name, i, in)
		}
		if !in.usable(name) {
			return PCollection[T]{p: p}
		}
		info := in.info()
		if i == 0 {
			c = info
		}
		c.bounded, c.timed, c.retracts = c.bounded && info.bounded, c.timed && info.timed, c.retracts || info.retracts
		n.Inputs = append(n.Inputs, forward(in))
	}
	n.Ports = []kernel.Port{port[T](p, "out")}
	if !p.add(name, n, c) {
		return PCollection[T]{p: p}
	}
	return PCollection[T]{p: p, node: n}
}

// Reshuffle spreads the elements evenly over the subtasks of what follows: after a step that makes much of
// little, or before a costly one. Timestamps, windows and late elements pass unchanged; their order does not, so that
// elements that may be retracted cannot pass.
func Reshuffle[T any](name string, in PCollection[T]) PCollection[T] {
	if !in.usable(name) {
		return in
	}
	if in.info().retracts {
		in.p.errorf(name, "its input may have retractions, which would overtake what they take back: put it before the aggregation, or take its input from Changes")
		return PCollection[T]{p: in.p}
	}
	e := forward(in)
	e.Exchange = kernel.RoundRobin
	n := &kernel.Node{Kind: "reshuffle", Inputs: []kernel.Edge{e}, Ports: []kernel.Port{port[T](in.p, "out")}, New: kernel.NewPass}
	if _, ok := coderFor[T](in.p, name, "its elements move to other subtasks"); !ok || !in.p.add(name, n, in.info()) {
		return PCollection[T]{p: in.p}
	}
	return PCollection[T]{p: in.p, node: n}
}

// missing reports that a step has no function.
func missing[In, Out any](name string, in PCollection[In]) PCollection[Out] {
	if in.usable(name) {
		in.p.errorf(name, "its function is nil: pass one")
	}
	return PCollection[Out]{p: in.p}
}
