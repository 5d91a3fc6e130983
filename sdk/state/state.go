// Package state has the cells in which a keyed step remembers something for each key and window.
//
// A step declares its cells in Declare, by name, and uses them while it processes an element, a timer or
// the expiry of a window; they then stand for the key and window of that call. The name is the identity
// of what is stored: a later version of the program finds its values by it. Values are encoded as
// coder.Of says (docs/format/keyed-state.md).
package state

import "github.com/millstream/millstream/internal/cell"

// Declarer is where cells are declared: a *sdk.KeyedDecl.
type Declarer interface{ cells() *Cells }

// Cells is what makes a type that embeds it a Declarer. It is for sdk.KeyedDecl.
type Cells struct{ set cell.Set }

func (c *Cells) cells() *Cells { return c }

// SetOf gives the engine what is behind d; its type is of no use to others.
func SetOf(d Declarer) *cell.Set { return &d.cells().set }

// Option is an option of a cell.
type Option interface{ apply(*options) }

type options struct{ coder any }
