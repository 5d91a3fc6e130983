package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millstream/millstream/statebackend/storage"
)

var obligations = []obligation{
	{"put-get", "what Put has acknowledged, every process reads back, byte for byte", putGet},
	{"missing", "a missing object is ErrNotExist", missing},
	{"replace", "after Put has replaced an object, every process reads the new one", replace},
	{"put-atomic", "readers see the old object or the new one, whole, also while Put runs", putAtomic},
	{"put-failed", "a Put that failed leaves the old object, or nothing, and no trace in List", putFailed},
	{"put-changed", "bytes that do not match ref.CRC32C are an error", putChanged},
	{"create", "Create changes nothing if the object exists, and says ErrExist", create},
	{"create-race", "of concurrent Creates at most one returns nil", createRace},
	{"create-lost-answer", "PutIfAbsent knows its outcome although answers are lost", createLostAnswer},
	{"ranges", "Get gives exactly the range that was asked for", ranges},
	{"list-order", "List returns names in ascending order of bytes, after startAfter, that begin with prefix", listOrder},
	{"list-pages", "List returns at most limit names, and pages miss nothing and repeat nothing", listPages},
	{"delete", "Delete removes this object only; a missing one is no error", remove},
	{"big", "objects of many megabytes are stored whole", big},
	{"concurrent", "all methods may be called from many goroutines at once", concurrent},
	{"cancel", "when ctx ends, a method returns an error that wraps ctx.Err()", cancel},
}

func putGet(e *env) error {
	for name, body := range map[string][]byte{
		"empty":                     {},
		"one":                       {0},
		"a/b/c/deep":                e.bytes(100),
		"shared/000017.sst":         e.bytes(70_000),
		"Az09._-/" + long('n', 200): e.bytes(10),
		long('s', 100) + "/" + long('t', 200) + "/" + long('u', 200) + "/" + long('v', 200): []byte("long name"),
	} {
		ref, err := e.store.Put(e.ctx, name, bytes.NewReader(body), int64(len(body)))
		if err != nil {
			return err
		}
		for _, s := range []*storage.Store{e.store, e.peer} {
			r, err := s.Get(e.ctx, ref)
			if err != nil {
				return err
			}
			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			if !bytes.Equal(got, body) {
				return fmt.Errorf("%s/%s: read back %d bytes that differ from the %d put", s, name, len(got), len(body))
			}
		}
	}
	return nil
}

func long(c byte, n int) string { return strings.Repeat(string(c), n) }

func missing(e *env) error {
	if err := e.wantMissing("never/put"); err != nil {
		return err
	}
	if err := e.put("dir/object"); err != nil {
		return err
	}
	if err := e.wantMissing("dir/other"); err != nil {
		return err
	}
	if err := e.wantMissing("dir/object2"); err != nil {
		return err
	}
	if err := e.store.Delete(e.ctx, "dir/object"); err != nil {
		return err
	}
	return e.wantMissing("dir/object")
}

func replace(e *env) error {
	for i := range 5 {
		content := strings.Repeat(fmt.Sprint("version ", i), 5-i) // shorter each time
		if _, err := e.store.Put(e.ctx, "dir/object", strings.NewReader(content), int64(len(content))); err != nil {
			return err
		}
		if err := e.want("dir/object", content); err != nil {
			return err
		}
	}
	return nil
}

// putAtomic looks at the object while the driver is in the middle of storing it.
func putAtomic(e *env) error {
	const size = 1 << 20
	for _, old := range []string{"", "old"} {
		look := func() error { return e.wantMissing("dir/object") }
		if old != "" {
			if _, err := e.store.Put(e.ctx, "dir/object", strings.NewReader(old), int64(len(old))); err != nil {
				return err
			}
			look = func() error { return e.want("dir/object", old) }
		}
		body := e.bytes(size)
		var seen error
		s := &spy{ReaderAt: bytes.NewReader(body), i: size - 1, n: 2, at: func() error { seen = look(); return nil }}
		ref, err := e.store.Put(e.ctx, "dir/object", s, size)
		if err != nil {
			return err
		}
		if seen != nil {
			return fmt.Errorf("while Put runs: %w", seen)
		}
		if got, err := e.peer.Read(e.ctx, ref.Name, size); err != nil || !bytes.Equal(got, body) {
			return fmt.Errorf("after Put: read %d of %d bytes, or others (error %v)", len(got), size, err)
		}
		if err := e.store.Delete(e.ctx, "dir/object"); err != nil {
			return err
		}
	}
	return nil
}

