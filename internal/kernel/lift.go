package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
)

// Lifting aggregates on the sending side of an exchange by key (docs/design/windows.md): a sender adds up the
// elements of a key and window, and sends one accumulator for them.
type Lifting[K comparable, V, A any] struct {
	Key    coder.Key[K]
	Acc    coder.Coder[A]
	Create func() A
	Add    func(A, V) A
	// Max is the number of keys and windows that a sender collects before it sends. 0: nothing is lifted.
	Max   int
	Codec *Codec[coder.KV[K, V]] // of elements that are not lifted
}

// lifted is the sum of n elements.
type lifted[A any] struct {
	acc A
	n   int64
}

// Edge completes an Edge by key to an aggregate or sliced operator, which takes both forms. The codec knows both
// whether or not anything is lifted.
func (l Lifting[K, V, A]) Edge(e Edge) Edge {
	codec := &liftCodec[K, V, A]{l.Codec, NewCodec[coder.KV[K, lifted[A]]](liftedCoder[K, A]{l.Key, l.Acc})}
	e.Exchange, e.Codec, e.Lifts = ByKey, codec, l.Max > 0
	plain := Keyed(l.Key, l.Codec)
	if !e.Lifts {
		e.Splitter = plain
		return e
	}
	sums := Keyed(l.Key, codec.lifted)
	e.Splitter = func(c SplitContext) Splitter {
		return &lifter[K, V, A]{
			Lifting: l, plain: plain(c), sums: sums(c),
			table: newTable(tableConfig[K, A]{key: l.Key}, &OpenContext{Subtask: connector.Subtask{Parallelism: 1}, Groups: c.Groups, CacheMax: never}),
		}
	}
	return e
}

// lifter is the Splitter of an edge that lifts.
type lifter[K comparable, V, A any] struct {
	Lifting[K, V, A]
	table       *Table[K, A] // resident always, and never in a checkpoint
	in          int          // elements in it
	bypass      int          // elements that will go through unlifted
	plain, sums Splitter
	out         Rows[coder.KV[K, lifted[A]]]
}

// Split implements Splitter.
func (l *lifter[K, V, A]) Split(b Batch, send func(int, Batch) error) error {
	rows := b.(*Rows[coder.KV[K, V]]).E
	if l.bypass > 0 {
		l.bypass -= len(rows)
		return l.plain.Split(b, send)
	}
	t, add := l.table, l.Add
	var s *segment[K, A]
	var win window.Window
	for i := range rows {
		r := &rows[i]
		if s == nil || r.Window != win {
			win = r.Window
			s, _ = t.segment(win)
		}
		var e *entry[K, A]
		var err error
		if t.native {
			e = s.native.get(t.hasher.hash(r.Value.Key), r.Value.Key)
		} else if e, err = t.find(s, r.Value.Key); err != nil {
			return err
		}
		if e == nil {
			if e, err = t.insert(s, r.Value.Key); err != nil {
				return err
			}
			e.acc = l.Create()
		}
		e.acc = add(e.acc, r.Value.Value)
		e.since++
	}
	l.in += len(rows)
	if t.resident < l.Max {
		return nil
	}
	if l.in < 2*t.resident {
		l.bypass = 64 * BatchSize // hardly worth it: try again later
	}
	return l.drain(send)
}

// drain hands everything that was added up to the splitter of sums.
func (l *lifter[K, V, A]) drain(send func(int, Batch) error) error {
	t := l.table
	if t.resident == 0 {
		return nil
	}
	l.in = 0
	for len(t.clock) > 0 {
		s := t.clock[len(t.clock)-1]
		for i := range s.n {
			e := s.at(i)
			l.out.E = append(l.out.E, Element[coder.KV[K, lifted[A]]]{
				Value: coder.KV[K, lifted[A]]{Key: e.key, Value: lifted[A]{e.acc, e.since}}, Time: s.win.MaxTimestamp(), Window: s.win,
			})
		}
		if err := t.dropSegment(s); err != nil {
			return err
		}
	}
	err := l.sums.Split(&l.out, send)
	clear(l.out.E)
	l.out.E = l.out.E[:0]
	return err
}

