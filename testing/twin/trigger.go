package twin

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

// node is how far a trigger, or a part of one, is in a window.
type node struct {
	t    trigger.Trigger
	kids []*node
	seen []*element // what came since it began, or was cleared
	past bool       // of AfterWatermark: it has fired at or after the end
	done bool       // finished
}

// instant is what a trigger can see besides elements. end is that of the window.
type instant struct{ watermark, clock, end eventtime.Time }

// fresh is t when it begins.
func fresh(t trigger.Trigger) *node {
	n := &node{t: t}
	for _, k := range parts(t) {
		n.kids = append(n.kids, fresh(k))
	}
	return n
}

// parts of AfterWatermark are its early and its late part, both repeated.
func parts(t trigger.Trigger) []trigger.Trigger {
	switch t := t.(type) {
	case trigger.Watermark:
		return []trigger.Trigger{repeated(t.EarlyPart), repeated(t.LatePart)}
	case trigger.First:
		return t.Of
	case trigger.All:
		return t.Of
	case trigger.Each:
		return t.Of
	case trigger.Finally:
		return []trigger.Trigger{t.Main, t.Until}
	case trigger.Repeat:
		return []trigger.Trigger{t.Of}
	case trigger.Count, trigger.ProcessingTime, trigger.NeverFires, trigger.AlwaysFires:
		return nil
	}
	panic(fmt.Sprintf("trigger %T is unknown here", t))
}

func repeated(t trigger.Trigger) trigger.Trigger {
	if t == nil {
		return trigger.Never()
	}
	return trigger.Repeatedly(t)
}

// see tells n of an element. Parts whose turn it is not see it too: they are cleared when their turn comes.
func (n *node) see(e *element) {
	n.seen = append(n.seen, e)
	for _, k := range n.kids {
		k.see(e)
	}
}

// clear forgets what n has seen, but not what is finished.
func (n *node) clear() {
	n.seen = nil
	for _, k := range n.kids {
		k.clear()
	}
}

// turn is the part of AfterEach whose turn it is; nil after the last.
func (n *node) turn() *node {
	for _, k := range n.kids {
		if !k.done {
			return k
		}
	}
	return nil
}

// current is the early part of AfterWatermark, or, once the end has fired, the late part.
func (n *node) current() *node {
	if n.past {
		return n.kids[1]
	}
	return n.kids[0]
}

// due is when AfterProcessingTime is ready, after an element that came at a processing time.
func due(t trigger.ProcessingTime, came eventtime.Time) eventtime.Time {
	at := came + eventtime.Time(t.Delay.Milliseconds())
	if t.Period == 0 {
		return at
	}
	for (at-eventtime.Time(t.Offset.Milliseconds()))%eventtime.Time(t.Period.Milliseconds()) != 0 {
		at++
	}
	return at
}

// ready says whether n fires.
func (n *node) ready(now instant) bool {
	if n.done {
		return false
	}
	switch t := n.t.(type) {
	case trigger.Count:
		return int64(len(n.seen)) >= t.N
	case trigger.ProcessingTime:
		return len(n.seen) > 0 && due(t, n.seen[0].at.clock) <= now.clock
	case trigger.AlwaysFires:
		return len(n.seen) > 0
	case trigger.NeverFires:
		return false
	case trigger.Watermark:
		return !n.past && now.watermark >= now.end || n.current().ready(now)
	case trigger.All:
		for _, k := range n.kids {
			if !k.done && !k.ready(now) {
				return false
			}
		}
		return true
	case trigger.Each:
		return n.turn().ready(now)
	default: // AfterFirst, OrFinally, Repeatedly
		for _, k := range n.kids {
			if k.ready(now) {
				return true
			}
		}
		return false
	}
}

