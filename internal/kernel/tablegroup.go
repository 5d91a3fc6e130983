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
	Delta() *statebackend.Pieces
	Companion() *statebackend.Pieces
}

// cutTable is a *Table of any type.
type cutTable interface {
	cutPart(renewBase bool) (cutPart, error)
}

func (t *Table[K, A]) cutPart(renewBase bool) (cutPart, error) { return t.cut(renewBase) }

// cutTogether closes the epochs of tables that share a backend.
func cutTogether(renewBase bool, backend statebackend.Backend, tables ...cutTable) (*groupSnapshot, error) {
	g := &groupSnapshot{}
	for _, t := range tables {
		p, err := t.cutPart(renewBase)
		if err != nil {
			return nil, err
		}
		g.parts = append(g.parts, p)
	}
	if renewBase {
		var err error
		if g.base, err = backend.Snapshot(); err != nil {
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
func (g *groupSnapshot) Delta() *statebackend.Pieces {
	all := &statebackend.Pieces{}
	for _, p := range g.parts {
		all.Append(p.Delta())
	}
	return all
}

// Companion implements KeyedSnapshot.
func (g *groupSnapshot) Companion() *statebackend.Pieces {
	all := &statebackend.Pieces{}
	for _, p := range g.parts {
		all.Append(p.Companion())
	}
	return all
}

// Base implements KeyedSnapshot.
func (g *groupSnapshot) Base() statebackend.Snapshot { return g.base }
