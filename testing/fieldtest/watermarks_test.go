package fieldtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// watching passes on what is not late, and leaves the mark of an element.
type watching struct{ Dir, Value string }

func (w *watching) Declare(*sdk.KeyedDecl) {}

func (w *watching) ProcessElement(_ *sdk.ProcessContext, key, v string, emit *sdk.Emitter[pair]) error {
	emit.Emit(sdk.Pair(key, v))
	if v == w.Value {
		return leave(w.Dir, v)
	}
	return nil
}

// watched groups in windows of ten, and tells of what is late. The mark of an element is left by a step that has seen the
// watermarks before it, and drops what is late then. The mark "pane" is left once the window that begins at first has fired.
func watched(in pairs, dir, value string, first int64) sdk.PCollection[string] {
	var late pairs
	tens := sdk.WindowInto("tens", in, window.Fixed(10*ms))
	seen := sdk.ParDoPerKey("watch", tens, &watching{dir, value}, sdk.LateTo(&late))
	groups := grouped("groups", seen, false)
	lines := sdk.MapErr("mark the pane", groups, func(line string) (string, error) {
		if strings.HasPrefix(line, fmt.Sprintf("k [%d,", first)) {
			return line, leave(dir, "pane")
		}
		return line, nil
	})
	return sdk.Flatten("and late ones", lines, lateLines("late", late))
}

// restoredSplit has a split that gives its first element after the job was restored and the other split has gone on.
func restoredSplit(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	in := read("in", p, dir, watermark.Monotonic(),
		[]event{{Value: "w", At: 150}, untilKill, {Value: "x", At: 200}, {Value: "v", At: 201}},
		[]event{{Wait: "v"}, {Value: "y", At: 60}})
	return watched(in, dir, "v", 60)
}

// FLINK-32828: after a restore, splits that had not yet given anything were left out of the watermark.
func TestRestoredSplitThatGaveNothingHoldsTheWatermark(t *testing.T) {
	everywhere(t, "G1", "k [60,70) y", "k [150,160) w", "k [200,210) v x")
}

// readersWithoutSplits has two splits, whatever the parallelism. Neither ends before the pane has fired.
func readersWithoutSplits(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	in := read("in", p, dir, watermark.Monotonic(),
		[]event{{Value: "a", At: 10}, {Value: "c", At: 25}, {Value: "g", At: 26}, {Wait: "pane"}},
		[]event{{Value: "b", At: 12}, {Wait: "g"}, {Value: "d", At: 14}, untilKill, {Value: "e", At: 26}, {Wait: "pane"}})
	return watched(in, dir, "g", 10)
}

// FLINK-8001: a reader without splits was at the end of time. It does not hold the watermark either.
func TestReadersWithoutSplitsAreIdle(t *testing.T) {
	everywhere(t, "G3", "k [10,20) a b d", "k [20,30) c e g")
}

// beside flattens a stream with two elements and its watermark at 10, which waits for end and ends, with another one.
func beside(p *sdk.Pipeline, dir string, end string, s watermark.Strategy, other ...event) sdk.PCollection[string] {
	a := read("a", p, dir, watermark.Monotonic(),
		[]event{{Value: "a", At: 1}, {Value: "b", At: 2}, untilKill, {At: 10}, {Value: "z", At: 11}, {Wait: end}})
	return watched(sdk.Flatten("both", a, read("b", p, dir, s, other)), dir, "z", 0)
}

func besideOneThatMoves(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	return beside(p, dir, "pane", watermark.Monotonic(), event{At: 10}, event{Wait: "pane"})
}

func besideOneThatSaysNothing(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	return beside(p, dir, "z", watermark.Monotonic(), event{Wait: "z"}, event{Value: "x", At: 5})
}

func besideOneThatIsIdle(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	return beside(p, dir, "pane", watermark.WithIdleness(watermark.Monotonic(), 20*ms), event{Wait: "pane"})
}

// https://github.com/apache/beam/issues/33815: a flatten with a silent stream never went on. It does if the watermark of that moves,
// or it is idle, and only then.
func TestFlattenWithASilentStream(t *testing.T) {
	everywhere(t, "G5 moves", "k [0,10) a b", "k [10,20) z")
	everywhere(t, "G5 unknown", "k [0,10) a b x", "k [10,20) z")
	everywhere(t, "G5 idle", "k [0,10) a b", "k [10,20) z")
}

// silent splits fall silent with each batch that they bring.
type silent struct{ watermark.Strategy }

func (s silent) New() watermark.Generator { return silence{s.Strategy.New()} }

type silence struct{ watermark.Generator }

func (silence) Silent() bool { return true }

func silentWithItsLast(p *sdk.Pipeline, dir string) sdk.PCollection[string] {
	in := read("in", p, dir, silent{watermark.Monotonic()}, []event{{Value: "a", At: 1}, untilKill, {Value: "z", At: 11}, {Wait: "pane"}})
	return watched(in, dir, "z", 0)
}

// What a split said with the batch with which it fell silent was lost. It counts, as it does of an input that becomes idle.
func TestWatermarkOfTheBatchWithWhichASplitFallsSilent(t *testing.T) {
	everywhere(t, "G silent", "k [0,10) a", "k [10,20) z")
}

// The rule of the group: whatever the splits, and who reads them when, nothing within the bound of its split is late, and every window has all
// of its elements.
func TestNothingWithinItsBoundIsLate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bound := rapid.Int64Range(0, 30).Draw(r, "bound")
		splits := make([][]event, rapid.IntRange(1, 4).Draw(r, "splits"))
		inWindow := map[int64][]string{}
		for i := range splits {
			greatest := rapid.Int64Range(-100, 100).Draw(r, "begin")
			for range rapid.IntRange(0, 6).Draw(r, "elements") {
				e := event{Value: fmt.Sprintf("%d-%d", i, len(splits[i])), At: greatest - rapid.Int64Range(0, bound).Draw(r, "behind")}
				if len(splits[i]) == 0 || rapid.Bool().Draw(r, "on") {
					greatest += rapid.Int64Range(0, 40).Draw(r, "by")
					e.At = greatest
				}
				splits[i] = append(splits[i], e)
				inWindow[floor(e.At, 10)] = append(inWindow[floor(e.At, 10)], e.Value)
			}
		}
		want := []string{}
		for n, vs := range inWindow {
			want = append(want, fmt.Sprintf("k [%d,%d) %s", 10*n, 10*n+10, strings.Join(slices.Sorted(slices.Values(vs)), " ")))
		}
		slices.Sort(want)
		got := run(r, func(p *sdk.Pipeline) sdk.PCollection[string] {
			in := read("in", p, "", watermark.Bounded(time.Duration(bound)*ms), splits...)
			return grouped("groups", sdk.WindowInto("tens", in, window.Fixed(10*ms)), false)
		}, rapid.IntRange(0, 4).Draw(r, "restored every"))
		if d := cmp.Diff(want, append([]string{}, got...)); d != "" {
			r.Fatalf("%v: -want +got\n%s", splits, d)
		}
	})
}
