package kernel

import (
	"slices"

	"github.com/millstream/millstream/sdk/window"
)

// merger is how the windows of a key merge where the user says which do.
type merger[A, Out any] struct {
	bounds []window.Window
	merges []window.Merge
	parts  []openWindow[A, Out]
}

// find returns the index of a window in a list, or where it would be.
func (l *windowList[A, Out]) find(w window.Window) (int, bool) {
	return slices.BinarySearchFunc(l.open, w, func(s openWindow[A, Out], w window.Window) int { return window.CompareStarts(s.win, w) })
}

// placeBy is place for windows that merge as Merging.Fn says.
func (o *panes[K, A, Out]) placeBy(k K, l *windowList[A, Out], w window.Window) (*openWindow[A, Out], error) {
	m := &o.merger
	i, open := l.find(w)
	if open {
		return &l.open[i], nil
	}
	m.bounds = m.bounds[:0]
	for k := range l.open {
		m.bounds = append(m.bounds, l.open[k].win)
	}
	m.bounds = slices.Insert(m.bounds, i, w)
	var err error
	if m.merges, err = o.Merging.Fn.Merge(m.merges[:0], m.bounds); err != nil {
		return nil, err
	}
	home := w
	for _, g := range m.merges {
		holds := slices.Contains(g.From, w)
		closed := slices.IndexFunc(g.From, func(part window.Window) bool {
			at, open := l.find(part)
			return open && l.open[at].closed
		})
		switch {
		case closed < 0:
			if err := o.unite(k, l, g, w); err != nil {
				return nil, err
			}
			if holds {
				home = g.Into
			}
		case holds:
			home = g.From[closed] // what belongs to it comes too late
		}
	}
	i, open = l.find(home)
	if !open {
		l.open = slices.Insert(l.open, i, o.openWindow(home))
	}
	return &l.open[i], nil
}

// unite makes one of the windows of g that are open already. w is new.
func (o *panes[K, A, Out]) unite(k K, l *windowList[A, Out], g window.Merge, w window.Window) error {
	m := &o.merger
	m.parts = m.parts[:0]
	defer func() { clear(m.parts) }()
	for _, part := range g.From {
		if i, open := l.find(part); open {
			m.parts = append(m.parts, l.open[i])
			l.open = slices.Delete(l.open, i, i+1)
		}
	}
	if len(m.parts) == 0 {
		return nil
	}
	same := len(m.parts) == 1 && m.parts[0].win == g.Into
	if !same {
		slices.SortFunc(m.parts, func(a, b openWindow[A, Out]) int { return window.CompareStarts(a.win, b.win) })
		o.merge(m.parts, g.Into)
		o.endsEarly(&m.parts[0])
	}
	i, _ := l.find(g.Into)
	l.open = slices.Insert(l.open, i, m.parts[0])
	// One that the element belongs to is looked at when that has been added.
	if s := &l.open[i]; !same && !slices.Contains(g.From, w) && o.ready(s) {
		return o.fire(k, s, true, o.hasFired(s))
	}
	return nil
}

// endsEarly makes what holds the watermark agree with the end of a merged window, which may be before those of its parts, and even behind
// the watermark of the output: that does not go back.
func (o *panes[K, A, Out]) endsEarly(s *openWindow[A, Out]) {
	end := s.win.MaxTimestamp()
	switch {
	case s.more == nil:
	case end < o.out:
		s.more.hold, s.more.atEnd = noTime, false
	case s.more.hold != noTime:
		s.more.hold = min(s.more.hold, end)
	}
}
