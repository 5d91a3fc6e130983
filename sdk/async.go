package sdk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
)

// asyncConfig are the options of MapAsync.
type asyncConfig struct {
	option      string // the last that was given
	concurrency int
	ordered     bool
	timeout     time.Duration
	retries     int
	backoff     time.Duration
}

func asyncOption(name string, set func(*asyncConfig)) StepOption {
	return stepOption(func(c *stepConfig) {
		set(&c.async)
		c.async.option = name
	})
}

// Concurrency is the greatest number of calls that each subtask of MapAsync makes at once, from 1 to 1024. Default 16. An element
// that waits to be called again counts, and one whose result waits for others to be Ordered.
func Concurrency(n int) StepOption {
	return asyncOption("Concurrency", func(c *asyncConfig) { c.concurrency = n })
}

// Ordered makes MapAsync emit the results of each subtask in the order of its elements. Default: as they come.
func Ordered() StepOption { return asyncOption("Ordered", func(c *asyncConfig) { c.ordered = true }) }

// Timeout cancels the context of a call of MapAsync after d, in whole milliseconds; if the call then returns an error, that is
// that it took too long. Default: none.
func Timeout(d time.Duration) StepOption {
	return asyncOption("Timeout", func(c *asyncConfig) { c.timeout = d })
}

// Retry makes MapAsync call its function up to so many times more for an element on which it fails: the first time after
// backoff, then after twice that, and so on. Default: no call more.
func Retry(times int, backoff time.Duration) StepOption {
	return asyncOption("Retry", func(c *asyncConfig) { c.retries, c.backoff = times, backoff })
}

// MapAsync replaces each element by f of it, for many elements at once: it is for functions that wait, such as for a server.
// What f returns has the timestamp, window and pane of the element, and the watermark waits for it. Barriers do not: what is in
// flight belongs to the checkpoint, and after a restore f is called for it again. So f may be called more than once for an
// element, but its result is in the output once.
//
// f is called by many goroutines at once. It must return soon after its context is done: after a time-out, or when the job stops.
// An error on which no Retry is left goes to ErrorsTo, or fails the job.
func MapAsync[In, Out any](name string, in PCollection[In], f func(context.Context, In) (Out, error), opts ...StepOption) PCollection[Out] {
	config := configOf(in.p, append([]StepOption{Concurrency(16)}, opts...))
	if f == nil {
		return missing[In, Out](name, in)
	}
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	if in.info().retracts {
		in.p.errorf(name, "its input may have retractions, for which its function could return another thing than for what they take back: put it before the aggregation, or take its input from Changes")
		return PCollection[Out]{p: in.p}
	}
	in = whole(name, 0, in)
	if err := checkAsync(&config); err != nil {
		in.p.errorf(name, "%w", err)
		return PCollection[Out]{p: in.p}
	}
	c, ok := coderFor[In](in.p, name, "its elements in flight belong to checkpoints")
	if !ok {
		return PCollection[Out]{p: in.p}
	}
	a := config.async
	spec := kernel.AsyncSpec[In, Out]{
		Call: f, Input: kernel.NewCodec(c), Concurrency: a.concurrency, Ordered: a.ordered,
		Timeout: eventtime.Time(a.timeout.Milliseconds()), Retries: a.retries, Backoff: eventtime.Time(a.backoff.Milliseconds()),
		ErrorsTo: config.errorsTo != nil,
	}
	n := &kernel.Node{
		Kind: "async", Inputs: []kernel.Edge{forward(in)},
		Spec:  []string{"fn=func", fmt.Sprintf("concurrency=%d ordered=%v timeout=%v retries=%d backoff=%v", a.concurrency, a.ordered, a.timeout, a.retries, a.backoff)},
		State: []kernel.StatePart{encodedBy("in flight", coder.SpecOf(c))},
		New:   func() kernel.Operator { return kernel.NewAsync(spec) },
	}
	if !addWithOutputs[In, Out](name, n, in.p, in.info(), config, nil) {
		return PCollection[Out]{p: in.p}
	}
	return PCollection[Out]{p: in.p, node: n}
}

func checkAsync(c *stepConfig) error {
	a := c.async
	switch {
	case c.lateTo != nil:
		return errors.New("LateTo is for steps that keep state by window; this one drops nothing")
	case a.concurrency < 1 || a.concurrency > kernel.BatchSize:
		return fmt.Errorf("Concurrency(%d): must be from 1 to %d calls of a subtask", a.concurrency, kernel.BatchSize)
	case a.timeout < 0 || a.timeout%time.Millisecond != 0:
		return fmt.Errorf("Timeout(%v): must be whole milliseconds, at least 1; leave it out for none", a.timeout)
	case a.retries < 0 || a.backoff < 0 || a.backoff%time.Millisecond != 0:
		return fmt.Errorf("Retry(%d, %v): neither can be negative, and the second is whole milliseconds", a.retries, a.backoff)
	}
	return nil
}