// Flush implements Splitter.
func (l *lifter[K, V, A]) Flush(send func(int, Batch) error) error {
	err := l.drain(send)
	if err == nil {
		err = l.sums.Flush(send)
	}
	if err == nil {
		err = l.plain.Flush(send)
	}
	return err
}

// processLifted adds sums to their windows.
func (in *aggregateInput[K, V, A, Out]) processLifted(o *aggregate[K, A, Out], rows []Element[coder.KV[K, lifted[A]]]) error {
	t := o.table
	if err := loadRows(o, rows); err != nil {
		return err
	}
	var s *segment[K, A]
	var win window.Window
	for i := range rows {
		r := &rows[i]
		if s == nil || r.Window != win {
			win = r.Window
			s = o.enter(win)
		}
		sum := r.Value.Value
		if o.slices != nil {
			o.dropped(sum.n * int64(o.slices.ended(win, o.w)))
		} else if s == nil {
			o.dropped(sum.n)
		}
		if s == nil {
			continue
		}
		e, err := t.find(s, r.Value.Key)
		if err == nil && e == nil {
			if e, err = t.insert(s, r.Value.Key); err == nil {
				e.acc = o.Create()
			}
		}
		if err == nil && e.epoch != t.epoch {
			err = t.touch(s, e)
		}
		if err != nil {
			return err
		}
		e.acc = o.Merge(e.acc, sum.acc)
		e.since += sum.n
		if t.evicts {
			e.flags |= flagUsed
		}
		if t.size != nil {
			t.resized(e)
		}
	}
	return nil
}

// liftCodec is the codec of an edge that may lift: a byte that is 1 for sums, and the batch.
type liftCodec[K comparable, V, A any] struct {
	plain  *Codec[coder.KV[K, V]]
	lifted *Codec[coder.KV[K, lifted[A]]]
}

// Append implements BatchCodec.
func (c *liftCodec[K, V, A]) Append(dst []byte, b Batch) ([]byte, error) {
	if _, ok := b.(*Rows[coder.KV[K, lifted[A]]]); ok {
		return c.lifted.Append(append(dst, 1), b)
	}
	return c.plain.Append(append(dst, 0), b)
}

// Decode implements BatchCodec.
func (c *liftCodec[K, V, A]) Decode(src []byte) (Batch, error) {
	if len(src) == 0 || src[0] > 1 {
		return nil, fmt.Errorf("decode batch: it is neither of elements nor of sums")
	}
	if src[0] == 1 {
		return c.lifted.Decode(src[1:])
	}
	return c.plain.Decode(src[1:])
}

// Recycle implements BatchCodec.
func (c *liftCodec[K, V, A]) Recycle(b Batch) {
	if _, ok := b.(*Rows[coder.KV[K, lifted[A]]]); ok {
		c.lifted.Recycle(b)
		return
	}
	c.plain.Recycle(b)
}

// liftedCoder encodes a key, the number of elements and their accumulator.
type liftedCoder[K comparable, A any] struct {
	key coder.Key[K]
	acc coder.Coder[A]
}

func (c liftedCoder[K, A]) Append(dst []byte, kv coder.KV[K, lifted[A]]) ([]byte, error) {
	dst, err := c.key.Append(dst, kv.Key)
	if err != nil {
		return dst, err
	}
	return c.acc.Append(binary.AppendUvarint(dst, uint64(kv.Value.n)), kv.Value.acc)
}

func (c liftedCoder[K, A]) Decode(src []byte) (kv coder.KV[K, lifted[A]], rest []byte, err error) {
	if kv.Key, rest, err = c.key.Decode(src); err != nil {
		return kv, src, err
	}
	n, w := binary.Uvarint(rest)
	if w <= 0 || n < 1 || n >= 1<<62 {
		return kv, src, fmt.Errorf("number of elements is malformed")
	}
	kv.Value.n = int64(n)
	kv.Value.acc, rest, err = c.acc.Decode(rest[w:])
	return kv, rest, err
}
