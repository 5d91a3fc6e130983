package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/transforms/stats"
)

type (
	pairs = sdk.PCollection[sdk.KV[string, int64]]

	// secret has no encoding.
	secret struct{ C chan int }

	// secretSum keeps one.
	secretSum struct{}
)

func (secretSum) CreateAccumulator() secret            { return secret{} }
func (secretSum) AddInput(a secret, _ int64) secret    { return a }
func (secretSum) MergeAccumulators(a, _ secret) secret { return a }
func (secretSum) ExtractOutput(secret) int64           { return 0 }

// looseKey has a coder that does not say that it is deterministic.
type looseKey int64

type loose struct{}

func (loose) Append(dst []byte, k looseKey) ([]byte, error) { return append(dst, byte(k)), nil }
func (loose) Decode(src []byte) (looseKey, []byte, error)   { return looseKey(src[0]), src[1:], nil }

// hidden keeps its sum where no coder sees it.
type hidden struct{ sum int64 }

type hiddenSum struct{}

func (hiddenSum) CreateAccumulator() hidden            { return hidden{} }
func (hiddenSum) AddInput(a hidden, v int64) hidden    { return hidden{a.sum + v} }
func (hiddenSum) MergeAccumulators(a, b hidden) hidden { return hidden{a.sum + b.sum} }
func (hiddenSum) ExtractOutput(a hidden) int64         { return a.sum }

func numbers(p *sdk.Pipeline, vs ...int64) sdk.PCollection[int64] {
	return sdk.Create("numbers", p, vs...)
}

// timed are numbers that are their own timestamps, in ms.
func timed(p *sdk.Pipeline, vs ...int64) sdk.PCollection[int64] {
	return sdk.Read("numbers", p, memio.Source(vs), sdk.EventTime(time.UnixMilli, watermark.Bounded(0)))
}

func byParity(name string, in sdk.PCollection[int64]) pairs {
	return sdk.KeyBy(name, in, func(v int64) string { return []string{"even", "odd"}[v&1] })
}

// endless is a source without an end.
type endless struct{ *memio.SliceSource[int64] }

func (endless) Unbounded() bool { return true }

var _ connector.Unbounded = endless{}

type twoOutputs struct{ more *sdk.Emitter[string] }

func (d *twoOutputs) Declare(dc *sdk.Decl) { d.more = sdk.NewOutput[string](dc, "more") }
func (d *twoOutputs) ProcessElement(_ *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
	d.more.Emit(fmt.Sprint(v))
	emit.Emit(v)
	return nil
}

type sameNames struct{ twoOutputs }

func (d *sameNames) Declare(dc *sdk.Decl) {
	sdk.NewOutput[string](dc, "more")
	sdk.NewOutput[int64](dc, "more")
}

type oldSetup struct{ twoOutputs }

func (*oldSetup) Setup(context.Context) error { return nil }

type unsetOutput struct{ twoOutputs }

func (*unsetOutput) Check() error { return errors.New("it has no limit: set one") }

type valueFn struct{ n int }

func (valueFn) ProcessElement(_ *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
	return nil
}
func (f *valueFn) Teardown() error { f.n++; return nil }

// lostOutput and lostCell keep what they declare in a copy of themselves.
type lostOutput struct{ more *sdk.Emitter[string] }

func (f lostOutput) Declare(d *sdk.Decl) { f.more = sdk.NewOutput[string](d, "more"); _ = f.more }
func (f lostOutput) ProcessElement(_ *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
	return nil
}

type lostCell struct{ last state.Value[int64] }

func (f lostCell) Declare(d *sdk.KeyedDecl) { f.last = state.NewValue[int64](d, "last"); _ = f.last }
func (f lostCell) ProcessElement(_ *sdk.ProcessContext, _ string, v int64, emit *sdk.Emitter[int64]) error {
	return nil
}

type keyedFn struct{}

func (keyedFn) Declare(*sdk.KeyedDecl) {}
func (keyedFn) ProcessElement(_ *sdk.ProcessContext, _ string, v int64, emit *sdk.Emitter[int64]) error {
	return nil
}

