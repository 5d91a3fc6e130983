// Package cell holds the cells of the key that a step is working on, between package state, which gives
// them to users with their types, and the operator, which keeps them in its table without.
package cell

import (
	"errors"
	"fmt"

	"github.com/millstream/millstream/sdk/coder"
)

// Codec encodes and measures the values of one cell. A slot is a *T of the cell's T, never nil.
type Codec interface {
	Append(dst []byte, slot any) ([]byte, error)
	// Decode takes all of src.
	Decode(src []byte) (slot any, err error)
	// Size is the memory that the value takes, roughly, in bytes.
	Size(slot any) int
}

// Decl is a declared cell.
type Decl struct {
	Name  string
	Type  string     // "value"
	Coder coder.Spec // of what it holds
	Codec
}

// Slots are the values of the cells of one key, in the order of their declaration; nil is absent. It is
// empty if the key has no state.
type Slots []any

// Set is the cells of one step, as one subtask runs it. It belongs to that subtask's goroutine.
//
// Between Begin and End it stands for one key. It asks for Write before the first change, so that a
// snapshot gets the old values and a key that is only read gets no state.
type Set struct {
	Decls []Decl
	// Write makes the slots of the present key writable. It is called at most once between Begin and End.
	// false says that it failed; the operator knows why.
	Write func() (Slots, bool)

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

// Err is the first mistake of a declaration or of a use outside a call.
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

// Cleared says that a slot was made absent.
func (s *Set) Cleared() { s.cleared, s.resized = true, true }

func (s *Set) outside(i int) {
	s.fail(fmt.Errorf("cell %q was used outside a call: it belongs to a key, so only to ProcessElement, a timer's handler or OnWindowExpiry while it runs", s.Decls[i].Name))
}

func (s *Set) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
