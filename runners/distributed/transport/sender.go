package transport

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/engine"
)

// sender is the sending end of a channel to a subtask at a peer. Its subtask calls it; the fields are guarded
// by the peer's lock.
type sender struct {
	peer    *peer
	edge    *engine.StageEdge
	channel uint32

	credit  int           // batches that may be sent; below zero after some were sent by force
	waiting engine.Parker // the subtask, if it waits for credit

	// A status that nothing has followed and that is still in the queue, which was taken last when the count
	// was statusAt: a newer one replaces it, so that a connection that is slow leaves no heap of them.
	status   *frame
	statusAt uint64
}

// Push implements engine.Sender. The item is encoded here, by the subtask, and given to the connection's writer.
func (s *sender) Push(it engine.Item, from engine.Parker, force bool) (bool, error) {
	batch := it.Batch()
	if batch != nil {
		if !s.take(from, force) {
			return false, nil
		}
	}
	f := newFrame(frameItems)
	var err error
	f.b, err = it.Append(binary.BigEndian.AppendUint32(f.b, s.channel), s.edge.Codec)
	if limit := s.peer.mesh.end.o.MaxFrame; err == nil && f.length() > limit {
		err = fmt.Errorf("a batch of %d rows takes %d bytes, more than the %d of a frame: raise the limit, or make the elements smaller", batch.Len(), f.length(), limit)
	}
	if err != nil {
		return false, fmt.Errorf("send to %q at worker %q: %w", s.edge.To.Name(), s.peer.name, err)
	}
	if !s.enqueue(f.seal(), it.IsStatus()) {
		return false, s.peer.noMore()
	}
	if batch != nil {
		s.edge.Codec.Recycle(batch)
	}
	return true, nil
}

// Overtake implements engine.Sender: everything pushed is on its way, and the receiver's reader never waits, so
// a frame behind it is seen at once.
func (s *sender) Overtake(checkpoint int64) error {
	_, err := s.Push(engine.Overtaking(checkpoint), nil, true)
	return err
}

// take takes a credit. Without one, and without force, from is woken when there is one.
func (s *sender) take(from engine.Parker, force bool) bool {
	p := s.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.credit <= 0 && !force && !p.gone {
		s.waiting = from
		return false
	}
	s.credit--
	return true
}

// enqueue gives a frame to the writer. It returns false if the peer is gone.
func (s *sender) enqueue(f *frame, isStatus bool) bool {
	p := s.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	if isStatus && s.status != nil && s.statusAt == p.taken {
		s.status.b, f.b = f.b, s.status.b
		f.recycle()
		return true
	}
	p.queue = append(p.queue, f)
	s.status, s.statusAt = nil, p.taken
	if isStatus {
		s.status = f
	}
	p.more.Signal()
	return true
}

// granted adds n credits, under the peer's lock.
func (s *sender) granted(n int) {
	s.credit += n
	if s.waiting != nil && s.credit > 0 {
		s.waiting.Wake()
		s.waiting = nil
	}
}

// receiver is the receiving end of a channel from a subtask at a peer.
type receiver struct {
	peer    *peer
	in      engine.Inbound // the connection's reader alone uses it
	channel uint32
	popped  int // batches that the peer has not been told of; by the peer's lock
}

// credit is called by the receiving subtask when it has popped a batch. Half the room is given back at a time:
// fewer frames, and the sender still has the other half to go on with.
func (r *receiver) credit() {
	p := r.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	r.popped++
	if r.popped == max(1, p.mesh.end.o.Room/2) {
		p.credits = append(p.credits, r)
		p.more.Signal()
	}
}
