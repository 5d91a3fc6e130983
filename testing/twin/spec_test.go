package twin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

// look is one time when a trigger is looked at: at this watermark and clock, an element having come or not.
type look struct {
	element          bool
	watermark, clock eventtime.Time
	number           int // of all looks
}

// firings is what a trigger means where windows do not merge, without any state: of looks, from its beginning on, the numbers of
// those at which it fires, and whether it is finished with the last of them.
func firings(t trigger.Trigger, looks []look, end eventtime.Time) (at []int, finished bool) {
	first := func(when func(i int) bool) ([]int, bool) {
		for i, l := range looks {
			if when(i) {
				return []int{l.number}, true
			}
		}
		return nil, false
	}
	after := func(number int) []look {
		i := slices.IndexFunc(looks, func(l look) bool { return l.number > number })
		if i < 0 {
			return nil
		}
		return looks[i:]
	}
	before := func(number int) (out []look) {
		for _, l := range looks {
			if l.number < number {
				out = append(out, l)
			}
		}
		return out
	}
	elements := func(i int) (n int64, came eventtime.Time) {
		for _, l := range looks[:i+1] {
			if l.element {
				if n == 0 {
					came = l.clock
				}
				n++
			}
		}
		return n, came
	}
	repeat := func(t trigger.Trigger, looks []look) (at []int) {
		if t == nil {
			return nil
		}
		at, _ = firings(trigger.Repeatedly(t), looks, end)
		return at
	}
	switch t := t.(type) {
	case trigger.NeverFires:
		return nil, false
	case trigger.AlwaysFires:
		for _, l := range looks {
			if l.element {
				at = append(at, l.number)
			}
		}
		return at, false
	case trigger.Count:
		return first(func(i int) bool { n, _ := elements(i); return n >= t.N })
	case trigger.ProcessingTime:
		return first(func(i int) bool {
			n, came := elements(i)
			return n > 0 && looks[i].clock >= due(t, came)
		})
	case trigger.Watermark:
		atEnd, ended := first(func(i int) bool { return looks[i].watermark >= end })
		if !ended {
			return repeat(t.EarlyPart, looks), false
		}
		at = append(repeat(t.EarlyPart, before(atEnd[0])), atEnd[0])
		return append(at, repeat(t.LatePart, after(atEnd[0]))...), t.LatePart == nil
	case trigger.First:
		for _, p := range t.Of {
			if f, _ := firings(p, looks, end); len(f) > 0 && (at == nil || f[0] < at[0]) {
				at = f[:1]
			}
		}
		return at, at != nil
	case trigger.All:
		for _, p := range t.Of {
			f, _ := firings(p, looks, end)
			if len(f) == 0 {
				return nil, false
			}
			if at == nil || f[0] > at[0] {
				at = f[:1]
			}
		}
		return at, true
	case trigger.Each:
		for _, p := range t.Of {
			f, done := firings(p, looks, end)
			at = append(at, f...)
			if !done {
				return at, false
			}
			looks = after(f[len(f)-1])
		}
		return at, true
	case trigger.Finally:
		at, finished = firings(t.Main, looks, end)
		until, _ := firings(t.Until, looks, end)
		if len(until) == 0 || finished && at[len(at)-1] < until[0] {
			return at, finished
		}
		at = slices.DeleteFunc(slices.Clone(at), func(n int) bool { return n >= until[0] })
		return append(at, until[0]), true
	case trigger.Repeat:
		for {
			f, done := firings(t.Of, looks, end)
			at = append(at, f...)
			if !done {
				return at, false
			}
			looks = after(f[len(f)-1])
		}
	}
	panic("unknown trigger")
}

// The state that the twin keeps of a trigger means what the trigger means.
func TestTriggersMeanWhatTheyMean(t *testing.T) {
	fired := 0
	rapid.Check(t, func(r *rapid.T) {
		s := Strategies(Windows().Filter(func(fn windowFn) bool { return !merging(fn) }), Triggers(3)).Draw(r, "strategy")
		s.Lateness = 1000 // so that windows are still there before the end
		events := Streams().Draw(r, "events")
		twin, err := New(s)
		if err != nil {
			r.Fatal(err)
		}
		for _, e := range events[:len(events)-1] {
			if _, err := twin.Do(e); err != nil {
				r.Fatal(err)
			}
			for key, ls := range twin.windows {
				for _, l := range ls {
					var looks []look
					var got []int
					for i, h := range l.history {
						looks = append(looks, look{h.element != nil, h.at.watermark, h.at.clock, i})
						if h.fired {
							got = append(got, i)
						}
					}
					want, finished := firings(twin.trigger, looks, l.win.EndTime())
					fired += len(want)
					if d := cmp.Diff(want, got); d != "" || finished != twin.root(l).done {
						r.Fatalf("%v\n%v\n%s %s, looked at %+v\nfinished by its meaning: %v; fires (-by its meaning +by its state):\n%s", s, events, key, interval(l.win), looks, finished, d)
					}
				}
			}
		}
	})
	if fired == 0 {
		t.Error("nothing fired")
	}
}
