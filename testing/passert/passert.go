// Package passert makes assertions steps of a pipeline: one that does not hold fails the run.
//
//	passert.Equals("counts", counts, 3, 4)
//	passert.That("ten", counts).InWindow(ten).OnTime().Equals(3)
//	passert.ForKey("ann's", byUser, "ann").Late().Empty()
//	passert.That("panes", counts).Panes(
//		passert.Pane[int64]{Value: 3, Window: ten, Time: …, Pane: window.Pane{…}}, …)
//
// Each collects what it looks at, of all windows and panes, until the end of its input, in one subtask; so it
// works on every runner, for collections that end and fit into memory. The order of elements means nothing.
//
// A failure names the step, the line of the assertion, and how what came differs from what was wanted.
package passert

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/multiset"
)

// Equals asserts that the collection has the wanted elements, each as often as it is given.
func Equals[T any](name string, in sdk.PCollection[T], want ...T) {
	that(name, caller(), in).equals("Equals", want)
}

// Empty asserts that the collection has no element.
func Empty[T any](name string, in sdk.PCollection[T]) { that(name, caller(), in).equals("Empty", nil) }

// PerKey asserts that the collection has one element for each key of want, with the value given there, and
// no other.
func PerKey[K comparable, V any](name string, in sdk.PCollection[sdk.KV[K, V]], want map[K]V) {
	var kvs []sdk.KV[K, V]
	for k, v := range want {
		kvs = append(kvs, sdk.Pair(k, v))
	}
	that(name, caller(), in).equals("PerKey", kvs)
}

// Assertion is about some of the elements of a collection: those that pass each restriction. It adds its steps
// when Equals, Empty, Panes or Satisfies is called, which is once. Its other methods return a narrower one.
type Assertion[T any] struct {
	name, loc string
	of        string // the restrictions, for messages
	add       func(a Assertion[T], what string, check func(values coder.Coder[T], got []Pane[T]) error)
	keep      []func(window.Window, window.Pane) bool
}

// Pane is an element with what the model says of it.
type Pane[T any] struct {
	Value  T
	Time   time.Time // UTC, whole milliseconds
	Window window.Window
	Pane   window.Pane
}

// That begins an assertion about all elements of in.
func That[T any](name string, in sdk.PCollection[T]) Assertion[T] { return that(name, caller(), in) }

// ForKey begins an assertion about the values of one key.
func ForKey[K comparable, V any](name string, in sdk.PCollection[sdk.KV[K, V]], key K) Assertion[V] {
	a := Assertion[V]{name: name, loc: caller(), of: fmt.Sprintf(", of key %+v", key)}
	a.add = func(a Assertion[V], what string, check func(coder.Coder[V], []Pane[V]) error) {
		in.Pipeline().Scope(name, func() {
			values := sdk.ParDoFunc("of the key", in, func(_ *sdk.ProcessContext, kv sdk.KV[K, V], emit *sdk.Emitter[V]) error {
				if kv.Key == key {
					emit.Emit(kv.Value)
				}
				return nil
			})
			addSteps(values, a, what, check)
		})
	}
	return a
}

func that[T any](name, loc string, in sdk.PCollection[T]) Assertion[T] {
	a := Assertion[T]{name: name, loc: loc}
	a.add = func(a Assertion[T], what string, check func(coder.Coder[T], []Pane[T]) error) {
		in.Pipeline().Scope(name, func() { addSteps(in, a, what, check) })
	}
	return a
}

func (a Assertion[T]) where(of string, keep func(window.Window, window.Pane) bool) Assertion[T] {
	a.of += ", " + of
	a.keep = append(slices.Clip(a.keep), keep)
	return a
}

// InWindow leaves the elements of one window.
func (a Assertion[T]) InWindow(w window.Window) Assertion[T] {
	return a.where(fmt.Sprintf("in window %v", w), func(in window.Window, _ window.Pane) bool { return in == w })
}

// Early leaves the panes that fired before the watermark had passed the end of their window.
func (a Assertion[T]) Early() Assertion[T] { return a.timed("early", window.Early) }

// OnTime leaves the panes that fired when the watermark passed the end of their window.
func (a Assertion[T]) OnTime() Assertion[T] { return a.timed("on time", window.OnTime) }

// Late leaves the panes that fired after the on-time ones.
func (a Assertion[T]) Late() Assertion[T] { return a.timed("late", window.Late) }

func (a Assertion[T]) timed(of string, t window.Timing) Assertion[T] {
	return a.where(of, func(_ window.Window, p window.Pane) bool { return p.Timing == t })
}

// Final leaves the panes that are the last of their window and key.
func (a Assertion[T]) Final() Assertion[T] {
	return a.where("in last panes", func(_ window.Window, p window.Pane) bool { return p.Last })
}

