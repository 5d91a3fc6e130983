// Package periodic makes elements by the clock: one every so often, for what has to be done or looked at again and again.
//
//	ticks := periodic.Sequence("every hour", p, time.Hour)
//	rates := sdk.MapErr("fetch", ticks, fetchRates)
//
// makes a table that is fetched anew every hour; as a side view it is one that changes slowly.
package periodic

import (
	"context"
	"fmt"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
)

// Option refines a Sequence.
type Option func(*sequence)

// From sets the time of the first element. One in the past is made up for: what is overdue comes at once. Default: the
// processing time at which the job first reads the sequence.
func From(t time.Time) Option { return func(s *sequence) { s.from, s.fromSet = t, true } }

// Until ends the sequence, which is bounded then: its elements are before t. Default: it never ends.
func Until(t time.Time) Option { return func(s *sequence) { s.until, s.untilSet = t, true } }

// Sequence makes an element at every start + n·every of processing time, for n from 0 on. Each is that time, in UTC and whole
// milliseconds, and has it as its timestamp. The watermark is the time of the next element, so that windows up to it
// fire at once.
//
// There is one sequence whatever the parallelism. No element is left out or comes twice after a restore: those that
// became due while the job did not run come at once. every is at least 1 ms.
func Sequence(name string, p *sdk.Pipeline, every time.Duration, opts ...Option) sdk.PCollection[time.Time] {
	s := &sequence{every: every}
	for _, o := range opts {
		o(s)
	}
	return sdk.Read(name, p, s, sdk.EventTime(func(t time.Time) time.Time { return t }, following{every}))
}

// following is the strategy by which the watermark is the time of the next element.
type following struct{ every time.Duration }

// New implements watermark.Strategy.
func (f following) New() watermark.Generator { return &next{every: f.every} }

type next struct {
	every time.Duration
	t     time.Time
}

func (n *next) Observe(t time.Time)  { n.t = t.Add(n.every) }
func (n *next) Watermark() time.Time { return n.t }

// sequence is the source. It has one split.
type sequence struct {
	every             time.Duration
	from, until       time.Time
	fromSet, untilSet bool
}

var (
	_ connector.Source[time.Time, position] = (*sequence)(nil)
	_ connector.Bounder[position]           = (*sequence)(nil)
	_ connector.Unbounded                   = (*sequence)(nil)
	_ connector.Timed                       = (*reader)(nil)
)

// position is the next element.
type position struct {
	Set  bool  // else the sequence begins when it is first read
	Next int64 // ms since the epoch
}

// least and most bound the times of elements, so that sums cannot overflow.
var (
	least = time.Date(-10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	most  = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Check refuses what makes no sequence.
func (s *sequence) Check() error {
	switch {
	case s.every < time.Millisecond || s.every%time.Millisecond != 0:
		return fmt.Errorf("a sequence every %v: use whole milliseconds, at least 1", s.every)
	case s.fromSet && (s.from.Before(least) || s.from.After(most)):
		return fmt.Errorf("a sequence from %v: use a time from the year -10000 to 10000", s.from)
	case s.untilSet && (s.until.Before(least) || s.until.After(most)):
		return fmt.Errorf("a sequence until %v: use a time from the year -10000 to 10000, or leave Until out", s.until)
	case s.fromSet && s.untilSet && s.until.Before(s.from):
		return fmt.Errorf("a sequence from %v until %v ends before it begins", s.from, s.until)
	}
	return nil
}

func (s *sequence) Unbounded() bool { return !s.untilSet }

func (s *sequence) Splits(context.Context) ([]position, error) {
	if !s.fromSet {
		return []position{{}}, nil
	}
	return []position{{true, s.from.UnixMilli()}}, nil
}

func (s *sequence) SplitID(position) string { return "sequence" }

// LowerBound implements connector.Bounder: nothing comes before the first element.
func (s *sequence) LowerBound(p position) time.Time {
	if !p.Set {
		return least
	}
	return time.UnixMilli(p.Next)
}

func (s *sequence) Open(context.Context, connector.Subtask) (connector.Reader[time.Time, position], error) {
	return &reader{sequence: s}, nil
}

type reader struct {
	*sequence
	now  func() time.Time
	at   position
	done bool
	buf  []time.Time
}

func (r *reader) Clock(now func() time.Time) { r.now = now }

func (r *reader) Due() time.Time { return time.UnixMilli(r.at.Next) }

func (r *reader) Assign(splits []position) error {
	r.at = splits[0]
	return nil
}

// Read makes what is due.
func (r *reader) Read(_ context.Context, limit int) (b connector.Batch[time.Time, position], _ error) {
	if r.done {
		b.Status = connector.End
		return b, nil
	}
	now := r.now()
	if !r.at.Set {
		r.at = position{true, now.UnixMilli()}
	}
	r.buf = r.buf[:0]
	for len(r.buf) < limit && r.at.Next <= now.UnixMilli() && !r.over() {
		r.buf = append(r.buf, time.UnixMilli(r.at.Next).UTC())
		r.at.Next += r.every.Milliseconds()
	}
	r.done = r.over()
	b.Records, b.Split, b.Done = r.buf, r.at, r.done
	if len(r.buf) < limit && !r.done {
		b.Status = connector.Idle
	}
	return b, nil
}

// over says that no element follows.
func (r *reader) over() bool { return r.untilSet && r.at.Next >= r.until.UnixMilli() }

func (r *reader) Close() error { return nil }
