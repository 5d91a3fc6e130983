package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/seeds"
)

// TestTableAgreesWithMaps walks a table at random: changes, evictions, removals, passes in slices, windows
// dropped, snapshots encoded in slices beside all this, aborted and completed, and restored. After every
// step its content must be that of a map of maps, and so must what each snapshot restores.
func TestTableAgreesWithMaps(t *testing.T) {
	int64s := func(i int) int64 { return int64(i) - 3 }
	// 0 is two floats and 1 is two NaNs: == would split or lose them.
	floats := func(r *rand.Rand) func(int) float64 {
		return func(i int) float64 {
			switch {
			case i == 0:
				return math.Copysign(0, float64(r.IntN(2))-0.5)
			case i == 1:
				return math.Float64frombits(0x7ff8000000000001 + r.Uint64N(2))
			}
			return float64(i) / 2
		}
	}
	t.Run("native", func(t *testing.T) {
		seeds.Each(t, 80, func(seed uint64) error {
			return walkTable(seed, true, func(*rand.Rand) func(int) int64 { return int64s })
		})
	})
	t.Run("encoded", func(t *testing.T) {
		seeds.Each(t, 80, func(seed uint64) error { return walkTable(seed, true, floats) })
	})
	t.Run("untracked", func(t *testing.T) {
		seeds.Each(t, 30, func(seed uint64) error {
			return walkTable(seed, false, func(*rand.Rand) func(int) int64 { return int64s })
		})
	})
}

// value is what the model holds of an entry.
type value struct {
	Acc string
	header
}

// content is a table as the model sees it.
type content map[window.Window]map[int]value

func (c content) clone() content {
	out := content{}
	for w, m := range c {
		out[w] = maps.Clone(m)
	}
	return out
}

// diff compares, apart from windows without entries: a table may keep them, a restored one does not find them.
func (c content) diff(got content) string {
	for _, m := range []content{c, got} {
		maps.DeleteFunc(m, func(_ window.Window, m map[int]value) bool { return len(m) == 0 })
	}
	if maps.EqualFunc(c, got, maps.Equal[map[int]value, map[int]value]) {
		return "" // cmp is slow, and this is called at every step
	}
	return cmp.Diff(c, got, cmp.AllowUnexported(value{}, header{}, window.Window{}))
}

type tableWalk[K comparable] struct {
	r     *rand.Rand
	keys  int
	key   func(int) K
	coder coder.Key[K]
	index map[string]int // canonical bytes to key
	track bool

	t     *Table[K, string]
	model content
	files files

	// What a restore starts from: the newest completed base, and every delta since.
	base      *savedBase
	deltas    [][]byte
	completed content // as of the last completed snapshot
	pending   *tableSnapshot[K, string]
	wanted    content // as of the barrier of pending

	firing  *segment[K, string] // a pass over it is unfinished
	remove  bool
	visited map[int]bool
}

type savedBase struct {
	handle    statebackend.Handle
	companion []byte
}

const testGroups = 8

func walkTable[K comparable](seed uint64, track bool, keys func(*rand.Rand) func(int) K) error {
	r := rand.New(rand.NewPCG(seed, 2))
	kc, err := coder.KeyOf[K]()
	if err != nil {
		return err
	}
	w := &tableWalk[K]{
		r: r, keys: []int{2, 10, 30, 60, 500}[r.IntN(5)], key: keys(r), coder: kc, index: map[string]int{}, track: track,
		model: content{}, completed: content{}, files: files{},
	}
	for i := range w.keys {
		b, err := kc.Append(nil, w.key(i))
		if err != nil {
			return err
		}
		w.index[string(b)] = i
	}
	if err := w.open(); err != nil {
		return err
	}
	for step := range 150 {
		what, err := w.step()
		if err == nil {
			err = w.check()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", step, what, err)
		}
	}
	return w.empty()
}

// open makes the table, from what was completed.
func (w *tableWalk[K]) open() error {
	b, err := w.restored(w.base, w.deltas)
	if err != nil {
		return err
	}
	acc, err := coder.Of[string]()
	if err != nil {
		return err
	}
	w.t = newTable(tableConfig[K, string]{w.coder, acc, func(s *string) int { return len(*s) }}, &OpenContext{
		Subtask: connector.Subtask{Index: 0, Parallelism: 1}, Groups: testGroups, Backend: b, Track: w.track,
		CacheMax: int64([]int{0, 500, 2000, 1 << 20}[w.r.IntN(4)]),
	})
	return w.t.restore(func(*segment[K, string]) {})
}

