package ptest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/ptest"
)

// visits counts the clicks of a user until there were none for 30 minutes.
type visits struct {
	clicks state.Value[int64]
	quiet  sdk.Timer
	all    *sdk.Emitter[string]
	said   []string
}

func (v *visits) Declare(d *sdk.KeyedDecl) {
	v.clicks = state.NewValue[int64](d, "clicks")
	v.quiet = sdk.EventTimer(d, "quiet", v.onQuiet)
	v.all = sdk.NewOutput[string](d, "all")
	d.Counter("visits")
}

func (v *visits) Setup(context.Context, sdk.Subtask) error {
	v.said = append(v.said, "setup")
	return nil
}
func (v *visits) FinishBundle(context.Context, *sdk.Emitter[string]) error {
	v.said = append(v.said, "finish")
	return nil
}

func (v *visits) ProcessElement(c *sdk.ProcessContext, user, page string, _ *sdk.Emitter[string]) error {
	if page == "" {
		return errors.New("a click on nothing")
	}
	v.all.Emit(user + " " + page)
	v.clicks.Set(v.clicks.Get() + 1)
	v.quiet.Set(c.Timestamp().Add(30 * time.Minute))
	return nil
}

func (v *visits) onQuiet(c *sdk.ProcessContext, user string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprintf("%s: %d clicks until %s", user, v.clicks.Get(), c.Timestamp().Format("15:04")))
	v.clicks.Clear()
	return nil
}