func putFailed(e *env) error {
	const size = 1 << 20
	broken := errors.New("disk of the caller is broken")
	fail := func(name string) error {
		s := &spy{ReaderAt: bytes.NewReader(make([]byte, size)), i: size - 1, n: 2, at: func() error { return broken }}
		if _, err := e.store.Put(e.ctx, name, s, size); !errors.Is(err, broken) {
			return fmt.Errorf("put of a body that cannot be read: error is %v, want one that wraps the body's", err)
		}
		return nil
	}
	if err := fail("dir/fresh"); err != nil {
		return err
	}
	if err := e.wantMissing("dir/fresh"); err != nil {
		return err
	}
	if err := e.put("dir/old"); err != nil {
		return err
	}
	if err := fail("dir/old"); err != nil {
		return err
	}
	if err := e.want("dir/old", "dir/old"); err != nil {
		return err
	}
	return e.wantList("", "", "dir/old")
}

// putChanged lets the body change between the Store's reading for the checksum and the driver's.
func putChanged(e *env) error {
	const size = 1 << 20
	body := make([]byte, size)
	s := &spy{ReaderAt: bytes.NewReader(body), i: 0, n: 2, at: func() error { body[1]++; return nil }}
	if _, err := e.store.Put(e.ctx, "dir/changed", s, size); err == nil {
		return errors.New("put of a body that changed: no error")
	}
	return e.wantMissing("dir/changed")
}

func create(e *env) error {
	if won, err := e.store.PutIfAbsent(e.ctx, "log/1", []byte("first")); err != nil || !won {
		return fmt.Errorf("create of an absent object: won is %t, error is %v", won, err)
	}
	for _, s := range []*storage.Store{e.store, e.peer} {
		if won, err := s.PutIfAbsent(e.ctx, "log/1", []byte("second")); err != nil || won {
			return fmt.Errorf("create of an object that exists: won is %t, error is %v", won, err)
		}
	}
	err := e.bucket.Create(e.ctx, "log/1", []byte("third"))
	for range 100 { // an answer that leaves the outcome open is allowed, but not for ever
		if err != nil && !errors.Is(err, storage.ErrExist) && !errors.Is(err, storage.ErrPermanent) {
			err = e.bucket.Create(e.ctx, "log/1", []byte("third"))
		}
	}
	if !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("create of an object that exists: error is %v, want ErrExist", err)
	}
	if err := e.want("log/1", "first"); err != nil {
		return err
	}
	if err := e.put("log/2"); err != nil {
		return err
	}
	if won, err := e.store.PutIfAbsent(e.ctx, "log/2", []byte("x")); err != nil || won {
		return fmt.Errorf("create of an object that was put: won is %t, error is %v", won, err)
	}
	if err := e.store.Delete(e.ctx, "log/1"); err != nil {
		return err
	}
	if won, err := e.store.PutIfAbsent(e.ctx, "log/1", []byte("again")); err != nil || !won {
		return fmt.Errorf("create of a deleted object: won is %t, error is %v", won, err)
	}
	return e.want("log/1", "again")
}

func createRace(e *env) error {
	for round := range 20 {
		name := fmt.Sprintf("log/%d", round)
		var won [16]bool
		err := parallel(len(won), func(i int) (err error) {
			s := []*storage.Store{e.store, e.peer}[i%2]
			won[i], err = s.PutIfAbsent(e.ctx, name, fmt.Appendf(nil, "writer %d", i))
			return err
		})
		if err != nil {
			return err
		}
		winner := slices.Index(won[:], true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			return fmt.Errorf("16 concurrent creates of %s: want 1 winner, won is %t", name, won)
		}
		if err := e.want(name, fmt.Sprintf("writer %d", winner)); err != nil {
			return err
		}
	}
	return nil
}

