package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
	"github.com/millstream/millstream/testing/storagetest"
)

func Example() {
	ctx := context.Background()
	log := New(storage.New(&storagetest.Memory{}, "memory://flights"))

	a, err := log.Claim(ctx, Latest, []byte("coordinator a"))
	if err != nil {
		fmt.Println(err)
		return
	}
	slot, err := a.Publish(ctx, []byte("checkpoint 1"))
	fmt.Println("a publishes in slot", slot, err)

	b, err := log.Claim(ctx, Latest, []byte("coordinator b"))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, _ := b.Restores()
	fmt.Printf("b leads in generation %d and restores %q\n", b.Generation(), m.Payload)

	_, err = a.Publish(ctx, []byte("checkpoint 2 of the old leader"))
	fmt.Println(errors.Is(err, ErrDeposed), err)
	// Output:
	// a publishes in slot 2 <nil>
	// b leads in generation 3 and restores "checkpoint 1"
	// true publish a manifest in slot 3: deposed: another coordinator leads
}

func newLog(t *testing.T) (*Log, *storage.Store) {
	s := storage.New(&storagetest.Memory{}, "memory://job")
	return New(s), s
}

func claim(t *testing.T, g *Log, s Start) *Term {
	t.Helper()
	term, err := g.Claim(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func publish(t *testing.T, term *Term, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		if _, err := term.Publish(t.Context(), []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
}

// payload shows what Settles or Restores returned.
func payload(e Entry, ok bool) string {
	if !ok {
		return "none"
	}
	return string(e.Payload)
}

func (g *Log) payloads(t *testing.T) (all []string) {
	t.Helper()
	for e, err := range g.Manifests(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(e.Payload))
	}
	return all
}

func TestStartsSettleAndRestore(t *testing.T) {
	g, _ := newLog(t)
	steps := []struct {
		start             Start
		settles, restores string
		publish           string // "" for a leader that dies before it publishes
	}{
		{Latest, "none", "none", ""},
		{Latest, "none", "none", "m3"},
		{Latest, "m3", "m3", ""},
		{Latest, "m3", "m3", "m6"},
		{At(3), "m6", "m3", ""},
		{Latest, "m6", "m3", ""}, // stands where the one before stood
		{NewRun, "m6", "none", ""},
		{Latest, "m6", "none", ""}, // does not look behind the new run's claim
		{Latest, "m6", "none", "m12"},
		{Latest, "m12", "m12", ""},
	}
	for i, c := range steps {
		term := claim(t, g, c.start)
		if s, r := payload(term.Settles()), payload(term.Restores()); s != c.settles || r != c.restores {
			t.Errorf("step %d: settles %s and restores %s, want %s and %s", i, s, r, c.settles, c.restores)
		}
		if c.publish != "" {
			publish(t, term, c.publish)
		}
	}
	if got := g.payloads(t); !slices.Equal(got, []string{"m12", "m6", "m3"}) {
		t.Errorf("manifests are %q", got)
	}
}

func TestOnFiles(t *testing.T) {
	store, err := storage.Open(t.Context(), "file://"+t.TempDir(), file.Driver)
	if err != nil {
		t.Fatal(err)
	}
	g := New(store)
	old := claim(t, g, Latest)
	publish(t, old, "m2", "m3")
	term := claim(t, g, Latest)
	publish(t, term, "m5")
	if _, err := old.Publish(t.Context(), []byte("m4")); !errors.Is(err, ErrDeposed) {
		t.Errorf("old leader publishes: %v", err)
	}
	for name, err := range map[string]error{
		"check":   old.Check(t.Context()),
		"collect": func() error { _, err := old.Collect(t.Context(), nil); return err }(),
		"publish": func() error { _, err := old.Publish(t.Context(), nil); return err }(),
	} {
		if !errors.Is(err, ErrDeposed) {
			t.Errorf("%s of a deposed leader: %v", name, err)
		}
	}
	if err := term.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if got := g.payloads(t); !slices.Equal(got, []string{"m5", "m3", "m2"}) {
		t.Errorf("manifests are %q", got)
	}
}

func TestManyCandidatesAtOnceGiveOneLeader(t *testing.T) {
	g, _ := newLog(t)
	publish(t, claim(t, g, Latest), "m2")
	var wg sync.WaitGroup
	terms := make([]*Term, 8)
	errs := make([]error, len(terms))
	for i := range terms {
		wg.Go(func() { terms[i], errs[i] = g.Claim(t.Context(), Latest, nil) })
	}
	wg.Wait()
	leaders := 0
	for i, term := range terms {
		if errs[i] != nil {
			if !errors.Is(errs[i], ErrBeaten) && !errors.Is(errs[i], ErrDeposed) {
				t.Errorf("candidate %d: %v", i, errs[i])
			}
			continue
		}
		if _, err := term.Publish(t.Context(), []byte("mine")); err == nil {
			leaders++
		} else if !errors.Is(err, ErrDeposed) {
			t.Errorf("candidate %d: %v", i, err)
		}
	}
	if leaders != 1 {
		t.Errorf("%d candidates could publish, want 1", leaders)
	}
}

func TestCheckDeposes(t *testing.T) {
	g, _ := newLog(t)
	term := claim(t, g, Latest)
	if err := term.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim(t, g, Latest)
	if err := term.Check(t.Context()); !errors.Is(err, ErrDeposed) {
		t.Errorf("error is %v, want ErrDeposed", err)
	}
}

func TestCollectLeavesTheNewestAndTheRetained(t *testing.T) {
	g, s := newLog(t)
	for range 30 {
		term := claim(t, g, Latest) // leaders that die at once
		if n, err := term.Collect(t.Context(), func(Slot) bool { return false }); n != 0 || err != nil {
			t.Fatalf("before it has published, a leader collects %d entries, %v", n, err)
		}
	}
	term := claim(t, g, Latest) // slot 31
	publish(t, term, "m32", "m33", "m34", "m35")
	n, err := term.Collect(t.Context(), func(s Slot) bool { return s == 7 })
	if err != nil || n != 23 {
		t.Errorf("collects %d entries, %v; want 23", n, err)
	}
	var left []string
	for name, err := range s.List(t.Context(), "log/", "") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, strings.TrimLeft(strings.TrimPrefix(name, "log/"), "0"))
	}
	if got := strings.Join(left, " "); got != "7 25 26 27 28 29 30 31 32 33 34 35" {
		t.Errorf("left are %s", got)
	}
	for i := 36; i < 50; i++ {
		publish(t, term, fmt.Sprint("m", i))
	}
	if _, err := term.Collect(t.Context(), func(s Slot) bool { return s == 34 }); err != nil {
		t.Fatal(err)
	}
	if got := g.payloads(t); got[len(got)-1] != "m39" || got[0] != "m49" {
		t.Errorf("manifests are %q, want m49 to m39", got)
	}
	if m := payload(claim(t, g, Latest).Restores()); m != "m49" {
		t.Errorf("restores %s", m)
	}
}

