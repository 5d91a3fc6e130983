package sdk_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

func TestPartitionPutsEachElementIntoOneCollection(t *testing.T) {
	vs := make([]int64, 3000) // more than a batch
	var want [4]int64
	for i := range vs {
		vs[i] = int64(i)
		if i%5 < 4 { // index 3 gets one in five, as the others; what would be 4 goes to 0
			want[i%5] += int64(i)
		} else {
			want[0] += int64(i)
		}
	}
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := numbers(p, vs...)
		parts := sdk.Partition("by rest", in, 4, func(v int64) int { return int(v % 5 % 4) })
		for i, part := range parts {
			passert.Equals(fmt.Sprint("part ", i), sdk.CombineGlobally(fmt.Sprint("sum ", i), part, stats.Sum[int64]{}), want[i])
		}
		passert.Equals("others see all", sdk.CombineGlobally("sum", in, stats.Sum[int64]{}), 2999*3000/2)
		one := sdk.Partition("one", numbers2(p), 1, func(int64) int { return 0 })
		passert.Equals("one part", sdk.CombineGlobally("sum of one", one[0], stats.Sum[int64]{}), 60)
		return nil
	})
}

// Partitions keep windows, sliding ones in slices too, and may be flattened again.
func TestPartitionKeepsWindows(t *testing.T) {
	sums := func(cut bool) []ptest.Element[int64] {
		return ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			in := sdk.WindowInto("w", timed(p, 1, 4, 5, 9, 12, 20), window.Sliding(10*time.Millisecond, 4*time.Millisecond))
			if cut {
				parts := sdk.Partition("parity", in, 2, func(v int64) int { return int(v & 1) })
				in = sdk.Flatten("both", parts[1], parts[0])
			}
			return sdk.CombineGlobally("sum", in, stats.Sum[int64]{})
		})
	}
	want := sums(false)
	if len(want) < 4 {
		t.Fatalf("only %d windows", len(want))
	}
	if d := cmp.Diff(want, sums(true), cmp.AllowUnexported(window.Window{})); d != "" {
		t.Errorf("sums of the parts put together (-whole +parts):\n%s", d)
	}
}

func TestPartitionNamesTheElementWithABadIndex(t *testing.T) {
	for _, index := range []int{-1, 3, 1 << 40} {
		err := run(func(p *sdk.Pipeline) error {
			sdk.Partition("thirds", numbers(p, 0, 1, 77), 3, func(v int64) int {
				if v == 77 {
					return index
				}
				return int(v)
			})
			return nil
		})
		want := fmt.Sprintf(`step "thirds": element 77: its partition is %d, but there are 0 to 2`, index)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// What Partition returns can be used after a mistake, whatever its n: only the mistake is reported.
func TestPartitionAfterAMistakeHasItsCollections(t *testing.T) {
	p := sdk.NewPipeline("p")
	in := numbers(p, 1)
	for _, c := range []struct{ n, parts int }{{0, 0}, {-3, 0}, {1001, 1000}} {
		parts := sdk.Partition(fmt.Sprint("into ", c.n), in, c.n, func(int64) int { return 0 })
		if len(parts) != c.parts {
			t.Errorf("%d collections for n = %d", len(parts), c.n)
		}
		for _, part := range parts {
			sdk.Map("m", part, func(v int64) int64 { return v })
		}
	}
	for _, part := range sdk.Partition[int64]("no function", in, 2, nil) {
		sdk.Map("m", part, func(v int64) int64 { return v })
	}
	if n := len(strings.Split(p.Err().Error(), "\n")); n != 4 {
		t.Errorf("%d mistakes reported instead of 4:\n%v", n, p.Err())
	}
}

func ExamplePartition() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		sizes := sdk.Create("sizes", p, 3, 40, 7, 500)
		byDigits := sdk.Partition("digits", sizes, 3, func(n int) int { return len(fmt.Sprint(n)) - 1 })
		return sdk.Flatten("lines",
			sdk.Map("small", byDigits[0], func(n int) string { return fmt.Sprint("small ", n) }),
			sdk.Map("large", byDigits[2], func(n int) string { return fmt.Sprint("large ", n) }))
	})
	// Output:
	// large 500
	// small 3
	// small 7
}
