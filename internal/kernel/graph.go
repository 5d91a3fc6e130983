package kernel

import (
	"context"
	"fmt"
	"time"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// Graph is a pipeline as plain data and factories closed over its types. sdk makes it, runners read it.
type Graph struct {
	Name  string
	Nodes []*Node // every node after those that feed it
	// Clock is the processing time of a pipeline with a test script; nil: the scheduler's.
	Clock *Clock
}

// Node is one step.
type Node struct {
	ID     int    // index in Graph.Nodes
	Name   string // full name, unique: the identity of its state; scopes and step, joined by slashes
	Kind   string // what it does, one word: "map", "combine", …
	Fn     string // Go type of the user code, source or sink; "" for a plain function
	Loc    string // file:line that added it
	Inputs []Edge
	Ports  []Port          // outputs
	New    func() Operator // one for each subtask

	// Splits is set at sources: it lists what is to be read, encoded, in order. A job keeps one answer for its
	// life; before, it may be asked to find out whether there is one.
	Splits func(ctx context.Context) ([][]byte, error)
	// SetSplits gives a subtask's source operator its splits before Open. Nil elsewhere.
	SetSplits func(op Operator, splits [][]byte)

	Sink      *SinkNode // set at sinks
	Keyed     bool      // needs a state backend
	Unbounded bool      // a source that never ends
	Single    bool      // runs as one subtask whatever the parallelism of the job
	LateTo    bool      // what comes after its window has expired goes to an output
	Expires   bool      // runs user code when the life of a window ends
	// Spec is what the step does, as lines of name=value, and State what it keeps in checkpoints. Two runs
	// of a job must have the same State; workers of a job the same of both.
	Spec  []string
	State []StatePart
}

// StatePart is one thing that a step keeps in checkpoints, and how it is encoded.
type StatePart struct {
	Kind  string      // key, accumulator, windows, split, committable, cell, timer or in flight
	Name  string      // of a cell or timer
	Type  string      // what the coder does not say: "value" of a cell, "event time" of a timer, "event time by tag" of a family
	Coder *coder.Spec // nil if Type says it all
}

// Encoding says how the part is encoded. Parts with equal encodings can be read as each other.
func (s StatePart) Encoding() string {
	switch {
	case s.Coder == nil:
		return s.Type
	case s.Type == "":
		return s.Coder.String()
	}
	return s.Type + " " + s.Coder.String()
}

// String is the line of the part in a Plan. The digests of running jobs depend on it.
func (s StatePart) String() string {
	if s.Name == "" {
		return s.Kind + "=" + s.Encoding()
	}
	return fmt.Sprintf("%s %q: %s", s.Kind, s.Name, s.Encoding())
}

// SinkNode is the part of a sink that runs beside the coordinator.
type SinkNode struct {
	Check  func(ctx context.Context, pending bool) error // see connector.Checker
	Start  func(ctx context.Context, fresh bool) error
	Commit func(ctx context.Context, checkpoint int64, committables [][]byte) error
}

// Port is one output of a node.
type Port struct {
	Name  string
	Type  string     // of the elements, for messages and plans
	Codec BatchCodec // nil for an output that nobody reads

	// What plans tell of the collection.
	Coder     coder.Spec // of the elements
	Bounded   bool
	Windowing Strategy
}

// Strategy is how the elements of a collection are grouped in time. Two that mean the same have the same String; they are
// not compared by ==.
type Strategy struct {
	Fn              window.Fn
	Trigger         trigger.Trigger // canonical
	AllowedLateness int64           // ms
	Accumulation    Accumulation
	Timestamps      TimestampCombiner
	EmptyOnTime     bool // a pane at the end of the window also if nothing came since the pane before
	EmptyLast       bool // a pane at its expiry also if nothing came since the pane before
}

// String is the identity of the strategy.
func (s Strategy) String() string {
	return s.text(fmt.Sprintf("%+v %v lateness=%dms", s.Fn, s.Trigger, s.AllowedLateness))
}

// Describe is the strategy for messages.
func (s Strategy) Describe() string {
	lateness := time.Duration(s.AllowedLateness) * time.Millisecond
	return s.text(fmt.Sprintf("%s, trigger %v, lateness %v,", window.Describe(s.Fn), s.Trigger, lateness))
}

func (s Strategy) text(t string) string {
	t += " " + s.Accumulation.String()
	if s.Timestamps != EndOfWindow {
		t += " timestamps=" + s.Timestamps.String()
	}
	if s.EmptyOnTime {
		t += " empty on-time panes"
	}
	if s.EmptyLast {
		t += " empty last panes"
	}
	return t
}

// Accumulation says what a pane contains if a window fires more than once.
type Accumulation uint8

// Discarding: the elements since the pane before. Accumulating: all of the window so far. Retracting: as Accumulating, and the pane
// before is sent again first, marked as taken back.
const (
	Discarding Accumulation = iota
	Accumulating
	Retracting
)

func (a Accumulation) String() string {
	return [...]string{"discarding", "accumulating", "accumulating and retracting"}[a]
}

// TimestampCombiner says which timestamp a pane has.
type TimestampCombiner uint8

// EndOfWindow: the last millisecond of its window. Earliest and Latest: that of its elements; one behind the watermark of the output counts
// as the end of its window (docs/design/panes.md).
const (
	EndOfWindow TimestampCombiner = iota
	Earliest
	Latest
)

func (t TimestampCombiner) String() string {
	return [...]string{"end of window", "earliest", "latest"}[t]
}

// Exchange says how elements find the subtask that gets them.
type Exchange uint8

const (
	Forward    Exchange = iota // to the subtask of the same index
	ByKey                      // to the subtask that has the key group of their key
	RoundRobin                 // to all in turn
	Broadcast                  // to each of them, a copy
)

func (e Exchange) String() string {
	return [...]string{"forward", "by key", "round robin", "broadcast"}[e]
}

// Edge brings the output Port of From to the node that has the edge.
type Edge struct {
	From     *Node
	Port     int
	Exchange Exchange
	// Splitter makes one sender's half of the edge, for a number of targets.
	Splitter func(c SplitContext) Splitter
	// Lifts says that the Splitter runs user code of the receiving node.
	Lifts bool
	// Codec is for elements that leave the process or are stored in a checkpoint.
	Codec BatchCodec
	// Side is set if the node reads the collection as a side view: the watermark of this input is told to it apart,
	// see SideReader. Such a node begins a stage.
	Side *Side
}

// Side is what plans tell of a side view.
type Side struct {
	View string // full name
	Kind string // singleton, slice, map, multimap or signal
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
