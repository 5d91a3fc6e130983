package batches

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// harness calls the step, whose values are strings: one of n bytes has n+1 encoded.
type harness struct {
	t *testing.T
	*ptest.KeyedHarness[string, string, sdk.KV[string, []string]]
	fn *batcher[string, string]
}

func newHarness(t *testing.T, l Limits) *harness {
	t.Helper()
	c, err := coder.Of[string]()
	if err != nil {
		t.Fatal(err)
	}
	fn := &batcher[string, string]{Limits: l, coder: c}
	return &harness{t, ptest.KeyedDoFn(t, fn), fn}
}

// put processes values of a key in [0 s, 10 s), with a timestamp in seconds.
func (h *harness) put(key string, s int64, vs ...string) {
	h.t.Helper()
	for _, v := range vs {
		h.do(h.ProcessElement(key, ptest.Element[string]{Value: v, Time: at(s), Window: ten}))
	}
}

func (h *harness) do(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// want checks what has come since the last call: "a[x y]@5", in its order.
func (h *harness) want(lines ...string) {
	h.t.Helper()
	var got []string
	for _, e := range h.Elements() {
		got = append(got, fmt.Sprintf("%s%v@%d", e.Value.Key, e.Value.Value, e.Time.Unix()))
		if e.Window != ten {
			h.t.Errorf("%v is in window %v", e.Value, e.Window)
		}
	}
	if d := cmp.Diff(lines, got); d != "" {
		h.t.Errorf("-want +got:\n%s", d)
	}
}

// holds checks where the watermark of the output is.
func (h *harness) holds(s int64) {
	h.t.Helper()
	if w := h.OutputWatermark(); !w.Equal(at(s)) {
		h.t.Errorf("the watermark of the output is %v, want %v", w, at(s))
	}
}

func at(s int64) time.Time { return time.Unix(s, 0).UTC() }

var ten = window.Between(at(0), at(10))

func TestABatchComesWhenItHasCountValues(t *testing.T) {
	h := newHarness(t, Limits{Count: 3})
	h.put("a", 1, "1", "2")
	h.put("b", 1, "3")
	h.want()
	h.put("a", 1, "4", "5")
	h.want("a[1 2 4]@1")
	h.put("b", 1, "6", "7")
	h.want("b[3 6 7]@1")
	h.put("a", 1, "8", "9", "10", "11")
	h.want("a[5 8 9]@1")
}

func TestBatchesOfOneAreNotKept(t *testing.T) {
	h := newHarness(t, Limits{Count: 1})
	h.put("a", 1, "1", "2")
	h.want("a[1]@1", "a[2]@1")
	h.State("a", ten, func() {
		if _, some := h.fn.open.Lookup(); some || h.fn.values.Len() > 0 {
			t.Error("something is kept")
		}
	})
	h.do(h.End())
	h.want()
}

func TestABatchHasAtMostItsBytes(t *testing.T) {
	h := newHarness(t, Limits{Bytes: 10})
	h.put("a", 1, "1234", "5678") // 5 bytes each: full
	h.want("a[1234 5678]@1")
	h.put("a", 1, "1234", "567")
	h.want() // 9 bytes
	h.put("a", 2, "5")
	h.want("a[1234 567]@1") // would be 11
	h.put("a", 3, "123456789")
	h.want("a[5]@2", "a[123456789]@3") // 10 alone
	h.put("a", 4, "1")
	h.put("a", 5, "12345678901234567890") // more than 10
	h.want("a[1]@4", "a[12345678901234567890]@5")
	h.put("a", 6, "12345678901234567890", "1")
	h.want("a[12345678901234567890]@6")
	h.do(h.End())
	h.want("a[1]@6")
}

func TestTheFirstLimitCounts(t *testing.T) {
	h := newHarness(t, Limits{Count: 3, Bytes: 10})
	h.put("a", 1, "1", "2", "3")
	h.want("a[1 2 3]@1")
	h.put("a", 1, "1", "12345678")
	h.want("a[1]@1")
	h.put("a", 1, "1")
	h.want("a[12345678]@1") // it had 9, and would have 11
}

func TestABatchWaitsNoLongerThanWithin(t *testing.T) {
	h := newHarness(t, Limits{Count: 3, Within: 5 * time.Second})
	h.put("a", 1, "1")
	h.do(h.ProcessingTime(at(2)))
	h.put("a", 1, "2") // does not begin the wait anew
	h.put("b", 1, "3")
	h.do(h.ProcessingTime(at(4)))
	h.want()
	h.do(h.ProcessingTime(at(5)))
	h.want("a[1 2]@1")
	h.put("a", 1, "4") // the next waits for itself
	h.do(h.ProcessingTime(at(7)))
	h.want("b[3]@1")
	h.put("a", 1, "5", "6")
	h.want("a[4 5 6]@1")
	h.do(h.ProcessingTime(at(8)))
	h.put("a", 1, "7")
	h.do(h.ProcessingTime(at(12))) // when the full one would have come
	h.want()
	h.do(h.ProcessingTime(at(13)))
	h.want("a[7]@1")
}

func TestWhatIsLeftComesWithTheEndOfTheWindow(t *testing.T) {
	for _, within := range []time.Duration{0, time.Hour} {
		h := newHarness(t, Limits{Count: 3, Within: within})
		h.put("a", 1, "1", "2", "3", "4")
		h.put("b", 9, "5")
		h.do(h.Watermark(at(9)))
		h.want("a[1 2 3]@1")
		h.do(h.Watermark(at(10)))
		got := h.Output()
		slices.SortFunc(got, func(a, b sdk.KV[string, []string]) int { return strings.Compare(a.Key, b.Key) })
		if d := cmp.Diff([]sdk.KV[string, []string]{{Key: "a", Value: []string{"4"}}, {Key: "b", Value: []string{"5"}}}, got); d != "" {
			t.Errorf("within %v: (-want +got)\n%s", within, d)
		}
		h.put("a", 1, "6")
		if h.LateDropped() != 1 {
			t.Errorf("within %v: %d are late", within, h.LateDropped())
		}
		h.do(h.End())
		h.want()
	}
}

// The timestamp is the earliest, and the watermark waits for it, whichever limit the batch reaches.
func TestTheWatermarkWaitsForTheEarliestValue(t *testing.T) {
	for name, l := range map[string]Limits{"by count": {Count: 3}, "or by the clock": {Count: 3, Within: 5 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, l)
			h.put("a", 5, "1")
			h.do(h.Watermark(at(3)))
			h.holds(3)
			h.put("a", 4, "2")
			h.do(h.Watermark(at(7)))
			h.holds(4)
			h.put("a", 8, "3")
			h.want("a[1 2 3]@4")
			h.holds(7) // nothing waits
			h.put("a", 9, "4")
			h.put("a", 8, "5")
			h.do(h.Watermark(at(9)))
			h.holds(8)
			if l.Within > 0 {
				h.do(h.ProcessingTime(at(5)))
				h.want("a[4 5]@8")
				h.holds(9)
			}
			h.do(h.Watermark(at(10)))
			if l.Within == 0 {
				h.want("a[4 5]@8")
			}
			h.holds(10)
		})
	}
}

