package coordinator

import (
	"fmt"
	"slices"

	"github.com/millstream/millstream/internal/checkpoint"
)

// commits is the output that was published and is not known to be committed. It is committed in the order
// of the checkpoints that it was prepared for, one at a time, until it succeeds.
type commits struct {
	tries   int                 // of one checkpoint, before the job fails; 0: without end
	pending []checkpoint.Output // by checkpoint
	through int64               // all output up to this checkpoint is committed

	busy    bool
	failed  int
	retryAt int64
}

func (c *commits) empty() bool { return len(c.pending) == 0 }

// add takes what a manifest lists that has just been published. Some of it may have been committed since
// the manifest was made.
func (c *commits) add(m *checkpoint.Manifest) {
	c.pending = slices.DeleteFunc(slices.Clone(m.Pending), func(o checkpoint.Output) bool { return o.Checkpoint <= c.through })
}

// start returns the output that is to be committed now, all of one checkpoint, or nil.
func (c *commits) start(now int64) []checkpoint.Output {
	if c.busy || len(c.pending) == 0 || now < c.retryAt {
		return nil
	}
	c.busy = true
	return slices.Clone(c.pending[:c.group()])
}

// group is the number of outputs of the oldest checkpoint.
func (c *commits) group() int {
	n := 1
	for n < len(c.pending) && c.pending[n].Checkpoint == c.pending[0].Checkpoint {
		n++
	}
	return n
}

// done takes the outcome of what start returned. An error ends the job.
func (c *commits) done(e Committed, now int64) error {
	if !c.busy || e.Checkpoint != c.pending[0].Checkpoint {
		return nil
	}
	c.busy = false
	if e.Err == nil {
		c.pending = slices.Clone(c.pending[c.group():])
		c.through, c.failed, c.retryAt = e.Checkpoint, 0, 0
		return nil
	}
	c.failed++
	if e.Permanent || c.tries > 0 && c.failed >= c.tries {
		return fmt.Errorf("commit the output of checkpoint %d, tried %d times: %w", e.Checkpoint, c.failed, e.Err)
	}
	c.retryAt = now + min(int64(100)<<min(c.failed, 10), 5_000)
	return nil
}
