package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// SourceSpec is the specification of a reading operator.
type SourceSpec[T, S any] struct {
	Source   connector.Source[T, S]
	Split    coder.Coder[S]
	At       func(T) time.Time  // event time; nil: every element is at the beginning of time
	Strategy watermark.Strategy // with At
	MaxRate  float64            // records a second of the whole step; 0: no limit
}

// EncodeSplits lists the splits of the source, encoded. It runs outside subtasks, and guards itself.
func (s SourceSpec[T, S]) EncodeSplits(ctx context.Context) (out [][]byte, err error) {
	err = Guard(func() error {
		out, err = s.encodeSplits(ctx)
		return err
	})
	return out, err
}

func (s SourceSpec[T, S]) encodeSplits(ctx context.Context) ([][]byte, error) {
	splits, err := s.Source.Splits(ctx)
	if err != nil {
		return nil, fmt.Errorf("list splits: %w", err)
	}
	seen := map[string]bool{}
	var out [][]byte
	for _, sp := range splits {
		id := s.Source.SplitID(sp)
		if seen[id] {
			return nil, fmt.Errorf("list splits: two have the ID %q", id)
		}
		seen[id] = true
		b, err := s.Split.Append(nil, sp)
		if err != nil {
			return nil, fmt.Errorf("encode split %q: %w", id, err)
		}
		out = append(out, b)
	}
	return out, nil
}

// split is one split of a subtask and what is known of its time.
type split[S any] struct {
	id        string
	at        S // position
	started   bool
	done      bool
	watermark eventtime.Time // of the split; never going back, also across a restore
	gen       watermark.Generator
	greatest  eventtime.Time // with a bounded strategy, instead of gen
	silent    eventtime.Time // ms that reads have been empty, without pause since the last record of any split
	idle      bool
}

type sourceOp[T, S any] struct {
	SourceSpec[T, S]
	splits    []*split[S]
	byID      map[string]*split[S]
	silencers []*split[S] // whose generators say whether they are silent
	reader    connector.Reader[T, S]
	timed     connector.Timed // the reader, or nil
	out       Output
	buf       Rows[T]
	pointers  bool // T holds some
	batch     int  // records a read
	ctx       context.Context
	bounded   bool
	disorder  int64
	idle      eventtime.Time // ms after which a silent split is idle; 0: never
	wasEmpty  bool           // the last read
	lastRead  eventtime.Time

	rate    float64 // of this subtask, records a ms
	allowed float64 // records that may be read now
	lastNow eventtime.Time
	ended   bool
	w       eventtime.Time
	err     error // of SetSplits, reported by Open
}

// NewSource returns a reading operator.
func NewSource[T, S any](spec SourceSpec[T, S]) Operator {
	o := &sourceOp[T, S]{SourceSpec: spec, byID: map[string]*split[S]{}, pointers: hasPointers(reflect.TypeFor[T]())}
	if b, ok := watermark.Unwrap(spec.Strategy).(watermark.BoundedStrategy); ok {
		o.bounded, o.disorder = true, b.Disorder.Milliseconds()
	}
	if i, ok := spec.Strategy.(watermark.Idler); ok {
		o.idle = eventtime.Time(i.IdleAfter().Milliseconds())
	}
	return o
}

// SetSplits is Node.SetSplits for NewSource's operators.
func SetSplits[T, S any](op Operator, splits [][]byte) {
	o := op.(*sourceOp[T, S])
	for _, b := range splits {
		at, rest, err := o.Split.Decode(b)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
		if err != nil {
			o.err = fmt.Errorf("decode split: %w", err)
			return
		}
		o.add(&split[S]{at: at, watermark: eventtime.Min, greatest: eventtime.Min})
	}
}

func (o *sourceOp[T, S]) add(sp *split[S]) {
	sp.id = o.Source.SplitID(sp.at)
	if o.Strategy != nil && !o.bounded {
		sp.gen = o.Strategy.New()
		if _, ok := sp.gen.(watermark.Silencer); ok {
			o.silencers = append(o.silencers, sp)
		}
	}
	if b, ok := o.Source.(connector.Bounder[S]); ok && !sp.started && o.At != nil {
		sp.watermark = max(sp.watermark, eventtime.FromTime(b.LowerBound(sp.at)))
	}
	o.splits = append(o.splits, sp)
	o.byID[sp.id] = sp
}

