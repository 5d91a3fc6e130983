package kernel

import (
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
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

// TestWindowsThatGoTogetherAreReused: a watermark that comes seldom ends several windows at once.
func TestWindowsThatGoTogetherAreReused(t *testing.T) {
	const windows, keys = 6, 100
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(tableConfig[int64, int64]{key: key}, &OpenContext{
		Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, CacheMax: 1 << 20,
	})
	at, pass := eventtime.Time(0), 0
	round := func() {
		pass++
		for w := range eventtime.Time(windows) {
			s, _ := table.segment(window.New(at+w, at+w+1))
			for k := range int64(keys) {
				if _, err := table.insert(s, k); err != nil {
					t.Fatal(err)
				}
			}
		}
		for w := range eventtime.Time(windows) {
			if err := table.dropSegment(table.lookup(window.New(at+w, at+w+1))); err != nil {
				t.Fatal(err)
			}
		}
		at += windows
	}
	if n := testing.AllocsPerRun(10, round); n > 0 {
		t.Errorf("%v allocations a round of %d windows, after %d rounds", n, windows, pass)
	}
	if table.used != 0 || table.resident != 0 {
		t.Errorf("%d bytes and %d entries are in use by no window", table.used, table.resident)
	}
}

// TestReusableSegmentsAreBounded: what is kept for the windows to come takes a quarter of the limit at most.
func TestReusableSegmentsAreBounded(t *testing.T) {
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(tableConfig[int64, int64]{key: key}, &OpenContext{
		Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, CacheMax: 1 << 20,
	})
	const windows = 100
	for w := range eventtime.Time(windows) {
		s, _ := table.segment(window.New(w, w+1))
		for k := range int64(100) {
			if _, err := table.insert(s, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	for w := range eventtime.Time(windows) {
		if err := table.dropSegment(table.lookup(window.New(w, w+1))); err != nil {
			t.Fatal(err)
		}
	}
	slots := 0
	for _, s := range table.free {
		for _, c := range s.chunks {
			slots += len(c)
		}
	}
	if bytes := slots * table.entryBytes(); bytes > 1<<18 || bytes < 1<<17 {
		t.Errorf("%d segments of %d bytes are kept, want at most a quarter of a megabyte, and not much less", len(table.free), bytes)
	}
}