// createLostAnswer loses requests and answers on the way to the driver and back.
func createLostAnswer(e *env) error {
	lost := errors.New("connection lost")
	f := &faulty{Bucket: e.bucket}
	s := storage.New(f, "faulty://")
	for i, c := range []struct {
		script string // one letter a sending: r, the request is lost; a, the answer is; b, as a, but a rival comes first
		won    bool
		holds  string
	}{
		{"r", true, "own"}, {"a", true, "own"}, {"rrar", true, "own"}, {"aaa", true, "own"},
		{"b", false, "rival"}, {"rb", false, "rival"}, {"ab", true, "own"},
	} {
		name := fmt.Sprintf("log/%d", i)
		sending := 0
		f.create = func(ctx context.Context, name string, body []byte) error {
			if sending++; sending > len(c.script) {
				return e.bucket.Create(ctx, name, body)
			}
			switch c.script[sending-1] {
			case 'b':
				if _, err := e.peer.PutIfAbsent(ctx, name, []byte("rival")); err != nil {
					return err
				}
				fallthrough
			case 'a':
				if _, err := e.store.PutIfAbsent(ctx, name, body); err != nil {
					return err
				}
			}
			return lost
		}
		if won, err := s.PutIfAbsent(e.ctx, name, []byte("own")); err != nil || won != c.won {
			return fmt.Errorf("create with faults %q: won is %t, want %t, error is %v", c.script, won, c.won, err)
		}
		if err := e.want(name, c.holds); err != nil {
			return fmt.Errorf("create with faults %q: %w", c.script, err)
		}
	}
	return nil
}

func ranges(e *env) error {
	const size = 10_000
	body := e.bytes(size)
	ref, err := e.store.Put(e.ctx, "dir/object", bytes.NewReader(body), size)
	if err != nil {
		return err
	}
	cases := [][2]int64{{0, 1}, {0, size}, {size - 1, 1}, {1, size - 1}, {size, 0}, {0, 0}, {4095, 2}, {4096, 4096}}
	for range 10 {
		off := e.rand.Int64N(size)
		cases = append(cases, [2]int64{off, 1 + e.rand.Int64N(size-off)})
	}
	for _, c := range cases {
		r, err := e.peer.GetRange(e.ctx, ref, c[0], c[1])
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("range %d+%d: %w", c[0], c[1], err)
		}
		if !bytes.Equal(got, body[c[0]:c[0]+c[1]]) {
			return fmt.Errorf("range %d+%d: got %d bytes that are not those", c[0], c[1], len(got))
		}
	}
	if _, err := e.peer.GetRange(e.ctx, storage.Ref{Name: "dir/absent", Size: 10}, 1, 1); !errors.Is(err, storage.ErrNotExist) {
		return fmt.Errorf("range of a missing object: error is %v, want ErrNotExist", err)
	}
	// The ref may be wrong about the object: then fewer bytes may not pass for all.
	for _, c := range [][2]int64{{size - 1, 2}, {size, 1}, {2 * size, 5}} {
		r, err := e.peer.GetRange(e.ctx, storage.Ref{Name: "dir/object", Size: 3 * size}, c[0], c[1])
		if err != nil {
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err == nil {
			return fmt.Errorf("range %d+%d of an object of %d bytes: no error, but %d bytes", c[0], c[1], size, len(got))
		}
	}
	return nil
}

// Bytes below and above '/', so that the order of names is not the order of a walk through directories.
var tricky = []string{
	"a-b", "a.b", "a/b", "a/b-c", "a0", "aA", "a_", "aa/x", "ab",
	"log/00000000000000000009", "log/00000000000000000010", "log/00000000000000000011", "log-old/1", "log.old/1", "logs/1",
	"B", "Z/z", "z/z/z", "z/z-z/z", "z/z.z",
}

func (e *env) wantList(prefix, startAfter string, want ...string) error {
	for _, s := range []*storage.Store{e.store, e.peer} {
		var got []string
		for name, err := range s.List(e.ctx, prefix, startAfter) {
			if err != nil {
				return err
			}
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("list of %s, prefix %q after %q:\ngot  %q\nwant %q", s, prefix, startAfter, got, want)
		}
	}
	return nil
}