func (o *sourceOp[T, S]) Open(c *OpenContext) error {
	if o.err != nil {
		return o.err
	}
	o.out, o.ctx, o.w, o.lastNow = c.Outputs[0], c.Context, eventtime.Min, eventtime.Min
	if c.Restore != nil {
		o.w = c.Restore.Watermark
		if err := o.restore(c.Restore.Blob); err != nil {
			return fmt.Errorf("restore checkpoint %d: %w", c.Restore.Checkpoint, err)
		}
	}
	if o.batch = c.ReadBatch; o.batch == 0 {
		o.batch = BatchSize
	}
	o.rate = o.MaxRate / 1000 / float64(c.Subtask.Parallelism)
	var err error
	if o.reader, err = o.Source.Open(c.Context, c.Subtask); err != nil {
		return err
	}
	if n, ok := o.reader.(connector.Notifier); ok {
		n.Notify(c.Wake)
	}
	if o.timed, _ = o.reader.(connector.Timed); o.timed != nil {
		o.timed.Clock(func() time.Time { return c.Now().Time() })
	}
	var todo []S
	for _, sp := range o.splits {
		if !sp.done {
			todo = append(todo, sp.at)
		}
	}
	if len(todo) == 0 {
		o.ended = true
		return nil
	}
	return o.reader.Assign(todo)
}

func (o *sourceOp[T, S]) Close() error {
	if o.reader == nil {
		return nil
	}
	return o.reader.Close()
}

func (o *sourceOp[T, S]) Process(int, Batch) error { return errors.New("a source has no input") }

func (o *sourceOp[T, S]) Watermark(eventtime.Time, int) (bool, error) { return true, nil }

// Poll implements Source.
func (o *sourceOp[T, S]) Poll(now eventtime.Time) (Polled, error) {
	if o.ended {
		return Polled{Status: connector.End, Watermark: eventtime.Max}, nil
	}
	n := o.batch
	if o.rate > 0 {
		if n = o.allow(now, n); n == 0 {
			return o.polled(connector.Idle, 0), nil
		}
	}
	b, err := o.reader.Read(o.ctx, n)
	if err != nil {
		return Polled{}, fmt.Errorf("read: %w", err)
	}
	if o.rate > 0 {
		o.allowed -= float64(len(b.Records))
	}
	if len(b.Records) > 0 || b.Done {
		if err := o.took(b); err != nil {
			return Polled{}, err
		}
	}
	for _, sp := range o.silencers {
		sp.idle = sp.gen.(watermark.Silencer).Silent()
	}
	if o.idle > 0 {
		o.watchIdle(now, b.Status == connector.Idle)
	}
	if b.Status == connector.End {
		o.ended = true
		return Polled{Status: connector.End, Records: len(b.Records), Watermark: eventtime.Max}, nil
	}
	p := o.polled(b.Status, len(b.Records))
	if o.timed != nil && o.idle == 0 && b.Status == connector.Idle { // with idleness, silence is to be counted
		p.Due = max(1, eventtime.NotBefore(o.timed.Due()))
	}
	return p, nil
}

// allow is a token bucket that holds a tenth of a second.
func (o *sourceOp[T, S]) allow(now eventtime.Time, n int) int {
	if o.lastNow > eventtime.Min {
		o.allowed += float64(now-o.lastNow) * o.rate
	} else {
		o.allowed = 1
	}
	o.lastNow = now
	o.allowed = min(o.allowed, max(1, o.rate*100))
	return min(n, int(o.allowed))
}

