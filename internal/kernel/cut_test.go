package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk/coder"
)

func TestBatchesAreCut(t *testing.T) {
	var keyed Rows[coder.KV[string, int]]
	for i, k := range []string{"a", "a", "b", "a", "c", "c"} {
		keyed.E = append(keyed.E, Element[coder.KV[string, int]]{Value: coder.KV[string, int]{Key: k, Value: i}})
	}
	plain := Rows[[]byte]{make([]Element[[]byte], 3)}
	for _, c := range []struct {
		b    Batch
		cut  Cut
		want []int
	}{
		{&keyed, CutNowhere, []int{6}},
		{&keyed, CutKeys, []int{2, 1, 1, 2}},
		{&keyed, CutRepeats, []int{1, 2, 2, 1}},
		{&keyed, CutAll, []int{1, 1, 1, 1, 1, 1}},
		{&plain, CutKeys, []int{3}},
		{&plain, CutRepeats, []int{1, 1, 1}},
		{&Rows[int]{}, CutAll, nil},
	} {
		var got []int
		for p := range c.cut.Of(c.b) {
			got = append(got, p.Len())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%T cut by %d: -want +got\n%s", c.b, c.cut, d)
		}
	}
}