func listOrder(e *env) error {
	if err := e.wantList("", ""); err != nil {
		return fmt.Errorf("nothing put yet: %w", err)
	}
	if err := e.put(tricky...); err != nil {
		return err
	}
	names := slices.Sorted(slices.Values(tricky))
	for _, prefix := range []string{"", "a", "a/", "a/b", "a-", "log", "log/", "log/0000000000000000001", "z/z", "z/z/", "zz", "log/9", "nothing/here"} {
		for _, after := range append([]string{"", "a/", "a/a", "a/b-", "log/", "log/00000000000000000010", "log/00000000000000000009x", "z/z", "zzz"}, names...) {
			var want []string
			for _, name := range names {
				if strings.HasPrefix(name, prefix) && name > after {
					want = append(want, name)
				}
			}
			if err := e.wantList(prefix, after, want...); err != nil {
				return err
			}
		}
	}
	return nil
}

// listPages lists more objects than a page of any known store holds.
func listPages(e *env) error {
	const n = 1100
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("dir/%c/%04d", 'a'+i%3, i))
	}
	names = append(names, "neighbour")
	err := parallel(16, func(w int) error {
		for i := w; i < len(names); i += 16 {
			if err := e.put(names[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	if err := e.wantList("dir/", "", names[:n]...); err != nil {
		return err
	}
	if err := e.wantList("", "", names...); err != nil {
		return err
	}
	for _, limit := range []int{1, 7, 100, 366, 367, 1000, 1099, 1100, 1101, 5000} {
		want := names[:n]
		if limit < 100 {
			want = want[n-10*limit:] // ten short pages show as much as all of them
		}
		after := ""
		if len(want) < n {
			after = names[n-len(want)-1]
		}
		for more := true; more; {
			var page []string
			if page, more, err = e.other.List(e.ctx, "dir/", after, limit); err != nil {
				return err
			}
			if len(page) > limit || more && len(page) == 0 {
				return fmt.Errorf("page of at most %d names after %q: has %d, more is %t", limit, after, len(page), more)
			}
			if len(page) > len(want) || !slices.Equal(page, want[:len(page)]) {
				return fmt.Errorf("page of at most %d names after %q:\ngot  %q\nwant the beginning of %q", limit, after, page, want)
			}
			if want = want[len(page):]; len(page) > 0 {
				after = page[len(page)-1]
			}
		}
		if len(want) > 0 {
			return fmt.Errorf("pages of at most %d names end before %q", limit, want)
		}
	}
	return nil
}

func remove(e *env) error {
	if err := e.put("a/1", "a/10", "a/11/x", "a/2", "b"); err != nil {
		return err
	}
	for range 2 {
		for _, s := range []*storage.Store{e.store, e.peer} {
			if err := s.Delete(e.ctx, "a/1"); err != nil {
				return err
			}
		}
		if err := e.store.Delete(e.ctx, "never/was/there"); err != nil {
			return err
		}
		if err := e.wantList("", "", "a/10", "a/11/x", "a/2", "b"); err != nil {
			return err
		}
		if err := e.want("a/10", "a/10"); err != nil {
			return err
		}
		if _, err := e.peer.Read(e.ctx, "a/1", 10); !errors.Is(err, storage.ErrNotExist) {
			return fmt.Errorf("read of a deleted object: error is %v, want ErrNotExist", err)
		}
	}
	// All of a directory may go, and come back.
	for _, name := range []string{"a/10", "a/11/x", "a/2"} {
		if err := e.store.Delete(e.ctx, name); err != nil {
			return err
		}
	}
	if err := e.wantList("", "", "b"); err != nil {
		return err
	}
	if err := e.put("a/11/x"); err != nil {
		return err
	}
	return e.wantList("a/", "", "a/11/x")
}

// big stores an object that needs several parts on a store that has parts, from a body that is never in
// memory.
func big(e *env) error {
	const size = 40<<20 + 12345
	body := pattern(e.bytes(1_000_003))
	ref, err := e.store.Put(e.ctx, "shared/big", body, size)
	if err != nil {
		return err
	}
	r, err := e.peer.Get(e.ctx, ref)
	if err != nil {
		return err
	}
	defer r.Close()
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < size; {
		n, err := io.ReadFull(r, got[:min(1<<20, size-off)])
		if err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
		body.ReadAt(want[:n], off)
		if !bytes.Equal(got[:n], want[:n]) {
			return fmt.Errorf("the %d bytes at %d are not those that were put", n, off)
		}
		off += int64(n)
	}
	for range 5 {
		off := e.rand.Int64N(size - 1<<20)
		r, err := e.peer.GetRange(e.ctx, ref, off, 1<<20)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(r, got)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if body.ReadAt(want, off); !bytes.Equal(got, want) {
			return fmt.Errorf("range %d+%d is not what was put", off, len(got))
		}
	}
	return nil
}

// pattern is an endless body that repeats itself. Its length is a prime, so that parts of the object, whose
// lengths are round, all differ.
type pattern []byte

func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	for n := 0; n < len(b); {
		n += copy(b[n:], p[(off+int64(n))%int64(len(p)):])
	}
	return len(b), nil
}

func concurrent(e *env) error {
	return parallel(8, func(w int) error {
		s := []*storage.Store{e.store, e.peer}[w%2]
		dir := fmt.Sprintf("worker/%d/", w)
		for i := range 10 {
			name := fmt.Sprintf("%s%d", dir, i)
			ref, err := s.Put(e.ctx, name, strings.NewReader(name), int64(len(name)))
			if err != nil {
				return err
			}
			r, err := s.Get(e.ctx, ref)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				return err
			}
			r.Close()
			shared := strings.Repeat(name, 500)
			if _, err := s.Put(e.ctx, "shared", strings.NewReader(shared), int64(len(shared))); err != nil {
				return err
			}
			got, err := s.Read(e.ctx, "shared", 1<<20)
			if err != nil {
				return err
			}
			if first, _, _ := bytes.Cut(got[1:], []byte("worker")); !bytes.Equal(got, bytes.Repeat(append([]byte("w"), first...), 500)) {
				return fmt.Errorf("object that all workers replace is a mix of several: %.200q", got)
			}
			if i%2 == 1 {
				if err := s.Delete(e.ctx, name); err != nil {
					return err
				}
			}
			n := 0
			for _, err := range s.List(e.ctx, dir, "") {
				if err != nil {
					return err
				}
				n++
			}
			if n != i/2+1 {
				return fmt.Errorf("list of %s: got %d names, want %d", dir, n, i/2+1)
			}
		}
		return nil
	})
}

func cancel(e *env) error {
	if err := e.put("dir/object"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(e.ctx)
	ref := storage.Ref{Name: "dir/new", Size: 3, CRC32C: 0x364b3fb7} // of "abc"
	stop()
	_, get := e.bucket.Get(ctx, "dir/object", 0, -1)
	_, _, list := e.bucket.List(ctx, "", "", 10)
	for op, err := range map[string]error{
		"put":    e.bucket.Put(ctx, ref, strings.NewReader("abc")),
		"create": e.bucket.Create(ctx, "dir/new", []byte("abc")),
		"get":    get,
		"list":   list,
		"delete": e.bucket.Delete(ctx, "dir/object"),
	} {
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s after ctx was cancelled: error is %v, want one that wraps context.Canceled", op, err)
		}
	}
	if err := e.wantList("", "", "dir/object"); err != nil {
		return fmt.Errorf("after calls that were cancelled: %w", err)
	}

	// In the middle of a Put: it may still succeed or not, but it may not leave a part.
	const size = 1 << 20
	ctx, stop = context.WithCancel(e.ctx)
	defer stop()
	body := e.bytes(size)
	s := &spy{ReaderAt: bytes.NewReader(body), i: size - 1, n: 2, at: func() error { stop(); return nil }}
	_, err := e.store.Put(ctx, "dir/new", s, size)
	got, rerr := e.peer.Read(e.ctx, "dir/new", size)
	switch {
	case errors.Is(rerr, storage.ErrNotExist) && errors.Is(err, context.Canceled):
	case rerr == nil && bytes.Equal(got, body):
	default:
		return fmt.Errorf("put cancelled in the middle: error is %v; then read: %d bytes, error is %v", err, len(got), rerr)
	}
	return nil
}

// parallel runs f(0) … f(n-1) at once and returns their errors.
func parallel(n int, f func(i int) error) error {
	var (
		start = make(chan struct{})
		ready atomic.Int64
		wg    sync.WaitGroup
		errs  = make([]error, n)
	)
	for i := range n {
		wg.Go(func() {
			if ready.Add(1) == int64(n) {
				close(start)
			}
			<-start
			errs[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// faulty is a bucket whose Create is replaced.
type faulty struct {
	storage.Bucket
	create func(ctx context.Context, name string, body []byte) error
}

func (f *faulty) Create(ctx context.Context, name string, body []byte) error {
	return f.create(ctx, name, body)
}
