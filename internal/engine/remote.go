package engine

import (
	"fmt"

	"github.com/millstream/millstream/internal/kernel"
)

// A job may be spread over processes: each lays out the same stages and runs the subtasks that
// Options.Local names. A channel that crosses has a Sender of the transport (Options.Remote) at one end and
// an Inbound at the other.

// Inbound is the receiving end of a channel whose sender is in another process. One goroutine uses it, the
// transport's.
type Inbound struct {
	to      *subtask
	channel int
}

// Deliver appends encoded items to the channel, one after the other, as Item.Append made them. It never waits
// for room: the credits of the sender bound what is queued, and an overtaking barrier must be seen at once.
// The items are decoded here; src is the caller's again. The error is ErrStopped, or says what is wrong with
// the items; nothing can follow it.
func (in Inbound) Deliver(src []byte) error {
	for len(src) > 0 {
		var it Item
		var rest []byte
		var err error
		kernel.Watch(func() (err error) { // coders, outside the subtask
			it, rest, err = decodeItem(src, in.to.codecs[in.channel])
			return err
		}, func(cause error) { err = cause })
		if err != nil {
			return fmt.Errorf("decode an item for %s: %w", in.to.name(), err)
		}
		if it.kind == itemMark {
			err = in.to.inbox.overtake(in.channel, it.checkpoint)
		} else {
			_, err = in.to.inbox.push(in.channel, it, nil, true)
		}
		if err != nil {
			return err
		}
		src = rest
	}
	return nil
}

// EachInbound calls f for every channel from a subtask elsewhere to one here. credit, which may be set until
// Start, is called each time that a batch of that sender was popped: from the receiving subtask's goroutine,
// with no lock held; it must not wait.
func (j *Job) EachInbound(f func(e *StageEdge, from, to int, in Inbound) (credit func())) {
	for _, s := range j.subtasks {
		for _, e := range s.stage.In {
			for _, from := range e.Senders(s.index) {
				if j.local(e.From, from) {
					continue
				}
				channel := e.channelOf(from)
				s.inbox.in[channel].credit = f(e, from, s.index, Inbound{s, channel})
			}
		}
	}
}
