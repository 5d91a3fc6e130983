package coordinator

import (
	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/statebackend"
)

// Status is where a job stands, for people.
type Status struct {
	State    State
	Err      error
	Attempt  int64
	Restored int64 // checkpoint that the next or present attempt starts from; 0: none
	Workers  int   // joined
	Wanted   int
	Degraded bool // it runs, or will, with fewer workers than wanted
	Pending  int  // outputs that are published and not known to be committed
	Latest   int64
	Complete int   // checkpoints of this coordinator
	Age      int64 // ms since the last of them became complete
	History  []CheckpointStatus
}

// CheckpointStatus is what is known of one checkpoint.
type CheckpointStatus struct {
	ID       int64
	State    string // in progress, publishing, completed, failed, timed out, aborted
	Duration int64  // ms, from the trigger to the last acknowledgement
	Bytes    int64  // of all objects that it lists
	NewBytes int64  // of those that the one before does not
}

// historySize is the number of checkpoints that Status remembers.
const historySize = 50

// Status describes the job.
func (c *Core) Status() Status {
	s := Status{
		State: c.state(), Err: c.err, Attempt: c.attempt, Restored: c.restored, Workers: len(c.workers), Wanted: c.cfg.Workers,
		Degraded: c.ran && c.phase != over && len(c.workers) < c.cfg.Workers,
		Pending:  len(c.commits.pending), Latest: c.lastID(), Complete: c.complete,
		History: append([]CheckpointStatus(nil), c.history...),
	}
	if c.complete > 0 {
		s.Age = c.now - c.latestAt
	}
	if c.flight != nil {
		s.History = append(s.History, CheckpointStatus{ID: c.flight.id, State: "in progress", Duration: c.now - c.flight.started})
	}
	return s
}

func (c *Core) state() State {
	switch {
	case c.phase == over:
		return c.final
	case c.phase == running && c.lastOne:
		return Finishing
	case c.phase == running:
		return Running
	case c.last != nil:
		return Restoring
	}
	return Starting
}

func (c *Core) note(s CheckpointStatus) {
	c.history = append(c.history, s)
	if len(c.history) > historySize {
		c.history = c.history[1:]
	}
}

func (c *Core) setState(id int64, state string) {
	for i := range c.history {
		if c.history[i].ID == id {
			c.history[i].State = state
		}
	}
}

func newStatus(m *checkpoint.Manifest, parent *checkpoint.Checkpoint, started, now int64) CheckpointStatus {
	s := CheckpointStatus{ID: m.Checkpoint.ID, State: "publishing", Duration: now - started}
	old := map[string]bool{}
	if parent != nil {
		parent.Refs(func(r statebackend.Ref) { old[r.Object] = true })
	}
	m.Checkpoint.Refs(func(r statebackend.Ref) {
		s.Bytes += r.Size
		if !old[r.Object] {
			s.NewBytes += r.Size
		}
	})
	return s
}
