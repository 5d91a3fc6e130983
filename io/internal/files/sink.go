package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millstream/millstream/internal/durable"
	"github.com/millstream/millstream/sdk/connector"
)

// A part is first written, and made durable, under a hidden name, and gets its own name by a hard link
// when its checkpoint is committed:
//
//	.millstream-<nonce>.part  ->  part-<checkpoint>-<subtask>-<nonce>.txt
//
// The nonce is new for each part. A name is therefore never used for other content: if the second name is
// there, the part has been committed, whoever asks again. Numbers are padded, so that names sort as parts were committed.
const (
	stagedPrefix = ".millstream-"
	stagedSuffix = ".part"
)

// Part is the committable: a file that one subtask wrote between two checkpoints.
type Part struct {
	Checkpoint, Subtask int64
	Nonce               string
	Gzip                bool
	Dir                 string // as it was given to the sink that staged the part
}

func (p Part) staged() string { return stagedPrefix + p.Nonce + stagedSuffix }

func (p Part) final(suffix string) string {
	if p.Gzip {
		suffix += gzipSuffix
	}
	return fmt.Sprintf("part-%08d-%04d-%s%s", p.Checkpoint, p.Subtask, p.Nonce, suffix)
}

// unpadded is final as it was before numbers were padded. A part that such a program has committed has this name.
func (p Part) unpadded(suffix string) string {
	return strings.Replace(p.final(suffix), fmt.Sprintf("part-%08d-%04d-", p.Checkpoint, p.Subtask), fmt.Sprintf("part-%d-%d-", p.Checkpoint, p.Subtask), 1)
}

// SinkOptions are the settings of a Sink that users may choose.
type SinkOptions struct {
	Append bool   // a new run may write into a directory that has data already
	Flag   string // by which the program's user sets Append; "" if there is none
	Gzip   bool   // compress
}

// Sink writes records as lines of files in a directory, exactly once. Connectors embed it.
type Sink[T any] struct {
	pkg, dir, suffix string
	encoder          func(io.Writer) Encode[T]
	o                SinkOptions
}

// Encode writes one record, as one line with its '\n', by a single or several calls of Write, none of which fails.
type Encode[T any] func(v *T) error

var (
	_ connector.Sink[struct{}, Part] = (*Sink[struct{}])(nil)
	_ connector.Starter              = (*Sink[struct{}])(nil)
)

// NewSink makes a sink for package pkg. encoder makes the Encode of one writer.
func NewSink[T any](pkg, dir, suffix string, encoder func(io.Writer) Encode[T], opts []func(*SinkOptions)) *Sink[T] {
	s := &Sink[T]{pkg: pkg, dir: dir, suffix: suffix, encoder: encoder}
	for _, opt := range opts {
		opt(&s.o)
	}
	return s
}

// Start implements [connector.Starter]. What it cannot do now it cannot do a moment later.
func (s *Sink[T]) Start(_ context.Context, fresh bool) error {
	return connector.Permanent(s.start(fresh))
}

func (s *Sink[T]) start(fresh bool) error {
	entries, began, err := s.list()
	if err != nil {
		return err
	}
	if fresh {
		if err := s.leftover(entries); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if name := e.Name(); isStaged(name) {
			// What was written since belongs to a coordinator that leads now, if this one has lost its lead meanwhile.
			if info, err := e.Info(); err == nil && info.ModTime().After(began) {
				continue
			}
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("sweep what an earlier attempt staged: %w", explain(err))
			}
		}
	}
	return nil
}

// Check implements [connector.Checker].
func (s *Sink[T]) Check(_ context.Context, pending bool) error {
	entries, _, err := s.list()
	if err != nil {
		return err
	}
	if err := s.leftover(entries); err != nil {
		return err
	}
	if pending && !s.o.Append && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return isStaged(e.Name()) }) {
		return fmt.Errorf("output directory %s holds staged output of the run before, which may be committed still: give a new run an empty directory", s.dir)
	}
	return nil
}

