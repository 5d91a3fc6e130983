package kernel

import (
	"fmt"
	"reflect"
)

// partitionOp sends each row to one of its outputs.
type partitionOp[T any] struct {
	stateless
	f        func(T) int
	outs     []Output
	bufs     []Rows[T]
	pointers bool // T holds some
}

// NewPartition returns an operator that sends each value v to its output f(v).
func NewPartition[T any](f func(T) int) Operator { return &partitionOp[T]{f: f} }

func (p *partitionOp[T]) Open(c *OpenContext) error {
	p.outs, p.bufs, p.pointers = c.Outputs, make([]Rows[T], len(c.Outputs)), hasPointers(reflect.TypeFor[T]())
	return nil
}

func (p *partitionOp[T]) Process(_ int, b Batch) error {
	rows := b.(*Rows[T]).E
	for i := range rows {
		k := p.f(rows[i].Value)
		if uint(k) >= uint(len(p.bufs)) {
			return &UserError{Brief(rows[i].Value), fmt.Errorf("its partition is %d, but there are 0 to %d: make the function return one of those", k, len(p.bufs)-1)}
		}
		to := &p.bufs[k]
		to.E = append(to.E, rows[i])
	}
	for k := range p.bufs {
		to := &p.bufs[k]
		if len(to.E) == 0 {
			continue
		}
		if err := p.outs[k].Emit(to); err != nil {
			return err
		}
		if p.pointers {
			clear(to.E)
		}
		to.E = to.E[:0]
	}
	return nil
}
