// Package file stores objects as files below one directory, for tests, single machines and shared file
// systems.
//
// An object is written to a temporary file, synced, and then given its name in one step: a rename for Put,
// a hard link for Create, which fails if the name is taken. Last, the directory is synced, since a name is
// durable only when its directory is. The file system must know hard links.
package file

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/millstream/millstream/internal/durable"
	"github.com/millstream/millstream/statebackend/storage"
)

// Driver opens URLs of the form file:///absolute/directory. The directory is made if it does not exist.
var Driver storage.Driver = driver{}

type driver struct{}

func (driver) Scheme() string { return "file" }

func (driver) Open(_ context.Context, u *url.URL) (storage.Bucket, error) {
	if u.Host != "" || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(filepath.FromSlash(u.Path)) {
		return nil, storage.Permanent(errors.New("it must have three slashes and an absolute path, as in file:///var/lib/job"))
	}
	root := filepath.Clean(filepath.FromSlash(u.Path))
	b := &bucket{root: root, temp: filepath.Join(root, ".tmp")}
	if err := b.makeDir(b.temp); err != nil {
		return nil, explain(err)
	}
	var err error
	if b.info, err = os.Stat(root); err != nil {
		return nil, explain(err)
	}
	if err := sweep(b.temp); err != nil {
		return nil, explain(fmt.Errorf("remove temporary files of dead processes: %w", err))
	}
	return b, nil
}

// A bucket is a directory. Its objects are the files below root whose path has no segment that begins
// with a dot.
type bucket struct {
	root string
	temp string      // where files are written, on the same file system as root
	info fs.FileInfo // of root when it was opened

	// known holds the directories that this bucket has made durable, so that each costs one sync. A
	// directory that was found, not made, is synced too: its maker may not have come to it yet.
	known sync.Map // path -> struct{}
}

var _ storage.Bucket = (*bucket)(nil)

func (b *bucket) path(name string) string { return filepath.Join(b.root, filepath.FromSlash(name)) }

func (b *bucket) Put(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
	return b.write(ctx, ref.Name, func(f *os.File) error { return copyBody(ctx, f, ref, body) }, os.Rename)
}

func (b *bucket) Create(ctx context.Context, name string, body []byte) error {
	err := b.write(ctx, name, func(f *os.File) error { _, err := f.Write(body); return err }, os.Link)
	if errors.Is(err, fs.ErrExist) {
		// The object may be a moment old and its name not yet durable.
		if err := durable.SyncDir(filepath.Dir(b.path(name))); err != nil {
			return explain(err)
		}
		return storage.ErrExist
	}
	return err
}

