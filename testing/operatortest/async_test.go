package operatortest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// Wherever a checkpoint finds them, elements in flight are called for again and answered once.
func TestMapAsyncInEveryWay(t *testing.T) {
	c, err := coder.Of[int]()
	if err != nil {
		t.Fatal(err)
	}
	e := func(v int) kernel.Element[int] {
		return kernel.Element[int]{Value: v, Window: window.GlobalWindow}
	}
	for _, ordered := range []bool{false, true} {
		got := Run(t, Case{
			New: func() kernel.Operator {
				tries := map[int]int{}
				return kernel.NewAsync(kernel.AsyncSpec[int, int]{
					Input: kernel.NewCodec(c), Concurrency: 2, Ordered: ordered, Retries: 1, Backoff: 10, ErrorsTo: true,
					Call: func(_ context.Context, v int) (int, error) {
						if tries[v]++; v == 3 || v == 4 && tries[v] == 1 {
							return 0, errors.New("no")
						}
						return v * v, nil
					},
				})
			},
			Ports: []Print{
				Lines(func(e kernel.Element[int]) string { return fmt.Sprint(e.Value) }),
				Lines(func(e kernel.Element[kernel.Failed[int]]) string { return fmt.Sprint(e.Value.Value, " ", e.Value.Err) }),
			},
			Inputs: []Input{Batch(0, e(1), e(2), e(3)), Watermark(5), Batch(0, e(4)), Batch(0, e(5), e(6), e(7), e(8))},
		})
		want := [][]string{{"1", "4", "port 1: 3 no"}, nil, {"16"}, {"25", "36", "49", "64"}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("ordered %v: %s", ordered, d)
		}
	}
}
