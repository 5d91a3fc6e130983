package backendtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
)

// cases is the suite, simple things first.
var cases = []testCase{
	{name: "a new backend is empty", run: newIsEmpty},
	{name: "reads see all writes before", run: readYourWrites},
	{name: "a later operation of a batch wins", run: laterWins},
	{name: "the empty key and the empty value are entries", run: emptyKeyAndValue},
	{name: "get answers by position", run: getByPosition},
	{name: "scan is ordered and half open", run: scanHalfOpen},
	{name: "scan stops and goes on", run: scanStops},
	{name: "an error of a callback comes back as it is", run: callbackError},
	{name: "delete range is half open", run: deleteRangeHalfOpen},
	{name: "dropping windows and keys leaves their neighbours", run: dropWindows},
	{name: "large entries and many", run: largeAndMany},
	{name: "an entry over the limit is refused whole", run: overLimit},
	{name: "backends are independent", run: independent},
	{name: "what lies in the directory is wiped", run: wipesDirectory},

	{name: "snapshot is fixed while writes go on", run: snapshotIsFixed},
	{name: "snapshot holds the whole batch before it", run: snapshotHoldsBatch},
	{name: "snapshots live side by side and outlive close", run: snapshotsSideBySide},
	{name: "persist is repeated after a failed upload", run: persistAgain},
	{name: "unchanged files are not uploaded again", needs: SharesFiles, run: sharesFiles},
	{name: "files of a base that is not completed are not referred to", run: incompleteBase},

	{name: "restore is exact", run: restoreExact},
	{name: "restore of nothing", run: restoreEmpty},
	{name: "restore forgets what was deleted", run: restoreDeleted},
	{name: "restore takes its key groups only", run: restoreFilters},
	{name: "restore joins several handles", run: restoreJoins},
	{name: "restore refuses what it cannot divide", run: restoreUndividable},
	{name: "restore refuses another driver or version", run: restoreMismatch},
	{name: "restore names a damaged file", run: restoreDamaged},
	{name: "cancellation ends persist and restore", run: cancelled},

	{name: "random operations match a model", run: random},
}

func newIsEmpty(k *kit) {
	b := k.open()
	k.holds("new backend", b, model{})
	k.same("get", k.get(b, "", "a"))
	if s := b.Stats(); s.MemoryBytes < 0 || s.DiskBytes < 0 {
		k.Fatalf("stats %+v", s)
	}
	k.close(b)
}

func readYourWrites(k *kit) {
	b := k.open()
	k.write(b)
	k.write(b, put("a", "1"), put("b", "2"))
	k.holds("after put", b, model{"a": "1", "b": "2"})
	k.write(b, put("a", "3"))
	k.holds("after put again", b, model{"a": "3", "b": "2"})
	k.write(b, del("a"), del("absent"))
	k.holds("after delete", b, model{"b": "2"})
	k.write(b, put("a", "4"))
	k.holds("after put of the deleted", b, model{"a": "4", "b": "2"})
	k.close(b)
}

func laterWins(k *kit) {
	b := k.open()
	k.write(b, put("old", "o"))
	k.write(b,
		put("a", "1"), put("a", "2"), // put, put
		put("b", "1"), del("b"), // put, delete
		del("c"), put("c", "1"), // delete, put
		put("d", "1"), delRange("d", "o"), put("e", "1"), // a range between puts: old goes with "o..." later
		put("x", "1"), delRange("old", "oldest"), put("old", "new"), // a range, then a put in it
		put("y1", "1"), put("y2", "1"), delRange("y", "z"), // puts, then their range
	)
	k.holds("after one batch", b, model{"a": "2", "c": "1", "e": "1", "x": "1", "old": "new"})
	k.close(b)
}

func emptyKeyAndValue(k *kit) {
	b := k.open()
	k.write(b, put("", "none"), put("a", ""), put("b", ""))
	k.holds("after put", b, model{"": "none", "a": "", "b": ""})
	k.same("get", k.get(b, "", "a", "c"), "0=none", "1=")
	k.restores("restored", k.base(b), model{"": "none", "a": "", "b": ""})
	k.write(b, put("", ""), del("a"))
	k.holds("after delete", b, model{"": "", "b": ""})
	k.write(b, delRange("", "b"))
	k.holds("after delete range", b, model{"b": ""})
	k.close(b)
}

