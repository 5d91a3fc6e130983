// Package teststream is a source that follows a script: elements, watermarks, silence and processing time, one
// after the other.
//
// Under the schedulers of ptest an event is taken only when the job has nothing left to do with those
// before it, so that the order of the script is the order in which the whole job sees it. Elsewhere the
// order of one stream is kept too, but a step that waits may fall behind by an event or more.
//
// A pipeline with a script has a processing time of its own, one for all its scripts. It is 0, which is
// time.UnixMilli(0), until a script moves it, and stands still but for that. A job that is restored has again the
// processing time of its checkpoint. A script that moves it is for the direct runner: the distributed runner refuses it.
//
// The script ends, and with it event time: the collection counts as bounded. What then still waits for a processing
// time comes at once.
package teststream

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
)

// Script is a list of events. The zero Script is empty; each method returns a longer one.
type Script[T any] struct{ events []Event[T] }

// Kind is what an Event is.
type Kind uint8

// The kinds of events.
const (
	Element   Kind = iota // Value, with the timestamp At
	Watermark             // no element before At will follow, or it is late
	Silence               // the stream no longer holds the watermark back
	Clock                 // the processing time is At
)

// Event is one line of a Script.
type Event[T any] struct {
	Kind  Kind
	At    time.Time // whole milliseconds
	Value T
}

func (s Script[T]) with(e Event[T]) Script[T] {
	return Script[T]{append(slices.Clip(s.events), e)}
}

// At adds elements with one timestamp.
func (s Script[T]) At(t time.Time, vs ...T) Script[T] {
	for _, v := range vs {
		s = s.with(Event[T]{Element, t, v})
	}
	return s
}

// Watermark moves the watermark to t. It never goes back; before the first one it is at the beginning of
// time, and after the last event at its end.
func (s Script[T]) Watermark(t time.Time) Script[T] { return s.with(Event[T]{Kind: Watermark, At: t}) }

// Silence declares the stream idle until its next element or watermark: until then others go on without it.
func (s Script[T]) Silence() Script[T] { return s.with(Event[T]{Kind: Silence}) }

// Clock moves the processing time to t, unless another script has moved it beyond.
func (s Script[T]) Clock(t time.Time) Script[T] { return s.with(Event[T]{Kind: Clock, At: t}) }

// AdvanceClock moves the processing time on by d from where this script has moved it before, at first 0.
func (s Script[T]) AdvanceClock(d time.Duration) Script[T] {
	t := time.UnixMilli(0).UTC()
	for _, e := range s.events {
		if e.Kind == Clock {
			t = e.At
		}
	}
	return s.Clock(t.Add(d))
}

// Read adds a step that plays the script.
func Read[T any](name string, p *sdk.Pipeline, s Script[T]) (out sdk.PCollection[T]) {
	p.Scope(name, func() {
		pl := &play[T]{events: s.events}
		pl.moves = slices.ContainsFunc(s.events, func(e Event[T]) bool { return e.Kind == Clock })
		pl.clock = p.ScriptClock("events", pl.moves)
		events := sdk.Read("events", p, pl, sdk.EventTime(stamp[T], pl))
		out = sdk.ParDoFunc("elements", events, func(_ *sdk.ProcessContext, e Event[T], emit *sdk.Emitter[T]) error {
			if e.Kind == Element {
				emit.Emit(e.Value)
			}
			return nil
		})
	})
	return out
}

// stamp is the timestamp of an element; other events have none, and nobody sees them.
func stamp[T any](e Event[T]) (t time.Time) {
	if e.Kind == Element {
		t = e.At
	}
	return t
}

// play is the source of a script and the strategy that goes with it. Every event is a record, so that a job
// can be stopped and restored after any of them; the step "elements" drops those that are none. The source
// has one split, its position: so there is one reader at a time, and it tells the generator what to say.
type play[T any] struct {
	events    []Event[T]
	clock     *kernel.Clock
	moves     bool         // the clock
	watermark atomic.Int64 // event time
	silent    atomic.Bool
}