// list makes the directory if it is missing, finds out whether it can be written, and lists it. began is when that began, by
// the clock of the file system.
func (s *Sink[T]) list() (entries []os.DirEntry, began time.Time, err error) {
	if err := makeDir(s.dir); err != nil {
		return nil, began, fmt.Errorf("make output directory: %w", explain(err))
	}
	if began, err = s.probe(); err != nil {
		return nil, began, fmt.Errorf("write into output directory %s: %w", s.dir, explain(err))
	}
	if entries, err = os.ReadDir(s.dir); err != nil {
		return nil, began, fmt.Errorf("list output directory: %w", explain(err))
	}
	return entries, began, nil
}

// leftover refuses data of an earlier run.
func (s *Sink[T]) leftover(entries []os.DirEntry) error {
	if s.o.Append {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(strings.TrimSuffix(name, gzipSuffix), s.suffix) && !strings.HasPrefix(name, ".") {
			how := s.o.Flag
			if how == "" {
				how = s.pkg + ".Append() in the program"
			}
			return fmt.Errorf("output directory %s already holds %s: give a new run an empty directory, or add to this one by %s", s.dir, name, how)
		}
	}
	return nil
}

// isStaged knows the names of this package's staged parts.
func isStaged(name string) bool {
	nonce, ok := strings.CutPrefix(name, stagedPrefix)
	if !ok {
		return false
	}
	nonce, ok = strings.CutSuffix(nonce, stagedSuffix)
	return ok && isNonce(nonce)
}

// isNonce knows what rand.Text returns: 26 characters of base 32 or, in later versions of Go, more.
func isNonce(s string) bool {
	return len(s) >= 26 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// probe finds out whether files can be made, linked and removed.
//
// It returns the time at which it began, by the clock of the file system.
func (s *Sink[T]) probe() (began time.Time, err error) {
	from := filepath.Join(s.dir, Part{Nonce: rand.Text()}.staged())
	to := filepath.Join(s.dir, Part{Nonce: rand.Text()}.staged())
	f, err := os.OpenFile(from, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return began, err
	}
	defer func() { err = errors.Join(err, os.Remove(from)) }()
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return began, err
	}
	if err := os.Link(from, to); err != nil {
		return began, err
	}
	return info.ModTime(), os.Remove(to)
}

// Open implements [connector.Sink].
func (s *Sink[T]) Open(_ context.Context, sub connector.Subtask) (connector.Writer[T, Part], error) {
	return newWriter(s, sub), nil
}

// Commit implements [connector.Sink]. A part is committed where it was staged, also by a program that writes into
// another directory by now: link all, make the names durable, and only then drop the old names.
func (s *Sink[T]) Commit(_ context.Context, checkpoint int64, parts []Part) error {
	if len(parts) == 0 {
		return nil
	}
	for _, p := range parts {
		if err := s.link(p); err != nil {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
		}
	}
	synced := map[string]bool{}
	for _, p := range parts {
		if synced[p.Dir] {
			continue
		}
		synced[p.Dir] = true
		if err := durable.SyncDir(p.Dir); err != nil {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
		}
	}
	for _, p := range parts {
		if err := os.Remove(filepath.Join(p.Dir, p.staged())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
		}
	}
	return nil
}

func (s *Sink[T]) link(p Part) error {
	if !isNonce(p.Nonce) {
		return fmt.Errorf("%q is not the nonce of a part", p.Nonce)
	}
	from, to := filepath.Join(p.Dir, p.staged()), filepath.Join(p.Dir, p.final(s.suffix))
	if _, err := os.Lstat(filepath.Join(p.Dir, p.unpadded(s.suffix))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Link(from, to)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		_, there := os.Lstat(to)
		if errors.Is(there, fs.ErrNotExist) {
			return fmt.Errorf("%w: part is lost: neither %s nor %s exists; was the directory emptied or changed, or is it not the same on all machines?", connector.ErrPermanent, from, to)
		}
		return there
	}
	return err
}
