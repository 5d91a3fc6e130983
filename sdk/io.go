package sdk

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
)

// ReadOption refines a reading step.
type ReadOption interface{ applyRead(*readConfig) }

type readConfig struct {
	at       any // func(T) time.Time
	strategy watermark.Strategy
	maxRate  float64
	foreign  string // an option of another connector
}

type readOption func(*readConfig)

func (f readOption) applyRead(c *readConfig) { f(c) }

// EventTime gives the elements event time: at tells that of each, s how complete it is. A zero time means
// that an element has none; it counts as the beginning of time.
func EventTime[T any](at func(T) time.Time, s watermark.Strategy) ReadOption {
	return readOption(func(c *readConfig) { c.at, c.strategy = at, s })
}

// MaxRate limits the step to so many records a second, over all subtasks. 0: no limit. Each of n subtasks has an n-th of it,
// whether or not it has something to read: a source of one split, as one file is, so reads at perSecond / n. Bursts are of a
// tenth of a second.
func MaxRate(perSecond float64) ReadOption {
	return readOption(func(c *readConfig) { c.maxRate = perSecond })
}

// ConnectorOption is a ReadOption that means something to one connector only, which takes it out before it
// calls Read. name is for the message to a user who gives it to another. Connectors embed it in an option
// type of their own.
func ConnectorOption(name string) ReadOption {
	return readOption(func(c *readConfig) { c.foreign = name })
}

// Read reads a source. Connectors wrap it.
func Read[T, S any, Src connector.Source[T, S]](name string, p *Pipeline, src Src, opts ...ReadOption) PCollection[T] {
	out := PCollection[T]{p: p}
	var config readConfig
	for _, o := range opts {
		o.applyRead(&config)
	}
	if config.foreign != "" {
		p.errorf(name, "the option %s is not for this connector", config.foreign)
		return out
	}
	if c, ok := any(src).(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			p.errorf(name, "%w", err)
			return out
		}
	}
	splits, ok := coderFor[S](p, name, "its splits are kept in checkpoints")
	if !ok {
		return out
	}
	spec := kernel.SourceSpec[T, S]{Source: src, Split: splits, Strategy: config.strategy, MaxRate: config.maxRate}
	if config.at != nil {
		if spec.At, ok = config.at.(func(T) time.Time); !ok {
			p.errorf(name, "EventTime wants a func(%v) time.Time, not a %T", reflect.TypeFor[T](), config.at)
			return out
		}
		if err := watermark.Validate(config.strategy); err != nil {
			p.errorf(name, "%w", err)
			return out
		}
	}
	if config.maxRate < 0 {
		p.errorf(name, "MaxRate(%v): must not be negative", config.maxRate)
		return out
	}
	n := &kernel.Node{
		Kind: "read", Ports: []kernel.Port{port[T](p, "out")}, Splits: spec.EncodeSplits, SetSplits: kernel.SetSplits[T, S],
		New: func() kernel.Operator { return kernel.NewSource(spec) },
		Fn:  fmt.Sprintf("%T", src), Spec: []string{fmt.Sprintf("source=%T", src)},
		State: []kernel.StatePart{encodedBy("split", coder.SpecOf(splits))},
	}
	c := collection{windowing: defaultWindowing, bounded: true, timed: config.at != nil}
	if u, ok := any(src).(connector.Unbounded); ok {
		n.Unbounded = u.Unbounded()
		c.bounded = !n.Unbounded
	}
	if !p.add(name, n, c) {
		return out
	}
	out.node = n
	return out
}

// Write writes a collection to a sink, exactly once. Connectors wrap it.
func Write[T, C any, S connector.Sink[T, C]](name string, in PCollection[T], sink S) {
	if !in.usable(name) {
		return
	}
	if in.info().retracts {
		why := "which the sink would write as elements: write what sdk.Changes makes of it"
		if w, ok := any(sink).(withoutRetractions); ok {
			why = w.WithoutRetractions()
		}
		in.p.errorf(name, "its input may have retractions, %s", why)
		return
	}
	in = whole(name, 0, in)
	committables, ok := coderFor[C](in.p, name, "its committables are kept in checkpoints")
	if !ok {
		return
	}
	spec := kernel.SinkSpec[T, C]{Sink: sink, Committable: committables}
	in.p.add(name, &kernel.Node{
		Kind: "write", Inputs: []kernel.Edge{forward(in)}, Sink: spec.Node(),
		New: func() kernel.Operator { return kernel.NewSink(spec) },
		Fn:  fmt.Sprintf("%T", sink), Spec: []string{fmt.Sprintf("sink=%T", sink)},
		State: []kernel.StatePart{encodedBy("committable", coder.SpecOf(committables))},
	})
}

// Create makes a bounded collection of the values, for tests and examples.
func Create[T any](name string, p *Pipeline, vs ...T) PCollection[T] {
	return Read(name, p, created[T]{vs})
}

// created reads values of the program. Its split is the index of the next.
type created[T any] struct{ vs []T }

func (c created[T]) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (c created[T]) SplitID(int64) string                    { return "values" }
func (c created[T]) Open(context.Context, connector.Subtask) (connector.Reader[T, int64], error) {
	return &createdReader[T]{vs: c.vs}, nil
}

type createdReader[T any] struct {
	vs   []T
	next int64
	done bool
	buf  []T
}

func (r *createdReader[T]) Assign(s []int64) error { r.next = s[0]; return nil }
func (r *createdReader[T]) Close() error           { return nil }
func (r *createdReader[T]) Read(_ context.Context, limit int) (connector.Batch[T, int64], error) {
	if r.done {
		return connector.Batch[T, int64]{Status: connector.End}, nil
	}
	n := min(int64(limit), int64(len(r.vs))-r.next)
	r.buf = append(r.buf[:0], r.vs[r.next:r.next+n]...)
	r.next += n
	r.done = r.next == int64(len(r.vs))
	return connector.Batch[T, int64]{Records: r.buf, Split: r.next, Done: r.done}, nil
}
