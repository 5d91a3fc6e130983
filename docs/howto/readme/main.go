package main

import (
	"flag"
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

type Click struct {
	Page string    `json:"page"`
	Time time.Time `json:"time"`
}

func (c Click) At() time.Time { return c.Time }

type count struct{}

func (count) CreateAccumulator() int64           { return 0 }
func (count) AddInput(n int64, _ Click) int64    { return n + 1 }
func (count) MergeAccumulators(a, b int64) int64 { return a + b }
func (count) ExtractOutput(n int64) int64        { return n }

var (
	in  = flag.String("in", "clicks.jsonl", "`file` of clicks")
	out = flag.String("out", "out", "`directory` of counts")
)

func countHourly(clicks sdk.PCollection[Click]) sdk.PCollection[sdk.KV[string, int64]] {
	byPage := sdk.KeyBy("by page", clicks, func(c Click) string { return c.Page })
	return sdk.CombinePerKey("count", sdk.WindowInto("hourly", byPage, window.Fixed(time.Hour)), count{})
}

func build(p *sdk.Pipeline) error {
	clicks := jsonlio.Read[Click]("clicks", p, *in, sdk.EventTime(Click.At, watermark.Bounded(time.Minute)))
	jsonlio.Write("write", countHourly(clicks), *out)
	return nil
}

func main() { runners.Main("clicks", build) }