// fire is that a pane fires because n is ready.
func (n *node) fire(now instant) {
	n.seen = nil
	switch t := n.t.(type) {
	case trigger.Count, trigger.ProcessingTime:
		n.done = true
	case trigger.Watermark:
		// The part whose turn it is not is cleared: a session that grows may go back to the early part, which then has what came
		// since the last pane of any kind.
		anew := fresh(t).kids
		switch {
		case n.past:
			n.kids[1].fire(now)
			n.kids[0] = anew[0]
		case now.watermark < now.end:
			n.kids[0].fire(now)
			n.kids[1] = anew[1]
		default:
			n.kids, n.past, n.done = anew, true, t.LatePart == nil
		}
	case trigger.First, trigger.All:
		for _, k := range n.kids {
			if k.ready(now) {
				k.fire(now)
			} else {
				k.clear()
			}
		}
		n.done = true
	case trigger.Each:
		turn, before := n.turn(), true
		for i, k := range n.kids {
			switch {
			case k == turn:
				k.fire(now)
				before = false
			case before:
				k.clear()
			default:
				n.kids[i] = fresh(k.t)
			}
		}
		n.done = n.turn() == nil
	case trigger.Finally:
		main, until := n.kids[0], n.kids[1]
		if until.ready(now) {
			until.fire(now)
			main.clear()
			n.done = true
			return
		}
		main.fire(now) // until goes on counting
		n.done = main.done
	case trigger.Repeat:
		n.kids[0].fire(now)
		if n.kids[0].done {
			n.kids[0] = fresh(t.Of)
		}
	}
}

// merged is t when windows, in which it was as far as the parts say, have become one, which ends at now.end.
func merged(t trigger.Trigger, parts []*node, now instant) *node {
	n := fresh(t)
	all, some, past := true, false, true // finished; past the end
	for _, p := range parts {
		n.seen = append(n.seen, p.seen...)
		all, some, past = all && p.done, some || p.done, past && p.past
	}
	n.seen = inOrder(n.seen)
	kid := func(i int) {
		var kids []*node
		for _, p := range parts {
			kids = append(kids, p.kids[i])
		}
		n.kids[i] = merged(kids[0].t, kids, now)
	}
	switch t := t.(type) {
	case trigger.Count:
		n.done = some
	case trigger.ProcessingTime:
		n.done = all
	case trigger.Watermark:
		// It is past the end only if that is so in every part, and of the new window: else something has yet to fire at the end.
		n.past = past && now.watermark >= now.end
		n.done = n.past && t.LatePart == nil
		kid(0)
		if n.past {
			kid(1)
		}
	default:
		for i := range n.kids {
			kid(i)
		}
		allKids, someKid := true, false
		for _, k := range n.kids {
			allKids, someKid = allKids && k.done, someKid || k.done
		}
		// What is finished everywhere stays so, unless for an end that is to come again.
		over := all && !again(n, parts)
		switch t.(type) {
		case trigger.All, trigger.Each:
			n.done = allKids || over
		case trigger.First, trigger.Finally:
			n.done = someKid || over
		}
	}
	return n
}

// again says whether some AfterWatermark in n will fire at the end, though in a window that it is merged from it has.
func again(n *node, from []*node) bool {
	for _, p := range from {
		if p.past && !n.past {
			return true
		}
	}
	for i, k := range n.kids {
		var kids []*node
		for _, p := range from {
			kids = append(kids, p.kids[i])
		}
		if again(k, kids) {
			return true
		}
	}
	return false
}

// waits are the processing times for which n waits.
func (n *node) waits(now instant) (out []eventtime.Time) {
	if n.done {
		return nil
	}
	switch t := n.t.(type) {
	case trigger.ProcessingTime:
		if len(n.seen) > 0 {
			out = append(out, due(t, n.seen[0].at.clock))
		}
	case trigger.Watermark:
		return n.current().waits(now)
	case trigger.Each:
		return n.turn().waits(now)
	default:
		for _, k := range n.kids {
			out = append(out, k.waits(now)...)
			if _, all := n.t.(trigger.All); all && !k.mayCome(now) {
				return nil // it cannot be ready before another element comes
			}
		}
	}
	return out
}

// mayCome says whether n is ready, or may be later, also if no element comes.
func (n *node) mayCome(now instant) bool {
	if n.done || n.ready(now) {
		return true
	}
	switch n.t.(type) {
	case trigger.ProcessingTime:
		return len(n.seen) > 0
	case trigger.Watermark:
		return !n.past || n.current().mayCome(now)
	case trigger.Each:
		return n.turn().mayCome(now)
	case trigger.All:
		for _, k := range n.kids {
			if !k.mayCome(now) {
				return false
			}
		}
		return true
	}
	for _, k := range n.kids {
		if !k.done && k.mayCome(now) {
			return true
		}
	}
	return false
}
