package engine

import "github.com/millstream/millstream/internal/eventtime"

// Merger merges the watermarks of many inputs into one: the least of those that are neither idle nor
// finished. The result never goes back. The zero Merger has no inputs; see NewMerger.
//
// An idle input does not hold the others back, but it holds the end of time: more may come from it, so
// that what waits for the end must wait for it.
//
// An input that has not spoken yet holds at the beginning of time. When every input is idle the merged watermark is the least
// of what they have said, for one may have moved as it went idle, or while it was: then what it held back was released. An input that returns from idleness with an older watermark lowers
// nothing: it holds the result until it has caught up.
type Merger struct {
	in     []inputMark
	merged eventtime.Time
	idle   bool
}

type inputMark struct {
	wm       eventtime.Time
	idle     bool
	finished bool
}

// NewMerger returns a Merger of n inputs.
func NewMerger(n int) *Merger {
	m := &Merger{in: make([]inputMark, n), merged: eventtime.Min}
	for i := range m.in {
		m.in[i].wm = eventtime.Min
	}
	return m
}

// Watermark is the merged watermark; Idle says that every input is idle (finished ones apart).
func (m *Merger) Watermark() eventtime.Time { return m.merged }
func (m *Merger) Idle() bool                { return m.idle }

// Observe notes the watermark of an input and whether it is idle.
func (m *Merger) Observe(i int, w eventtime.Time, idle bool) {
	in := &m.in[i]
	in.wm, in.idle = max(in.wm, w), idle
	m.merge()
}

// Finish notes that an input is at its end: it no longer counts, and when all are, time is at its end.
func (m *Merger) Finish(i int) {
	m.in[i].finished = true
	m.merge()
}

func (m *Merger) merge() {
	least, asleep, active, open := eventtime.Max, eventtime.Max, false, false
	for i := range m.in {
		in := &m.in[i]
		if in.finished {
			continue
		}
		open = true
		if in.idle {
			asleep = min(asleep, in.wm)
			continue
		}
		active = true
		least = min(least, in.wm)
	}
	m.idle = open && !active
	if m.idle {
		least = asleep
	} else if least == eventtime.Max && asleep < eventtime.Max {
		return
	}
	m.merged = max(m.merged, least)
}

// MergerState is a Merger in a snapshot. Idleness and finished inputs are not part of it: inputs are idle,
// or end, again after a restore, and one that has not spoken yet must hold (FLINK-32828).
type MergerState struct {
	Merged eventtime.Time
	Inputs []eventtime.Time // watermark of each
}

// State returns what Restore needs.
func (m *Merger) State() MergerState {
	s := MergerState{Merged: m.merged}
	for _, in := range m.in {
		s.Inputs = append(s.Inputs, in.wm)
	}
	return s
}

// Restore continues from s, which must have as many inputs.
func (m *Merger) Restore(s MergerState) {
	for i := range m.in {
		m.in[i] = inputMark{wm: s.Inputs[i]}
	}
	m.merged = s.Merged
	m.merge()
}
