package twin

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// Windows draws window functions of every kind, with a few milliseconds to a window; but calendar ones have days, see Stretched.
// A window that merging makes holds its parts.
func Windows() *rapid.Generator[window.Fn] {
	return rapid.Custom(func(t *rapid.T) window.Fn {
		size, shift := millis(t, "size", 1, 12), millis(t, "shift", -3, 3)
		switch rapid.IntRange(0, 7).Draw(t, "fn") {
		case 0:
			return window.Fixed(size).Offset(shift)
		case 1:
			return window.Sessions(size)
		case 2:
			return window.Sliding(size, millis(t, "period", 3, 8)).Offset(shift)
		case 3:
			return calendars(t)
		case 4:
			p := pieces{around: rapid.Bool().Draw(t, "around"), hole: rapid.Bool().Draw(t, "hole")}
			for range rapid.IntRange(2, 4).Draw(t, "pieces") {
				p.sizes = append(p.sizes, millis(t, "piece", 1, 9))
			}
			return p.fn()
		case 5, 6:
			return stretches{size, millis(t, "more", 1, 4), millis(t, "round", 1, 5)}.fn()
		default:
			return window.Global()
		}
	})
}

// calendars draws calendar windows that a few days about the end of March 2026 tell apart: clocks are changed there, and a month begins.
func calendars(t *rapid.T) window.Fn {
	zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"}).Draw(t, "zone")
	n := rapid.IntRange(1, 3).Draw(t, "n")
	switch rapid.IntRange(0, 2).Draw(t, "unit") {
	case 0:
		return window.Days(n).In(zone)
	case 1:
		return window.Weeks(1, time.Weekday(rapid.IntRange(0, 6).Draw(t, "weekday"))).In(zone)
	default:
		return window.Months(n).In(zone).From(2014, time.January, rapid.IntRange(1, 31).Draw(t, "day"))
	}
}

// Stretched is s and events, but for calendar windows, to which a few milliseconds are nothing: then each is 5 hours and 37 minutes.
func Stretched(s Strategy, events []Event) (Strategy, []Event) {
	if _, ok := s.Fn.(window.CalendarFn); !ok {
		return s, events
	}
	const unit = eventtime.Time((5*60 + 37) * 60 * 1000)
	from := eventtime.FromTime(time.Date(2026, time.March, 25, 0, 0, 0, 0, time.UTC))
	events = slices.Clone(events)
	for i := range events {
		if e := &events[i]; e.Kind != ClockEvent && e.Time != eventtime.Max {
			e.Time = from + unit*e.Time
		}
	}
	s.Lateness *= int64(unit)
	return s, events
}

func millis(t *rapid.T, label string, from, to int) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Millisecond
}

// Triggers draws valid triggers whose parts have at most depth parts within each other.
func Triggers(depth int) *rapid.Generator[trigger.Trigger] {
	return rapid.Custom(func(t *rapid.T) trigger.Trigger {
		kinds := 5
		if depth > 0 {
			kinds = 11
		}
		part := func(label string) trigger.Trigger { return Triggers(depth-1).Draw(t, label) }
		some := func() (out []trigger.Trigger) {
			for range rapid.IntRange(1, 3).Draw(t, "parts") {
				out = append(out, part("part"))
			}
			return out
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return trigger.AfterWatermark()
		case 1:
			return trigger.AfterCount(rapid.IntRange(1, 5).Draw(t, "count"))
		case 2:
			return trigger.AfterProcessingTime(millis(t, "delay", 0, 9))
		case 3:
			return trigger.AfterProcessingTime(millis(t, "delay", 0, 9)).AlignedTo(millis(t, "period", 1, 7), millis(t, "offset", -3, 3))
		case 4:
			return trigger.Never()
		case 5:
			return trigger.Always()
		case 6:
			w := trigger.AfterWatermark()
			if rapid.Bool().Draw(t, "has an early part") {
				w = w.Early(part("early"))
			}
			if rapid.Bool().Draw(t, "has a late part") {
				w = w.Late(part("late"))
			}
			return w
		case 7:
			return trigger.Repeatedly(part("repeated"))
		case 8:
			return trigger.AfterFirst(some()...)
		case 9:
			return trigger.AfterAll(some()...)
		case 10:
			return trigger.AfterEach(some()...)
		default:
			return trigger.OrFinally(part("main"), part("until"))
		}
	})
}

// Counts draws triggers that are AfterWatermark with counts of elements before and after.
func Counts() *rapid.Generator[trigger.Trigger] {
	return rapid.Custom(func(t *rapid.T) trigger.Trigger {
		w := trigger.AfterWatermark().Late(trigger.AfterCount(rapid.IntRange(1, 4).Draw(t, "late")))
		if n := rapid.IntRange(0, 4).Draw(t, "early"); n > 0 {
			w = w.Early(trigger.AfterCount(n))
		}
		return w
	})
}

// Strategies draws valid strategies with windows and triggers of the given kinds, and everything else as it may be.
func Strategies(fns *rapid.Generator[window.Fn], triggers *rapid.Generator[trigger.Trigger]) *rapid.Generator[Strategy] {
	return rapid.Custom(func(t *rapid.T) Strategy {
		return Strategy{
			Fn:           fns.Draw(t, "windows"),
			Trigger:      triggers.Draw(t, "trigger"),
			Lateness:     rapid.SampledFrom([]int64{0, 0, 1, 5, 20, 1000}).Draw(t, "lateness"),
			Accumulation: Accumulation(rapid.IntRange(0, 2).Draw(t, "accumulation")),
			Timestamps:   Combiner(rapid.IntRange(0, 2).Draw(t, "timestamps")),
			EmptyOnTime:  rapid.Bool().Draw(t, "empty on time"),
			EmptyLast:    rapid.Bool().Draw(t, "empty last"),
		}
	})
}

// Streams draws events of two keys. Values are numbers of elements, so that each occurs once. The last event ends the input.
func Streams() *rapid.Generator[[]Event] {
	const nothing = Kind(255)
	// Watermark and clock are drawn as steps, so that any part of a stream is a stream. A stream shrinks to steps that are nothing.
	kinds := []Kind{nothing, ElementEvent, ElementEvent, ElementEvent, ElementEvent, ElementEvent, ElementEvent, WatermarkEvent, WatermarkEvent, ClockEvent}
	step := rapid.Custom(func(t *rapid.T) Event {
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case ElementEvent:
			return Element(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), 0, eventtime.Time(rapid.IntRange(-5, 40).Draw(t, "time")))
		case nothing:
			return Event{Kind: nothing}
		default:
			return Event{Kind: kind, Time: eventtime.Time(rapid.IntRange(0, 12).Draw(t, "forward"))}
		}
	})
	return rapid.Custom(func(t *rapid.T) []Event {
		events := slices.DeleteFunc(rapid.SliceOfN(step, 20, 60).Draw(t, "steps"), func(e Event) bool { return e.Kind == nothing })
		watermark, clock, n := eventtime.Time(-5), eventtime.Time(0), int64(0)
		for i := range events {
			switch e := &events[i]; e.Kind {
			case ElementEvent:
				n++
				e.Value = n
			case WatermarkEvent:
				watermark += e.Time
				e.Time = watermark
			case ClockEvent:
				clock += e.Time
				e.Time = clock
			}
		}
		return append(events, Watermark(eventtime.Max))
	})
}
