package engine

import (
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// findMute finds the subtasks, here and elsewhere, from which no element will ever come: sources that have
// nothing to read, and steps without state that only they feed: one with state may have something to say at
// the end. Only a job that is not restored needs it: see Merger.State.
func (j *Job) findMute() {
	j.mute = map[*Stage][]bool{}
	if j.opts.Splits == nil || j.opts.Restore != nil {
		return
	}
	for _, st := range j.stages {
		mute := make([]bool, st.Parallelism)
		j.mute[st] = mute
		if slices.ContainsFunc(st.Nodes, func(n *kernel.Node) bool { return n.Keyed }) {
			continue
		}
		for i := range mute {
			root := st.Nodes[0]
			mute[i] = len(st.In) > 0 || root.SetSplits != nil && len(j.opts.Splits(root, i, st.Parallelism)) == 0
			for _, e := range st.In {
				for c := range e.channels() {
					mute[i] = mute[i] && j.isMute(e, e.senderOf(i, c))
				}
			}
		}
	}
}

func (j *Job) isMute(e *StageEdge, sender int) bool { return len(j.mute) > 0 && j.mute[e.From][sender] }

// passMute lets the inputs from which nothing will come not hold the watermark: whether their senders have
// said so yet would be chance, and with it which of the first elements are late.
func (s *subtask) passMute() {
	for _, e := range s.stage.In {
		for c := range e.channels() {
			if s.job.isMute(e, e.senderOf(s.index, c)) {
				s.merger.Observe(e.base+c, eventtime.Max, false)
			}
		}
	}
}
