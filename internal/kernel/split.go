package kernel

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// splitter spreads the rows of batches over targets, into batches of its own.
type splitter[T any] struct {
	codec   *Codec[T]
	open    []*Rows[T] // part-full batch of each target
	targets int
	next    int  // target, unless byKey says it
	rotates bool // next changes with each batch: else, what one subtask sends to several goes to one, in its order
	all     bool // each row goes to all targets

	// target of the key of a row; nil if rows have none, or for the only target
	byKey func(v *T) (int, error)
}

// Keyed is the Edge.Splitter of a collection of KV.
func Keyed[K comparable, V any](key coder.Key[K], codec *Codec[coder.KV[K, V]]) func(SplitContext) Splitter {
	return func(c SplitContext) Splitter {
		s := newSplitter(c, codec)
		if c.Exchange == ByKey && c.Targets > 1 {
			// Divisions are a sixth of an exchange: the owner of a group is looked up, and with the usual
			// number of groups, a power of two, so is the group.
			owners := make([]int32, c.Groups)
			for g := range owners {
				owners[g] = int32(statebackend.SubtaskOf(statebackend.KeyGroup(g), c.Targets, c.Groups))
			}
			groups := uint64(c.Groups)
			mask, power := groups-1, groups&(groups-1) == 0
			s.byKey = func(kv *coder.KV[K, V]) (int, error) {
				h, err := key.Hash(kv.Key)
				if power {
					return int(owners[h&mask]), err
				}
				return int(owners[h%groups]), err
			}
		}
		return s
	}
}

// Unkeyed is the Edge.Splitter of any other collection.
func Unkeyed[T any](codec *Codec[T]) func(SplitContext) Splitter {
	return func(c SplitContext) Splitter { return newSplitter(c, codec) }
}

func newSplitter[T any](c SplitContext, codec *Codec[T]) *splitter[T] {
	return &splitter[T]{
		codec: codec, open: make([]*Rows[T], c.Targets), targets: c.Targets, next: c.Subtask.Index % c.Targets,
		rotates: c.Exchange == RoundRobin, all: c.Exchange == Broadcast,
	}
}

