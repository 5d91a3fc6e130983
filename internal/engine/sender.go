package engine

// Sender is the sending end of a channel. For a receiver in this process it is its inbox itself. The sending
// subtask alone calls it.
type Sender interface {
	// Push appends an item. A batch needs room unless force is set; without room Push returns false and
	// wakes from when there may be some. A batch that was pushed belongs to the receiver, or to the
	// transport that encodes it. The error is ErrStopped, or says why the item cannot be sent.
	Push(it Item, from Parker, force bool) (ok bool, err error)
	// Overtake announces a barrier that stands behind all that was pushed, but is seen at once.
	Overtake(checkpoint int64) error
}

type localSender struct {
	to      *inbox
	channel int
}

func (l localSender) Push(it Item, from Parker, force bool) (bool, error) {
	return l.to.push(l.channel, it, from, force)
}

func (l localSender) Overtake(checkpoint int64) error { return l.to.overtake(l.channel, checkpoint) }
