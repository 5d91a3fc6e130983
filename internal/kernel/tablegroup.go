package kernel

import (
	"fmt"

	"github.com/millstream/millstream/statebackend"
)

// groupSnapshot is the state of tables that share a backend, at one barrier.
type groupSnapshot struct {
	parts []cutPart
	base  statebackend.Snapshot
}

// cutPart is a *tableSnapshot of any type.
type cutPart interface {
	Encode(budget int) (done bool, err error)
	Delta() []byte
	Companion() []byte
}

// cutTogether closes the epochs of two tables that share a backend.
func cutTogether[K1, K2 comparable, A1, A2 any](renewBase bool, a *Table[K1, A1], b *Table[K2, A2]) (*groupSnapshot, error) {
	pa, err := a.cut(renewBase)
	if err != nil {
		return nil, err
	}
	pb, err := b.cut(renewBase)
	if err != nil {
		return nil, err
	}
	g := &groupSnapshot{parts: []cutPart{pa, pb}}
	if renewBase {
		if g.base, err = a.backend.Snapshot(); err != nil {
			return nil, fmt.Errorf("snapshot the state backend: %w", err)
		}
	}
	return g, nil
}

// Encode implements KeyedSnapshot.
func (g *groupSnapshot) Encode(budget int) (bool, error) {
	for _, p := range g.parts {
		if done, err := p.Encode(budget); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Delta implements KeyedSnapshot.
func (g *groupSnapshot) Delta() []byte {
	var all []byte
	for _, p := range g.parts {
		all = append(all, p.Delta()...)
	}
	return all
}

// Companion implements KeyedSnapshot.
func (g *groupSnapshot) Companion() []byte {
	var all []byte
	for _, p := range g.parts {
		all = append(all, p.Companion()...)
	}
	return all
}

// Base implements KeyedSnapshot.
func (g *groupSnapshot) Base() statebackend.Snapshot { return g.base }
