// Package watermark estimates how complete event time is: one generator for each split of a source.
package watermark

import (
	"errors"
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// Strategy makes a Generator for each split.
type Strategy interface{ New() Generator }

// Generator belongs to one split and one goroutine.
type Generator interface {
	// Observe sees the timestamp of each element in the order of the split.
	Observe(t time.Time)
	// Watermark promises that no element before it will come from this split. It is asked after each
	// batch that was read; going back has no effect.
	Watermark() time.Time
}

// Silencer is an optional part of a Generator that knows by itself whether its split has fallen silent and
// must not hold the watermark back. It is asked after each read, also one that brought nothing.
type Silencer interface{ Silent() bool }

// Idler is implemented by a Strategy whose splits may fall silent: see WithIdleness.
type Idler interface{ IdleAfter() time.Duration }

// BoundedStrategy is what Bounded and Monotonic return. Runners evaluate it without calling a Generator.
type BoundedStrategy struct{ Disorder time.Duration }

// Bounded expects elements at most disorder behind the latest one before them in their split; the
// watermark is the greatest timestamp less disorder. Elements further behind may be late.
func Bounded(disorder time.Duration) BoundedStrategy { return BoundedStrategy{disorder} }

// Monotonic expects the timestamps of a split never to go back.
func Monotonic() BoundedStrategy { return BoundedStrategy{} }

// New implements Strategy.
func (b BoundedStrategy) New() Generator {
	return &bounded{disorder: b.Disorder.Milliseconds(), greatest: eventtime.Min}
}

type bounded struct {
	disorder int64 // ms
	greatest eventtime.Time
}

func (b *bounded) Observe(t time.Time)  { b.greatest = max(b.greatest, eventtime.FromTime(t)) }
func (b *bounded) Watermark() time.Time { return b.greatest.Add(-b.disorder).Time() }

// WithIdleness declares a split of s idle once it has brought nothing for d of processing time, so that
// it no longer holds the watermark back. Without it a silent split holds for ever.
func WithIdleness(s Strategy, d time.Duration) Strategy { return idle{s, d} }

type idle struct {
	Strategy
	after time.Duration
}

func (i idle) IdleAfter() time.Duration { return i.after }

// Unwrap returns the strategy below WithIdleness.
func Unwrap(s Strategy) Strategy {
	for {
		i, ok := s.(idle)
		if !ok {
			return s
		}
		s = i.Strategy
	}
}

// Validate says what is wrong with s.
func Validate(s Strategy) error {
	if s == nil || Unwrap(s) == nil {
		return errors.New("EventTime has no watermark strategy: use watermark.Bounded or watermark.Monotonic")
	}
	for _, o := range []struct {
		name string
		d    time.Duration
	}{{"Bounded", disorderOf(s)}, {"WithIdleness", silenceOf(s)}} {
		if o.d < 0 || o.d%time.Millisecond != 0 {
			return fmt.Errorf("watermark.%s(%v): must not be negative, and whole milliseconds", o.name, o.d)
		}
	}
	return nil
}

func disorderOf(s Strategy) time.Duration {
	b, _ := Unwrap(s).(BoundedStrategy)
	return b.Disorder
}

func silenceOf(s Strategy) time.Duration {
	if i, ok := s.(Idler); ok {
		return i.IdleAfter()
	}
	return 0
}
