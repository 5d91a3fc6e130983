package stats_test

import (
	"context"
	"fmt"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/multiset"
	"github.com/millstream/millstream/transforms/stats"
)

func ExampleCount() {
	var counts memio.Collector[sdk.KV[string, int64]]
	_, err := direct.Run(context.Background(), "count words", func(p *sdk.Pipeline) error {
		words := sdk.Create("words", p, "to", "be", "or", "not", "to", "be")
		sdk.Write("collect", stats.Count("count", words), &counts)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	rows := counts.Rows()
	multiset.Sort(rows)
	for _, kv := range rows {
		fmt.Println(kv.Key, kv.Value)
	}
	// Output:
	// be 2
	// not 1
	// or 1
	// to 2
}

func ExampleMean() {
	var means memio.Collector[sdk.KV[string, float64]]
	_, err := direct.Run(context.Background(), "mean", func(p *sdk.Pipeline) error {
		in := sdk.Create("in", p, sdk.Pair("a", 1), sdk.Pair("b", 7), sdk.Pair("a", 2))
		sdk.Write("collect", sdk.CombinePerKey("mean", in, stats.Mean[int]{}), &means)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	rows := means.Rows()
	multiset.Sort(rows)
	fmt.Println(rows)
	// Output: [{a 1.5} {b 7}]
}