func getByPosition(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"), put("b", "2"), put("c", "3"))
	k.same("unsorted", k.get(b, "c", "x", "a", "aa", "b"), "0=3", "2=1", "4=2")
	k.same("twice", k.get(b, "b", "b", "x", "b"), "0=2", "1=2", "3=2")
	k.same("none", k.get(b))
	k.same("all absent", k.get(b, "x", "y"))
	k.close(b)
}

func scanHalfOpen(k *kit) {
	b := k.open()
	k.write(b, put("b", "2"), put("a\x00", "1"), put("a", "0"), put("\xff", "5"), put("ab", "3"), put("\x00", "z"), put("a\xff", "4"))
	k.same("all", k.scan(b, "", last), "\x00=z", "a=0", "a\x00=1", "ab=3", "a\xff=4", "b=2", "\xff=5")
	k.same("start included, end excluded", k.scan(b, "a", "b"), "a=0", "a\x00=1", "ab=3", "a\xff=4")
	k.same("bounds between keys", k.scan(b, "a\x00\x00", "a\xfe"), "ab=3")
	k.same("one key", k.scan(b, "a", "a\x00"), "a=0")
	k.same("empty range", k.scan(b, "a", "a"))
	k.same("reversed range", k.scan(b, "b", "a"))
	k.same("nothing there", k.scan(b, "c", "d"))
	k.write(b, put("aa", "new"), del("b"))
	k.same("after more writes", k.scan(b, "a\x00", "\xff"), "a\x00=1", "aa=new", "ab=3", "a\xff=4")
	k.close(b)
}

func scanStops(k *kit) {
	b := k.open()
	want := model{}
	for i := range 300 {
		want[fmt.Sprintf("%04d", i)] = fmt.Sprint(i)
	}
	k.write(b, want.puts()...)
	got, start := model{}, []byte{}
	for calls := 0; len(got) < len(want); calls++ {
		visited, limit := 0, 1+calls%7
		k.ok("scan", b.Scan(statebackend.Range{Start: start, End: []byte(last)}, func(key, value []byte) (bool, error) {
			if visited == limit {
				return false, errors.New("visit is called again after it said no")
			}
			visited++
			got[string(key)] = string(value)
			start = statebackend.After(start[:0], key)
			return visited < limit, nil
		}))
		if visited == 0 {
			k.Fatalf("scan ends after %d of %d entries", len(got), len(want))
		}
	}
	for key, value := range want {
		if got[key] != value {
			k.Fatalf("key %s is %q, want %q", key, got[key], value)
		}
	}
	k.close(b)
}

// puts writes the entries of m.
func (m model) puts() []func(*statebackend.Batch) {
	var ops []func(*statebackend.Batch)
	for key, value := range m {
		ops = append(ops, put(key, value))
	}
	return ops
}

func callbackError(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"), put("b", "2"))
	stop := errors.New("stop")
	var list statebackend.Keys
	list.Append([]byte("a"))
	list.Append([]byte("b"))
	calls := 0
	if err := b.Get(&list, func(int, []byte) error { calls++; return stop }); err != stop || calls != 1 {
		k.Fatalf("get: error %v after %d calls, want the callback's after one", err, calls)
	}
	calls = 0
	if err := b.Scan(statebackend.Range{End: []byte(last)}, func(_, _ []byte) (bool, error) { calls++; return true, stop }); err != stop || calls != 1 {
		k.Fatalf("scan: error %v after %d calls, want the callback's after one", err, calls)
	}
	k.holds("afterwards", b, model{"a": "1", "b": "2"})
	k.close(b)
}

func deleteRangeHalfOpen(k *kit) {
	b := k.open()
	k.write(b, put("a", ""), put("b", ""), put("b\x00", ""), put("c", ""), put("c\x00", ""))
	k.write(b, delRange("b", "c"))
	k.holds("start included, end excluded", b, model{"a": "", "c": "", "c\x00": ""})
	k.write(b, delRange("c", "c"), delRange("z", "a"), delRange("x", "y"))
	k.holds("nothing in it", b, model{"a": "", "c": "", "c\x00": ""})
	k.write(b, put("b", "again"))
	k.holds("put after", b, model{"a": "", "b": "again", "c": "", "c\x00": ""})
	k.write(b, delRange("", last))
	k.holds("all", b, model{})
	k.close(b)
}

