package sdk

import (
	"strconv"

	"github.com/millstream/millstream/internal/kernel"
)

// maxPartitions is the greatest number of collections that Partition makes of one.
const maxPartitions = 1000

// Partition divides a collection into n, 1 to 1000: an element goes into the collection of the index that f returns for
// it. An index that is not from 0 to n-1 fails the job. f is called by all subtasks at once. Timestamps and windows stay.
//
// To divide by what an element is, more than by a number, Filter the collection several times; to divide by what user
// code finds out about it, use the extra outputs of ParDo (OutputTo).
func Partition[T any](name string, in PCollection[T], n int, f func(T) int) []PCollection[T] {
	out := make([]PCollection[T], min(max(n, 0), maxPartitions))
	for i := range out {
		out[i].p = in.p
	}
	if !in.usable(name) {
		return out
	}
	if n < 1 || n > maxPartitions {
		in.p.errorf(name, "%d partitions: there may be 1 to %d", n, maxPartitions)
		return out
	}
	if f == nil {
		missing[T, T](name, in)
		return out
	}
	node := &kernel.Node{
		Kind: "partition", Inputs: []kernel.Edge{forward(in)}, Spec: []string{"partitions=" + strconv.Itoa(n)},
		New: func() kernel.Operator { return kernel.NewPartition(f) },
	}
	infos := make([]collection, n)
	for i := range infos {
		node.Ports, infos[i] = append(node.Ports, port[T](in.p, strconv.Itoa(i))), in.info()
	}
	if in.p.add(name, node, infos...) {
		for i := range out {
			out[i] = PCollection[T]{p: in.p, node: node, port: i}
		}
	}
	return out
}
