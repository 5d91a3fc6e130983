package fieldtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/sim"
)

// firstOfFive sets a timer at the first of five elements, and takes it back at the fifth.
type firstOfFive struct {
	Delay int64 // ms
	seen  state.Value[int64]
	timer sdk.Timer
}

func (f *firstOfFive) Declare(d *sdk.KeyedDecl) {
	f.seen, f.timer = state.NewValue[int64](d, "seen"), sdk.EventTimer(d, "timer", f.fired)
}

func (f *firstOfFive) ProcessElement(c *sdk.ProcessContext, _, _ string, _ *sdk.Emitter[string]) error {
	switch f.seen.Set(f.seen.Get() + 1); f.seen.Get() {
	case 1:
		f.timer.Set(at(c.Timestamp().UnixMilli() + f.Delay))
	case 5:
		f.timer.Clear()
	}
	return nil
}

func (f *firstOfFive) fired(c *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprint(key, " fired at ", c.Timestamp().UnixMilli(), " behind ", f.seen.Get()))
	return nil
}

func timersOfTheFirst(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}
	for i, v := range []string{"a", "b", "c", "d", "e"} {
		s = s.At(at(int64(i)), k(v)...).Watermark(at(int64(i)))
	}
	in := play(p, s.Watermark(at(30)))
	return sdk.Flatten("both", sdk.ParDoPerKey("after ten", in, &firstOfFive{Delay: 10}), sdk.ParDoPerKey("after two", in, &firstOfFive{Delay: 2}))
}

// https://github.com/apache/beam/issues/35090 and pull 35106: a timer ran before its time, and one that a later bundle had cleared
// ran too. Three elements have come when the watermark is at 2.
func TestTimersRunAtTheirTimeUnlessCleared(t *testing.T) {
	everywhere(t, "E1", "k fired at 2 behind 3")
}

// delayed emits an element after five milliseconds of the clock.
type delayed struct {
	kept  state.Bag[string]
	timer sdk.Timer
}

func (f *delayed) Declare(d *sdk.KeyedDecl) {
	f.kept, f.timer = state.NewBag[string](d, "kept"), sdk.ProcessingTimer(d, "timer", f.fired)
}

func (f *delayed) ProcessElement(c *sdk.ProcessContext, _, v string, _ *sdk.Emitter[pair]) error {
	f.kept.Add(v)
	f.timer.SetIn(5*ms, sdk.OutputAt(c.Timestamp()))
	return nil
}

func (f *delayed) fired(c *sdk.ProcessContext, key string, emit *sdk.Emitter[pair]) error {
	for v := range f.kept.All() {
		emit.Emit(sdk.Pair(key, fmt.Sprint(v, "@", c.Timestamp().UnixMilli())))
	}
	f.kept.Clear()
	return nil
}

// delayedBy has the step in windows of ten, which a timer cannot outlive, and in the global window, where it holds the watermark
// until it has fired.
func delayedBy(p *sdk.Pipeline, s script) sdk.PCollection[string] {
	in := play(p, s)
	inTens := sdk.ParDoPerKey("in tens", sdk.WindowInto("tens", in, window.Fixed(10*ms)), &delayed{})
	global := sdk.WindowInto("then tens", sdk.ParDoPerKey("in the global window", in, &delayed{}), window.Fixed(10*ms))
	return sdk.Flatten("both", grouped("of tens", inTens, true), grouped("of global", global, true))
}

func heldByTimers(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	return delayedBy(p, script{}.At(at(2), k("x")...).Watermark(at(50)))
}

// BEAM-14244, https://github.com/apache/beam/issues/21712: what a timer of the clock emitted had the watermark of the moment, or
// the end of time, as its timestamp. Where no script moves the clock the timer fires at the end of the input.
func TestTimersOfTheClockHoldTheWatermark(t *testing.T) {
	line := "k [0,10) x@2 on time 0 first last"
	everywhere(t, "E3", line, line)

	clocked := script{}.At(at(2), k("x")...).Watermark(at(50)).Clock(at(4)).Watermark(at(51)).Clock(at(6)).At(at(60), k("y")...).Watermark(at(70)).Clock(at(20))
	other := "k [60,70) y@60 on time 0 first last"
	directly(t, "E3 by the clock", func(p *sdk.Pipeline, _ string) sdk.PCollection[string] { return delayedBy(p, clocked) }, line, line, other, other)
}

// looping arms itself again and again.
type looping struct {
	fired state.Value[int64]
	timer sdk.Timer
}

func (f *looping) Declare(d *sdk.KeyedDecl) {
	f.fired, f.timer = state.NewValue[int64](d, "fired"), sdk.ProcessingTimer(d, "timer", f.fire)
	sdk.OnWindowExpiry(d, f.expired)
}

func (f *looping) arm(c *sdk.ProcessContext) { f.timer.SetIn(10*ms, sdk.OutputAt(c.Window().End())) }

func (f *looping) ProcessElement(c *sdk.ProcessContext, _, _ string, _ *sdk.Emitter[string]) error {
	f.arm(c)
	return nil
}

