package kernel

import (
	"context"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// TestWindowsThatWereEvictedTakeNoMemory fills one window after the other with more than the limit: what those that were
// evicted had taken is given back, for nothing may ever come for them again before they end.
func TestWindowsThatWereEvictedTakeNoMemory(t *testing.T) {
	for name, native := range map[string]bool{"native keys": true, "encoded keys": false} {
		t.Run(name, func(t *testing.T) {
			const windows, keys, limit = 100, 1000, 100_000
			key, err := coder.KeyOf[int64]()
			if err != nil {
				t.Fatal(err)
			}
			acc, err := coder.Of[int64]()
			if err != nil {
				t.Fatal(err)
			}
			b, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(testGroups)})
			if err != nil {
				t.Fatal(err)
			}
			table := newTable(tableConfig[int64, int64]{key, acc, nil}, &OpenContext{
				Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, CacheMax: limit, Backend: b, Track: true,
			})
			table.native = native
			for w := range eventtime.Time(windows) {
				s, _ := table.segment(window.New(w, w+1))
				for k := range int64(keys) {
					if err := table.put(s, k, k); err != nil {
						t.Fatal(err)
					}
					if err := table.evict(); err != nil {
						t.Fatal(err)
					}
				}
			}
			slots, indexed := int64(0), 0
			for _, s := range table.segments {
				slots += table.slotBytes(s)
				indexed += len(s.native.slots)
			}
			// One window is being filled and one evicted.
			if most := int64(limit + 2*keys*table.entryBytes()); slots > most {
				t.Errorf("slots take %d bytes, want at most %d", slots, most)
			}
			if most := 4 * keys * 3; indexed > most {
				t.Errorf("indexes have %d slots, want at most %d", indexed, most)
			}
			for _, s := range table.segments {
				seen, budget := 0, 1<<30
				done, err := table.peek(s, &budget, func(k, v int64) {
					if k == v {
						seen++
					}
				})
				if !done || err != nil || seen != keys {
					t.Fatalf("window %v: %d of %d entries, done %v, error %v", s.win, seen, keys, done, err)
				}
			}
		})
	}
}