func TestMistakesNameStepLineAndRemedy(t *testing.T) {
	fixed := window.Fixed(10 * time.Millisecond)
	for _, c := range []struct {
		name  string
		build func(p *sdk.Pipeline)
		step  string
		says  []string
	}{
		{"name taken", func(p *sdk.Pipeline) { numbers(p); numbers(p) }, "numbers",
			[]string{"taken by the step at construct_test.go:", "rename it or put it into a Scope"}},
		{"name with a slash", func(p *sdk.Pipeline) { sdk.Create("a/b", p, 1) }, "a/b", []string{"must not", "slash"}},
		{"no name", func(p *sdk.Pipeline) { sdk.Create("", p, 1) }, "", []string{"must not be empty"}},
		{"name that is no UTF-8", func(p *sdk.Pipeline) { sdk.Create("a\xff", p, 1) }, "a\xff", []string{"what is no UTF-8"}},
		{"name of a scope", func(p *sdk.Pipeline) { p.Scope(" x", func() {}) }, " x", []string{"begin or end with a space"}},
		{"in a scope", func(p *sdk.Pipeline) {
			p.Scope("outer", func() { p.Scope("inner", func() { numbers(p); numbers(p) }) })
		}, "outer/inner/numbers", []string{"taken"}},
		{"no event time", func(p *sdk.Pipeline) { sdk.WindowInto("w", numbers(p, 1), fixed) }, "w",
			[]string{"no event time", "give its source sdk.EventTime"}},
		{"size of windows", func(p *sdk.Pipeline) { sdk.WindowInto("w", timed(p, 1), window.Fixed(0)) }, "w", []string{"at least 1ms"}},
		{"no window function", func(p *sdk.Pipeline) { sdk.WindowInto("w", timed(p, 1), nil) }, "w", []string{"use window.Fixed, window.Sliding"}},
		{"trigger without a count", func(p *sdk.Pipeline) {
			sdk.WindowInto("w", timed(p, 1), fixed, sdk.Trigger(trigger.AfterWatermark().Late(trigger.AfterCount(0))))
		}, "w", []string{"count of at least 1"}},
		{"no trigger", func(p *sdk.Pipeline) { sdk.WindowInto("w", timed(p, 1), fixed, sdk.Trigger(nil)) }, "w", []string{"use trigger.AfterWatermark"}},
		{"negative lateness", func(p *sdk.Pipeline) { sdk.WindowInto("w", timed(p, 1), fixed, sdk.AllowedLateness(-time.Second)) }, "w",
			[]string{"allowed lateness -1s: must not be negative"}},
		{"lateness below a millisecond", func(p *sdk.Pipeline) {
			sdk.WindowInto("w", timed(p, 1), fixed, sdk.AllowedLateness(900*time.Microsecond))
		}, "w", []string{"allowed lateness 900µs: must not be negative, and whole milliseconds"}},
		{"disorder below a millisecond", func(p *sdk.Pipeline) {
			sdk.Read("in", p, memio.Source([]int64{1}), sdk.EventTime(time.UnixMilli, watermark.Bounded(1500*time.Microsecond)))
		}, "in", []string{"watermark.Bounded(1.5ms): must", "whole milliseconds"}},
		{"silence below a millisecond", func(p *sdk.Pipeline) {
			sdk.Read("in", p, memio.Source([]int64{1}), sdk.EventTime(time.UnixMilli, watermark.WithIdleness(watermark.Monotonic(), time.Microsecond)))
		}, "in", []string{"watermark.WithIdleness(1µs): must", "whole milliseconds"}},
		{"flatten of unlike windowings (Beam 22903)", func(p *sdk.Pipeline) {
			in := timed(p, 1)
			sdk.Flatten("both", sdk.WindowInto("a", in, fixed), sdk.WindowInto("b", in, fixed, sdk.Accumulating))
		}, "both", []string{"its inputs are windowed unlike: the first into window.Fixed(10ms), trigger AfterWatermark.Late(AfterCount(1)), lateness 0s, discarding", "input 2 into window.Fixed(10ms), trigger AfterWatermark.Late(AfterCount(1)), lateness 0s, accumulating", "window all with the same WindowInto"}},
		{"flatten of two pipelines", func(p *sdk.Pipeline) {
			sdk.Flatten("both", numbers(p, 1), numbers(sdk.NewPipeline("other"), 1))
		}, "both", []string{"belongs to another pipeline"}},
		{"co-group of unlike windowings", func(p *sdk.Pipeline) {
			in := byParity("parity", timed(p, 1))
			sdk.CoGroupByKey("join", in, sdk.WindowInto("w", in, fixed))
		}, "join", []string{"windowed unlike", "window all with the same WindowInto"}},
		{"co-group of two pipelines", func(p *sdk.Pipeline) {
			sdk.CoGroupByKey("join", byParity("parity", numbers(p, 1)), byParity("parity", numbers(sdk.NewPipeline("other"), 1)))
		}, "join", []string{"belongs to another pipeline"}},
		{"co-group of three, the third windowed unlike", func(p *sdk.Pipeline) {
			in := byParity("parity", timed(p, 1))
			sdk.CoGroupByKey3("join", in, in, sdk.WindowInto("w", in, fixed))
		}, "join", []string{"windowed unlike", "input 3 into window.Fixed(10ms)", "window all with the same WindowInto"}},
		{"no partitions", func(p *sdk.Pipeline) { sdk.Partition("cut", numbers(p, 1), 0, func(int64) int { return 0 }) }, "cut",
			[]string{"0 partitions: there may be 1 to 1000"}},
		{"partition without a function", func(p *sdk.Pipeline) { sdk.Partition("cut", numbers(p, 1), 2, nil) }, "cut",
			[]string{"its function is nil: pass one"}},
		{"no function", func(p *sdk.Pipeline) { sdk.Map[int64, int64]("m", numbers(p, 1), nil) }, "m", []string{"its function is nil: pass one"}},
		{"no function that can fail", func(p *sdk.Pipeline) { sdk.MapErr[int64, int64]("m", numbers(p, 1), nil) }, "m", []string{"its function is nil"}},
		{"no function of many outputs", func(p *sdk.Pipeline) { sdk.FlatMap[int64, int64]("m", numbers(p, 1), nil) }, "m", []string{"its function is nil"}},
		{"no function with a context", func(p *sdk.Pipeline) { sdk.ParDoFunc[int64, int64]("m", numbers(p, 1), nil) }, "m", []string{"its function is nil"}},
		{"no filter", func(p *sdk.Pipeline) { sdk.Filter("m", numbers(p, 1), nil) }, "m", []string{"its function is nil"}},
		{"no function of the key", func(p *sdk.Pipeline) { sdk.KeyBy[int64, int64]("m", numbers(p, 1), nil) }, "m", []string{"its function is nil"}},
		{"no function of the value", func(p *sdk.Pipeline) { sdk.MapValues[string, int64, int64]("m", byParity("k", numbers(p, 1)), nil) }, "m", []string{"its function is nil"}},
		{"key whose coder is not deterministic", func(p *sdk.Pipeline) {
			sdk.UseCoder(p, loose{})
			sdk.GroupByKey("group", sdk.KeyBy("key", numbers(p, 1), func(v int64) looseKey { return looseKey(v) }))
		}, "group", []string{"its key", "looseKey", "Deterministic"}},
		{"accumulator with unexported fields", func(p *sdk.Pipeline) {
			sdk.CombinePerKey("sum", byParity("parity", numbers(p, 1)), hiddenSum{})
		}, "sum", []string{"its accumulator is kept in checkpoints", "hidden", "unexported"}},
		{"LateTo nowhere", func(p *sdk.Pipeline) {
			sdk.CombinePerKey("sum", byParity("parity", numbers(p, 1)), stats.Sum[int64]{}, sdk.LateTo[sdk.KV[string, int64]](nil))
		}, "sum", []string{"LateTo has a nil pointer", "pass &out"}},
		{"LateTo of a keyed step nowhere", func(p *sdk.Pipeline) {
			sdk.ParDoPerKey("count", byParity("parity", numbers(p, 1)), keyedFn{}, sdk.LateTo[sdk.KV[string, int64]](nil))
		}, "count", []string{"LateTo has a nil pointer", "pass &out"}},
		{"OutputTo nowhere", func(p *sdk.Pipeline) {
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.OutputTo[string]("more", nil))
		}, "two", []string{`OutputTo("more") has a nil pointer`}},
		{"ErrorsTo nowhere", func(p *sdk.Pipeline) {
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.ErrorsTo[int64](nil))
		}, "two", []string{"ErrorsTo has a nil pointer"}},
		{"group of what never ends", func(p *sdk.Pipeline) {
			sdk.GroupByKey("group", byParity("k", sdk.Read("endless", p, endless{memio.Source([]int64{1})})))
		}, "group", []string{"unbounded and in the global window", "use WindowInto, or a trigger"}},
		{"co-group of what never ends", func(p *sdk.Pipeline) {
			in := byParity("k", sdk.Read("endless", p, endless{memio.Source([]int64{1})}))
			sdk.CoGroupByKey("join", byParity("k2", numbers(p, 1)), in)
		}, "join", []string{"unbounded and in the global window", "use WindowInto, or a trigger"}},
		{"accumulator without an encoding", func(p *sdk.Pipeline) {
			sdk.CombinePerKey("sum", byParity("parity", numbers(p, 1)), secretSum{})
		}, "sum", []string{"its accumulator is kept in checkpoints", "C", "chan int"}},
		{"values without an encoding", func(p *sdk.Pipeline) {
			in := sdk.Map("secret", numbers(p, 1), func(int64) sdk.KV[string, secret] { return sdk.KV[string, secret]{} })
			sdk.GroupByKey("group", in)
		}, "group", []string{"its accumulator is kept in checkpoints", "chan int"}},
		{"key without an encoding", func(p *sdk.Pipeline) {
			sdk.GroupByKey("group", sdk.KeyBy("key", numbers(p, 1), func(int64) any { return 1 }))
		}, "group", []string{"its key", "interface"}},
		{"reshuffle without an encoding", func(p *sdk.Pipeline) {
			sdk.Reshuffle("spread", sdk.Map("secret", numbers(p, 1), func(int64) secret { return secret{} }))
		}, "spread", []string{"its elements move to other subtasks", "chan int"}},
		{"LateTo of another type", func(p *sdk.Pipeline) {
			var late sdk.PCollection[int64]
			sdk.CombinePerKey("sum", byParity("parity", numbers(p, 1)), stats.Sum[int64]{}, sdk.LateTo(&late))
			sdk.Map("use", late, func(v int64) int64 { return v })
		}, "sum", []string{"LateTo wants a PCollection of the elements of its input, *PCollection[coder.KV[string,int64]], not [int64]"}},
		{"LateTo twice", func(p *sdk.Pipeline) {
			var a, b pairs
			sdk.CombinePerKey("sum", byParity("parity", numbers(p, 1)), stats.Sum[int64]{}, sdk.LateTo(&a), sdk.LateTo(&b))
		}, "sum", []string{"more LateTo"}},
		{"OutputTo of another type", func(p *sdk.Pipeline) {
			var more sdk.PCollection[int64]
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.OutputTo("more", &more))
			sdk.Map("use", more, func(v int64) int64 { return v })
		}, "two", []string{`OutputTo("more") wants a *PCollection[string], not [int64]`}},
		{"OutputTo of no output", func(p *sdk.Pipeline) {
			var less sdk.PCollection[string]
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.OutputTo("less", &less))
			sdk.Map("use", less, func(v string) string { return v })
		}, "two", []string{`OutputTo("less")`, "declares no such output"}},
		{"OutputTo twice", func(p *sdk.Pipeline) {
			var a, b sdk.PCollection[string]
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.OutputTo("more", &a), sdk.OutputTo("more", &b))
			sdk.Map("use", a, func(v string) string { return v })
		}, "two", []string{`OutputTo("more") is given twice`}},
		{"ErrorsTo twice", func(p *sdk.Pipeline) {
			var a, b sdk.PCollection[sdk.Failed[int64]]
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.ErrorsTo(&a), sdk.ErrorsTo(&b))
		}, "two", []string{"ErrorsTo is given twice"}},
		{"LateTo of a step without windows", func(p *sdk.Pipeline) {
			var late sdk.PCollection[int64]
			sdk.ParDo("two", numbers(p, 1), &twoOutputs{}, sdk.LateTo(&late))
			sdk.Map("use", late, func(v int64) int64 { return v })
		}, "two", []string{"LateTo is for steps that keep state by window"}},
		{"LateTo of another type at a keyed step", func(p *sdk.Pipeline) {
			var late sdk.PCollection[int64]
			sdk.ParDoPerKey("count", byParity("parity", numbers(p, 1)), keyedFn{}, sdk.LateTo(&late))
			sdk.Map("use", late, func(v int64) int64 { return v })
		}, "count", []string{"LateTo wants a *PCollection[coder.KV[string,int64]], not [int64]"}},
		{"two outputs of one name", func(p *sdk.Pipeline) { sdk.ParDo("two", numbers(p, 1), &sameNames{}) }, "two",
			[]string{`declares two outputs "more"`}},
		{"ErrorsTo of another type", func(p *sdk.Pipeline) {
			var failed sdk.PCollection[sdk.Failed[string]]
			sdk.MapErr("try", numbers(p, 1), func(v int64) (int64, error) { return v, nil }, sdk.ErrorsTo(&failed))
			sdk.Map("use", failed, func(v sdk.Failed[string]) string { return v.Err })
		}, "try", []string{"ErrorsTo wants a *PCollection[kernel.Failed[int64]]"}},
		{"outputs of a step with a mistake", func(p *sdk.Pipeline) {
			var more sdk.PCollection[string]
			var failed sdk.PCollection[sdk.Failed[int64]]
			var late pairs
			in := numbers(p, 1)
			sdk.ParDo("numbers", in, &twoOutputs{}, sdk.OutputTo("more", &more), sdk.ErrorsTo(&failed))
			sdk.CombinePerKey("numbers", byParity("parity", in), secretSum{}, sdk.LateTo(&late))
			sdk.Map("a", more, func(v string) string { return v })
			sdk.Map("b", failed, func(v sdk.Failed[int64]) string { return v.Err })
			sdk.MapValues("c", late, func(v int64) int64 { return v })
		}, "numbers", []string{"taken"}},
		{"signature of Setup", func(p *sdk.Pipeline) { sdk.ParDo("two", numbers(p, 1), &oldSetup{}) }, "two",
			[]string{"*sdk_test.oldSetup.Setup is a func(context.Context) error and would never be called", "make it a func(context.Context, connector.Subtask) error"}},
		{"Check of a DoFn", func(p *sdk.Pipeline) { sdk.ParDo("two", numbers(p, 1), &unsetOutput{}) }, "two", []string{"it has no limit: set one"}},
		{"pointer receiver", func(p *sdk.Pipeline) { sdk.ParDo("v", numbers(p, 1), valueFn{}) }, "v",
			[]string{"valueFn.Teardown has a pointer receiver and would never be called", "pass &sdk_test.valueFn{…}"}},
		{"Declare of a copy", func(p *sdk.Pipeline) { sdk.ParDo("v", numbers(p, 1), lostOutput{}) }, "v",
			[]string{"lostOutput.Declare has a value receiver", "give it a pointer receiver, func (f *lostOutput) Declare, and pass &sdk_test.lostOutput{…}"}},
		{"Declare of a copy, keyed", func(p *sdk.Pipeline) {
			sdk.ParDoPerKey("v", sdk.KeyBy("key", numbers(p, 1), func(int64) string { return "" }), &lostCell{})
		}, "v", []string{"lostCell.Declare has a value receiver", "give it a pointer receiver"}},
		{"nil DoFn", func(p *sdk.Pipeline) { sdk.ParDo("two", numbers(p, 1), (*twoOutputs)(nil)) }, "two", []string{"nil *sdk_test.twoOutputs"}},
		{"never fires", func(p *sdk.Pipeline) {
			in := sdk.Read("endless", p, endless{memio.Source([]int64{1})})
			sdk.CombineGlobally("sum", in, stats.Sum[int64]{})
		}, "sum/combine", []string{"unbounded and in the global window, which never ends", "use WindowInto, or a trigger that fires earlier"}},
		{"EventTime of another type", func(p *sdk.Pipeline) {
			sdk.Read("in", p, memio.Source([]int64{1}), sdk.EventTime(func(string) time.Time { return time.Time{} }, watermark.Monotonic()))
		}, "in", []string{"EventTime wants a func(int64) time.Time, not a func(string) time.Time"}},
		{"EventTime without a strategy", func(p *sdk.Pipeline) {
			sdk.Read("in", p, memio.Source([]int64{1}), sdk.EventTime(time.UnixMilli, nil))
		}, "in", []string{"use watermark.Bounded or watermark.Monotonic"}},
		{"negative rate", func(p *sdk.Pipeline) { sdk.Read("in", p, memio.Source([]int64{1}), sdk.MaxRate(-1)) }, "in",
			[]string{"MaxRate(-1): must not be negative"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sdk.NewPipeline("p")
			c.build(p)
			err := p.Err()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.says, fmt.Sprintf("step %q (", c.step)) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n > 1 && !strings.HasPrefix(c.name, "outputs of a step") {
				t.Errorf("%d mistakes reported instead of one:\n%v", n, err)
			}
			if !regexp.MustCompile(`\(construct_test\.go:\d+\)`).MatchString(err.Error()) {
				t.Errorf("error names no line of the program: %v", err)
			}
		})
	}
}