// Split implements Splitter.
func (s *splitter[T]) Split(b Batch, send func(int, Batch) error) error {
	rows := b.(*Rows[T]).E
	if s.all {
		return s.broadcast(rows, send)
	}
	if s.byKey == nil {
		return s.spread(rows, send)
	}
	for i := range rows {
		t, err := s.byKey(&rows[i].Value)
		if err != nil {
			return fmt.Errorf("encode key %v: %w", Brief(rows[i].Value), err)
		}
		o := s.open[t]
		if o == nil {
			o = s.codec.get()
			s.open[t] = o
		}
		o.E = append(o.E, rows[i])
		if full(o.E) {
			s.open[t] = nil
			if err := send(t, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// spread fills one target's batch after the other.
func (s *splitter[T]) spread(rows []Element[T], send func(int, Batch) error) error {
	for len(rows) > 0 {
		o := s.open[s.next]
		if o == nil {
			o = s.codec.get()
			s.open[s.next] = o
		}
		n := min(len(rows), max(1, BatchSize-len(o.E)))
		for n < len(rows) && n < BatchSize && unfinished(rows[:n]) {
			n++
		}
		o.E = append(o.E, rows[:n]...)
		rows = rows[n:]
		if full(o.E) {
			t := s.next
			s.open[t] = nil
			s.advance(t)
			if err := send(t, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// advance goes on to the target after t.
func (s *splitter[T]) advance(t int) {
	if s.rotates {
		s.next = (t + 1) % s.targets
	}
}

// broadcast sends the batch as it is: who emits rows that are large counts on it.
func (s *splitter[T]) broadcast(rows []Element[T], send func(int, Batch) error) error {
	for t := range s.targets {
		for at := 0; at < len(rows); at += BatchSize {
			o := s.codec.get()
			o.E = append(o.E, rows[at:min(at+BatchSize, len(rows))]...)
			if err := send(t, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// Flush implements Splitter.
func (s *splitter[T]) Flush(send func(int, Batch) error) error {
	for t, o := range s.open {
		if o == nil {
			continue
		}
		s.open[t] = nil
		s.advance(t)
		if err := send(t, o); err != nil {
			return err
		}
	}
	return nil
}

// Codec is the BatchCodec of one element type. Of makes it.
type Codec[T any] struct {
	value coder.Coder[T]
	pool  sync.Pool
}

// NewCodec returns a codec over the coder of the values.
func NewCodec[T any](value coder.Coder[T]) *Codec[T] { return &Codec[T]{value: value} }

func (c *Codec[T]) get() *Rows[T] {
	if r, ok := c.pool.Get().(*Rows[T]); ok {
		return r
	}
	return &Rows[T]{make([]Element[T], 0, BatchSize)}
}

// Recycle implements BatchCodec.
func (c *Codec[T]) Recycle(b Batch) {
	r := b.(*Rows[T])
	clear(r.E) // what the values point to is not the pool's to keep
	r.E = r.E[:0]
	c.pool.Put(r)
}

// A batch is encoded row by row (docs/format/batch.md): number of rows, then for each row its timestamp,
// window start and end (varints, each as the difference to the row before), pane (uvarint) and value.

// Append implements BatchCodec.
func (c *Codec[T]) Append(dst []byte, b Batch) ([]byte, error) {
	rows := b.(*Rows[T]).E
	dst = binary.AppendUvarint(dst, uint64(len(rows)))
	var last Element[T]
	var err error
	for i := range rows {
		e := &rows[i]
		dst = binary.AppendVarint(dst, int64(e.Time-last.Time))
		start := zigzag(e.Window.StartTime() - last.Window.StartTime())
		end := zigzag(e.Window.EndTime() - last.Window.EndTime())
		if pane := uint64(e.Pane); start|end|pane < 0x80 { // nearly always: neighbours share a window
			dst = append(dst, byte(start), byte(end), byte(pane))
		} else {
			dst = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(dst, start), end), pane)
		}
		last.Time, last.Window = e.Time, e.Window
		if dst, err = c.value.Append(dst, e.Value); err != nil {
			return nil, fmt.Errorf("encode %v: %w", Brief(e.Value), err)
		}
	}
	return dst, nil
}

// minRow is the least size of an encoded row, which bounds the rows that a given input can hold.
const minRow = 4

// Decode implements BatchCodec.
func (c *Codec[T]) Decode(src []byte) (Batch, error) {
	n, w := binary.Uvarint(src)
	if w <= 0 || n > uint64(len(src))/minRow {
		return nil, fmt.Errorf("decode batch: %d rows in %d bytes", n, len(src))
	}
	src = src[w:]
	r := c.get()
	var last Element[T]
	for i := range n {
		time, w := binary.Varint(src)
		if w <= 0 {
			return nil, fmt.Errorf("decode row %d of %d: time is malformed", i, n)
		}
		src = src[w:]
		var d [3]uint64 // start, end, pane
		if len(src) >= len(d) && src[0]|src[1]|src[2] < 0x80 {
			d = [3]uint64{uint64(src[0]), uint64(src[1]), uint64(src[2])}
			src = src[len(d):]
		} else {
			for k := range d {
				if d[k], w = binary.Uvarint(src); w <= 0 {
					return nil, fmt.Errorf("decode row %d of %d: window or pane is malformed", i, n)
				}
				src = src[w:]
			}
		}
		e := Element[T]{
			Time:   last.Time + eventtime.Time(time),
			Window: window.New(last.Window.StartTime()+unzigzag(d[0]), last.Window.EndTime()+unzigzag(d[1])),
			Pane:   Pane(d[2]),
		}
		last.Time, last.Window = e.Time, e.Window
		var err error
		if e.Value, src, err = c.value.Decode(src); err != nil {
			return nil, fmt.Errorf("decode row %d of %d: %w", i, n, err)
		}
		r.E = append(r.E, e)
	}
	if len(src) > 0 {
		return nil, fmt.Errorf("decode batch: %d bytes after the last row", len(src))
	}
	return r, nil
}

// zigzag is how binary.AppendVarint makes small numbers of both signs small.
func zigzag(x eventtime.Time) uint64 { return uint64(x)<<1 ^ uint64(x>>63) }

func unzigzag(u uint64) eventtime.Time { return eventtime.Time(u>>1) ^ -eventtime.Time(u&1) }

// Brief is a value for a message: printed, cut at 200 bytes, and valid UTF-8.
func Brief(v any) string {
	s := fmt.Sprintf("%+v", v)
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return toValidUTF8(s)
}
