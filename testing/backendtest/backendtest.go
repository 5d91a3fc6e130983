// Package backendtest is the one suite that every state backend passes.
//
//	func TestBackend(t *testing.T) { backendtest.Run(t, memory.Driver{}) }
//
// The suite is itself tested: broken backends of its own must each fail it, and odd but legal ones must pass.
package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millstream/millstream/statebackend"
)

// Claim is something that a driver may do and then does right.
type Claim int

const (
	// SharesFiles says that a second base refers to the unchanged files of the first.
	SharesFiles Claim = iota + 1
)

// Run checks that driver keeps every promise of package statebackend, and those that it claims.
func Run(t *testing.T, driver statebackend.Driver, claims ...Claim) {
	for _, c := range cases {
		if c.needs != 0 && !slices.Contains(claims, c.needs) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(newKit(t, driver)) })
	}
}

// tester is the part of testing.TB that cases use, so that the suite's own test can watch one fail.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	TempDir() string
	Context() context.Context
	Name() string
}

type testCase struct {
	name  string
	needs Claim
	run   func(k *kit)
}

// kit is what one case works with: a driver, durable storage, and short forms that fail the test on any error.
type kit struct {
	tester
	driver statebackend.Driver
	store  *objects
	dir    string
	opened int
}

func newKit(t tester, driver statebackend.Driver) *kit {
	return &kit{tester: t, driver: driver, dir: t.TempDir(), store: &objects{
		content: map[string][]byte{}, uploaded: map[string]bool{}, completed: map[string]statebackend.Ref{}, ids: map[string]statebackend.Ref{},
	}}
}

// groups is the number of key groups in all cases.
const groups = 16

func (k *kit) config(own statebackend.KeyGroupRange, from ...statebackend.Handle) statebackend.Config {
	k.opened++
	c := statebackend.Config{Dir: filepath.Join(k.dir, fmt.Sprint(k.opened)), MemoryBytes: 64 << 20, KeyGroups: own}
	for _, h := range from {
		c.Restore = append(c.Restore, statebackend.Restore{Handle: h, Fetcher: k.store})
	}
	return c
}

func (k *kit) openConfig(c statebackend.Config) statebackend.Backend {
	k.Helper()
	b, err := k.driver.Open(k.Context(), c)
	k.ok("open", err)
	return b
}

// open opens a Backend that owns all groups.
func (k *kit) open(from ...statebackend.Handle) statebackend.Backend {
	k.Helper()
	return k.openConfig(k.config(statebackend.AllKeyGroups(groups), from...))
}

func (k *kit) ok(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

// write fills a Batch by ops, writes it, and then overwrites the memory that the Batch used.
func (k *kit) write(b statebackend.Backend, ops ...func(*statebackend.Batch)) {
	k.Helper()
	var batch statebackend.Batch
	for _, op := range ops {
		op(&batch)
	}
	k.ok("write", b.Write(&batch))
	size := batch.Size()
	batch.Reset()
	batch.Put(nil, bytes.Repeat([]byte{'#'}, size))
}

func put(key, value string) func(*statebackend.Batch) {
	return func(b *statebackend.Batch) { b.Put([]byte(key), []byte(value)) }
}

func del(key string) func(*statebackend.Batch) {
	return func(b *statebackend.Batch) { b.Delete([]byte(key)) }
}

func delRange(start, end string) func(*statebackend.Batch) {
	return func(b *statebackend.Batch) {
		b.DeleteRange(statebackend.Range{Start: []byte(start), End: []byte(end)})
	}
}

// get returns "i=value" for each value found.
func (k *kit) get(b statebackend.Backend, keys ...string) []string {
	k.Helper()
	var list statebackend.Keys
	for _, key := range keys {
		list.Append([]byte(key))
	}
	var got []string
	k.ok("get", b.Get(&list, func(i int, value []byte) error {
		got = append(got, fmt.Sprintf("%d=%s", i, value))
		return nil
	}))
	return got
}

// scan returns "key=value" for each entry of [start, end).
func (k *kit) scan(b statebackend.Backend, start, end string) []string {
	k.Helper()
	var got []string
	err := b.Scan(statebackend.Range{Start: []byte(start), End: []byte(end)}, func(key, value []byte) (bool, error) {
		got = append(got, fmt.Sprintf("%s=%s", key, value))
		return true, nil
	})
	k.ok("scan", err)
	return got
}

// same fails unless two lists are equal.
func (k *kit) same(what string, got []string, want ...string) {
	k.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i == len(got):
			k.Fatalf("%s: it ends after %d results, want %d more, first %.80q", what, i, len(want)-i, want[i])
		case i == len(want):
			k.Fatalf("%s: after %d results come %d more, first %.80q", what, i, len(got)-i, got[i])
		case got[i] != want[i]:
			k.Fatalf("%s: result %d is %.80q, want %.80q", what, i, got[i], want[i])
		}
	}
}

// last is greater than every key that cases use.
var last = strings.Repeat("\xff", 40)

