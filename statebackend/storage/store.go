package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"time"
)

// A Ref is the handle of a stored object: whoever keeps it can read the object back and know that it is
// the one that was put.
type Ref struct {
	Name   string
	Size   int64  // bytes
	CRC32C uint32 // of the whole object, Castagnoli polynomial
}

// A Store is a bucket with checked names, verified reads and a create-only write that knows its outcome.
// It is safe for use by many goroutines and needs no closing.
type Store struct {
	bucket   Bucket
	url      string
	pageSize int // names asked for in one List of the bucket
}

// New makes a Store of a bucket; url names it in errors. Most callers use [Open]; this is for a bucket
// that is wrapped, to count or to fail.
func New(bucket Bucket, url string) *Store {
	return &Store{bucket: bucket, url: url, pageSize: 1000}
}

// String returns the store's URL.
func (s *Store) String() string { return s.url }

// Put creates or replaces an object with the size bytes of body. The object is durable when Put returns;
// readers see the old object or the new one, never a mix. body is read at least twice (first for the
// checksum), from several goroutines at once for large objects, and not after Put has returned.
func (s *Store) Put(ctx context.Context, name string, body io.ReaderAt, size int64) (Ref, error) {
	if err := s.check(ctx, CheckName(name)); err != nil {
		return Ref{}, s.wrap("put", name, err)
	}
	sum, err := checksum(ctx, body, size)
	if err != nil {
		return Ref{}, s.wrap("put", name, fmt.Errorf("read what is to be stored: %w", err))
	}
	ref := Ref{Name: name, Size: size, CRC32C: sum}
	if err := s.bucket.Put(ctx, ref, body); err != nil {
		return Ref{}, s.wrap("put", name, err)
	}
	return ref, nil
}

// PutIfAbsent writes an object unless one of this name exists, and says whether it is this caller's bytes
// that are stored there now. body must hold a nonce: bytes that no other writer ever sends under this
// name.
//
// After an answer that leaves the outcome open (a time-out, a broken connection), the same bytes are sent
// again until the store has either taken them or says that the object exists. Then the object is read:
// own bytes mean won, since an earlier sending had arrived; anything else, or nothing, means lost. Only
// ctx bounds the repetition. An error means that the outcome is NOT known, and that a sending may
// still arrive after PutIfAbsent has returned: act neither as the winner nor as if nothing was written.
func (s *Store) PutIfAbsent(ctx context.Context, name string, body []byte) (won bool, err error) {
	if err := s.check(ctx, CheckName(name)); err != nil {
		return false, s.wrap("create", name, err)
	}
	for attempt := 0; ; attempt++ {
		err := s.bucket.Create(ctx, name, body)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, ErrExist) {
			own, rerr := s.holds(ctx, name, body)
			if rerr == nil {
				return own, nil
			}
			err = fmt.Errorf("read back who was first: %w", rerr)
		}
		if errors.Is(err, ErrPermanent) || ctx.Err() != nil {
			return false, s.wrap("create", name, fmt.Errorf("outcome unknown: %w", err))
		}
		if !pause(ctx, attempt) {
			return false, s.wrap("create", name, fmt.Errorf("outcome unknown: %w; the last answer was: %w", ctx.Err(), err))
		}
	}
}

// holds says whether the object is exactly body. A missing object is not.
func (s *Store) holds(ctx context.Context, name string, body []byte) (bool, error) {
	r, err := s.bucket.Get(ctx, name, 0, -1)
	if errors.Is(err, ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(body))+1))
	return bytes.Equal(got, body), err
}

// pause waits before another attempt, twice as long each time up to 5 s, at random within the upper half
// so that rivals do not march in step. It returns false if ctx ended first.
func pause(ctx context.Context, attempt int) bool {
	d := 20 * time.Millisecond << min(attempt, 8)
	d = min(d, 5*time.Second)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Get opens the whole object for reading in one pass. The reader verifies: it gives the last of
// the bytes that ref describes only if all of them were right, else an error that wraps [ErrCorrupt]; so
// act on nothing before the end. The caller closes it. ctx is that of the reads too.
func (s *Store) Get(ctx context.Context, ref Ref) (io.ReadCloser, error) {
	r, err := s.open(ctx, ref.Name, 0, -1)
	if err != nil {
		return nil, err
	}
	return &verifier{r: r, s: s, ref: ref, left: ref.Size, sum: true}, nil
}

// GetRange opens the length bytes at offset, which must lie within the object. The reader verifies that
// it gives exactly length bytes, but the checksum of the whole cannot vouch for a part: read ranges only
// of files whose blocks carry their own.
func (s *Store) GetRange(ctx context.Context, ref Ref, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || length < 0 || offset > ref.Size-length {
		return nil, s.wrap("get", ref.Name, fmt.Errorf("range %d+%d is not within its %d bytes", offset, length, ref.Size))
	}
	if length == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	r, err := s.open(ctx, ref.Name, offset, length)
	if err != nil {
		return nil, err
	}
	return &verifier{r: r, s: s, ref: ref, left: length}, nil
}

// Read returns an object of which the caller has no Ref and whose bytes vouch for themselves, such as an
// entry of the log. One of more than limit bytes is an error.
func (s *Store) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	r, err := s.open(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrCorrupt, limit)
	}
	if err != nil {
		return nil, s.wrap("get", name, err)
	}
	return b, nil
}

