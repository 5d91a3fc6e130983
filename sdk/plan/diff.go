package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"

	"github.com/millstream/millstream/internal/kernel"
)

// Changes is what a new plan has unlike an old one. Everything is in the order of the new plan's steps, and what
// only the old one has comes after.
type Changes struct {
	Job   string // its name in the new plan
	Steps []StepChange
	State []StateChange // every step with state in either plan, also what is kept
	// Obstacles say why the new program could not go on from a checkpoint of the old one. There are none if it
	// can.
	Obstacles []string
}

// How is the way in which a step changed.
type How string

const (
	Added   How = "added"
	Removed How = "removed"
	Renamed How = "renamed" // so it looks: all else is the same
	Changed How = "changed"
)

// StepChange is a step that is not the same in both plans.
type StepChange struct {
	How        How
	Step       string
	Was        string // the old name of a renamed step
	Kind       string
	Location   string // file:line in the new program, of a removed step in the old
	Properties []Property
}

// Property is something of a changed step, as text.
type Property struct{ Name, Old, New string }

// Diff compares two plans. It fails if one of them is not of a Millstream program.
func Diff(old, new *pipepb.Pipeline) (*Changes, error) {
	a, err := read(old)
	if err != nil {
		return nil, fmt.Errorf("the old plan: %w", err)
	}
	b, err := read(new)
	if err != nil {
		return nil, fmt.Errorf("the new plan: %w", err)
	}
	c := &Changes{Job: b.Name, Steps: stepChanges(a, b), State: stateChanges(a, b)}
	c.Obstacles = obstacles(a, b, c.State)
	return c, nil
}

func stepChanges(a, b *pipeline) (out []StepChange) {
	was := map[string]string{} // the old names of the new steps that had one
	taken := map[string]bool{} // the old names among them
	for _, s := range b.steps {
		if a.byName[s.name] != nil {
			was[s.name] = s.name
		}
	}
	for _, s := range b.steps {
		if was[s.name] != "" {
			if props := properties(a.byName[s.name], s, was); len(props) > 0 {
				out = append(out, StepChange{Changed, s.name, "", s.Kind, s.Location, props})
			}
			continue
		}
		i := slices.IndexFunc(a.steps, func(o *step) bool {
			return b.byName[o.name] == nil && !taken[o.name] && len(properties(o, s, was)) == 0 && slices.Equal(o.State, s.State)
		})
		if i < 0 {
			out = append(out, StepChange{Added, s.name, "", s.Kind, s.Location, nil})
			continue
		}
		o := a.steps[i].name
		was[s.name], taken[o] = o, true
		out = append(out, StepChange{Renamed, s.name, o, s.Kind, s.Location, nil})
	}
	for _, o := range a.steps {
		if b.byName[o.name] == nil && !taken[o.name] {
			out = append(out, StepChange{Removed, o.name, "", o.Kind, o.Location, nil})
		}
	}
	return out
}

// properties are those in which two versions of a step differ. was has the old names of steps before s.
func properties(o, s *step, was map[string]string) (out []Property) {
	differ := func(name, old, new string) {
		if old != new {
			out = append(out, Property{name, cmp.Or(old, "none"), cmp.Or(new, "none")})
		}
	}
	differ("kind", o.Kind, s.Kind)
	differ("code", o.Fn, s.Fn)
	same := func(i, j input) bool {
		return i.from.name == was[j.from.name] && i.tag == j.tag && i.exchange == j.exchange
	}
	if !slices.EqualFunc(o.inputs, s.inputs, same) {
		differ("inputs", inputsText(o), inputsText(s))
	}
	differ("subtasks", subtasks(o), subtasks(s))
	tags := maps.Clone(o.outs)
	maps.Copy(tags, s.outs)
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		p, q := o.outs[tag], s.outs[tag]
		differ(fmt.Sprintf("output %q", tag), p.coder, q.coder)
		if p.coder == "" || q.coder == "" {
			continue
		}
		if len(s.inputs) == 0 {
			differ("input", p.boundedness, q.boundedness)
		}
		if s.Kind != "window" {
			continue // what others put out follows from their input
		}
		for i, name := range windowingNames {
			differ(name, p.windowing[i], q.windowing[i])
		}
	}
	return out
}

func inputsText(s *step) string {
	var parts []string
	for _, in := range s.inputs {
		text := fmt.Sprintf("%q", in.from.name)
		if in.tag != "out" {
			text += fmt.Sprintf(" output %q", in.tag)
		}
		if in.exchange != kernel.Forward.String() {
			text += " " + in.exchange
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func subtasks(s *step) string {
	if s.Single {
		return "one"
	}
	return "as many as the job's parallelism"
}

// String is the comparison as text, for people.
func (c *Changes) String() string {
	var b strings.Builder
	counts := map[How]int{}
	for _, s := range c.Steps {
		counts[s.How]++
	}
	var parts []string
	for _, how := range []How{Added, Removed, Renamed, Changed} {
		if counts[how] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[how], how))
		}
	}
	fmt.Fprintf(&b, "steps of %q: %s\n", c.Job, cmp.Or(strings.Join(parts, ", "), "no change"))
	for _, s := range c.Steps {
		switch at := " (" + s.Location + ")"; s.How {
		case Added:
			fmt.Fprintf(&b, "  + %q: %s%s\n", s.Step, s.Kind, at)
		case Removed:
			fmt.Fprintf(&b, "  - %q: %s\n", s.Step, s.Kind)
		case Renamed:
			fmt.Fprintf(&b, "  > %q: looks like %q, renamed%s\n", s.Step, s.Was, at)
		case Changed:
			fmt.Fprintf(&b, "  ~ %q%s\n", s.Step, at)
			writeProperties(&b, s.Properties)
		}
	}
	b.WriteString("state:\n")
	for _, s := range c.State {
		fmt.Fprintf(&b, "  %-12s  %q: %s\n", s.How, s.Step, strings.Join(s.Parts, ", "))
		writeProperties(&b, s.Differences)
	}
	if len(c.State) == 0 {
		b.WriteString("  none\n")
	}
	if len(c.Obstacles) == 0 {
		b.WriteString("restore: the new program can go on from a checkpoint of the old one\n")
		return b.String()
	}
	b.WriteString("restore: the new program cannot go on from a checkpoint of the old one:\n")
	for _, o := range c.Obstacles {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	b.WriteString("undo what stands in the way, or begin anew: --new-run, or another --checkpoint-dir\n")
	return b.String()
}

func writeProperties(b *strings.Builder, ps []Property) {
	for _, p := range ps {
		fmt.Fprintf(b, "      %s: %s -> %s\n", p.Name, p.Old, p.New)
	}
}
