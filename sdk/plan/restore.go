package plan

import (
	"fmt"
	"slices"
)

// Fate is what becomes of a step's state.
type Fate string

const (
	Kept         Fate = "kept"
	Dropped      Fate = "dropped"
	New          Fate = "new"
	Incompatible Fate = "incompatible" // the new program cannot read it
)

// StateChange is what becomes of one step's state.
type StateChange struct {
	How         Fate
	Step        string
	Parts       []string // key, accumulator, cell "clicks", …: of the new program, unless it is dropped
	Differences []Property
}

func stateChanges(a, b *pipeline) (out []StateChange) {
	for _, s := range b.steps {
		if !s.stateful() {
			continue
		}
		c := StateChange{How: Kept, Step: s.name, Parts: partNames(s)}
		if o := a.byName[s.name]; o == nil || !o.stateful() {
			c.How = New
		} else if c.Differences = stateDifferences(o, s); len(c.Differences) > 0 {
			c.How = Incompatible
		}
		out = append(out, c)
	}
	for _, o := range a.steps {
		if s := b.byName[o.name]; o.stateful() && (s == nil || !s.stateful()) {
			out = append(out, StateChange{How: Dropped, Step: o.name, Parts: partNames(o)})
		}
	}
	return out
}

func (p statePart) label() string {
	if p.Name == "" {
		return p.Kind
	}
	return fmt.Sprintf("%s %q", p.Kind, p.Name)
}

func partNames(s *step) (out []string) {
	for _, p := range s.State {
		out = append(out, p.label())
	}
	return out
}

// stateDifferences say why a step cannot go on with what it kept.
func stateDifferences(o, s *step) (out []Property) {
	if o.Kind != s.Kind {
		out = append(out, Property{"kind", o.Kind, s.Kind})
	}
	find := func(in []statePart, label string) string {
		for _, p := range in {
			if p.label() == label {
				return p.Encoding
			}
		}
		return "none"
	}
	for _, p := range o.State {
		if now := find(s.State, p.label()); now != p.Encoding {
			out = append(out, Property{p.label(), p.Encoding, now})
		}
	}
	for _, p := range s.State {
		if find(o.State, p.label()) == "none" {
			out = append(out, Property{p.label(), "none", p.Encoding})
		}
	}
	if len(out) == 0 && !slices.Equal(o.State, s.State) {
		out = append(out, Property{"order of declaration", fmt.Sprint(partNames(o)), fmt.Sprint(partNames(s))})
	}
	if o.stage.name != s.stage.name {
		out = append(out, Property{"runs in the stage of", fmt.Sprintf("%q", o.stage.name), fmt.Sprintf("%q", s.stage.name)})
	}
	return out
}

// obstacles to a restore: that of the coordinator, which compares jobs, key groups and state, and that of the
// subtasks, which look for what their stage recorded, and read into its inputs what was on its way.
func obstacles(a, b *pipeline, state []StateChange) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a.Name != b.Name {
		add("the job was %q: a checkpoint belongs to the job of its name", a.Name)
	}
	if a.KeyGroups != b.KeyGroups {
		add("there were %d key groups, and are %d: their number is fixed for a job's life", a.KeyGroups, b.KeyGroups)
	}
	for _, s := range state {
		switch s.How {
		case Incompatible:
			add("the state of %q is incompatible", s.Step)
		case New:
			add("the state of %q is new: a checkpoint has none of it", s.Step)
		case Dropped:
			add("the state of %q would be dropped: state is found by the names of steps", s.Step)
		}
	}
	if len(out) > 0 {
		return out // what follows from them would only be said once more
	}
	names := func(in *pipeline) (out []string) {
		for _, s := range in.steps {
			if s.stateful() {
				out = append(out, s.name)
			}
		}
		return out
	}
	if was, is := names(a), names(b); !slices.Equal(was, is) {
		add("the steps with state are in another order: it was %q, and is %q", was, is)
	}
	for _, s := range b.steps {
		o := a.byName[s.name]
		switch begins, began := s.stage == s, o != nil && o.stage == o; {
		case begins && !began:
			add("%q begins a stage, and did not: a checkpoint has nothing of it", s.name)
		case begins && !slices.EqualFunc(o.inputs, s.inputs, sameChannels):
			add("the inputs of %q are others: what was on its way to it could not be read", s.name)
		}
	}
	for _, o := range a.steps {
		if s := b.byName[o.name]; o.stage == o && (s == nil || s.stage != s) {
			add("%q began a stage, and does not: what was on its way to it would be lost", o.name)
		}
	}
	return out
}

// sameChannels says that what was on its way on i can go on its way on j.
func sameChannels(i, j input) bool {
	return i.exchange == j.exchange && i.from.stage.name == j.from.stage.name && i.from.Single == j.from.Single &&
		i.from.outs[i.tag].coder == j.from.outs[j.tag].coder
}
