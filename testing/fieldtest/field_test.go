package fieldtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// lined is a pipeline whose result is lines of text. dir is an empty directory of the run, for marks.
type lined func(p *sdk.Pipeline, dir string) sdk.PCollection[string]

// pipelines are what runs on both runners, by name: worker processes build it too, and see nothing of a test.
var pipelines = map[string]lined{
	"A1": beforeTheEpoch, "A3": betweenWindows, "A ends": atTheEndsOfTime,
	"B1": sessionsOfTwoKeys, "B3": closedSession, "B5": sessionsGroupedAgain,
	"C3": countsInPanes, "C7": timestampsOfPanes,
	"D1": lateForOneWindow, "D3": reshuffle,
	"E1": timersOfTheFirst, "E3": heldByTimers, "E5": loopingTimer,
	"F1": readsOfABag, "F3": keysThatBeginWithEachOther, "F5": expiringValue,
	"G1": restoredSplit, "G3": readersWithoutSplits, "G5 moves": besideOneThatMoves, "G5 unknown": besideOneThatSaysNothing,
	"G5 idle":  besideOneThatIsIdle,
	"G silent": silentWithItsLast,
	"H1":       leftJoin, "H4": emptySideWindow, "H6": aggregatesOfNothing,
	"I1": keys, "I3": oddStrings, "I3 failing": failingStep,
}

func TestMain(m *testing.M) {
	ps := clustertest.Pipelines{"H7": func(p *sdk.Pipeline, _ []string) error { unlikeWindowings(p); return nil }}
	for name, build := range pipelines {
		ps[name] = func(p *sdk.Pipeline, args []string) error {
			memio.Write("collect", build(p, args[0]), &collected)
			if killed() != "" {
				untilKilled(p)
			}
			return nil
		}
	}
	clustertest.Main(m, ps)
}

// collected is what a pipeline run as processes has committed in this process.
var collected memio.Collector[string]

// everywhere runs a pipeline on both runners and compares its lines: directly, and as processes, undisturbed and with a worker
// killed that has taken part in some checkpoints.
func everywhere(t *testing.T, name string, want ...string) {
	t.Helper()
	directly(t, name, pipelines[name], want...)
	for _, way := range []struct {
		name string
		kill bool
		opts []clustertest.Option
	}{
		{"two subtasks", false, nil},
		{"three subtasks, a worker killed", true, []clustertest.Option{
			clustertest.Parallelism(3), clustertest.Interval(10 * ms), clustertest.Failpoints(killedAt + "=kill@4")}},
	} {
		before := len(collected.Rows())
		var out clustertest.Outcome
		clustertest.Run(t, name, []string{t.TempDir()}, append(way.opts, clustertest.Result(&out))...)
		got := slices.Sorted(slices.Values(collected.Rows()[before:]))
		if d := cmp.Diff(slices.Sorted(slices.Values(want)), got); d != "" {
			t.Errorf("%s as processes, %s: -want +got\n%s", name, way.name, d)
		}
		if way.kill && out.Restored == 0 {
			t.Errorf("%s as processes, %s: nothing was restored", name, way.name)
		}
	}
}

// directly runs a pipeline on the direct runner alone: disturbed as ptest does, and crashed.
func directly(t *testing.T, name string, build lined, want ...string) {
	t.Helper()
	for _, opts := range [][]ptest.Option{{ptest.Parallelism(1)}, {ptest.Parallelism(3), ptest.Crash()}} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] { return build(p, t.TempDir()) }, opts...)
		if d := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); d != "" {
			t.Errorf("%s directly, with %d options: -want +got\n%s", name, len(opts), d)
		}
	}
}

const ms = time.Millisecond

// One type of keys and one of values, so that this compiles fast.
type (
	pair   = sdk.KV[string, string]
	pairs  = sdk.PCollection[pair]
	script = teststream.Script[pair]
)

// at is so many milliseconds after the epoch.
func at(n int64) time.Time { return time.UnixMilli(n).UTC() }

// k makes pairs of the key k.
func k(vs ...string) []pair { return of("k", vs...) }

func of(key string, vs ...string) (out []pair) {
	for _, v := range vs {
		out = append(out, sdk.Pair(key, v))
	}
	return out
}

func play(p *sdk.Pipeline, s script) pairs { return teststream.Read("in", p, s) }

// grouped is the groups of each key and window as lines "k [0,10) a b", and what is late as "late k [0,10) c". With panes the lines
// of groups end with what their panes are called.
func grouped(name string, in pairs, panes bool) (out sdk.PCollection[string]) {
	in.Pipeline().Scope(name, func() {
		var late pairs
		groups := sdk.ParDoFunc("groups", sdk.GroupByKey("group", in, sdk.LateTo(&late)), func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[string]], emit *sdk.Emitter[string]) error {
			words := append([]string{kv.Key, span(c.Window())}, slices.Sorted(kv.Value.All())...)
			if panes {
				words = append(words, called(c.Pane()))
			}
			emit.Emit(strings.Join(words, " "))
			return nil
		})
		out = sdk.Flatten("all", everything("groups regardless of windows", groups), lateLines("late", late))
	})
	return out
}

// lateLines are lines "late k [0,10) c".
func lateLines(name string, late pairs) sdk.PCollection[string] {
	return everything(name+" regardless of windows", sdk.ParDoFunc(name, late, func(c *sdk.ProcessContext, kv pair, emit *sdk.Emitter[string]) error {
		emit.Emit(fmt.Sprint("late ", kv.Key, " ", span(c.Window()), " ", kv.Value))
		return nil
	}))
}

// everything brings lines into one window, so that they can be put together with others.
func everything(name string, in sdk.PCollection[string]) sdk.PCollection[string] {
	return sdk.WindowInto(name, in, window.Global())
}

func span(w window.Window) string {
	if w == window.GlobalWindow {
		return "global"
	}
	return fmt.Sprintf("[%d,%d)", int64(w.StartTime()), int64(w.EndTime()))
}

// called is "early 0 first" and such.
func called(p window.Pane) string {
	text := fmt.Sprint(map[window.Timing]string{window.Early: "early", window.OnTime: "on time", window.Late: "late"}[p.Timing], " ", p.Index)
	if p.First {
		text += " first"
	}
	if p.Last {
		text += " last"
	}
	return text
}
