package ptest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// KeyedHarness calls one KeyedDoFn as a subtask would, without a pipeline: with cells, timers, and a watermark and a clock that
// the test moves. Elements come after the end of their windows as late ones: the allowed lateness is 0. One goroutine
// uses it.
type KeyedHarness[K comparable, V, Out any] struct {
	host[Out]
	look      func() // instead of the next element
	watermark eventtime.Time
	now       eventtime.Time // processing time
}

// KeyedDoFn prepares fn as ParDoPerKey does, but works on fn itself, so that the test can read its cells: see
// State. It calls Declare and Setup, and Teardown at the end of the test. What ParDoPerKey refuses fails the test.
func KeyedDoFn[K comparable, V, Out any, F sdk.KeyedDoFn[K, V, Out]](t testing.TB, fn F) *KeyedHarness[K, V, Out] {
	t.Helper()
	if _, err := sdk.Build(t.Name(), func(p *sdk.Pipeline) error { // with fn's own mistakes
		sdk.ParDoPerKey("fn", sdk.Create[sdk.KV[K, V]]("in", p), fn)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	backend, err := memory.Driver{}.Open(t.Context(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &KeyedHarness[K, V, Out]{watermark: eventtime.Min}
	c := &kernel.OpenContext{
		Backend: backend, Groups: 1, CacheMax: 1 << 40,
		Now: func() eventtime.Time { return h.now }, Wake: func() {},
	}
	h.start(t, fn, c, func(p *sdk.Pipeline) {
		sdk.ParDoPerKey("fn", sdk.Create[sdk.KV[K, V]]("in", p), &looking[K, V, Out]{fn, &h.look})
	})
	return h
}

// looking is a KeyedDoFn that lets a test look in between. Subtasks work on a copy of it, and so on the same fn.
type looking[K comparable, V, Out any] struct {
	fn   sdk.KeyedDoFn[K, V, Out]
	look *func()
}

func (l *looking[K, V, Out]) Declare(d *sdk.KeyedDecl) { l.fn.Declare(d) }

func (l *looking[K, V, Out]) ProcessElement(c *sdk.ProcessContext, key K, v V, emit *sdk.Emitter[Out]) error {
	if look := *l.look; look != nil {
		look()
		return nil
	}
	return l.fn.ProcessElement(c, key, v, emit)
}

func (l *looking[K, V, Out]) Setup(ctx context.Context, sub sdk.Subtask) error {
	if f, ok := l.fn.(interface {
		Setup(context.Context, sdk.Subtask) error
	}); ok {
		return f.Setup(ctx, sub)
	}
	return nil
}

func (l *looking[K, V, Out]) FinishBundle(ctx context.Context, emit *sdk.Emitter[Out]) error {
	if f, ok := l.fn.(interface {
		FinishBundle(context.Context, *sdk.Emitter[Out]) error
	}); ok {
		return f.FinishBundle(ctx, emit)
	}
	return nil
}

func (l *looking[K, V, Out]) Teardown() error {
	if f, ok := l.fn.(interface{ Teardown() error }); ok {
		return f.Teardown()
	}
	return nil
}

// ProcessElement calls the KeyedDoFn for an element of a key and returns its error. The element is in the global
// window unless it names another, and of no pane unless it names one. One whose window has ended is dropped and
// counted: see LateDropped.
func (h *KeyedHarness[K, V, Out]) ProcessElement(key K, e Element[V]) error {
	if !h.open {
		return errors.New("ptest: ProcessElement after Teardown")
	}
	row := rowOf(e, sdk.Pair(key, e.Value))
	if err := h.op.Process(0, &kernel.Rows[sdk.KV[K, V]]{E: []kernel.Element[sdk.KV[K, V]]{row}}); err != nil {
		return userError(err)
	}
	return h.tick()
}

// Process is ProcessElement for values without a timestamp. It stops at the first error.
func (h *KeyedHarness[K, V, Out]) Process(key K, vs ...V) error {
	for _, v := range vs {
		if err := h.ProcessElement(key, Element[V]{Value: v}); err != nil {
			return err
		}
	}
	return nil
}

// Watermark moves the watermark to t, after FinishBundle, and fires the timers that are due and the windows whose
// life ends; then comes FinishBundle for those. It returns the first error of a handler. A t behind the present watermark is an error.
func (h *KeyedHarness[K, V, Out]) Watermark(t time.Time) error {
	return h.advance(eventtime.FromTime(t))
}

// End moves the watermark to the end of time, as the end of a bounded input does.
func (h *KeyedHarness[K, V, Out]) End() error { return h.advance(eventtime.Max) }

func (h *KeyedHarness[K, V, Out]) advance(w eventtime.Time) error {
	if !h.open {
		return errors.New("ptest: the watermark moves after Teardown")
	}
	if w < h.watermark {
		return fmt.Errorf("ptest: the watermark moves back, from %v to %v", h.watermark, w)
	}
	h.watermark = w
	if err := h.FinishBundle(); err != nil {
		return err
	}
	for done := false; !done; {
		var err error
		if done, err = h.op.Watermark(w, kernel.BatchSize); err != nil {
			return userError(err)
		}
	}
	if err := h.FinishBundle(); err != nil {
		return err
	}
	return h.tick()
}

// ProcessingTime moves the clock to t and fires the timers of processing time that are due. At first the clock stands at the
// beginning of 1970, UTC. It returns the first error of a handler. A t before the present is an error.
func (h *KeyedHarness[K, V, Out]) ProcessingTime(t time.Time) error {
	now := eventtime.FromTime(t)
	switch {
	case !h.open:
		return errors.New("ptest: the clock moves after Teardown")
	case now < h.now:
		return fmt.Errorf("ptest: the clock moves back, from %v to %v", h.now, now)
	}
	h.now = now
	return h.tick()
}

// tick does what is due by the clock.
func (h *KeyedHarness[K, V, Out]) tick() error {
	c := h.op.(kernel.Clocked)
	for c.NextClock() <= h.now {
		if _, err := c.Clock(h.now, kernel.BatchSize); err != nil {
			return userError(err)
		}
	}
	return nil
}

// OutputWatermark is the watermark of the KeyedDoFn's outputs: that of the test, unless a pending timer with an earlier output
// timestamp holds it back at that.
func (h *KeyedHarness[K, V, Out]) OutputWatermark() time.Time {
	return min(h.watermark, h.op.(kernel.Holder).Hold()).Time()
}

// State calls look while the cells of the KeyedDoFn are those of a key and window; the zero Window is the global
// one. look may read them, or set them to prepare a test. A window that has ended has no state, which fails the test.
func (h *KeyedHarness[K, V, Out]) State(key K, w window.Window, look func()) {
	h.t.Helper()
	looked := false
	h.look = func() { looked = true; look() }
	defer func() { h.look = nil }()
	var none V
	if err := h.ProcessElement(key, Element[V]{Value: none, Window: w}); err != nil {
		h.t.Fatalf("ptest: look at the state of key %v: %v", key, err)
	}
	if !looked {
		h.t.Fatalf("ptest: look at the state of key %v: its window %v has ended", key, w)
	}
}

// LateDropped is the number of elements that came after their window had ended.
func (h *KeyedHarness[K, V, Out]) LateDropped() int64 { return h.metrics.LateDropped.Load() }
