// Package cell holds the cells of the key that a step is working on, between package state, which gives
// them to users with their types, and the operator, which keeps them in its table without.
package cell

import (
	"errors"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
)

// Codec encodes and measures the slots of one cell. A slot is a pointer of the cell's own type, never nil, and never of
// something empty: a cell with nothing in it has no slot.
type Codec interface {
	Append(dst []byte, slot any) ([]byte, error)
	// Decode takes all of src.
	Decode(src []byte) (slot any, err error)
	// Size is the memory that the slot takes, roughly, in bytes. It is asked after each change and costs no
	// more if there is much in the slot.
	Size(slot any) int
}

// Expirer removes what has outlived its TTL.
type Expirer interface {
	// First is a time before which nothing in slot expires.
	First(slot any) eventtime.Time
	// Expire removes what has expired at now, and returns false if nothing is left. First is exact afterwards.
	Expire(slot any, now eventtime.Time) (left bool)
}

// Clock is the time that a TTL goes by.
type Clock uint8

// The clocks.
const (
	EventTime Clock = iota
	ProcessingTime
	Clocks
)

// Decl is a declared cell.
type Decl struct {
	Name  string
	Type  string     // "value"
	Coder coder.Spec // of what it holds
	Codec

	TTL     int64 // ms; 0: it does not expire
	Clock   Clock // of the TTL
	Expirer       // nil without a TTL
}

// Slots are the values of the cells of one key, in the order of their declaration; nil is absent. It is
// empty if the key has no state.
type Slots []any

// Set is the cells of one step, as one subtask runs it. It belongs to that subtask's goroutine.
//
// Between Begin and End it stands for one key. It asks for Write before the first change, so that a
// snapshot gets the old values and a key that is only read gets no state. The operator has what is read in memory before
// Begin: a read in a call cannot fail.
type Set struct {
	Decls []Decl
	// Write makes the slots of the present key writable. It is called at most once between Begin and End.
	// false says that it failed; the operator knows why.
	Write func() (Slots, bool)
	// Now is the time by each clock, for cells with a TTL: at it they tell what has expired. Stamp is the time that a
	// write counts as made at.
	Now, Stamp [Clocks]eventtime.Time

	slots   Slots
	active  bool
	written bool
	resized bool
	cleared bool
	err     error
}

// Declare adds a cell and returns its index. A mistake is kept for Err.
func (s *Set) Declare(d Decl, err error) int {
	for _, o := range s.Decls {
		if o.Name == d.Name {
			err = errors.Join(err, errors.New("declared twice: names of cells are unique in a step"))
		}
	}
	if d.Name == "" {
		err = errors.Join(err, errors.New("no name"))
	}
	if err != nil {
		s.fail(fmt.Errorf("cell %q: %w", d.Name, err))
	}
	s.Decls = append(s.Decls, d)
	return len(s.Decls) - 1
}

// Err is the first mistake of a declaration, of a use outside a call, or that Fail was told.
func (s *Set) Err() error { return s.err }

// Begin makes the cells stand for a key with these slots.
func (s *Set) Begin(slots Slots) {
	s.slots, s.active, s.written, s.resized, s.cleared = slots, true, false, false, false
}

// End makes the cells unusable until the next Begin.
func (s *Set) End() (written, resized, cleared bool) {
	s.active, s.slots = false, nil
	return s.written, s.resized, s.cleared
}

// Get returns a slot, nil if absent.
func (s *Set) Get(i int) any {
	if i >= len(s.slots) {
		if !s.active {
			s.outside(i)
		}
		return nil
	}
	return s.slots[i]
}

// Change returns the slots in order to change slot i, or nil if that must not be.
func (s *Set) Change(i int) Slots {
	if !s.active {
		s.outside(i)
		return nil
	}
	if !s.written {
		slots, ok := s.Write()
		if !ok {
			return nil
		}
		s.slots, s.written = slots, true
	}
	return s.slots
}

// Resized says that the memory of a slot has changed.
func (s *Set) Resized() { s.resized = true }

// Remove makes slot i absent, if it is there.
func (s *Set) Remove(i int) {
	if s.Get(i) == nil {
		return
	}
	if slots := s.Change(i); slots != nil {
		slots[i] = nil
		s.cleared, s.resized = true, true
	}
}

// Fail makes the call fail: what was asked of cell i cannot be done.
func (s *Set) Fail(i int, err error) { s.fail(fmt.Errorf("cell %q: %w", s.Decls[i].Name, err)) }

func (s *Set) outside(i int) {
	s.fail(fmt.Errorf("cell %q was used outside a call: it belongs to a key, so only to ProcessElement, a timer's handler or OnWindowExpiry while it runs", s.Decls[i].Name))
}

func (s *Set) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
