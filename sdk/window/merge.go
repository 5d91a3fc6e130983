package window

import (
	"cmp"

	"github.com/millstream/millstream/internal/eventtime"
)

// Merge says that windows of a key become one.
type Merge struct {
	From []Window // open ones, at least one
	Into Window
}

// MergingFn is a Fn whose windows merge, key by key: sessions, and custom windows whose Assigner is a Merger.
type MergingFn interface {
	Fn
	// Merge appends to dst which of the open windows of a key become one. open is sorted by CompareStarts, and
	// has no window twice. What is in no Merge stays as it is. From may be a part of open.
	Merge(dst []Merge, open []Window) ([]Merge, error)
	merged() Fn
}

// Merging returns fn if its windows merge. It returns false for the windows of a collection that an aggregation made: those
// have merged.
func Merging(fn Fn) (MergingFn, bool) {
	switch f := fn.(type) {
	case SessionsFn:
		return f, !f.Merged
	case CustomFn:
		_, merges := f.Assigner.(Merger)
		return f, merges && !f.Merged
	}
	return nil, false
}

// Merged is fn as an aggregation passes it on: its windows merge no more.
func Merged(fn Fn) Fn {
	if m, ok := Merging(fn); ok {
		return m.merged()
	}
	return fn
}

// HasMerged says whether fn was made by Merged of one that merges.
func HasMerged(fn Fn) bool {
	switch f := fn.(type) {
	case SessionsFn:
		return f.Merged
	case CustomFn:
		return f.Merged
	}
	return false
}

// CompareStarts orders windows by start, then end.
func CompareStarts(a, b Window) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
}

// withinTime is w if it ends with the global window at the latest: one that merges has its wake-ups there.
func withinTime(w Window) Window {
	end := eventtime.EndOfGlobalWindow
	return Window{min(w.start, end-1), min(w.end, end)}
}
