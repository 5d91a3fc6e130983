package kernel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// keyedRig runs one keyed step with string keys and int64 values. Everything it emits is a line
// "port key@timestamp: text".
type keyedRig struct {
	t     *testing.T
	spec  KeyedSpec[string, int64, string]
	cache int64
	ports int

	op      *keyedParDo[string, int64, string]
	metrics *Metrics
	lines   []string
	told    eventtime.Time // the watermark of the last call
	now     eventtime.Time // processing time
	deltas  []byte         // of all snapshots, one after another
}

func newKeyedRig(t *testing.T, fns KeyedFns[string, int64, string]) *keyedRig {
	key, err := coder.KeyOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	return &keyedRig{t: t, spec: KeyedSpec[string, int64, string]{Fns: fns, Key: key}, cache: 1 << 20, ports: 1, told: eventtime.Min}
}

// open starts the step, from the deltas and with the blob of the last snapshot if there is one.
func (g *keyedRig) open(blob []byte) error {
	b, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
	if err != nil {
		g.t.Fatal(err)
	}
	var batch statebackend.Batch
	err = statebackend.ReadBatch(bytes.NewReader(g.deltas), batch.Add)
	if err == nil {
		err = b.Write(&batch)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.op = NewKeyedParDo(g.spec).(*keyedParDo[string, int64, string])
	g.metrics = &Metrics{}
	c := &OpenContext{
		Context: context.Background(), Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: b,
		CacheMax: g.cache, Track: true, Metrics: g.metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() eventtime.Time { return g.now },
	}
	for port := range g.ports {
		c.Outputs = append(c.Outputs, outputFunc(func(b Batch) error { return g.take(port, b) }))
	}
	if blob != nil {
		c.Restore = &OpRestore{Blob: blob, Watermark: g.told}
	}
	return g.op.Open(c)
}

func (g *keyedRig) start() *keyedRig {
	g.t.Helper()
	if err := g.open(nil); err != nil {
		g.t.Fatal(err)
	}
	return g
}

func (g *keyedRig) take(port int, b Batch) error {
	line := func(at eventtime.Time, v any) {
		g.lines = append(g.lines, fmt.Sprintf("%d @%d %v", port, at, v))
	}
	switch rows := b.(type) {
	case *Rows[string]:
		for _, e := range rows.E {
			line(e.Time, e.Value)
		}
	case *Rows[coder.KV[string, int64]]:
		for _, e := range rows.E {
			line(e.Time, e.Value)
		}
	case *Rows[Failed[coder.KV[string, int64]]]:
		for _, e := range rows.E {
			line(e.Time, e.Value)
		}
	}
	return nil
}

// put processes one element.
func (g *keyedRig) put(key string, v int64, at eventtime.Time, win window.Window) {
	g.t.Helper()
	if err := g.tryPut(key, v, at, win); err != nil {
		g.t.Fatal(err)
	}
}

func (g *keyedRig) tryPut(key string, v int64, at eventtime.Time, win window.Window) error {
	return g.op.Process(0, &Rows[coder.KV[string, int64]]{E: []Element[coder.KV[string, int64]]{
		{Value: coder.KV[string, int64]{Key: key, Value: v}, Time: at, Window: win}}})
}

// to brings the step to a watermark.
func (g *keyedRig) to(w eventtime.Time) {
	g.t.Helper()
	for done := false; !done; {
		done = g.slice(w, 100)
	}
}

func (g *keyedRig) slice(w eventtime.Time, budget int) bool {
	g.t.Helper()
	g.told = w
	done, err := g.op.Watermark(w, budget)
	if err != nil {
		g.t.Fatal(err)
	}
	return done
}

// at brings the clock to a time, and does what is due.
func (g *keyedRig) at(now eventtime.Time) {
	g.t.Helper()
	g.now = now
	for n := 0; g.op.NextClock() <= now; n++ {
		if n > 10_000 {
			g.t.Fatalf("what is due at %d is never done", now)
		}
		if _, err := g.op.Clock(now, 10); err != nil {
			g.t.Fatal(err)
		}
	}
}

// holds checks the watermark of the outputs.
func (g *keyedRig) holds(want eventtime.Time) {
	g.t.Helper()
	g.at(g.now) // what a batch left to do is done
	if got := min(g.told, g.op.Hold()); got != want {
		g.t.Errorf("the watermark of the outputs is %d, want %d", got, want)
	}
}

// restore takes a snapshot and starts again from it.
func (g *keyedRig) restore() {
	g.t.Helper()
	s, err := g.op.Snapshot(1, false)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.Keyed.Encode(1 << 30); err != nil {
		g.t.Fatal(err)
	}
	g.deltas = append(g.deltas, joined(s.Keyed.Delta())...)
	if err := g.open(s.Blob); err != nil {
		g.t.Fatal(err)
	}
}

// restart restores, and repeats the watermark, as a host does.
func (g *keyedRig) restart() {
	g.t.Helper()
	g.restore()
	g.to(g.told)
}

func (g *keyedRig) want(lines ...string) {
	g.t.Helper()
	if d := cmp.Diff(lines, g.lines); d != "" {
		g.t.Fatalf("output differs (-want +got):\n%s", d)
	}
	g.lines = nil
}

// each runs a test without and with a snapshot and restore after every call.
func each(t *testing.T, f func(t *testing.T, after func(g *keyedRig))) {
	t.Run("plain", func(t *testing.T) { f(t, func(*keyedRig) {}) })
	t.Run("restored after every call", func(t *testing.T) { f(t, (*keyedRig).restart) })
}

func win(start, end eventtime.Time) window.Window { return window.New(start, end) }

func ms(t eventtime.Time) time.Time { return t.Time() }
