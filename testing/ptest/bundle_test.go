package ptest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
)

// finishes is a DoFn that does something at the end of its bundle.
type finishes struct {
	do func(*sdk.Emitter[int])
}

func (*finishes) Declare(*sdk.KeyedDecl) {}
func (*finishes) ProcessElement(*sdk.ProcessContext, string, int, *sdk.Emitter[int]) error {
	return nil
}
func (f *finishes) FinishBundle(_ context.Context, emit *sdk.Emitter[int]) error {
	f.do(emit)
	return nil
}

// There is no element in FinishBundle, so it says in which window and at which time it emits. Nothing is late by that.
func TestFinishBundleSaysWhenAndWhere(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	w := window.Between(at(0), at(100))
	for name, c := range map[string]struct {
		do   func(*sdk.Emitter[int])
		want string // error; none: one element at 30
	}{
		"the time of an element that was late":        {func(e *sdk.Emitter[int]) { e.EmitIn(w, at(30), 1) }, ""},
		"before the watermark and before the element": {func(e *sdk.Emitter[int]) { e.EmitIn(w, at(29), 1) }, "FinishBundle emits at 1970-01-01T00:00:00.029Z, before the watermark 1970-01-01T00:00:00.040Z and before 1970-01-01T00:00:00.030Z"},
		"as the element":          {func(e *sdk.Emitter[int]) { e.Emit(1) }, "use EmitIn"},
		"in the element's window": {func(e *sdk.Emitter[int]) { e.EmitAt(at(50), 1) }, "use EmitIn"},
	} {
		t.Run(name, func(t *testing.T) {
			h := ptest.KeyedDoFn(t, &finishes{c.do})
			if err := h.Watermark(at(40)); err != nil {
				t.Fatal(err)
			}
			for _, ms := range []int64{50, 30, 60} {
				if err := h.ProcessElement("a", ptest.Element[int]{Time: at(ms), Window: w}); err != nil {
					t.Fatal(err)
				}
			}
			err := h.FinishBundle()
			switch got := h.Elements(); {
			case c.want == "":
				if err != nil || len(got) != 1 || !got[0].Time.Equal(at(30)) || got[0].Window != w || got[0].Pane != (window.Pane{First: true, Last: true}) {
					t.Errorf("emitted %v, error %v", got, err)
				}
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// What is in such a window is counted nowhere, or encoded as another.
func TestEmitInAWindowWithoutTimeIsAnError(t *testing.T) {
	for _, w := range []window.Window{{}, window.Between(time.UnixMilli(20), time.UnixMilli(10)), window.Between(time.UnixMilli(10), time.UnixMilli(10))} {
		h := ptest.DoFn(t, emitsIn{w})
		if err := h.Process(1); err == nil || !strings.Contains(err.Error(), "it must end after it starts") {
			t.Errorf("window %v: error %v", w, err)
		}
	}
}

type emitsIn struct{ in window.Window }

func (e emitsIn) ProcessElement(c *sdk.ProcessContext, v int, emit *sdk.Emitter[int]) error {
	emit.EmitIn(e.in, time.UnixMilli(5), v)
	return nil
}
