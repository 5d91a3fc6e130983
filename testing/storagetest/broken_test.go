package storagetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/millstream/millstream/statebackend/storage"
)

// places opens Memory buckets, each wrapped anew for each process that opens it.
func places(wrap func(m *Memory) storage.Bucket) Opener {
	var mu sync.Mutex
	memories := map[string]*Memory{}
	return func(_ context.Context, place string) (storage.Bucket, error) {
		mu.Lock()
		defer mu.Unlock()
		if memories[place] == nil {
			memories[place] = &Memory{}
		}
		return wrap(memories[place]), nil
	}
}

func TestMemoryConforms(t *testing.T) {
	Run(t, places(func(m *Memory) storage.Bucket { return m }))
}

// TestSuiteFindsBrokenBuckets runs the suite against buckets that break the contract. Each must fail, and
// at the obligation that it breaks.
func TestSuiteFindsBrokenBuckets(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks string // the obligation, or several
		alter  func(m *Memory, b *altered)
	}{
		{"create overwrites", "create", func(m *Memory, b *altered) {
			b.create = func(_ context.Context, name string, body []byte) error { m.set(name, bytes.Clone(body)); return nil }
		}},
		{"create checks, then puts", "create-race", func(m *Memory, b *altered) {
			b.create = func(ctx context.Context, name string, body []byte) error {
				if _, err := m.Get(ctx, name, 0, -1); err == nil {
					return storage.ErrExist
				}
				for range 50 {
					runtime.Gosched()
				}
				m.set(name, bytes.Clone(body))
				return nil
			}
		}},
		{"create says success when the object exists", "create create-race", func(m *Memory, b *altered) {
			b.create = func(ctx context.Context, name string, body []byte) error {
				if err := m.Create(ctx, name, body); !errors.Is(err, storage.ErrExist) {
					return err
				}
				return nil
			}
		}},
		{"create says some other error", "create", func(m *Memory, b *altered) {
			b.create = func(ctx context.Context, name string, body []byte) error {
				if err := m.Create(ctx, name, body); err != nil {
					return storage.Permanent(errors.New("conflict"))
				}
				return nil
			}
		}},
		{"create changes the caller's bytes", "create-lost-answer", func(m *Memory, b *altered) {
			b.create = func(ctx context.Context, name string, body []byte) error {
				err := m.Create(ctx, name, body)
				body[0]++
				return err
			}
		}},
		{"create is seen by its own process only", "create", func(m *Memory, b *altered) {
			own := &Memory{}
			b.create = own.Create
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				if r, err := own.Get(ctx, name, off, n); err == nil {
					return r, nil
				}
				return m.Get(ctx, name, off, n)
			}
		}},
		{"get is cached", "replace", func(m *Memory, b *altered) {
			cache := &Memory{}
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				if r, err := cache.Get(ctx, name, off, n); err == nil {
					return r, nil
				}
				r, err := m.Get(ctx, name, 0, -1)
				if err != nil {
					return nil, err
				}
				body, err := io.ReadAll(r)
				cache.set(name, body)
				return r, errors.Join(err, func() error { r, err = cache.Get(ctx, name, off, n); return err }())
			}
		}},
		{"put is buffered until the next put", "put-get", func(m *Memory, b *altered) {
			var last func()
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				if last != nil {
					last()
				}
				c, err := io.ReadAll(io.NewSectionReader(body, 0, ref.Size))
				last = func() { m.set(ref.Name, c) }
				return err
			}
		}},
		{"put is seen half-written", "put-atomic put-failed", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				half := make([]byte, ref.Size)
				if _, err := body.ReadAt(half[:ref.Size/2], 0); err != nil && err != io.EOF {
					return err
				}
				m.set(ref.Name, half[:ref.Size/2])
				return m.Put(ctx, ref, body)
			}
		}},
		{"put removes the old object first", "put-atomic put-failed", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				if err := m.Delete(ctx, ref.Name); err != nil {
					return err
				}
				return m.Put(ctx, ref, body)
			}
		}},
		{"put leaves its temporary object when it fails", "put-failed", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				m.set(ref.Name+"-part", nil)
				if err := m.Put(ctx, ref, body); err != nil {
					return err
				}
				return m.Delete(ctx, ref.Name+"-part")
			}
		}},
		{"put takes what it finds", "put-changed", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				c, err := io.ReadAll(io.NewSectionReader(body, 0, ref.Size))
				if err == nil {
					m.set(ref.Name, c)
				}
				return err
			}
		}},
		{"put swaps two parts of a large object", "big", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				const part = 8 << 20
				if ref.Size < 3*part {
					return m.Put(ctx, ref, body)
				}
				c, err := io.ReadAll(io.NewSectionReader(body, 0, ref.Size))
				if err == nil {
					first := bytes.Clone(c[:part])
					copy(c, c[part:2*part])
					copy(c[part:], first)
					m.set(ref.Name, c)
				}
				return err
			}
		}},
		{"put cuts a large object", "big", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				c, err := io.ReadAll(io.NewSectionReader(body, 0, min(ref.Size, 32<<20)))
				if ref.Size > 32<<20 && err == nil {
					m.set(ref.Name, c)
					return nil
				}
				return m.Put(ctx, ref, body)
			}
		}},
		{"put that was cancelled leaves a part", "cancel", func(m *Memory, b *altered) {
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				err := m.Put(ctx, ref, body)
				if ctx.Err() != nil {
					m.set(ref.Name, make([]byte, ref.Size/2))
				}
				return err
			}
		}},
		{"get of a missing object is empty", "missing", func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				r, err := m.Get(ctx, name, off, n)
				if errors.Is(err, storage.ErrNotExist) {
					return io.NopCloser(strings.NewReader("")), nil
				}
				return r, err
			}
		}},
		{"get of a missing object is some other error", "missing", func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				r, err := m.Get(ctx, name, off, n)
				if errors.Is(err, storage.ErrNotExist) {
					return nil, errors.New("404")
				}
				return r, err
			}
		}},
		{"get ignores the range", "ranges", func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				return m.Get(ctx, name, 0, -1)
			}
		}},
		{"get takes length for the last byte", "ranges", func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				if n >= 0 {
					n++
				}
				return m.Get(ctx, name, off, n)
			}
		}},
		{"get fills what the object does not have", "ranges", func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				r, err := m.Get(ctx, name, off, n)
				if err != nil || n < 0 {
					return r, err
				}
				return io.NopCloser(io.LimitReader(io.MultiReader(r, zeros{}), n)), nil
			}
		}},
		{"list misses the last page", "list-pages", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, _, err := m.List(ctx, prefix, after, limit)
				return names, len(names) == limit && limit < 1000, err
			}
		}},
		{"list says no more when a page is just full", "list-pages", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, _, err := m.List(ctx, prefix, after, limit)
				return names, len(names) > limit, err
			}
		}},
		{"list ignores the limit", "list-pages", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, _ int) ([]string, bool, error) {
				return m.List(ctx, prefix, after, 1<<30)
			}
		}},
		{"list skips a name between pages", "list-pages", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, more, err := m.List(ctx, prefix, after, limit)
				if after != "" && len(names) > 1 && more {
					names = names[1:]
				}
				return names, more, err
			}
		}},
		{"list includes startAfter", "list-order list-pages", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, more, err := m.List(ctx, prefix, after, limit)
				if r, gerr := m.Get(ctx, after, 0, -1); gerr == nil && strings.HasPrefix(after, prefix) {
					r.Close()
					names = slices.Insert(slices.Clone(names), 0, after)
				}
				return names, more, err
			}
		}},
		{"list walks directories", "list-order", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, more, err := m.List(ctx, prefix, after, limit)
				slices.SortFunc(names, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
				return names, more, err
			}
		}},
		{"list takes the prefix for a directory", "list-order", func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				if dir := path.Dir(prefix + "x"); dir != "." {
					prefix = dir + "/"
				}
				return m.List(ctx, prefix, after, limit)
			}
		}},
		{"list forgets other processes", "list-order delete", func(m *Memory, b *altered) {
			own := map[string]bool{}
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				own[ref.Name] = true
				return m.Put(ctx, ref, body)
			}
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, more, err := m.List(ctx, prefix, after, limit)
				return slices.DeleteFunc(names, func(n string) bool { return !own[n] }), more, err
			}
		}},
		{"delete of a missing object is an error", "delete", func(m *Memory, b *altered) {
			b.delete = func(ctx context.Context, name string) error {
				if _, err := m.Get(ctx, name, 0, -1); err != nil {
					return err
				}
				return m.Delete(ctx, name)
			}
		}},
		{"delete takes the name for a prefix", "delete", func(m *Memory, b *altered) {
			b.delete = func(ctx context.Context, name string) error {
				names, _, err := m.List(ctx, name, "", 1000)
				for _, n := range names {
					err = errors.Join(err, m.Delete(ctx, n))
				}
				return err
			}
		}},
		{"delete does nothing", "delete", func(m *Memory, b *altered) {
			b.delete = func(ctx context.Context, name string) error { return ctx.Err() }
		}},
		{"all puts share one buffer", "concurrent", func(m *Memory, b *altered) {
			var mu sync.Mutex
			shared := make([]byte, 50<<20)
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				mu.Lock()
				if _, err := body.ReadAt(shared[:ref.Size], 0); err != nil && err != io.EOF {
					mu.Unlock()
					return err
				}
				mu.Unlock()
				for range 10 {
					runtime.Gosched()
				}
				mu.Lock()
				defer mu.Unlock()
				m.set(ref.Name, bytes.Clone(shared[:ref.Size]))
				return nil
			}
		}},
		{"ctx is ignored", "cancel", func(m *Memory, b *altered) {
			b.delete = func(_ context.Context, name string) error { return m.Delete(context.Background(), name) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := places(func(m *Memory) storage.Bucket {
				b := &altered{Memory: m}
				c.alter(m, b)
				return b
			})
			for _, o := range obligations {
				if !slices.Contains(strings.Fields(c.breaks), o.name) {
					continue
				}
				err := o.check(t.Context(), open, 1)
				if err == nil {
					t.Errorf("obligation %q (%s) did not notice", o.name, o.says)
				}
				t.Log(o.name+":", err)
			}
		})
	}
}

