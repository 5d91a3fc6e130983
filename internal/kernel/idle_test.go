package kernel

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
)

// quiet is a source whose split never has anything.
type quiet struct{}

func (quiet) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (quiet) SplitID(int64) string                    { return "only" }
func (quiet) Open(context.Context, connector.Subtask) (connector.Reader[int64, int64], error) {
	return quiet{}, nil
}
func (quiet) Assign([]int64) error { return nil }
func (quiet) Close() error         { return nil }
func (quiet) Read(context.Context, int) (connector.Batch[int64, int64], error) {
	return connector.Batch[int64, int64]{Status: connector.Idle}, nil
}

func TestTimeInWhichASourceIsNotReadIsNoSilence(t *testing.T) {
	positions, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	op := NewSource(SourceSpec[int64, int64]{
		Source: quiet{}, Split: positions, At: func(v int64) time.Time { return time.UnixMilli(v) },
		Strategy: watermark.WithIdleness(watermark.Monotonic(), time.Second),
	})
	SetSplits[int64, int64](op, [][]byte{{0}})
	if err := op.Open(&OpenContext{Context: t.Context(), Outputs: []Output{nil}, Subtask: connector.Subtask{Parallelism: 1}, Metrics: &Metrics{}}); err != nil {
		t.Fatal(err)
	}
	inactive := func(now eventtime.Time) bool {
		p, err := op.(Source).Poll(now)
		if err != nil {
			t.Fatal(err)
		}
		return p.Inactive
	}
	if inactive(0) || inactive(10) {
		t.Fatal("idle at once")
	}
	if inactive(5000) {
		t.Error("five seconds in which the source was pushed back count as silence")
	}
	for now := eventtime.Time(5010); now < 5800; now += 10 {
		if inactive(now) {
			t.Fatalf("idle at %d, after less than a second of empty reads", now)
		}
	}
	idle := false
	for now := eventtime.Time(5800); now < 6300; now += 10 {
		idle = inactive(now)
	}
	if !idle {
		t.Error("not idle after a second of empty reads")
	}
}

// told is a source whose reads a test makes.
type told struct {
	quiet
	batch connector.Batch[int64, int64]
}

func (s *told) Splits(context.Context) ([]int64, error) { return []int64{0, 1}, nil }
func (s *told) SplitID(i int64) string                  { return strconv.FormatInt(i, 10) }
func (s *told) Open(context.Context, connector.Subtask) (connector.Reader[int64, int64], error) {
	return s, nil
}
func (s *told) Read(context.Context, int) (connector.Batch[int64, int64], error) { return s.batch, nil }

// fallsSilent is a strategy whose splits are silent from a time on.
type fallsSilent int64

func (s fallsSilent) New() watermark.Generator { return &silence{from: int64(s), at: math.MinInt64} }

type silence struct{ from, at int64 }

func (s *silence) Observe(t time.Time)  { s.at = max(s.at, t.UnixMilli()) }
func (s *silence) Watermark() time.Time { return eventtime.Clamp(eventtime.Time(s.at)).Time() }
func (s *silence) Silent() bool         { return s.at >= s.from }

// What a split says with the batch with which it falls silent was lost until one was active again.
func TestWatermarkOfTheBatchWithWhichASplitFallsSilent(t *testing.T) {
	positions, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	src := &told{}
	op := NewSource(SourceSpec[int64, int64]{
		Source: src, Split: positions, At: func(v int64) time.Time { return time.UnixMilli(v) }, Strategy: fallsSilent(100),
	})
	SetSplits[int64, int64](op, [][]byte{{0}, {1}})
	if err := op.Open(&OpenContext{Context: t.Context(), Outputs: []Output{nowhere{}}, Subtask: connector.Subtask{Parallelism: 1}, Metrics: &Metrics{}}); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		split, at int64
		want      eventtime.Time
		inactive  bool
	}{
		{0, 50, eventtime.Min, false},
		{1, 30, 30, false},
		{0, 110, 30, false},
		{1, 120, 110, true}, // the least of what both have said
		{1, 140, 110, true},
		{0, 130, 130, true},
	} {
		src.batch = connector.Batch[int64, int64]{Records: []int64{step.at}, Split: step.split}
		p, err := op.(Source).Poll(0)
		if err != nil {
			t.Fatal(err)
		}
		if p.Watermark != step.want || p.Inactive != step.inactive {
			t.Errorf("step %d, %+v: watermark %d, idle %v", i, step, p.Watermark, p.Inactive)
		}
	}
}
