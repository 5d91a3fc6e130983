package plan_test

import (
	"net/netip"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// The pipelines of the golden files: a line that moves here moves in them.

type click struct {
	User string
	Page string `beam:"page"`
	At   time.Time
}

func clickTime(c click) time.Time { return c.At }
func user(c click) string         { return c.User }

// live is a source without an end.
type live struct{ *memio.SliceSource[click] }

func (live) Unbounded() bool { return true }

var _ connector.Unbounded = live{}

func clicks(p *sdk.Pipeline) sdk.PCollection[click] {
	return sdk.Read("clicks", p, live{memio.Source([]click(nil))}, sdk.EventTime(clickTime, watermark.Bounded(time.Minute)))
}

type count struct{}

func (count) CreateAccumulator() int64           { return 0 }
func (count) AddInput(n int64, _ click) int64    { return n + 1 }
func (count) MergeAccumulators(a, b int64) int64 { return a + b }
func (count) ExtractOutput(n int64) int64        { return n }

// split has an output beside its main one that is read, and one that is not.
type split struct{ other, unread *sdk.Emitter[string] }

func (s *split) Declare(d *sdk.Decl) {
	s.other, s.unread = sdk.NewOutput[string](d, "other"), sdk.NewOutput[string](d, "unread")
}
func (s *split) ProcessElement(_ *sdk.ProcessContext, c click, _ *sdk.Emitter[click]) error {
	s.other.Emit(c.Page)
	s.unread.Emit(c.Page)
	return nil
}

// visits has a cell, timers of each kind, and code for the end of a window.
type visits struct{ n state.Value[int64] }

func (v *visits) Declare(d *sdk.KeyedDecl) {
	v.n = state.NewValue[int64](d, "n")
	sdk.EventTimer(d, "quiet", v.flush)
	sdk.ProcessingTimer(d, "flush", v.flush)
	sdk.EventTimerFamily(d, "pages", v.flushPage)
	sdk.ProcessingTimerFamily(d, "soon", v.flushPage)
	sdk.OnWindowExpiry(d, v.flush)
}
func (v *visits) ProcessElement(*sdk.ProcessContext, string, click, *sdk.Emitter[string]) error {
	return nil
}
func (v *visits) flushPage(*sdk.ProcessContext, string, string, *sdk.Emitter[string]) error {
	return nil
}
func (v *visits) flush(*sdk.ProcessContext, string, *sdk.Emitter[string]) error { return nil }

// steps has a step of each kind.
func steps(p *sdk.Pipeline) {
	var other sdk.PCollection[string]
	var late sdk.PCollection[sdk.KV[string, click]]
	in := sdk.ParDo("split", clicks(p), &split{}, sdk.OutputTo("other", &other))
	upper := sdk.Map("page of", in, func(c click) string { return c.Page })
	pages := sdk.Reshuffle("spread", sdk.Flatten("pages", sdk.Filter("no root", upper, func(s string) bool { return s != "/" }), other))
	memio.Write("write pages", pages, &memio.Collector[string]{})

	hourly := sdk.WindowInto("hourly", sdk.KeyBy("by user", in, user), window.Fixed(time.Hour), sdk.AllowedLateness(time.Minute))
	sdk.GroupByKey("group", hourly)
	sdk.GroupByKey("group, late apart", hourly, sdk.LateTo(&late))
	sdk.MapValues("late pages", late, func(c click) string { return c.Page })
	sdk.CombinePerKey("count", hourly, count{})
	sdk.CombinePerKey("count, late apart", hourly, count{}, sdk.LateTo(&late))
	sdk.CoGroupByKey("both", hourly, late)
	sdk.CombinePerHotKey("hot count", hourly, 4, count{})
	sdk.CoGroupByKey3("all three", hourly, late, hourly)
	parts := sdk.Partition("by length", upper, 3, func(s string) int { return min(len(s), 2) })
	sdk.Map("short", parts[1], func(s string) string { return s })
	sdk.ParDoPerKey("visits", hourly, &visits{})
}

// windows has one collection for each way of windowing.
func windows(p *sdk.Pipeline) {
	in := clicks(p)
	w := func(name string, fn window.Fn, opts ...sdk.WindowOption) { sdk.WindowInto(name, in, fn, opts...) }
	w("fixed", window.Fixed(time.Hour))
	w("shifted", window.Fixed(24*time.Hour).Offset(-6*time.Hour))
	w("early and late", window.Fixed(90*time.Second), sdk.Accumulating, sdk.AllowedLateness(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(10)).Late(trigger.AfterCount(2))))
	sliding := sdk.WindowInto("sliding", in, window.Sliding(time.Hour, 10*time.Minute).Offset(11*time.Minute))
	sdk.Print("print", sliding) // it sees windows, so an element is copied into each of its own
	sdk.CombinePerKey("merged", sdk.WindowInto("sessions", sdk.KeyBy("by user", in, user), window.Sessions(30*time.Minute)), count{})
	w("early", window.Global(), sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))))
}

