package teststream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// delay is an operator that passes each element on 5 ms after it came, by the clock, and says when that was. It fails when
// it sees the clock go back, also after a restore.
type delay struct {
	c    *kernel.OpenContext
	Seen eventtime.Time
	Kept []kept
}

type kept struct {
	Value string
	At    eventtime.Time // event time
	Came  eventtime.Time
}

const wait = 5

func (d *delay) Open(c *kernel.OpenContext) error {
	d.c = c
	if c.Restore != nil {
		return json.Unmarshal(c.Restore.Blob, d)
	}
	return nil
}

func (d *delay) look() (eventtime.Time, error) {
	now := d.c.Now()
	if now < d.Seen {
		return 0, fmt.Errorf("the clock has gone back from %d to %d", d.Seen, now)
	}
	d.Seen = now
	return now, nil
}

func (d *delay) Process(_ int, b kernel.Batch) error {
	now, err := d.look()
	for _, e := range b.(*kernel.Rows[string]).E {
		d.Kept = append(d.Kept, kept{e.Value, e.Time, now})
	}
	return err
}

func (d *delay) NextClock() eventtime.Time {
	if len(d.Kept) == 0 {
		return math.MaxInt64
	}
	return d.Kept[0].Came + wait
}

func (d *delay) Clock(now eventtime.Time, _ int) (bool, error) {
	if _, err := d.look(); err != nil {
		return false, err
	}
	for len(d.Kept) > 0 && d.NextClock() <= now {
		if err := d.pop(fmt.Sprintf("left %d", now)); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (d *delay) pop(left string) error {
	k := d.Kept[0]
	d.Kept = d.Kept[1:]
	out := kernel.Element[string]{Value: fmt.Sprintf("%s came %d %s", k.Value, k.Came, left), Time: k.At}
	return d.c.Outputs[0].Emit(&kernel.Rows[string]{E: []kernel.Element[string]{out}})
}

func (d *delay) Watermark(w eventtime.Time, _ int) (bool, error) {
	for w == eventtime.Max && len(d.Kept) > 0 {
		if err := d.pop("left at the end"); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (d *delay) Hold() eventtime.Time {
	t := eventtime.Max
	for _, k := range d.Kept {
		t = min(t, k.At)
	}
	return t
}

func (d *delay) Snapshot(int64, bool) (kernel.OpSnapshot, error) {
	b, err := json.Marshal(d)
	return kernel.OpSnapshot{Blob: b}, err
}

func (d *delay) Close() error { return nil }

// delayed adds a delay step, behind exchanges.
func delayed(p *sdk.Pipeline, in sdk.PCollection[string]) sdk.PCollection[string] {
	x := sdk.Reshuffle("one", sdk.Map("pass", in, func(s string) string { return s }))
	x = sdk.Reshuffle("two", x)
	out := sdk.Map("delay", x, func(s string) string { return s })
	if g, err := p.Graph(); err == nil {
		g.Nodes[len(g.Nodes)-1].New = func() kernel.Operator { return &delay{} }
	}
	return sdk.Reshuffle("three", out)
}

// Whatever is due has happened before the next event, wherever the job was stopped and restored.
func TestClockMovesByTheScriptAlone(t *testing.T) {
	script := teststream.Script[string]{}.
		At(ms(1), "a").Clock(ms(3)).At(ms(2), "b").AdvanceClock(2*time.Millisecond).
		At(ms(3), "c").AdvanceClock(15*time.Millisecond).At(ms(4), "d").Watermark(ms(10)).At(ms(11), "e").Clock(ms(24)).At(ms(12), "f").Clock(ms(25))
	want := []string{
		"a came 0 left 5", "b came 3 left 20", "c came 5 left 20",
		"d came 20 left 25", "e came 20 left 25", "f came 24 left at the end",
	}
	for _, opt := range [][]ptest.Option{{ptest.RestoreEvery(1)}, {ptest.Runs(8)}, {ptest.Crash(), ptest.Runs(20)}, {ptest.Crash(), ptest.RestoreEvery(0), ptest.Runs(20)}, {ptest.Parallelism(1), ptest.Crash()}, {ptest.Parallelism(3), ptest.RestoreEvery(4)}} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
			return delayed(p, teststream.Read("script", p, script))
		}, opt...)
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}

// Scripts have one clock: of two that move it the one that is ahead counts.
func TestScriptsShareTheClock(t *testing.T) {
	build := func(p *sdk.Pipeline) sdk.PCollection[string] {
		elements := teststream.Script[string]{}.At(ms(1), "a").Silence().Silence().Clock(ms(4)).Silence().At(ms(2), "b")
		a := teststream.Read("elements", p, elements)
		b := teststream.Read("clock", p, teststream.Script[string]{}.Silence().Clock(ms(3)).Silence().Silence().Clock(ms(6)))
		return delayed(p, sdk.Flatten("both", a, b))
	}
	want := []string{"a came 0 left 6", "b came 6 left at the end"}
	if d := cmp.Diff(want, ptest.Collect(t, build, ptest.RestoreEvery(0), ptest.Runs(5))); d != "" {
		t.Error(d)
	}
	// What restores put out of step can be of another time, but of none that the step has seen pass.
	ptest.Run(t, func(p *sdk.Pipeline) error { build(p); return nil }, ptest.Runs(40), ptest.Crash())
}

// A script without clock events still means that processing time stands at 0.
func TestClockStandsStillWithoutClockEvents(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		return delayed(p, teststream.Read("script", p, teststream.Script[string]{}.At(ms(1), "a").Watermark(ms(5)).At(ms(7), "b")))
	})
	if d := cmp.Diff([]string{"a came 0 left at the end", "b came 0 left at the end"}, got); d != "" {
		t.Error(d)
	}
}

func TestMistakesInTheClock(t *testing.T) {
	for _, c := range []struct {
		script teststream.Script[int64]
		want   string
	}{
		{teststream.Script[int64]{}.Clock(ms(5)).AdvanceClock(-time.Millisecond), "event 1 of the script moves the processing time back"},
		{teststream.Script[int64]{}.Clock(ms(-1)), "event 0 of the script moves the processing time back"},
		{teststream.Script[int64]{}.AdvanceClock(time.Microsecond), "whole milliseconds"},
	} {
		_, err := direct.Run(context.Background(), "mistake", func(p *sdk.Pipeline) error {
			teststream.Read("script", p, c.script)
			return nil
		}, direct.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestDistributedRunnerRefusesAScriptedClock(t *testing.T) {
	err := distributed.Run(t.Context(), distributed.Config{
		Role: "local", Workers: 1, Parallelism: 1, StateBackend: "memory", CheckpointMode: "aligned", CheckpointInterval: time.Second,
	}, distributed.Program{
		Name: "clock",
		Build: func(p *sdk.Pipeline) error {
			teststream.Read("script", p, teststream.Script[int64]{}.AdvanceClock(time.Second))
			return nil
		},
		Backends: map[string]statebackend.Driver{"memory": memory.Driver{}}, Storages: []storage.Driver{file.Driver},
	})
	if want := `step "script/events": its script moves the processing time`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
