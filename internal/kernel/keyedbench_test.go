package kernel

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// benchStep is a step over 10,000 int64 keys, with a cell that each record adds to and, with timer, a timer
// that each sets to some time after its own. The clock is where the watermark is.
type benchStep struct {
	op   *keyedParDo[int64, int64, int64]
	rows Rows[coder.KV[int64, int64]]
	next int64
	at   eventtime.Time
}

// benchKind is the timer of a benchStep.
type benchKind int

const (
	eventTimer benchKind = iota
	holdTimer            // of event time, with the timestamp of its element
	clockTimer           // with that of its element
	openTimer            // of the clock, with that of the end of its window: it holds nothing back
)

func newBenchStep(tb testing.TB, kind benchKind, after time.Duration, cache int64) *benchStep {
	key, err := coder.KeyOf[int64]()
	if err != nil {
		tb.Fatal(err)
	}
	b, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
	if err != nil {
		tb.Fatal(err)
	}
	var sum state.Value[int64]
	var timer Timer
	s := &benchStep{op: NewKeyedParDo(KeyedSpec[int64, int64, int64]{Key: key, Fns: KeyedFns[int64, int64, int64]{
		Declare: func(d *KeyedDecl) {
			sum = state.NewValue[int64](d, "sum")
			declare := EventTimer[int64, int64]
			if kind >= clockTimer {
				declare = ProcessingTimer[int64, int64]
			}
			if after > 0 {
				timer = declare(d, "timer", func(_ *ProcessContext, _ int64, out *Emitter[int64]) error {
					out.Emit(sum.Get())
					return nil
				})
			}
		},
		Process: func(c *ProcessContext, _ int64, v int64, _ *Emitter[int64]) error {
			sum.Set(sum.Get() + v)
			switch {
			case after == 0:
			case kind == holdTimer:
				timer.Set(c.Timestamp().Add(after), OutputAt(c.Timestamp()))
			case kind == openTimer:
				timer.SetIn(after, OutputAt(c.Window().End()))
			case kind == clockTimer:
				timer.SetIn(after)
			default:
				timer.Set(c.Timestamp().Add(after))
			}
			return nil
		},
	}}).(*keyedParDo[int64, int64, int64])}
	err = s.op.Open(&OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: b,
		Outputs:  []Output{outputFunc(func(Batch) error { return nil })},
		CacheMax: cache, Track: true, Metrics: &Metrics{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() eventtime.Time { return s.at },
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.rows.E = make([]Element[coder.KV[int64, int64]], BatchSize)
	return s
}

// batch processes BatchSize records, step ms of event time after those before, and then the watermark.
func (s *benchStep) batch(tb testing.TB, step eventtime.Time) {
	s.at += step
	for i := range s.rows.E {
		s.next++
		s.rows.E[i] = Element[coder.KV[int64, int64]]{
			Value: coder.KV[int64, int64]{Key: s.next % 10_000, Value: 1}, Time: s.at, Window: window.GlobalWindow}
	}
	err := s.op.Process(0, &s.rows)
	for done := false; !done && err == nil; {
		done, err = s.op.Watermark(s.at, 512)
	}
	for err == nil && s.op.NextClock() <= s.at {
		_, err = s.op.Clock(s.at, 512)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func (s *benchStep) run(b *testing.B, step eventtime.Time) {
	for range 40 {
		s.batch(b, step) // every key is there
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += BatchSize {
		s.batch(b, step)
	}
}

// Each operation is one record.
func BenchmarkKeyedStep(b *testing.B) {
	b.Run("cell", func(b *testing.B) { newBenchStep(b, eventTimer, 0, 64<<20).run(b, 1) })
	// Ten records a key go by before its timer comes up, and moves on: nothing fires.
	b.Run("cell and timer that moves on", func(b *testing.B) { newBenchStep(b, eventTimer, 100*time.Millisecond, 64<<20).run(b, 1) })
	// A key comes every ten batches; its timer fires before.
	b.Run("cell and timer that fires", func(b *testing.B) { newBenchStep(b, eventTimer, 5*time.Millisecond, 64<<20).run(b, 1) })
	b.Run("cell and timer that fires in another second", func(b *testing.B) { newBenchStep(b, eventTimer, 5*time.Second, 64<<20).run(b, 1000) })
	b.Run("cell and timer that holds and fires", func(b *testing.B) { newBenchStep(b, holdTimer, 5*time.Millisecond, 64<<20).run(b, 1) })
	b.Run("cell and timer that holds and moves on", func(b *testing.B) { newBenchStep(b, holdTimer, 100*time.Millisecond, 64<<20).run(b, 1) })
	b.Run("cell and timer of the clock that fires", func(b *testing.B) { newBenchStep(b, clockTimer, 5*time.Millisecond, 64<<20).run(b, 1) })
	b.Run("cell and timer of the clock that moves on", func(b *testing.B) { newBenchStep(b, clockTimer, 100*time.Millisecond, 64<<20).run(b, 1) })
	b.Run("cell and timer of the clock that moves on, output at the end", func(b *testing.B) { newBenchStep(b, openTimer, 100*time.Millisecond, 64<<20).run(b, 1) })
	// Most of the state is in the backend, in memory.
	b.Run("cell, cache of an eighth", func(b *testing.B) { newBenchStep(b, eventTimer, 0, 200<<10).run(b, 1) })
}

func TestKeyedStepAllocatesNothingInSteadyState(t *testing.T) {
	cases := map[string]struct {
		kind  benchKind
		after time.Duration
		step  eventtime.Time
	}{
		"cell":                             {eventTimer, 0, 1},
		"timer that moves on":              {eventTimer, 100 * time.Millisecond, 1},
		"timer that fires":                 {eventTimer, 5 * time.Millisecond, 1},
		"timer that fires much later":      {eventTimer, 5 * time.Second, 1000},
		"timer that holds":                 {holdTimer, 5 * time.Millisecond, 1},
		"timer of the clock":               {clockTimer, 5 * time.Millisecond, 1},
		"timer of the clock that moves on": {clockTimer, 100 * time.Millisecond, 1},
		"timer of the clock, much later":   {clockTimer, 5 * time.Second, 1000},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newBenchStep(t, c.kind, c.after, 64<<20)
			for range 200 {
				s.batch(t, c.step)
			}
			// None a record: a slice of a firing makes one or two, and there are a few slices a batch.
			if n := testing.AllocsPerRun(100, func() { s.batch(t, c.step) }); n > BatchSize/50 {
				t.Errorf("%v allocations a batch of %d records", n, BatchSize)
			}
		})
	}
}