// PaneIndex leaves the panes that are number i of their window and key; the first is 0.
func (a Assertion[T]) PaneIndex(i int64) Assertion[T] {
	return a.where(fmt.Sprintf("in pane %d", i), func(_ window.Window, p window.Pane) bool { return p.Index == i })
}

// Equals asserts that these elements are the wanted ones, each as often as it is given.
func (a Assertion[T]) Equals(want ...T) { a.equals("Equals", want) }

// Empty asserts that there is no such element.
func (a Assertion[T]) Empty() { a.equals("Empty", nil) }

func (a Assertion[T]) equals(what string, want []T) {
	a.add(a, what, func(c coder.Coder[T], got []Pane[T]) error {
		return differ(func(v T) ([]byte, error) { return c.Append(nil, v) }, want, values(got))
	})
}

// Panes asserts that these elements are the wanted ones with their timestamps, windows and panes.
func (a Assertion[T]) Panes(want ...Pane[T]) {
	a.add(a, "Panes", func(c coder.Coder[T], got []Pane[T]) error {
		return differ(func(p Pane[T]) ([]byte, error) {
			b, err := c.Append(nil, p.Value)
			return fmt.Appendf(b, "|%d %v %+v", eventtime.FromTime(p.Time), p.Window, p.Pane), err
		}, want, got)
	})
}

// Satisfies asserts that check returns nil for these elements, in the order of package multiset: small ones first.
// It is called once, at the end, maybe in another process.
func (a Assertion[T]) Satisfies(check func(got []T) error) {
	a.add(a, "Satisfies", func(_ coder.Coder[T], got []Pane[T]) error {
		vs := values(got)
		multiset.Sort(vs)
		return check(vs)
	})
}

func values[T any](panes []Pane[T]) []T {
	vs := make([]T, len(panes))
	for i, p := range panes {
		vs[i] = p.Value
	}
	return vs
}

func differ[T any](encode func(T) ([]byte, error), want, got []T) error {
	d, err := multiset.Diff(encode, want, got)
	if err == nil && d != "" {
		err = fmt.Errorf("not the elements wanted (-want +got):\n%s", d)
	}
	return err
}

// row is a Pane as it is kept until the end. Its value is in bytes, so that assertions of all types have one aggregation: instantiating
// one takes the compiler a second.
type row struct {
	Value            []byte
	Time, Start, End int64 // event time, ms
	Pane             window.Pane
}

// addSteps adds what collects the elements of a and calls check at the end.
func addSteps[T any](in sdk.PCollection[T], a Assertion[T], what string, check func(coder.Coder[T], []Pane[T]) error) {
	coderOf := sync.OnceValues(func() (coder.Coder[T], error) { return sdk.CoderOf[T](in.Pipeline()) })
	rows := sdk.ParDoFunc("elements", in, func(c *sdk.ProcessContext, v T, emit *sdk.Emitter[row]) error {
		w, p := c.Window(), c.Pane()
		for _, keep := range a.keep {
			if !keep(w, p) {
				return nil
			}
		}
		values, err := coderOf()
		if err != nil {
			return err
		}
		b, err := values.Append(nil, v)
		if err != nil {
			return err
		}
		emit.Emit(row{b, int64(eventtime.FromTime(c.Timestamp())), int64(w.StartTime()), int64(w.EndTime()), p})
		return nil
	})
	all := sdk.CombineGlobally("all", sdk.WindowInto("regardless of windows", rows, window.Global()), collect{})
	sdk.ParDoFunc("check", all, func(_ *sdk.ProcessContext, rows collected, _ *sdk.Emitter[struct{}]) error {
		values, err := coderOf()
		if err != nil {
			return err
		}
		var got []Pane[T]
		for _, r := range rows {
			v, rest, err := values.Decode(r.Value)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("%d bytes too many", len(rest))
			}
			if err != nil {
				return fmt.Errorf("passert.%s at %s: an element is not decoded as it was encoded: %w", what, a.loc, err)
			}
			got = append(got, Pane[T]{v, eventtime.Time(r.Time).Time(), window.New(eventtime.Time(r.Start), eventtime.Time(r.End)), r.Pane})
		}
		if err := check(values, got); err != nil {
			return fmt.Errorf("passert.%s at %s%s: %w", what, a.loc, a.of, err)
		}
		return nil
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
type collect struct{}

// WithoutRetractions is what sdk says of it.
func (collect) WithoutRetractions() string {
	return "an assertion does not tell them from elements: assert on sdk.Changes, of which those that take back have Retraction set"
}

func (collect) CreateAccumulator() []row           { return nil }
func (collect) AddInput(a []row, v row) []row      { return append(a, v) }
func (collect) MergeAccumulators(a, b []row) []row { return append(a, b...) }
func (collect) ExtractOutput(a []row) collected    { return slices.Clone(a) }

// collected is all elements, which the message of an assertion that fails does not begin with.
type collected []row

func (c collected) String() string { return fmt.Sprintf("(all %d)", len(c)) }
