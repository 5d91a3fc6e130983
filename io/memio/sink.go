package memio

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// Collector is a sink that collects committed records, exactly once. The zero value is empty and ready.
//
// Its committables hold the records themselves, so that they can be committed in any process and a crash
// loses whatever no checkpoint lists. That suits tests; real output is staged where it is to be.
type Collector[T any] struct {
	mu   sync.Mutex
	rows []T
	done map[string]bool // nonces of the parts that are in rows
}

// Part is the committable: what one subtask wrote between two checkpoints.
type Part[T any] struct {
	Nonce string // unlike that of any other part, also of one prepared anew for the same checkpoint
	Rows  []T
}

var _ connector.Sink[int, Part[int]] = (*Collector[int])(nil)

// Write collects what is committed of a collection in out.
func Write[T any](name string, in sdk.PCollection[T], out *Collector[T]) { sdk.Write(name, in, out) }

// Rows returns a copy of what has been committed: by checkpoint, and in each by subtask.
func (c *Collector[T]) Rows() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rows)
}

// Open implements [connector.Sink].
func (c *Collector[T]) Open(context.Context, connector.Subtask) (connector.Writer[T, Part[T]], error) {
	return &writer[T]{}, nil
}

// Commit implements [connector.Sink].
func (c *Collector[T]) Commit(_ context.Context, _ int64, parts []Part[T]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range parts {
		if c.done[p.Nonce] {
			continue
		}
		if c.done == nil {
			c.done = map[string]bool{}
		}
		c.done[p.Nonce] = true
		c.rows = append(c.rows, p.Rows...)
	}
	return nil
}

type writer[T any] struct{ rows []T }

func (w *writer[T]) Write(_ context.Context, records []connector.Record[T]) error {
	for i := range records {
		w.rows = append(w.rows, records[i].Value)
	}
	return nil
}

func (w *writer[T]) Prepare(context.Context, int64) ([]Part[T], error) {
	if len(w.rows) == 0 {
		return nil, nil
	}
	p := Part[T]{rand.Text(), w.rows}
	w.rows = nil
	return []Part[T]{p}, nil
}

func (w *writer[T]) Close() error { return nil }
