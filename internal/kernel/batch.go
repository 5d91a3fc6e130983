// Package kernel holds every generic part of the engine: batches of typed rows, the operators that work
// on them, typed state tables, and the factories that sdk instantiates for the types of a pipeline.
//
// It does no I/O, starts no goroutine and takes no lock. An operator is owned by the goroutine of its
// subtask, which package engine runs; engine itself knows no element type and moves whole batches.
package kernel

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
)

// Element is a value with what the model says of it.
type Element[T any] struct {
	Value  T
	Time   eventtime.Time
	Window window.Window
	Pane   Pane
}

// Batch is a *Rows[T] for the element type of its edge, which only the operators at both ends know.
type Batch interface {
	Len() int
	// Clone copies the rows, for an output with more than one reader.
	Clone() Batch
	// Slice is a batch of some of the rows, which it shares. KeyAt is the key of a row, or nil. Both are for Cut.
	Slice(from, to int) Batch
	KeyAt(i int) (key any, retraction bool)
}

// Rows is a batch of elements of one type. Who is given a batch may overwrite the rows during the call,
// and keeps nothing of them after it; the values in them are immutable once emitted.
type Rows[T any] struct{ E []Element[T] }

func (r *Rows[T]) Len() int { return len(r.E) }

// Clone implements Batch.
func (r *Rows[T]) Clone() Batch { return &Rows[T]{append([]Element[T](nil), r.E...)} }

// BatchSize is the greatest number of rows that operators put into a batch, but for what full says.
const BatchSize = 1024

// full says that rows are to be a batch. One does not end between retractions and what takes their place, which follows: an
// aggregation that gets both at once does not fire in between.
func full[T any](rows []Element[T]) bool {
	n := len(rows)
	if n < BatchSize {
		return false
	}
	return n >= 2*BatchSize || !rows[n-1].Pane.Retraction() && (n >= BatchSize+2*maxFanOut || !unfinished(rows))
}

// maxFanOut is how many elements may be made of one, such as copies in windows, and still come in one batch.
const maxFanOut = 256

// unfinished says whether rows end with retractions, or with retractions and fewer elements: the others may follow. What takes a pane's
// place is a pane.
func unfinished[T any](rows []Element[T]) bool {
	i := len(rows)
	if rows[i-1].Pane == NoPane {
		return false
	}
	for i > 0 && !rows[i-1].Pane.Retraction() && len(rows)-i < maxFanOut {
		i--
	}
	elements, retractions := len(rows)-i, 0
	for i > 0 && rows[i-1].Pane.Retraction() && retractions <= elements {
		i--
		retractions++
	}
	return retractions > elements
}

// Pane is window.Pane in 8 bytes: timing (2 bits), first, last, index (30 bits), on-time index + 1 (29), retraction.
type Pane uint64

// NoPane is the pane of elements that no aggregation made.
const NoPane Pane = 0

const (
	paneIndexMax   = 1<<30 - 1
	paneOnTimeMax  = 1<<29 - 1
	paneRetraction = 1 << 63
)

// Retract returns the pane of the retraction of what p describes.
func (p Pane) Retract() Pane { return p | paneRetraction }

// Retraction says whether the element takes an earlier one back.
func (p Pane) Retraction() bool { return p&paneRetraction != 0 }

// MakePane packs p; indexes beyond 2^29-2 stay there.
func MakePane(p window.Pane) Pane {
	v := Pane(p.Timing&3) | Pane(min(p.Index, paneIndexMax))<<4 | Pane(min(p.OnTimeIndex+1, paneOnTimeMax))<<34
	if p.First {
		v |= 1 << 2
	}
	if p.Last {
		v |= 1 << 3
	}
	if p.Retraction {
		v = v.Retract()
	}
	return v
}

// Info unpacks p.
func (p Pane) Info() window.Pane {
	if p == NoPane {
		return window.Pane{First: true, Last: true}
	}
	return window.Pane{
		Timing: window.Timing(p & 3), First: p&(1<<2) != 0, Last: p&(1<<3) != 0,
		Index: int64(p >> 4 & paneIndexMax), OnTimeIndex: int64(p>>34&paneOnTimeMax) - 1,
		Retraction: p.Retraction(),
	}
}
