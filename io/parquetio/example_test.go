package parquetio_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/parquetio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
)

type departure struct {
	Date   time.Time `parquet:"date"`
	Origin string    `parquet:"origin"`
}

func Example() {
	var out memio.Collector[string]
	build := func(p *sdk.Pipeline) error {
		flights := parquetio.Read[departure]("read flights", p, "../../examples/flights/testdata/*.parquet",
			parquetio.OrderedBy("date", 0),
			sdk.EventTime(func(d departure) time.Time { return d.Date }, watermark.Monotonic()))
		early := sdk.Filter("in the first minute", flights, func(d departure) bool {
			return d.Date.Before(time.Date(2001, 1, 1, 0, 2, 0, 0, time.UTC))
		})
		memio.Write("write", sdk.Map("show", early, func(d departure) string {
			return d.Date.Format(time.DateTime) + " " + d.Origin
		}), &out)
		return nil
	}
	if _, err := direct.Run(context.Background(), "flights", build, direct.Options{Parallelism: 1}); err != nil {
		fmt.Println(err)
	}
	for _, row := range out.Rows() {
		fmt.Println(row)
	}
	// Output:
	// 2001-01-01 00:01:00 LAS
	// 2001-01-01 00:01:00 ATL
	// 2001-01-01 00:01:00 MCI
	// 2001-01-01 00:01:00 ANC
	// 2001-01-01 00:01:00 RIC
	// 2001-01-01 00:01:00 ATL
}