func (f *looping) fire(c *sdk.ProcessContext, _ string, emit *sdk.Emitter[string]) error {
	f.fired.Set(f.fired.Get() + 1)
	emit.Emit(fmt.Sprint("fired ", f.fired.Get()))
	f.arm(c)
	return nil
}

func (f *looping) expired(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprint(key, " expired after ", f.fired.Get()))
	return nil
}

func loopingTimer(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	return sdk.ParDoPerKey("loop", play(p, script{}.At(at(1), k("a")...)), &looping{})
}

// https://github.com/apache/beam/issues/33595 and 28299: a timer that arms itself kept a job from draining. What is pending at the end
// fires once, and what it arms does not (docs/design/timers.md).
func TestLoopingTimersDoNotBlockTheEnd(t *testing.T) {
	everywhere(t, "E5", "fired 1", "k expired after 1")
	directly(t, "E5 by the clock", func(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
		s := script{}.At(at(1), k("a")...).Clock(at(10)).Clock(at(20)).Clock(at(30)).Clock(at(35))
		return sdk.ParDoPerKey("loop", play(p, s), &looping{})
	}, "fired 1", "fired 2", "fired 3", "fired 4", "k expired after 4")
}

// told is a step whose elements say which of its timers to set, as "set a 12", or to clear, as "clear a".
type told struct {
	n      state.Value[int64]
	timers sdk.TimerFamily
}

func (f *told) Declare(d *sdk.KeyedDecl) {
	f.n, f.timers = state.NewValue[int64](d, "n"), sdk.EventTimerFamily(d, "timers", f.fired)
}

func (f *told) ProcessElement(_ *sdk.ProcessContext, _, v string, _ *sdk.Emitter[string]) error {
	if tag, clear := strings.CutPrefix(v, "clear "); clear {
		f.timers.Clear(tag)
		return nil
	}
	var tag string
	var when int64
	_, err := fmt.Sscanf(v, "set %s %d", &tag, &when)
	f.timers.Set(tag, at(when))
	return err
}

func (f *told) fired(c *sdk.ProcessContext, key, tag string, emit *sdk.Emitter[string]) error {
	f.n.Set(f.n.Get() + 1)
	emit.Emit(fmt.Sprint(key, " ", f.n.Get(), " ", tag, " at ", c.Timestamp().UnixMilli()))
	return nil
}

// The rule of the group: each timer that is not cleared fires once, at the last time that was set, in the order of times, once the
// watermark is there.
func TestTimersFireOnceAndInOrder(t *testing.T) {
	fired, cleared := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		pending, fires := map[string]map[string]int64{"k1": {}, "k2": {}}, map[string]int{}
		var want []string
		advance := func(to int64) {
			for key, timers := range pending {
				for len(timers) > 0 {
					next := ""
					for tag, when := range timers {
						if next == "" || when < timers[next] || when == timers[next] && tag < next {
							next = tag
						}
					}
					if timers[next] > to {
						break
					}
					fires[key]++
					want = append(want, fmt.Sprint(key, " ", fires[key], " ", next, " at ", timers[next]))
					delete(timers, next)
					fired++
				}
			}
		}
		s, now := script{}, int64(0)
		for range rapid.IntRange(1, 12).Draw(r, "events") {
			key, tag := rapid.SampledFrom([]string{"k1", "k2"}).Draw(r, "key"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "tag")
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0:
				now += rapid.Int64Range(0, 200).Draw(r, "on")
				s = s.Watermark(at(now))
				advance(now)
			case 1:
				s = s.At(at(now), of(key, "clear "+tag)...)
				if _, ok := pending[key][tag]; ok {
					cleared++
				}
				delete(pending[key], tag)
			default:
				when := now + rapid.Int64Range(1, 300).Draw(r, "delay")
				s = s.At(at(now), of(key, fmt.Sprint("set ", tag, " ", when))...)
				pending[key][tag] = when
			}
		}
		advance(1 << 40)
		restore := rapid.IntRange(0, 4).Draw(r, "restored every")
		got := run(r, func(p *sdk.Pipeline) sdk.PCollection[string] { return sdk.ParDoPerKey("told", play(p, s), &told{}) }, restore)
		if d := cmp.Diff(slices.Sorted(slices.Values(want)), got); d != "" {
			r.Fatalf("-want +got\n%s", d)
		}
	})
	if fired == 0 || cleared == 0 {
		t.Errorf("%d timers fired, %d were cleared", fired, cleared)
	}
}

// run runs a random pipeline on the direct runner, restored after every so many records, and returns its lines in order.
func run(r *rapid.T, build func(p *sdk.Pipeline) sdk.PCollection[string], restore int) []string {
	var out memio.Collector[string]
	_, err := direct.Run(r.Context(), "random", func(p *sdk.Pipeline) error {
		memio.Write("collect", build(p), &out)
		return nil
	}, direct.Options{
		Parallelism: rapid.IntRange(1, 3).Draw(r, "parallelism"), ReadBatch: 1, RestoreEvery: restore,
		Scheduler: sim.New(rapid.Uint64().Draw(r, "schedule")), Overtaking: rapid.Bool().Draw(r, "overtaking"),
	})
	if err != nil {
		r.Fatal(err)
	}
	return slices.Sorted(slices.Values(out.Rows()))
}
