// Package memio reads records from a slice and collects committed ones in memory: for tests, and as the
// reference for those who write a connector.
package memio

import (
	"context"
	"fmt"
	"strconv"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// Split is a range of the slice and how far it has been read.
type Split struct {
	Index    int64 // of the split, from 0
	Next     int64 // index in the whole slice of the next record
	From, To int64 // its records in the whole slice, To not included; parts of a divided split have one Index
}

// SliceSource is what Source returns.
type SliceSource[T any] struct {
	rows   []T
	splits int
	batch  int
}

var _ connector.Source[int, Split] = (*SliceSource[int])(nil)

// Option is an option of this connector. It may stand among the sdk.ReadOptions of Read.
type Option struct {
	sdk.ReadOption
	apply func(*options)
}

type options struct{ splits, batch int }

// Splits cuts the slice into n splits of nearly equal size. It is 1 by default.
func Splits(n int) Option {
	return Option{sdk.ConnectorOption("memio.Splits"), func(o *options) { o.splits = n }}
}

// Batch is the greatest number of records that the source returns at a time. It is 1 by default, so that a
// watermark may follow every element.
func Batch(n int) Option {
	return Option{sdk.ConnectorOption("memio.Batch"), func(o *options) { o.batch = n }}
}

// Read reads the records of a slice in order. It keeps the slice, whose records must not change any more,
// and which must be the same when a job is restored.
func Read[T any](name string, p *sdk.Pipeline, rows []T, opts ...sdk.ReadOption) sdk.PCollection[T] {
	var mine []Option
	var rest []sdk.ReadOption
	for _, o := range opts {
		if m, ok := o.(Option); ok {
			mine = append(mine, m)
		} else {
			rest = append(rest, o)
		}
	}
	return sdk.Read(name, p, Source(rows, mine...), rest...)
}

// Source is the source of Read.
func Source[T any](rows []T, opts ...Option) *SliceSource[T] {
	o := options{splits: 1, batch: 1}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return &SliceSource[T]{rows, max(1, o.splits), max(1, o.batch)}
}

// Splits implements [connector.Source].
func (s *SliceSource[T]) Splits(context.Context) ([]Split, error) {
	out := make([]Split, s.splits)
	for i := range out {
		from := s.start(int64(i))
		out[i] = Split{Index: int64(i), Next: from, From: from, To: s.start(int64(i) + 1)}
	}
	return out, nil
}

// start is the index of the first record of a split; that of the next split is where it ends.
func (s *SliceSource[T]) start(split int64) int64 {
	return split * int64(len(s.rows)) / int64(s.splits)
}

// SplitID implements [connector.Source].
func (s *SliceSource[T]) SplitID(sp Split) string {
	id := strconv.FormatInt(sp.Index, 10)
	if sp.From != s.start(sp.Index) {
		id += "@" + strconv.FormatInt(sp.From, 10)
	}
	return id
}

// Open implements [connector.Source].
func (s *SliceSource[T]) Open(context.Context, connector.Subtask) (connector.Reader[T, Split], error) {
	return &reader[T]{source: s}, nil
}

var _ connector.Splitter[Split] = (*reader[int])(nil)

type reader[T any] struct {
	source *SliceSource[T]
	todo   []Split // todo[0] is being read
	out    []T
}

func (r *reader[T]) Assign(splits []Split) error {
	for _, sp := range splits {
		if sp.Index < 0 || sp.Index >= int64(r.source.splits) || sp.From < r.source.start(sp.Index) || sp.Next < sp.From || sp.Next > sp.To || sp.To > r.source.start(sp.Index+1) {
			return fmt.Errorf("read split %d: it has no record %d; is the slice the same as before?", sp.Index, sp.Next)
		}
	}
	r.todo = append(r.todo, splits...)
	return nil
}

func (r *reader[T]) Read(_ context.Context, most int) (b connector.Batch[T, Split], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	sp := &r.todo[0]
	n := min(int64(most), int64(r.source.batch), sp.To-sp.Next)
	r.out = append(r.out[:0], r.source.rows[sp.Next:sp.Next+n]...) // the caller may overwrite what it gets
	sp.Next += n
	b.Records, b.Split, b.Done = r.out, *sp, sp.Next == sp.To
	if b.Done {
		if r.todo = r.todo[1:]; len(r.todo) == 0 {
			b.Status = connector.End
		}
	}
	return b, nil
}

// Split implements [connector.Splitter].
func (r *reader[T]) Split(keep float64) (primary, residual Split, ok bool) {
	if len(r.todo) == 0 {
		return primary, residual, false
	}
	sp := &r.todo[0]
	left := sp.To - sp.Next
	if left < 2 {
		return primary, residual, false
	}
	at := sp.Next + min(max(1, int64(keep*float64(left))), left-1)
	residual = Split{Index: sp.Index, Next: at, From: at, To: sp.To}
	sp.To = at
	return *sp, residual, true
}

func (r *reader[T]) Close() error { return nil }
