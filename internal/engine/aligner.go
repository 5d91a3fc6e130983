package engine

// Aligner decides what the barriers of a subtask's input channels mean. It is pure: events in, actions
// out; its host does the work. One checkpoint is in progress at a time.
//
//	          Barrier, first                 all channels arrived or finished
//	none ───────────────────▶ aligning ────────────────────────────────────▶ none   (snapshot)
//	  │                          │
//	  │ Overtaken, first         │ Overtaken or Timeout
//	  └───────(snapshot)─────▶ recording ──────────────────────────────────▶ none   (complete)
//
// While aligning, channels whose barrier has come are held. While recording, the snapshot is already
// taken, nothing is held, and what is popped from a channel whose barrier has not come belongs to it.
type Aligner struct {
	current   int64 // newest checkpoint seen
	phase     phase
	triggered int64 // newest checkpoint of which the coordinator told us
	arrived   []bool
	finished  []bool
}

type phase uint8

const (
	phaseNone phase = iota
	phaseAligning
	phaseRecording
)

// actionKind is what the host must do, in the order given.
type actionKind uint8

const (
	actHold     actionKind = iota // hold channel
	actRelease                    // release all held channels
	actSnapshot                   // send the barrier on, aligned, and snapshot; nothing is recorded
	actTakeOver                   // send the barrier on, overtaking, and snapshot; then record
	actRecord                     // the barrier of channel is at its mark: record what is queued before it
	actComplete                   // the snapshot has all it needs
	actAbort                      // forget the snapshot in progress
)

type action struct {
	kind       actionKind
	channel    int
	checkpoint int64
}

// NewAligner returns an Aligner for so many channels; 0 for a source.
func NewAligner(channels int) *Aligner {
	return &Aligner{arrived: make([]bool, channels), finished: make([]bool, channels)}
}

// Recording says whether what is popped from channel i now belongs to the snapshot.
func (a *Aligner) Recording(i int) bool {
	return a.phase == phaseRecording && !a.arrived[i] && !a.finished[i]
}

// Aligning returns the checkpoint that waits for barriers, or 0.
func (a *Aligner) Aligning() int64 {
	if a.phase == phaseAligning {
		return a.current
	}
	return 0
}

// Seen says whether the snapshot of a checkpoint was taken or given up.
func (a *Aligner) Seen(checkpoint int64) bool {
	return checkpoint == 0 || checkpoint < a.current || checkpoint == a.current && a.phase != phaseAligning
}

// Barrier: an aligned barrier was popped from channel i.
func (a *Aligner) Barrier(i int, checkpoint int64) []action {
	acts, ok := a.enter(checkpoint)
	if !ok || a.arrived[i] {
		return acts
	}
	a.arrived[i] = true
	if a.phase == phaseRecording {
		return a.completeIfAll(acts) // everything before it was recorded when it was popped
	}
	a.phase = phaseAligning
	if !a.all() {
		return append(acts, action{actHold, i, checkpoint})
	}
	a.phase = phaseNone
	return append(acts, action{actRelease, 0, checkpoint}, action{actSnapshot, 0, checkpoint}, action{actComplete, 0, checkpoint})
}

// Overtaken: the mark of an overtaking barrier is in channel i.
func (a *Aligner) Overtaken(i int, checkpoint int64) []action {
	acts, ok := a.enter(checkpoint)
	if !ok || a.arrived[i] || a.finished[i] {
		return acts
	}
	if a.phase != phaseRecording {
		acts = a.takeOver(acts)
	}
	a.arrived[i] = true
	return a.completeIfAll(append(acts, action{actRecord, i, checkpoint}))
}

// Timeout: the aligned barriers of a checkpoint have waited long enough. The host then looks for those
// that are queued and reports each as Overtaken.
func (a *Aligner) Timeout(checkpoint int64) []action {
	if a.Seen(checkpoint) {
		return nil
	}
	acts, _ := a.enter(checkpoint)
	return a.completeIfAll(a.takeOver(acts))
}

// Trigger: the coordinator starts a checkpoint. A subtask without open inputs takes it at once; others
// wait for barriers.
func (a *Aligner) Trigger(checkpoint int64) []action {
	a.triggered = max(a.triggered, checkpoint)
	return a.triggerIfOpen(nil)
}

// Finish: channel i is at its end. It counts as arrived.
func (a *Aligner) Finish(i int) []action {
	a.finished[i] = true
	var acts []action
	switch a.phase {
	case phaseAligning:
		if a.all() {
			a.phase = phaseNone
			acts = []action{{actRelease, 0, a.current}, {actSnapshot, 0, a.current}, {actComplete, 0, a.current}}
		}
	case phaseRecording:
		acts = a.completeIfAll(nil)
	}
	return a.triggerIfOpen(acts) // a newer one may have been triggered already: no barrier will bring it
}

// AllFinished says whether every channel is at its end; true for a source.
func (a *Aligner) AllFinished() bool {
	for _, f := range a.finished {
		if !f {
			return false
		}
	}
	return true
}

// enter makes checkpoint the current one, giving up an older one. It returns false for one that is over.
func (a *Aligner) enter(checkpoint int64) ([]action, bool) {
	if checkpoint < a.current || checkpoint == a.current && a.phase == phaseNone {
		return nil, false
	}
	if checkpoint == a.current {
		return nil, true
	}
	var acts []action
	if a.phase != phaseNone {
		acts = append(acts, action{actRelease, 0, a.current}, action{actAbort, 0, a.current})
	}
	a.current, a.phase = checkpoint, phaseAligning
	clear(a.arrived)
	return acts, true
}

func (a *Aligner) takeOver(acts []action) []action {
	a.phase = phaseRecording
	return append(acts, action{actRelease, 0, a.current}, action{actTakeOver, 0, a.current})
}

func (a *Aligner) triggerIfOpen(acts []action) []action {
	if a.triggered <= a.current || !a.AllFinished() {
		return acts
	}
	more, _ := a.enter(a.triggered)
	a.phase = phaseNone
	return append(append(acts, more...), action{actSnapshot, 0, a.current}, action{actComplete, 0, a.current})
}

func (a *Aligner) all() bool {
	for i := range a.arrived {
		if !a.arrived[i] && !a.finished[i] {
			return false
		}
	}
	return true
}

func (a *Aligner) completeIfAll(acts []action) []action {
	if !a.all() {
		return acts
	}
	a.phase = phaseNone
	return append(acts, action{actComplete, 0, a.current})
}