func (w *tableWalk[K]) restored(base *savedBase, deltas [][]byte) (statebackend.Backend, error) {
	return (&kept{w.files, base, deltas}).open()
}

func (w *tableWalk[K]) step() (string, error) {
	switch n := w.r.IntN(100); {
	case n < 40:
		return "upsert", w.upsert()
	case n < 48:
		return "remove", w.removeOne()
	case n < 58:
		return "evict", w.evict()
	case n < 68:
		return "pass", w.pass()
	case n < 71:
		return "drop", w.dropOne()
	case n < 78 && w.track:
		return "snapshot", w.snapshot()
	case n < 96 && w.track:
		return "encode", w.encode(1 + w.r.IntN(8))
	case n < 98 && w.track:
		return "crash", w.crash()
	}
	return "evict", w.evict()
}

// window draws a window that no pass is working on, or false.
func (w *tableWalk[K]) window() (window.Window, bool) {
	i := eventtime.Time(w.r.IntN(3))
	win := window.New(i*10, i*10+10)
	return win, w.firing == nil || w.firing.win != win
}

// touched brings the entry of a key in, as operators do: by loading what may have been evicted.
func (w *tableWalk[K]) find(s *segment[K, string], k K) (*entry[K, string], error) {
	e, err := w.t.find(s, k)
	if err != nil || e != nil || !s.spilled {
		return e, err
	}
	if err := w.t.miss(s, k); err != nil {
		return nil, err
	}
	if err := w.t.load(); err != nil {
		return nil, err
	}
	return w.t.find(s, k)
}

func (w *tableWalk[K]) upsert() error {
	for range 1 + w.r.IntN(10+w.keys/4) {
		win, ok := w.window()
		if !ok {
			return nil
		}
		i := w.r.IntN(w.keys)
		s, _ := w.t.segment(win)
		e, err := w.find(s, w.key(i))
		if err != nil {
			return err
		}
		if e == nil {
			if e, err = w.t.insert(s, w.key(i)); err != nil {
				return err
			}
		}
		if err := w.change(s, e); err != nil {
			return err
		}
		e.acc += string(rune('a' + w.r.IntN(26)))
		if w.r.IntN(10) == 0 {
			e.acc = ""
		}
		e.since++
		w.t.resized(e)
		w.note(win, i, e)
	}
	return nil
}

func (w *tableWalk[K]) change(s *segment[K, string], e *entry[K, string]) error {
	if e.epoch == w.t.epoch {
		return nil
	}
	return w.t.touch(s, e)
}

func (w *tableWalk[K]) note(win window.Window, i int, e *entry[K, string]) {
	if w.model[win] == nil {
		w.model[win] = map[int]value{}
	}
	w.model[win][i] = value{e.acc, e.header}
}

func (w *tableWalk[K]) removeOne() error {
	win, ok := w.window()
	s := w.t.segments[win]
	if !ok || s == nil {
		return nil
	}
	i := w.r.IntN(w.keys)
	e, err := w.find(s, w.key(i))
	if err != nil || e == nil {
		return err
	}
	delete(w.model[win], i)
	return w.t.remove(s, e)
}

func (w *tableWalk[K]) evict() error {
	if w.r.IntN(2) == 0 {
		w.t.max = int64([]int{0, 500, 2000, 1 << 20}[w.r.IntN(4)])
	}
	if err := w.t.evict(); err != nil {
		return err
	}
	if w.t.used > w.t.max {
		return fmt.Errorf("%d bytes are resident after evict, of at most %d", w.t.used, w.t.max)
	}
	return nil
}

