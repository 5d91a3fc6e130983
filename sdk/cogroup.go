package sdk

import (
	"slices"
	"unsafe"
)

// CoGroup has the values of one key and window from two collections.
type CoGroup[A, B any] struct {
	A Iterable[A]
	B Iterable[B]
}

// CoGroup3 has the values of one key and window from three collections.
type CoGroup3[A, B, C any] struct {
	A Iterable[A]
	B Iterable[B]
	C Iterable[C]
}

// coAcc and coAcc3 are what is kept of a key and window.
type (
	coAcc[A, B any] struct {
		A []A
		B []B
	}
	coAcc3[A, B, C any] struct {
		A []A
		B []B
		C []C
	}
)

// CoGroupByKey gives, for each key and window, all values of both inputs: empty for an input that has none there.
// The inputs must be windowed alike.
func CoGroupByKey[K comparable, A, B any](name string, left PCollection[KV[K, A]], right PCollection[KV[K, B]], opts ...GroupOption) PCollection[KV[K, CoGroup[A, B]]] {
	config := groupConfigOf(left.p, opts)
	if !alike(name, left, right) {
		return PCollection[KV[K, CoGroup[A, B]]]{p: left.p}
	}
	useIterable[A](left.p)
	useIterable[B](left.p)
	a := aggregation[K, coAcc[A, B], CoGroup[A, B]]{
		name: name, kind: "co-group by key",
		create:  func() coAcc[A, B] { return coAcc[A, B]{} },
		extract: func(c coAcc[A, B]) CoGroup[A, B] { return CoGroup[A, B]{given(c.A), given(c.B)} },
		merge: func(a, b coAcc[A, B]) coAcc[A, B] {
			return coAcc[A, B]{append(a.A, b.A...), append(a.B, b.B...)}
		},
		clone: func(c coAcc[A, B]) (coAcc[A, B], error) {
			return coAcc[A, B]{slices.Clip(c.A), slices.Clip(c.B)}, nil
		},
		size: func(c *coAcc[A, B]) int { return memory(c.A) + memory(c.B) },
	}
	return aggregate(a, config,
		inputOf(&a, left, func(c coAcc[A, B], v A) coAcc[A, B] { c.A = append(c.A, v); return c }, within(left.p, func(c *coAcc[A, B]) *[]A { return &c.A })),
		inputOf(&a, right, func(c coAcc[A, B], v B) coAcc[A, B] { c.B = append(c.B, v); return c }, within(right.p, func(c *coAcc[A, B]) *[]B { return &c.B })))
}

// CoGroupByKey3 is CoGroupByKey of three inputs.
func CoGroupByKey3[K comparable, A, B, C any](name string, first PCollection[KV[K, A]], second PCollection[KV[K, B]], third PCollection[KV[K, C]], opts ...GroupOption) PCollection[KV[K, CoGroup3[A, B, C]]] {
	config := groupConfigOf(first.p, opts)
	if !alike(name, first, second, third) {
		return PCollection[KV[K, CoGroup3[A, B, C]]]{p: first.p}
	}
	useIterable[A](first.p)
	useIterable[B](first.p)
	useIterable[C](first.p)
	type acc = coAcc3[A, B, C]
	a := aggregation[K, acc, CoGroup3[A, B, C]]{
		name: name, kind: "co-group by key",
		create:  func() acc { return acc{} },
		extract: func(c acc) CoGroup3[A, B, C] { return CoGroup3[A, B, C]{given(c.A), given(c.B), given(c.C)} },
		merge: func(a, b acc) acc {
			return acc{append(a.A, b.A...), append(a.B, b.B...), append(a.C, b.C...)}
		},
		clone: func(c acc) (acc, error) { return acc{slices.Clip(c.A), slices.Clip(c.B), slices.Clip(c.C)}, nil },
		size:  func(c *acc) int { return memory(c.A) + memory(c.B) + memory(c.C) },
	}
	return aggregate(a, config,
		inputOf(&a, first, func(c acc, v A) acc { c.A = append(c.A, v); return c }, within(first.p, func(c *acc) *[]A { return &c.A })),
		inputOf(&a, second, func(c acc, v B) acc { c.B = append(c.B, v); return c }, within(second.p, func(c *acc) *[]B { return &c.B })),
		inputOf(&a, third, func(c acc, v C) acc { c.C = append(c.C, v); return c }, within(third.p, func(c *acc) *[]C { return &c.C })))
}

// within is removeValue for a slice in an accumulator.
func within[Acc, V any](p *Pipeline, of func(*Acc) *[]V) func(Acc, V) Acc {
	remove := removeValue[V](p)
	if remove == nil {
		return nil
	}
	return func(c Acc, v V) Acc {
		vs := of(&c)
		*vs = remove(*vs, v)
		return c
	}
}

// given is an Iterable of what an accumulator has now. What is appended to it later is not seen.
func given[V any](vs []V) Iterable[V] { return Iterable[V]{vs[:len(vs):len(vs)]} }

// memory is the bytes of the array that vs is in.
func memory[V any](vs []V) int {
	var v V
	return cap(vs) * int(unsafe.Sizeof(v))
}

// anyCollection is a PCollection of some type.
type anyCollection interface {
	Pipeline() *Pipeline
	usable(step string) bool
	info() collection
}

// alike returns false if an input of a step is not usable, belongs to another pipeline or is windowed otherwise than
// the first, and reports what has not been reported.
func alike(step string, inputs ...anyCollection) bool {
	for i, in := range inputs {
		if !in.usable(step) {
			return false
		}
		p := inputs[0].Pipeline()
		if in.Pipeline() != p {
			p.errorf(step, "input %d belongs to another pipeline: make all of one", i+1)
			return false
		}
		if w, first := in.info().windowing.String(), inputs[0].info().windowing.String(); w != first {
			p.errorf(step, "its inputs are windowed unlike: the first into %s, input %d into %s; window all with the same WindowInto",
				inputs[0].info().windowing.Describe(), i+1, in.info().windowing.Describe())
			return false
		}
	}
	return true
}
