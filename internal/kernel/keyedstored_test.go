package kernel

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// storedCells is a step with every kind of cell, for TestStoredCellsAreReadBack.
type storedCells struct {
	value state.Value[string]
	bag   state.Bag[int64]
	m     state.Map[string, int64]
	list  state.OrderedList[string]
	sum   state.Combining[int64, *int64, int64]

	use func(c *ProcessContext, key string)
	now eventtime.Time
}

func (s *storedCells) declare(d *KeyedDecl) {
	ttl := func(refresh state.Refresh, clock state.Clock) state.Option {
		return state.TTL(time.Second, refresh, clock)
	}
	s.value = state.NewValue[string](d, "value", ttl(state.OnWrite, state.ProcessingTime))
	s.bag = state.NewBag[int64](d, "bag", ttl(state.OnWrite, state.EventTime))
	s.m = state.NewMap[string, int64](d, "map", ttl(state.OnReadAndWrite, state.ProcessingTime))
	s.list = state.NewOrderedList[string](d, "list")
	s.sum = state.NewCombining(d, "sum", sumFn{})
}

// open starts the step from a delta and a blob; nil is a fresh start.
func (s *storedCells) open(t *testing.T, delta, blob []byte) Operator {
	t.Helper()
	key, err := coder.KeyOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
	if err != nil {
		t.Fatal(err)
	}
	var batch statebackend.Batch
	err = statebackend.ReadBatch(bytes.NewReader(delta), batch.Add)
	if err == nil {
		err = b.Write(&batch)
	}
	if err != nil {
		t.Fatal(err)
	}
	op := NewKeyedParDo(KeyedSpec[string, int64, string]{Key: key, Fns: KeyedFns[string, int64, string]{
		Declare: s.declare,
		Process: func(c *ProcessContext, key string, _ int64, _ *Emitter[string]) error { s.use(c, key); return nil },
	}})
	c := &OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: b,
		Outputs: []Output{outputFunc(func(Batch) error { return nil })}, CacheMax: 1 << 20, Track: true, Metrics: &Metrics{},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() eventtime.Time { return s.now },
	}
	if blob != nil {
		c.Restore = &OpRestore{Blob: blob, Watermark: 4000}
	}
	if err := op.Open(c); err != nil {
		t.Fatal(err)
	}
	return op
}

func (s *storedCells) at(t *testing.T, op Operator, now, at eventtime.Time, key string, use func()) {
	t.Helper()
	s.now, s.use = now, func(*ProcessContext, string) { use() }
	if err := op.Process(0, &Rows[coder.KV[string, int64]]{E: []Element[coder.KV[string, int64]]{
		{Value: coder.KV[string, int64]{Key: key}, Time: at, Window: window.GlobalWindow}}}); err != nil {
		t.Fatal(err)
	}
}

// write makes the state that is stored: the blob and the delta of a checkpoint at watermark 4000.
func (s *storedCells) write(t *testing.T) (blob, delta []byte) {
	op := s.open(t, nil, nil)
	s.at(t, op, 7000, 3900, "a", func() {
		s.value.Set("v")
		for i := range int64(3) {
			s.bag.Add(i)
			s.m.Put(fmt.Sprint("k", i), i)
			s.list.Add(ms(eventtime.Time(10-i)), fmt.Sprint("l", i))
			s.sum.Add(i)
		}
	})
	s.at(t, op, 7400, 4200, "a", func() { s.bag.Add(9); s.m.Get("k1") })
	s.at(t, op, 7400, 4200, "b", func() { s.sum.Add(40) })
	if done, err := op.Watermark(4000, 100); !done || err != nil {
		t.Fatal(done, err)
	}
	p, err := op.(Stateful).Snapshot(1, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Keyed.Encode(1 << 30); err != nil {
		t.Fatal(err)
	}
	return p.Blob, joined(p.Keyed.Delta())
}

// State that an earlier version has stored is read back: docs/format/cells.md and keyed-state.md.
func TestStoredCellsAreReadBack(t *testing.T) {
	const file = "testdata/cells-v2.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		blob, delta := (&storedCells{}).write(t)
		t.Fatalf("%v; it would be\n%x\n%x", err, blob, delta)
	}
	lines := strings.Fields(string(text))
	blob, err := hex.DecodeString(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	delta, err := hex.DecodeString(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	s := &storedCells{}
	op := s.open(t, delta, blob)
	var got []string
	read := func() {
		v, ok := s.value.Lookup()
		m := maps.Collect(s.m.All())
		var list []string
		for at, v := range s.list.All() {
			list = append(list, fmt.Sprint(at.UnixMilli(), v))
		}
		got = append(got, fmt.Sprint(v, ok, " ", slices.Collect(s.bag.All()), " ", m, " ", list, " ", s.sum.Get()))
	}
	s.at(t, op, 7999, 4000, "a", read)
	s.at(t, op, 7999, 4000, "b", read)
	if done, err := op.Watermark(5000, 100); !done || err != nil { // what was written at 4000 expires: event time
		t.Fatal(done, err)
	}
	s.at(t, op, 8999, 5000, "a", read)
	want := []string{
		"vtrue [0 1 2 9] map[k0:0 k1:1 k2:2] [8l2 9l1 10l0] 3",
		"false [] map[] [] 40",
		"false [9] map[] [8l2 9l1 10l0] 3",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLookupsAreEncodedAsDocumented(t *testing.T) {
	l := looks{1: win(992, 1024)}
	b, err := looksCodec{}.Append(nil, &l)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "cells.md", b, "0000c00f8010")
	back, err := looksCodec{}.Decode(b)
	if err != nil || *back.(*looks) != l {
		t.Errorf("came back as %v, %v", back, err)
	}
	for i := range b {
		if _, err := (looksCodec{}).Decode(b[:i]); err == nil {
			t.Errorf("%d of %d bytes decoded", i, len(b))
		}
	}
}
