package kernel

import (
	"testing"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
)

// TestWindowOfManyKeys: the chunks of a segment stop growing, and their number does not.
func TestWindowOfManyKeys(t *testing.T) {
	const keys = 50_000
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	acc, err := coder.Of[int64]()
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(tableConfig[int64, int64]{key, acc, nil}, &OpenContext{
		Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, CacheMax: 1 << 30,
	})
	s, _ := table.segment(window.GlobalWindow)
	for k := range int64(keys) {
		e, err := table.insert(s, k)
		if err != nil {
			t.Fatal(err)
		}
		e.acc = -k
	}
	for k := range int64(keys) {
		e, err := table.find(s, k)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil || e.key != k || e.acc != -k || s.at(int(k)) != e {
			t.Fatalf("key %d: found %+v", k, e)
		}
	}
}
