//go:build rocksdb

package rocksdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/millstream/millstream/statebackend"
)

const (
	liveDir  = "db"
	markName = "MILLSTREAM"
)

// claim makes dir ours alone and empty but for the mark, which stays locked until it is closed. A directory with
// anything in it and no mark is somebody else's.
func claim(dir string) (lock *os.File, err error) {
	if dir == "" {
		return nil, errors.New("no directory is given: state on disk needs one")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	mark := filepath.Join(dir, markName)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(mark); err != nil && len(entries) > 0 {
		return nil, fmt.Errorf("directory %s is not empty and has no file %s, so it holds something else: name another directory or empty it", dir, markName)
	}
	lock, err = os.OpenFile(mark, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock directory %s: %w: another process or backend uses it", dir, err), lock.Close())
	}
	for _, e := range entries {
		if e.Name() == markName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, errors.Join(fmt.Errorf("wipe what an earlier process left: %w", err), lock.Close())
		}
	}
	return lock, nil
}

// restore opens the database of c.Dir with the entries of c.Restore. One base whose key groups are all wanted is opened
// as it is; otherwise the wanted entries are copied.
func restore(ctx context.Context, c statebackend.Config, o Options, memory int64) (*database, error) {
	live := filepath.Join(c.Dir, liveDir)
	if len(c.Restore) == 1 && c.KeyGroups.Covers(c.Restore[0].Handle.KeyGroups) {
		if err := download(ctx, c.Restore[0], live); err != nil {
			return nil, err
		}
		return openBase(live, o, memory, paused, c.Restore[0].Handle)
	}
	if err := os.Mkdir(live, 0o700); err != nil {
		return nil, err
	}
	db, err := openDatabase(live, o, memory, readWrite)
	if err != nil {
		return nil, err
	}
	for i, r := range c.Restore {
		base := filepath.Join(c.Dir, fmt.Sprint("restore-", i))
		err := download(ctx, r, base)
		if err == nil {
			err = copyEntries(ctx, db, base, r.Handle, c.KeyGroups, o)
		}
		if err = errors.Join(err, os.RemoveAll(base)); err != nil {
			db.close()
			return nil, err
		}
	}
	return db, nil
}

// openBase opens a downloaded base and checks that its manifest lists the tables of its handle: RocksDB takes a manifest
// that ends early for one of an earlier time, with fewer tables.
func openBase(dir string, o Options, memory int64, m mode, h statebackend.Handle) (*database, error) {
	db, err := openDatabase(dir, o, memory, m)
	if err != nil {
		return nil, fmt.Errorf("restore state: open base: %w", err)
	}
	live := db.tables()
	for _, f := range h.Files {
		if tableName.MatchString(f.Name) && !slices.Contains(live, f.Name) {
			db.close()
			return nil, fmt.Errorf("restore state: the manifest does not list table %s", f.Name)
		}
	}
	if m == paused {
		if err := db.resume(); err != nil {
			db.close()
			return nil, fmt.Errorf("restore state: %w", err)
		}
	}
	return db, nil
}

var (
	tableName    = regexp.MustCompile(`^[0-9]{6,20}\.sst$`)
	manifestName = regexp.MustCompile(`^MANIFEST-[0-9]{6,20}$`)
)

// download writes the files of a base into a new directory, as RocksDB expects them.
func download(ctx context.Context, r statebackend.Restore, dir string) error {
	var manifest string
	for _, f := range r.Handle.Files {
		switch {
		case manifestName.MatchString(f.Name) && manifest == "":
			manifest = f.Name
		case !tableName.MatchString(f.Name):
			return fmt.Errorf("restore state: unexpected file %q", f.Name)
		}
	}
	if manifest == "" {
		return errors.New("restore state: the handle has no manifest file")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for _, f := range r.Handle.Files {
		g.Go(func() error {
			if err := downloadFile(ctx, r.Fetcher, f, filepath.Join(dir, f.Name)); err != nil {
				return fmt.Errorf("restore state file %s: %w", f.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "CURRENT"), []byte(manifest+"\n"), 0o600)
}

func downloadFile(ctx context.Context, from statebackend.Fetcher, f statebackend.File, path string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	content, err := statebackend.OpenFile(ctx, from, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

const (
	copyBytes     = 256 << 10
	copyCacheSize = 4 << 20
)

// copyEntries copies the entries of the base in dir whose key group is wanted into db, as files to ingest: writing a
// sorted file costs a fraction of writing through memtables.
func copyEntries(ctx context.Context, db *database, dir string, h statebackend.Handle, own statebackend.KeyGroupRange, o Options) error {
	base, err := openBase(dir, o, copyCacheSize, readOnly, h)
	if err != nil {
		return err
	}
	defer base.close()
	it := base.iterate(nil, nil)
	defer it.close()
	out := tables{dir: dir, options: o}
	defer out.drop()
	filter := !own.Covers(h.KeyGroups)
	var kept []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := it.next(copyBytes)
		if err != nil {
			return fmt.Errorf("restore state: read base: %w", err)
		}
		if len(entries) == 0 {
			break
		}
		if filter {
			if kept, err = keep(kept[:0], entries, own); err != nil {
				return err
			}
			entries = kept
		}
		if err := out.add(entries); err != nil {
			return fmt.Errorf("restore state: write table: %w", err)
		}
	}
	if err := out.end(); err != nil {
		return fmt.Errorf("restore state: write table: %w", err)
	}
	if len(out.paths) == 0 {
		return nil
	}
	if err := db.ingest(out.paths); err != nil {
		return fmt.Errorf("restore state: ingest tables: %w", err)
	}
	return nil
}

// keep appends to dst the entries whose key group lies in own.
func keep(dst, entries []byte, own statebackend.KeyGroupRange) ([]byte, error) {
	for len(entries) > 0 {
		key, _, rest := cutEntry(entries)
		g, ok := statebackend.KeyGroupOf(key)
		if !ok {
			return dst, fmt.Errorf("restore state: key %.32x has no key group, so it cannot be given to a subtask", key)
		}
		if own.Contains(g) {
			dst = append(dst, entries[:len(entries)-len(rest)]...)
		}
		entries = rest
	}
	return dst, nil
}

// tables writes ascending entries into files of about FileBytes.
type tables struct {
	dir     string
	options Options
	paths   []string
	open    *table
	size    int64 // of the open one, before compression
}

func (t *tables) add(entries []byte) error {
	if len(entries) == 0 {
		return nil
	}
	if t.open == nil {
		path := filepath.Join(t.dir, fmt.Sprintf("copy-%06d%s", len(t.paths), tableSuffix))
		next, err := newTable(path, t.options)
		if err != nil {
			return err
		}
		t.open, t.size, t.paths = &next, 0, append(t.paths, path)
	}
	if err := t.open.add(entries); err != nil {
		return err
	}
	if t.size += int64(len(entries)); t.size >= t.options.FileBytes {
		return t.end()
	}
	return nil
}

// end finishes the open table, if there is one.
func (t *tables) end() error {
	if t.open == nil {
		return nil
	}
	open := t.open
	t.open = nil
	return open.finish()
}

// drop gives up the open table after an error.
func (t *tables) drop() {
	if t.open != nil {
		t.open.drop()
		t.open = nil
	}
}
