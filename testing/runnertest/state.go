package runnertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
)

// cells has one cell of each kind.
type cells struct {
	value  state.Value[int64]
	bag    state.Bag[int64]
	byLow  state.Map[int64, int64]
	list   state.OrderedList[int64]
	summed state.Combining[int64, int64, int64]
}

func (f *cells) Declare(d *sdk.KeyedDecl) {
	f.value = state.NewValue[int64](d, "value")
	f.bag = state.NewBag[int64](d, "bag")
	f.byLow = state.NewMap[int64, int64](d, "map")
	f.list = state.NewOrderedList[int64](d, "list")
	f.summed = state.NewCombining[int64, int64, int64](d, "sum", sum{})
	sdk.OnWindowExpiry(d, f.expired)
}

func (f *cells) ProcessElement(c *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[string]) error {
	f.value.Set(v)
	f.bag.Add(v)
	f.byLow.Put(v%2, v)
	f.list.Add(c.Timestamp(), v)
	f.list.ClearRange(at(0), at(2))
	f.summed.Add(v)
	if v == 99 {
		f.bag.Clear()
		f.byLow.Delete(1)
	}
	return nil
}

func (f *cells) expired(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: value %d, bag %v, map", key, f.value.Get(), slices.Sorted(f.bag.All()))
	for _, k := range []int64{0, 1} {
		if v, ok := f.byLow.Lookup(k); ok {
			fmt.Fprintf(&b, " %d:%d", k, v)
		}
	}
	b.WriteString(", list")
	for t, v := range f.list.All() {
		fmt.Fprintf(&b, " %d@%s", v, seconds(t))
	}
	fmt.Fprintf(&b, ", sum %d", f.summed.Get())
	emit.Emit(b.String())
	return nil
}

// Cells: each kind of state of a key, and what is called when its window's life ends.
func Cells(p *sdk.Pipeline) {
	s := script{}.At(at(5), of("a", 1)...).At(at(3), of("a", 2)...).At(at(1), of("a", 3)...).At(at(4), of("b", 5)...).At(at(6), of("b", 99)...).At(at(7), of("b", 4)...)
	passert.Equals("state", sdk.ParDoPerKey("keep", read(p, s), &cells{}),
		"a: value 3, bag [1 2 3], map 0:2 1:3, list 2@3 1@5, sum 6", "b: value 4, bag [4], map 0:4, list 5@4 99@6 4@7, sum 108")
}

// numbered numbers the elements of a key and window.
type numbered struct{ n state.Value[int64] }

func (f *numbered) Declare(d *sdk.KeyedDecl) { f.n = state.NewValue[int64](d, "n") }
func (f *numbered) ProcessElement(c *sdk.ProcessContext, key string, v int64, emit *sdk.Emitter[string]) error {
	f.n.Set(f.n.Get() + 1)
	emit.Emit(fmt.Sprintf("%s=%d %s number %d", key, v, span(c.Window()), f.n.Get()))
	return nil
}

// StatePerWindow: each window has its own state, which goes with it; what comes after that is late.
func StatePerWindow(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1, 2)...).At(at(11), of("a", 3)...).Watermark(at(12)).At(at(2), of("a", 4)...).Watermark(at(15)).At(at(2), of("a", 5)...)
	var late sdk.PCollection[kv]
	w := sdk.WindowInto("windows", read(p, s), window.Fixed(10*second), sdk.AllowedLateness(5*second))
	passert.Equals("numbers", sdk.ParDoPerKey("number", w, &numbered{}, sdk.LateTo(&late)),
		"a=1 [0,10) number 1", "a=2 [0,10) number 2", "a=3 [10,20) number 1", "a=4 [0,10) number 3")
	passert.Equals("late", show("show late", late), "a=5")
}

// deduped lets each value of a key pass once in ten seconds.
type deduped struct{ seen state.Map[int64, bool] }

func (f *deduped) Declare(d *sdk.KeyedDecl) {
	f.seen = state.NewMap[int64, bool](d, "seen", state.TTL(10*second, state.OnWrite, state.EventTime))
}

func (f *deduped) ProcessElement(_ *sdk.ProcessContext, key string, v int64, emit *sdk.Emitter[kv]) error {
	if !f.seen.Get(v) {
		f.seen.Put(v, true)
		emit.Emit(sdk.Pair(key, v))
	}
	return nil
}

// TTL: what a cell holds is gone after a while.
func TTL(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).Watermark(at(1)).At(at(5), of("a", 1, 2)...).Watermark(at(5)).
		At(at(10), of("a", 1)...).Watermark(at(12)).At(at(12), of("a", 1, 2)...).Watermark(at(1000)).At(at(1000), of("a", 2)...)
	passert.Equals("passed", showTimes("show", sdk.ParDoPerKey("dedupe", read(p, s), &deduped{})), "a=1@1", "a=2@5", "a=1@12", "a=2@1000")
}

// quiet counts the elements of a key until there were none for ten seconds of event time.
type quiet struct {
	n     state.Value[int64]
	timer sdk.Timer
}

func (f *quiet) Declare(d *sdk.KeyedDecl) {
	f.n, f.timer = state.NewValue[int64](d, "n"), sdk.EventTimer(d, "quiet", f.end)
}

func (f *quiet) ProcessElement(c *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[kv]) error {
	f.n.Set(f.n.Get() + v)
	f.timer.Set(c.Timestamp().Add(10 * second))
	return nil
}

func (f *quiet) end(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[kv]) error {
	emit.Emit(sdk.Pair(key, f.n.Get()))
	f.n.Clear()
	return nil
}

