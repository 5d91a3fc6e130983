package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// Collector decides which objects no restart can need any more. It belongs to one leader.
//
// What is listed by a retained manifest stays. Of the rest may go
//
//   - what a manifest listed that is retained no longer: later ones list only what the one before them lists
//     and what was written for a newer checkpoint;
//   - what was written for a checkpoint not newer than the newest complete one: a worker that was in time is
//     listed by that one, and one that was late sends its deltas in vain (Assemble takes none so old);
//   - what was written under an older claim: nobody lists it any more.
//
// The first kind is known without asking the store; the others come from checkpoints that failed and
// attempts that died, and are found by a sweep now and then.
type Collector struct {
	generation uint64
	retain     int
	kept       []keptManifest // oldest first
	refs       map[string]int // manifests kept that list the object
	newest     int64
	published  int
}

type keptManifest struct {
	checkpoint int64
	slot       uint64
	objects    []string
}

// NewCollector returns a Collector for the claim with that generation, which keeps the newest so many
// manifests (at least 1).
func NewCollector(generation uint64, retain int) *Collector {
	return &Collector{generation: generation, retain: max(1, retain), refs: map[string]int{}}
}

// Found adds a manifest of an earlier leader. They come oldest first, before anything is published.
func (c *Collector) Found(slot uint64, m *Checkpoint) { c.add(slot, m) }

// Published adds a manifest of this leader and returns the objects that may go because of it.
func (c *Collector) Published(slot uint64, m *Checkpoint) (drop []string) {
	c.add(slot, m)
	c.newest = m.ID
	c.published++
	for len(c.kept) > c.retain {
		old := c.kept[0]
		c.kept = c.kept[1:]
		for _, o := range old.objects {
			if c.refs[o]--; c.refs[o] == 0 {
				delete(c.refs, o)
				drop = append(drop, o)
			}
		}
	}
	return drop
}

func (c *Collector) add(slot uint64, m *Checkpoint) {
	objects := map[string]bool{}
	m.Refs(func(r statebackend.Ref) { objects[r.Object] = true })
	k := keptManifest{checkpoint: m.ID, slot: slot, objects: slices.Sorted(maps.Keys(objects))}
	for _, o := range k.objects {
		c.refs[o]++
	}
	c.kept = append(c.kept, k)
}

// Retains says whether the manifest in that slot of the log is kept.
func (c *Collector) Retains(slot uint64) bool {
	return slices.ContainsFunc(c.kept, func(k keptManifest) bool { return k.slot == slot })
}

// Garbage says whether an object that a sweep has found may go. It is never so before this leader has
// published: until then an earlier one, not yet deposed, could still.
func (c *Collector) Garbage(object string) bool {
	generation, checkpoint, ok := uploaded(object)
	if !ok || c.published == 0 || c.refs[object] > 0 {
		return false
	}
	return generation < c.generation || generation == c.generation && checkpoint <= c.newest
}

// sweepEvery is the number of checkpoints from one sweep to the next; the first follows the first checkpoint.
const sweepEvery = 16

// Sweeps says whether the next Collect lists the store.
func (c *Collector) Sweeps() bool { return c.published%sweepEvery == 1 }

// Collect deletes drop, which Published returned, and what a sweep finds if one is due. What could not be
// deleted is found by a later sweep.
func (c *Collector) Collect(ctx context.Context, store *storage.Store, drop []string) error {
	if c.Sweeps() {
		for o, err := range store.List(ctx, sharedPrefix, "") {
			if err != nil {
				return fmt.Errorf("look for objects that no checkpoint needs: %w", err)
			}
			if c.Garbage(o) {
				drop = append(drop, o)
			}
		}
	}
	slices.Sort(drop)
	for _, o := range slices.Compact(drop) {
		if err := store.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete what no checkpoint needs: %w", err)
		}
	}
	return nil
}
