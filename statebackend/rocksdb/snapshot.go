//go:build rocksdb

package rocksdb

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/millstream/millstream/statebackend"
)

const (
	// formatVersion is that of the files and their names, RocksDB's own: docs/format/rocksdb-state.md.
	formatVersion = 1

	tableSuffix    = ".sst"
	manifestPrefix = "MANIFEST-"

	// transfers is how many files are uploaded or downloaded at once: one file waits for the storage, several use it.
	transfers = 4
)

// snapshot is a directory of hard links. It needs no database.
type snapshot struct {
	dir       string
	keyGroups statebackend.KeyGroupRange
}

var _ statebackend.Snapshot = (*snapshot)(nil)

func (s *snapshot) Persist(ctx context.Context, up statebackend.Uploader) (statebackend.Handle, error) {
	files, err := s.list()
	if err != nil {
		return statebackend.Handle{}, fmt.Errorf("persist rocksdb state: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for i := range files {
		g.Go(func() error {
			if err := s.upload(ctx, up, &files[i]); err != nil {
				return fmt.Errorf("persist state file %s: %w", files[i].Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return statebackend.Handle{}, err
	}
	return statebackend.Handle{Driver: Driver{}.Name(), Version: formatVersion, KeyGroups: s.keyGroups, Files: files}, nil
}

// list returns the tables and the one manifest that lists them. CURRENT says only which manifest it is, and RocksDB's
// options are ours: neither is kept.
func (s *snapshot) list() ([]statebackend.File, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var files []statebackend.File
	manifests := 0
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, tableSuffix):
			files = append(files, statebackend.File{Name: name})
		case strings.HasPrefix(name, manifestPrefix):
			manifests++
			files = append(files, statebackend.File{Name: name})
		case name == "CURRENT" || strings.HasPrefix(name, "OPTIONS-"):
		default:
			return nil, fmt.Errorf("file %s in %s is of no known kind", name, s.dir)
		}
	}
	if manifests != 1 {
		return nil, fmt.Errorf("%d manifests in %s, want one", manifests, s.dir)
	}
	return files, nil
}

func (s *snapshot) upload(ctx context.Context, up statebackend.Uploader, f *statebackend.File) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(s.dir, f.Name)
	if strings.HasSuffix(f.Name, tableSuffix) {
		id, err := fileID(path)
		if err != nil {
			return err
		}
		f.ID = hex.EncodeToString(id)
		var known bool
		if f.Ref, known = up.Known(f.ID); known {
			return nil
		}
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	f.Ref, err = up.Upload(ctx, f.Name, content, info.Size())
	return err
}

func (s *snapshot) Release() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("release rocksdb state: %w", err)
	}
	return nil
}
