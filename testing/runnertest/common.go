package runnertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/teststream"
)

type (
	kv     = sdk.KV[string, int64]
	script = teststream.Script[kv]
)

// at is so many seconds after the epoch.
func at(s int64) time.Time { return time.Unix(s, 0).UTC() }

const second = time.Second

// of makes pairs of a key.
func of(key string, vs ...int64) (out []kv) {
	for _, v := range vs {
		out = append(out, sdk.Pair(key, v))
	}
	return out
}

func read(p *sdk.Pipeline, s script) sdk.PCollection[kv] { return teststream.Read("in", p, s) }

// show makes "a=1".
func show(name string, in sdk.PCollection[kv]) sdk.PCollection[string] {
	return sdk.Map(name, in, func(e kv) string { return fmt.Sprintf("%s=%d", e.Key, e.Value) })
}

// showTimes makes "a=1@5": in seconds, with ".999" if it is the last millisecond of one.
func showTimes(name string, in sdk.PCollection[kv]) sdk.PCollection[string] {
	return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, e kv, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprintf("%s=%d@%s", e.Key, e.Value, seconds(c.Timestamp())))
		return nil
	})
}

// showWindows makes "a=1 [0,10)".
func showWindows(name string, in sdk.PCollection[kv]) sdk.PCollection[string] {
	return sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, e kv, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprintf("%s=%d %s", e.Key, e.Value, span(c.Window())))
		return nil
	})
}

// showPanes makes "a=1 [0,10) on time 1 first": the window, the timing, and the index. A retraction begins with a minus.
func showPanes(name string, in sdk.PCollection[kv]) sdk.PCollection[string] {
	changes := sdk.Changes(name+": changes", in)
	return sdk.ParDoFunc(name, changes, func(c *sdk.ProcessContext, e sdk.Change[kv], emit *sdk.Emitter[string]) error {
		var b strings.Builder
		if e.Retraction {
			b.WriteString("-")
		}
		pane := c.Pane()
		fmt.Fprintf(&b, "%s=%d %s %s %d", e.Value.Key, e.Value.Value, span(c.Window()), timings[pane.Timing], pane.Index)
		if pane.First {
			b.WriteString(" first")
		}
		if pane.Last {
			b.WriteString(" last")
		}
		emit.Emit(b.String())
		return nil
	})
}

var timings = map[window.Timing]string{window.Unknown: "unknown", window.Early: "early", window.OnTime: "on time", window.Late: "late"}

func span(w window.Window) string {
	if w == window.GlobalWindow {
		return "global"
	}
	return fmt.Sprintf("[%s,%s)", seconds(w.Start()), seconds(w.End()))
}

func seconds(t time.Time) string {
	if ms := t.UnixMilli() % 1000; ms != 0 {
		return fmt.Sprintf("%d.%03d", t.Unix(), (ms+1000)%1000)
	}
	return fmt.Sprint(t.Unix())
}

// sum is a CombineFn that can take inputs back.
type sum struct{}

func (sum) CreateAccumulator() int64           { return 0 }
func (sum) AddInput(a, v int64) int64          { return a + v }
func (sum) RemoveInput(a, v int64) int64       { return a - v }
func (sum) MergeAccumulators(a, b int64) int64 { return a + b }
func (sum) ExtractOutput(a int64) int64        { return a }

// total is the sum of a group.
func total(vs sdk.Iterable[int64]) (n int64) {
	for v := range vs.All() {
		n += v
	}
	return n
}