// layout is a model of two tables with windows and keys whose bytes are prefixes of each other.
func layout() model {
	m := model{}
	for _, table := range []statebackend.Table{0, 1} {
		for g := range statebackend.KeyGroup(groups) {
			for _, key := range []string{"key", "key2", "ke", "", "key\x00", "\xff"} {
				for _, end := range []eventtime.Time{eventtime.Min, -10, 0, 10, eventtime.Max} {
					m[string(statebackend.AppendWindowKey(nil, table, end-10, end, g, []byte(key)))] = fmt.Sprint("w", table, g, end, key)
				}
				for _, cell := range []string{"", "a", "\xff"} {
					m[string(statebackend.AppendKeyed(nil, table, g, []byte(key)))+cell] = fmt.Sprint("k", table, g, key, cell)
				}
			}
		}
	}
	return m
}

func dropWindows(k *kit) {
	b := k.open()
	want := layout()
	k.write(b, want.puts()...)
	for _, r := range []statebackend.Range{
		statebackend.WindowRange(0, 0, 10),
		statebackend.KeyRange(1, 3, []byte("key")),
		statebackend.KeyRange(1, 4, nil),
		statebackend.WindowsUntil(1, -10),
		statebackend.WindowedTable(0),
		statebackend.KeyedTable(1),
	} {
		k.write(b, func(batch *statebackend.Batch) { batch.DeleteRange(r) })
		want.deleteRange(string(r.Start), string(r.End))
		k.holds("what is left", b, want)
	}
	k.restores("restored", k.base(b), want)
	k.close(b)
}

func largeAndMany(k *kit) {
	b := k.open()
	want := model{"large": strings.Repeat("0123456789abcdef", 1<<16), strings.Repeat("k", 1<<16): "long key"}
	for i := range 6000 {
		want[fmt.Sprintf("m%08d", i*7919%6000)] = strings.Repeat("v", i%100)
	}
	k.write(b, want.puts()...)
	k.holds("written", b, want)
	restored := k.open(k.base(b))
	k.holds("restored", restored, want)
	k.close(restored)
	k.close(b)
}

func overLimit(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"))
	var batch statebackend.Batch
	batch.Put([]byte("b"), nil)
	batch.Put(make([]byte, statebackend.MaxKeyBytes+1), nil)
	if err := b.Write(&batch); err == nil {
		k.Fatalf("a key of %d bytes is written", statebackend.MaxKeyBytes+1)
	}
	k.holds("afterwards", b, model{"a": "1"})
	k.close(b)
}

func independent(k *kit) {
	one, two := k.open(), k.open()
	k.write(one, put("a", "1"))
	k.write(two, put("a", "2"), put("b", "2"))
	k.write(one, delRange("", last))
	k.holds("one", one, model{})
	k.holds("two", two, model{"a": "2", "b": "2"})
	k.close(one)
	k.holds("two, after one is closed", two, model{"a": "2", "b": "2"})
	k.close(two)
}

func wipesDirectory(k *kit) {
	c := k.config(statebackend.AllKeyGroups(groups))
	b := k.openConfig(c)
	k.write(b, put("a", "1"))
	s := k.snapshot(b) // never released
	h := k.persist(s)
	k.close(b)
	k.ok("make directory", os.MkdirAll(filepath.Join(c.Dir, "sub", "dir"), 0o755))
	k.ok("write file", os.WriteFile(filepath.Join(c.Dir, "CURRENT"), []byte("not a database"), 0o644))
	b = k.openConfig(c)
	k.holds("opened again", b, model{})
	k.write(b, put("b", "2"))
	k.close(b)
	c.Restore = []statebackend.Restore{{Handle: h, Fetcher: k.store}}
	b = k.openConfig(c)
	k.holds("restored there", b, model{"a": "1"})
	k.close(b)
}
