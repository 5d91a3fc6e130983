package coordinator

import (
	"github.com/millstream/millstream/internal/checkpoint"
)

// Event is what a Core is told.
type Event interface{ event() }

// The events of a Core. All that come from a worker carry its ID, and the attempt that they belong to.
type (
	// Tick says what time it is, in ms. It comes before any other event whose time matters.
	Tick struct{ Now int64 }
	// Joined says that a worker has proved that it runs the same program.
	Joined struct{ Worker WorkerID }
	// Left says that the connection of a worker has ended.
	Left struct {
		Worker WorkerID
		Reason string
	}
	// Heard is a heartbeat, with the progress of the worker's subtasks.
	Heard struct {
		Worker  WorkerID
		Attempt int64
		Counts  []Count
	}
	// Prepared says that the sinks are ready for the attempt, or that Step is not.
	Prepared struct {
		Attempt int64
		Step    string
		Err     error
		Deposed bool // another coordinator leads: the sinks were not touched
		// Permanent says that trying again will not help.
		Permanent bool
	}
	// Deployed says that a worker has built its part of the attempt and can be connected to.
	Deployed struct {
		Worker  WorkerID
		Attempt int64
	}
	// EndReached says that a subtask has processed everything.
	EndReached struct {
		Worker  WorkerID
		Attempt int64
		Subtask Subtask
	}
	// Acked brings the part of one subtask in a checkpoint; what it lists is durable.
	Acked struct {
		Worker  WorkerID
		Attempt int64
		Part    checkpoint.Part
	}
	// StepFailed says that an attempt has failed at a worker.
	StepFailed struct {
		Worker  WorkerID
		Attempt int64
		Step    string // "" if it is no step's failure
		Subtask int
		Records int64 // that the step had taken in this attempt
		Err     error
		Lost    bool // the worker could not reach another one: not a failure of the program
		// Permanent says that trying again will not help.
		Permanent bool
	}
	// Published is the outcome of Publish. After an error nothing is committed.
	Published struct {
		Checkpoint int64
		Err        error
	}
	// Committed is the outcome of Commit.
	Committed struct {
		Checkpoint int64
		Err        error
		Permanent  bool // trying again will not help
	}
	// StopRequested asks for a last checkpoint and the end.
	StopRequested struct{}
)

// Count is the number of records that a step has taken in one subtask since the attempt began.
type Count struct {
	Step    string
	Subtask int
	Records int64
}

func (Tick) event()          {}
func (Joined) event()        {}
func (Left) event()          {}
func (Heard) event()         {}
func (Prepared) event()      {}
func (Deployed) event()      {}
func (EndReached) event()    {}
func (Acked) event()         {}
func (StepFailed) event()    {}
func (Published) event()     {}
func (Committed) event()     {}
func (StopRequested) event() {}

// Action is what a Core wants done.
type Action interface{ action() }

// The actions of a Core.
type (
	// Prepare tells the sinks that an attempt starts; Prepared answers. Nothing is pending when it comes.
	Prepare struct {
		Attempt int64
		Fresh   bool // nothing is restored
	}
	// Deploy makes a worker build its part of an attempt: the subtasks with the indexes of its slots. Deployed
	// answers. An older attempt that still runs there ends first.
	Deploy struct {
		Worker  WorkerID
		Attempt int64
		Slots   []WorkerID
		Restore *checkpoint.Checkpoint // nil: none
	}
	// Begin makes a worker run what it has built: all have.
	Begin struct {
		Worker  WorkerID
		Attempt int64
	}
	// Cancel ends an attempt at a worker.
	Cancel struct {
		Worker  WorkerID
		Attempt int64
	}
	// Trigger starts a checkpoint at a worker; an Acked from each of its subtasks answers.
	Trigger struct {
		Worker     WorkerID
		Attempt    int64
		Checkpoint int64
		Overtake   bool
	}
	// Publish makes a checkpoint count; Published answers.
	Publish struct {
		Attempt  int64
		Manifest *checkpoint.Manifest // without the header
	}
	// Complete tells a worker that a checkpoint counts.
	Complete struct {
		Worker     WorkerID
		Attempt    int64
		Checkpoint int64
	}
	// Commit makes output visible that a published manifest lists; Committed answers.
	Commit struct {
		Checkpoint int64
		Outputs    []checkpoint.Output
	}
	// Collect deletes what is not needed since the checkpoint counts.
	Collect struct{ Checkpoint int64 }
	// Dismiss ends the connection of a worker.
	Dismiss struct {
		Worker WorkerID
		Reason string
	}
	// Finish is the last action.
	Finish struct {
		State State
		Err   error
	}
)

func (Prepare) action()  {}
func (Deploy) action()   {}
func (Begin) action()    {}
func (Cancel) action()   {}
func (Trigger) action()  {}
func (Publish) action()  {}
func (Complete) action() {}
func (Commit) action()   {}
func (Collect) action()  {}
func (Dismiss) action()  {}
func (Finish) action()   {}
