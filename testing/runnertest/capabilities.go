package runnertest

import (
	"fmt"
	"slices"
	"strings"
)

// Row is a row of Beam's capability matrix (https://beam.apache.org/documentation/runners/capability-matrix/).
type Row string

// The rows, in the matrix's order.
const (
	PerElement             Row = "ParDo"
	Grouping               Row = "GroupByKey"
	Flattening             Row = "Flatten"
	Combining              Row = "Combine"
	Composites             Row = "Composite transforms"
	SideInputs             Row = "Side inputs"
	SourceAPI              Row = "Source API"
	UserMetrics            Row = "Metrics"
	StatefulProcessing     Row = "Stateful processing"
	SplittableDoFn         Row = "Splittable DoFn"
	GlobalWindows          Row = "Global windows"
	FixedWindowing         Row = "Fixed windows"
	SlidingWindowing       Row = "Sliding windows"
	SessionWindowing       Row = "Session windows"
	CustomWindowing        Row = "Custom windows"
	CustomMerging          Row = "Custom merging windows"
	TimestampControl       Row = "Timestamp control"
	ConfigurableTriggers   Row = "Configurable triggering"
	EventTimeTriggers      Row = "Event-time triggers"
	ProcessingTimeTriggers Row = "Processing-time triggers"
	CountTriggers          Row = "Count triggers"
	CompositeTriggers      Row = "Composite triggers"
	Lateness               Row = "Allowed lateness"
	Timers                 Row = "Timers"
	DiscardingPanes        Row = "Discarding"
	AccumulatingPanes      Row = "Accumulating"
	RetractingPanes        Row = "Accumulating and retracting"
	Drain                  Row = "Drain"
	Checkpoint             Row = "Checkpoint"
)

// Matrix is the rows under the matrix's four questions, and what else it has.
var Matrix = []struct {
	Question string
	Rows     []Row
}{
	{"What is being computed?", []Row{PerElement, Grouping, Flattening, Combining, Composites, SideInputs, SourceAPI, UserMetrics, StatefulProcessing, SplittableDoFn}},
	{"Where in event time?", []Row{GlobalWindows, FixedWindowing, SlidingWindowing, SessionWindowing, CustomWindowing, CustomMerging, TimestampControl}},
	{"When in processing time?", []Row{ConfigurableTriggers, EventTimeTriggers, ProcessingTimeTriggers, CountTriggers, CompositeTriggers, Lateness, Timers}},
	{"How do refinements relate?", []Row{DiscardingPanes, AccumulatingPanes, RetractingPanes}},
	{"Additional features", []Row{Drain, Checkpoint}},
}

// notes are what a row's cases do not say.
var notes = map[Row]string{
	SplittableDoFn: "no: sources are connectors, whose readers have splits and positions",
	Drain:          "no: a job that is stopped takes a last checkpoint, and goes on from it",
	Checkpoint:     "yes: every way below with a crash; exactly once",
}

// Capabilities is docs/capabilities.md: what the runners can do. Each has one way to run or more.
func Capabilities(runners []Runner) string {
	var b strings.Builder
	b.WriteString(`# What the runners can do

In the rows of [Beam's capability matrix](https://beam.apache.org/documentation/runners/capability-matrix/). Made by
` + "`make conformance`" + ` from the cases of [testing/runnertest](../testing/runnertest), each of which is a pipeline with its assertions,
and from the gaps that runners declare: a gap that is none fails, as does a case that does not pass.

`)
	for _, q := range Matrix {
		fmt.Fprintf(&b, "## %s\n\n| |", q.Question)
		for _, r := range runners {
			fmt.Fprintf(&b, " %s |", r.Name)
		}
		b.WriteString(" cases |\n|---|")
		b.WriteString(strings.Repeat("---|", len(runners)+1))
		b.WriteString("\n")
		for _, row := range q.Rows {
			var names []string
			for _, c := range Cases {
				if slices.Contains(c.Rows, row) {
					names = append(names, c.Name)
				}
			}
			fmt.Fprintf(&b, "| %s |", row)
			for _, r := range runners {
				fmt.Fprintf(&b, " %s |", mark(r, names))
			}
			why := strings.Join(names, ", ")
			if n := notes[row]; n != "" {
				why = n
			}
			fmt.Fprintf(&b, " %s |\n", why)
		}
		b.WriteString("\n")
	}
	b.WriteString("## Gaps\n\n")
	for _, r := range runners {
		for _, c := range Cases {
			if why := r.Gaps[c.Name]; why != "" {
				fmt.Fprintf(&b, "- %s, %s: %s\n", r.Name, c.Name, why)
			}
		}
	}
	return b.String()
}

// mark says how many of the cases the runner passes.
func mark(r Runner, names []string) string {
	gaps := 0
	for _, n := range names {
		if r.Gaps[n] != "" {
			gaps++
		}
	}
	switch {
	case len(names) == 0:
		return "–"
	case gaps == 0:
		return fmt.Sprintf("✓ %d", len(names))
	}
	return fmt.Sprintf("%d of %d", len(names)-gaps, len(names))
}
