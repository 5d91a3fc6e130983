package kernel

import (
	"testing"

	"github.com/millstream/millstream/sdk/window"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk/coder"
)

// TestOneSubtaskSendsToOneOfSeveral: the elements of a step with one subtask stay in their order; a reshuffle spreads them.
func TestOneSubtaskSendsToOneOfSeveral(t *testing.T) {
	for exchange, want := range map[Exchange]int{Forward: 1, RoundRobin: 3} {
		s := Unkeyed(NewCodec[int64](coder.VarInt()))(SplitContext{Exchange: exchange, Targets: 3})
		got := map[int][]int64{}
		send := func(target int, b Batch) error {
			for _, e := range b.(*Rows[int64]).E {
				got[target] = append(got[target], e.Value)
			}
			return nil
		}
		var all []int64
		for i := range int64(5 * BatchSize) {
			all = append(all, i)
			if err := s.Split(&Rows[int64]{[]Element[int64]{{Value: i}}}, send); err != nil {
				t.Fatal(err)
			}
			if i%777 == 0 {
				if err := s.Flush(send); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Flush(send); err != nil {
			t.Fatal(err)
		}
		if len(got) != want {
			t.Errorf("%v: %d targets, want %d", exchange, len(got), want)
		}
		if d := cmp.Diff(all, got[0]); want == 1 && d != "" {
			t.Errorf("%v: another order: %s", exchange, d)
		}
	}
}

// TestBatchesDoNotEndWithARetraction: what takes the place of an element comes in the batch of its retraction.
func TestBatchesDoNotEndWithARetraction(t *testing.T) {
	var in Rows[int64]
	for i := range int64(10 * BatchSize) {
		e := Element[int64]{Value: i}
		if i%2 == 0 { // the first is alone, so that pairs are across the limits of batches
			e.Pane = NoPane.Retract()
		}
		in.E = append(in.E, e)
	}
	in.E = in.E[1:]
	for _, cut := range []Cut{CutNowhere, CutAll, CutRepeats} {
		for part := range cut.Of(&in) {
			if e := part.(*Rows[int64]).E; e[len(e)-1].Pane.Retraction() {
				t.Fatalf("cut %d leaves a batch of %d that ends with a retraction", cut, len(e))
			}
		}
	}
	s := Unkeyed(NewCodec[int64](coder.VarInt()))(SplitContext{Exchange: Forward, Targets: 2})
	n, most := 0, 0
	send := func(_ int, b Batch) error {
		e := b.(*Rows[int64]).E
		if e[len(e)-1].Pane.Retraction() {
			t.Errorf("a batch of %d ends with a retraction", len(e))
		}
		n, most = n+len(e), max(most, len(e))
		return nil
	}
	if err := s.Split(&in, send); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(send); err != nil {
		t.Fatal(err)
	}
	if n != len(in.E) || most > BatchSize+1 {
		t.Errorf("%d rows of %d, at most %d in a batch", n, len(in.E), most)
	}
}

// TestBatchesDoNotEndAmidWhatReplaces: of three retractions and three elements that take their place all come in one batch.
func TestBatchesDoNotEndAmidWhatReplaces(t *testing.T) {
	for _, targets := range []int{1, 2} {
		s := Unkeyed(NewCodec[int64](coder.VarInt()))(SplitContext{Exchange: Forward, Targets: targets})
		batches := 0
		check := func(_ int, b Batch) error {
			batches++
			e := b.(*Rows[int64]).E
			for i := range 3 {
				if e[i].Value != int64(i) || e[len(e)-1-i].Value != int64(5-i) {
					t.Fatalf("batch %d of %d rows begins or ends amid six that belong together", batches, len(e))
				}
			}
			return nil
		}
		for range BatchSize {
			var in Rows[int64]
			for i := range int64(6) {
				e := Element[int64]{Value: i, Pane: MakePane(window.Pane{Index: 1})}
				if i < 3 {
					e.Pane = MakePane(window.Pane{First: true}).Retract()
				}
				in.E = append(in.E, e)
			}
			if err := s.Split(&in, check); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(check); err != nil || batches < 4 {
			t.Errorf("%d batches, %v", batches, err)
		}
	}
}
