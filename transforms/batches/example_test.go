package batches_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/transforms/batches"
)

func ExampleByKey() {
	var sent memio.Collector[string]
	_, err := direct.Run(context.Background(), "orders", func(p *sdk.Pipeline) error {
		orders := sdk.Create("orders", p, sdk.Pair("mill", 1), sdk.Pair("mill", 2), sdk.Pair("barn", 3), sdk.Pair("mill", 4))
		batched := batches.ByKey("by twos", orders, batches.Limits{Count: 2})
		sdk.Write("send", sdk.Map("text", batched, func(b sdk.KV[string, []int]) string { return fmt.Sprint(b.Key, b.Value) }), &sent)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(slices.Sorted(slices.Values(sent.Rows())))
	// Output: [barn[3] mill[1 2] mill[4]]
}
