package engine

// Sender is the sending end of a channel. A Sender in this process is the receiver's inbox itself.
type Sender interface {
	// Push appends an item. A batch needs room unless force is set; without room Push returns false and
	// wakes from when there may be some.
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
