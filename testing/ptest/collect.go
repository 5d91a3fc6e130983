package ptest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/multiset"
)

// Element is a value with what the model says of it.
type Element[T any] struct {
	Value  T
	Time   time.Time // UTC, whole milliseconds
	Window window.Window
	Pane   window.Pane
}

// Collect returns the elements of the collection that build makes, in the order of package multiset: small
// ones first. All runs must have the same ones.
func Collect[T any](t testing.TB, build func(*sdk.Pipeline) sdk.PCollection[T], opts ...Option) []T {
	t.Helper()
	elements := collect(t, build, opts, func(e Element[T]) Element[T] { return Element[T]{Value: e.Value} })
	vs := make([]T, len(elements))
	for i, e := range elements {
		vs[i] = e.Value
	}
	multiset.Sort(vs)
	return vs
}

// CollectPanes is Collect with timestamps, windows and panes, in which all runs must agree too. They come in
// the order of windows, timestamps, values and panes.
func CollectPanes[T any](t testing.TB, build func(*sdk.Pipeline) sdk.PCollection[T], opts ...Option) []Element[T] {
	t.Helper()
	elements := collect(t, build, opts, func(e Element[T]) Element[T] { return e })
	slices.SortStableFunc(elements, func(a, b Element[T]) int {
		return cmp.Or(a.Window.Compare(b.Window), a.Time.Compare(b.Time), multiset.Compare(a.Value, b.Value), cmp.Compare(a.Pane.Index, b.Pane.Index))
	})
	return elements
}

// collect returns the elements of the first run. What same makes of them must be equal in all.
func collect[T any](t testing.TB, build func(*sdk.Pipeline) sdk.PCollection[T], opts []Option, same func(Element[T]) Element[T]) (first []Element[T]) {
	t.Helper()
	var to *sink[T]
	had := false
	runAll(t, func(p *sdk.Pipeline) error {
		out := build(p)
		values, err := sdk.CoderOf[T](p)
		if err != nil {
			return fmt.Errorf("ptest: %w", err)
		}
		to = &sink[T]{values: values}
		sdk.Write("ptest", out, to)
		return nil
	}, opts, func() string {
		got, err := to.elements()
		if err != nil {
			return err.Error()
		}
		if !had {
			first, had = got, true
			return ""
		}
		d, err := multiset.Diff(to.identity, apply(first, same), apply(got, same))
		switch {
		case err != nil:
			return err.Error()
		case d != "":
			return "another answer than in the first run (-first +this):\n" + d
		}
		return ""
	})
	return first
}

func apply[T any](vs []T, f func(T) T) []T {
	out := make([]T, len(vs))
	for i, v := range vs {
		out[i] = f(v)
	}
	return out
}

// row is an Element with its value encoded.
type row struct {
	Time, Start, End int64 // event time, ms
	Pane             window.Pane
	Value            []byte
}

// part is the committable of sink: what one subtask wrote between two checkpoints.
type part struct {
	Nonce string
	Rows  []row
}

// sink collects committed elements, exactly once.
type sink[T any] struct {
	values coder.Coder[T]

	mu   sync.Mutex
	done map[string]bool // nonces
	rows []row
}

// WithoutRetractions is what sdk says of it.
func (s *sink[T]) WithoutRetractions() string {
	return "and ptest does not tell them from elements: collect sdk.Changes of it, of which those that take back have Retraction set"
}

func (s *sink[T]) Open(context.Context, connector.Subtask) (connector.Writer[T, part], error) {
	return &writer[T]{values: s.values}, nil
}

func (s *sink[T]) Commit(_ context.Context, _ int64, parts []part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		if s.done[p.Nonce] {
			continue
		}
		if s.done == nil {
			s.done = map[string]bool{}
		}
		s.done[p.Nonce] = true
		s.rows = append(s.rows, p.Rows...)
	}
	return nil
}

func (s *sink[T]) elements() ([]Element[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Element[T], len(s.rows))
	for i, r := range s.rows {
		v, rest, err := s.values.Decode(r.Value)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
		if err != nil {
			return nil, fmt.Errorf("decode a collected element: %w", err)
		}
		out[i] = Element[T]{
			Value: v, Time: eventtime.Time(r.Time).Time(),
			Window: window.New(eventtime.Time(r.Start), eventtime.Time(r.End)), Pane: r.Pane,
		}
	}
	return out, nil
}

// identity is the bytes by which elements are told apart.
func (s *sink[T]) identity(e Element[T]) ([]byte, error) {
	r, err := encode(s.values, e)
	return fmt.Appendf(nil, "%+v", r), err
}

type writer[T any] struct {
	values coder.Coder[T]
	rows   []row
}

func (w *writer[T]) Write(_ context.Context, records []connector.Record[T]) error {
	for i := range records {
		r, err := encode(w.values, Element[T](records[i]))
		if err != nil {
			return err
		}
		w.rows = append(w.rows, r)
	}
	return nil
}

func encode[T any](values coder.Coder[T], e Element[T]) (row, error) {
	b, err := values.Append(nil, e.Value)
	if err != nil {
		return row{}, fmt.Errorf("encode %+v: %w", e.Value, err)
	}
	return row{int64(eventtime.FromTime(e.Time)), int64(e.Window.StartTime()), int64(e.Window.EndTime()), e.Pane, b}, nil
}

func (w *writer[T]) Prepare(context.Context, int64) ([]part, error) {
	if len(w.rows) == 0 {
		return nil, nil
	}
	p := part{rand.Text(), w.rows}
	w.rows = nil
	return []part{p}, nil
}

func (w *writer[T]) Close() error { return nil }