func TestMistakeNamesTheLineThatCalls(t *testing.T) {
	p := sdk.NewPipeline("p")
	in := numbers(p, 1)
	_, _, line, _ := runtime.Caller(0)
	stats.Count("numbers", sdk.WindowInto("numbers", in, window.Global()))
	if want := fmt.Sprintf("(construct_test.go:%d)", line+1); p.Err() == nil || !strings.Contains(p.Err().Error(), want) {
		t.Errorf("error lacks %q: %v", want, p.Err())
	}
}

func TestMistakesAreReportedTogetherAndOnce(t *testing.T) {
	p := sdk.NewPipeline("p")
	bad := sdk.WindowInto("first", numbers(p, 1), window.Fixed(time.Second))
	sdk.Map("follows", bad, func(v int64) int64 { return v })
	sdk.CombineGlobally("follows too", bad, stats.Sum[int64]{})
	sdk.Flatten("and this", bad, bad)
	sdk.Write("and that", bad, &memio.Collector[int64]{})
	sdk.Create("second/", p, 1)
	if n := len(strings.Split(p.Err().Error(), "\n")); n != 2 {
		t.Errorf("%d mistakes, want 2:\n%v", n, p.Err())
	}
}

func TestZeroPCollectionNamesTheStep(t *testing.T) {
	var zero sdk.PCollection[string]
	var pairs sdk.PCollection[sdk.KV[string, int64]]
	same := func(v string) string { return v }
	for name, step := range map[string]func(){
		"Map": func() { sdk.Map("m", zero, same) },
		"ParDo": func() {
			sdk.ParDoFunc("m", zero, func(*sdk.ProcessContext, string, *sdk.Emitter[int]) error { return nil })
		},
		"Filter":          func() { sdk.Filter("m", zero, func(string) bool { return true }) },
		"KeyBy":           func() { sdk.KeyBy("m", zero, same) },
		"WindowInto":      func() { sdk.WindowInto("m", zero, window.Global()) },
		"Flatten":         func() { sdk.Flatten("m", zero) },
		"Reshuffle":       func() { sdk.Reshuffle("m", zero) },
		"GroupByKey":      func() { sdk.GroupByKey("m", pairs) },
		"CombinePerKey":   func() { sdk.CombinePerKey("m", pairs, stats.Sum[int64]{}) },
		"CombineGlobally": func() { sdk.CombineGlobally("m", zero, stats.CountFn[string]{}) },
		"CoGroupByKey":    func() { sdk.CoGroupByKey("m", pairs, pairs) },
		"CoGroupByKey3":   func() { sdk.CoGroupByKey3("m", pairs, pairs, pairs) },
		"Partition":       func() { sdk.Partition("m", zero, 2, func(string) int { return 0 }) },
		"ParDoPerKey":     func() { sdk.ParDoPerKey("m", pairs, keyedFn{}) },
		"Write":           func() { memio.Write("m", zero, &memio.Collector[string]{}) },
		"composite":       func() { stats.Count("m", zero) },
		"passert":         func() { passert.Equals("m", zero, "a") },
		"passert, window": func() { passert.That("m", zero).InWindow(window.GlobalWindow).Empty() },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sdk.Build("p", func(p *sdk.Pipeline) error {
				sdk.Create("bad/", p, 1)
				step()
				return nil
			})
			for _, want := range []string{`step "m" (construct_test.go:`, "its input is the zero PCollection", "pass what a step returned", `step "bad/"`} {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "goroutine") {
					t.Errorf("error lacks %q, or has a stack: %v", want, err)
				}
			}
		})
	}
}