// views has a step with a view of each kind, with and without state, and one that waits.
func views(p *sdk.Pipeline) {
	hourly := sdk.WindowInto("hourly", clicks(p), window.Fixed(time.Hour))
	daily := sdk.WindowInto("daily", hourly, window.Fixed(24*time.Hour), sdk.Accumulating)
	byUser := sdk.KeyBy("by user", daily, user)
	all := sdk.AsSlice("all", daily)
	byUsers := sdk.AsMultimap("users", byUser)
	sdk.MapErr("look up", hourly, func(c click) (click, error) { return c, nil }, sdk.With(all), sdk.With(byUsers))
	counts := sdk.AsMap("counts", sdk.CombinePerKey("count", byUser, count{}))
	sdk.ParDoPerKey("visits", sdk.KeyBy("by user again", hourly, user), &visits{}, sdk.With(counts))
	sdk.MapWith("total", hourly, sdk.AsSingleton("number", sdk.CombineGlobally("sum", daily, count{})), func(c click, n int64) (int64, error) { return n, nil })
	sdk.WaitOn("after", hourly, daily)
}

// scopes nests, is left and entered again, and has the name of a step.
func scopes(p *sdk.Pipeline) {
	in := sdk.Create("a", p, int64(1))
	sum := sdk.CombineGlobally("total", in, total{})
	p.Scope("a", func() {
		p.Scope("inner", func() { in = sdk.Map("m", in, func(v int64) int64 { return -v }) })
	})
	in = sdk.Map("between", in, func(v int64) int64 { return v })
	p.Scope("a", func() { sdk.Flatten("f", in, sum) })
}

type total struct{}

func (total) CreateAccumulator() int64           { return 0 }
func (total) AddInput(n, v int64) int64          { return n + v }
func (total) MergeAccumulators(a, b int64) int64 { return a + b }
func (total) ExtractOutput(n int64) int64        { return n }

// everything has a field of each type that has an encoding in Beam's schemas; opaque has one that has none.
type (
	everything struct {
		Bool   bool
		Byte   byte
		Int    int32
		F32    float32
		F64    float64
		Text   string
		Bytes  []byte
		Four   [4]byte
		When   time.Time
		Maybe  *int64
		List   []string
		Three  [3]int64
		Counts map[string]int64
		Inner  click
	}
	opaque struct {
		Addr  netip.Addr
		Pair  sdk.KV[string, int64]
		Maybe *int64
	}
)

func types(p *sdk.Pipeline) {
	sdk.Create[everything]("everything", p)
	sdk.Create[opaque]("opaque", p)
	sdk.Map("none", sdk.Create[float64]("floats", p), func(float64) chan int { return nil })
	sdk.GroupByKey("by float", sdk.KeyBy("float", sdk.Create[string]("strings", p), func(string) float64 { return 0 }))
}
