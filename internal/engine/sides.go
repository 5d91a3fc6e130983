package engine

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// portMerger merges the watermarks of a subtask's channels: of those that are side inputs, port by port, and of all
// others. Only the latter is the watermark of the subtask, so that a slow side input holds nothing by itself.
type portMerger struct {
	Merger // of the channels that are no side inputs
	sides  []*sidePort
	at     []channelMark
}

// sidePort is a side input of the root.
type sidePort struct {
	Merger
	port int
	told eventtime.Time
}

// channelMark says where a channel's watermark goes.
type channelMark struct {
	to    *Merger
	input int
}

func newPortMerger(in []*StageEdge) *portMerger {
	m := &portMerger{Merger: *NewMerger(0)}
	for _, e := range in {
		to := &m.Merger
		if e.Side != nil {
			s := &sidePort{Merger: *NewMerger(0), port: e.Input, told: eventtime.Min}
			m.sides = append(m.sides, s)
			to = &s.Merger
		}
		for range e.channels() {
			m.at = append(m.at, channelMark{to, len(to.in)})
			to.in = append(to.in, inputMark{wm: eventtime.Min})
		}
	}
	return m
}

// Observe notes the watermark of a channel and whether it is idle; Finish that it is at its end.
func (m *portMerger) Observe(channel int, w eventtime.Time, idle bool) {
	m.at[channel].to.Observe(m.at[channel].input, w, idle)
}

func (m *portMerger) Finish(channel int) { m.at[channel].to.Finish(m.at[channel].input) }

// State has the watermarks of all channels in their order. What was merged of side inputs is not in it: the root
// keeps what it was told.
func (m *portMerger) State() MergerState {
	s := MergerState{Merged: m.merged}
	for _, c := range m.at {
		s.Inputs = append(s.Inputs, c.to.in[c.input].wm)
	}
	return s
}

// Restore continues from s, which must have as many inputs as there are channels.
func (m *portMerger) Restore(s MergerState) {
	parts := map[*Merger]*MergerState{&m.Merger: {Merged: s.Merged}}
	for _, side := range m.sides {
		parts[&side.Merger] = &MergerState{Merged: eventtime.Min}
	}
	for i, c := range m.at {
		parts[c.to].Inputs = append(parts[c.to].Inputs, s.Inputs[i])
	}
	for to, part := range parts {
		to.Restore(*part)
	}
}

// tellSides tells the root what is news of its side inputs.
func (s *subtask) tellSides() {
	for _, side := range s.merger.sides {
		if w := side.Watermark(); w > side.told {
			side.told = w
			s.chain.ops[0].op.(kernel.SideReader).SideWatermark(side.port, w)
		}
	}
}