// holds fails unless b has exactly the entries of want, by Scan and by Get.
func (k *kit) holds(what string, b statebackend.Backend, want model) {
	k.Helper()
	i := 0
	keys := slices.Sorted(maps.Keys(want))
	k.ok(what+": scan", b.Scan(statebackend.Range{End: []byte(last)}, func(key, value []byte) (bool, error) {
		if i == len(keys) {
			return false, fmt.Errorf("unexpected key %q", key)
		}
		if string(key) != keys[i] || string(value) != want[keys[i]] {
			return false, fmt.Errorf("entry %d is %.80q=%.80q, want %.80q=%.80q", i, key, value, keys[i], want[keys[i]])
		}
		i++
		return true, nil
	}))
	if i != len(keys) {
		k.Fatalf("%s: scan ends after %d of %d entries", what, i, len(keys))
	}
	var list statebackend.Keys
	for _, key := range keys {
		list.Append([]byte(key))
		list.Append([]byte(key + "?")) // absent unless want says otherwise
	}
	n := 0
	k.ok(what+": get", b.Get(&list, func(i int, value []byte) error {
		if v, ok := want[string(list.At(i))]; !ok || v != string(value) {
			return fmt.Errorf("key %.80q is %.80q, want %.80q", list.At(i), value, v)
		}
		if i%2 == 0 {
			n++
		}
		return nil
	}))
	if n != len(keys) {
		k.Fatalf("%s: get finds %d of %d keys", what, n, len(keys))
	}
}

func (k *kit) snapshot(b statebackend.Backend) statebackend.Snapshot {
	k.Helper()
	s, err := b.Snapshot()
	k.ok("snapshot", err)
	return s
}

// persist returns the Handle as another process would read it.
func (k *kit) persist(s statebackend.Snapshot) statebackend.Handle {
	k.Helper()
	k.store.begin()
	h, err := s.Persist(k.Context(), k.store)
	k.ok("persist", err)
	return k.reread(h)
}

func (k *kit) reread(h statebackend.Handle) statebackend.Handle {
	k.Helper()
	k.ok("persist", k.store.check(h))
	encoded, err := h.Append(nil)
	k.ok("encode handle", err)
	h, rest, err := statebackend.DecodeHandle(encoded)
	k.ok("decode handle", err)
	if len(rest) > 0 {
		k.Fatalf("%d bytes are left of the handle", len(rest))
	}
	return h
}

// base snapshots, persists and releases.
func (k *kit) base(b statebackend.Backend) statebackend.Handle {
	k.Helper()
	s := k.snapshot(b)
	h := k.persist(s)
	k.ok("release", s.Release())
	return h
}

// restores fails unless a Backend restored from h has exactly the entries of want.
func (k *kit) restores(what string, h statebackend.Handle, want model) {
	k.Helper()
	b := k.open(h)
	k.holds(what, b, want)
	k.close(b)
}

func (k *kit) close(b statebackend.Backend) {
	k.Helper()
	k.ok("close", b.Close())
}

// model is what a Backend should hold.
type model map[string]string

func (m model) deleteRange(start, end string) {
	maps.DeleteFunc(m, func(key, _ string) bool { return start <= key && key < end })
}

// own returns the entries whose key group lies in r.
func (m model) own(r statebackend.KeyGroupRange) model {
	mine := model{}
	for key, value := range m {
		if g, ok := statebackend.KeyGroupOf([]byte(key)); ok && r.Contains(g) {
			mine[key] = value
		}
	}
	return mine
}

// objects is durable storage in memory.
type objects struct {
	mu        sync.Mutex
	content   map[string][]byte
	uploaded  map[string]bool             // since begin
	asked     map[string]bool             // identities that Known has answered since begin
	bytes     int64                       // uploaded since begin
	completed map[string]statebackend.Ref // identities that Known knows
	ids       map[string]statebackend.Ref // every identity ever seen
	failAfter int                         // uploads that succeed before one fails; 0: all do
}

var errUpload = errors.New("the storage is away")

func (o *objects) begin() {
	o.uploaded, o.asked, o.bytes = map[string]bool{}, map[string]bool{}, 0
}

// complete makes the files of h known.
func (o *objects) complete(h statebackend.Handle) {
	for _, f := range h.Files {
		if f.ID != "" {
			o.completed[f.ID] = f.Ref
		}
	}
}

func (o *objects) Known(id string) (statebackend.Ref, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ref, ok := o.completed[id]
	o.asked[ref.Object] = ok
	return ref, ok
}

func (o *objects) Upload(ctx context.Context, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	all := make([]byte, size)
	for range 2 { // as a retry would
		if n, err := content.ReadAt(all, 0); n != len(all) {
			return statebackend.Ref{}, fmt.Errorf("upload %s: %d of %d bytes: %w", name, n, size, err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failAfter > 0 {
		if o.failAfter--; o.failAfter == 0 {
			return statebackend.Ref{}, errUpload
		}
	}
	if err := ctx.Err(); err != nil {
		return statebackend.Ref{}, err
	}
	object := fmt.Sprintf("objects/%d", len(o.content))
	o.content[object], o.uploaded[object] = all, true
	o.bytes += size
	return statebackend.Ref{Object: object, Size: size, CRC32C: statebackend.Checksum(0, all)}, nil
}

func (o *objects) Fetch(ctx context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	content, ok := o.content[ref.Object]
	if !ok {
		return nil, fmt.Errorf("object %q does not exist", ref.Object)
	}
	return io.NopCloser(bytes.NewReader(content)), ctx.Err()
}

// check verifies a new Handle: it refers to its own uploads or to what Known has answered, and a file's identity
// stands for one content, whoever wrote it.
func (o *objects) check(h statebackend.Handle) error {
	for _, f := range h.Files {
		if !o.uploaded[f.Ref.Object] && !o.asked[f.Ref.Object] {
			return fmt.Errorf("file %s refers to %q, which was neither uploaded nor known to be completed", f.Name, f.Ref.Object)
		}
		if f.ID == "" {
			continue
		}
		before, seen := o.ids[f.ID]
		if seen && (before.Size != f.Ref.Size || before.CRC32C != f.Ref.CRC32C) {
			return fmt.Errorf("file %s: identity %q stood for %+v before and now for %+v", f.Name, f.ID, before, f.Ref)
		}
		o.ids[f.ID] = f.Ref
	}
	return nil
}
