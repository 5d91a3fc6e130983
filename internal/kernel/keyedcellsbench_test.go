package kernel

import (
	"context"
	"fmt"
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

// BenchmarkMapCell puts one entry of a Map of so many, of one key. "kept" is in memory all the time, "checkpoint" has a
// checkpoint after each element, "evicted" comes from the backend and goes back each time. See docs/design/state.md.
func BenchmarkMapCell(b *testing.B) {
	for _, n := range []int64{10, 100, 1000, 10_000, 100_000} {
		for _, way := range []string{"kept", "checkpoint", "evicted"} {
			b.Run(fmt.Sprintf("%d/%s", n, way), func(b *testing.B) { benchMapCell(b, n, way) })
		}
	}
}

func benchMapCell(tb *testing.B, n int64, way string) {
	key, err := coder.KeyOf[int64]()
	if err != nil {
		tb.Fatal(err)
	}
	backend, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
	if err != nil {
		tb.Fatal(err)
	}
	var m state.Map[int64, int64]
	op := NewKeyedParDo(KeyedSpec[int64, int64, int64]{Key: key, Fns: KeyedFns[int64, int64, int64]{
		Declare: func(d *KeyedDecl) { m = state.NewMap[int64, int64](d, "map") },
		Process: func(_ *ProcessContext, _ int64, v int64, _ *Emitter[int64]) error {
			m.Put(v, m.Get(v)+1)
			return nil
		},
	}})
	cache := int64(64 << 20)
	if way == "evicted" {
		cache = 0
	}
	err = op.Open(&OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: backend,
		Outputs:  []Output{outputFunc(func(Batch) error { return nil })},
		CacheMax: cache, Track: true, Metrics: &Metrics{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() eventtime.Time { return eventtime.FromTime(time.Now()) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	put := func(from, to int64) {
		rows := &Rows[coder.KV[int64, int64]]{}
		for v := from; v < to; v++ {
			rows.E = append(rows.E, Element[coder.KV[int64, int64]]{Value: coder.KV[int64, int64]{Key: 7, Value: v}, Window: window.GlobalWindow})
		}
		if err := op.Process(0, rows); err != nil {
			tb.Fatal(err)
		}
	}
	bytes := 0
	checkpoint := func() {
		s, err := op.(Stateful).Snapshot(1, false)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := s.Keyed.Encode(1 << 30); err != nil {
			tb.Fatal(err)
		}
		bytes += int(s.Keyed.Delta().Size())
	}
	put(0, n)
	checkpoint()
	bytes = 0
	for i := 0; tb.Loop(); i++ {
		v := int64(i) * 7919 % n
		put(v, v+1)
		if way == "checkpoint" {
			checkpoint()
		}
	}
	tb.ReportMetric(float64(bytes)/float64(tb.N), "delta-B/op")
	if err := op.Close(); err != nil {
		tb.Fatal(err)
	}
}