// pass starts a pass over a window or goes on with it.
func (w *tableWalk[K]) pass() error {
	if w.firing == nil {
		win, _ := w.window()
		if w.t.segments[win] == nil {
			return nil
		}
		w.firing, w.remove, w.visited = w.t.segments[win], w.r.IntN(2) == 0, map[int]bool{}
	}
	s, budget := w.firing, 1+w.r.IntN(10)
	done, err := w.t.pass(s, &budget, w.remove, w.visit)
	if err != nil {
		return err
	}
	if budget < 0 {
		return fmt.Errorf("the budget was exceeded by %d", -budget)
	}
	if !done {
		return nil
	}
	w.firing = nil
	if !w.remove {
		for i := range w.model[s.win] {
			if !w.visited[i] {
				return fmt.Errorf("the pass over %v did not visit key %d", s.win, i)
			}
		}
		return nil
	}
	if n := len(w.model[s.win]); n > 0 {
		return fmt.Errorf("the pass over %v left %d entries", s.win, n)
	}
	delete(w.model, s.win)
	return w.t.dropSegment(s)
}

func (w *tableWalk[K]) visit(s *segment[K, string], e *entry[K, string]) error {
	i, err := w.indexOf(e.key)
	if err != nil {
		return err
	}
	want, ok := w.model[s.win][i]
	if got := (value{e.acc, e.header}); !ok || got != want {
		return fmt.Errorf("visited key %d with %+v, want %+v (present: %v)", i, got, want, ok)
	}
	if w.remove {
		delete(w.model[s.win], i)
		if w.r.IntN(2) == 0 {
			return nil // as if there were nothing to fire
		}
		if p := w.t.pending; p != nil { // as the operator does before it fires
			if err := p.save(s, e); err != nil {
				return err
			}
		}
		e.panes++
		e.acc = "fired"
		return nil
	}
	if w.visited[i] {
		return nil // evicted since: its header told
	}
	w.visited[i] = true
	if err := w.change(s, e); err != nil {
		return err
	}
	e.panes, e.since = e.panes+1, 0
	w.note(s.win, i, e)
	return nil
}

func (w *tableWalk[K]) dropOne() error {
	win, ok := w.window()
	if s := w.t.segments[win]; ok && s != nil {
		delete(w.model, win)
		return w.t.dropSegment(s)
	}
	return nil
}

func (w *tableWalk[K]) snapshot() error {
	if w.pending != nil { // the host finishes the older one first
		if err := w.encode(1 << 30); err != nil {
			return err
		}
	}
	p, err := w.t.snapshot(w.r.IntN(3) == 0)
	w.pending, w.wanted = p, w.model.clone()
	return err
}

// encode goes on with the pending snapshot. Once it is whole it is completed, which makes it what a
// restore starts from, or given up, which leaves its delta to the next.
func (w *tableWalk[K]) encode(budget int) error {
	p := w.pending
	if p == nil {
		return nil
	}
	done, err := p.Encode(budget)
	if err != nil || !done {
		return err
	}
	w.pending = nil
	var base *savedBase
	if p.Base() != nil {
		h, err := p.Base().Persist(context.Background(), w.files)
		if err == nil {
			err = p.Base().Release()
		}
		if err != nil {
			return err
		}
		base = &savedBase{h, joined(p.Companion())}
		if err := w.restores("base and companion", base, nil); err != nil {
			return err
		}
	}
	w.deltas = append(w.deltas, joined(p.Delta()))
	if err := w.restores(fmt.Sprintf("%d deltas", len(w.deltas)), w.base, w.deltas); err != nil {
		return err
	}
	if base != nil && w.r.IntN(3) > 0 {
		w.base, w.deltas = base, nil
	}
	w.completed = w.wanted
	return nil
}

// restores checks that what was saved is the content at the barrier.
func (w *tableWalk[K]) restores(what string, base *savedBase, deltas [][]byte) error {
	b, err := w.restored(base, deltas)
	if err != nil {
		return err
	}
	got, err := w.scan(b)
	if err != nil {
		return err
	}
	if d := w.wanted.diff(got); d != "" {
		return fmt.Errorf("%s do not restore the barrier (-want +got):\n%s", what, d)
	}
	return b.Close()
}

// crash goes back to the last completed snapshot.
func (w *tableWalk[K]) crash() error {
	w.pending, w.firing = nil, nil
	w.model = w.completed.clone()
	return w.open()
}

func (w *tableWalk[K]) indexOf(k K) (int, error) {
	b, err := w.coder.Append(nil, k)
	return w.index[string(b)], err
}