// took stamps and emits the records of a read.
func (o *sourceOp[T, S]) took(b connector.Batch[T, S]) error {
	sp := o.byID[o.Source.SplitID(b.Split)]
	if sp == nil || sp.done {
		return fmt.Errorf("read: records of split %q, which this reader was not given or had finished", o.Source.SplitID(b.Split))
	}
	rows := resize(o.buf.E, len(b.Records))
	o.buf.E = rows
	for i, v := range b.Records {
		t := eventtime.Min
		if o.At != nil {
			if at := o.At(v); !at.IsZero() {
				t = eventtime.OfElement(at)
				if sp.gen != nil {
					sp.gen.Observe(t.Time()) // within time: one beyond it would be the end of all
				}
			}
			sp.greatest = max(sp.greatest, t)
		}
		e := &rows[i]
		e.Value, e.Time, e.Window, e.Pane = v, t, window.GlobalWindow, NoPane
	}
	sp.at, sp.started, sp.done = b.Split, true, b.Done
	sp.silent, sp.idle = 0, false
	if o.At != nil {
		w := sp.greatest.Add(-o.disorder)
		if sp.gen != nil {
			w = eventtime.FromTime(sp.gen.Watermark())
		}
		sp.watermark = max(sp.watermark, w)
	}
	if len(rows) == 0 {
		return nil
	}
	err := o.out.Emit(&o.buf)
	if o.pointers {
		clear(rows)
	}
	return err
}

// watchIdle declares splits idle once reads have been empty for long enough. An empty read says that no
// split had anything. Time is counted from one empty read to the next, and at most maxGap of it, so that a
// source that is paused, limited or pushed back by its receivers does not take that for silence.
func (o *sourceOp[T, S]) watchIdle(now eventtime.Time, empty bool) {
	for _, sp := range o.splits {
		switch {
		case !empty:
			sp.silent = 0
		case o.wasEmpty:
			sp.silent += min(now-o.lastRead, maxGap)
		}
		sp.idle = empty && !sp.done && sp.silent >= o.idle
	}
	o.wasEmpty, o.lastRead = empty, now
}

// maxGap, in ms, is several times what an idle source waits between two reads.
const maxGap = 100

// polled works out the watermark: the least of the splits that are neither done nor idle. When all are idle it is the least of what
// they have said, for one may have moved as it fell idle.
func (o *sourceOp[T, S]) polled(status connector.Status, n int) Polled {
	least, asleep, active, open := eventtime.Max, eventtime.Max, false, false
	for _, sp := range o.splits {
		switch {
		case sp.done:
			continue
		case sp.idle:
			asleep = min(asleep, sp.watermark)
		default:
			active = true
			least = min(least, sp.watermark)
		}
		open = true
	}
	if !active {
		least = asleep
	}
	if open {
		o.w = max(o.w, eventtime.OfWatermark(least))
	}
	return Polled{Status: status, Records: n, Watermark: o.w, Inactive: open && !active}
}

// The state of a source (docs/format/source-state.md): for each split, in order: a byte (1 started,
// 2 done), its watermark (varint), the length of its encoded position (uvarint), and that.

// Snapshot implements Stateful.
func (o *sourceOp[T, S]) Snapshot(int64, bool) (OpSnapshot, error) {
	var blob []byte
	for _, sp := range o.splits {
		b, err := o.Split.Append(nil, sp.at)
		if err != nil {
			return OpSnapshot{}, fmt.Errorf("encode the position of split %q: %w", sp.id, err)
		}
		flags := byte(0)
		if sp.started {
			flags |= 1
		}
		if sp.done {
			flags |= 2
		}
		blob = binary.AppendVarint(append(blob, flags), int64(sp.watermark))
		blob = append(binary.AppendUvarint(blob, uint64(len(b))), b...)
	}
	return OpSnapshot{Blob: blob}, nil
}

func (o *sourceOp[T, S]) restore(blob []byte) error {
	for r := bytes.NewReader(blob); r.Len() > 0; {
		flags, _ := r.ReadByte()
		w, err := binary.ReadVarint(r)
		if err != nil || flags > 3 {
			return fmt.Errorf("position of split %d is malformed", len(o.splits))
		}
		n, err := binary.ReadUvarint(r)
		if err != nil || n > uint64(r.Len()) {
			return fmt.Errorf("position of split %d is cut off", len(o.splits))
		}
		b := make([]byte, n)
		r.Read(b)
		at, rest, err := o.Split.Decode(b)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
		if err != nil {
			return fmt.Errorf("decode the position of split %d: %w", len(o.splits), err)
		}
		wm := eventtime.Clamp(eventtime.Time(w))
		o.add(&split[S]{at: at, started: flags&1 != 0, done: flags&2 != 0, watermark: wm, greatest: wm.Add(o.disorder)})
	}
	return nil
}
