package backendtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/seeds"
)

// random runs lists of random operations against a Backend and a map: a few fixed seeds and a fresh one, or what
// package seeds is told.
func random(k *kit) {
	first, runs, err := seeds.Values(1)
	k.ok("the seed", err)
	var all []uint64
	if !seeds.Given() {
		all = []uint64{1, 2, 3, 4}
	}
	for i := range runs {
		all = append(all, first+uint64(i))
	}
	for _, seed := range all {
		sub := *k
		sub.tester = seeded{k.tester, seed}
		(&walk{kit: &sub, rand: rand.New(rand.NewPCG(seed, 0))}).run()
	}
}

// seeded adds to every failure how to see it again.
type seeded struct {
	tester
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.tester.Fatalf("%s\n%s", fmt.Sprintf(format, args...), seeds.Rerun(s.tester, s.seed))
}

// walk is one list of random operations.
type walk struct {
	*kit
	rand    *rand.Rand
	backend statebackend.Backend
	now     model
	held    []heldSnapshot // not persisted yet
	bases   []base
}

type heldSnapshot struct {
	snapshot statebackend.Snapshot
	want     model
}

type base struct {
	handle statebackend.Handle
	want   model
}

func (w *walk) run() {
	w.backend, w.now = w.open(), model{}
	for range 150 {
		switch n := w.rand.IntN(100); {
		case n < 50:
			w.writeSome()
		case n < 65:
			w.getSome()
		case n < 80:
			w.scanSome()
		case n < 87:
			w.held = append(w.held, heldSnapshot{w.snapshot(w.backend), maps.Clone(w.now)})
		case n < 94:
			w.persistOne()
		case n < 97:
			w.restoreOne()
		default:
			w.rescaleOne()
		}
	}
	w.holds("at the end", w.backend, w.now)
	for _, h := range w.held {
		w.ok("release", h.snapshot.Release())
	}
	w.close(w.backend)
}

// key returns one of few keys, so that operations meet.
func (w *walk) key() string {
	table := statebackend.Table(w.rand.IntN(2))
	g := statebackend.KeyGroup(w.rand.IntN(groups))
	name := []string{"", "a", "ab", "b"}[w.rand.IntN(4)]
	if w.rand.IntN(2) == 0 {
		end := eventtime.Time(w.rand.IntN(8) - 4)
		return string(statebackend.AppendWindowKey(nil, table, end-1, end, g, []byte(name)))
	}
	return string(statebackend.AppendKeyed(nil, table, g, []byte(name))) + strconv.Itoa(w.rand.IntN(3))
}

func (w *walk) anyRange() statebackend.Range {
	table := statebackend.Table(w.rand.IntN(2))
	at := eventtime.Time(w.rand.IntN(8) - 4)
	switch w.rand.IntN(5) {
	case 0:
		return statebackend.WindowRange(table, at-1, at)
	case 1:
		return statebackend.WindowsUntil(table, at)
	case 2:
		return statebackend.KeyRange(table, statebackend.KeyGroup(w.rand.IntN(groups)), []byte("a"))
	case 3:
		key := []byte(w.key())
		return statebackend.Range{Start: key, End: statebackend.After(nil, key)}
	}
	return statebackend.Range{Start: []byte(w.key()), End: []byte(w.key())} // often empty, often large
}

func (w *walk) writeSome() {
	var batch statebackend.Batch
	for range w.rand.IntN(120) {
		switch key := w.key(); w.rand.IntN(40) {
		case 0:
			r := w.anyRange()
			batch.DeleteRange(r)
			w.now.deleteRange(string(r.Start), string(r.End))
		case 1, 2, 3, 4, 5, 6, 7, 8:
			batch.Delete([]byte(key))
			delete(w.now, key)
		default:
			value := strings.Repeat(string(rune('a'+w.rand.IntN(26))), w.rand.IntN(50))
			batch.Put([]byte(key), []byte(value))
			w.now[key] = value
		}
	}
	w.ok("write", w.backend.Write(&batch))
}

func (w *walk) getSome() {
	var keys statebackend.Keys
	var want, got []string
	for i := range w.rand.IntN(100) {
		key := w.key()
		keys.Append([]byte(key))
		if value, ok := w.now[key]; ok {
			want = append(want, fmt.Sprintf("%d=%s", i, value))
		}
	}
	w.ok("get", w.backend.Get(&keys, func(i int, value []byte) error {
		got = append(got, fmt.Sprintf("%d=%s", i, value))
		return nil
	}))
	w.same("get", got, want...)
}

func (w *walk) scanSome() {
	r, limit := w.anyRange(), 1+w.rand.IntN(300)
	var want []string
	for _, key := range slices.Sorted(maps.Keys(w.now)) {
		if r.Contains([]byte(key)) && len(want) < limit {
			want = append(want, key+"="+w.now[key])
		}
	}
	var got []string
	w.ok("scan", w.backend.Scan(r, func(key, value []byte) (bool, error) {
		got = append(got, fmt.Sprintf("%s=%s", key, value))
		return len(got) < limit, nil
	}))
	w.same("scan", got, want...)
}

func (w *walk) persistOne() {
	if len(w.held) == 0 {
		return
	}
	i := w.rand.IntN(len(w.held))
	h := w.persist(w.held[i].snapshot)
	w.ok("release", w.held[i].snapshot.Release())
	w.bases = append(w.bases, base{h, w.held[i].want})
	w.held = slices.Delete(w.held, i, i+1)
	if w.rand.IntN(2) == 0 {
		w.store.complete(h)
	}
}

// restoreOne goes on from an earlier base.
func (w *walk) restoreOne() {
	if len(w.bases) == 0 {
		return
	}
	from := w.bases[w.rand.IntN(len(w.bases))]
	w.close(w.backend)
	w.backend, w.now = w.open(from.handle), maps.Clone(from.want)
	w.holds("restored", w.backend, w.now)
}

// rescaleOne divides an earlier base among subtasks and joins their bases again.
func (w *walk) rescaleOne() {
	if len(w.bases) == 0 {
		return
	}
	from := w.bases[w.rand.IntN(len(w.bases))]
	parallelism := 1 + w.rand.IntN(4)
	var parts []statebackend.Handle
	for subtask := range parallelism {
		own := statebackend.RangeOf(subtask, parallelism, groups)
		b := w.openConfig(w.config(own, from.handle))
		w.holds(fmt.Sprintf("subtask %d of %d", subtask, parallelism), b, from.want.own(own))
		parts = append(parts, w.base(b))
		w.close(b)
	}
	b := w.open(parts...)
	w.holds(fmt.Sprintf("%d parts joined", parallelism), b, from.want)
	w.close(b)
}
