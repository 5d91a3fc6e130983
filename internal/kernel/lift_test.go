package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

type number = Element[coder.KV[float64, int64]]

// liftedSum is an edge by key into sums of float64 keys, which have an encoding: -0 is 0.
func liftedSum(t *testing.T, max int) (Edge, Aggregation[float64, int64, int64], func() []AggregateInput[float64, int64, int64]) {
	key, err := coder.KeyOf[float64]()
	if err != nil {
		t.Fatal(err)
	}
	add := func(a, v int64) int64 { return a + v }
	spec := Aggregation[float64, int64, int64]{
		Key: key, Acc: coderOf[int64](t), Create: func() int64 { return 0 }, Merge: add,
		Extract: func(a int64) int64 { return a }, Windowing: Windowing{LateCount: 1},
	}
	edge := Lifting[float64, int64, int64]{
		Key: key, Acc: spec.Acc, Create: spec.Create, Add: add, Max: max, Codec: NewCodec(coderOf[coder.KV[float64, int64]](t)),
	}.Edge(Edge{})
	inputs := func() []AggregateInput[float64, int64, int64] {
		return []AggregateInput[float64, int64, int64]{InputOf[float64, int64, int64, int64](0, add)}
	}
	return edge, spec, inputs
}

// lines is what an output was told, one line an element.
type lines struct{ said []string }

func (l *lines) Emit(b Batch) error {
	for _, e := range b.(*Rows[coder.KV[float64, int64]]).E {
		l.said = append(l.said, fmt.Sprintf("%v %v %d", e.Value.Key, e.Value.Value, int64(e.Window.StartTime())))
	}
	return nil
}

// TestLiftedSumsAreThoseOfTheirElements sends elements through the edge, encoded and decoded on the way, to fixed
// and to sliding windows, of which some have ended.
func TestLiftedSumsAreThoseOfTheirElements(t *testing.T) {
	sliding := window.Sliding(20e6, 10e6)
	for _, c := range []struct {
		name   string
		fn     window.Fn
		sent   []string // number of rows of each batch that is sent
		panes  []string
		missed int64
	}{
		{"fixed", window.Fixed(10e6), []string{"4"}, []string{"0 10 10", "1 3 20", "1 7 10"}, 2},
		{"sliding", sliding, []string{"4"}, []string{"0 10 0", "0 10 10", "1 10 10", "1 3 20", "1 7 0", "2 18 0"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			edge, spec, inputs := liftedSum(t, 1000)
			op := NewAggregate(spec, inputs)
			if c.fn == window.Fn(sliding) {
				op = NewSliced(spec, sliding, inputs)
			}
			out, m := &lines{}, &Metrics{}
			backend, err := memory.Driver{}.Open(t.Context(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
			if err != nil {
				t.Fatal(err)
			}
			if err := op.Open(&OpenContext{
				Context: t.Context(), Subtask: connector.Subtask{Parallelism: 1}, Outputs: []Output{out}, Backend: backend,
				Groups: testGroups, CacheMax: never, Metrics: m,
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := op.Watermark(10, 1000); err != nil {
				t.Fatal(err)
			}
			var sent []string
			send := func(_ int, b Batch) error {
				sent = append(sent, fmt.Sprint(b.Len()))
				bytes, err := edge.Codec.Append(nil, b)
				if err != nil {
					return err
				}
				edge.Codec.Recycle(b)
				if b, err = edge.Codec.Decode(bytes); err != nil {
					return err
				}
				return op.Process(0, b)
			}
			assign := NewWindow[coder.KV[float64, int64]](c.fn)
			split := edge.Splitter(SplitContext{Targets: 1, Groups: testGroups, Exchange: ByKey})
			if err := assign.Open(&OpenContext{Outputs: []Output{outputFunc(func(b Batch) error { return split.Split(b, send) })}}); err != nil {
				t.Fatal(err)
			}
			at := func(k float64, v int64, at eventtime.Time) number {
				return number{Value: coder.KV[float64, int64]{Key: k, Value: v}, Time: at}
			}
			for range 2 {
				if err := assign.Process(0, &Rows[coder.KV[float64, int64]]{E: []number{
					at(0, 3, 12), at(math.Copysign(0, -1), 2, 13), at(1, 2, 14), at(1, 1, 15), at(1, 0, 25),
				}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := assign.Process(0, &Rows[coder.KV[float64, int64]]{E: []number{at(1, 1, 16), at(1, 3, 26), at(2, 9, 3), at(2, 9, 4)}}); err != nil {
				t.Fatal(err)
			}
			if len(sent) > 0 {
				t.Errorf("sent %v before the flush", sent)
			}
			if err := split.Flush(send); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.sent, sent); d != "" {
				t.Errorf("sent (-want +got):\n%s", d)
			}
			for done := false; !done; {
				if done, err = op.Watermark(eventtime.Max, 1000); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(out.said)
			if d := cmp.Diff(c.panes, out.said); d != "" {
				t.Errorf("panes (-want +got):\n%s", d)
			}
			if n := m.LateDropped.Load(); n != c.missed {
				t.Errorf("%d late, want %d", n, c.missed)
			}
		})
	}
}

// TestLifterSendsWhatIsNotWorthLiftingAsItIs: with keys that hardly repeat, and in bounded memory.
func TestLifterSendsWhatIsNotWorthLiftingAsItIs(t *testing.T) {
	edge, _, _ := liftedSum(t, 100)
	split := edge.Splitter(SplitContext{Targets: 1, Groups: testGroups, Exchange: ByKey})
	elements, sums := 0, 0
	send := func(_ int, b Batch) error {
		if strings.Contains(fmt.Sprintf("%T", b), "lifted") {
			sums += b.Len()
		} else {
			elements += b.Len()
		}
		return nil
	}
	k := 0.0
	for range 100 {
		rows := &Rows[coder.KV[float64, int64]]{}
		for range BatchSize {
			k++
			rows.E = append(rows.E, number{Value: coder.KV[float64, int64]{Key: k}, Window: window.GlobalWindow})
		}
		if err := split.Split(rows, send); err != nil {
			t.Fatal(err)
		}
	}
	if err := split.Flush(send); err != nil {
		t.Fatal(err)
	}
	if elements+sums != 100*BatchSize || elements < 90*BatchSize || sums == 0 {
		t.Errorf("%d elements and %d sums of %d", elements, sums, 100*BatchSize)
	}
}
