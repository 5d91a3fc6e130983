package sdk

import (
	"fmt"
	"reflect"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// maxShards bounds the shards of CombinePerHotKey.
const maxShards = 1000

// CombinePerHotKey is CombinePerKey in two stages, for keys that have more elements than one subtask can take: the elements of a
// key are spread over n shards, 2 to 1000, each with an accumulator of its own, and a second stage merges those. The
// result is the same, lateness and late panes included. Every key has up to n accumulators in each window then: n is seldom
// more than the parallelism.
//
// A combine that is lifted (its plan says so) adds up most elements of a hot key where they come from, and needs this less.
//
// It is refused where the result would be another: with early panes, and late ones that wait for several elements (each shard would
// wait for itself); for windows that merge, as sessions (a shard sees gaps that the key has not); with pane timestamps other
// than the end of the window; and for input with retractions, which would reach another shard than what they take back.
func CombinePerHotKey[K comparable, V, A, Out any, F CombineFn[V, A, Out]](name string, in PCollection[KV[K, V]], n int, fn F, opts ...GroupOption) (out PCollection[KV[K, Out]]) {
	p, config := in.p, groupConfigOf(in.p, opts)
	out.p = p
	if !in.usable(name) {
		return out
	}
	if why := notHot(n, in.info()); why != "" {
		p.errorf(name, "%s", why)
		return out
	}
	acc, ok := coderFor[A](p, name, "its accumulator is kept in checkpoints")
	if !ok {
		return out
	}
	// What the first stage emits is immutable; what merging is given may change.
	extract, own := func(a A) A { return a }, func(a A) A { return a }
	if hasPointers(reflect.TypeFor[A]()) {
		own = func(a A) A {
			c, err := copyOf(acc, a)
			if err != nil {
				panic(fmt.Errorf("copy an accumulator: %w", err))
			}
			return c
		}
		if in.info().sliced {
			extract = own // a slice is part of several windows
		}
	}
	whole := in.info().windowing
	p.Scope(name, func() {
		info := in.info()
		info.windowing.Accumulation, info.windowing.EmptyOnTime, info.windowing.EmptyLast = kernel.Discarding, false, false
		shards := rekey[KV[K, V], KV[sharded[K], V]]("shard", in, info, fmt.Sprintf("shards=%d", n), func() func(KV[K, V]) KV[sharded[K], V] {
			next := 0
			return func(kv KV[K, V]) KV[sharded[K], V] {
				next++
				return KV[sharded[K], V]{Key: sharded[K]{kv.Key, int32(next / shardRun % n)}, Value: kv.Value}
			}
		})
		first := aggregation[sharded[K], A, A]{
			name: "partial", kind: "combine", create: fn.CreateAccumulator, extract: extract, merge: fn.MergeAccumulators, combine: true, size: kernel.Footprint[A](),
			fn: fmt.Sprintf("%T", fn), spec: []string{fmt.Sprintf("fn=%T", fn)},
		}
		var late PCollection[KV[sharded[K], V]]
		var opts []GroupOption
		if len(config.late) > 0 {
			opts = []GroupOption{LateTo(&late)}
		}
		partial := aggregate(first, groupConfigOf(p, opts), inputOf(&first, shards, fn.AddInput, nil))
		if !partial.usable("unshard") {
			return
		}
		if len(config.late) > 0 {
			info := late.info()
			info.windowing = whole
			config.connect(p, "partial", []reflect.Type{reflect.TypeFor[KV[K, V]]()}, func(l lateTo, _ int) {
				v := rekey[KV[sharded[K], V], KV[K, V]]("late", late, info, "", func() func(KV[sharded[K], V]) KV[K, V] {
					return func(kv KV[sharded[K], V]) KV[K, V] { return KV[K, V]{Key: kv.Key.Key, Value: kv.Value} }
				})
				l.set(p, v.node, v.port)
			})
		}
		info = partial.info()
		info.windowing.Accumulation, info.windowing.EmptyOnTime, info.windowing.EmptyLast = whole.Accumulation, whole.EmptyOnTime, whole.EmptyLast
		byKey := rekey[KV[sharded[K], A], KV[K, A]]("unshard", partial, info, "", func() func(KV[sharded[K], A]) KV[K, A] {
			return func(kv KV[sharded[K], A]) KV[K, A] { return KV[K, A]{Key: kv.Key.Key, Value: kv.Value} }
		})
		second := aggregation[K, A, Out]{
			name: "merge", kind: "combine", create: fn.CreateAccumulator, extract: fn.ExtractOutput, merge: fn.MergeAccumulators, combine: true, size: kernel.Footprint[A](),
			fn: fmt.Sprintf("%T", fn), spec: []string{fmt.Sprintf("fn=%T", fn)},
		}
		add := func(a, partial A) A { return fn.MergeAccumulators(a, own(partial)) }
		out = aggregate(second, groupConfig{}, inputOf(&second, byKey, add, nil))
	})
	return out
}

// sharded is the key of the first stage.
type sharded[K comparable] struct {
	Key   K
	Shard int32
}

// shardRun is the number of elements that a subtask sends to a shard before it turns to the next: enough that lifting adds
// some of them up.
const shardRun = 64

// notHot says why the elements of a key cannot be spread over shards, or "".
func notHot(n int, in collection) string {
	w := in.windowing
	early, late, counts := trigger.Counts(w.Trigger)
	_, merge := window.Merging(w.Fn)
	switch {
	case n < 2 || n > maxShards:
		return fmt.Sprintf("%d shards: use 2 to %d", n, maxShards)
	case in.retracts:
		return "its input may have retractions, which would reach another shard than what they take back: use CombinePerKey"
	case merge:
		return fmt.Sprintf("the windows of its input, %s, merge, and each shard would merge them by its own elements: use CombinePerKey, or windows that do not merge", window.Describe(w.Fn))
	case !counts || early > 0:
		return fmt.Sprintf("the trigger %v may fire before the end of the window, and would do so for each shard apart: use trigger.AfterWatermark() without Early", w.Trigger)
	case late > 1:
		return fmt.Sprintf("the trigger %v waits for several late elements, which may be in as many shards: use Late(trigger.AfterCount(1))", w.Trigger)
	case w.Timestamps != kernel.EndOfWindow:
		return "panes would get the timestamps of some elements: use the end of the window, which is the default"
	}
	return ""
}

// rekey adds a step that changes elements by a function of its own in each subtask, and says what is known of its output.
func rekey[In, Out any](name string, in PCollection[In], info collection, spec string, f func() func(In) Out) PCollection[Out] {
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	n := &kernel.Node{
		Kind: "key by", Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[Out](in.p, "out")},
		New: func() kernel.Operator { return kernel.NewMap(f()) },
	}
	if spec != "" {
		n.Spec = []string{spec}
	}
	if !in.p.add(name, n, info) {
		return PCollection[Out]{p: in.p}
	}
	return PCollection[Out]{p: in.p, node: n}
}