func clock(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

func TestKeyedDoFn(t *testing.T) {
	fn := &visits{}
	h := ptest.KeyedDoFn(t, fn)
	click := func(user string, at time.Time) {
		t.Helper()
		if err := h.ProcessElement(user, ptest.Element[string]{Value: "/", Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	clicks := func(user string) (n int64) {
		h.State(user, window.Window{}, func() { n = fn.clicks.Get() })
		return n
	}
	move := func(to time.Time, want ...string) {
		t.Helper()
		if err := h.Watermark(to); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, h.Output()); d != "" {
			t.Errorf("at %v (-want +got):\n%s", to, d)
		}
	}
	click("ann", clock(10, 0))
	click("ann", clock(10, 20))
	click("bob", clock(10, 5))
	if a, b, c := clicks("ann"), clicks("bob"), clicks("cid"); a != 2 || b != 1 || c != 0 {
		t.Errorf("clicks are %d, %d and %d", a, b, c)
	}
	move(clock(10, 34))
	move(clock(10, 35), "bob: 1 clicks until 10:35")
	if n := clicks("bob"); n != 0 {
		t.Errorf("%d clicks are left", n)
	}
	h.State("ann", window.Window{}, func() { fn.clicks.Set(7) })
	if err := h.End(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ann: 7 clicks until 10:50"}, h.Output()); d != "" {
		t.Errorf("at the end (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"ann /", "ann /", "bob /"}, ptest.OutputOf[string](h, "all")); d != "" {
		t.Error(d)
	}
	if fn.said[0] != "setup" || fn.said[1] != "finish" {
		t.Errorf("calls are %q", fn.said)
	}
}

func TestKeyedDoFnErrorsAndLateElements(t *testing.T) {
	h := ptest.KeyedDoFn(t, &visits{})
	if err := h.Process("ann", ""); err == nil || err.Error() != "a click on nothing" {
		t.Errorf("error %v", err)
	}
	w := window.New(0, 1000)
	if err := h.Watermark(time.UnixMilli(1000)); err != nil {
		t.Fatal(err)
	}
	if err := h.ProcessElement("ann", ptest.Element[string]{Value: "/", Window: w}); err != nil || h.LateDropped() != 1 {
		t.Errorf("%d late elements, %v", h.LateDropped(), err)
	}
	if err := h.Watermark(time.UnixMilli(999)); err == nil || !strings.Contains(err.Error(), "moves back") {
		t.Errorf("error %v", err)
	}
	failure := failing.Of(t, func(t testing.TB) {
		h := ptest.KeyedDoFn(t, &visits{})
		if err := h.Watermark(time.UnixMilli(1000)); err != nil {
			t.Error(err)
		}
		h.State("ann", w, func() {})
	})
	if !strings.Contains(failure, "has ended") {
		t.Errorf("failure: %s", failure)
	}
}

// batches emits what a user has clicked ten seconds after the first click, and reminds of each page a day later.
type batches struct {
	pages  state.Value[string]
	flush  sdk.Timer
	remind sdk.TimerFamily
}

func (b *batches) Declare(d *sdk.KeyedDecl) {
	b.pages = state.NewValue[string](d, "pages")
	b.flush = sdk.ProcessingTimer(d, "flush", b.onFlush)
	b.remind = sdk.EventTimerFamily(d, "remind", b.onRemind)
}

func (b *batches) ProcessElement(_ *sdk.ProcessContext, _, page string, _ *sdk.Emitter[string]) error {
	if b.pages.Get() == "" {
		b.flush.SetIn(10 * time.Second)
	}
	b.pages.Set(b.pages.Get() + page)
	b.remind.SetIn(page, 24*time.Hour)
	return nil
}

func (b *batches) onFlush(_ *sdk.ProcessContext, user string, emit *sdk.Emitter[string]) error {
	emit.Emit(user + " " + b.pages.Get())
	b.pages.Clear()
	return nil
}

func (b *batches) onRemind(_ *sdk.ProcessContext, user, page string, emit *sdk.Emitter[string]) error {
	if page == "/bad" {
		return errors.New("a bad page")
	}
	emit.Emit("remind " + user + " of " + page)
	return nil
}

func TestKeyedDoFnWithTheClock(t *testing.T) {
	h := ptest.KeyedDoFn(t, &batches{})
	epoch := time.Unix(0, 0)
	put := func(page string, at time.Time) {
		t.Helper()
		if err := h.ProcessElement("ann", ptest.Element[string]{Value: page, Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	wantOutput := func(err error, want ...ptest.Element[string]) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		got := h.Elements()
		for i := range got {
			got[i].Window, got[i].Pane = window.Window{}, window.Pane{}
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(window.Window{})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	wantHeld := func(want time.Time) {
		t.Helper()
		if got := h.OutputWatermark(); !got.Equal(want) {
			t.Errorf("the watermark of the outputs is %v, want %v", got, want)
		}
	}
	put("/a", clock(10, 0))
	put("/b", clock(10, 5))
	wantOutput(h.Watermark(clock(11, 0)))
	wantHeld(clock(10, 0))
	wantOutput(h.ProcessingTime(epoch.Add(9 * time.Second)))
	wantOutput(h.ProcessingTime(epoch.Add(10*time.Second)), ptest.Element[string]{Value: "ann /a/b", Time: clock(10, 0)})
	wantHeld(clock(11, 0))
	wantOutput(h.Watermark(clock(34, 5)),
		ptest.Element[string]{Value: "remind ann of /a", Time: clock(34, 0)}, ptest.Element[string]{Value: "remind ann of /b", Time: clock(34, 5)})
	put("/bad", clock(35, 0))
	if err := h.ProcessingTime(epoch); err == nil || !strings.Contains(err.Error(), "moves back") {
		t.Errorf("error %v", err)
	}
	if err := h.End(); err == nil || err.Error() != "a bad page" {
		t.Errorf("error %v", err)
	}
}

func ExampleKeyedDoFn() {
	t := new(testing.T) // in a test: its own
	fn := &visits{}
	h := ptest.KeyedDoFn(t, fn)
	for _, at := range []time.Time{clock(10, 0), clock(10, 20)} {
		if err := h.ProcessElement("ann", ptest.Element[string]{Value: "/home", Time: at}); err != nil {
			fmt.Println(err)
		}
	}
	h.State("ann", window.Window{}, func() { fmt.Println(fn.clicks.Get(), "clicks so far") })
	if err := h.Watermark(clock(11, 0)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(h.Output())
	// Output:
	// 2 clicks so far
	// [ann: 2 clicks until 10:50]
}

// betweenMilliseconds sets its timer between two milliseconds.
type betweenMilliseconds struct{ event, clock sdk.Timer }

func (b *betweenMilliseconds) Declare(d *sdk.KeyedDecl) {
	fired := func(by string) func(*sdk.ProcessContext, string, *sdk.Emitter[string]) error {
		return func(c *sdk.ProcessContext, _ string, emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprint(by, c.Timestamp().UnixMilli()))
			return nil
		}
	}
	b.event, b.clock = sdk.EventTimer(d, "event", fired("event ")), sdk.ProcessingTimer(d, "clock", fired("clock "))
}

func (b *betweenMilliseconds) ProcessElement(c *sdk.ProcessContext, _ string, at time.Time, _ *sdk.Emitter[string]) error {
	b.event.Set(at)
	b.clock.Set(at)
	return nil
}

func TestATimerDoesNotFireBeforeItsTime(t *testing.T) {
	h := ptest.KeyedDoFn(t, &betweenMilliseconds{})
	at := time.UnixMilli(5).Add(900 * time.Microsecond)
	if err := h.ProcessElement("a", ptest.Element[time.Time]{Value: at, Time: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	for ms, want := range []string{5: "", 6: "[event 6 clock 1]"} {
		if err := h.Watermark(time.UnixMilli(int64(ms))); err != nil {
			t.Fatal(err)
		}
		if err := h.ProcessingTime(time.UnixMilli(int64(ms))); err != nil {
			t.Fatal(err)
		}
		if got := h.Output(); len(got) > 0 && fmt.Sprint(got) != want || len(got) == 0 && want != "" {
			t.Errorf("at %d ms %v fired, want %q", ms, got, want)
		}
	}
}