// TestSuiteAcceptsOddBuckets runs the suite against buckets that keep to the letter of the contract.
func TestSuiteAcceptsOddBuckets(t *testing.T) {
	seed := seed(t)
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 1))
	intN := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	for name, alter := range map[string]func(m *Memory, b *altered){
		"pages of random length": func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				return m.List(ctx, prefix, after, 1+intN(limit))
			}
		},
		"always perhaps more": func(m *Memory, b *altered) {
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				names, _, err := m.List(ctx, prefix, after, limit)
				return names, len(names) > 0, err
			}
		},
		"reads by the byte": func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				r, err := m.Get(ctx, name, off, n)
				if err != nil || off > 1<<20 || n > 1<<20 || n < 0 && strings.HasSuffix(name, "big") {
					return r, err // by the byte, 40 MB would take long and show no more
				}
				return io.NopCloser(iotest.OneByteReader(r)), nil
			}
		},
		"io.EOF together with the last bytes": func(m *Memory, b *altered) {
			b.get = func(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
				r, err := m.Get(ctx, name, off, n)
				if err != nil {
					return nil, err
				}
				return io.NopCloser(iotest.DataErrReader(r)), nil
			}
		},
		"slow": func(m *Memory, b *altered) {
			yield := func() {
				for range intN(100) {
					runtime.Gosched()
				}
			}
			b.put = func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
				yield()
				return m.Put(ctx, ref, body)
			}
			b.create = func(ctx context.Context, name string, body []byte) error { yield(); return m.Create(ctx, name, body) }
			b.list = func(ctx context.Context, prefix, after string, limit int) ([]string, bool, error) {
				yield()
				return m.List(ctx, prefix, after, limit)
			}
		},
		"create often leaves its outcome open": func(m *Memory, b *altered) {
			b.create = func(ctx context.Context, name string, body []byte) error {
				switch intN(4) {
				case 0:
					return errors.Join(errors.New("timed out before"), ctx.Err())
				case 1:
					if err := m.Create(ctx, name, body); errors.Is(err, storage.ErrExist) {
						return err
					}
					return errors.Join(errors.New("timed out after"), ctx.Err())
				}
				return m.Create(ctx, name, body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := places(func(m *Memory) storage.Bucket {
				b := &altered{Memory: m}
				alter(m, b)
				return b
			})
			for _, o := range obligations {
				if err := o.check(t.Context(), open, seed); err != nil {
					t.Errorf("obligation %q (%s): %v\nrun again: STORAGETEST_SEED=%d go test -run '%s'", o.name, o.says, err, seed, t.Name())
				}
			}
		})
	}
}