func (s *Store) open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := s.check(ctx, CheckName(name)); err != nil {
		return nil, s.wrap("get", name, err)
	}
	r, err := s.bucket.Get(ctx, name, offset, length)
	if err != nil {
		return nil, s.wrap("get", name, err)
	}
	return r, nil
}

// List iterates over the names that begin with prefix and are greater than startAfter ("" for all), in
// ascending order of bytes. Objects that exist during the whole iteration are in it; others may be. An
// error is the last thing that it yields.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.check(ctx, checkPrefix(prefix)); err != nil {
			yield("", s.wrap("list", prefix, err))
			return
		}
		for more := true; more; {
			var names []string
			var err error
			names, more, err = s.bucket.List(ctx, prefix, startAfter, s.pageSize)
			if err == nil && more && len(names) == 0 {
				err = errors.New("the driver returned an empty page with more to follow")
			}
			if err != nil {
				yield("", s.wrap("list", prefix, err))
				return
			}
			for _, name := range names {
				if name <= startAfter || !strings.HasPrefix(name, prefix) {
					yield("", s.wrap("list", prefix, fmt.Errorf("the driver returned %q after %q", name, startAfter)))
					return
				}
				startAfter = name
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// Delete removes an object; a missing one is no error. A power cut may undo it.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.check(ctx, CheckName(name)); err != nil {
		return s.wrap("delete", name, err)
	}
	if err := s.bucket.Delete(ctx, name); err != nil {
		return s.wrap("delete", name, err)
	}
	return nil
}

// check lets no call with a bad name, or with a ctx that has ended, reach a driver.
func (s *Store) check(ctx context.Context, nameErr error) error {
	if nameErr != nil {
		return Permanent(nameErr)
	}
	return ctx.Err()
}

func (s *Store) wrap(op, name string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, strings.TrimSuffix(s.url, "/"), name, err)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(ctx context.Context, body io.ReaderAt, size int64) (uint32, error) {
	h := crc32.New(castagnoli)
	buf := make([]byte, min(size, 256<<10)+1)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := body.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if err != nil && off < size {
			if err == io.EOF {
				err = fmt.Errorf("it has %d bytes, not %d: %w", off, size, io.ErrUnexpectedEOF)
			}
			return 0, err
		}
	}
	return h.Sum32(), nil
}

// A verifier passes bytes through and turns a wrong length or checksum into an error in place of io.EOF.
type verifier struct {
	r    io.ReadCloser
	s    *Store
	ref  Ref
	left int64 // bytes still to come
	sum  bool  // whether the bytes are the whole object, so that the checksum applies
	crc  uint32
	err  error // sticky
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(p)
	v.left -= int64(n)
	if v.sum {
		v.crc = crc32.Update(v.crc, castagnoli, p[:n])
	}
	switch {
	case v.left < 0:
		err = fmt.Errorf("%w: it has more bytes than the %d of its ref", ErrCorrupt, v.ref.Size)
	case err == io.EOF && v.left > 0:
		err = fmt.Errorf("%w: it ends %d bytes early", ErrCorrupt, v.left)
	case v.left == 0 && v.sum && v.crc != v.ref.CRC32C:
		err = fmt.Errorf("%w: its CRC32C is %08x, not %08x", ErrCorrupt, v.crc, v.ref.CRC32C)
	}
	if err != nil && err != io.EOF {
		// The last bytes are withheld: io.ReadFull would take them and drop the error.
		n, err = 0, v.s.wrap("get", v.ref.Name, err)
	}
	v.err = err
	return n, err
}

func (v *verifier) Close() error { return v.r.Close() }
