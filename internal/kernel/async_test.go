package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// asyncHost runs an async operator by hand: calls run when the test lets them return.
type asyncHost struct {
	t     *testing.T
	op    *asyncOp[string, string]
	now   eventtime.Time
	calls []*hostCall // running, in order of their start
	said  []string
}

type hostCall struct {
	run    func(context.Context)
	done   func()
	ctx    context.Context
	cancel context.CancelFunc
}

// newAsyncHost opens an operator. A call for "x" returns "x!", one for "bad…" fails, one whose context is done fails.
func newAsyncHost(t *testing.T, spec AsyncSpec[string, string], restore []byte) *asyncHost {
	t.Helper()
	spec.Input = NewCodec(coderOf[string](t))
	spec.Call = func(ctx context.Context, v string) (string, error) {
		if strings.HasPrefix(v, "bad") {
			return "", errors.New("bad luck")
		}
		return v + "!", ctx.Err()
	}
	h := &asyncHost{t: t, op: NewAsync(spec).(*asyncOp[string, string])}
	c := &OpenContext{
		Context: t.Context(), Outputs: []Output{hostOutput{h}, hostOutput{h}}, Metrics: &Metrics{}, Logger: slog.New(slog.DiscardHandler),
		Elapsed: func() eventtime.Time { return h.now },
		Go: func(run func(context.Context), done func()) func() {
			ctx, cancel := context.WithCancel(t.Context())
			h.calls = append(h.calls, &hostCall{run, done, ctx, cancel})
			return cancel
		},
	}
	if restore != nil {
		c.Restore = &OpRestore{Blob: restore}
	}
	if err := h.op.Open(c); err != nil {
		t.Fatal(err)
	}
	return h
}

type hostOutput struct{ h *asyncHost }

func (o hostOutput) Emit(b Batch) error {
	switch b := b.(type) {
	case *Rows[string]:
		for _, e := range b.E {
			o.h.said = append(o.h.said, fmt.Sprintf("%s@%d", e.Value, e.Time))
		}
	case *Rows[Failed[string]]:
		for _, e := range b.E {
			o.h.said = append(o.h.said, fmt.Sprintf("%s@%d failed: %s", e.Value.Value, e.Time, e.Value.Err))
		}
	}
	return nil
}

func (h *asyncHost) process(es ...Element[string]) {
	h.t.Helper()
	if err := h.op.Process(0, &Rows[string]{es}); err != nil {
		h.t.Fatal(err)
	}
}

// returns lets call i return.
func (h *asyncHost) returns(i int) {
	c := h.calls[i]
	h.calls = slices.Delete(h.calls, i, i+1)
	c.run(c.ctx)
	c.done()
}

// collect calls Collect at a time and returns what was emitted.
func (h *asyncHost) collect(now eventtime.Time) []string {
	h.t.Helper()
	h.now, h.said = now, nil
	if _, err := h.op.Collect(now); err != nil {
		h.t.Fatal(err)
	}
	return h.said
}

