package kernel_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/operatortest"
)

// newCellStep makes a step with string keys.
func newCellStep(t testing.TB, declare func(*kernel.KeyedDecl), process func(*kernel.ProcessContext, string, int64, *kernel.Emitter[string]) error) kernel.Operator {
	key, err := coder.KeyOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	return kernel.NewKeyedParDo(kernel.KeyedSpec[string, int64, string]{Key: key,
		Fns: kernel.KeyedFns[string, int64, string]{Declare: declare, Process: process}})
}

func keyedElement(key string, v int64, at eventtime.Time) kernel.Element[coder.KV[string, int64]] {
	return kernel.Element[coder.KV[string, int64]]{Value: coder.KV[string, int64]{Key: key, Value: v}, Time: at, Window: window.GlobalWindow}
}

// Whatever happens between two inputs, cells of every kind hold the same, with snapshots and restores after each.
func TestCellsHoldTheSameInEveryWay(t *testing.T) {
	said := operatortest.Run(t, operatortest.Case{
		New: func() kernel.Operator {
			ttl := state.TTL(10*time.Millisecond, state.OnReadAndWrite, state.EventTime)
			var bag state.Bag[int64]
			var m state.Map[int64, string]
			var list state.OrderedList[int64]
			var recent state.Value[int64]
			return newCellStep(t, func(d *kernel.KeyedDecl) {
				bag = state.NewBag[int64](d, "bag")
				m = state.NewMap[int64, string](d, "map", ttl)
				list = state.NewOrderedList[int64](d, "list")
				recent = state.NewValue[int64](d, "recent", ttl)
			}, func(c *kernel.ProcessContext, key string, v int64, out *kernel.Emitter[string]) error {
				last, ok := recent.Lookup()
				before := m.Len()
				if v%2 == 0 {
					bag.Add(v)
					list.Add(time.UnixMilli(-v), v)
					m.Put(v, key)
				} else {
					bag.Clear()
					list.ClearRange(time.Time{}, time.UnixMilli(-4))
					m.Delete(v - 1)
					recent.Set(v)
				}
				var times []int64
				for _, v := range list.All() {
					times = append(times, v)
				}
				out.Emit(fmt.Sprint(key, v, " recent ", last, ok, " bag ", slices.Collect(bag.All()), " list ", times, " map ", before, m.Len()))
				return nil
			})
		},
		Keyed: true,
		Ports: []operatortest.Print{operatortest.Lines(func(e kernel.Element[string]) string { return e.Value })},
		Inputs: []operatortest.Input{
			operatortest.Batch(0, keyedElement("a", 2, 1), keyedElement("b", 2, 1), keyedElement("a", 4, 2)),
			operatortest.Batch(0, keyedElement("a", 6, 3), keyedElement("b", 3, 3)),
			operatortest.Watermark(11),
			operatortest.Batch(0, keyedElement("a", 3, 11), keyedElement("b", 5, 12)),
			operatortest.Watermark(30),
			operatortest.Batch(0, keyedElement("a", 8, 31), keyedElement("b", 8, 31)),
			operatortest.Watermark(eventtime.Max),
		},
	})
	want := [][]string{
		{"a2 recent 0 false bag [2] list [2] map 0 1", "a4 recent 0 false bag [2 4] list [4 2] map 1 2", "b2 recent 0 false bag [2] list [2] map 0 1"},
		{"a6 recent 0 false bag [2 4 6] list [6 4 2] map 2 3", "b3 recent 0 false bag [] list [2] map 1 0"},
		nil,
		{"a3 recent 0 false bag [] list [4 2] map 2 2", "b5 recent 3 true bag [] list [2] map 0 0"},
		nil,
		{"a8 recent 0 false bag [8] list [8 4 2] map 0 1", "b8 recent 0 false bag [8] list [8 2] map 0 1"},
		nil,
	}
	if d := cmp.Diff(want, said); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// failing is a backend whose reads fail once told.
type failing struct {
	statebackend.Backend
	err error
}

func (f *failing) Get(keys *statebackend.Keys, found func(int, []byte) error) error {
	if f.err != nil {
		return f.err
	}
	return f.Backend.Get(keys, found)
}

// strict encodes all numbers but 13.
type strict struct{ coder.Coder[int64] }

func (s strict) Append(dst []byte, v int64) ([]byte, error) {
	if v == 13 {
		return dst, errors.New("13 does not encode")
	}
	return s.Coder.Append(dst, v)
}

func openCellStep(t *testing.T, op kernel.Operator, b statebackend.Backend, cache int64) {
	t.Helper()
	err := op.Open(&kernel.OpenContext{
		Context: t.Context(), Subtask: connector.Subtask{Parallelism: 1}, Groups: 8, Backend: b, CacheMax: cache, Track: true,
		Outputs: []kernel.Output{outputFunc(func(kernel.Batch) error { return nil })}, Metrics: &kernel.Metrics{},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() eventtime.Time { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
}

type outputFunc func(kernel.Batch) error

func (f outputFunc) Emit(b kernel.Batch) error { return f(b) }

func processCell(op kernel.Operator, es ...kernel.Element[coder.KV[string, int64]]) error {
	return op.Process(0, &kernel.Rows[coder.KV[string, int64]]{E: es})
}

func memoryBackend(t *testing.T) statebackend.Backend {
	t.Helper()
	b, err := memory.Driver{}.Open(t.Context(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(8)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// User code never sees the answer of a read that failed: what it may read is fetched before it is called.
func TestReadOfStateThatFailsComesBeforeUserCode(t *testing.T) {
	b := &failing{Backend: memoryBackend(t)}
	var m state.Map[int64, int64]
	calls := 0
	op := newCellStep(t, func(d *kernel.KeyedDecl) { m = state.NewMap[int64, int64](d, "m") },
		func(_ *kernel.ProcessContext, _ string, v int64, _ *kernel.Emitter[string]) error {
			calls++
			m.Put(v, v)
			return nil
		})
	openCellStep(t, op, b, 0)
	if err := processCell(op, keyedElement("k", 1, 0)); err != nil || calls != 1 {
		t.Fatal(calls, err)
	}
	b.err = errors.New("the disk is gone")
	if err := processCell(op, keyedElement("other", 1, 0), keyedElement("k", 2, 0)); !errors.Is(err, b.err) || calls != 1 {
		t.Errorf("error %v, %d calls", err, calls)
	}
}

// A write that fails fails the call that made it, whatever it does afterwards.
func TestWriteOfStateThatFailsFailsTheCall(t *testing.T) {
	ints, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	var bag state.Bag[int64]
	after := 0
	op := newCellStep(t, func(d *kernel.KeyedDecl) { bag = state.NewBag[int64](d, "bag", state.WithCoder[int64](strict{ints})) },
		func(_ *kernel.ProcessContext, _ string, v int64, _ *kernel.Emitter[string]) error {
			bag.Add(v)
			bag.Add(v)
			after = bag.Len()
			return nil
		})
	openCellStep(t, op, memoryBackend(t), 1<<20)
	if err := processCell(op, keyedElement("k", 13, 0)); err != nil || after != 2 {
		t.Fatal(after, err) // it is only encoded for a checkpoint
	}
	if _, err := op.(kernel.Stateful).Snapshot(1, false); err != nil {
		t.Fatal(err)
	}
	err = processCell(op, keyedElement("k", 1, 0))
	if err == nil || !strings.Contains(err.Error(), `cell "bag": 13 does not encode`) || !strings.Contains(err.Error(), "key k") || after != 2 {
		t.Errorf("error %v, %d in the bag", err, after)
	}
}

func TestCellBeyondItsLimitNamesTheKey(t *testing.T) {
	var bag state.Bag[string]
	op := newCellStep(t, func(d *kernel.KeyedDecl) { bag = state.NewBag[string](d, "bag", state.MaxBytes(1000)) },
		func(_ *kernel.ProcessContext, _ string, _ int64, _ *kernel.Emitter[string]) error {
			for range 1000 {
				bag.Add(strings.Repeat("x", 100))
			}
			return nil
		})
	openCellStep(t, op, memoryBackend(t), 1<<20)
	err := processCell(op, keyedElement("ann", 1, 0))
	var user *kernel.UserError
	if err == nil || !errors.As(err, &user) || !strings.Contains(err.Error(), "ann") || !strings.Contains(err.Error(), `cell "bag": it would hold about`) {
		t.Errorf("error %v", err)
	}
}