func TestABatchThatIsTooLargeForTheNextHoldsNoMore(t *testing.T) {
	h := newHarness(t, Limits{Bytes: 4})
	h.put("a", 1, "12")
	h.put("a", 3, "34")
	h.want("a[12]@1")
	h.do(h.Watermark(at(9)))
	h.holds(3)
}

// What is open from a program with other limits goes by the new ones.
func TestAnOpenBatchGoesByNewLimits(t *testing.T) {
	h := newHarness(t, Limits{Count: 10})
	h.put("a", 1, "1", "2", "3")
	h.put("b", 1, "4")
	h.fn.Limits = Limits{Count: 2, Within: time.Second}
	h.put("a", 1, "5")
	h.want("a[1 2 3 5]@1")
	h.put("c", 1, "6")
	h.fn.Limits = Limits{Count: 3}
	h.do(h.ProcessingTime(at(1)))
	h.want("c[6]@1") // its wait had begun
	h.put("c", 1, "7")
	h.do(h.Watermark(at(9)))
	h.want()
	h.holds(1)
	h.put("b", 9, "8", "9")
	h.want("b[4 8 9]@1")
	h.do(h.Watermark(at(10)))
	h.want("c[7]@1")
}

// What a limit needs to know of an open batch is made good when the limit comes.
func TestAnOpenBatchGoesByALimitThatItDidNotHave(t *testing.T) {
	h := newHarness(t, Limits{Count: 10})
	h.put("a", 1, "1234", "1") // 5 bytes and 2
	h.put("b", 1, "1")
	h.fn.Limits = Limits{Bytes: 10}
	h.put("a", 2, "123")
	h.want("a[1234 1]@1") // would have 11
	h.put("a", 2, "12345")
	h.want("a[123 12345]@2")
	h.fn.Limits = Limits{Count: 10}
	h.put("b", 1, "12345678") // not counted
	h.fn.Limits = Limits{Bytes: 12}
	h.put("b", 1, "1")
	h.want("b[1 12345678]@1") // 11, and would have 13
	h.fn.Limits = Limits{Count: 10, Within: 5 * time.Second}
	h.put("b", 1, "2") // begins to wait
	h.do(h.ProcessingTime(at(4)))
	h.put("b", 1, "3")
	h.want()
	h.do(h.ProcessingTime(at(5)))
	h.want("b[1 2 3]@1")
}

