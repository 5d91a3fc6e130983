package engine

import "fmt"

// Describe tells where each subtask stands, for the message of a test that is stuck.
func (j *Job) Describe() (out string) {
	for _, s := range j.subtasks {
		s.inbox.mu.Lock()
		out += fmt.Sprintf("%s/%d ended=%v sourceDone=%v advancing=%v w=%v phase=%d current=%d triggered=%d arrived=%v finished=%v pending=%v complete=%v deadline=%d;",
			s.stage.Name(), s.index, s.ended, s.sourceDone, s.chain.advancing, s.chain.w, s.aligner.phase, s.aligner.current, s.aligner.triggered, s.aligner.arrived, s.aligner.finished, s.pending != nil, s.complete, s.deadline)
		for i := range s.inbox.in {
			c := &s.inbox.in[i]
			out += fmt.Sprintf(" ch%d{n=%d batches=%d held=%v waiting=%v over=%v", i, c.n, c.batches, c.held, c.waiting != nil, c.over)
			if c.n > 0 {
				out += fmt.Sprintf(" head=%d", c.at(0).kind)
			}
			out += "}"
		}
		out += "\n"
		s.inbox.mu.Unlock()
	}
	return out
}
