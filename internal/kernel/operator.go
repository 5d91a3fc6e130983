package kernel

import (
	"context"
	"log/slog"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
)

// Operator is one step as one subtask runs it. All calls come from the goroutine of the subtask, one at
// a time. It never sees a barrier: its host empties it by Flush and takes its state by Snapshot.
//
// Emitting may wait for room downstream; an error from it is returned at once (the job is stopping).
type Operator interface {
	// Open is called once, before anything else.
	Open(c *OpenContext) error
	// Process takes a batch from an input port.
	Process(port int, b Batch) error
	// Watermark says that no element before w will come from any input. It fires what w allows, at most
	// about budget entries a call, and returns true when nothing is left to fire for w. It is called
	// again with the same w until then; no element comes in between, but a Snapshot may. w never goes back.
	Watermark(w eventtime.Time, budget int) (done bool, err error)
	// Close frees resources. It is called once if Open was, also after an error.
	Close() error
}

// Flusher is an Operator that may keep elements back between batches. Flush emits them. It is called
// before every barrier, every watermark, idleness and the end of input.
type Flusher interface{ Flush() error }

// Stateful is an Operator whose state belongs to the checkpoints.
type Stateful interface {
	// Snapshot fixes the state as of now. It is quick; what is slow is left to OpSnapshot.Keyed. With base
	// set, the keyed state renews its base.
	Snapshot(checkpoint int64, base bool) (OpSnapshot, error)
}

// Holder is an Operator that may hold the watermark back, for what it keeps and will emit with earlier timestamps.
// Hold is where the watermark of its outputs stands at most; eventtime.Max if it holds nothing back. It is asked
// after each call of Process, Flush, Watermark and Clock, and after Open. It never goes below the watermark of the outputs:
// that is the least of what the operator was told and Hold, at any time, also after a restore.
type Holder interface{ Hold() eventtime.Time }

// Clocked is an Operator with work to do at processing times.
type Clocked interface {
	// NextClock is the processing time from which Clock has something to do; later than any time if there is nothing.
	NextClock() eventtime.Time
	// Clock does what is due at the processing time now, at most about budget entries a call, and returns true when
	// nothing is left to do for it. It is called again until then; elements do not come in between, but a Snapshot may.
	// It is not called while a Watermark is not done. The clock may stand still between calls but is never seen to go back.
	//
	// Once the operator has been told the end of time (eventtime.Max as Watermark), nothing waits for the clock any
	// more: what is due at any processing time is done as part of that Watermark.
	Clock(now eventtime.Time, budget int) (done bool, err error)
}

// SideReader is an Operator with side inputs (Edge.Side). What Watermark tells it is about its other inputs.
type SideReader interface {
	Operator
	// SideWatermark says that no element before w will come from a side port. It emits nothing: what becomes due is
	// done by Clock or Watermark. It is called whenever w has moved, and after Open of a restored operator; the
	// operator may have been told more before its checkpoint.
	SideWatermark(port int, w eventtime.Time)
}

// Source is an Operator without inputs.
type Source interface {
	Operator
	// Poll reads and emits at most one batch. now is the processing time.
	Poll(now eventtime.Time) (Polled, error)
}

// Polled is the result of a Poll.
type Polled struct {
	Status    connector.Status
	Records   int            // read in this call
	Watermark eventtime.Time // of this subtask, never going back
	Inactive  bool           // every split is idle: the watermark must not hold others back
	Due       eventtime.Time // with Idle, the processing time from which Poll has something to do, after 0; 0: ask again soon
}

// OpSnapshot is the state of one operator of one subtask at a checkpoint.
type OpSnapshot struct {
	Blob         []byte   // small state in the operator's own format
	Committables [][]byte // prepared output of a sink, each to be committed once the checkpoint is complete
	Keyed        KeyedSnapshot
}

// KeyedSnapshot is keyed state at a checkpoint, still to be encoded. Encode is called by the subtask's
// goroutine, between batches; the rest by anyone once it has returned true.
type KeyedSnapshot interface {
	// Encode encodes about budget more entries and returns true when all are.
	Encode(budget int) (done bool, err error)
	// Delta is an encoded statebackend.Batch: what changed since the barrier before. Valid after Encode is
	// done, like Companion. Whoever has stored it closes it.
	Delta() *statebackend.Pieces
	// Base is the backend's snapshot if this checkpoint renews the base, else nil; Companion is then an
	// encoded statebackend.Batch that belongs above it. The two are the whole state; Delta is not to be
	// applied to them, but is needed should this base not be completed.
	Base() statebackend.Snapshot
	Companion() *statebackend.Pieces
}

// OpRestore is the state that an operator starts from.
//
// Keyed state is in OpenContext.Backend.
type OpRestore struct {
	Checkpoint int64
	Blob       []byte
	Watermark  eventtime.Time // the last that the operator was told; its firing may be unfinished
}

// Output takes the batches of one output port. The batch may be overwritten once Emit has returned.
type Output interface{ Emit(b Batch) error }

// OpenContext is what an operator is given.
type OpenContext struct {
	Context  context.Context // cancelled with the subtask; safe to hand on
	Step     string          // full name
	Subtask  connector.Subtask
	Outputs  []Output
	Restore  *OpRestore           // nil for a fresh start
	Backend  statebackend.Backend // for keyed state, with what was restored; closed by the host; nil if the node has none
	Groups   int                  // number of key groups of the job
	CacheMax int64                // bytes that the operator's table may keep resident
	Track    bool                 // checkpoints will be taken: changes must be remembered
	// ReadBatch is the greatest number of records that a source reads at once; 0: BatchSize.
	ReadBatch int
	Metrics   *Metrics
	Logger    *slog.Logger
	Now       func() eventtime.Time // processing time, as users see it; see Graph.Clock
	// Elapsed is the time of the scheduler in ms, which goes on also where a script moves Now.
	Elapsed func() eventtime.Time
	// Go runs run in a goroutine that the host owns and waits for, and then, between two other calls of the operator, done in that
	// of the subtask. The context of run is cancelled with the subtask, or by the function that Go returns, which is to be called
	// once done was. See Async.
	Go    func(run func(context.Context), done func()) (cancel func())
	views []any // *viewSlot, what the step's code may read by ReadView
	// Wake makes an idle source be polled, and an operator whose NextClock is due be called; any goroutine may call it.
	Wake func()
}
