package checkpoint_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/storagetest"
)

// TestCollectingIsTheNaiveRule runs random histories of leaders, attempts, failed checkpoints and late
// uploads. After each sweep what is left must be what the rule says, computed from scratch, and at no time
// may an object be missing that a retained manifest lists.
func TestCollectingIsTheNaiveRule(t *testing.T) {
	start, runs := seeds.From(t, 200)
	deleted := 0
	for seed := start; seed < start+uint64(runs) && !t.Failed(); seed++ {
		deleted += collectingHistory(t, seed)
	}
	if deleted < 5*runs && runs >= 100 {
		t.Errorf("only %d objects were deleted: the histories prove nothing", deleted)
	}
}

func collectingHistory(t *testing.T, seed uint64) (deleted int) {
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format+"\nseed %d; %s", append(args, seed, seeds.Rerun(t, seed))...)
	}
	ctx := context.Background()
	r := rand.New(rand.NewPCG(seed, 1))
	store := storage.New(&storagetest.Memory{}, "memory://")
	type manifest struct {
		slot uint64
		c    *checkpoint.Checkpoint
	}
	type writer struct {
		store      *checkpoint.Durable
		generation uint64
	}
	type upload struct {
		ref        statebackend.Ref
		generation uint64
		checkpoint int64
	}
	var (
		manifests []manifest
		uploads   []upload
		writers   []writer // of all attempts: the old ones write late
		slot, id  = uint64(0), int64(0)
		retain    = 1 + r.IntN(4)
	)
	listed := func(c *checkpoint.Checkpoint) map[string]bool {
		m := map[string]bool{}
		c.Refs(func(r statebackend.Ref) { m[r.Object] = true })
		return m
	}
	for leaders := 1 + r.IntN(4); leaders > 0; leaders-- {
		slot++
		generation := slot
		collector := checkpoint.NewCollector(generation, retain)
		for _, m := range manifests[max(0, len(manifests)-retain):] {
			collector.Found(m.slot, m.c)
		}
		published := false
		for attempt := int64(1); attempt <= int64(1+r.IntN(3)); attempt++ {
			writers = append(writers, writer{checkpoint.NewDurable(store, generation, attempt), generation})
			var fresh []statebackend.Ref // by this attempt since the last manifest
			for range r.IntN(30) {
				id++
				for range r.IntN(4) {
					k := len(writers) - 1
					if r.IntN(5) == 0 {
						k = r.IntN(len(writers)) // a zombie
					}
					at := id - int64(r.IntN(2)*r.IntN(3)) // a snapshot that is late
					ref, err := writers[k].store.Put(ctx, at, "delta", strings.NewReader("x"), 1)
					if err != nil {
						t.Fatal(err)
					}
					uploads = append(uploads, upload{ref, writers[k].generation, at})
					if k == len(writers)-1 && (len(manifests) == 0 || at > manifests[len(manifests)-1].c.ID) {
						fresh = append(fresh, ref)
					}
				}
				if r.IntN(4) == 0 {
					continue // this checkpoint fails; the next one lists what was uploaded
				}
				keyed := &checkpoint.Keyed{}
				if n := len(manifests); n > 0 && r.IntN(6) > 0 { // else a new base
					for _, d := range manifests[n-1].c.Parts[0].Nodes[0].Keyed.Deltas {
						if r.IntN(5) > 0 {
							keyed.Deltas = append(keyed.Deltas, d)
						}
					}
				}
				for _, f := range fresh {
					keyed.Deltas = append(keyed.Deltas, checkpoint.Delta{Checkpoint: id, Ref: f})
				}
				fresh = nil
				slot++
				c := &checkpoint.Checkpoint{ID: id, Parts: []checkpoint.Part{{Nodes: []checkpoint.NodePart{{Keyed: keyed}}}}}
				manifests = append(manifests, manifest{slot, c})
				before := names(t, store)
				drop := collector.Published(slot, c)
				swept := collector.Sweeps()
				if err := collector.Collect(ctx, store, drop); err != nil {
					t.Fatal(err)
				}
				published = true
				left := names(t, store)
				deleted += len(before) - len(left)

				// The rule, from scratch.
				needed := map[string]bool{}
				for i, m := range manifests {
					retained := i >= len(manifests)-retain
					if retained != collector.Retains(m.slot) {
						fail("manifest %d of %d: retained %v, want %v", i, len(manifests), !retained, retained)
					}
					if retained {
						maps.Copy(needed, listed(m.c))
					}
				}
				var want []string
				for _, u := range uploads {
					if needed[u.ref.Object] || u.generation == generation && u.checkpoint > id || !published {
						want = append(want, u.ref.Object)
					}
				}
				slices.Sort(want)
				for _, w := range want {
					if _, ok := slices.BinarySearch(left, w); !ok {
						fail("checkpoint %d: %s is gone; it is listed: %v", id, w, needed[w])
					}
				}
				if swept && !cmp.Equal(want, left) {
					fail("checkpoint %d, after a sweep (-want +left):\n%s", id, cmp.Diff(want, left))
				}
				if t.Failed() {
					return deleted
				}
			}
		}
	}
	return deleted
}

func names(t *testing.T, store *storage.Store) (all []string) {
	for n, err := range store.List(context.Background(), "shared/", "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
