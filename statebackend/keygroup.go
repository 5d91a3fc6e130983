package statebackend

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// KeyGroup is a fixed share of the key space, the unit in which keyed state moves between subtasks when the
// parallelism changes (Flink's key group). A job has a fixed number of them for life.
type KeyGroup uint16

const (
	// DefaultKeyGroups is the number of key groups of a job that says nothing else.
	DefaultKeyGroups = 256
	// MaxKeyGroups is the greatest number of key groups of a job, and so its greatest parallelism.
	MaxKeyGroups = 1 << 15
)

// KeyGroupFor returns the group, of groups in all, that owns a key, from the key's canonical encoding: its 64-bit
// XXH3 modulo groups. It never changes: docs/format/state-keys.md has test vectors.
func KeyGroupFor(key []byte, groups int) KeyGroup {
	return KeyGroup(xxh3.Hash(key) % uint64(groups))
}

// KeyGroupRange is the half-open range of key groups [First, End).
type KeyGroupRange struct{ First, End KeyGroup }

// AllKeyGroups is the range of a job with so many groups.
func AllKeyGroups(groups int) KeyGroupRange { return KeyGroupRange{End: KeyGroup(groups)} }

// RangeOf returns the groups that a subtask owns: contiguous shares that differ by at most one, every group in
// exactly one of them. Some are empty if parallelism exceeds groups.
func RangeOf(subtask, parallelism, groups int) KeyGroupRange {
	first := func(i int) KeyGroup { return KeyGroup((i*groups + parallelism - 1) / parallelism) }
	return KeyGroupRange{First: first(subtask), End: first(subtask + 1)}
}

// SubtaskOf returns the subtask whose RangeOf contains g.
func SubtaskOf(g KeyGroup, parallelism, groups int) int { return int(g) * parallelism / groups }

// Contains says whether g lies in r.
func (r KeyGroupRange) Contains(g KeyGroup) bool { return r.First <= g && g < r.End }

// Covers says whether every group of s lies in r.
func (r KeyGroupRange) Covers(s KeyGroupRange) bool {
	return s.Len() == 0 || r.First <= s.First && s.End <= r.End
}

// Overlaps says whether a group lies in both.
func (r KeyGroupRange) Overlaps(s KeyGroupRange) bool {
	return max(r.First, s.First) < min(r.End, s.End)
}

// Len returns the number of groups in r.
func (r KeyGroupRange) Len() int { return max(0, int(r.End)-int(r.First)) }

// String gives "[First, End)".
func (r KeyGroupRange) String() string { return fmt.Sprintf("[%d, %d)", r.First, r.End) }
