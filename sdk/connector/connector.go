// Package connector is what input and output connectors implement: Source and Reader, Sink and Writer.
package connector

import (
	"context"
	"errors"
	"time"

	"github.com/millstream/millstream/sdk/window"
)

// Subtask is one of the parallel instances of a step.
type Subtask struct{ Index, Parallelism int }

// Source reads a data set that consists of splits: files, row groups, partitions. S describes a split
// and how far it has been read; it is a plain struct, stored in checkpoints by its coder. One Source
// value serves all subtasks of a process, concurrently.
type Source[T, S any] interface {
	// Splits lists the splits, each at its start. It is called once in the life of a job; from then on
	// they live in the checkpoints.
	Splits(ctx context.Context) ([]S, error)
	// SplitID is the identity of a split, the same however far it has been read.
	SplitID(S) string
	// Open makes the reader of one subtask.
	Open(ctx context.Context, sub Subtask) (Reader[T, S], error)
}

// Bounder is an optional part of a Source: a lower bound of the timestamps in a split that has not been
// opened yet. Such a split holds the watermark there; without a Bounder, at the beginning of time.
type Bounder[S any] interface{ LowerBound(S) time.Time }

// Unbounded is an optional part of a Source whose splits never end.
type Unbounded interface{ Unbounded() bool }

// Reader reads the splits given to one subtask. All calls come from one goroutine.
type Reader[T, S any] interface {
	// Assign adds splits, to be read in order, each from where its S says. It is called before the first
	// Read, and never again unless the runner discovers more.
	Assign(splits []S) error
	// Read returns the next records, at most max of them. It does not wait for data that is not there
	// yet: then it returns Idle. After the last record of the last split it returns End.
	Read(ctx context.Context, max int) (Batch[T, S], error)
	Close() error
}

// Notifier is an optional part of a Reader that returns Idle: wake is to be called, from any goroutine,
// when Read is worth calling again. Without it the runner asks again every 10 ms.
type Notifier interface{ Notify(wake func()) }

// Splitter is an optional part of a Reader: it gives away a part of the split that it is reading, which another Reader reads
// then. Runners do not call it yet; splits stay where they were assigned.
type Splitter[S any] interface {
	// Split divides what is left of the split that is being read, the first of those assigned that is not done. It is called
	// between two calls of Read. keep, from 0 to 1, is about the part that the Reader keeps.
	//
	// primary is what the Reader goes on with, at the position behind the last record that it has returned and with the identity that the
	// split had: a Reader to which it is assigned reads the same. residual is a split of its own, with another identity, not begun.
	// Together they have just what was left. ok is false, and nothing changes, if it cannot be divided there: one of
	// the two might have nothing, or the place is not known.
	Split(keep float64) (primary, residual S, ok bool)
}

// Timed is an optional part of a Reader that goes by processing time. Such a Reader has no clock of its own, so that tests
// can script it, and the runner asks it again when something is due, not every 10 ms.
type Timed interface {
	// Clock is called once, before Assign. now is the processing time of the job, in UTC and whole milliseconds, which never
	// goes back while the job runs; it belongs to the goroutine of the Reader.
	Clock(now func() time.Time)
	// Due is called after a Read that returned Idle: the processing time from which Read has something.
	Due() time.Time
}

// Status says what a Read brought.
type Status uint8

const (
	More Status = iota // there may be more right away
	Idle               // nothing now; ask again later
	End                // nothing more, ever
)

// Batch has records of one split only.
type Batch[T, S any] struct {
	Records []T  // valid until the next Read; the values themselves are given away
	Split   S    // the split with its position after Records; ignored if there are none
	Done    bool // Split has no more records
	Status  Status
}

// Record is an element as a sink sees it.
type Record[T any] struct {
	Value  T
	Time   time.Time
	Window window.Window
	Pane   window.Pane
}

// Sink writes exactly once, in two phases. C, a committable, is a plain struct that says how to finish
// one piece of prepared output; it travels in the checkpoint, encoded by its coder. One Sink value
// serves all subtasks of a process, concurrently.
type Sink[T, C any] interface {
	// Open makes the writer of one subtask.
	Open(ctx context.Context, sub Subtask) (Writer[T, C], error)
	// Commit makes prepared output visible, from the committables alone, in any process. It is
	// idempotent: after a failure the same committables come again, in the order of their checkpoints.
	Commit(ctx context.Context, checkpoint int64, committables []C) error
}

// ErrPermanent is wrapped by errors that trying again cannot mend: input that is not there or is no table of that
// shape, a directory that may not be written, prepared output that is gone. A job that meets one ends at once; its
// last checkpoint and what that lists are kept. Other errors are tried again: of Commit for about two minutes, of the
// other methods as often as --max-retries says.
var ErrPermanent = errors.New("cannot be mended by trying again")

// Permanent marks err with [ErrPermanent] without changing its text. It returns nil for nil, and leaves an error alone
// that comes from the end of a context.
func Permanent(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return permanent{err}
}

type permanent struct{ error }

func (p permanent) Unwrap() error        { return p.error }
func (p permanent) Is(target error) bool { return target == ErrPermanent }

// Writer is owned by one goroutine.
type Writer[T, C any] interface {
	// Write takes records; they need not be durable before Prepare returns. The slice is the caller's.
	Write(ctx context.Context, records []Record[T]) error
	// Prepare makes all that was written durable, but not visible, and returns what Commit needs. What is
	// written afterwards belongs to the next checkpoint. It is called before every checkpoint and at the end.
	Prepare(ctx context.Context, checkpoint int64) ([]C, error)
	// Close frees resources. What was not prepared is discarded.
	Close() error
}

// Starter is an optional part of a Sink, called by the runner once before a job starts or restores,
// after everything that the restored checkpoint lists has been committed. fresh is true for a new run.
// It refuses an unusable target early, and sweeps prepared output that no checkpoint lists.
type Starter interface {
	Start(ctx context.Context, fresh bool) error
}

// Checker is an optional part of a Sink, called by the runner before a new run takes a job over. It refuses what
// Start would refuse with fresh true, and leaves alone what the run before has written: that may still be restored.
// pending says that output of that run will be committed between Check and Start.
type Checker interface {
	Check(ctx context.Context, pending bool) error
}