// altered is a Memory some of whose methods are replaced.
type altered struct {
	*Memory
	put    func(ctx context.Context, ref storage.Ref, body io.ReaderAt) error
	create func(ctx context.Context, name string, body []byte) error
	get    func(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	list   func(ctx context.Context, prefix, startAfter string, limit int) ([]string, bool, error)
	delete func(ctx context.Context, name string) error
}

func (a *altered) Put(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
	if a.put == nil {
		return a.Memory.Put(ctx, ref, body)
	}
	return a.put(ctx, ref, body)
}

func (a *altered) Create(ctx context.Context, name string, body []byte) error {
	if a.create == nil {
		return a.Memory.Create(ctx, name, body)
	}
	return a.create(ctx, name, body)
}

func (a *altered) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if a.get == nil {
		return a.Memory.Get(ctx, name, offset, length)
	}
	return a.get(ctx, name, offset, length)
}

func (a *altered) List(ctx context.Context, prefix, startAfter string, limit int) ([]string, bool, error) {
	if a.list == nil {
		return a.Memory.List(ctx, prefix, startAfter, limit)
	}
	return a.list(ctx, prefix, startAfter, limit)
}

func (a *altered) Delete(ctx context.Context, name string) error {
	if a.delete == nil {
		return a.Memory.Delete(ctx, name)
	}
	return a.delete(ctx, name)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
