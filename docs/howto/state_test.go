package howto_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/testing/ptest"
)

// firstOnly emits an event unless its ID has come in the last ten minutes.
type firstOnly struct{ seen state.Value[bool] }

func (f *firstOnly) Declare(d *sdk.KeyedDecl) {
	f.seen = state.NewValue[bool](d, "seen", state.TTL(10*time.Minute, state.OnWrite, state.EventTime))
}

func (f *firstOnly) ProcessElement(_ *sdk.ProcessContext, _ string, e Click, emit *sdk.Emitter[Click]) error {
	if !f.seen.Get() {
		emit.Emit(e)
	}
	f.seen.Set(true)
	return nil
}

// limiter lets three clicks of a page pass in any minute.
type limiter struct{ passed state.OrderedList[bool] }

func (l *limiter) Declare(d *sdk.KeyedDecl) {
	l.passed = state.NewOrderedList[bool](d, "passed", state.TTL(2*time.Minute, state.OnWrite, state.EventTime))
}

func (l *limiter) ProcessElement(c *sdk.ProcessContext, _ string, e Click, emit *sdk.Emitter[Click]) error {
	l.passed.ClearRange(time.Time{}, c.Timestamp().Add(-time.Minute)) // the zero time: from the beginning
	if l.passed.Len() < 3 {
		l.passed.Add(c.Timestamp(), true)
		emit.Emit(e)
	}
	return nil
}

// passed gives clicks to a step, each with the watermark at its time, and returns those that it emits.
func passed[F sdk.KeyedDoFn[string, Click, Click]](t *testing.T, fn F, times ...time.Time) (out []time.Time) {
	t.Helper()
	h := ptest.KeyedDoFn[string, Click, Click](t, fn)
	for _, at := range times {
		if err := h.Watermark(at); err != nil {
			t.Fatal(err)
		}
		if err := h.ProcessElement("/home", ptest.Element[Click]{Value: Click{"/home", at}, Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range h.Output() {
		out = append(out, c.Time)
	}
	return out
}

func TestFirstOnlyForgets(t *testing.T) {
	got := passed(t, &firstOnly{}, at(10, 0), at(10, 9), at(10, 18), at(10, 28), at(10, 37))
	if d := cmp.Diff([]time.Time{at(10, 0), at(10, 28)}, got); d != "" {
		t.Error(d)
	}
}

func TestLimiterLetsThreeAMinutePass(t *testing.T) {
	s := func(n int) time.Time { return at(10, 0).Add(time.Duration(n) * time.Second) }
	got := passed(t, &limiter{}, s(0), s(10), s(20), s(30), s(59), s(60), s(61), s(71))
	if d := cmp.Diff([]time.Time{s(0), s(10), s(20), s(61), s(71)}, got); d != "" {
		t.Error(d)
	}
}
