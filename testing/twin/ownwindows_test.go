package twin

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// ownSessions are sessions as a user may write them.
type ownSessions struct{ gap time.Duration }

func (s ownSessions) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(s.gap)))
}

// Merge joins what overlaps, in whatever order it finds it.
func (s ownSessions) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	for i, w := range open {
		if len(dst) == 0 || !w.Start().Before(dst[len(dst)-1].Into.End()) {
			dst = append(dst, window.Merge{Into: w})
		}
		m := &dst[len(dst)-1]
		m.From = append([]window.Window{open[i]}, m.From...)
		if w.End().After(m.Into.End()) {
			m.Into = window.Between(m.Into.Start(), w.End())
		}
	}
	return dst
}

// Sessions that a user writes are sessions, whatever the trigger and the stream, and however the operator is disturbed.
func TestMergingByUsersMakesSessions(t *testing.T) {
	merged := 0
	rapid.Check(t, func(t *rapid.T) {
		gap := time.Duration(rapid.IntRange(2, 12).Draw(t, "gap")) * time.Millisecond
		s := Strategies(rapid.Just[window.Fn](window.Sessions(gap)), Triggers(3)).Draw(t, "strategy")
		events := Streams().Draw(t, "events")
		want, err := steps(s, events, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := steps(s, events, func(spec *lists) { spec.Merging = &kernel.Merging{Fn: window.Custom("own", "", ownSessions{gap})} })
		if err != nil {
			t.Fatal(err)
		}
		text := func(steps []Step) (lines []string) {
			for _, s := range steps {
				lines = append(lines, fmt.Sprintf("%+v", s))
			}
			return lines
		}
		if d := cmp.Diff(text(want), text(got)); d != "" {
			t.Fatalf("%v (-sessions +the user's):\n%s", events, d)
		}
		for _, step := range want {
			for _, p := range step.Panes {
				if p.Window.End().Sub(p.Window.Start()) > gap {
					merged++
				}
			}
		}
	})
	if merged < 20 {
		t.Errorf("only %d panes of several elements", merged)
	}
}

// auctions are bids that wait until an auction takes those that began in it; it ends before they do. What is at a multiple of
// 100 ms opens an auction of 20 ms. All others are bids, in windows that begin 5 ms after a multiple of 10.
type auctions struct{ wait time.Duration }

func (a auctions) Assign(dst []window.Window, t time.Time) []window.Window {
	if t.UnixMilli()%100 == 0 {
		return append(dst, window.Between(t, t.Add(20*time.Millisecond)))
	}
	start := t.Add(-5 * time.Millisecond).Truncate(10 * time.Millisecond).Add(5 * time.Millisecond)
	return append(dst, window.Between(start, start.Add(a.wait)))
}

func (a auctions) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	for _, auction := range open {
		if auction.Start().UnixMilli()%100 != 0 {
			continue
		}
		m := window.Merge{Into: auction, From: []window.Window{auction}}
		for _, bid := range open {
			if bid != auction && !bid.Start().Before(auction.Start()) && bid.Start().Before(auction.End()) {
				m.From = append(m.From, bid)
			}
		}
		dst = append(dst, m)
	}
	return dst
}

func TestMergingByUsersIntoWindowsThatAreNotTheSpan(t *testing.T) {
	fn := window.Custom("auctions", "", auctions{90 * time.Millisecond})
	for _, c := range []struct {
		name   string
		change func(*Strategy)
		events string
		want   string
	}{
		{"bids join an auction that opens later, which ends before them", nil, "1@5 2@130 4@0 8@7 W20 W95 W220", `
			W20: [0,20) [1 4 8] @19 ON_TIME 0 last
			W220: [125,215) [2] @214 ON_TIME 0 last`},
		{"a window that is neither new nor merged stays", nil, "1@50 4@0 W20 W140", `
			W20: [0,20) [4] @19 ON_TIME 0 last
			W140: [45,135) [1] @134 ON_TIME 0 last`},
		{"an auction that ended before a bid came is over for its bids: they wait in vain", nil, "4@0 W20 1@5 W95", `
			W20: [0,20) [4] @19 ON_TIME 0 last
			W95: [5,95) [1] @94 ON_TIME 0 last`},
		{"with lateness a bid joins the auction that has fired", func(s *Strategy) { s.Lateness = 50 }, "4@0 W20 1@5 W95", `
			W20: [0,20) [4] @19 ON_TIME 0
			1@5: [0,20) [1] @19 LATE 1`},
		{"an auction comes late, when W has passed its end, and takes what waited: it is over at once", func(s *Strategy) { s.Lateness = 50 }, "1@5 W30 4@0 W95", `
			4@0: [0,20) [1 4] @19 ON_TIME 0`},
		{"the timestamp of a pane lies in its window", func(s *Strategy) { s.Timestamps = Latest }, "1@24 4@0 W20", `
			W20: [0,20) [1 4] @19 ON_TIME 0 last`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Strategy{Fn: window.Sessions(time.Millisecond), Trigger: trigger.AfterWatermark()}
			if c.change != nil {
				c.change(&s)
			}
			var events []Event
			for word := range strings.FieldsSeq(c.events) {
				e := Event{Kind: ElementEvent, Key: "k"}
				if w, ok := strings.CutPrefix(word, "W"); ok {
					e.Kind, e.Time = WatermarkEvent, eventtime.Time(number(t, w))
				} else {
					v, at, _ := strings.Cut(word, "@")
					e.Value, e.Time = number(t, v), eventtime.Time(number(t, at))
				}
				events = append(events, e)
			}
			s.Fn = fn
			all, err := steps(s, events, func(spec *lists) { spec.Merging = &kernel.Merging{Fn: fn} })
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			words := strings.Fields(c.events)
			for i, step := range all {
				for _, p := range step.Panes {
					fmt.Fprintf(&got, "%s: %s %v @%d %v %d", words[i], brief(p.Window), p.Values, int64(p.Time), p.Info.Timing, p.Info.Index)
					if p.Info.Last {
						got.WriteString(" last")
					}
					got.WriteByte('\n')
				}
				for _, d := range step.Late {
					fmt.Fprintf(&got, "%s: late %d for %s\n", words[i], d.Value, brief(d.Window))
				}
			}
			var want strings.Builder
			for line := range strings.Lines(c.want) {
				if line = strings.TrimSpace(line); line != "" {
					fmt.Fprintln(&want, line)
				}
			}
			if d := cmp.Diff(want.String(), got.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// wrong merges what is not open.
type wrong struct{ ownSessions }

func (wrong) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	return append(dst, window.Merge{From: []window.Window{window.GlobalWindow}, Into: window.GlobalWindow})
}

func TestMergingByUsersThatIsWrongFails(t *testing.T) {
	s := Strategy{Fn: window.Sessions(time.Millisecond), Trigger: trigger.AfterWatermark()}
	_, err := steps(s, []Event{{Kind: ElementEvent, Key: "k"}}, func(spec *lists) {
		spec.Merging = &kernel.Merging{Fn: window.Custom("wrong", "", wrong{ownSessions{time.Second}})}
	})
	if err == nil || !strings.Contains(err.Error(), `custom windows "wrong" merge [global], which is not open`) {
		t.Errorf("error %v", err)
	}
}

func brief(w window.Window) string {
	return fmt.Sprintf("[%d,%d)", int64(w.StartTime()), int64(w.EndTime()))
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
