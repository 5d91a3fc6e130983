package twin

import (
	"cmp"
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// life is all that has happened to a window of a key. A window that merging makes begins with the lives that it is made of.
type life struct {
	win     window.Window
	history []entry
}

// entry is something that happened: windows became one, or the trigger was looked at, perhaps because an element came.
type entry struct {
	at      moment
	parts   []*life
	element *element
	looked  bool  // the trigger was looked at
	fired   bool  // and was ready
	end     bool  // the watermark had come to the end of the window
	pane    *Pane // what came out
}

type element struct {
	number int // in the order in which they came
	value  int64
	time   eventtime.Time
	at     moment
	end    eventtime.Time // of its window, when it came
	most   eventtime.Time // the last instant of each window that it has been in: custom windows may end before their parts
	void   bool           // that was behind the watermark of the output when it got there
}

// elements are all of l.
func (l *life) elements() (out []*element) {
	for _, e := range l.history {
		for _, p := range e.parts {
			out = append(out, p.elements()...)
		}
		if e.element != nil {
			out = append(out, e.element)
		}
	}
	return inOrder(out)
}

// pending are the elements of l since the pane before, or since that of each part.
func (l *life) pending() (out []*element) {
	for _, e := range l.history {
		for _, p := range e.parts {
			out = append(out, p.pending()...)
		}
		if e.element != nil {
			out = append(out, e.element)
		}
		if e.pane != nil {
			out = nil
		}
	}
	return inOrder(out)
}

func inOrder(es []*element) []*element {
	slices.SortFunc(es, func(a, b *element) int { return cmp.Compare(a.number, b.number) })
	return es
}

// ended says whether the trigger has seen that the watermark is past the end of l.
func (l *life) ended() (ended bool) {
	for _, e := range l.history {
		past := e.at.watermark >= l.win.EndTime()
		if e.parts != nil {
			ended = past
			for _, p := range e.parts {
				ended = ended && p.ended()
			}
		}
		ended = ended || e.end || e.element != nil && past
	}
	return ended
}

// panes are those of this very window: what merging makes of others begins anew.
func (l *life) panes() (out []*Pane) {
	for _, e := range l.history {
		for _, p := range e.parts {
			if p.win == l.win {
				out = append(out, p.panes()...)
			}
		}
		if e.pane != nil {
			out = append(out, e.pane)
		}
	}
	return out
}

// standing are the panes that the next one replaces: the one before, or, if there is none since windows became one,
// that of each of them.
func (l *life) standing() (out []Pane) {
	for _, e := range l.history {
		for _, p := range e.parts {
			out = append(out, p.standing()...)
		}
		if e.pane != nil {
			out = []Pane{*e.pane}
		}
	}
	slices.SortStableFunc(out, func(a, b Pane) int { return a.Window.Compare(b.Window) })
	return out
}

// root is how far the trigger of l is, worked out from the beginning.
func (t *Twin) root(l *life) *node {
	n := fresh(t.trigger)
	for _, e := range l.history {
		now := instant{e.at.watermark, e.at.clock, l.win.EndTime()}
		if e.parts != nil {
			var parts []*node
			for _, p := range e.parts {
				parts = append(parts, t.root(p))
			}
			n = merged(t.trigger, parts, now)
		}
		if e.element != nil {
			n.see(e.element)
		}
		if e.fired {
			n.fire(now)
		}
	}
	return n
}

func (t *Twin) instant(l *life) instant {
	return instant{t.now.watermark, t.now.clock, l.win.EndTime()}
}
