package periodic_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/transforms/periodic"
)

func ExampleSequence() {
	begin := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	var times memio.Collector[string]
	_, err := direct.Run(context.Background(), "times", func(p *sdk.Pipeline) error {
		quarters := periodic.Sequence("quarters", p, 15*time.Minute, periodic.From(begin), periodic.Until(begin.Add(time.Hour)))
		sdk.Write("collect", sdk.Map("clock", quarters, func(t time.Time) string { return t.Format("15:04") }), &times)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(times.Rows())
	// Output: [10:00 10:15 10:30 10:45]
}
