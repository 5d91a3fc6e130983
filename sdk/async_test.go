package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

func TestMistakesInMapAsync(t *testing.T) {
	f := func(_ context.Context, v int64) (int64, error) { return v, nil }
	var late sdk.PCollection[int64]
	for want, build := range map[string]func(in sdk.PCollection[int64]){
		"Concurrency(0): must be from 1 to 1024": func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.Concurrency(0)) },
		"Concurrency(2000): must be":             func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.Concurrency(2000)) },
		"Timeout(1µs): must be whole":            func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.Timeout(time.Microsecond)) },
		"Retry(-1, 1s): neither":                 func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.Retry(-1, time.Second)) },
		"Retry(1, 1µs): neither":                 func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.Retry(1, time.Microsecond)) },
		"LateTo is for steps":                    func(in sdk.PCollection[int64]) { sdk.MapAsync("m", in, f, sdk.LateTo(&late)) },
		"Ordered is for MapAsync": func(in sdk.PCollection[int64]) {
			sdk.MapErr("m", in, func(v int64) (int64, error) { return v, nil }, sdk.Ordered())
		},
		"its elements in flight belong to checkpoints": func(in sdk.PCollection[int64]) {
			c := sdk.Map("channels", in, func(int64) chan int { return nil })
			sdk.MapAsync("m", c, func(context.Context, chan int) (int64, error) { return 0, nil })
		},
	} {
		_, err := sdk.Build("p", func(p *sdk.Pipeline) error { build(sdk.Create[int64]("in", p, 1)); return nil })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `step "m" (async_test.go:`) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func ExampleMapAsync() {
	lookUp := func(ctx context.Context, user string) (string, error) { return strings.ToUpper(user), nil } // asks a server
	var out memio.Collector[string]
	if _, err := direct.Run(context.Background(), "p", func(p *sdk.Pipeline) error {
		users := sdk.Create("users", p, "ann", "bob")
		memio.Write("collect", sdk.MapAsync("look up", users, lookUp, sdk.Concurrency(50), sdk.Timeout(time.Second)), &out)
		return nil
	}, direct.Options{}); err != nil {
		fmt.Println(err)
	}
	rows := out.Rows()
	slices.Sort(rows)
	fmt.Println(rows)
	// Output: [ANN BOB]
}
