package kernel

import (
	"fmt"

	"github.com/millstream/millstream/statebackend"
)

// tableSnapshot is a Table as of a barrier, while it is being encoded.
//
//	delta      what changed in the epoch that the barrier closed: first the operations recorded as they
//	           happened, then the changed entries that are resident. The last version of a key wins.
//	base       the backend as of the barrier; only when the base is renewed
//	companion  the resident entries that the backend did not hold in their version at the barrier
//
// Encode walks the entries a few at a time; save is called for an entry that is about to change, to be
// evicted or to go, and encodes it first if the walk has not come to it. Both go by the entry's epoch and
// clean mark, which hold as of the barrier until that call.
type tableSnapshot[K comparable, A any] struct {
	t         *Table[K, A]
	epoch     uint32
	renew     bool                  // there is a base
	base      statebackend.Snapshot // nil if another table's snapshot has it
	delta     changes
	companion changes

	changed []*segment[K, A] // segment.pending lists the entries
	all     []*segment[K, A] // for the companion
	seg, at int              // the walk
	done    bool
}

// snapshot closes the epoch of a table that has its backend to itself.
func (t *Table[K, A]) snapshot(renewBase bool) (*tableSnapshot[K, A], error) {
	p, err := t.cut(renewBase)
	if err == nil && renewBase {
		if p.base, err = t.backend.Snapshot(); err != nil {
			err = fmt.Errorf("snapshot the state backend: %w", err)
		}
	}
	return p, err
}

// cut closes the epoch. With renewBase, the caller then takes the snapshot of the backend, before anything
// else happens to it.
func (t *Table[K, A]) cut(renewBase bool) (*tableSnapshot[K, A], error) {
	if t.pending != nil {
		if _, err := t.pending.Encode(never32); err != nil {
			return nil, err
		}
	}
	if err := t.cutFiring(); err != nil {
		return nil, err
	}
	p := &tableSnapshot[K, A]{t: t, epoch: t.epoch, renew: renewBase, delta: t.open, companion: newChanges(t.backend, &t.max)}
	t.open = newChanges(t.backend, &t.max)
	if renewBase {
		if err := t.writeBack(); err != nil {
			return nil, err
		}
		p.all = append([]*segment[K, A](nil), t.clock...)
	}
	p.changed = append([]*segment[K, A](nil), t.dirty...)
	for _, s := range p.changed {
		s.dirty, s.pending = s.pending[:0], s.dirty
	}
	t.dirty = t.dirty[:0]
	t.epoch++
	t.pending = p
	return p, nil
}

const never32 = 1<<31 - 1

// save encodes e if the snapshot still needs it.
func (p *tableSnapshot[K, A]) save(s *segment[K, A], e *entry[K, A]) error {
	if e.saved == p.epoch || e.epoch > p.epoch || e.flags&flagDead != 0 {
		return nil
	}
	changed := e.epoch == p.epoch
	unheld := p.renew && e.flags&flagClean == 0
	if !changed && !unheld {
		return nil
	}
	k, err := p.t.stateKey(s, e.key)
	if err != nil {
		return err
	}
	v, err := p.t.encodeValue(e)
	if err != nil {
		return err
	}
	if changed {
		p.delta.Put(k, v)
	}
	if unheld {
		p.companion.Put(k, v)
	}
	e.saved = p.epoch
	e.flags |= flagStored
	s.stored = true
	return nil
}

// saveSegment saves all entries of a segment that is about to go.
func (p *tableSnapshot[K, A]) saveSegment(s *segment[K, A]) error {
	for _, e := range s.pending {
		if err := p.save(s, e); err != nil {
			return err
		}
	}
	clear(s.pending)
	s.pending = s.pending[:0]
	if !p.renew {
		return nil
	}
	for i := range s.n {
		if err := p.save(s, s.at(i)); err != nil {
			return err
		}
	}
	return nil
}

// Encode implements KeyedSnapshot.
func (p *tableSnapshot[K, A]) Encode(budget int) (bool, error) {
	if p.done {
		return true, nil
	}
	for ; p.seg < len(p.changed); p.seg, p.at = p.seg+1, 0 {
		s := p.changed[p.seg]
		for ; p.at < len(s.pending); p.at++ {
			if budget <= 0 {
				return false, nil
			}
			budget--
			if err := p.save(s, s.pending[p.at]); err != nil {
				return false, err
			}
		}
		clear(s.pending)
		s.pending = s.pending[:0]
	}
	for ; p.seg < len(p.changed)+len(p.all); p.seg, p.at = p.seg+1, 0 {
		s := p.all[p.seg-len(p.changed)]
		for ; p.at < s.n; p.at++ {
			if budget <= 0 {
				return false, nil
			}
			budget--
			if err := p.save(s, s.at(p.at)); err != nil {
				return false, err
			}
		}
	}
	if err := p.delta.Err(); err != nil {
		return false, err
	}
	if err := p.companion.Err(); err != nil {
		return false, err
	}
	p.done, p.changed, p.all = true, nil, nil
	p.t.pending = nil
	return true, nil
}

// Delta implements KeyedSnapshot.
func (p *tableSnapshot[K, A]) Delta() *statebackend.Pieces { return p.delta.finish() }

// Companion implements KeyedSnapshot.
func (p *tableSnapshot[K, A]) Companion() *statebackend.Pieces { return p.companion.finish() }

// Base implements KeyedSnapshot.
func (p *tableSnapshot[K, A]) Base() statebackend.Snapshot { return p.base }
