package statebackend

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
)

var times = []eventtime.Time{eventtime.Min, -1 << 40, -256, -1, 0, 1, 255, 256, 1 << 40, eventtime.EndOfGlobalWindow, eventtime.Max}

func TestWindowKeysAreOrderedByEndThenStart(t *testing.T) {
	var last []byte
	for _, end := range times {
		for _, start := range times {
			k := AppendWindowKey(nil, 1, start, end, 7, []byte("key"))
			if last != nil && bytes.Compare(last, k) >= 0 {
				t.Errorf("key of [%d, %d) does not come after the one before", start, end)
			}
			last = k
		}
	}
}

func TestWindowsUntilHoldsExactlyTheWindowsThatAreDue(t *testing.T) {
	for _, watermark := range times {
		for _, end := range times {
			for table := range Table(3) {
				k := AppendWindowKey(nil, table, end-10, end, 0xffff, []byte{0xff, 0xff})
				want := table == 1 && end <= watermark
				if got := WindowsUntil(1, watermark).Contains(k); got != want {
					t.Errorf("Watermark %d, window end %d, table %d: in range %v, want %v", watermark, end, table, got, want)
				}
			}
		}
	}
}

// Keys that are prefixes of each other, in every place where a key stands (quixio/quix-streams#1122: expiring "key"
// deleted "key-1").
func TestNoRangeHoldsAnEntryOfAnother(t *testing.T) {
	keys := []string{"key", "key2", "key-1", "ke", "", "key\x00", "\xff", "\xff\xff", strings.Repeat("k", 300)}
	type entry struct {
		name, scope string // entries with one scope share a range
		encoded     []byte
	}
	var entries []entry
	ranges := map[string]Range{}
	for _, table := range []Table{0, 1, 0xff} {
		for _, g := range []KeyGroup{0, 1, 0xff, 0x100, MaxKeyGroups - 1} {
			for _, k := range keys {
				scope := fmt.Sprintf("keyed %d %d %q", table, g, k)
				ranges[scope] = KeyRange(table, g, []byte(k))
				for _, cell := range []string{"", "\x00", "a", "\xff\xff"} {
					entries = append(entries, entry{scope + cell, scope, append(AppendKeyed(nil, table, g, []byte(k)), cell...)})
				}
				for _, end := range []eventtime.Time{-1, 0, eventtime.Max} {
					scope := fmt.Sprintf("window %d %d", table, end)
					ranges[scope] = WindowRange(table, end-5, end)
					entries = append(entries, entry{fmt.Sprint(scope, g, k), scope, AppendWindowKey(nil, table, end-5, end, g, []byte(k))})
				}
			}
		}
	}
	seen := map[string]string{}
	for _, e := range entries {
		if other, ok := seen[string(e.encoded)]; ok {
			t.Errorf("%s and %s have one encoding", e.name, other)
		}
		seen[string(e.encoded)] = e.name
		for scope, r := range ranges {
			if got, want := r.Contains(e.encoded), scope == e.scope; got != want {
				t.Errorf("range of %s contains %s: %v, want %v", scope, e.name, got, want)
			}
		}
	}
}

func TestTableRangesHoldTheirTable(t *testing.T) {
	for _, table := range []Table{0, 1, 0xff} {
		w, k := AppendWindowKey(nil, table, 0, eventtime.Max, 1, nil), AppendKeyed(nil, table, MaxKeyGroups-1, nil)
		for _, in := range []Table{0, 1, 0xff} {
			want := table == in
			if got := [4]bool{WindowedTable(in).Contains(w), WindowedTable(in).Contains(k), KeyedTable(in).Contains(w), KeyedTable(in).Contains(k)}; got != [4]bool{want, false, false, want} {
				t.Errorf("ranges of table %d over entries of table %d: %v", in, table, got)
			}
		}
	}
}

