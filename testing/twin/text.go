package twin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// String is e as Parse reads it.
func (e Event) String() string {
	switch e.Kind {
	case WatermarkEvent:
		return "W " + at(e.Time)
	case ClockEvent:
		return "clock " + at(e.Time)
	}
	return fmt.Sprintf("%s %d@%s", e.Key, e.Value, at(e.Time))
}

func at(t eventtime.Time) string {
	switch t {
	case eventtime.Min:
		return "min"
	case eventtime.Max:
		return "end"
	}
	return strconv.FormatInt(int64(t), 10)
}

func interval(w window.Window) string {
	if w == window.GlobalWindow {
		return "global"
	}
	return fmt.Sprintf("[%s,%s)", at(w.StartTime()), at(w.EndTime()))
}

// String is like
//
//	a [0,10) {1 2} @9, ON_TIME 1/0 last
//
// with the timestamp after @, and the two numbers of the pane. A pane that is taken back begins with a minus.
func (p Pane) String() string {
	s := fmt.Sprintf("%s %s {%s} @%s, %v %d/%d", p.Key, interval(p.Window), strings.Trim(fmt.Sprint(p.Values), "[]"), at(p.Time),
		p.Info.Timing, p.Info.Index, p.Info.OnTimeIndex)
	if p.Info.First {
		s += " first"
	}
	if p.Info.Last {
		s += " last"
	}
	if p.Retraction {
		return "-" + s
	}
	return s
}

func (d Drop) String() string {
	return fmt.Sprintf("late %s %d@%s for %s", d.Key, d.Value, at(d.Time), interval(d.Window))
}

// String is what a reader needs to know of s.
func (s Strategy) String() string {
	out := fmt.Sprintf("%T%+v, %v", s.Fn, s.Fn, s.Trigger)
	if s.Lateness > 0 {
		out += fmt.Sprintf(", lateness %d", s.Lateness)
	}
	out += fmt.Sprintf(", %v, %v", s.Accumulation, s.Timestamps)
	if s.EmptyOnTime {
		out += ", EmptyOnTime"
	}
	if s.EmptyLast {
		out += ", EmptyLast"
	}
	return out
}

// Text is what events led to: each event, and after it, with a mark, what came out, and where the watermark of the output
// stands if it is behind that of the input. Without events it is only what came out.
func Text(events []Event, steps []Step) string {
	var b strings.Builder
	input := eventtime.Min
	for i, s := range steps {
		if i < len(events) {
			fmt.Fprintln(&b, events[i])
			if events[i].Kind == WatermarkEvent {
				input = events[i].Time
			}
		}
		for _, p := range s.Panes {
			fmt.Fprintln(&b, ">", p)
		}
		for _, d := range s.Late {
			fmt.Fprintln(&b, ">", d)
		}
		if s.Watermark != input {
			fmt.Fprintln(&b, "> held at", at(s.Watermark))
		}
	}
	return b.String()
}

// Parse reads events, one a line: "key value@time", "W time" or "clock time". The end of time is "end". Lines that begin with
// > and what follows // are left out.
func Parse(script string) (out []Event, err error) {
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == ">" {
			continue
		}
		e, err := parse(words)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
		out = append(out, e)
	}
	return out, nil
}

func parse(words []string) (e Event, err error) {
	if len(words) != 2 {
		return e, fmt.Errorf("%d words, want 2", len(words))
	}
	time := words[1]
	switch words[0] {
	case "W":
		e.Kind = WatermarkEvent
	case "clock":
		e.Kind = ClockEvent
	default:
		value, after, _ := strings.Cut(words[1], "@")
		e.Key, time = words[0], after
		if e.Value, err = strconv.ParseInt(value, 10, 64); err != nil {
			return e, err
		}
	}
	if time == "end" {
		e.Time = eventtime.Max
		return e, nil
	}
	n, err := strconv.ParseInt(time, 10, 64)
	e.Time = eventtime.Time(n)
	return e, err
}

// sorted is the panes of one event by key and window; those of a window stay in their order.
func sorted(ps []Pane) []Pane {
	ps = slices.Clone(ps)
	slices.SortStableFunc(ps, func(a, b Pane) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return a.Window.Compare(b.Window)
	})
	return ps
}
