package memio_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

func TestPipelineThatIsRestoredCollectsEachRecordOnce(t *testing.T) {
	rows := words(200)
	var out memio.Collector[string]
	result, err := direct.Run(t.Context(), "copy", func(p *sdk.Pipeline) error {
		memio.Write("write", memio.Read("read", p, rows, memio.Splits(5), memio.Batch(3)), &out)
		return nil
	}, direct.Options{Parallelism: 3, RestoreEvery: 30})
	if err != nil {
		t.Fatal(err)
	}
	got := out.Rows()
	slices.Sort(got)
	slices.Sort(rows)
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if result.Restores == 0 {
		t.Error("it was never restored")
	}
}

func Example() {
	var out memio.Collector[int]
	build := func(p *sdk.Pipeline) error {
		numbers := memio.Read("numbers", p, []int{1, 2, 3})
		squares := sdk.Map("square", numbers, func(n int) int { return n * n })
		memio.Write("write", squares, &out)
		return nil
	}
	if _, err := direct.Run(context.Background(), "squares", build, direct.Options{Parallelism: 1}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(out.Rows())
	// Output: [1 4 9]
}
