package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

// timedNumber is a number that is kept back, with its time and window.
type timedNumber struct {
	v  int64
	at time.Time
	in window.Window
}

// sorter has everything that a DoFn may have. It keeps odd numbers back until its bundle ends.
type sorter struct {
	Limit int64

	kept    []timedNumber
	subtask sdk.Subtask
	large   *sdk.Emitter[string]
	seen    *sdk.Counter
	sizes   *sdk.Distribution
}

func (s *sorter) Declare(d *sdk.Decl) {
	s.large = sdk.NewOutput[string](d, "large")
	s.seen, s.sizes = d.Counter("seen"), d.Distribution("sizes")
}

func (s *sorter) Setup(_ context.Context, sub sdk.Subtask) error {
	if s.subtask.Parallelism != 0 {
		return errors.New("set up twice, or a copy of one that was")
	}
	s.subtask = sub
	return nil
}

func (s *sorter) ProcessElement(c *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
	s.seen.Inc(1)
	s.sizes.Observe(v)
	switch {
	case v > s.Limit:
		s.large.Emit(fmt.Sprint(v))
	case v%2 == 1:
		s.kept = append(s.kept, timedNumber{v, c.Timestamp(), c.Window()})
	default:
		emit.Emit(v)
	}
	return nil
}

func (s *sorter) FinishBundle(_ context.Context, emit *sdk.Emitter[int64]) error {
	for _, k := range s.kept {
		emit.EmitIn(k.in, k.at, k.v)
	}
	s.kept = nil
	return nil
}

func (s *sorter) Teardown() error {
	if s.subtask.Parallelism == 0 || len(s.kept) > 0 {
		return errors.New("torn down before it was set up or its bundle finished")
	}
	return nil
}

func TestDoFnOfManyParts(t *testing.T) {
	prototype := &sorter{Limit: 5}
	r := ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.Read("in", p, memio.Source([]int64{1, 2, 3, 4, 5, 6, 77}, memio.Splits(2)))
		var large sdk.PCollection[string]
		small := sdk.ParDo("sort", in, prototype, sdk.OutputTo("large", &large))
		passert.Equals("small", small, 1, 2, 3, 4, 5)
		passert.Equals("large", large, "6", "77")
		return nil
	})
	s := r.Step("sort")
	if s.Counters["seen"] != 7 || s.RecordsIn != 7 {
		t.Errorf("counted %d, records %d, want 7", s.Counters["seen"], s.RecordsIn)
	}
	if d := cmp.Diff(direct.Summary{Count: 7, Sum: 98, Min: 1, Max: 77}, s.Distributions["sizes"]); d != "" {
		t.Error(d)
	}
	if prototype.subtask.Parallelism != 0 || prototype.large != nil || prototype.seen != nil {
		t.Errorf("a subtask works on the prototype: %+v", prototype)
	}
}

// An output that nobody asked for costs nothing and breaks nothing.
func TestOutputThatNobodyReads(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		passert.Equals("small", sdk.ParDo("sort", numbers(p, 1, 9), &sorter{Limit: 5}), 1)
		return nil
	})
}

// alwaysEmits emits whenever its bundle ends.
type alwaysEmits struct{ sum timedNumber }

func (a *alwaysEmits) ProcessElement(c *sdk.ProcessContext, v int64, _ *sdk.Emitter[int64]) error {
	a.sum = timedNumber{a.sum.v + v, c.Timestamp(), c.Window()}
	return nil
}

func (a *alwaysEmits) FinishBundle(_ context.Context, emit *sdk.Emitter[int64]) error {
	emit.EmitIn(a.sum.in, a.sum.at, a.sum.v)
	a.sum.v = 0
	return nil
}

// A bundle has elements: FinishBundle is not called without one.
func TestFinishBundleIsForElements(t *testing.T) {
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
		in := sdk.Read("in", p, memio.Source([]int64{3, 5, 12}), sdk.EventTime(time.UnixMilli, watermark.Bounded(0)))
		w := sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond))
		return sdk.ParDo("sum", w, &alwaysEmits{})
	})
	var text []string
	for _, e := range got {
		text = append(text, fmt.Sprintf("%d @%d %v", e.Value, e.Time.UnixMilli(), e.Window == window.New(e.Window.StartTime(), e.Window.StartTime()+10)))
	}
	if d := cmp.Diff([]string{"3 @3 true", "5 @5 true", "12 @12 true"}, text); d != "" {
		t.Error(d)
	}
}

type failsAt struct {
	sorter
	when string
}

func (f *failsAt) Setup(context.Context, sdk.Subtask) error {
	if f.when == "set up" {
		return errors.New("no")
	}
	return nil
}

func (f *failsAt) FinishBundle(context.Context, *sdk.Emitter[int64]) error {
	if f.when == "finish bundle" {
		return errors.New("no")
	}
	return nil
}

func (f *failsAt) Teardown() error {
	if f.when == "tear down" {
		return errors.New("no")
	}
	return nil
}

func TestErrorsOfLifecycleMethodsNameTheStep(t *testing.T) {
	for _, when := range []string{"set up", "finish bundle", "tear down"} {
		err := run(func(p *sdk.Pipeline) error { sdk.ParDo("sort", numbers(p, 1), &failsAt{when: when}); return nil })
		if err == nil || !strings.HasPrefix(err.Error(), `step "sort": `) || !strings.HasSuffix(err.Error(), "no") {
			t.Errorf("%s: %v", when, err)
		}
	}
}

func TestEmitBackInTimeIsAnError(t *testing.T) {
	err := run(func(p *sdk.Pipeline) error {
		sdk.ParDoFunc("emit", timed(p, 5, 6), func(c *sdk.ProcessContext, v int64, emit *sdk.Emitter[int64]) error {
			emit.EmitAt(c.Timestamp().Add(-time.Millisecond), v)
			return nil
		})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), `step "emit": emit at 1970-01-01T00:00:00.004Z, before the element's timestamp`) {
		t.Errorf("error %v", err)
	}
}

func TestEmitAtAndInMoveForward(t *testing.T) {
	w := window.New(0, 1000)
	got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return sdk.ParDoFunc("emit", timed(p, 5), func(c *sdk.ProcessContext, v int64, emit *sdk.Emitter[string]) error {
			emit.Emit("same")
			emit.EmitAt(time.UnixMilli(7), "later")
			emit.EmitIn(w, time.UnixMilli(9), "elsewhere")
			return nil
		})
	})
	var text []string
	for _, e := range got {
		text = append(text, fmt.Sprintf("%s @%d %v", e.Value, e.Time.UnixMilli(), e.Window == w))
	}
	if d := cmp.Diff([]string{"elsewhere @9 true", "same @5 false", "later @7 false"}, text); d != "" {
		t.Error(d)
	}
}
