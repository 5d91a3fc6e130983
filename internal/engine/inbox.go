package engine

import "sync"

// mark is the place of an overtaking barrier in a channel: before the item with sequence number seq.
type mark struct {
	checkpoint int64
	seq        uint64
}

// channel is the FIFO from one sender to the subtask that owns the inbox.
type channel struct {
	q       []Item // ring: q[(head+i) % len(q)]
	head, n int
	batches int    // of the n items, those that need room
	popped  uint64 // sequence number of the item at the head
	over    mark   // newest overtaking barrier; checkpoint 0: none
	held    bool   // by an aligned barrier
	waiting Parker // the sender, if it waits for room

	restored int    // of the batches, those at the head that a checkpoint held: no sender waits for them
	credit   func() // tells a sender elsewhere that one of its batches was popped; nil for one in this process
}

func (c *channel) at(i int) *Item { return &c.q[(c.head+i)%len(c.q)] }

func (c *channel) push(it Item) {
	if c.n == len(c.q) {
		q := make([]Item, max(8, 2*len(c.q)))
		for i := range c.n {
			q[i] = *c.at(i)
		}
		c.q, c.head = q, 0
	}
	*c.at(c.n) = it
	c.n++
	if it.kind == itemBatch {
		c.batches++
	}
}

func (c *channel) pop() (it Item, credit func()) {
	it = *c.at(0)
	*c.at(0) = Item{}
	c.head = (c.head + 1) % len(c.q)
	c.n--
	c.popped++
	if it.kind == itemBatch {
		c.batches--
		if c.restored > 0 {
			c.restored--
		} else {
			credit = c.credit
		}
	}
	return it, credit
}

// inbox is what a subtask takes its input from. Senders push, only the owner pops.
//
// One lock guards it all, for there is little to do under it and an overtaking barrier must see a whole
// channel. It is never held while anyone waits or encodes.
type inbox struct {
	owner Parker

	mu         sync.Mutex
	in         []channel
	room       int  // batches a channel takes before its sender waits; at least 1
	next       int  // where the search for input starts: round robin
	overtaking bool // an overtaking barrier was announced that the owner has not taken up: see urgent
	mail       []mail
	stopped    error // set once; senders and owner return it
}

// mail is a request to the owner, handled between batches.
type mail struct {
	trigger  int64 // checkpoint to start; 0: none
	overtake bool
	stop     bool // end after everything is done
	returned *call
}

func newInbox(channels, room int, owner Parker) *inbox {
	return &inbox{owner: owner, in: make([]channel, channels), room: max(1, room)}
}

// push appends an item of kind batch if there is room. Without room it returns false and will wake the
// sender when there is. With force it needs none.
func (b *inbox) push(i int, it Item, sender Parker, force bool) (ok bool, err error) {
	b.mu.Lock()
	if b.stopped != nil {
		err = b.stopped
		b.mu.Unlock()
		return false, err
	}
	c := &b.in[i]
	if it.kind == itemBatch && c.batches >= b.room && !force {
		c.waiting = sender
		b.mu.Unlock()
		return false, nil
	}
	if it.kind == itemStatus && c.n > 0 && !(c.over.checkpoint != 0 && c.over.seq == c.popped+uint64(c.n)) {
		// A newer status replaces one that nothing has followed, so that a reader who does not come
		// leaves no heap of them. Not across a mark: what precedes it belongs to the snapshot.
		if last := c.at(c.n - 1); last.kind == itemStatus {
			*last = it
			b.mu.Unlock()
			return true, nil
		}
	}
	c.push(it)
	b.mu.Unlock()
	b.owner.Wake()
	return true, nil
}

// overtake marks a barrier behind everything that is queued in channel i, without joining the queue.
func (b *inbox) overtake(i int, checkpoint int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped != nil {
		return b.stopped
	}
	c := &b.in[i]
	c.over = mark{checkpoint, c.popped + uint64(c.n)}
	b.overtaking = true
	b.owner.Wake()
	return nil
}

// post delivers mail. It never waits.
func (b *inbox) post(m mail) {
	b.mu.Lock()
	b.mail = append(b.mail, m)
	b.overtaking = b.overtaking || m.overtake
	b.mu.Unlock()
	b.owner.Wake()
}

// stop makes every later call return err and wakes all that wait.
func (b *inbox) stop(err error) {
	b.mu.Lock()
	if b.stopped == nil {
		b.stopped = err
	}
	var wake []Parker
	for i := range b.in {
		if p := b.in[i].waiting; p != nil {
			wake = append(wake, p)
			b.in[i].waiting = nil
		}
	}
	b.mu.Unlock()
	for _, p := range wake {
		p.Wake()
	}
	b.owner.Wake()
}