func TestPanicInBuildIsAnErrorWithItsStack(t *testing.T) {
	_, err := sdk.Build("p", func(*sdk.Pipeline) error { panic("no way") })
	if err == nil || !strings.Contains(err.Error(), `build pipeline "p": panic: no way`) || !strings.Contains(err.Error(), "construct_test.go") {
		t.Errorf("error %v", err)
	}
}

// A panic may come from a mistake that was recorded before it, which is what helps.
func TestPanicInBuildDoesNotHideMistakes(t *testing.T) {
	_, err := sdk.Build("p", func(p *sdk.Pipeline) error {
		parts := sdk.Partition("cut", numbers(p, 1), -1, func(int64) int { return 0 })
		sdk.Map("first", parts[0], func(v int64) int64 { return v })
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), `step "cut" (construct_test.go:`) || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("error %v", err)
	}
}

// What runners say of late elements depends on it. Of a join with one LateTo, those of the other input are dropped.
func TestNodeSaysWhetherAllLateElementsAreKept(t *testing.T) {
	g, err := sdk.Build("p", func(p *sdk.Pipeline) error {
		in := sdk.WindowInto("windows", byParity("parity", timed(p, 1)), window.Fixed(time.Second))
		var a, b, c, d, e, f sdk.PCollection[sdk.KV[string, int64]]
		sdk.CombinePerKey("dropped", in, stats.Sum[int64]{})
		sdk.CombinePerKey("kept", in, stats.Sum[int64]{}, sdk.LateTo(&a))
		sdk.CoGroupByKey("half kept", in, in, sdk.LateTo(&b))
		sdk.CoGroupByKey("both kept", in, in, sdk.LateTo(&c), sdk.LateTo(&d))
		sdk.CoGroupByKey3("two of three kept", in, in, in, sdk.LateTo(&e), sdk.LateTo(&f))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"dropped": false, "kept": true, "half kept": false, "both kept": true, "two of three kept": false}
	for _, n := range g.Nodes {
		if kept, ok := want[n.Name]; ok && n.LateTo != kept {
			t.Errorf("step %q: LateTo is %v", n.Name, n.LateTo)
		}
		delete(want, n.Name)
	}
	if len(want) > 0 {
		t.Errorf("there are no steps %v", want)
	}
}

func TestEmptyPipelineIsRefused(t *testing.T) {
	if _, err := sdk.NewPipeline("p").Graph(); err == nil || err.Error() != "the pipeline has no steps" {
		t.Errorf("error %v", err)
	}
}
