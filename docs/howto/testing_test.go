package howto_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// Click is a visit of a page.
type Click struct {
	Page string
	Time time.Time
}

// At is the event time.
func (c Click) At() time.Time { return c.Time }

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

func countHourly(in sdk.PCollection[Click]) sdk.PCollection[sdk.KV[string, int64]] {
	pages := sdk.Map("page", sdk.WindowInto("hourly", in, window.Fixed(time.Hour)), func(c Click) string { return c.Page })
	return stats.Count("count", pages)
}

func TestClicksArePerHour(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(10, 0)}, {"/home", at(10, 59)}, {"/home", at(11, 0)}},
			sdk.EventTime(Click.At, watermark.Monotonic()))
		return countHourly(clicks)
	})
	want := []sdk.KV[string, int64]{sdk.Pair("/home", int64(1)), sdk.Pair("/home", int64(2))}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestHourOfTenHasTwo(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(10, 0)}, {"/home", at(10, 59)}, {"/home", at(11, 0)}},
			sdk.EventTime(Click.At, watermark.Monotonic()))
		passert.That("ten", countHourly(clicks)).InWindow(window.Between(at(10, 0), at(11, 0))).Equals(sdk.Pair("/home", int64(2)))
		return nil
	})
}

func TestMain(m *testing.M) {
	clustertest.Main(m, clustertest.Pipelines{"shout": buildShout})
}

var shouted memio.Collector[string] // committed in the test process

func buildShout(p *sdk.Pipeline, args []string) error {
	memio.Write("collect", sdk.ParDo("shout", memio.Read("words", p, args), shout{}), &shouted)
	return nil
}

func TestShoutOnWorkers(t *testing.T) {
	before := len(shouted.Rows())
	clustertest.Run(t, "shout", []string{"to be"}, clustertest.KillWorker())
	if d := cmp.Diff([]string{"TO BE"}, shouted.Rows()[before:]); d != "" {
		t.Error(d)
	}
}

func TestSilentShopDoesNotHoldTheOther(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		silent := teststream.Read("silent", p, teststream.Script[Click]{}.Watermark(at(10, 0)).Silence())
		busy := teststream.Read("busy", p, teststream.Script[Click]{}.
			At(at(10, 5), Click{Page: "/home"}).
			Watermark(at(11, 0)). // the hour fires: the silent stream does not count
			At(at(10, 6), Click{Page: "/home"}))
		passert.Equals("counts", countHourly(sdk.Flatten("both", silent, busy)), sdk.Pair("/home", int64(1)))
		return nil
	}, ptest.RestoreEvery(0))
}

type shout struct{}

func (shout) ProcessElement(_ *sdk.ProcessContext, s string, emit *sdk.Emitter[string]) error {
	emit.Emit(strings.ToUpper(s))
	return nil
}

func TestShout(t *testing.T) {
	h := ptest.DoFn(t, shout{})
	if err := h.Process("to be", "or not"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"TO BE", "OR NOT"}, h.Output()); d != "" {
		t.Error(d)
	}
}

// reminder emits a key ten minutes after its last element.
type reminder struct {
	seen state.Value[int64]
	due  sdk.Timer
}

func (r *reminder) Declare(d *sdk.KeyedDecl) {
	r.seen = state.NewValue[int64](d, "seen")
	r.due = sdk.EventTimer(d, "due", r.onDue)
}

func (r *reminder) ProcessElement(c *sdk.ProcessContext, _ string, _ int64, _ *sdk.Emitter[string]) error {
	r.seen.Set(r.seen.Get() + 1)
	r.due.Set(c.Timestamp().Add(10 * time.Minute))
	return nil
}

func (r *reminder) onDue(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	emit.Emit(key)
	return nil
}

func TestReminder(t *testing.T) {
	fn := &reminder{}
	h := ptest.KeyedDoFn(t, fn)
	if err := h.ProcessElement("ann", ptest.Element[int64]{Value: 1, Time: at(10, 0)}); err != nil {
		t.Fatal(err)
	}
	h.State("ann", window.Window{}, func() {
		if n := fn.seen.Get(); n != 1 {
			t.Errorf("seen %d", n)
		}
	})
	if err := h.Watermark(at(10, 10)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ann"}, h.Output()); d != "" {
		t.Error(d)
	}
}