// write fills a temporary file and publishes it under name by publish, a rename or a link.
func (b *bucket) write(ctx context.Context, name string, fill func(*os.File) error, publish func(from, to string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	target := b.path(name)
	if err := b.makeDir(filepath.Dir(target)); err != nil {
		return explain(err)
	}
	f, err := createTemp(b.temp)
	if err != nil {
		return explain(err)
	}
	// Both fail if all went well, and there is nothing to do about it otherwise: the next Open sweeps.
	defer os.Remove(f.Name())
	defer f.Close()

	if err := fill(f); err != nil {
		return explain(err)
	}
	if err := f.Sync(); err != nil {
		return explain(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := publish(f.Name(), target); err != nil {
		return explain(err)
	}
	return explain(durable.SyncDir(filepath.Dir(target)))
}

func copyBody(ctx context.Context, f *os.File, ref storage.Ref, body io.ReaderAt) error {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	src := io.TeeReader(io.NewSectionReader(body, 0, ref.Size), sum)
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, contextReader{ctx, src}, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if n != ref.Size || sum.Sum32() != ref.CRC32C {
		return storage.Permanent(errors.New("what was to be stored changed while it was stored"))
	}
	return nil
}

func (b *bucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(b.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.checkRoot(); err != nil {
			return nil, err
		}
		return nil, storage.ErrNotExist
	}
	if err != nil {
		return nil, explain(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		f.Close()
		return nil, explain(err)
	}
	if length < 0 {
		length = info.Size()
	}
	return struct {
		io.Reader
		io.Closer
	}{contextReader{ctx, io.NewSectionReader(f, offset, length)}, f}, nil
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Directories stay when they are empty: to remove one would race with a writer that has just seen it.
	if err := os.Remove(b.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(err)
	}
	return nil
}

func (b *bucket) List(ctx context.Context, prefix, startAfter string, limit int) ([]string, bool, error) {
	if err := b.checkRoot(); err != nil {
		return nil, false, err
	}
	l := lister{ctx: ctx, root: b.root, prefix: prefix, startAfter: startAfter, limit: limit}
	err := l.walk("")
	if errors.Is(err, errPageFull) {
		return l.names, true, nil
	}
	if err != nil {
		return nil, false, explain(err)
	}
	return l.names, false, nil
}

// A lister walks the directories that can hold names of the page, in the order of the names.
type lister struct {
	ctx                context.Context
	root               string
	prefix, startAfter string
	limit              int
	names              []string
}

var errPageFull = errors.New("page is full")

// walk visits dir, which is "" or ends in '/'.
func (l *lister) walk(dir string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(l.root, filepath.FromSlash(dir)))
	if err != nil {
		return err
	}
	paths := make([]string, 0, len(entries))
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case e.IsDir():
			paths = append(paths, dir+name+"/") // with its '/', a directory sorts where its files do
		case e.Type().IsRegular():
			paths = append(paths, dir+name)
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		switch {
		case strings.HasSuffix(p, "/"):
			// All that is below p begins with p. It is of no interest if it cannot begin with the prefix
			// too, or if it sorts before startAfter whatever follows.
			apart := !strings.HasPrefix(p, l.prefix) && !strings.HasPrefix(l.prefix, p)
			before := p < l.startAfter && !strings.HasPrefix(l.startAfter, p)
			if apart || before {
				continue
			}
			if err := l.walk(p); err != nil {
				return err
			}
		case p > l.startAfter && strings.HasPrefix(p, l.prefix):
			if len(l.names) == l.limit {
				return errPageFull
			}
			l.names = append(l.names, p)
		}
	}
	return nil
}

// checkRoot tells a store without objects from one whose directory is gone, such as an unmounted disk: a
// job that took the second for the first would start from nothing.
func (b *bucket) checkRoot() error {
	info, err := os.Stat(b.root)
	if err == nil && !os.SameFile(info, b.info) {
		err = fmt.Errorf("%s is no longer the directory that was opened; was a disk mounted or unmounted?", b.root)
	}
	return explain(err)
}

// makeDir makes dir and its missing parents and makes their names durable.
func (b *bucket) makeDir(dir string) error {
	if _, ok := b.known.Load(dir); ok {
		return nil
	}
	parent := filepath.Dir(dir)
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.makeDir(parent); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o777)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is a file, and a directory is needed there; an object's name cannot be the directory of another's", dir)
	}
	if dir != b.root && strings.HasPrefix(dir, b.root) {
		if err := b.makeDir(parent); err != nil { // was found, not made: as above, up to the root
			return err
		}
	}
	// A root that was found may lie in a directory that is closed to us; then none of us has made it.
	if err := durable.SyncDir(parent); err != nil && !(dir == b.root && errors.Is(err, fs.ErrPermission)) {
		return err
	}
	b.known.Store(dir, struct{}{})
	return nil
}

// explain adds the remedy to an error of the file system and marks it as permanent: a local file system
// does not heal by itself. A failed sync least of all: the kernel reports it once, and the next one would
// succeed without the bytes being on disk.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrPermanent) {
		return err
	}
	if r := remedy(err); r != "" {
		err = fmt.Errorf("%w; %s", err, r)
	}
	return storage.Permanent(err)
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