var (
	_ connector.Source[Event[int], int64] = (*play[int])(nil)
	_ watermark.Silencer                  = (*play[int])(nil)
)

// New implements watermark.Strategy.
func (p *play[T]) New() watermark.Generator { return p }

// Observe implements watermark.Generator.
func (p *play[T]) Observe(time.Time) {}

// Watermark implements watermark.Generator.
func (p *play[T]) Watermark() time.Time { return eventtime.Time(p.watermark.Load()).Time() }

// Silent implements watermark.Silencer.
func (p *play[T]) Silent() bool { return p.silent.Load() }

// Splits implements connector.Source. It also checks the script: here a mistake in it can be an error.
func (p *play[T]) Splits(context.Context) ([]int64, error) {
	w, now := eventtime.Min.Time(), time.UnixMilli(0).UTC()
	for i, e := range p.events {
		if e.Kind == Silence {
			continue
		}
		if !e.At.Equal(e.At.Truncate(time.Millisecond)) {
			return nil, fmt.Errorf("event %d of the script is at %v: time has whole milliseconds", i, e.At)
		}
		switch {
		case e.Kind == Watermark && e.At.Before(w):
			return nil, fmt.Errorf("event %d of the script moves the watermark back, from %v to %v", i, w, e.At)
		case e.Kind == Watermark:
			w = e.At
		case e.Kind == Clock && e.At.Before(now):
			return nil, fmt.Errorf("event %d of the script moves the processing time back, from %v to %v: it is at first 0, and only goes on", i, now, e.At)
		case e.Kind == Clock:
			now = e.At
		}
	}
	return []int64{0}, nil
}

// SplitID implements connector.Source.
func (p *play[T]) SplitID(int64) string { return "script" }

// Open implements connector.Source.
func (p *play[T]) Open(context.Context, connector.Subtask) (connector.Reader[Event[T], int64], error) {
	return &reader[T]{play: p, next: int64(len(p.events))}, nil
}

type reader[T any] struct {
	*play[T]
	next   int64
	settle bool // the job was started or restored: it does first what it can
	buf    [1]Event[T]
}

func (r *reader[T]) Assign(splits []int64) error {
	r.next = splits[0]
	if r.next < 0 || r.next > int64(len(r.events)) {
		return fmt.Errorf("the script has %d events, so it cannot go on at %d: is it the one that was read before?", len(r.events), r.next)
	}
	r.watermark.Store(int64(eventtime.Min))
	r.silent.Store(false)
	now := eventtime.Time(0)
	for _, e := range r.events[:r.next] {
		if r.follow(e); e.Kind == Clock {
			now = eventtime.FromTime(e.At)
		}
	}
	r.settle = true
	if r.moves {
		r.clock.Begin(now)
	}
	return nil
}

// follow makes the generator say what holds after an event.
func (r *reader[T]) follow(e Event[T]) {
	if e.Kind != Clock { // which says nothing of the stream
		r.silent.Store(e.Kind == Silence)
	}
	if e.Kind == Watermark {
		r.watermark.Store(int64(eventtime.FromTime(e.At)))
	}
}

// Read takes one event and is Idle with it: it is asked again when the clock has moved on.
func (r *reader[T]) Read(context.Context, int) (b connector.Batch[Event[T], int64], _ error) {
	switch {
	case r.settle:
		r.settle, b.Status = false, connector.Idle
	case r.next == int64(len(r.events)):
		b.Status = connector.End
	default:
		r.buf[0] = r.events[r.next]
		r.follow(r.buf[0])
		if r.buf[0].Kind == Clock {
			r.clock.Set(eventtime.FromTime(r.buf[0].At))
		}
		r.next++
		b.Records, b.Split, b.Status = r.buf[:], r.next, connector.Idle
	}
	return b, nil
}

func (r *reader[T]) Close() error { return nil }
