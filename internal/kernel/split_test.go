package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/seeds"
)

// naiveAppend encodes rows as docs/format/batch.md says, without the short cuts of Codec.
func naiveAppend(rows []Element[int64], value coder.Coder[int64]) ([]byte, error) {
	dst := binary.AppendUvarint(nil, uint64(len(rows)))
	var last Element[int64]
	var err error
	for _, e := range rows {
		dst = binary.AppendVarint(dst, int64(e.Time-last.Time))
		dst = binary.AppendVarint(dst, int64(e.Window.StartTime()-last.Window.StartTime()))
		dst = binary.AppendVarint(dst, int64(e.Window.EndTime()-last.Window.EndTime()))
		dst = binary.AppendUvarint(dst, uint64(e.Pane))
		if dst, err = value.Append(dst, e.Value); err != nil {
			return nil, err
		}
		last = e
	}
	return dst, nil
}

func TestBatchesOfAllKindsOfRowsComeBackFromTheirEncoding(t *testing.T) {
	value, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	seeds.Each(t, 300, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 0))
		codec := NewCodec(value)
		for range 20 {
			rows := randomRows(r)
			b, err := codec.Append(nil, rows)
			if err != nil {
				return err
			}
			if want, err := naiveAppend(rows.E, value); err != nil || !bytes.Equal(b, want) {
				return fmt.Errorf("encoded %x; want %x, %v", b, want, err)
			}
			back, err := codec.Decode(b)
			if err != nil {
				return err
			}
			if got := back.(*Rows[int64]).E; !slices.Equal(got, rows.E) {
				return fmt.Errorf("%x is %v, want %v", b, got, rows.E)
			}
			n := r.IntN(len(b))
			if cut, err := codec.Decode(b[:n]); err == nil {
				return fmt.Errorf("the first %d bytes of %x are %d rows", n, b, cut.Len())
			}
			codec.Recycle(back)
		}
		return nil
	})
}

// randomRows are rows whose differences take few or many bytes.
func randomRows(r *rand.Rand) *Rows[int64] {
	at := func() eventtime.Time {
		some := []eventtime.Time{eventtime.Min, eventtime.Max, eventtime.EndOfGlobalWindow, 0, 63, 64, -64, -65, eventtime.Time(r.Int64N(1 << 40))}
		return some[r.IntN(len(some))]
	}
	rows := &Rows[int64]{}
	w, pane := window.New(at(), at()), NoPane
	for range r.IntN(20) {
		if r.IntN(3) == 0 {
			w, pane = window.New(at(), at()), Pane(r.Uint64()>>r.IntN(64))
		}
		rows.E = append(rows.E, Element[int64]{Value: r.Int64(), Time: at(), Window: w, Pane: pane})
	}
	return rows
}

// Every row goes to the subtask that owns the key group of its key, for numbers of groups that are a power of
// two and that are not.
func TestRowsGoToTheOwnerOfTheirKeyGroup(t *testing.T) {
	value, err := coder.Of[coder.KV[int64, int64]]()
	if err != nil {
		t.Fatal(err)
	}
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	codec := NewCodec(value)
	for _, groups := range []int{3, 7, 100, 256, 1000, statebackend.MaxKeyGroups} {
		for _, targets := range []int{2, 3} {
			s := Keyed(key, codec)(SplitContext{Targets: targets, Groups: groups, Exchange: ByKey})
			in := &Rows[coder.KV[int64, int64]]{}
			for i := range int64(1000) {
				in.E = append(in.E, Element[coder.KV[int64, int64]]{Value: coder.KV[int64, int64]{Key: i * i}})
			}
			seen := 0
			send := func(target int, b Batch) error {
				for _, e := range b.(*Rows[coder.KV[int64, int64]]).E {
					k, err := key.Append(nil, e.Value.Key)
					if err != nil {
						return err
					}
					g := statebackend.KeyGroupFor(k, groups)
					if !statebackend.RangeOf(target, targets, groups).Contains(g) {
						t.Errorf("%d groups: key %d of group %d went to subtask %d of %d", groups, e.Value.Key, g, target, targets)
					}
					seen++
				}
				return nil
			}
			if err := s.Split(in, send); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(send); err != nil {
				t.Fatal(err)
			}
			if seen != 1000 {
				t.Errorf("%d rows of 1000 were sent", seen)
			}
		}
	}
}

func TestBroadcastSendsEachBatchToAllAtOnce(t *testing.T) {
	value, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	s := Unkeyed(NewCodec(value))(SplitContext{Targets: 3, Exchange: Broadcast})
	rows := make([]Element[int64], BatchSize+1)
	for i := range rows {
		rows[i].Value = int64(i)
	}
	var got [3][]int64
	var batches [3]int
	send := func(target int, b Batch) error {
		batches[target]++
		for _, e := range b.(*Rows[int64]).E {
			got[target] = append(got[target], e.Value)
		}
		return nil
	}
	if err := s.Split(&Rows[int64]{rows}, send); err != nil {
		t.Fatal(err)
	}
	for target := range got {
		if len(got[target]) != len(rows) || !slices.IsSorted(got[target]) || batches[target] != 2 {
			t.Errorf("target %d got %d rows in %d batches, want %d in 2", target, len(got[target]), batches[target], len(rows))
		}
	}
	if err := s.Flush(func(int, Batch) error { t.Error("something was kept back"); return nil }); err != nil {
		t.Fatal(err)
	}
}
