package kernel

// Change is an element of a collection that may have retractions, or what takes it back.
type Change[T any] struct {
	Value      T
	Retraction bool
}

type changesOp[T any] struct {
	stateless
	out Output
	buf Rows[Change[T]]
}

// NewChanges returns an operator that makes the mark of retractions a part of the value.
func NewChanges[T any]() Operator { return &changesOp[T]{} }

func (o *changesOp[T]) Open(c *OpenContext) error {
	o.out = c.Outputs[0]
	return nil
}

func (o *changesOp[T]) Process(_ int, b Batch) error {
	for _, e := range b.(*Rows[T]).E {
		o.buf.E = append(o.buf.E, Element[Change[T]]{
			Value: Change[T]{e.Value, e.Pane.Retraction()}, Time: e.Time, Window: e.Window, Pane: e.Pane &^ paneRetraction,
		})
	}
	err := o.out.Emit(&o.buf)
	clear(o.buf.E)
	o.buf.E = o.buf.E[:0]
	return err
}
