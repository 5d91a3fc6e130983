package kernel

import (
	"fmt"

	"github.com/millstream/millstream/statebackend"
)

// A pass goes through all entries of a window, in slices: those in memory, then those that only the backend has.

// firing is how far a pass over a segment has come.
type firing struct {
	spilled bool   // resident entries are done; the backend is being scanned
	at      int    // next resident entry
	after   []byte // last key scanned
}

// pass visits every entry of a window once, resident and spilled, about budget of them a call, and returns
// true when all have been. A removing pass takes the visited entries away, and the segment must be dropped
// at its end; otherwise visit may change the entry, after touch. Between two calls of a pass nothing else
// adds or changes entries of the window, but entries may be evicted: a pass that does not remove may then
// visit an entry again, and tells by its header.
func (t *Table[K, A]) pass(s *segment[K, A], budget *int, remove bool, visit func(*segment[K, A], *entry[K, A]) error) (bool, error) {
	f := &s.cursor
	if remove {
		t.firing = s
	}
	for ; !f.spilled; f.at++ {
		if f.at >= s.n {
			f.spilled = true
			break
		}
		if *budget <= 0 {
			return false, nil
		}
		e := s.at(f.at)
		if e.flags&flagDead != 0 {
			continue
		}
		*budget--
		if err := visit(s, e); err != nil {
			return false, err
		}
		if remove {
			if err := t.gone(s, e); err != nil {
				return false, err
			}
		}
	}
	for more := s.spilled; more; {
		if *budget <= 0 {
			return false, nil
		}
		var err error
		if more, err = t.passSpilled(s, budget, remove, visit); err != nil {
			return false, err
		}
	}
	*f = firing{}
	t.firing = nil
	return true, nil
}

// gone marks a visited entry as removed. It stays in its slot and in the map until the segment is
// dropped: its key is needed for a tombstone should a barrier come before that, and to tell that the
// backend's copy is not to be visited.
func (t *Table[K, A]) gone(s *segment[K, A], e *entry[K, A]) error {
	if t.pending != nil {
		if err := t.pending.save(s, e); err != nil {
			return err
		}
	}
	t.drop(s, e)
	e.epoch = 0
	e.flags |= flagDead
	return nil
}

// spilledEntry is an entry as the backend holds it.
type spilledEntry[K comparable, A any] struct {
	key K
	header
	acc A
}

// scanSpilled looks at about budget entries of the backend behind the cursor and returns those that are
// not resident; more says that the scan is not at its end.
func (t *Table[K, A]) scanSpilled(s *segment[K, A], budget *int) (found []spilledEntry[K, A], more bool, err error) {
	if err := t.writeBack(); err != nil {
		return nil, false, err
	}
	r := t.windowRange(s.win)
	prefix := len(r.End) // of every key in the range
	if s.cursor.after != nil {
		r.Start = statebackend.After(nil, s.cursor.after)
	}
	err = t.backend.Scan(r, func(key, value []byte) (bool, error) {
		s.cursor.after = append(s.cursor.after[:0], key...)
		k, rest, err := t.key.Decode(key[prefix:])
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
		if err != nil {
			return false, fmt.Errorf("decode key %x: %w", key[prefix:], err)
		}
		*budget--
		more = *budget <= 0
		if e, err := t.find(s, k); e != nil || err != nil {
			return !more, err // resident, and visited before
		}
		h, acc, err := t.decodeValue(value)
		found = append(found, spilledEntry[K, A]{k, h, acc})
		return !more, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("scan the state of window %v: %w", s.win, err)
	}
	return found, more, nil
}

// passSpilled visits about budget entries of the backend that are not resident, behind the cursor.
func (t *Table[K, A]) passSpilled(s *segment[K, A], budget *int, remove bool, visit func(*segment[K, A], *entry[K, A]) error) (more bool, err error) {
	found, more, err := t.scanSpilled(s, budget)
	if err != nil {
		return false, err
	}
	for _, f := range found {
		if remove {
			// The version of the backend may be younger than a snapshot's barrier: no snapshot takes it from here.
			e := entry[K, A]{key: f.key, header: f.header, acc: f.acc, flags: flagClean | flagStored}
			if err := visit(s, &e); err != nil {
				return false, err
			}
			continue // the backend's copy goes with the segment; until then see cutFiring
		}
		e, err := t.insertLoaded(s, f.key, f.header, f.acc)
		if err != nil {
			return false, err
		}
		if err := visit(s, e); err != nil {
			return false, err
		}
	}
	return more, nil
}

// cutFiring records what an unfinished removing pass has removed, for a snapshot in its midst.
func (t *Table[K, A]) cutFiring() error {
	s := t.firing
	if s == nil || !s.stored {
		return nil
	}
	for i := range min(s.cursor.at, s.n) {
		e := s.at(i)
		if e.flags&(flagDead|flagStored) == flagDead|flagStored {
			if err := t.tombstone(s, e.key); err != nil {
				return err
			}
			e.flags &^= flagStored
		}
	}
	if s.cursor.after != nil {
		r := t.windowRange(s.win)
		r.End = statebackend.After(nil, s.cursor.after)
		t.open.DeleteRange(r)
		t.writes.DeleteRange(r)
	}
	return nil
}
