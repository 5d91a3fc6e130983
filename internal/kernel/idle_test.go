package kernel

import (
	"context"
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
