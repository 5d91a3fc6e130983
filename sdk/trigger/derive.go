// What follows from a trigger: whether it loses data, whether it fires early, and the one of its output.

package trigger

import "slices"

// MayLoseData says why elements may be lost under t as the trigger of a collection, or "". t is valid. Once a trigger is finished, the
// elements that come after are dropped; what had come is not lost, for at its expiry a window emits what it still has. It
// is about the trigger alone: elements may come in any number and at any time.
func MayLoseData(t Trigger) string {
	if t = Canonical(t); !mayFinish(t) {
		return ""
	}
	why := t.String() + " may finish, and elements that come after that are dropped: "
	if _, ok := t.(Each); ok {
		return why + "end it with a trigger that goes on, as Repeatedly does"
	}
	return why + "use trigger.Repeatedly(…), or trigger.AfterWatermark() with early and late firings"
}

// mayFinish says whether t can become finished. It is exact. (Beam takes AfterAll not to finish if one of its parts does not, but
// runs it so that it does.)
func mayFinish(t Trigger) bool {
	switch t := t.(type) {
	case Count, ProcessingTime:
		return true
	case Watermark:
		return t.LatePart == nil
	case First, All:
		return mayFire(t)
	case Each:
		for _, p := range t.Of {
			if !mayFinish(p) {
				return false
			}
		}
		return true
	case Finally:
		return mayFire(t.Until) || mayFinish(t.Main)
	}
	return false // Always, Never, Repeat
}

// mayFire says whether t can be ready.
func mayFire(t Trigger) bool {
	switch t := t.(type) {
	case NeverFires:
		return false
	case All:
		for _, p := range t.Of {
			if !mayFire(p) {
				return false
			}
		}
		return true
	case First, Finally:
		for _, p := range parts(t) {
			if mayFire(p) {
				return true
			}
		}
		return false
	case Each:
		return mayFire(t.Of[0])
	case Repeat:
		return mayFire(t.Of)
	}
	return true
}

// FiresEarly says whether t may be ready before the end of the window. In the global window of a stream that never ends nothing
// else counts.
func FiresEarly(t Trigger) bool {
	switch t := t.(type) {
	case Watermark:
		return t.EarlyPart != nil && FiresEarly(t.EarlyPart)
	case NeverFires:
		return false
	case First, Finally:
		return slices.ContainsFunc(parts(t), FiresEarly)
	case All:
		return !slices.ContainsFunc(t.Of, func(p Trigger) bool { return !FiresEarly(p) })
	case Each:
		return FiresEarly(t.Of[0])
	case Repeat:
		return FiresEarly(t.Of)
	}
	return true
}

// Continuation is the trigger of what an aggregation with trigger t puts out, unless another is given: it lets each pane through as soon
// as may be, and otherwise fires for what t fires for. It is canonical, and its own continuation. The rules are Beam's. t is valid.
func Continuation(t Trigger) Trigger { return Canonical(continuation(t)) }

func continuation(t Trigger) Trigger {
	each := func(ts []Trigger) (cs []Trigger) {
		for _, t := range ts {
			cs = append(cs, continuation(t))
		}
		return cs
	}
	switch t := t.(type) {
	case Count:
		return AfterCount(1) // the elements of a pane have become one
	case ProcessingTime:
		return AfterSynchronizedProcessingTime() // they have waited already
	case Watermark:
		if t.EarlyPart != nil {
			t.EarlyPart = continuation(t.EarlyPart)
		}
		if t.LatePart != nil {
			t.LatePart = continuation(t.LatePart)
		}
		return t
	case First:
		return First{each(t.Of)}
	case All:
		return All{each(t.Of)}
	case Each: // a pane may come late, when it is the turn of another part
		return Repeatedly(First{each(t.Of)})
	case Finally:
		return Repeatedly(Finally{continuation(t.Main), continuation(t.Until)})
	case Repeat:
		return Repeatedly(unwrap(continuation(t.Of)))
	}
	return t
}
