package e2e

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/twin"
)

// item is an event as the source reads it: a watermark is a record too, which has its time. The step behind the source drops it.
type item struct {
	Key         string
	Value, Time int64
	Watermark   bool
}

// stamp is the timestamp of a record: a watermark has its time. Elements get theirs behind the source, which cannot take them to be its
// watermark so.
func stamp(i item) (t time.Time) {
	if i.Watermark {
		t = eventtime.Time(i.Time).Time()
	}
	return t
}

// split is a range of the items and how far it has been read.
type split struct{ Index, From, Next, To int64 }

// source reads the events of a case, dealt among splits.
type source struct {
	items         []item // those of one split after those of another
	splits, batch int
	// gate, if set, is asked before each item whether it may be read yet; resumed is told of a split that begins where a job that
	// stopped had left it.
	gate    func(split) bool
	resumed func(split) error
}

var _ connector.Source[item, split] = (*source)(nil)

// newSource deals the events of a case. The end of time is that of the source.
func newSource(c aCase) *source {
	s := &source{splits: c.splits, batch: c.batch}
	for i := range c.splits {
		for k := i; k < len(c.events)-1; k += c.splits {
			if e := c.events[k]; e.Kind != twin.ClockEvent {
				s.items = append(s.items, item{e.Key, e.Value, int64(e.Time), e.Kind == twin.WatermarkEvent})
			}
		}
	}
	return s
}

// read adds the source to a pipeline.
func (s *source) read(p *sdk.Pipeline) sdk.PCollection[reading] {
	items := sdk.Read("read", p, s, sdk.EventTime(stamp, watermark.Monotonic()))
	return sdk.ParDoFunc("elements", items, func(_ *sdk.ProcessContext, i item, emit *sdk.Emitter[reading]) error {
		if !i.Watermark {
			emit.EmitAt(eventtime.Time(i.Time).Time(), sdk.Pair(i.Key, i.Value))
		}
		return nil
	})
}

// list is the splits, each at its start.
func (s *source) list() (out []split) {
	n := int64(s.splits)
	for i := range n {
		from := i * int64(len(s.items)) / n
		out = append(out, split{i, from, from, (i + 1) * int64(len(s.items)) / n})
	}
	return out
}

// Splits implements connector.Source.
func (s *source) Splits(context.Context) ([]split, error) { return s.list(), nil }

// SplitID implements connector.Source.
func (s *source) SplitID(sp split) string { return strconv.FormatInt(sp.Index, 10) }

// Open implements connector.Source.
func (s *source) Open(context.Context, connector.Subtask) (connector.Reader[item, split], error) {
	return &reader{source: s}, nil
}

type reader struct {
	*source
	todo []split
	out  []item
}

// Assign implements connector.Reader.
func (r *reader) Assign(splits []split) error {
	for _, sp := range splits {
		if sp.Next < sp.From || sp.Next > sp.To || sp.To > int64(len(r.items)) {
			return fmt.Errorf("there is no split %+v", sp)
		}
		if r.resumed != nil && sp.From < sp.Next && sp.Next < sp.To {
			if err := r.resumed(sp); err != nil {
				return err
			}
		}
	}
	r.todo = append(r.todo, splits...)
	return nil
}

// Read implements connector.Reader. It pauses after every other item.
func (r *reader) Read(_ context.Context, most int) (b connector.Batch[item, split], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	sp := &r.todo[0]
	if sp.Next < sp.To && r.gate != nil && !r.gate(*sp) {
		b.Status = connector.Idle
		return b, nil
	}
	n := min(int64(most), int64(r.batch), sp.To-sp.Next)
	r.out = append(r.out[:0], r.items[sp.Next:sp.Next+n]...)
	sp.Next += n
	b.Records, b.Split, b.Done = r.out, *sp, sp.Next == sp.To
	if b.Done {
		r.todo = r.todo[1:]
	}
	switch {
	case len(r.todo) == 0:
		b.Status = connector.End
	case sp.Next%2 == 0:
		b.Status = connector.Idle
	}
	return b, nil
}

// Close implements connector.Reader.
func (r *reader) Close() error { return nil }
