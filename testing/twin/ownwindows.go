package twin

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/sdk/window"
)

// pieces are windows as a user may write them: time is cut into pieces of unlike sizes, in a circle. An element is in its piece, or also in
// those around it, which do not hold its time. The first piece of the circle may be no window.
type pieces struct {
	sizes        []time.Duration
	around, hole bool
}

func (p pieces) fn() window.Fn {
	return window.Custom("pieces", fmt.Sprintf("%v around=%v hole=%v", p.sizes, p.around, p.hole), p)
}

// Assign implements window.Assigner.
func (p pieces) Assign(dst []window.Window, t time.Time) []window.Window {
	circle := time.Duration(0)
	for _, s := range p.sizes {
		circle += s
	}
	start := time.UnixMilli(0).Add(floor(t.Sub(time.UnixMilli(0)), circle) - circle)
	for i := 0; ; i++ {
		size := p.sizes[i%len(p.sizes)]
		end := start.Add(size)
		mine := !t.Before(start) && t.Before(end)
		before := !t.Before(end) && t.Before(end.Add(p.sizes[(i+1)%len(p.sizes)]))
		if (mine || p.around && (before || t.Before(start))) && !(p.hole && i%len(p.sizes) == 0) {
			dst = append(dst, window.Between(start, end))
		}
		if t.Before(start) {
			return dst
		}
		start = end
	}
}

// floor is the greatest multiple of unit that is at most d.
func floor(d, unit time.Duration) time.Duration {
	return d - ((d%unit)+unit)%unit
}

// ceil is the first time from t on that is a multiple of unit from the epoch.
func ceil(t time.Time, unit time.Duration) time.Time {
	return time.UnixMilli(0).Add(-floor(time.UnixMilli(0).Sub(t), unit))
}

// stretches are sessions as a user may write them: that of an element ends at a multiple of more, and one of several at a multiple of
// round. A later element has no earlier end, so that no session can hold one that has expired.
type stretches struct{ gap, more, round time.Duration }

func (s stretches) fn() window.Fn {
	return window.Custom("stretches", fmt.Sprintf("gap=%v more=%v round=%v", s.gap, s.more, s.round), s)
}

// Assign implements window.Assigner.
func (s stretches) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, ceil(t.Add(s.gap), s.more)))
}

// Merge implements window.Merger. open is sorted by starts.
func (s stretches) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	return mergeOverlaps(dst, open, 2, func(group []window.Window, w window.Window) window.Window {
		end := w.End()
		if last := group[len(group)-1].End(); last.After(end) {
			end = last
		}
		return window.Between(w.Start(), ceil(end, s.round))
	})
}

// firsts are sessions of which the first remains as it is, and takes what overlaps it: so a window may become what it was. It
// also says so of windows that nothing overlaps.
type firsts struct{ gap time.Duration }

func (f firsts) fn() window.Fn { return window.Custom("firsts", fmt.Sprintf("gap=%v", f.gap), f) }

// Assign implements window.Assigner.
func (f firsts) Assign(dst []window.Window, t time.Time) []window.Window {
	return append(dst, window.Between(t, t.Add(f.gap)))
}

// Merge implements window.Merger.
func (f firsts) Merge(dst []window.Merge, open []window.Window) []window.Merge {
	return mergeOverlaps(dst, open, 1, func(_ []window.Window, w window.Window) window.Window { return w })
}

// mergeOverlaps merges each window with those after it that overlap what it has become, which grown says after each. least is the least
// number that is a merge.
func mergeOverlaps(dst []window.Merge, open []window.Window, least int, grown func(group []window.Window, w window.Window) window.Window) []window.Merge {
	for i := 0; i < len(open); {
		n, w := i+1, open[i]
		for ; n < len(open) && open[n].Start().Before(w.End()); n++ {
			w = grown(open[i:n+1], w)
		}
		if n-i >= least {
			dst = append(dst, window.Merge{From: open[i:n], Into: w})
		}
		i = n
	}
	return dst
}

// Firsts draws windows of a user that merge into one of them.
func Firsts() *rapid.Generator[window.Fn] {
	return rapid.Custom(func(t *rapid.T) window.Fn { return firsts{millis(t, "gap", 2, 12)}.fn() })
}
