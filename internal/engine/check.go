package engine

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/millstream/millstream/internal/kernel"
)

// emitCheck watches one output for two mistakes that would show only in production: a value that is
// changed after it was emitted (by the step that made it, by one that got it, or by an accumulator that it
// shares memory with), and one that does not come back from its encoding.
//
// It keeps the last few batches that it looked at with their encodings and compares them again later. It
// looks at every batch at first and at few in the long run, so that a long job is not slowed down.
type emitCheck struct {
	codec   kernel.BatchCodec
	batches int
	kept    [4]keptBatch
}

type keptBatch struct {
	batch   kernel.Batch
	encoded []byte
}

type opCheck struct {
	op    int
	check *emitCheck
}

var errChanged = errors.New("an element was changed after it was emitted: " +
	"by the step that emitted it, by a step that received it, or because a CombineFn's output shares memory with its accumulator; copy what you keep")

// checkAll is the number of batches of which every one is looked at; later it is one in checkEvery.
const (
	checkAll   = 64
	checkEvery = 256
)

func (c *emitCheck) emitted(b kernel.Batch) error {
	c.batches++
	if c.codec == nil || c.batches > checkAll && c.batches%checkEvery != 0 {
		return nil
	}
	if err := c.verify(); err != nil {
		return err
	}
	encoded, err := c.codec.Append(nil, b)
	if err != nil {
		return nil // a type without an encoding: what needs one reports it
	}
	back, err := c.codec.Decode(append([]byte(nil), encoded...))
	if err != nil {
		return fmt.Errorf("an element cannot be decoded from its own encoding: %w", err)
	}
	again, err := c.codec.Append(nil, back)
	if err != nil {
		return fmt.Errorf("a decoded element cannot be encoded again: %w", err)
	}
	if !bytes.Equal(encoded, again) {
		return errors.New("an element is not the same after it was encoded and decoded")
	}
	c.kept[c.batches%len(c.kept)] = keptBatch{b.Clone(), encoded}
	return nil
}

// verify compares what was kept with what it was when it was emitted.
func (c *emitCheck) verify() error {
	for _, k := range c.kept {
		if k.batch == nil {
			continue
		}
		now, err := c.codec.Append(nil, k.batch)
		if err != nil || !bytes.Equal(now, k.encoded) {
			return errChanged
		}
	}
	return nil
}

// verify looks at all outputs once more, at the end.
func (c *chain) verify() error {
	for _, k := range c.checks {
		if err := k.check.verify(); err != nil {
			return c.stepError(k.op, err)
		}
	}
	return nil
}
