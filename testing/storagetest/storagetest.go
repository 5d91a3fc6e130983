// Package storagetest says, as tests, what a storage driver owes its users.
//
//	func TestConformance(t *testing.T) {
//		storagetest.Run(t, func(ctx context.Context, place string) (storage.Bucket, error) {
//			return file.Driver.Open(ctx, &url.URL{Scheme: "file", Path: filepath.Join(dir, place)})
//		})
//	}
//
// The suite is tested itself: against buckets that are broken on purpose, each of which must fail, and
// against odd ones that keep to the contract, which must pass (broken_test.go).
package storagetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millstream/millstream/statebackend/storage"
)

// Opener opens the bucket at a place, a short name of lower-case letters, digits and '-'. Opened twice,
// the same place is the same bucket, seen as by another process; unlike places share nothing. A place
// that was not opened before is empty.
type Opener func(ctx context.Context, place string) (storage.Bucket, error)

// Run runs the suite, one subtest for each obligation.
func Run(t *testing.T, open Opener) {
	seed := seed(t)
	for _, o := range obligations {
		t.Run(o.name, func(t *testing.T) {
			if err := o.check(t.Context(), open, seed); err != nil {
				t.Errorf("%v\nthe contract: %s\nrun again: STORAGETEST_SEED=%d go test -run '%s'", err, o.says, seed, t.Name())
			}
		})
	}
}

// seed is new in each run, so that the places of a run on a server that keeps its data are fresh.
func seed(t *testing.T) uint64 {
	s := os.Getenv("STORAGETEST_SEED")
	if s == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("STORAGETEST_SEED: %v", err)
	}
	return n
}

// An obligation is one sentence of the contract of storage.Bucket and a test of it.
type obligation struct {
	name string
	says string
	test func(e *env) error
}

// check runs the obligation at a place of its own. A panic of the driver is its failure.
func (o obligation) check(ctx context.Context, open Opener, seed uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	place := fmt.Sprintf("%s-%x", o.name, seed)
	e := &env{ctx: ctx, rand: rand.New(rand.NewPCG(seed, 0))}
	if e.bucket, err = open(ctx, place); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if e.other, err = open(ctx, place); err != nil {
		return fmt.Errorf("open the same place again: %w", err)
	}
	e.store, e.peer = storage.New(e.bucket, "test://"+place), storage.New(e.other, "peer://"+place)
	return o.test(e)
}

// env is what a test has: one place, seen by two processes.
type env struct {
	ctx           context.Context
	rand          *rand.Rand // for use by one goroutine
	bucket, other storage.Bucket
	store, peer   *storage.Store
}

func (e *env) bytes(n int) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], e.rand.Uint64())
	b := make([]byte, n)
	rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

// put stores small objects named by their content.
func (e *env) put(names ...string) error {
	for _, name := range names {
		if _, err := e.store.Put(e.ctx, name, strings.NewReader(name), int64(len(name))); err != nil {
			return err
		}
	}
	return nil
}

// want reads an object through both stores and compares.
func (e *env) want(name, content string) error {
	for _, s := range []*storage.Store{e.store, e.peer} {
		if got, err := s.Read(e.ctx, name, 1<<20); err != nil {
			return err
		} else if string(got) != content {
			return fmt.Errorf("%s/%s holds %.60q, want %.60q", s, name, got, content)
		}
	}
	return nil
}

// wantMissing demands that neither store has the object or lists it.
func (e *env) wantMissing(name string) error {
	for _, s := range []*storage.Store{e.store, e.peer} {
		if _, err := s.Read(e.ctx, name, 1<<20); !errors.Is(err, storage.ErrNotExist) {
			return fmt.Errorf("read of missing %s/%s: error is %v, want ErrNotExist", s, name, err)
		}
		for got, err := range s.List(e.ctx, name, "") {
			if err != nil {
				return err
			}
			return fmt.Errorf("missing %s/%s: listed as %q", s, name, got)
		}
	}
	return nil
}

// A spy is a body that calls at once, just before byte i is read for the n-th time. The Store reads a
// body once for its checksum, so the second time is the driver's.
type spy struct {
	io.ReaderAt
	i     int64
	n     int64
	at    func() error
	calls atomic.Int64
}

func (s *spy) ReadAt(p []byte, off int64) (int, error) {
	if off <= s.i && s.i < off+int64(len(p)) && s.calls.Add(1) == s.n {
		if err := s.at(); err != nil {
			return 0, err
		}
	}
	return s.ReaderAt.ReadAt(p, off)
}
