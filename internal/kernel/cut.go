package kernel

import (
	"iter"
	"reflect"
)

// Cut says where batches are cut before a step gets them. What a pipeline answers must not depend on it: it is for tests.
type Cut uint8

// The cuts. Elements without a key count as of one key.
const (
	CutNowhere Cut = iota
	CutKeys        // a batch has elements of one key
	CutRepeats     // a batch has at most one element of each key
	CutAll         // a batch has one element
)

// Of returns b in pieces, in its order.
func (c Cut) Of(b Batch) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		from, n := 0, b.Len()
		seen := map[any]bool{}
		follows := false // a retraction, from which it is not cut: see full
		for i := range n {
			key, retraction := b.KeyAt(i)
			cut := !follows && (c == CutAll || c == CutRepeats && seen[key] || c == CutKeys && !seen[key])
			if cut && i > from {
				if !yield(b.Slice(from, i)) {
					return
				}
				from = i
				clear(seen)
			}
			seen[key], follows = true, retraction
		}
		if from < n {
			yield(b.Slice(from, n))
		}
	}
}

// Slice implements Batch.
func (r *Rows[T]) Slice(from, to int) Batch { return &Rows[T]{r.E[from:to:to]} }

// KeyAt implements Batch.
func (r *Rows[T]) KeyAt(i int) (any, bool) { return keyOf(r.E[i].Value), r.E[i].Pane.Retraction() }

// keyOf is the field Key of a KV, or nil.
func keyOf(v any) any {
	kv := reflect.ValueOf(v)
	if kv.Kind() != reflect.Struct || kv.NumField() != 2 || kv.Type().Field(0).Name != "Key" || kv.Type().Field(1).Name != "Value" {
		return nil
	}
	if k := kv.Field(0); k.Comparable() {
		return k.Interface()
	}
	return nil
}
