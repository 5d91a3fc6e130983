package coordinator

import (
	"regexp"
	"strings"
)

// retries counts failures by step and error: a failure is tried again limit times, so that limit + 1 attempts meet it.
// A count is forgotten only once a checkpoint is complete that
// was triggered after the step had passed the place where it failed: a checkpoint before that place says
// nothing about the next time it is reached, and a job would go on failing for ever.
//
// The place is a number of records that the step's subtask had taken in the attempt that failed. A later
// attempt starts from the same checkpoint or a newer one, so that it has passed the place when it has taken more.
type retries struct {
	limit int
	seen  map[failureKey]*failure
}

type failureKey struct{ step, err string }

type failure struct {
	count   int
	attempt int64 // the newest that failed so
	subtask int
	records int64
	running bool // it came in a step that ran, not before the attempt or beside it
	passed  bool
	resetBy int64 // a checkpoint that was triggered after the place had been passed; 0: none
}

// failed counts a failure, once for each attempt, and says how often it has come and whether to try again.
func (r *retries) failed(e StepFailed) (n int, more bool) {
	if r.seen == nil {
		r.seen = map[failureKey]*failure{}
	}
	k := failureKey{e.Step, stable(e.Err.Error())}
	f := r.seen[k]
	if f == nil {
		f = &failure{}
		r.seen[k] = f
	}
	if e.Attempt > f.attempt {
		f.count++
		f.attempt, f.subtask, f.records, f.running = e.Attempt, e.Subtask, e.Records, e.Worker != 0 && e.Step != ""
	}
	f.passed, f.resetBy = false, 0
	return f.count, f.count <= r.limit
}

// varying are the parts of messages that differ although the failure is the same: numbers of attempts and
// checkpoints, random names of files and objects.
var varying = regexp.MustCompile(`[0-9A-Z]{8,}|[0-9]+`)

// stable is what failures of one kind have in common.
func stable(text string) string {
	text, _, _ = strings.Cut(text, "\n") // what follows may be a stack, which is never the same twice
	return varying.ReplaceAllString(text, "#")
}

// progress takes what the steps of an attempt have taken so far.
func (r *retries) progress(attempt int64, counts []Count) {
	for k, f := range r.seen {
		if f.passed || attempt <= f.attempt {
			continue
		}
		if !f.running { // the attempt runs, so it has passed
			f.passed = true
		}
		for _, c := range counts {
			if c.Step == k.step && c.Subtask == f.subtask && c.Records > f.records {
				f.passed = true
			}
		}
	}
}

func (r *retries) triggered(checkpoint int64) {
	for _, f := range r.seen {
		if f.passed && f.resetBy == 0 {
			f.resetBy = checkpoint
		}
	}
}

func (r *retries) completed(checkpoint int64) {
	for k, f := range r.seen {
		if f.resetBy != 0 && checkpoint >= f.resetBy {
			delete(r.seen, k)
		}
	}
}

// rewound says that the attempt has ended: the next one is before the places again.
func (r *retries) rewound() {
	for _, f := range r.seen {
		f.passed, f.resetBy = false, 0
	}
}