func TestParseUndoesAppend(t *testing.T) {
	for _, key := range []string{"", "key", "\x00\xff", strings.Repeat("x", 200)} {
		for _, end := range times {
			want := WindowKey{Table: 3, Start: end - 1, End: end, Group: 258, Key: []byte(key)}
			encoded := AppendWindowKey(nil, want.Table, want.Start, want.End, want.Group, want.Key)
			got, ok := ParseWindowKey(encoded)
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("window key %q: ok %v, -want +got\n%s", key, ok, diff)
			}
			if g, ok := KeyGroupOf(encoded); !ok || g != 258 {
				t.Errorf("key group of window key: %d, %v", g, ok)
			}
		}
		for _, cell := range []string{"", "c", key} {
			want := KeyedKey{Table: 3, Group: 258, Key: []byte(key), Cell: []byte(cell)}
			encoded := append(AppendKeyed(nil, want.Table, want.Group, want.Key), cell...)
			got, ok := ParseKeyed(encoded)
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("keyed key %q: ok %v, -want +got\n%s", key, ok, diff)
			}
			if g, ok := KeyGroupOf(encoded); !ok || g != 258 {
				t.Errorf("key group of keyed key: %d, %v", g, ok)
			}
		}
	}
}

func FuzzParseRefusesOrRoundTrips(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("k\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(AppendWindowKey(nil, 0, -1, 5, 9, []byte("a")))
	f.Add(append(AppendKeyed(nil, 0, 9, []byte("a")), "cell"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, ok := ParseWindowKey(b); ok {
			if again := AppendWindowKey(nil, w.Table, w.Start, w.End, w.Group, w.Key); !bytes.Equal(again, b) {
				t.Errorf("window key %x became %x", b, again)
			}
		}
		if k, ok := ParseKeyed(b); ok && k.Group != mustGroup(t, b) {
			t.Errorf("keyed key %x: group %d", b, k.Group)
		}
	})
}

func mustGroup(t *testing.T, b []byte) KeyGroup {
	g, ok := KeyGroupOf(b)
	if !ok {
		t.Fatalf("key %x is parsed but has no group", b)
	}
	return g
}

func TestRangeOfDividesEveryGroupOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cases := [][2]int{{1, 1}, {1, MaxKeyGroups}, {MaxKeyGroups, MaxKeyGroups}, {3, 2}, {7, 256}}
	for range 200 {
		cases = append(cases, [2]int{1 + r.IntN(300), 1 + r.IntN(1000)})
	}
	for _, c := range cases {
		parallelism, groups := c[0], c[1]
		next, least, most := 0, groups, 0
		for s := range parallelism {
			own := RangeOf(s, parallelism, groups)
			if int(own.First) != next {
				t.Fatalf("subtask %d of %d, %d groups: starts at %d, want %d", s, parallelism, groups, own.First, next)
			}
			for g := own.First; g < own.End; g++ {
				if got := SubtaskOf(g, parallelism, groups); got != s {
					t.Fatalf("group %d of %d, parallelism %d: subtask %d, want %d", g, groups, parallelism, got, s)
				}
			}
			next, least, most = int(own.End), min(least, own.Len()), max(most, own.Len())
		}
		if next != groups || most-least > 1 {
			t.Errorf("parallelism %d: %d of %d groups, shares of %d to %d", parallelism, next, groups, least, most)
		}
	}
}

// The file holds "key in hex, hash in hex, group of 256, group of 100". The hashes are those that xxHash's own program
// prints (xxhsum -H3), a second witness.
func TestKeyGroupVectors(t *testing.T) {
	f, err := os.Open("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var keyHex string
		var hash uint64
		var of256, of100 KeyGroup
		if _, err := fmt.Sscanf(s.Text(), "%q %x %d %d", &keyHex, &hash, &of256, &of100); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		key, err := hex.DecodeString(keyHex)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(of256) != hash%256 || uint64(of100) != hash%100 {
			t.Errorf("vector %q contradicts itself", s.Text())
		}
		if got := [2]KeyGroup{KeyGroupFor(key, 256), KeyGroupFor(key, 100)}; got != [2]KeyGroup{of256, of100} {
			t.Errorf("key %s: groups %v, want %d and %d", keyHex, got, of256, of100)
		}
	}
	if n != 9 {
		t.Errorf("%d vectors", n)
	}
}
