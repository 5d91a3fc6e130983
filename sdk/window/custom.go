package window

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/millstream/millstream/internal/eventtime"
)

// Assigner is what a user of Custom implements. One value serves all subtasks at once, so its methods must not change it. They
// must give the same result for the same arguments, on every machine: after a restore they are asked again.
type Assigner interface {
	// Assign appends the windows of an element at t to dst: any number up to MaxCopies, made by Between. t is in UTC, and whole
	// milliseconds. An element without a window vanishes. A window need not hold t: what makes an element late is
	// that its window has expired, and not t. Order and repetition of the windows mean nothing.
	Assign(dst []Window, t time.Time) []Window
}

// Merger is an Assigner whose windows merge, key by key.
type Merger interface {
	Assigner
	// Merge appends to dst which of the windows of a key become one. open has those that are open, in the order
	// of their starts, then ends. It is called whenever a window has been added. What is in no Merge stays as it
	// is. A window may be in one Merge alone. Into is often the span of From; it may be any other window, unless one is open
	// that is not in From. open must not be changed; From may be a part of it.
	Merge(dst []Merge, open []Window) []Merge
}

// MaxCopies is the greatest number of windows into which an element is copied.
const MaxCopies = 10_000

// CustomFn is what Custom returns.
type CustomFn struct {
	Name, Params string
	Assigner     Assigner
	// Merged says that the windows are results of an aggregation, and no longer merge.
	Merged bool
}

// Custom makes windows by the code of a. Name and params are their identity, in plans and for the state of a checkpoint:
// two with the same are taken for the same. So params must say all that a's windows depend on, such as "day=25", and
// change with it.
func Custom(name, params string, a Assigner) CustomFn {
	return CustomFn{Name: name, Params: params, Assigner: a}
}

func (CustomFn) windowFn() {}

func (f CustomFn) merged() Fn { f.Merged = true; return f }

func (f CustomFn) validate() error {
	switch {
	case f.Name == "":
		return fmt.Errorf("custom windows have no name: give window.Custom one, which is their identity")
	case !utf8.ValidString(f.Name) || !utf8.ValidString(f.Params):
		return fmt.Errorf("custom windows %q with %q: name and params must be UTF-8", f.Name, f.Params)
	case f.Assigner == nil:
		return fmt.Errorf("custom windows %q: no Assigner given", f.Name)
	case f.Merged:
		return fmt.Errorf("custom windows %q: merged ones come from an aggregation only; use window.Custom", f.Name)
	}
	return nil
}

// String is the identity of the windows. It is part of the state of an aggregation.
func (f CustomFn) String() string {
	s := fmt.Sprintf("{Custom:%q Params:%q", f.Name, f.Params)
	if f.Merged {
		s += " Merged:true"
	}
	return s + "}"
}

// Assign appends the windows of an element at t to dst, which is empty: sorted by Compare, each once. The error names what is wrong
// with the Assigner.
func (f CustomFn) Assign(dst []Window, t eventtime.Time) ([]Window, error) {
	dst = f.Assigner.Assign(dst[:0], t.Time())
	if len(dst) > MaxCopies {
		return dst, fmt.Errorf("custom windows %q put the element at %v into %d windows: at most %d are allowed", f.Name, t, len(dst), MaxCopies)
	}
	_, merges := f.Assigner.(Merger)
	for i, w := range dst {
		switch { // what lies outside of the range of event time is in its first or last millisecond
		case w.end <= eventtime.Min:
			w.end = eventtime.Min + 1
		case w.start >= eventtime.Max:
			w.start = eventtime.Max - 1
		case w.start >= w.end:
			return dst, fmt.Errorf("custom windows %q put the element at %v into the window %v, which is empty: its end must be after its start", f.Name, t, w)
		}
		if merges {
			w = withinTime(w)
		}
		dst[i] = w
	}
	if len(dst) > 1 {
		slices.SortFunc(dst, Window.Compare)
		dst = slices.Compact(dst)
	}
	return dst, nil
}

// Merge implements MergingFn. The error names what is wrong with the Merger.
func (f CustomFn) Merge(dst []Merge, open []Window) ([]Merge, error) {
	merger, ok := f.Assigner.(Merger)
	if !ok {
		return dst, fmt.Errorf("custom windows %q do not merge", f.Name)
	}
	had := len(dst)
	dst = merger.Merge(dst, open)
	if len(dst) < had {
		return dst, fmt.Errorf("custom windows %q: Merge returned less than it was given", f.Name)
	}
	var few [16]Window
	taken, made := few[:0:8], few[8:8]
	for i := range dst[had:] {
		m := &dst[had+i]
		if len(m.From) == 0 || m.Into.start >= m.Into.end {
			return dst, fmt.Errorf("custom windows %q merge %v into %v: both must not be empty", f.Name, m.From, m.Into)
		}
		m.Into = withinTime(m.Into)
		taken, made = append(taken, m.From...), append(made, m.Into)
	}
	slices.SortFunc(taken, CompareStarts)
	slices.SortFunc(made, CompareStarts)
	for i, w := range taken {
		if i > 0 && w == taken[i-1] {
			return dst, fmt.Errorf("custom windows %q merge %v twice", f.Name, w)
		}
		if !holds(open, w) {
			return dst, fmt.Errorf("custom windows %q merge %v, which is not open", f.Name, w)
		}
	}
	for i, w := range made {
		if i > 0 && w == made[i-1] {
			return dst, fmt.Errorf("custom windows %q merge twice into %v: make it one merge", f.Name, w)
		}
		if holds(open, w) && !holds(taken, w) {
			return dst, fmt.Errorf("custom windows %q merge into %v, which is open and not among what is merged", f.Name, w)
		}
	}
	return dst, nil
}

// holds says whether w is among ws, which are sorted by CompareStarts.
func holds(ws []Window, w Window) bool {
	_, found := slices.BinarySearchFunc(ws, w, CompareStarts)
	return found
}
