package distinct_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/transforms/distinct"
)

func ExampleValues() {
	var pages memio.Collector[string]
	_, err := direct.Run(context.Background(), "pages", func(p *sdk.Pipeline) error {
		visits := sdk.Create("visits", p, "/", "/mill", "/", "/mill")
		sdk.Write("collect", distinct.Values("pages", visits), &pages)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(slices.Sorted(slices.Values(pages.Rows())))
	// Output: [/ /mill]
}
