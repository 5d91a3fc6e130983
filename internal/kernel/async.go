package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// Async is an Operator whose work is done by calls beside the subtask: see OpenContext.Go. Its host brings no elements
// while it is full.
type Async interface {
	// Full says that the operator has as much as it may keep, until Collect has made room.
	Full() bool
	// Collect emits what has come back and does what is due at the time now of OpenContext.Elapsed. It returns false if
	// there was nothing to do. It is not called while an operator that its output can reach is in the midst of a firing.
	Collect(now eventtime.Time) (worked bool, err error)
	// NextCollect is the time, of OpenContext.Elapsed, from which Collect has something to do that no call brings;
	// eventtime.Max if there is nothing.
	NextCollect() eventtime.Time
}

// AsyncSpec is the specification of an operator that calls a function for many elements at once.
type AsyncSpec[In, Out any] struct {
	Call        func(context.Context, In) (Out, error)
	Input       *Codec[In] // for what is in flight at a checkpoint
	Concurrency int        // greatest number of calls of a subtask that are made at once, or wait to be made again
	Ordered     bool       // results come in the order of their elements
	Timeout     eventtime.Time
	Retries     int            // calls after the first for an element that fails
	Backoff     eventtime.Time // before the second call; twice that before the third, and so on
	ErrorsTo    bool           // what fails for good goes to port 1
}

// asyncOp is described in docs/design/async.md.
type asyncOp[In, Out any] struct {
	AsyncSpec[In, Out]
	c *OpenContext
	// pending are the elements whose results were not emitted, in order of arrival. The first sent of them have a call,
	// or had; the others wait.
	pending  []*asyncCall[In, Out]
	sent     int
	returned bool           // some call has, since Collect looked
	due      eventtime.Time // the least of pending's, or before it
	hold     eventtime.Time // the least timestamp of pending
	out      Rows[Out]
	failed   Rows[Failed[In]]
}

// asyncCall is an element and what becomes of it. While its call runs, the call alone writes result, err and panicked.
type asyncCall[In, Out any] struct {
	in       Element[In]
	running  bool
	answered bool // result is there, or an error that is final
	timedOut bool
	tries    int
	due      eventtime.Time // when a running call times out, or another is to be made
	cancel   func()

	result Out
	err    error
	broken bool // it panicked, or ended its goroutine
}

// NewAsync returns an operator that replaces each element by the result of a call beside the subtask, with the
// timestamp, window and pane of the element.
func NewAsync[In, Out any](spec AsyncSpec[In, Out]) Operator {
	return &asyncOp[In, Out]{AsyncSpec: spec, due: eventtime.Max, hold: eventtime.Max}
}

func (o *asyncOp[In, Out]) Open(c *OpenContext) error {
	o.c = c
	if c.Restore == nil || len(c.Restore.Blob) == 0 {
		return nil
	}
	b, err := o.Input.Decode(c.Restore.Blob)
	if err != nil {
		return fmt.Errorf("restore checkpoint %d: elements in flight: %w", c.Restore.Checkpoint, err)
	}
	o.take(b.(*Rows[In]).E)
	return nil
}

func (o *asyncOp[In, Out]) Process(_ int, b Batch) error {
	o.take(b.(*Rows[In]).E)
	return nil
}

func (o *asyncOp[In, Out]) take(rows []Element[In]) {
	for _, r := range rows {
		o.pending = append(o.pending, &asyncCall[In, Out]{in: r, due: eventtime.Max})
		o.hold = min(o.hold, r.Time)
	}
	o.send()
}

// send makes calls for elements that wait, as many as may be made.
func (o *asyncOp[In, Out]) send() {
	for o.sent < len(o.pending) && o.sent < o.Concurrency {
		o.call(o.pending[o.sent])
		o.sent++
	}
}

func (o *asyncOp[In, Out]) call(k *asyncCall[In, Out]) {
	k.running, k.timedOut, k.due = true, false, eventtime.Max
	k.tries++
	if o.Timeout > 0 {
		k.due = o.c.Elapsed().Add(int64(o.Timeout))
		o.due = min(o.due, k.due)
	}
	k.cancel = o.c.Go(func(ctx context.Context) {
		returned := false
		Watch(func() (err error) {
			k.result, err = o.Call(ctx, k.in.Value)
			returned = true
			return err
		}, func(err error) { k.err, k.broken = err, !returned })
	}, func() { k.running, o.returned = false, true })
}

// Full implements Async.
func (o *asyncOp[In, Out]) Full() bool { return o.sent < len(o.pending) }

// NextCollect implements Async.
func (o *asyncOp[In, Out]) NextCollect() eventtime.Time { return o.due }

// Hold implements Holder.
func (o *asyncOp[In, Out]) Hold() eventtime.Time { return o.hold }