func (h *asyncHost) want(what string, got, want any) {
	h.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		h.t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func inFlight(v string, at eventtime.Time) Element[string] {
	return Element[string]{Value: v, Time: at, Window: window.GlobalWindow}
}

func TestAsyncHoldsTheLeastTimestampInFlight(t *testing.T) {
	h := newAsyncHost(t, AsyncSpec[string, string]{Concurrency: 2}, nil)
	h.want("hold of nothing", h.op.Hold(), eventtime.Max)
	h.process(inFlight("a", 7), inFlight("b", 5), inFlight("c", 3))
	h.want("calls", len(h.calls), 2)
	h.want("full", h.op.Full(), true)
	h.want("hold", h.op.Hold(), eventtime.Time(3)) // also of what waits
	h.returns(1)
	h.want("hold before Collect", h.op.Hold(), eventtime.Time(3))
	h.want("emitted", h.collect(0), []string{"b!@5"})
	h.want("hold", h.op.Hold(), eventtime.Time(3))
	h.want("full", h.op.Full(), false)
	h.returns(1)
	h.want("emitted", h.collect(0), []string{"c!@3"})
	h.want("hold", h.op.Hold(), eventtime.Time(7))
	h.returns(0)
	h.want("emitted", h.collect(0), []string{"a!@7"})
	h.want("hold", h.op.Hold(), eventtime.Max)
}

func TestOrderedResultsWaitForThoseBefore(t *testing.T) {
	h := newAsyncHost(t, AsyncSpec[string, string]{Concurrency: 2, Ordered: true}, nil)
	h.process(inFlight("a", 1), inFlight("b", 2), inFlight("c", 3))
	h.returns(1)
	h.want("emitted", h.collect(0), []string(nil))
	h.want("calls: the result that waits counts", len(h.calls), 1)
	h.returns(0)
	h.want("emitted", h.collect(0), []string{"a!@1", "b!@2"})
	h.want("calls", len(h.calls), 1)
}

func TestAsyncBackOffDoubles(t *testing.T) {
	h := newAsyncHost(t, AsyncSpec[string, string]{Concurrency: 1, Retries: 3, Backoff: 100, ErrorsTo: true}, nil)
	h.process(inFlight("bad", 1), inFlight("good", 2))
	now := eventtime.Time(0)
	for _, wait := range []eventtime.Time{100, 200, 400} {
		h.returns(0)
		h.want("emitted", h.collect(now), []string(nil))
		h.want("next", h.op.NextCollect(), now+wait)
		h.collect(now + wait - 1)
		h.want("calls before the back-off is over: the element keeps its place", len(h.calls), 0)
		now += wait
		h.collect(now)
		h.want("calls", len(h.calls), 1)
	}
	h.returns(0)
	h.want("emitted", h.collect(now), []string{"bad@1 failed: bad luck"})
	h.returns(0)
	h.want("emitted", h.collect(now), []string{"good!@2"})
	h.want("next", h.op.NextCollect(), eventtime.Max)
}

func TestAsyncTimeOutCancelsAndKeepsThePlace(t *testing.T) {
	h := newAsyncHost(t, AsyncSpec[string, string]{Concurrency: 1, Timeout: 50, ErrorsTo: true}, nil)
	h.now = 1000
	h.process(inFlight("a", 1), inFlight("b", 2))
	h.want("next", h.op.NextCollect(), eventtime.Time(1050))
	h.collect(1049)
	if h.calls[0].ctx.Err() != nil {
		t.Error("cancelled too early")
	}
	h.collect(1050)
	if h.calls[0].ctx.Err() == nil {
		t.Error("not cancelled")
	}
	h.want("calls", len(h.calls), 1)
	h.want("hold", h.op.Hold(), eventtime.Time(1))
	h.returns(0)
	h.want("emitted", h.collect(1060), []string{"a@1 failed: no answer within 50ms: context deadline exceeded\ncontext canceled"})
	h.want("next: that of the second", h.op.NextCollect(), eventtime.Time(1110))
	h.returns(0)
	h.want("emitted", h.collect(1061), []string{"b!@2"})
}

func TestAsyncErrorThatNobodyTakesNamesTheElement(t *testing.T) {
	h := newAsyncHost(t, AsyncSpec[string, string]{Concurrency: 1}, nil)
	h.process(inFlight("bad egg", 1))
	h.returns(0)
	_, err := h.op.Collect(0)
	var user *UserError
	if !errors.As(err, &user) || user.Element != "bad egg" && !strings.Contains(user.Element, "bad egg") {
		t.Errorf("error %v", err)
	}
}

// Also what is answered and not emitted is in flight; and a call is made for it again.
func TestAsyncStateIsEncodedAsDocumented(t *testing.T) {
	spec := AsyncSpec[string, string]{Concurrency: 1, Ordered: true}
	h := newAsyncHost(t, spec, nil)
	w := window.New(0, 1000)
	h.process(Element[string]{"a", 5, w, NoPane}, Element[string]{"b", 3, w, NoPane})
	h.returns(0)
	s, err := h.op.Snapshot(1, false)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "async-state.md", s.Blob, "02", "0a00d00f000161", "030000000162")
	r := newAsyncHost(t, spec, s.Blob)
	r.want("hold", r.op.Hold(), eventtime.Time(3))
	r.returns(0)
	r.want("emitted", r.collect(0), []string{"a!@5"})
	r.returns(0)
	r.want("emitted", r.collect(0), []string{"b!@3"})
	if s, err := r.op.Snapshot(2, false); err != nil || s.Blob != nil {
		t.Errorf("state %x, %v of nothing in flight", s.Blob, err)
	}
	bad := &asyncOp[string, string]{AsyncSpec: AsyncSpec[string, string]{Input: NewCodec(coderOf[string](t))}}
	if err := bad.Open(&OpenContext{Restore: &OpRestore{Checkpoint: 4, Blob: s.Blob[:0:0]}}); err != nil {
		t.Errorf("no state: %v", err)
	}
	blob := []byte{9, 9, 9}
	if err := bad.Open(&OpenContext{Restore: &OpRestore{Checkpoint: 4, Blob: blob}}); err == nil || !strings.Contains(err.Error(), "checkpoint 4") {
		t.Errorf("malformed state: %v", err)
	}
}

func TestSleepIsForCalls(t *testing.T) {
	if err := Sleep(t.Context(), time.Hour); err == nil {
		t.Error("it slept without a scheduler")
	}
	var slept time.Duration
	ctx, cancel := context.WithCancel(WithSleep(t.Context(), func(d time.Duration) { slept = d }))
	if err := Sleep(ctx, time.Second); err != nil || slept != time.Second {
		t.Errorf("slept %v: %v", slept, err)
	}
	cancel()
	if err := Sleep(ctx, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
