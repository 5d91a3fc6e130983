// Package state has the cells in which a keyed step remembers something for each key and window.
//
//	Value        one value                       Get, Lookup, Set, Clear
//	Bag          values, in the order added      Add, All, Len, Clear
//	Map          values by key                   Get, Lookup, Put, Delete, All, Len, Clear
//	OrderedList  values by time                  Add, Range, All, ClearRange, Len, Clear
//	Combining    an accumulator                  Add, Get, IsEmpty, Clear
//
// A step declares its cells in Declare, by name, and uses them while it processes an element, a timer or
// the expiry of a window; they then stand for the key and window of that call. The name is the identity
// of what is stored: a later version of the program finds its values by it. Values are encoded as
// coder.Of says (docs/format/keyed-state.md).
//
// A read is a snapshot: what All, Range or Get returned does not change with what is written later, and may be kept.
// A write is seen by the next read. What was given to a cell and what it returns belongs to the state: to change what it
// refers to (an element of a slice, a map), put a changed copy. Otherwise a checkpoint may have half of the change.
//
// A cell may have a TTL: what is older is gone. All cells of a key are stored as one, whole, whenever one of them has
// changed, so a cell is for what a key needs at hand; see MaxBytes and docs/design/state.md.
package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
)

// Declarer is where cells are declared: a *sdk.KeyedDecl.
type Declarer interface{ cells() *Cells }

// Cells is what makes a type that embeds it a Declarer. It is for sdk.KeyedDecl.
type Cells struct{ set cell.Set }

func (c *Cells) cells() *Cells { return c }

// SetOf gives the engine what is behind d; its type is of no use to others.
func SetOf(d Declarer) *cell.Set { return &d.cells().set }

// Option is an option of a cell.
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct {
	coder any // a coder.Coder of what the cell holds
	key   any // a coder.Key of a Map
	ttl   *ttl
	max   int
}

func optionsOf(opts []Option) *options {
	o := &options{max: DefaultMaxBytes}
	for _, opt := range opts {
		opt.apply(o)
	}
	return o
}

// WithCoder encodes the values of a cell with c instead of coder.Of[T]: the elements of a Bag or OrderedList, the values
// of a Map, the accumulators of a Combining.
func WithCoder[T any](c coder.Coder[T]) Option { return optionFunc(func(o *options) { o.coder = c }) }

// WithKeyCoder encodes the keys of a Map with k instead of coder.KeyOf[K]().
func WithKeyCoder[K comparable](k coder.Key[K]) Option {
	return optionFunc(func(o *options) { o.key = k })
}

// DefaultMaxBytes is the limit of a cell without MaxBytes.
const DefaultMaxBytes = 64 << 20

const mostMaxBytes = 256 << 20

// MaxBytes limits what a cell may hold for one key and window, in bytes of memory, roughly: at most 256 MiB. Default:
// DefaultMaxBytes. The job fails at a write that exceeds it, with the step, cell and key, and nothing is added to the cell after that: one that
// only grows is a mistake that would otherwise end the process.
func MaxBytes(n int) Option { return optionFunc(func(o *options) { o.max = n }) }

// Refresh says what makes the time of a value that has a TTL start anew.
type Refresh uint8

// The kinds of Refresh. With OnReadAndWrite each read that returns a value is a write of its time, and stored as one.
const (
	OnWrite Refresh = iota
	OnReadAndWrite
)

// Clock is the time that a TTL goes by.
type Clock uint8

// The clocks.
//
// By EventTime, the time is the watermark, and in the handler of an event timer the time of the timer. A value that an
// element writes counts as written at the element's timestamp, if the watermark is not past it. By ProcessingTime it is that
// of the machine, or of the test's script, read once a batch.
const (
	EventTime      = Clock(cell.EventTime)
	ProcessingTime = Clock(cell.ProcessingTime)
)

type ttl struct {
	d       time.Duration
	refresh Refresh
	clock   Clock
}

// TTL makes what a cell holds live for d, in whole milliseconds, at least 1: from the last write, or read, of the value or accumulator,
// or of each element of a Bag, Map or OrderedList on its own. What was written d ago or longer is not there for any read. Its
// room is freed soon after, within a sixteenth of d while the step has work; a key with nothing left takes none.
//
// A later version of the program may have another d or Refresh. Another Clock, or a TTL where there was none, makes it another
// cell, for which the job must start anew.
func TTL(d time.Duration, refresh Refresh, clock Clock) Option {
	return optionFunc(func(o *options) { o.ttl = &ttl{d, refresh, clock} })
}

// base is what all cells have.
type base struct {
	set    *cell.Set
	at     int // in set
	max    int
	ttl    int64 // ms; 0: none
	clock  cell.Clock
	onRead bool
}

// declare makes the cell known. codec is also its cell.Expirer.
func (b *base) declare(d Declarer, name, kind string, spec coder.Spec, codec interface {
	cell.Codec
	cell.Expirer
}, o *options, err error) {
	b.set, b.max = SetOf(d), o.max
	decl := cell.Decl{Name: name, Type: kind, Coder: spec, Codec: codec}
	if o.max <= 0 || o.max > mostMaxBytes {
		err = fmt.Errorf("MaxBytes is %d, want 1 to %d", o.max, mostMaxBytes)
	}
	if t := o.ttl; t != nil {
		b.ttl, b.clock, b.onRead = t.d.Milliseconds(), cell.Clock(t.clock), t.refresh == OnReadAndWrite
		switch {
		case t.d < time.Millisecond || t.d%time.Millisecond != 0:
			err = fmt.Errorf("a TTL of %v, want whole milliseconds, at least 1", t.d)
		case t.clock > ProcessingTime || t.refresh > OnReadAndWrite:
			err = fmt.Errorf("a TTL with Refresh %d and Clock %d, which do not exist", t.refresh, t.clock)
		default:
			decl.TTL, decl.Clock, decl.Expirer = b.ttl, b.clock, codec
			decl.Type += [...]string{" with TTL by event time", " with TTL by processing time"}[t.clock]
		}
	}
	b.at = b.set.Declare(decl, err)
}

// stamp is the time of a write.
func (b *base) stamp() eventtime.Time {
	if b.ttl == 0 {
		return 0
	}
	return b.set.Stamp[b.clock]
}

// expired says whether what was written at a time is there no more.
func (b *base) expired(at eventtime.Time) bool {
	return b.ttl > 0 && at.Add(b.ttl) <= b.set.Now[b.clock]
}

// full fails the call if a cell would have more bytes than it may.
func (b *base) full(bytes int) bool {
	if bytes <= b.max {
		return false
	}
	b.set.Fail(b.at, fmt.Errorf("it would hold about %d bytes of one key, of at most %d: clear it, give it a TTL, spread the key over several, or raise state.MaxBytes", bytes, b.max))
	return true
}

// unbound panics for a handle of no step: a state.kind, for example state.Value[int].
func unbound(kind string) {
	name, _, _ := strings.Cut(kind, "[")
	panic(fmt.Sprintf("a state.%s that was not made by state.New%s in Declare", kind, name))
}
