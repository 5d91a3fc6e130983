// Package distinct removes duplicates: of the elements that are the same, it keeps one in each window.
//
// It is an aggregation. An element comes out in the first pane of its window: at the end of the window, or at once with
// the trigger
//
//	trigger.AfterWatermark().Early(trigger.AfterCount(1))
//
// Later panes are dropped, so that what has come out does not come again while its window takes elements, and is never taken back,
// not under sdk.AccumulatingAndRetracting either. (A session that a late element makes longer is another window.) An unbounded
// input in the global window needs such a trigger; what has been seen is then kept for ever. What comes after its window has
// expired is dropped: see sdk.LateTo, whose elements are pairs here.
package distinct

import "github.com/millstream/millstream/sdk"

// Values keeps one of the elements that are equal. Equal are those whose encodings are, as keys: -0 is 0, and all NaNs are
// one.
func Values[T comparable](name string, in sdk.PCollection[T], opts ...sdk.GroupOption) (out sdk.PCollection[T]) {
	in.Pipeline().Scope(name, func() {
		keyed := sdk.Map("key", in, func(v T) sdk.KV[T, struct{}] { return sdk.KV[T, struct{}]{Key: v} })
		out = sdk.Map("value", one(keyed, opts), func(kv sdk.KV[T, struct{}]) T { return kv.Key })
	})
	return out
}

// By keeps one of the elements for which f returns the same key: the one that the step meets first. f is called by all
// subtasks at once.
func By[T any, K comparable](name string, in sdk.PCollection[T], f func(T) K, opts ...sdk.GroupOption) (out sdk.PCollection[T]) {
	in.Pipeline().Scope(name, func() {
		out = sdk.Map("value", one(sdk.KeyBy("key", in, f), opts), func(kv sdk.KV[K, T]) T { return kv.Value })
	})
	return out
}

// PerKey keeps, of the pairs with the same key, the one that the step meets first.
func PerKey[K comparable, V any](name string, in sdk.PCollection[sdk.KV[K, V]], opts ...sdk.GroupOption) (out sdk.PCollection[sdk.KV[K, V]]) {
	in.Pipeline().Scope(name, func() { out = one(in, opts) })
	return out
}

// one keeps one pair of each key.
func one[K comparable, V any](in sdk.PCollection[sdk.KV[K, V]], opts []sdk.GroupOption) sdk.PCollection[sdk.KV[K, V]] {
	panes := sdk.CombinePerKey("one", in, first[V]{}, opts...)
	// The retraction of a first pane is of a first pane too. With Changes, what follows also knows that none will come.
	type change = sdk.Change[sdk.KV[K, found[V]]]
	return sdk.ParDoFunc("first pane", sdk.Changes("changes", panes), func(c *sdk.ProcessContext, e change, emit *sdk.Emitter[sdk.KV[K, V]]) error {
		// Windows that became one after they had fired may have only an empty pane left, with sdk.EmptyLastPane.
		if !c.Pane().First || e.Retraction || !e.Value.Value.Some {
			return nil
		}
		emit.Emit(sdk.Pair(e.Value.Key, e.Value.Value.Value))
		return nil
	})
}

// found is one value, or none yet.
type found[V any] struct {
	Some  bool
	Value V
}

// first is the CombineFn that keeps the value that it meets first.
type first[V any] struct{}

// WithoutRetractions is what sdk says of it.
func (first[V]) WithoutRetractions() string {
	return "distinct does not know what else it has seen: window what is before it Accumulating, not AccumulatingAndRetracting, or use stats.Count, which says 0 of what is gone"
}

func (first[V]) CreateAccumulator() found[V] { return found[V]{} }

func (first[V]) AddInput(a found[V], v V) found[V] {
	if a.Some {
		return a
	}
	return found[V]{true, v}
}

func (first[V]) MergeAccumulators(a, b found[V]) found[V] {
	if a.Some {
		return a
	}
	return b
}

func (first[V]) ExtractOutput(a found[V]) found[V] { return a }
