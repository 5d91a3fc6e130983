package kernel

// What a Table needs to be an index, whose entries are written and deleted without being read.

// put gives a key this value. What the backend may hold of the key is not read: it is overwritten.
func (t *Table[K, A]) put(s *segment[K, A], k K, acc A) error {
	e, err := t.find(s, k)
	if err == nil && e == nil {
		if e, err = t.insert(s, k); err == nil && s.stored {
			e.flags |= flagStored
		}
	}
	if err == nil && e.epoch != t.epoch {
		err = t.touch(s, e)
	}
	if err != nil {
		return err
	}
	e.acc = acc
	if t.size != nil {
		t.resized(e)
	}
	if t.evicts {
		e.flags |= flagUsed
	}
	return nil
}

// removeKey deletes the entry of a key, if there is one, wherever it is.
func (t *Table[K, A]) removeKey(s *segment[K, A], k K) error {
	e, err := t.find(s, k)
	switch {
	case err != nil:
		return err
	case e != nil:
		return t.remove(s, e)
	case s.stored:
		return t.tombstone(s, k)
	}
	return nil
}

// peek visits the entries of a segment, about budget of them a call, and returns true when all have been.
// It loads nothing into the table. Entries may come, go and change between two calls, but not during one:
// one that comes may be left out, and one that is evicted may be visited twice.
func (t *Table[K, A]) peek(s *segment[K, A], budget *int, visit func(K, A)) (bool, error) {
	f := &s.cursor
	for ; !f.spilled; f.at++ {
		if f.at >= s.n {
			f.spilled = true
			break
		}
		if *budget <= 0 {
			return false, nil
		}
		if e := s.at(f.at); e.flags&flagDead == 0 {
			*budget--
			visit(e.key, e.acc)
		}
	}
	for more := s.spilled; more; {
		if *budget <= 0 {
			return false, nil
		}
		found, m, err := t.scanSpilled(s, budget)
		if err != nil {
			return false, err
		}
		for _, e := range found {
			visit(e.key, e.acc)
		}
		more = m
	}
	*f = firing{}
	return true, nil
}