// scan reads a backend.
func (w *tableWalk[K]) scan(b statebackend.Backend) (content, error) {
	out := content{}
	err := b.Scan(statebackend.WindowedTable(w.t.id), func(key, v []byte) (bool, error) {
		k, ok := statebackend.ParseWindowKey(key)
		i, known := w.index[string(k.Key)]
		if !ok || !known || k.Group != statebackend.KeyGroupFor(k.Key, testGroups) {
			return false, fmt.Errorf("key %x is malformed", key)
		}
		h, acc, err := w.t.decodeValue(v)
		win := window.New(k.Start, k.End)
		if out[win] == nil {
			out[win] = map[int]value{}
		}
		out[win][i] = value{acc, h}
		return true, err
	})
	return out, err
}

// check compares the table, with its backend below it, to the model, and its books to what it holds.
func (w *tableWalk[K]) check() error {
	t := w.t
	if err := t.writeBack(); err != nil {
		return err
	}
	got, err := w.scan(t.backend)
	if err != nil {
		return err
	}
	used, resident, spilled := int64(0), 0, 0
	for win := range got {
		if t.segments[win] == nil {
			return fmt.Errorf("the backend holds window %v, which is gone", win)
		}
	}
	for win, s := range t.segments {
		if s.spilled {
			spilled++
		} else {
			// What a spilled mark would have to tell of.
			for i := range got[win] {
				if e, err := t.find(s, w.key(i)); err != nil || e == nil {
					return fmt.Errorf("the backend holds key %d of %v, which is not marked as spilled (%v)", i, win, err)
				}
			}
		}
		m := got[win]
		if m == nil {
			m = map[int]value{}
			got[win] = m
		}
		if s == w.firing && w.remove && s.cursor.after != nil {
			err := t.backend.Scan(t.windowRange(win), func(key, _ []byte) (bool, error) {
				if bytes.Compare(key, s.cursor.after) > 0 {
					return false, nil
				}
				k, _ := statebackend.ParseWindowKey(key)
				delete(m, w.index[string(k.Key)]) // behind the cursor: gone, although it lies there still
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		for i := range s.n {
			e := s.at(i)
			if e.flags&flagDead != 0 {
				if e.size != 0 { // gone, but its slot is kept
					i, err := w.indexOf(e.key)
					if err != nil {
						return err
					}
					delete(m, i)
				}
				continue
			}
			i, err := w.indexOf(e.key)
			if err != nil {
				return err
			}
			m[i] = value{e.acc, e.header}
			used += int64(e.size)
			resident++
		}
	}
	if used != t.used || resident != t.resident || spilled != t.spilled {
		return fmt.Errorf("the books have %d bytes, %d resident, %d spilled; the table %d, %d, %d", t.used, t.resident, t.spilled, used, resident, spilled)
	}
	if d := w.model.diff(got); d != "" {
		return fmt.Errorf("the table differs (-want +got):\n%s", d)
	}
	return nil
}

// empty removes everything, by keys and by windows, and checks that nothing is left.
func (w *tableWalk[K]) empty() error {
	for w.firing != nil {
		if err := w.pass(); err != nil {
			return err
		}
	}
	for win, s := range w.t.segments {
		for i := range w.keys {
			e, err := w.find(s, w.key(i))
			if err == nil && e != nil && i%2 == 0 {
				err = w.t.remove(s, e)
			}
			if err != nil {
				return err
			}
		}
		delete(w.model, win)
		if err := w.t.dropSegment(s); err != nil {
			return err
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	if w.t.used != 0 || w.t.resident != 0 || len(w.t.clock) != 0 || len(w.t.dirty) != 0 || w.t.backend.Stats().MemoryBytes != 0 {
		return fmt.Errorf("an empty table holds %d bytes, %d entries, %d windows, %d changed ones, and %d bytes in its backend",
			w.t.used, w.t.resident, len(w.t.clock), len(w.t.dirty), w.t.backend.Stats().MemoryBytes)
	}
	if !w.track {
		return nil
	}
	if err := w.snapshot(); err != nil {
		return err
	}
	return w.encode(1 << 30)
}

// files is durable storage.
type files map[string][]byte

func (f files) Known(string) (statebackend.Ref, bool) { return statebackend.Ref{}, false }

func (f files) Upload(_ context.Context, _ string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	data := make([]byte, size)
	if _, err := content.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return statebackend.Ref{}, err
	}
	name := fmt.Sprint(len(f))
	f[name] = data
	return statebackend.Ref{Object: name, Size: size, CRC32C: statebackend.Checksum(0, data)}, nil
}

func (f files) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f[ref.Object])), nil
}

// A firing that keeps its entries brings evicted ones back: they must not stay beyond the limit.
func TestFiringLeavesNoMoreResidentThanAllowed(t *testing.T) {
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
	o := NewAggregate(Aggregation[int64, int64, int64]{
		Key: key, Acc: acc, Create: func() int64 { return 0 }, Extract: func(a int64) int64 { return a },
		Windowing: Windowing{LateCount: 1, Lateness: 1000},
	}, func() []AggregateInput[int64, int64, int64] {
		return []AggregateInput[int64, int64, int64]{InputOf[int64, int64, int64, int64](0, func(a, v int64) int64 { return a + v })}
	}).(*aggregate[int64, int64, int64])
	if err := o.Open(&OpenContext{
		Subtask: connector.Subtask{Parallelism: 1}, Groups: testGroups, Backend: b, CacheMax: 1000,
		Outputs: []Output{nowhere{}}, Metrics: &Metrics{},
	}); err != nil {
		t.Fatal(err)
	}
	rows := &Rows[coder.KV[int64, int64]]{}
	for k := range int64(200) {
		rows.E = append(rows.E, Element[coder.KV[int64, int64]]{Value: coder.KV[int64, int64]{Key: k, Value: 1}, Window: window.New(0, 10)})
	}
	if err := o.Process(0, rows); err != nil {
		t.Fatal(err)
	}
	if done, err := o.Watermark(10, 1<<30); !done || err != nil {
		t.Fatal(done, err)
	}
	if o.table.used > o.table.max || o.table.resident == 200 {
		t.Errorf("%d entries, %d bytes are resident, of at most %d", o.table.resident, o.table.used, o.table.max)
	}
}

type nowhere struct{}

func (nowhere) Emit(Batch) error { return nil }

// After a change of parallelism the entries of a window lie in one backend with those of other key groups'
// deltas: a range delete must not reach into them.
func TestRangeDeleteOfAWindowSparesOtherSubtasks(t *testing.T) {
	key, err := coder.KeyOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	acc, err := coder.Of[string]()
	if err != nil {
		t.Fatal(err)
	}
	all := statebackend.AllKeyGroups(testGroups)
	win := window.New(0, 10)
	var deltas [][]byte
	for sub := range 2 {
		b, err := memory.Driver{}.Open(context.Background(), statebackend.Config{KeyGroups: all})
		if err != nil {
			t.Fatal(err)
		}
		table := newTable(tableConfig[int64, string]{key, acc, nil}, &OpenContext{
			Subtask: connector.Subtask{Index: sub, Parallelism: 2}, Groups: testGroups, Backend: b, Track: true,
		})
		s, _ := table.segment(win)
		for k := range int64(40) {
			h, err := key.Hash(k)
			if err != nil {
				t.Fatal(err)
			}
			if statebackend.SubtaskOf(statebackend.KeyGroup(h%testGroups), 2, testGroups) != sub {
				continue
			}
			e, err := table.insert(s, k)
			if err == nil {
				err = table.touch(s, e)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := table.evict(); err != nil {
			t.Fatal(err)
		}
		if sub == 0 { // its window is over, the other's is not
			if _, err := table.snapshot(false); err != nil {
				t.Fatal(err)
			}
			if err := table.dropSegment(s); err != nil {
				t.Fatal(err)
			}
		}
		p, err := table.snapshot(false)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := p.Encode(1 << 30); !done || err != nil {
			t.Fatal(done, err)
		}
		deltas = append(deltas, joined(p.Delta()))
	}
	both, err := (&tableWalk[int64]{}).restored(nil, [][]byte{deltas[1], deltas[0]})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = both.Scan(statebackend.WindowedTable(0), func(k, _ []byte) (bool, error) {
		n++
		if g, _ := statebackend.KeyGroupOf(k); statebackend.SubtaskOf(g, 2, testGroups) != 1 {
			t.Errorf("an entry of group %d is left", g)
		}
		return true, nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d entries of the other subtask are left, %v", n, err)
	}
}
