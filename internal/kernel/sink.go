package kernel

import (
	"context"
	"fmt"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
)

// SinkSpec is the specification of a writing operator.
type SinkSpec[T, C any] struct {
	Sink        connector.Sink[T, C]
	Committable coder.Coder[C]
}

// Node returns the part of the sink that runs beside the coordinator, outside subtasks: it guards itself.
func (s SinkSpec[T, C]) Node() *SinkNode {
	n := &SinkNode{
		Start: func(context.Context, bool) error { return nil },
		Check: func(context.Context, bool) error { return nil },
		Commit: func(ctx context.Context, checkpoint int64, committables [][]byte) error {
			cs := make([]C, len(committables))
			for i, b := range committables {
				c, rest, err := s.Committable.Decode(b)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("%d bytes too many", len(rest))
				}
				if err != nil {
					return fmt.Errorf("decode committable %d of checkpoint %d: %w", i, checkpoint, err)
				}
				cs[i] = c
			}
			return s.Sink.Commit(ctx, checkpoint, cs)
		},
	}
	if st, ok := s.Sink.(connector.Starter); ok {
		n.Start = st.Start
	}
	if ch, ok := s.Sink.(connector.Checker); ok {
		n.Check = ch.Check
	}
	start, check, commit := n.Start, n.Check, n.Commit
	n.Start = func(ctx context.Context, fresh bool) error { return Guard(func() error { return start(ctx, fresh) }) }
	n.Check = func(ctx context.Context, pending bool) error {
		return Guard(func() error { return check(ctx, pending) })
	}
	n.Commit = func(ctx context.Context, checkpoint int64, committables [][]byte) error {
		return Guard(func() error { return commit(ctx, checkpoint, committables) })
	}
	return n
}

type sinkOp[T, C any] struct {
	stateless
	SinkSpec[T, C]
	ctx     context.Context
	writer  connector.Writer[T, C]
	records []connector.Record[T]
}

// NewSink returns a writing operator.
func NewSink[T, C any](spec SinkSpec[T, C]) Operator { return &sinkOp[T, C]{SinkSpec: spec} }

func (o *sinkOp[T, C]) Open(c *OpenContext) (err error) {
	o.ctx = c.Context
	o.writer, err = o.Sink.Open(c.Context, c.Subtask)
	return err
}

func (o *sinkOp[T, C]) Close() error {
	if o.writer == nil {
		return nil
	}
	return o.writer.Close()
}

func (o *sinkOp[T, C]) Process(_ int, b Batch) error {
	rows := b.(*Rows[T]).E
	o.records = resize(o.records, len(rows))
	for i := range rows {
		e := &rows[i]
		o.records[i] = connector.Record[T]{Value: e.Value, Time: e.Time.Time(), Window: e.Window, Pane: e.Pane.Info()}
	}
	err := o.writer.Write(o.ctx, o.records)
	clear(o.records)
	return err
}

// Snapshot implements Stateful.
func (o *sinkOp[T, C]) Snapshot(checkpoint int64, _ bool) (OpSnapshot, error) {
	cs, err := o.writer.Prepare(o.ctx, checkpoint)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("prepare output: %w", err)
	}
	var s OpSnapshot
	for _, c := range cs {
		b, err := o.Committable.Append(nil, c)
		if err != nil {
			return OpSnapshot{}, fmt.Errorf("encode committable: %w", err)
		}
		s.Committables = append(s.Committables, b)
	}
	return s, nil
}
