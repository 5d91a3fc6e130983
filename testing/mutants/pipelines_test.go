package mutants

// These find what is wrong only in a whole pipeline: how sdk builds it, what goes from step to step.
var (
	pipelines = finder{"./testing/twin/e2e", "EventByEvent|InAnyOrder", []string{"-rapid.checks=1000"}}
	restored  = finder{"./testing/twin/e2e", "TestPipelinesThatWereFound", nil}
)

const (
	groupGo   = "sdk/group.go"
	windowGo  = "sdk/window.go"
	changesGo = "internal/kernel/changes.go"
	muteGo    = "internal/engine/mute.go"
)

// Pipelines beside the twin (testing/twin/e2e).
func init() {
	mutants = append(mutants, []mutant{
		{"sdk does not pass empty panes on", groupGo, "EmptyOnTime: w.EmptyOnTime, EmptyLast: w.EmptyLast,", "EmptyOnTime: w.EmptyOnTime,", pipelines},
		{"sdk takes lateness for seconds", windowGo, "w.AllowedLateness = config.lateness.Milliseconds()", "w.AllowedLateness = config.lateness.Milliseconds() / 1000", pipelines},
		{"windows that merge are merged again by the next aggregation", groupGo, "c.windowing.Fn = window.Merged(c.windowing.Fn)", "_ = 0", pipelines},
		{"elements of slices are lifted with those of another", liftGo, "err := l.drain(send)\n", "var err error\n", pipelines},
		{"a retraction is an element", changesGo, "Change[T]{e.Value, e.Pane.Retraction()}", "Change[T]{e.Value, false}", pipelines},
		{"a window that has fired takes elements for its slices", slicesGo, "s.fireAt = 0 //", "s.fireAt = never //", pipelines},
		{"a restored chain goes on before it knows where it was", chainGo, "c.repeating, c.pos = true, len(c.ops)-1", "c.repeating, c.pos = true, 0", restored},
		{"sources of other processes hold though they have nothing", muteGo, "mute[i] = len(st.In) > 0 || root", "mute[i] = j.local(st, i) && len(st.In) > 0 || j.local(st, i) && root", lateJobs},
	}...)
}
