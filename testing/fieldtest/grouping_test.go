package fieldtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/stats"
)

// dated is an element and its time.
type dated struct {
	key, value string
	at         eventtime.Time
}

// inWindows are the values of each key and window, as "k [0,10)", of elements of which none is late.
func inWindows(fn window.Fn, es []dated) map[string][]string {
	out := map[string][]string{}
	put := func(e dated, w window.Window) {
		place := e.key + " " + span(w)
		out[place] = append(out[place], e.value)
	}
	for _, e := range es {
		switch fn := fn.(type) {
		case window.FixedFn:
			put(e, fn.Assign(e.at))
		case window.SlidingFn:
			for _, w := range fn.Assign(nil, e.at) {
				put(e, w)
			}
		case window.SessionsFn:
			// What the element is connected with, by steps from it.
			start, end := fn.Assign(e.at).StartTime(), fn.Assign(e.at).EndTime()
			for grown := true; grown; {
				grown = false
				for _, o := range es {
					w := fn.Assign(o.at)
					if o.key == e.key && w.StartTime() < end && start < w.EndTime() && (w.StartTime() < start || w.EndTime() > end) {
						start, end, grown = min(start, w.StartTime()), max(end, w.EndTime()), true
					}
				}
			}
			put(e, window.New(start, end))
		}
	}
	return out
}

// The rule of windows, merging ones too, on each way of an element into its group: alone, of two inputs, and as a part of a sum that is made
// before the exchange.
func TestGroupsOfAnyWindows(t *testing.T) {
	met := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		millis := func(name string, from, to int) time.Duration {
			return time.Duration(rapid.IntRange(from, to).Draw(r, name)) * ms
		}
		var fn window.Fn
		switch rapid.IntRange(0, 2).Draw(r, "windows") {
		case 0:
			fn = window.Fixed(millis("size", 1, 30)).Offset(millis("offset", -40, 40))
		case 1:
			fn = window.Sliding(millis("size", 1, 30), millis("period", 1, 20)).Offset(millis("offset", -40, 40))
		case 2:
			fn = window.Sessions(millis("gap", 1, 15))
		}
		var opts []sdk.WindowOption
		if rapid.Bool().Draw(r, "lateness") {
			opts = append(opts, sdk.AllowedLateness(time.Hour), sdk.Accumulating)
		}
		around := rapid.SampledFrom([]eventtime.Time{0, -1000, eventtime.Min + 60, eventtime.EndOfGlobalWindow - 60}).Draw(r, "around")
		draw := func(name string) (es []dated, s script) {
			for i := range rapid.IntRange(0, 8).Draw(r, name) {
				e := dated{rapid.SampledFrom([]string{"x", "y"}).Draw(r, "key"), fmt.Sprint(name, i), around + eventtime.Time(rapid.IntRange(-50, 50).Draw(r, "time"))}
				es, s = append(es, e), s.At(e.at.Time(), sdk.Pair(e.key, e.value))
			}
			return es, s
		}
		left, leftScript := draw("L")
		right, rightScript := draw("R")
		want := []string{}
		for place, vs := range inWindows(fn, left) {
			want = append(want, fmt.Sprint("group ", place, slices.Sorted(slices.Values(vs))), fmt.Sprint("count ", place, len(vs)))
			met[fmt.Sprintf("%T", fn)] += len(vs) - 1
		}
		for place, vs := range inWindows(fn, slices.Concat(left, right)) {
			want = append(want, fmt.Sprint("both ", place, slices.Sorted(slices.Values(vs))))
		}
		slices.Sort(want)
		got := run(r, func(p *sdk.Pipeline) sdk.PCollection[string] {
			read := func(name string, s script) (in pairs) {
				p.Scope(name, func() { in = sdk.WindowInto("windows", play(p, s), fn, opts...) })
				return in
			}
			l, rt := read("left", leftScript), read("right", rightScript)
			groups := sdk.ParDoFunc("groups", sdk.GroupByKey("group", l), func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.Iterable[string]], emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint("group ", kv.Key, " ", span(c.Window()), slices.Sorted(kv.Value.All())))
				return nil
			})
			counts := sdk.ParDoFunc("counts", sdk.CombinePerKey("count", l, stats.CountFn[string]{}), func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[string]) error {
				emit.Emit(fmt.Sprint("count ", kv.Key, " ", span(c.Window()), kv.Value))
				return nil
			})
			both := sdk.ParDoFunc("joined", sdk.CoGroupByKey("join", l, rt), func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.CoGroup[string, string]], emit *sdk.Emitter[string]) error {
				all := slices.Concat(slices.Collect(kv.Value.A.All()), slices.Collect(kv.Value.B.All()))
				emit.Emit(fmt.Sprint("both ", kv.Key, " ", span(c.Window()), slices.Sorted(slices.Values(all))))
				return nil
			})
			return sdk.Flatten("all", everything("g", groups), everything("c", counts), everything("b", both))
		}, rapid.IntRange(0, 4).Draw(r, "restored every"))
		if d := cmp.Diff(want, append([]string{}, got...)); d != "" {
			r.Fatalf("%+v %v around %d: -want +got\n%s", fn, opts, around, d)
		}
	})
	if len(met) != 3 {
		t.Errorf("windows that had several elements are %v", met)
	}
}
