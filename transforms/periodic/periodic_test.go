package periodic_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/sim"
	"github.com/millstream/millstream/transforms/periodic"
	"github.com/millstream/millstream/transforms/stats"
)

func ms(n int64) time.Time { return time.UnixMilli(n).UTC() }

// ptest interrupts the sequence after every element too: none is lost, and none comes twice.
func TestSequenceHasEachElementOnce(t *testing.T) {
	for _, c := range []struct {
		every      time.Duration
		from, till int64
		want       []int64
	}{
		{10 * time.Millisecond, 5, 46, []int64{5, 15, 25, 35, 45}},
		{10 * time.Millisecond, 5, 45, []int64{5, 15, 25, 35}}, // Until is not part of it
		{time.Hour, 0, 3 * 3600_000, []int64{0, 3600_000, 2 * 3600_000}},
		{time.Second, -2500, 0, []int64{-2500, -1500, -500}}, // overdue from the beginning
		{time.Millisecond, 7, 7, nil},
	} {
		for _, parallelism := range []int{1, 3} {
			got := ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[time.Time] {
				return periodic.Sequence("ticks", p, c.every, periodic.From(ms(c.from)), periodic.Until(ms(c.till)))
			}, ptest.Parallelism(parallelism))
			var times []int64
			for _, e := range got {
				if !e.Time.Equal(e.Value) {
					t.Errorf("element %v has the timestamp %v", e.Value, e.Time)
				}
				times = append(times, e.Value.UnixMilli())
			}
			if d := cmp.Diff(c.want, times); d != "" {
				t.Errorf("every %v from %d until %d: -want +got:\n%s", c.every, c.from, c.till, d)
			}
		}
	}
}

// Without From a sequence begins when it is first read, and goes on from there after a restore.
func TestSequenceBeginsNow(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[time.Time] {
		return periodic.Sequence("ticks", p, 7*time.Millisecond, periodic.Until(ms(30)))
	}, ptest.RestoreEvery(1))
	if len(got) < 4 || got[0].UnixMilli() != 0 {
		t.Fatalf("got %v", got)
	}
	for i := range got {
		if want := ms(int64(7 * i)); !got[i].Equal(want) {
			t.Errorf("element %d is %v, want %v", i, got[i], want)
		}
	}
}

// The watermark is the time of the next element: a window fires while the sequence waits for it, and elements come at
// their time, not before. The job is stopped after three of the hours.
func TestWindowsFireBeforeTheNextElement(t *testing.T) {
	scheduler := sim.New(1)
	var log []string
	_, err := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error {
		ticks := periodic.Sequence("ticks", p, time.Hour, periodic.Until(ms(3*3600_000)))
		seen := sdk.Map("seen", ticks, func(t time.Time) time.Time {
			log = append(log, fmt.Sprintf("%v: tick %v", time.Duration(scheduler.Now())*time.Millisecond, time.Duration(t.UnixMilli())*time.Millisecond))
			return t
		})
		counts := sdk.CombineGlobally("count", sdk.WindowInto("hours", seen, window.Fixed(time.Hour)), stats.CountFn[time.Time]{})
		sdk.ParDoFunc("fired", counts, func(c *sdk.ProcessContext, n int64, _ *sdk.Emitter[int64]) error {
			log = append(log, fmt.Sprintf("%v: window %v has %d", time.Duration(scheduler.Now())*time.Millisecond, time.Duration(c.Window().Start().UnixMilli())*time.Millisecond, n))
			return nil
		})
		return nil
	}, direct.Options{Parallelism: 1, Scheduler: scheduler, NoChecks: true, CheckpointInterval: time.Hour * 100})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0s: tick 0s", "0s: window 0s has 1", "1h0m0s: tick 1h0m0s", "1h0m0s: window 1h0m0s has 1", "2h0m0s: tick 2h0m0s", "2h0m0s: window 2h0m0s has 1"}
	if d := cmp.Diff(want, log); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if scheduler.Steps() > 1000 {
		t.Errorf("%d switches in 2 hours: the source does not wait for what is due", scheduler.Steps())
	}
}

func TestWhatMakesNoSequenceIsRefused(t *testing.T) {
	for want, c := range map[string]struct {
		every time.Duration
		opts  []periodic.Option
	}{
		"use whole milliseconds, at least 1":                {0, nil},
		"a sequence every 1.5ms: use whole milliseconds":    {1500 * time.Microsecond, nil},
		"ends before it begins":                             {time.Second, []periodic.Option{periodic.From(ms(5)), periodic.Until(ms(4))}},
		"use a time from the year -10000 to 10000":          {time.Second, []periodic.Option{periodic.From(time.Date(1e6, 1, 1, 0, 0, 0, 0, time.UTC))}},
		"a time from the year -10000 to 10000, or leave Un": {time.Second, []periodic.Option{periodic.Until(time.Date(1e6, 1, 1, 0, 0, 0, 0, time.UTC))}},
	} {
		p := sdk.NewPipeline("p")
		periodic.Sequence("ticks", p, c.every, c.opts...)
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `step "ticks" (periodic_test.go:`) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestSequenceIsBoundedByUntil(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		g, err := sdk.Build("p", func(p *sdk.Pipeline) error {
			var opts []periodic.Option
			if bounded {
				opts = append(opts, periodic.Until(ms(5)))
			}
			periodic.Sequence("ticks", p, time.Hour, opts...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if g.Unbounded() == bounded {
			t.Errorf("bounded %v: the graph is unbounded %v", bounded, g.Unbounded())
		}
	}
}
