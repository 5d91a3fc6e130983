package state

import (
	"fmt"
	"reflect"
)

// Combiner is what a Combining does with its inputs; every sdk.CombineFn is one. Adding and merging may change and return
// the accumulator that they are given; ExtractOutput returns nothing that the accumulator keeps.
type Combiner[In, Acc, Out any] interface {
	CreateAccumulator() Acc
	AddInput(Acc, In) Acc
	MergeAccumulators(a, b Acc) Acc
	ExtractOutput(Acc) Out
}

// Combining is a cell with an accumulator for each key and window. It is a handle, cheap to copy; the zero Combining belongs
// to no step, and using it panics.
type Combining[In, Acc, Out any] struct {
	c  *valueCell[Acc]
	fn Combiner[In, Acc, Out]
}

// NewCombining declares a Combining: see NewValue. What is stored is the accumulator.
func NewCombining[In, Acc, Out any](d Declarer, name string, fn Combiner[In, Acc, Out], opts ...Option) Combining[In, Acc, Out] {
	return Combining[In, Acc, Out]{newValueCell[Acc](d, name, "combining", optionsOf(opts)), fn}
}

func (c Combining[In, Acc, Out]) bound() *valueCell[Acc] {
	if c.c == nil {
		unbound(fmt.Sprintf("Combining[%v, %v, %v]", reflect.TypeFor[In](), reflect.TypeFor[Acc](), reflect.TypeFor[Out]()))
	}
	return c.c
}

// Add adds an input to the accumulator.
func (c Combining[In, Acc, Out]) Add(in In) {
	v := c.bound()
	fresh := v.peek() == nil
	// The accumulator may be changed in place, which must not reach what a checkpoint is still to store: change comes first.
	p := v.change()
	if p == nil {
		return
	}
	if fresh {
		*p = c.fn.CreateAccumulator()
	}
	*p = c.fn.AddInput(*p, in)
	v.changed(p)
}

// Get returns the output of what was added since the last Clear; of nothing, that of a new accumulator.
func (c Combining[In, Acc, Out]) Get() Out {
	v := c.bound()
	p := v.peek()
	if p == nil {
		return c.fn.ExtractOutput(c.fn.CreateAccumulator())
	}
	v.read()
	return c.fn.ExtractOutput(*p)
}

// IsEmpty says whether nothing was added since the last Clear.
func (c Combining[In, Acc, Out]) IsEmpty() bool { return c.bound().peek() == nil }

// Clear removes the accumulator.
func (c Combining[In, Acc, Out]) Clear() {
	v := c.bound()
	v.set.Remove(v.at)
}