// TestWriteIntoACollectedSlot: an old leader's write arrives when its slot was used and collected. It wins
// the slot, but neither does it believe so, nor does anybody take it for the entry that was there.
func TestWriteIntoACollectedSlot(t *testing.T) {
	g, s := newLog(t)
	old := claim(t, g, Latest)
	publish(t, old, "m2")
	term := claim(t, g, Latest) // takes slot 3, which old wants
	for i := 4; i < 20; i++ {
		publish(t, term, fmt.Sprint("m", i))
	}
	if _, err := term.Collect(t.Context(), func(Slot) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Publish(t.Context(), []byte("late")); !errors.Is(err, ErrDeposed) {
		t.Errorf("error is %v, want ErrDeposed", err)
	}
	if _, err := s.Read(t.Context(), name(3), 1<<20); err != nil {
		t.Errorf("the write did not arrive, so that this test shows nothing: %v", err)
	}
	if got := g.payloads(t); slices.Contains(got, "late") {
		t.Errorf("manifests are %q", got)
	}
}

// meddler runs a hook before a call of the driver.
type meddler struct {
	storage.Bucket
	create func(ctx context.Context, name string, body []byte) error
	get    func(name string) error
	list   func(startAfter string) error
}

func (m *meddler) Create(ctx context.Context, name string, body []byte) error {
	if m.create == nil {
		return m.Bucket.Create(ctx, name, body)
	}
	return m.create(ctx, name, body)
}

func (m *meddler) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if m.get != nil {
		if err := m.get(name); err != nil {
			return nil, err
		}
	}
	return m.Bucket.Get(ctx, name, off, n)
}

func (m *meddler) List(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
	if m.list != nil {
		if err := m.list(after); err != nil {
			return nil, false, err
		}
	}
	return m.Bucket.List(ctx, prefix, after, limit)
}

func TestUnknownOutcomeEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{Bucket: &storagetest.Memory{}}
		g := New(storage.New(m, "memory://job"))
		term := claim(t, g, Latest)
		publish(t, term, "m2")
		m.create = func(ctx context.Context, name string, body []byte) error {
			if err := m.Bucket.Create(ctx, name, body); err != nil && !errors.Is(err, storage.ErrExist) {
				t.Error(err)
			}
			return errors.New("connection reset")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := term.Publish(ctx, []byte("m3")); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want ErrUnknown", err)
		}
		m.create = nil
		if _, err := term.Publish(t.Context(), []byte("m4")); !errors.Is(err, ErrUnknown) {
			t.Errorf("the term goes on: %v", err)
		}
		if got := payload(claim(t, g, Latest).Restores()); got != "m3" {
			t.Errorf("the next leader restores %s, want m3, which had been written", got)
		}
	})
}

func TestBusyStoreDoesNotEndTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 0
		fail := func(string) error {
			if busy++; busy%3 != 0 {
				return errors.New("503 slow down")
			}
			return nil
		}
		m := &meddler{Bucket: &storagetest.Memory{}, get: fail, list: fail}
		g := New(storage.New(m, "memory://job"))
		publish(t, claim(t, g, Latest), "m2", "m3")
		term := claim(t, g, Latest)
		if got := payload(term.Restores()); got != "m3" {
			t.Errorf("restores %s", got)
		}
	})
}

// TestDeposedWhileItReads: between a leader's claim and its reading of what it restores, others lead,
// publish and collect that.
func TestDeposedWhileItReads(t *testing.T) {
	m := &meddler{Bucket: &storagetest.Memory{}}
	g := New(storage.New(m, "memory://job"))
	publish(t, claim(t, g, Latest), "m2")
	m.create = func(ctx context.Context, name string, body []byte) error {
		m.create = nil
		err := m.Bucket.Create(ctx, name, body)
		other := claim(t, g, Latest)
		for i := range 20 {
			publish(t, other, fmt.Sprint(i))
		}
		if _, err := other.Collect(ctx, func(Slot) bool { return false }); err != nil {
			t.Error(err)
		}
		return err
	}
	if _, err := g.Claim(t.Context(), Latest, nil); !errors.Is(err, ErrDeposed) {
		t.Errorf("error is %v, want ErrDeposed", err)
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	put := func(t *testing.T, s *storage.Store, name, body string) {
		t.Helper()
		if _, err := s.Put(t.Context(), name, strings.NewReader(body), int64(len(body))); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		damage func(t *testing.T, s *storage.Store)
		start  Start
		says   string
	}{
		"damaged newest": {func(t *testing.T, s *storage.Store) { put(t, s, name(3), "rubbish") }, Latest, name(3) + " of memory://job: object is corrupt"},
		"newest misplaced": {func(t *testing.T, s *storage.Store) {
			b, _ := s.Read(t.Context(), name(2), 999)
			put(t, s, name(4), string(b))
		}, Latest, "belongs into slot 2"},
		"deleted by hand": {func(t *testing.T, s *storage.Store) {
			claim(t, New(s), Latest)
			if err := s.Delete(t.Context(), name(3)); err != nil {
				t.Fatal(err)
			}
		}, Latest, name(3) + ": object is corrupt: the log still builds on this manifest, but it is gone"},
		"foreign slot": {func(t *testing.T, s *storage.Store) { put(t, s, "log/18446744073709551615", "") }, Latest, "slot 18446744073709551615 was not written by this program"},
		"no such slot": {func(*testing.T, *storage.Store) {}, At(1), "no manifest in slot 1"},
	} {
		t.Run(what, func(t *testing.T) {
			g, s := newLog(t)
			publish(t, claim(t, g, Latest), "m2", "m3")
			c.damage(t, s)
			if _, err := g.Claim(t.Context(), c.start, nil); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want %q", err, c.says)
			}
		})
	}
}

func TestForeignObjectsArePassedOver(t *testing.T) {
	g, s := newLog(t)
	publish(t, claim(t, g, Latest), "m2")
	for _, n := range []string{"log/notes.txt", "log/00000000000000000099.bak", "log/99", "log/99999999999999999999", "log-old/00000000000000000099"} {
		if _, err := s.Put(t.Context(), n, strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
	}
	if m := payload(claim(t, g, Latest).Restores()); m != "m2" {
		t.Errorf("restores %s", m)
	}
}

func TestManifestsOfAnEmptyLog(t *testing.T) {
	g, _ := newLog(t)
	if got := g.payloads(t); len(got) != 0 {
		t.Errorf("manifests are %q", got)
	}
	if e, ok, err := g.Newest(t.Context()); ok || err != nil {
		t.Errorf("newest is %+v, %t, %v", e, ok, err)
	}
}
