// Package storage keeps named objects that outlive every process: checkpoints, and the log that says which
// of them counts.
//
// It has two layers. A [Driver] knows one kind of storage (a directory, an S3 bucket) and does five plain
// things with it, described by [Bucket]. A [Store] is what everybody else uses: it adds, once for all
// drivers, checked names, verified reads, paging, and a create-only write whose outcome is always known.
//
//	store, err := storage.Open(ctx, "file:///var/lib/flights", file.Driver)
//	ref, err := store.Put(ctx, "shared/000017.sst", f, size) // keep ref: it is how the object is read back
//	won, err := store.PutIfAbsent(ctx, "log/00000000000000000042", entry)
//
// testing/storagetest holds the conformance suite that every driver must pass.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
)

// A Driver opens buckets of one URL scheme. It is a value passed to [Open]; there is no registry.
type Driver interface {
	// Scheme is the URL scheme that this driver serves: "file", "s3".
	Scheme() string

	// Open connects to the bucket at u and fails, rather than the first use, if it does not exist or is
	// out of reach. u has the driver's scheme and carries no user information.
	Open(ctx context.Context, u *url.URL) (Bucket, error)
}

// A Bucket is a flat set of named objects. It is what a driver implements and what [New] takes; only a
// Store calls it, and only with names that [CheckName] accepts.
//
// All methods may be called from many goroutines and many processes at once. What a method has
// acknowledged, every later call in any process sees. A bucket does not retain the bytes or readers that
// it is given after the call returns, and holds nothing that has to be closed.
//
// Errors are bare causes; the Store adds operation, name and URL. An error that no repetition will mend
// (no permission, no such bucket, not a directory) wraps [ErrPermanent] and says what to do. Any other
// error of a write leaves its outcome open. When ctx ends, a method returns soon, with an error that
// wraps ctx.Err(). No error shows a secret.
type Bucket interface {
	// Put creates or replaces the object ref.Name with the ref.Size bytes of body, whose checksum is
	// ref.CRC32C: bytes that do not match it are an error. The object is durable when Put returns, and
	// readers see the old object or the new one, whole, never a mix, a part, or a trace of a Put that
	// failed. body may be read more than once and by several goroutines, until Put returns.
	Put(ctx context.Context, ref Ref, body io.ReaderAt) error

	// Create does what Put does, but only if no object has this name: else it changes nothing and
	// returns [ErrExist], and the object that exists is durable. Of any number of concurrent calls at
	// most one returns nil.
	Create(ctx context.Context, name string, body []byte) error

	// Get opens the length bytes at offset, which lie within the object; a length of -1 (with offset 0)
	// means the whole object. A missing object is [ErrNotExist]. A range that turns out to reach beyond
	// the object is an error, here or while reading, or gives fewer bytes. The caller closes the reader;
	// ctx is that of the reads too.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)

	// List returns, in ascending order of bytes, at most limit (at least 1) names that begin with prefix
	// and are greater than startAfter, and whether there may be more. It may return fewer than limit,
	// but none only if there are no more. Objects that exist during the whole call are in it.
	List(ctx context.Context, prefix, startAfter string, limit int) (names []string, more bool, err error)

	// Delete removes the object; a missing one is no error. A power cut may undo a Delete.
	Delete(ctx context.Context, name string) error
}

var (
	// ErrNotExist says that there is no object of this name.
	ErrNotExist = errors.New("object does not exist")
	// ErrExist says that a create-only write found an object of this name.
	ErrExist = errors.New("object exists already")
	// ErrPermanent says that trying again will not help: somebody must change something first.
	ErrPermanent = errors.New("will not succeed by trying again")
	// ErrCorrupt says that an object is not what its [Ref] says it is.
	ErrCorrupt = errors.New("object is corrupt")
)

// Permanent marks err with [ErrPermanent] without changing its text.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

func (p permanent) Unwrap() error        { return p.error }
func (p permanent) Is(target error) bool { return target == ErrPermanent }

// CheckURL says whether one of drivers can be asked for the store at rawURL, and asks none.
func CheckURL(rawURL string, drivers ...Driver) error {
	_, _, err := driverOf(rawURL, drivers)
	return err
}

func driverOf(rawURL string, drivers []Driver) (Driver, *url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, nil, errors.New("open storage: not a URL; it must look like file:///directory or s3://bucket/prefix")
	}
	if u.User != nil {
		return nil, nil, fmt.Errorf("open storage %s: credentials do not belong in the URL; give them by the environment", u.Redacted())
	}
	i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Scheme() == u.Scheme })
	if i < 0 {
		var known []string
		for _, d := range drivers {
			known = append(known, d.Scheme()+"://")
		}
		if u.Scheme == "" {
			return nil, nil, fmt.Errorf("open storage %s: no driver for scheme %q: it is a URL, such as file://%s for an absolute path", u, u.Scheme, path.Join("/", u.Path))
		}
		return nil, nil, fmt.Errorf("open storage %s: no driver for scheme %q, only for %s; pass the driver by runners.WithStorage",
			u, u.Scheme, strings.Join(known, ", "))
	}
	return drivers[i], u, nil
}

// Open opens the store at rawURL, such as file:///var/lib/flights or s3://bucket/flights, with the driver
// of its scheme.
func Open(ctx context.Context, rawURL string, drivers ...Driver) (*Store, error) {
	d, u, err := driverOf(rawURL, drivers)
	if err != nil {
		return nil, err
	}
	b, err := d.Open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open storage %s: %w", u, err)
	}
	return New(b, u.String()), nil
}
