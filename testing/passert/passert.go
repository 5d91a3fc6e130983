// Package passert makes assertions steps of a pipeline: one that does not hold fails the run.
//
// Each collects what it looks at, of all windows and panes, until the end of its input, in one subtask; so it
// works on every runner, for collections that end and fit into memory. The order of elements means nothing.
package passert

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/multiset"
)

// Equals asserts that the collection has the wanted elements, each as often as it is given.
func Equals[T any](name string, in sdk.PCollection[T], want ...T) {
	assert(name, "Equals", caller(), in, want)
}

// Empty asserts that the collection has no element.
func Empty[T any](name string, in sdk.PCollection[T]) {
	assert(name, "Empty", caller(), in, nil)
}

// EqualsInWindow is Equals for the elements of one window.
func EqualsInWindow[T any](name string, in sdk.PCollection[T], w window.Window, want ...T) {
	loc := caller()
	in.Pipeline().Scope(name, func() {
		inWindow := sdk.ParDoFunc("in window", in, func(c *sdk.ProcessContext, v T, emit *sdk.Emitter[T]) error {
			if c.Window() == w {
				emit.Emit(v)
			}
			return nil
		})
		assert("elements", fmt.Sprintf("EqualsInWindow %v", w), loc, inWindow, want)
	})
}

// PerKey asserts that the collection has one element for each key of want, with the value given there, and
// no other.
func PerKey[K comparable, V any](name string, in sdk.PCollection[sdk.KV[K, V]], want map[K]V) {
	var kvs []sdk.KV[K, V]
	for k, v := range want {
		kvs = append(kvs, sdk.Pair(k, v))
	}
	assert(name, "PerKey", caller(), in, kvs)
}

func assert[T any](name, what, loc string, in sdk.PCollection[T], want []T) {
	in.Pipeline().Scope(name, func() {
		all := sdk.CombineGlobally("all", sdk.WindowInto("regardless of windows", in, window.Global()), collect[T]{})
		sdk.ParDoFunc("check", all, func(_ *sdk.ProcessContext, got []T, _ *sdk.Emitter[struct{}]) error {
			c, err := sdk.CoderOf[T](in.Pipeline())
			if err != nil {
				return err
			}
			d, err := multiset.Diff(func(v T) ([]byte, error) { return c.Append(nil, v) }, want, got)
			if err == nil && d != "" {
				err = fmt.Errorf("passert.%s at %s: not the elements wanted (-want +got):\n%s", what, loc, d)
			}
			return err
		})
	})
}

// caller is the file:line that called the function that calls it.
func caller() string {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// collect is the CombineFn that keeps everything.
type collect[T any] struct{}

func (collect[T]) CreateAccumulator() []T         { return nil }
func (collect[T]) AddInput(a []T, v T) []T        { return append(a, v) }
func (collect[T]) MergeAccumulators(a, b []T) []T { return append(a, b...) }
func (collect[T]) ExtractOutput(a []T) []T        { return slices.Clone(a) }
