package howto_test

import (
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/io/parquetio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
)

var _ = sources

func sources(p *sdk.Pipeline) {
	withTime := sdk.EventTime(Click.At, watermark.WithIdleness(watermark.Bounded(time.Minute), 30*time.Second))
	jsonlio.Read[Click]("clicks", p, "clicks", withTime)
	parquetio.Read[Click]("archive", p, "archive/*.parquet", withTime, parquetio.OrderedBy("time", time.Hour))
}