// Collect implements Async.
func (o *asyncOp[In, Out]) Collect(now eventtime.Time) (bool, error) {
	if !o.returned && now < o.due {
		return false, nil
	}
	o.returned, o.due = false, eventtime.Max
	for _, k := range o.pending[:o.sent] {
		if err := o.look(k, now); err != nil {
			return true, err
		}
		o.due = min(o.due, k.due)
	}
	o.remove()
	o.send()
	return true, o.emit()
}

// look moves one element on: its call may have returned, or something may be due.
func (o *asyncOp[In, Out]) look(k *asyncCall[In, Out], now eventtime.Time) error {
	switch {
	case k.answered:
	case k.running && k.due <= now:
		k.timedOut, k.due = true, eventtime.Max
		k.cancel()
	case k.running:
	case k.due <= now && k.err != nil && k.cancel == nil: // has waited for its next call
		o.call(k)
	case k.cancel != nil: // has returned
		k.cancel()
		k.cancel, k.due = nil, eventtime.Max
		return o.returns(k, now)
	}
	return nil
}

// returns says what follows from the end of a call.
func (o *asyncOp[In, Out]) returns(k *asyncCall[In, Out], now eventtime.Time) error {
	switch {
	case k.broken:
		return &UserError{Brief(k.in.Value), k.err}
	case k.err == nil:
		k.answered = true
		return nil
	case k.timedOut:
		k.err = fmt.Errorf("no answer within %v: %w", time.Duration(o.Timeout)*time.Millisecond, errors.Join(context.DeadlineExceeded, k.err))
	}
	if k.tries <= o.Retries {
		k.due = now.Add(int64(o.Backoff) << min(k.tries-1, 20))
		if k.due > now {
			return nil
		}
		o.call(k)
		return nil
	}
	if !o.ErrorsTo {
		return &UserError{Brief(k.in.Value), k.err}
	}
	k.answered = true
	return nil
}

// remove takes from pending what can be emitted.
func (o *asyncOp[In, Out]) remove() {
	ready := func(k *asyncCall[In, Out]) bool {
		if !k.answered {
			return false
		}
		at := &k.in
		if k.err != nil {
			o.failed.E = append(o.failed.E, Element[Failed[In]]{Failed[In]{at.Value, toValidUTF8(k.err.Error())}, at.Time, at.Window, at.Pane})
		} else {
			o.out.E = append(o.out.E, Element[Out]{k.result, at.Time, at.Window, at.Pane})
		}
		return true
	}
	was := len(o.pending)
	if o.Ordered {
		n := 0
		for n < o.sent && ready(o.pending[n]) {
			n++
		}
		o.pending = slices.Delete(o.pending, 0, n)
	} else {
		o.pending = slices.DeleteFunc(o.pending, ready)
	}
	if len(o.pending) == was {
		return
	}
	o.sent -= was - len(o.pending)
	o.hold = eventtime.Max
	for _, k := range o.pending {
		o.hold = min(o.hold, k.in.Time)
	}
}

// emit sends what remove has found. Its elements hold the watermark no more, but nobody is told before they are sent.
func (o *asyncOp[In, Out]) emit() error {
	if len(o.out.E) > 0 {
		err := o.c.Outputs[0].Emit(&o.out)
		clear(o.out.E)
		o.out.E = o.out.E[:0]
		if err != nil {
			return err
		}
	}
	if len(o.failed.E) > 0 {
		err := o.c.Outputs[1].Emit(&o.failed)
		clear(o.failed.E)
		o.failed.E = o.failed.E[:0]
		return err
	}
	return nil
}

func (o *asyncOp[In, Out]) Watermark(eventtime.Time, int) (bool, error) { return true, nil }

// Snapshot implements Stateful (docs/format/async-state.md).
func (o *asyncOp[In, Out]) Snapshot(int64, bool) (OpSnapshot, error) {
	if len(o.pending) == 0 {
		return OpSnapshot{}, nil
	}
	rows := Rows[In]{make([]Element[In], len(o.pending))}
	for i, k := range o.pending {
		rows.E[i] = k.in
	}
	b, err := o.Input.Append(nil, &rows)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("encode the elements in flight: %w", err)
	}
	return OpSnapshot{Blob: b}, nil
}

func (o *asyncOp[In, Out]) Close() error { return nil }

// sleeperKey finds a sleeper in the context of a call.
type sleeperKey struct{}

// WithSleep gives calls a sleep that their scheduler knows.
func WithSleep(ctx context.Context, sleep func(d time.Duration)) context.Context {
	return context.WithValue(ctx, sleeperKey{}, sleep)
}

// Sleep waits for d, or until ctx is done, by the clock of the scheduler that runs the call with ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	sleep, ok := ctx.Value(sleeperKey{}).(func(time.Duration))
	if !ok {
		return errors.New("this context is not that of a call of MapAsync")
	}
	sleep(d)
	return ctx.Err()
}
