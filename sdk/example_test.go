package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/stats"
)

// printSorted runs a pipeline here and prints the lines that it makes; a program uses runners.Main and a
// connector.
func printSorted(build func(p *sdk.Pipeline) sdk.PCollection[string]) {
	var lines memio.Collector[string]
	_, err := direct.Run(context.Background(), "example", func(p *sdk.Pipeline) error {
		sdk.Write("write", build(p), &lines)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	rows := lines.Rows()
	slices.Sort(rows)
	fmt.Println(strings.Join(rows, "\n"))
}

func ExampleMap() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		words := sdk.Create("words", p, "stream", "mill")
		return sdk.Map("shout", words, strings.ToUpper)
	})
	// Output:
	// MILL
	// STREAM
}

// Sale is an element with its event time.
type Sale struct {
	Shop  string
	Cents int64
	At    time.Time
}

// Time is for sdk.EventTime.
func (s Sale) Time() time.Time { return s.At }

func at(clock string) time.Time {
	t, err := time.Parse("15:04:05", clock)
	if err != nil {
		panic(err)
	}
	return t
}

var sales = []Sale{
	{"north", 250, at("10:00:10")},
	{"south", 100, at("10:00:20")},
	{"north", 150, at("10:00:50")},
	{"south", 300, at("10:01:30")}, // the watermark follows 20 seconds behind: 10:00 to 10:01 is complete
	{"north", 999, at("10:00:55")}, // late
}

func ExampleCombinePerKey() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := sdk.Read("sales", p, memio.Source(sales), sdk.EventTime(Sale.Time, watermark.Bounded(20*time.Second)))
		minutes := sdk.WindowInto("minutes", in, window.Fixed(time.Minute))
		byShop := sdk.KeyBy("by shop", minutes, func(s Sale) string { return s.Shop })
		cents := sdk.MapValues("cents", byShop, func(s Sale) int64 { return s.Cents })
		sums := sdk.CombinePerKey("sum", cents, stats.Sum[int64]{})
		return sdk.ParDoFunc("line", sums, func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprintf("%s %s %d", c.Window().Start().Format("15:04"), kv.Key, kv.Value))
			return nil
		})
	})
	// Output:
	// 10:00 north 400
	// 10:00 south 100
	// 10:01 south 300
}

func ExampleLateTo() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := sdk.Read("sales", p, memio.Source(sales), sdk.EventTime(Sale.Time, watermark.Bounded(20*time.Second)))
		minutes := sdk.WindowInto("minutes", in, window.Fixed(time.Minute))
		byShop := sdk.KeyBy("by shop", minutes, func(s Sale) string { return s.Shop })
		var late sdk.PCollection[sdk.KV[string, Sale]]
		sdk.CombinePerKey("count", byShop, stats.CountFn[Sale]{}, sdk.LateTo(&late))
		return sdk.Map("line", late, func(kv sdk.KV[string, Sale]) string { return fmt.Sprint("late: ", kv.Key, " ", kv.Value.Cents) })
	})
	// Output:
	// late: north 999
}

// splitWords emits long words apart.
type splitWords struct {
	long *sdk.Emitter[string]
}

func (s *splitWords) Declare(d *sdk.Decl) { s.long = sdk.NewOutput[string](d, "long") }

func (s *splitWords) ProcessElement(_ *sdk.ProcessContext, line string, emit *sdk.Emitter[string]) error {
	for _, w := range strings.Fields(line) {
		if len(w) > 5 {
			s.long.Emit(w)
		} else {
			emit.Emit(w)
		}
	}
	return nil
}

func ExampleOutputTo() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		lines := sdk.Create("lines", p, "the miller grinds", "the mill turns")
		var long sdk.PCollection[string]
		short := sdk.ParDo("split", lines, &splitWords{}, sdk.OutputTo("long", &long))
		return sdk.Flatten("all",
			sdk.Map("short", short, func(w string) string { return "short: " + w }),
			sdk.Map("long", long, func(w string) string { return "long: " + w }))
	})
	// Output:
	// long: grinds
	// long: miller
	// short: mill
	// short: the
	// short: the
	// short: turns
}
