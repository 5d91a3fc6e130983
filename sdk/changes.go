package sdk

import "github.com/millstream/millstream/internal/kernel"

// Change is an element, or the retraction of an equal one.
//
//	Value      T
//	Retraction bool
type Change[T any] = kernel.Change[T]

// Changes makes the mark of retractions (see AccumulatingAndRetracting) a part of the value, for steps that do not know it: keyed
// steps, and sinks that write what they are given.
func Changes[T any](name string, in PCollection[T]) PCollection[Change[T]] {
	out := step[T, Change[T]](name, "changes", in, kernel.NewChanges[T])
	if out.node != nil {
		c := in.info()
		c.retracts = false
		in.p.out[outputKey{out.node.ID, out.port}] = c
	}
	return out
}