// control returns the mail, and whether overtaking barriers were announced since the last call. Owner only.
func (b *inbox) control(dst []mail) (ms []mail, overtaking bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = append(dst[:0], b.mail...)
	b.mail = b.mail[:0]
	overtaking, b.overtaking = b.overtaking, false
	return dst, overtaking, b.stopped
}

// urgent says whether an overtaking barrier waits that the owner has not taken up. While one does, the
// owner pushes beyond the room of its targets instead of waiting.
func (b *inbox) urgent() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.overtaking, b.stopped
}

// triggerWaiting returns the newest checkpoint in the mail, or 0. Owner only.
func (b *inbox) triggerWaiting() (checkpoint int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.mail {
		checkpoint = max(checkpoint, m.trigger)
	}
	return checkpoint
}

// popped is an item with where it came from.
type popped struct {
	Item
	channel int
}

// pop returns the next item, round robin over the channels that are not held. With barriersOnly it
// returns only a barrier at the head of a channel (a firing goes on in between, and elements wait).
//
// While a barrier waits to be taken up there is nothing: what is behind its mark must not be processed
// before the snapshot, and the mark may have been set since the owner last looked.
func (b *inbox) pop(barriersOnly bool) (p popped, ok bool) {
	b.mu.Lock()
	if b.overtaking {
		b.mu.Unlock()
		return popped{}, false
	}
	for k := range b.in {
		i := b.next + k
		if i >= len(b.in) {
			i -= len(b.in)
		}
		c := &b.in[i]
		if c.n == 0 || c.held || barriersOnly && c.at(0).kind != itemBarrier {
			continue
		}
		it, credit := c.pop()
		if b.next = i + 1; b.next == len(b.in) {
			b.next = 0
		}
		var wake Parker
		if c.waiting != nil && c.batches < b.room {
			wake, c.waiting = c.waiting, nil
		}
		b.mu.Unlock()
		if wake != nil {
			wake.Wake()
		}
		if credit != nil {
			credit()
		}
		return popped{it, i}, true
	}
	b.mu.Unlock()
	return popped{}, false
}

// hold keeps a channel from being popped, or releases it.
func (b *inbox) hold(i int, held bool) {
	b.mu.Lock()
	b.in[i].held = held
	b.mu.Unlock()
}

// markOf returns the overtaking barrier of channel i.
func (b *inbox) markOf(i int) mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.in[i].over
}

// prepend puts restored items before everything in channel i. Nothing of it was popped yet.
func (b *inbox) prepend(i int, items []Item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.in[i]
	var later []Item
	for c.n > 0 {
		it, _ := c.pop()
		later = append(later, it)
	}
	for _, it := range items {
		c.push(it)
	}
	c.restored = c.batches
	for _, it := range later {
		c.push(it)
	}
	c.over.seq += uint64(len(items))
	c.popped = 0
}

// marks returns the overtaking barrier of each channel. Owner only; senders may move them on later.
func (b *inbox) marks(dst []mark) []mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = dst[:0]
	for i := range b.in {
		dst = append(dst, b.in[i].over)
	}
	return dst
}

// barrierToMark looks for the aligned barrier of a checkpoint in the queue of channel i. If it is there it
// becomes a mark at its place, and leaves the queue.
func (b *inbox) barrierToMark(i int, checkpoint int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.in[i]
	for k := range c.n {
		if it := c.at(k); it.kind == itemBarrier && it.checkpoint == checkpoint {
			seq := c.popped + uint64(k)
			// Everything before the barrier keeps its number; everything behind moves up by one, so the
			// mark stands before the item that follows.
			for j := k; j+1 < c.n; j++ {
				*c.at(j) = *c.at(j + 1)
			}
			*c.at(c.n - 1) = Item{}
			c.n--
			c.over = mark{checkpoint, seq}
			return true
		}
	}
	return false
}

// hasBarrier says whether the aligned barrier of a checkpoint is queued in any channel.
func (b *inbox) hasBarrier(checkpoint int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.in {
		c := &b.in[i]
		for k := range c.n {
			if it := c.at(k); it.kind == itemBarrier && it.checkpoint == checkpoint {
				return true
			}
		}
	}
	return false
}

// queued copies the items of channel i with sequence numbers below seq. Only the owner pops, so they stay
// where they are and may be encoded without the lock.
func (b *inbox) queued(i int, seq uint64, dst []Item) []Item {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.in[i]
	for k := 0; k < c.n && c.popped+uint64(k) < seq; k++ {
		dst = append(dst, *c.at(k))
	}
	return dst
}
