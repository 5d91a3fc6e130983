package twin

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// Legal tells what is wrong with panes, or nil, whatever the order in which elements and watermarks came: the panes of each key
// and window are in the order in which they came out. It holds their numbers, timing and timestamps against each other,
// their contents against the accumulation, and early ones against the least number of elements that the trigger fires for.
func Legal(s Strategy, panes []Pane) error {
	var errs []error
	for _, of := range byPlace(panes) {
		if err := legal(s, of); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func byPlace(panes []Pane) map[Place][]Pane {
	out := map[Place][]Pane{}
	for _, p := range panes {
		at := Place{p.Key, p.Window}
		out[at] = append(out[at], p)
	}
	return out
}

// legal is Legal for the panes of one key and window.
func legal(s Strategy, panes []Pane) error {
	var before *Pane // that came before, taken back or not
	stands, notEarly := false, int64(0)
	for i := range panes {
		p := &panes[i]
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%v\nis not legal: %s", p, fmt.Sprintf(format, args...))
		}
		if p.Retraction {
			if s.Accumulation != Retracting || !stands {
				return bad("there is nothing to take back")
			}
			said := *p
			if said.Retraction = false; said.String() != before.String() {
				return bad("what was said was %v", before)
			}
			stands = false
			continue
		}
		if stands && s.Accumulation == Retracting {
			return bad("%v was not taken back", before)
		}
		index := int64(0)
		var held []int64
		if before != nil {
			index, held = before.Info.Index+1, before.Values
			if before.Info.Last {
				return bad("it follows the last pane")
			}
			if before.Info.Timing != window.Early && p.Info.Timing != window.Late {
				return bad("it follows one that is %v", before.Info.Timing)
			}
		}
		if p.Info.Index != index || p.Info.First != (index == 0) {
			return bad("its number is %d", index)
		}
		onTime := notEarly
		if p.Info.Timing == window.Early {
			onTime = -1
		} else {
			notEarly++
		}
		if p.Info.Timing == window.Unknown || p.Info.OnTimeIndex != onTime {
			return bad("its number among those that are not early is %d", onTime)
		}
		_, custom := s.Fn.(window.CustomFn) // which may begin after their elements
		if s.OutputTime == nil && (p.Time < p.Window.StartTime() && !custom || p.Time >= p.Window.EndTime()) {
			return bad("its timestamp is not in its window")
		}
		if s.Timestamps == EndOfWindow && p.Time != p.Window.EndTime()-1 {
			return bad("its timestamp is not the end of its window")
		}
		fresh := p.Values
		if s.Accumulation != Discarding {
			var ok bool
			if fresh, ok = less(p.Values, held); !ok {
				return bad("it has not all that %v had", before)
			}
		}
		merged := before == nil && s.Accumulation != Discarding // it may have what its parts said
		if len(fresh) == 0 && !merged && !(s.EmptyOnTime && p.Info.Timing == window.OnTime || s.EmptyLast && p.Info.Last) {
			return bad("nothing came since the pane before")
		}
		if least := leastEarly(trigger.Canonical(s.Trigger)); p.Info.Timing == window.Early && !p.Info.Last && int64(len(fresh)) < least {
			return bad("%d elements are new, and the trigger fires early for %d", len(fresh), least)
		}
		before, stands = p, true
	}
	return nil
}

// less is all without part, and whether all has it.
func less(all, part []int64) ([]int64, bool) {
	all = slices.Clone(all)
	for _, v := range part {
		i := slices.Index(all, v)
		if i < 0 {
			return nil, false
		}
		all = slices.Delete(all, i, i+1)
	}
	return all, true
}

// leastEarly is the least number of elements since the pane before for which t fires before the end of the window.
func leastEarly(t trigger.Trigger) int64 {
	const never = math.MaxInt64
	switch t := t.(type) {
	case trigger.Count:
		return t.N
	case trigger.Watermark:
		if t.EarlyPart == nil {
			return never
		}
		return leastEarly(t.EarlyPart)
	case trigger.NeverFires:
		return never
	case trigger.Finally:
		return 1 // Until counts elements that were in panes before
	case trigger.Repeat:
		return leastEarly(t.Of)
	case trigger.First, trigger.Each:
		least := int64(never)
		for _, k := range parts(t) {
			least = min(least, leastEarly(k))
		}
		return least
	case trigger.All:
		least := int64(0)
		for _, k := range t.Of {
			least = max(least, leastEarly(k))
		}
		return least
	}
	return 1
}
