package kernel

import (
	"context"

	"github.com/millstream/millstream/sdk/connector"
)

// Graph is a pipeline as plain data and factories closed over its types. sdk makes it, runners read it.
type Graph struct {
	Name  string
	Nodes []*Node // every node after those that feed it
}

// Node is one step.
type Node struct {
	ID     int    // index in Graph.Nodes
	Name   string // full name, unique: the identity of its state
	Kind   string // what it does, one word: "map", "combine", …
	Loc    string // file:line that added it
	Inputs []Edge
	Ports  []Port          // outputs
	New    func() Operator // one for each subtask

	// Splitter is set at sources: lists what is to be read, encoded, in order. It is called once in the
	// life of a job.
	Splits func(ctx context.Context) ([][]byte, error)
	// SetSplits gives a subtask's source operator its splits before Open. Nil elsewhere.
	SetSplits func(op Operator, splits [][]byte)

	Sink      *SinkNode // set at sinks
	Keyed     bool      // needs a state backend
	Unbounded bool      // a source that never ends
	Single    bool      // runs as one subtask whatever the parallelism of the job
	// Spec is what the step does and State how its state is encoded, as lines of name=value. Two runs of
	// a job must have the same State; workers of a job the same of both.
	Spec, State []string
}

// SinkNode is the part of a sink that runs beside the coordinator.
type SinkNode struct {
	Start  func(ctx context.Context, fresh bool) error
	Commit func(ctx context.Context, checkpoint int64, committables [][]byte) error
}

// Port is one output of a node.
type Port struct {
	Name  string
	Type  string     // of the elements, for messages and plans
	Codec BatchCodec // nil for an output that nobody reads
}

// Exchange says how elements find the subtask that gets them.
type Exchange uint8

const (
	Forward    Exchange = iota // to the subtask of the same index
	ByKey                      // to the subtask that has the key group of their key
	RoundRobin                 // to all in turn
)

func (e Exchange) String() string { return [...]string{"forward", "by key", "round robin"}[e] }

// Edge brings the output Port of From to the node that has the edge.
type Edge struct {
	From     *Node
	Port     int
	Exchange Exchange
	// Splitter makes one sender's half of the edge, for a number of targets.
	Splitter func(c SplitContext) Splitter
	// Codec is for elements that leave the process or are stored in a checkpoint.
	Codec BatchCodec
}

// SplitContext is what a Splitter is made for.
type SplitContext struct {
	Subtask connector.Subtask // the sender
	Targets int
	Groups  int // key groups of the job
	Exchange
}

// Splitter spreads batches over targets. It belongs to one goroutine.
type Splitter interface {
	// Split copies the rows of b into batches for their targets and sends each that is full. A sent batch
	// belongs to its receiver, who calls Recycle on the Codec when done.
	Split(b Batch, send func(target int, b Batch) error) error
	// Flush sends every part-full batch.
	Flush(send func(target int, b Batch) error) error
}

// BatchCodec encodes batches of one element type and recycles them. It is used by many goroutines.
type BatchCodec interface {
	Append(dst []byte, b Batch) ([]byte, error)
	Decode(src []byte) (Batch, error)
	// Recycle takes back a batch that a Splitter or Decode made and nobody refers to any more.
	Recycle(b Batch)
}