// EventTimers: a timer that moves on, and fires when the watermark comes to it.
func EventTimers(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(5), of("a", 2)...).Watermark(at(11)).At(at(12), of("a", 4)...).Watermark(at(25)).At(at(30), of("a", 8)...).At(at(26), of("b", 16)...)
	passert.Equals("ends", showTimes("show", sdk.ParDoPerKey("quiet", read(p, s), &quiet{})), "a=7@22", "a=8@40", "b=16@36")
}

// reminders sets a timer for each element, and takes it back for a negative one.
type reminders struct{ at sdk.TimerFamily }

func (f *reminders) Declare(d *sdk.KeyedDecl) { f.at = sdk.EventTimerFamily(d, "at", f.remind) }

func (f *reminders) ProcessElement(c *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[string]) error {
	if v < 0 {
		f.at.Clear(fmt.Sprint(-v))
		return nil
	}
	f.at.Set(fmt.Sprint(v), c.Timestamp().Add(time.Duration(v)*second), sdk.OutputAt(c.Timestamp()))
	return nil
}

func (f *reminders) remind(c *sdk.ProcessContext, key, tag string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprintf("%s %s@%s", key, tag, seconds(c.Timestamp())))
	return nil
}

// TimerFamilies: many timers of a key, told apart by tags, with timestamps of their own.
func TimerFamilies(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 3, 5, 8)...).At(at(2), of("a", -5)...).At(at(3), of("b", 3)...).Watermark(at(100))
	passert.Equals("reminders", sdk.ParDoPerKey("remind", read(p, s), &reminders{}), "a 3@1", "a 8@1", "b 3@3")
}

// held emits what it has kept when its timer fires, with the times of the elements.
type held struct {
	kept  state.OrderedList[int64]
	timer sdk.Timer
}

func (f *held) Declare(d *sdk.KeyedDecl) {
	f.kept, f.timer = state.NewOrderedList[int64](d, "kept"), sdk.EventTimer(d, "timer", f.release)
}

func (f *held) ProcessElement(c *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[kv]) error {
	if f.kept.Len() == 0 {
		f.timer.Set(c.Timestamp().Add(20*second), sdk.OutputAt(c.Timestamp()))
	}
	f.kept.Add(c.Timestamp(), v)
	return nil
}

func (f *held) release(_ *sdk.ProcessContext, key string, emit *sdk.Emitter[kv]) error {
	for t, v := range f.kept.All() {
		emit.EmitAt(t, sdk.Pair(key, v))
	}
	f.kept.Clear()
	return nil
}

// TimersHoldTheWatermark: what a timer is to emit at an earlier time is not late in the next step.
func TimersHoldTheWatermark(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).At(at(8), of("a", 2)...).Watermark(at(15)).At(at(16), of("a", 4)...).Watermark(at(100))
	w := sdk.WindowInto("twos", sdk.ParDoPerKey("hold", read(p, s), &held{}), window.Fixed(2*second))
	var late sdk.PCollection[kv]
	passert.Equals("sums", showWindows("show", sdk.CombinePerKey("sum", w, sum{}, sdk.LateTo(&late))), "a=1 [0,2)", "a=2 [8,10)", "a=4 [16,18)")
	passert.Empty("late", late)
}

// waited says how long an element waits by the clock.
type waited struct {
	kept  state.Bag[int64]
	timer sdk.Timer
	delay time.Duration
}

func (f *waited) Declare(d *sdk.KeyedDecl) {
	f.kept, f.timer = state.NewBag[int64](d, "kept"), sdk.ProcessingTimer(d, "timer", f.release)
}

func (f *waited) ProcessElement(_ *sdk.ProcessContext, _ string, v int64, _ *sdk.Emitter[string]) error {
	if f.kept.Len() == 0 {
		f.timer.SetIn(f.delay)
	}
	f.kept.Add(v)
	return nil
}

func (f *waited) release(c *sdk.ProcessContext, key string, emit *sdk.Emitter[string]) error {
	emit.Emit(fmt.Sprintf("%s%v@%s", key, slices.Sorted(f.kept.All()), seconds(c.Timestamp())))
	f.kept.Clear()
	return nil
}

// ProcessingTimers: by a clock that the script moves.
func ProcessingTimers(p *sdk.Pipeline) {
	s := script{}.At(at(1), of("a", 1)...).AdvanceClock(4*second).At(at(2), of("a", 2)...).AdvanceClock(second).
		At(at(3), of("a", 4)...).AdvanceClock(6*second).At(at(4), of("a", 8)...)
	passert.Equals("released", sdk.ParDoPerKey("wait", read(p, s), &waited{delay: 5 * second}), "a[1 2]@1", "a[4]@3", "a[8]@4")
}

// ProcessingTimersByTheClock: what waits comes once, at the latest with the end of the input.
func ProcessingTimersByTheClock(p *sdk.Pipeline) {
	s := script{}
	for i := range int64(8) {
		s = s.At(at(i), of("a", 1<<i)...)
	}
	waits := sdk.ParDoPerKey("wait", read(p, s), &waited{delay: 15 * time.Millisecond})
	passert.That("all", waits).Satisfies(func(got []string) error {
		seen := map[string]bool{}
		for _, line := range got {
			_, list, _ := strings.Cut(line, "[")
			list, _, _ = strings.Cut(list, "]")
			for _, v := range strings.Fields(list) {
				if seen[v] {
					return fmt.Errorf("%s came twice: %q", v, got)
				}
				seen[v] = true
			}
		}
		if len(seen) != 8 {
			return fmt.Errorf("%d of 8 came: %q", len(seen), got)
		}
		return nil
	})
}
