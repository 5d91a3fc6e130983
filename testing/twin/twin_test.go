package twin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

const ms = time.Millisecond

// Each script is what the rules of docs/design/panes.md say, worked out by hand.
func TestPanes(t *testing.T) {
	var (
		fixed    = window.Fixed(10 * ms)
		sessions = window.Sessions(10 * ms)
		onTime   = trigger.AfterWatermark()
		byOne    = trigger.Repeatedly(trigger.AfterCount(1))
		byTwo    = trigger.Repeatedly(trigger.AfterCount(2))
	)
	for _, c := range []struct {
		name string
		Strategy
		script string
	}{
		{"windows fire at their end, not before", Strategy{Fn: fixed, Trigger: onTime}, `
			a 1@3
			a 2@11
			W 9
			a 4@0
			W 10
			> a [0,10) {1 4} @9, ON_TIME 0/0 first last
			a 8@5
			> late a 8@5 for [0,10)
			W end
			> a [10,20) {2} @19, ON_TIME 0/0 first last`},
		{"A1: windows before the epoch", Strategy{Fn: fixed, Trigger: onTime}, `
			k 1@-1
			k 2@-10
			k 3@-11
			k 4@0
			W end
			> k [-20,-10) {3} @-11, ON_TIME 0/0 first last
			> k [-10,0) {1 2} @-1, ON_TIME 0/0 first last
			> k [0,10) {4} @9, ON_TIME 0/0 first last`},
		{"A3: an element between two windows is in none, and not late", Strategy{Fn: window.Sliding(5*ms, 10*ms), Trigger: onTime}, `
			k 4@4
			k 5@5
			k 9@9
			k 10@10
			W end
			> k [0,5) {4} @4, ON_TIME 0/0 first last
			> k [10,15) {10} @14, ON_TIME 0/0 first last`},
		{"D1: late for some of its windows", Strategy{Fn: window.Sliding(10*ms, 5*ms), Trigger: onTime}, `
			k 1@4
			W 11
			> k [-5,5) {1} @4, ON_TIME 0/0 first last
			> k [0,10) {1} @9, ON_TIME 0/0 first last
			k 2@7
			> late k 2@7 for [0,10)
			W end
			> k [5,15) {2} @14, ON_TIME 0/0 first last`},
		{"B1: sessions of each key", Strategy{Fn: window.Sessions(5 * ms), Trigger: onTime}, `
			a 1@0
			b 2@3
			a 3@7
			W 20
			> a [0,5) {1} @4, ON_TIME 0/0 first last
			> b [3,8) {2} @7, ON_TIME 0/0 first last
			> a [7,12) {3} @11, ON_TIME 0/0 first last`},
		{"B3: what has expired is not touched", Strategy{Fn: window.Sessions(5 * ms), Trigger: onTime}, `
			k 1@0
			W 6
			> k [0,5) {1} @4, ON_TIME 0/0 first last
			k 2@3
			W 8
			> k [3,8) {2} @7, ON_TIME 0/0 first last
			k 3@2
			> late k 3@2 for [2,7)
			W end`},
		{"C1: a delay counts from the first element of the pane", Strategy{Fn: window.Global(), Trigger: trigger.Repeatedly(trigger.AfterProcessingTime(10 * ms))}, `
			k 1@0
			clock 6
			k 2@0
			clock 9
			clock 11
			> k global {1 2} @9223371950454774, EARLY 0/-1 first
			clock 12
			k 3@0
			clock 21
			clock 23
			> k global {3} @9223371950454774, EARLY 1/-1
			W end`},
		{"C3: counts alone fire nothing at the end, and hold what waits", Strategy{Fn: fixed, Lateness: 20, Trigger: byTwo}, `
			k 1@1
			k 2@2
			> k [0,10) {1 2} @9, EARLY 0/-1 first
			k 3@3
			W 10
			> held at 9
			W 30
			> k [0,10) {3} @9, ON_TIME 1/0 last`},
		{"what waited at the end is on time whenever it fires", Strategy{Fn: fixed, Lateness: 20, Trigger: byTwo}, `
			k 1@1
			W 15
			> held at 9
			k 2@2
			> k [0,10) {1 2} @9, ON_TIME 0/0 first
			k 3@3
			k 4@3
			> k [0,10) {3 4} @9, LATE 1/1
			W end`},
		{"nothing waited at the end: what comes then is late", Strategy{Fn: fixed, Lateness: 20, Trigger: byTwo}, `
			k 1@1
			k 2@2
			> k [0,10) {1 2} @9, EARLY 0/-1 first
			W 10
			k 3@3
			k 4@3
			> k [0,10) {3 4} @9, LATE 1/0
			W end`},
		{"C5: Repeatedly resets all", Strategy{Fn: window.Global(), Trigger: trigger.Repeatedly(trigger.AfterFirst(trigger.AfterCount(3), trigger.AfterProcessingTime(10*ms)))}, `
			k 1@0
			clock 1
			k 2@0
			clock 11
			> k global {1 2} @9223371950454774, EARLY 0/-1 first
			clock 12
			k 3@0
			clock 13
			k 4@0
			clock 15
			k 5@0
			> k global {3 4 5} @9223371950454774, EARLY 1/-1
			clock 40
			W end`},
		{"C7: earliest", Strategy{Fn: fixed, Trigger: onTime, Timestamps: Earliest}, `
			k 1@2
			k 2@7
			W 5
			> held at 2
			W 10
			> k [0,10) {1 2} @2, ON_TIME 0/0 first last`},
		{"C7: latest", Strategy{Fn: fixed, Trigger: onTime, Timestamps: Latest}, `
			k 1@2
			W 5
			> held at 2
			k 2@7
			W 10
			> k [0,10) {1 2} @7, ON_TIME 0/0 first last`},
		{"an element behind the watermark counts as the end of its window", Strategy{Fn: fixed, Trigger: onTime, Timestamps: Latest}, `
			W 5
			k 1@2
			k 2@7
			W 8
			W 10
			> k [0,10) {1 2} @9, ON_TIME 0/0 first last`},
		{"a hold ends with the pane", Strategy{Fn: fixed, Trigger: byTwo, Timestamps: Earliest, Accumulation: Accumulating}, `
			k 1@2
			W 6
			> held at 2
			k 2@3
			> k [0,10) {1 2} @2, EARLY 0/-1 first
			k 3@3
			k 4@7
			> k [0,10) {1 2 3 4} @7, EARLY 1/-1
			W end`},
		{"early, on time and late", Strategy{Fn: fixed, Lateness: 20, Accumulation: Accumulating, Trigger: onTime.Early(trigger.AfterCount(2)).Late(trigger.AfterCount(2))}, `
			k 1@1
			k 2@2
			> k [0,10) {1 2} @9, EARLY 0/-1 first
			k 3@3
			W 10
			> k [0,10) {1 2 3} @9, ON_TIME 1/0
			k 4@4
			k 5@5
			> k [0,10) {1 2 3 4 5} @9, LATE 2/1
			k 6@6
			W 30
			> k [0,10) {1 2 3 4 5 6} @9, LATE 3/2 last
			k 7@7
			> late k 7@7 for [0,10)`},
		{"a key born late fires at its first element, then by the late part", Strategy{Fn: fixed, Lateness: 20, Trigger: onTime.Late(trigger.AfterCount(3))}, `
			W 10
			b 2@2
			> b [0,10) {2} @9, LATE 0/0 first
			b 4@2
			b 8@2
			b 16@2
			> b [0,10) {4 8 16} @9, LATE 1/1
			W end`},
		{"all fired early: no pane at the end, then late ones", Strategy{Fn: fixed, Lateness: 20, Trigger: onTime.Early(trigger.AfterCount(1)).Late(trigger.AfterCount(2))}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W 10
			k 2@1
			k 4@1
			> k [0,10) {2 4} @9, LATE 1/0
			W end`},
		{"an empty pane at the end", Strategy{Fn: fixed, Lateness: 20, EmptyOnTime: true, Accumulation: Accumulating, Trigger: onTime.Early(trigger.AfterCount(1))}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W 10
			> k [0,10) {1} @9, ON_TIME 1/0
			W 30`},
		{"no empty pane at the end unless the trigger fires there", Strategy{Fn: fixed, EmptyOnTime: true, Trigger: byOne}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W end`},
		{"an empty last pane", Strategy{Fn: fixed, Lateness: 20, EmptyLast: true, Trigger: onTime}, `
			k 1@1
			W 10
			> k [0,10) {1} @9, ON_TIME 0/0 first
			W 30
			> k [0,10) {} @9, LATE 1/1 last`},
		{"an empty last pane at the end is on time", Strategy{Fn: fixed, EmptyLast: true, Trigger: byOne}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W 10
			> k [0,10) {} @9, ON_TIME 1/0 last`},
		{"a finished trigger closes the window", Strategy{Fn: fixed, Lateness: 20, Trigger: trigger.AfterCount(2)}, `
			k 1@1
			k 2@1
			> k [0,10) {1 2} @9, EARLY 0/-1 first last
			k 3@1
			> late k 3@1 for [0,10)
			W 15
			k 4@1
			> late k 4@1 for [0,10)
			W 30
			k 5@1
			> late k 5@1 for [0,10)`},
		{"one that finishes with nothing new says nothing", Strategy{Fn: fixed, Lateness: 20, Trigger: trigger.OrFinally(byOne, onTime)}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W 10
			k 3@1
			> late k 3@1 for [0,10)`},
		{"unless it must", Strategy{Fn: fixed, Lateness: 20, EmptyLast: true, Trigger: trigger.OrFinally(byOne, onTime)}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			W 10
			> k [0,10) {} @9, ON_TIME 1/0 last
			k 3@1
			> late k 3@1 for [0,10)
			W end`},
		{"OrFinally counts on while the other part fires", Strategy{Fn: fixed, Trigger: trigger.OrFinally(byTwo, trigger.AfterCount(5))}, `
			k 1@1
			k 2@1
			> k [0,10) {1 2} @9, EARLY 0/-1 first
			k 3@1
			k 4@1
			> k [0,10) {3 4} @9, EARLY 1/-1
			k 5@1
			> k [0,10) {5} @9, EARLY 2/-1 last
			W end`},
		{"AfterEach goes from part to part", Strategy{Fn: fixed, Lateness: 10, Trigger: trigger.AfterEach(trigger.AfterCount(1), trigger.AfterCount(2), byOne)}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			k 2@1
			k 3@1
			> k [0,10) {2 3} @9, EARLY 1/-1
			k 4@1
			> k [0,10) {4} @9, EARLY 2/-1
			W 10
			k 5@1
			> k [0,10) {5} @9, LATE 3/0
			W end`},
		{"what is ready again at once waits for the next element", Strategy{Fn: fixed, Lateness: 10, Trigger: trigger.Repeatedly(trigger.AfterEach(onTime, trigger.AfterCount(3)))}, `
			k 1@1
			W 10
			> k [0,10) {1} @9, ON_TIME 0/0 first
			k 2@1
			k 3@1
			k 4@1
			> k [0,10) {2 3 4} @9, LATE 1/1
			clock 5
			k 5@1
			> k [0,10) {5} @9, LATE 2/2
			k 6@1
			W end
			> k [0,10) {6} @9, LATE 3/3 last`},
		{"AfterAll waits for all", Strategy{Fn: fixed, Lateness: 10, Trigger: trigger.Repeatedly(trigger.AfterAll(trigger.AfterCount(2), trigger.AfterProcessingTime(5*ms)))}, `
			k 1@1
			clock 5
			k 2@1
			> k [0,10) {1 2} @9, EARLY 0/-1 first
			k 3@1
			k 4@1
			clock 9
			clock 10
			> k [0,10) {3 4} @9, EARLY 1/-1
			W end`},
		{"an aligned time", Strategy{Fn: fixed, Trigger: trigger.Repeatedly(trigger.AfterProcessingTime(3*ms).AlignedTo(10*ms, 2*ms))}, `
			clock 5
			k 1@1
			clock 11
			clock 12
			> k [0,10) {1} @9, EARLY 0/-1 first
			clock 19
			k 2@1
			clock 22
			> k [0,10) {2} @9, EARLY 1/-1
			W end`},
		{"Never fires when the window expires", Strategy{Fn: fixed, Lateness: 10, Trigger: trigger.Never()}, `
			k 1@1
			W 19
			> held at 9
			W 20
			> k [0,10) {1} @9, ON_TIME 0/0 first last`},
		{"what cannot be held is late", Strategy{Fn: fixed, Lateness: 10, Trigger: trigger.Never()}, `
			W 12
			k 1@1
			W 20
			> k [0,10) {1} @9, LATE 0/0 first last`},
		{"Always fires for each element", Strategy{Fn: fixed, Trigger: trigger.Always()}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			k 2@1
			> k [0,10) {2} @9, EARLY 1/-1
			W end`},
		{"a late element may be held by another key", Strategy{Fn: fixed, Lateness: 20, Trigger: byTwo}, `
			a 1@1
			W 12
			> held at 9
			b 2@2
			> held at 9
			a 3@3
			> a [0,10) {1 3} @9, ON_TIME 0/0 first
			> held at 9
			b 4@2
			> b [0,10) {2 4} @9, LATE 0/0 first
			W end`},
		{"retracting", Strategy{Fn: fixed, Lateness: 20, Accumulation: Retracting, Trigger: onTime.Early(trigger.AfterCount(1))}, `
			k 1@1
			> k [0,10) {1} @9, EARLY 0/-1 first
			k 2@2
			> -k [0,10) {1} @9, EARLY 0/-1 first
			> k [0,10) {1 2} @9, EARLY 1/-1
			W 10
			k 4@4
			> -k [0,10) {1 2} @9, EARLY 1/-1
			> k [0,10) {1 2 4} @9, LATE 2/0
			W end`},
		{"a merged session takes back what its parts said", Strategy{Fn: sessions, Lateness: 20, Accumulation: Retracting, Trigger: onTime.Early(trigger.AfterCount(1))}, `
			k 1@0
			> k [0,10) {1} @9, EARLY 0/-1 first
			k 2@15
			> k [15,25) {2} @24, EARLY 0/-1 first
			k 4@8
			> -k [0,10) {1} @9, EARLY 0/-1 first
			> -k [15,25) {2} @24, EARLY 0/-1 first
			> k [0,25) {1 2 4} @24, EARLY 0/-1 first
			W end`},
		{"panes of a window that merging makes are counted anew", Strategy{Fn: sessions, Lateness: 20, Accumulation: Accumulating, Trigger: onTime}, `
			k 1@0
			W 12
			> k [0,10) {1} @9, ON_TIME 0/0 first
			k 2@8
			W 18
			> k [0,18) {1 2} @17, ON_TIME 0/0 first
			k 4@2
			> k [0,18) {1 2 4} @17, LATE 1/1
			W end`},
		{"two that have fired are joined by a late element", Strategy{Fn: sessions, Lateness: 50, Trigger: onTime.Late(trigger.AfterCount(2))}, `
			k 1@0
			k 2@15
			W 30
			> k [0,10) {1} @9, ON_TIME 0/0 first
			> k [15,25) {2} @24, ON_TIME 0/0 first
			k 4@7
			k 8@7
			> k [0,25) {4 8} @24, LATE 0/0 first
			W end`},
		{"a session that grows beyond the watermark counts what waits as early", Strategy{Fn: sessions, Lateness: 50, Trigger: onTime.Early(trigger.AfterCount(3)).Late(trigger.AfterCount(5))}, `
			k 1@0
			W 12
			> k [0,10) {1} @9, ON_TIME 0/0 first
			k 2@0
			k 3@0
			k 4@9
			> k [0,19) {2 3 4} @18, EARLY 0/-1 first
			k 5@9
			W end
			> k [0,19) {5} @18, ON_TIME 1/0`},
		{"a session whose trigger is finished takes nothing and does not grow", Strategy{Fn: sessions, Lateness: 50, Trigger: trigger.AfterCount(2)}, `
			k 1@0
			k 2@0
			> k [0,10) {1 2} @9, EARLY 0/-1 first last
			k 3@9
			> late k 3@9 for [9,19)
			k 4@10
			k 5@19
			> k [10,29) {4 5} @28, EARLY 0/-1 first last
			W end`},
		{"an element is late by its own session", Strategy{Fn: sessions, Trigger: onTime}, `
			k 1@0
			k 2@8
			k 4@16
			W 20
			k 8@5
			> late k 8@5 for [5,15)
			k 16@11
			W end
			> k [0,26) {1 2 4 16} @25, ON_TIME 0/0 first last`},
		{"the global window ends before the end of time", Strategy{Fn: window.Global(), Trigger: onTime}, `
			k 1@0
			W 9223371950454774
			W 9223371950454775
			> k global {1} @9223371950454774, ON_TIME 0/0 first last
			k 2@0
			> late k 2@0 for global`},
		{"its lateness ends with it", Strategy{Fn: window.Global(), Lateness: 1 << 60, Trigger: onTime}, `
			k 1@0
			W 9223371950454775
			> k global {1} @9223371950454774, ON_TIME 0/0 first last
			k 2@0
			> late k 2@0 for global`},
		{"that of a session ends with the global window", Strategy{Fn: sessions, Lateness: 1000, Trigger: onTime}, `
			k 1@9223371950454743
			W 9223371950454753
			> k [9223371950454743,9223371950454753) {1} @9223371950454752, ON_TIME 0/0 first
			W 9223371950454775
			k 2@9223371950454743
			> late k 2@9223371950454743 for [9223371950454743,9223371950454753)`},
		{"a session that was late when its elements came stays so", Strategy{Fn: sessions, Lateness: 50, Trigger: onTime.Late(trigger.AfterCount(2))}, `
			k 1@0
			W 10
			> k [0,10) {1} @9, ON_TIME 0/0 first
			k 2@-1
			W 25
			k 3@2
			> k [-1,12) {2 3} @11, LATE 0/0 first
			W end`},
		{"a watermark goes through the ends and expiries in their order", Strategy{Fn: fixed, Lateness: 15, Trigger: onTime.Late(trigger.AfterCount(9))}, `
			k 1@1
			k 2@21
			W 10
			> k [0,10) {1} @9, ON_TIME 0/0 first
			k 3@1
			k 4@12
			W 40
			> k [10,20) {4} @19, ON_TIME 0/0 first
			> k [0,10) {3} @9, LATE 1/1 last
			> k [20,30) {2} @29, ON_TIME 0/0 first`},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, err := Parse(c.script)
			if err != nil {
				t.Fatal(err)
			}
			steps, err := Run(c.Strategy, events)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(strings.TrimLeft(c.script, "\n"), "\t", "") + "\n"
			if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(Text(events, steps), "\n")); d != "" {
				t.Errorf("%v (-want +got):\n%s", c.Strategy, d)
			}
		})
	}
}

func TestParse(t *testing.T) {
	events, err := Parse(`
		k -1@-2 // a comment
		> what was said
		W 10
		clock 3
		W end`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{Element("k", -1, -2), Watermark(10), Clock(3), Watermark(eventtime.Max)}
	if d := cmp.Diff(want, events, cmpopts.EquateComparable(window.Window{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for _, bad := range []string{"k", "k 1", "k x@1", "k 1@x", "W", "W x", "W 1 2", "clock"} {
		if e, err := Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, e)
		}
	}
}

func TestTimeDoesNotGoBack(t *testing.T) {
	for _, script := range []string{"W 5\nW 4", "clock -1", "clock 5\nclock 4"} {
		events, err := Parse(script)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(Strategy{Fn: window.Global(), Trigger: trigger.AfterWatermark()}, events); err == nil {
			t.Errorf("%q is taken", script)
		}
	}
}

func TestStrategyIsValidated(t *testing.T) {
	for _, bad := range []Strategy{{}, {Fn: window.Global()}, {Fn: window.Fixed(0), Trigger: trigger.Never()},
		{Fn: window.Global(), Trigger: trigger.AfterCount(0)}, {Fn: window.Global(), Trigger: trigger.Never(), Lateness: -1}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
