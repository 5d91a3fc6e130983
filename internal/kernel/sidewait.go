package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// waiting keeps elements that wait, a queue for each window, in chunks of a table: so that there may be more of them
// than memory.
type waiting[In any] struct {
	table  *Table[uint64, chunk]
	queues map[window.Window]*waitQueue
	order  []*waitQueue   // by window
	hold   eventtime.Time // the least of the queues; eventtime.Max if there is none
}

// waitQueue is the elements of a window, oldest first.
type waitQueue struct {
	win         window.Window
	hold        eventtime.Time // their least timestamp
	first, next uint64         // chunks
}

// chunk is a *Rows[In], or part of a view. As an interface, it makes all of them share one compiled table.
type chunk any

// chunkRows is the greatest number of elements to which a chunk grows.
const chunkRows = 256

func newWaiting[In any](codec *Codec[In], c *OpenContext, table statebackend.Table, cacheMax int64) (*waiting[In], error) {
	q := &waiting[In]{queues: map[window.Window]*waitQueue{}, hold: eventtime.Max}
	q.table = newTable(tableConfig[uint64, chunk]{newOwnedKey(c), chunkCoder[In]{codec}, chunkSizer[In]()}, c)
	q.table.id, q.table.max, q.table.native, q.table.tail = table, cacheMax, true, ownedTail
	if c.Restore == nil {
		return q, nil
	}
	return q, q.table.restore(func(*segment[uint64, chunk]) {})
}

// add appends elements of one window.
func (q *waiting[In]) add(rows []Element[In]) error {
	win := rows[0].Window
	w := q.queues[win]
	if w == nil {
		w = &waitQueue{win: win, hold: eventtime.Max}
		q.enter(w)
	}
	for i := range rows {
		w.hold = min(w.hold, rows[i].Time)
	}
	q.hold = min(q.hold, w.hold)
	s, _ := q.table.segment(win)
	if w.next > w.first {
		e, err := q.table.find(s, w.next-1)
		if err != nil {
			return err
		}
		if e != nil {
			if last := e.acc.(*Rows[In]); len(last.E)+len(rows) <= chunkRows {
				if e.epoch != q.table.epoch {
					if err := q.table.touch(s, e); err != nil {
						return err
					}
				}
				last.E = append(last.E, rows...)
				q.table.resized(e)
				return q.table.evict()
			}
		}
	}
	if err := q.table.put(s, w.next, &Rows[In]{E: slices.Clone(rows)}); err != nil {
		return err
	}
	w.next++
	return q.table.evict()
}

func (q *waiting[In]) enter(w *waitQueue) {
	q.queues[w.win] = w
	i := sort.Search(len(q.order), func(i int) bool { return w.win.Compare(q.order[i].win) < 0 })
	q.order = slices.Insert(q.order, i, w)
}

// take removes the oldest chunk of a queue and returns it.
func (q *waiting[In]) take(w *waitQueue) ([]Element[In], error) {
	s, _ := q.table.segment(w.win)
	e, err := q.table.find(s, w.first)
	if err == nil && e == nil {
		if err = q.table.miss(s, w.first); err == nil {
			if err = q.table.load(); err == nil {
				e, err = q.table.find(s, w.first)
			}
		}
		if err == nil && e == nil {
			err = fmt.Errorf("chunk %d is missing in the state", w.first)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("elements that wait in window %v: %w", w.win, err)
	}
	rows := e.acc.(*Rows[In]).E
	if err := q.table.remove(s, e); err != nil {
		return nil, err
	}
	if w.first++; w.first < w.next {
		return rows, nil
	}
	delete(q.queues, w.win)
	q.order = slices.DeleteFunc(q.order, func(o *waitQueue) bool { return o == w })
	q.hold = eventtime.Max
	for _, o := range q.order {
		q.hold = min(q.hold, o.hold)
	}
	return rows, q.table.dropSegment(s)
}

func (q *waiting[In]) appendBlob(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(q.order)))
	for _, w := range q.order {
		dst = binary.AppendVarint(appendWindow(dst, w.win, 0), int64(w.hold))
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, w.first), w.next-w.first)
	}
	return dst
}

func (q *waiting[In]) parseBlob(src []byte) ([]byte, error) {
	d := varints{src: src}
	for n := d.unsigned("number of queues"); n > 0 && d.err == nil; n-- {
		w := &waitQueue{win: d.window(0)}
		w.hold = eventtime.Clamp(eventtime.Time(d.signed("hold")))
		w.first = d.unsigned("first chunk")
		w.next = w.first + d.unsigned("number of chunks")
		if w.next == w.first || q.queues[w.win] != nil {
			d.fail("list of queues")
		}
		q.enter(w)
		q.hold = min(q.hold, w.hold)
	}
	return d.src, d.err
}

// ownedKey encodes numbers as keys of a subtask's own key groups, for tables that are not by key.
type ownedKey struct{ anchor [2]byte }

const ownedTail = 8 // bytes of a key that have no part in its key group

func newOwnedKey(c *OpenContext) ownedKey {
	owned := ownedGroups(c.Subtask, c.Groups)
	var k ownedKey
	for n := 0; n < 1<<16; n++ { // each group has hundreds
		binary.BigEndian.PutUint16(k.anchor[:], uint16(n))
		if g := statebackend.KeyGroupFor(k.anchor[:], c.Groups); g >= owned.First && g < owned.End {
			return k
		}
	}
	panic("kernel: a subtask owns no key group")
}

func (k ownedKey) Append(dst []byte, n uint64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(append(dst, k.anchor[:]...), n), nil
}

func (k ownedKey) Decode(src []byte) (uint64, []byte, error) {
	if len(src) < len(k.anchor)+ownedTail {
		return 0, src, fmt.Errorf("a numbered key has %d bytes", len(src))
	}
	return binary.BigEndian.Uint64(src[len(k.anchor):]), src[len(k.anchor)+ownedTail:], nil
}

// chunkCoder encodes a chunk as a batch. It takes all that is left of the source.
type chunkCoder[T any] struct{ codec *Codec[T] }

func (r chunkCoder[T]) Append(dst []byte, c chunk) ([]byte, error) {
	return r.codec.Append(dst, c.(*Rows[T]))
}

func (r chunkCoder[T]) Decode(src []byte) (chunk, []byte, error) {
	b, err := r.codec.Decode(src)
	if err != nil {
		return nil, src, err
	}
	es := slices.Clone(b.(*Rows[T]).E)
	r.codec.Recycle(b)
	return &Rows[T]{es}, nil, nil
}

// chunkSizer returns the function that measures the heap memory of a chunk.
func chunkSizer[T any]() func(*chunk) int {
	elements := Footprint[[]Element[T]]()
	return func(c *chunk) int {
		rows, ok := (*c).(*Rows[T])
		if !ok {
			return 0 // it has no value yet
		}
		return int(unsafe.Sizeof(*rows)) + elements(&rows.E)
	}
}

func elementBytes[E any]() int {
	var e E
	return int(unsafe.Sizeof(e))
}