// Values are in one batch each however it is run, in their order, and no batch is too large.
func TestEachValueIsInOneBatch(t *testing.T) {
	const n = 500
	for name, l := range map[string]Limits{"count": {Count: 7}, "bytes": {Bytes: 11}, "both": {Count: 7, Bytes: 11}, "within": {Count: 7, Within: time.Second}} {
		t.Run(name, func(t *testing.T) {
			got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[int, int64]] {
				var script teststream.Script[sdk.KV[int, int64]]
				for i := range int64(n) {
					script = script.At(time.UnixMilli(1000+i*10), sdk.Pair(int(i*i%11), i))
					if i%50 == 0 {
						script = script.Watermark(time.UnixMilli(900 + i*10))
						if l.Within > 0 {
							script = script.AdvanceClock(400 * time.Millisecond)
						}
					}
				}
				in := sdk.WindowInto("w", teststream.Read("in", p, script), window.Fixed(2*time.Second))
				return sdk.FlatMap("values", ByKey("batch", in, l), func(b sdk.KV[int, []int64], emit *sdk.Emitter[sdk.KV[int, int64]]) error {
					if len(b.Value) == 0 || l.Count > 0 && len(b.Value) > l.Count || l.Bytes > 0 && encoded(b.Value) > l.Bytes || !slices.IsSorted(b.Value) {
						return fmt.Errorf("a batch of %v", b)
					}
					for _, v := range b.Value {
						emit.Emit(sdk.Pair(b.Key, v))
					}
					return nil
				})
			}, ptest.Crash())
			var want []sdk.KV[int, int64]
			for i := range int64(n) {
				want = append(want, sdk.Pair(int(i*i%11), i))
			}
			slices.SortFunc(got, func(a, b sdk.KV[int, int64]) int { return int(a.Value - b.Value) })
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// encoded is how many bytes values have, as varints.
func encoded(vs []int64) (n int) {
	for _, v := range vs {
		n += len(binary.AppendUvarint(nil, uint64(v)))
	}
	return n
}

// A batch that would be late if the watermark did not wait is in time for a window behind.
func TestNoBatchIsLateBehindTheStep(t *testing.T) {
	script := teststream.Script[sdk.KV[string, int64]]{}.At(at(1), sdk.Pair("a", int64(1))).Watermark(at(30)).
		At(at(31), sdk.Pair("a", int64(2))).At(at(32), sdk.Pair("a", int64(4))).Watermark(at(50))
	var late sdk.PCollection[sdk.KV[string, []int64]]
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := sdk.WindowInto("all", teststream.Read("in", p, script), window.Global())
		w := sdk.WindowInto("tens", ByKey("batch", in, Limits{Count: 2}), window.Fixed(10*time.Second))
		groups := sdk.GroupByKey("group", w, sdk.LateTo(&late))
		lines := sdk.ParDoFunc("line", groups, func(c *sdk.ProcessContext, g sdk.KV[string, sdk.Iterable[[]int64]], emit *sdk.Emitter[string]) error {
			for vs := range g.Value.All() {
				emit.Emit(fmt.Sprintf("%v in %d", vs, c.Window().Start().Unix()))
			}
			return nil
		})
		return sdk.Flatten("both", lines, sdk.WindowInto("w", sdk.Map("late", late, func(sdk.KV[string, []int64]) string { return "late" }), window.Fixed(10*time.Second)))
	})
	if d := cmp.Diff([]string{"[1 2] in 0", "[4] in 30"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Values are encoded as the pipeline says, not by their type alone.
func TestBytesAreThoseOfThePipelinesCoder(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int] {
		sdk.UseCoder(p, fat{})
		in := sdk.Create("in", p, sdk.Pair("a", fatInt(1)), sdk.Pair("a", fatInt(2)), sdk.Pair("a", fatInt(3)))
		return sdk.Map("len", ByKey("batch", in, Limits{Bytes: 200}), func(b sdk.KV[string, []fatInt]) int { return len(b.Value) })
	})
	if d := cmp.Diff([]int{1, 2}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

type fatInt int

// fat encodes an int in 100 bytes.
type fat struct{}

func (fat) Append(dst []byte, v fatInt) ([]byte, error) {
	return append(dst, slices.Concat([]byte{byte(v)}, make([]byte, 99))...), nil
}
func (fat) Decode(src []byte) (fatInt, []byte, error) { return fatInt(src[0]), src[100:], nil }

func TestMistakesAreNamedWithTheStep(t *testing.T) {
	type in = sdk.PCollection[sdk.KV[string, int64]]
	for name, c := range map[string]struct {
		build func(in)
		want  []string
	}{
		"no limit":        {func(i in) { ByKey("b", i, Limits{Within: time.Second}) }, []string{"batches without a limit", "set Limits.Count or Limits.Bytes"}},
		"negative":        {func(i in) { ByKey("b", i, Limits{Count: -1}) }, []string{"batches of -1 values and 0 bytes", "use positive Limits"}},
		"negative bytes":  {func(i in) { ByKey("b", i, Limits{Count: 1, Bytes: -1}) }, []string{"batches of 1 values and -1 bytes"}},
		"part of a ms":    {func(i in) { ByKey("b", i, Limits{Count: 1, Within: time.Microsecond}) }, []string{"batches within 1µs", "use whole milliseconds"}},
		"negative within": {func(i in) { ByKey("b", i, Limits{Count: 1, Within: -time.Second}) }, []string{"batches within -1s"}},
		"no coder": {func(i in) {
			ByKey("b", sdk.MapValues("f", i, func(int64) func() { return nil }), Limits{Count: 1})
		}, []string{"func()"}},
		"sessions":    {func(i in) { ByKey("b", sdk.WindowInto("w", i, window.Sessions(time.Second)), Limits{Count: 1}) }, []string{"in windows that merge"}},
		"retractions": {func(i in) { ByKey("b", retracting(i), Limits{Count: 1}) }, []string{"may have retractions", "take it from Changes"}},
	} {
		p := sdk.NewPipeline("p")
		c.build(teststream.Read("in", p, teststream.Script[sdk.KV[string, int64]]{}.At(at(1), sdk.Pair("a", int64(1)))))
		err := p.Err()
		for _, want := range append(c.want, "(batches_test.go:") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", name, err, want)
			}
		}
	}
}

func retracting(in sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[string, sdk.Iterable[int64]]] {
	w := sdk.WindowInto("w", in, window.Fixed(time.Second), sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
	return sdk.GroupByKey("group", w)
}
