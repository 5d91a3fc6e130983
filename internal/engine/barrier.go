package engine

import (
	"fmt"

	"github.com/millstream/millstream/internal/kernel"
)

// This file is what a subtask does at a barrier; the aligner decides when.

// do carries out what the aligner decided.
func (s *subtask) do(acts []action) error {
	for _, a := range acts {
		var err error
		switch a.kind {
		case actHold:
			s.inbox.hold(a.channel, true)
		case actRelease:
			for i := range s.codecs {
				s.inbox.hold(i, false)
			}
		case actSnapshot:
			err = s.snapshot(a.checkpoint, s.overtake && s.triggered == a.checkpoint)
		case actTakeOver:
			err = s.snapshot(a.checkpoint, true)
		case actRecord:
			err = s.recordQueued(a.channel)
		case actComplete:
			s.complete = true
			err = s.encode(0)
		case actAbort:
			// What changed before it is needed by the next checkpoint all the same.
			if s.pending != nil && s.pending.Checkpoint == a.checkpoint {
				s.pending.Aborted, s.complete = true, true
				err = s.encode(1 << 30)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshot sends the barrier on and fixes the state of every operator.
func (s *subtask) snapshot(checkpoint int64, overtaking bool) error {
	if s.pending != nil { // one at a time: the older is finished first
		if err := s.encode(1 << 30); err != nil {
			return err
		}
	}
	was := s.force
	s.force = was || overtaking
	err := s.chain.flush()
	s.force = was
	if err != nil {
		return err
	}
	if !s.ended {
		for _, e := range s.chain.edges {
			for _, t := range e.targets {
				var err error
				if overtaking {
					err = t.Overtake(checkpoint)
				} else {
					_, err = t.Push(Item{kind: itemBarrier, checkpoint: checkpoint}, nil, true)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	snap := &SubtaskSnapshot{
		Checkpoint: checkpoint, Stage: s.stage.Name(), Subtask: s.index,
		Merger: s.merger.State(), Channels: make([][]byte, len(s.codecs)),
	}
	for i := range s.chain.ops {
		o := &s.chain.ops[i]
		n := NodeSnapshot{Node: o.node.Name, Watermark: o.wm}
		if i == 0 {
			n.Watermark = s.chain.w // the root may not have been told yet, but what follows comes after it
		}
		if st, ok := o.op.(kernel.Stateful); ok {
			s.chain.running = i
			var err error
			if n.OpSnapshot, err = st.Snapshot(checkpoint, s.job.renewsBase(o.node, s.index)); err != nil {
				return s.chain.stepError(i, fmt.Errorf("snapshot for checkpoint %d: %w", checkpoint, err))
			}
		}
		snap.Nodes = append(snap.Nodes, n)
	}
	s.pending, s.encoding, s.complete, s.paused = snap, 0, false, false
	if s.job.clock != nil {
		// A script goes on when the barrier has been everywhere, so that no state is of a later time than its checkpoint.
		s.wakeAt = max(s.wakeAt, s.job.sched.Now()+1)
	}
	return nil
}

// encode encodes about budget more entries of the pending snapshot and hands it over when it is whole.
func (s *subtask) encode(budget int) error {
	for ; s.encoding < len(s.pending.Nodes); s.encoding++ {
		k := s.pending.Nodes[s.encoding].Keyed
		if k == nil {
			continue
		}
		s.chain.running = s.encoding
		done, err := k.Encode(budget)
		if err != nil {
			return s.chain.stepError(s.encoding, fmt.Errorf("encode checkpoint %d: %w", s.pending.Checkpoint, err))
		}
		if !done {
			return nil
		}
	}
	if s.complete {
		s.job.onSnapshot(s.pending)
		s.pending = nil
	}
	return nil
}

// record adds an item of channel i to the pending snapshot. Barriers are left out, for one checkpoint is in
// progress at a time, and so is the end of a channel: a sender that was at its end says so again after a restore.
func (s *subtask) record(i int, it Item) error {
	if it.kind != itemBatch && it.kind != itemStatus {
		return nil
	}
	var err error
	s.pending.Channels[i], err = it.Append(s.pending.Channels[i], s.codecs[i])
	if err != nil {
		return &StepError{s.stage.Name(), fmt.Errorf("record input for checkpoint %d: %w", s.pending.Checkpoint, err)}
	}
	return nil
}

// recordQueued records what is queued in a channel before its mark.
func (s *subtask) recordQueued(i int) error {
	for _, it := range s.inbox.queued(i, s.inbox.markOf(i).seq, nil) {
		if err := s.record(i, it); err != nil {
			return err
		}
	}
	return nil
}
