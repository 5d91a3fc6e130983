package engine

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// SubtaskSnapshot is what one subtask contributes to a checkpoint. Its keyed parts are encoded; their
// bases, if any, are still to be persisted.
type SubtaskSnapshot struct {
	Checkpoint int64
	Stage      string // name of the stage
	Subtask    int
	Nodes      []NodeSnapshot
	Merger     MergerState
	Channels   [][]byte // for each input channel the items that an overtaking barrier passed, encoded
	// Aborted says that a newer barrier came first. The snapshot is of no use as such, but the deltas in it
	// belong to whatever checkpoint follows.
	Aborted bool
}

// NodeSnapshot is the part of one node.
type NodeSnapshot struct {
	Node      string
	Watermark eventtime.Time // the last that the operator was told
	kernel.OpSnapshot
}

// SubtaskRestore is what a subtask starts from.
type SubtaskRestore struct {
	Checkpoint int64
	Nodes      map[string]NodeRestore
	Merger     MergerState
	Channels   [][]byte
}

// NodeRestore is the part of one node. Opening the backend, with its base and deltas, is the caller's.
type NodeRestore struct {
	Watermark eventtime.Time
	Blob      []byte
}
