// Package jsonlio reads and writes JSON Lines: files of one JSON value a line, as of encoding/json.
package jsonlio

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millstream/millstream/sdk/connector"
)

// MaxLine is the greatest length of a line, in bytes without its end. A record that would be longer is not
// written, and a line that is longer is not read: both are errors.
const MaxLine = 16 << 20

// A part is first written, and made durable, under a hidden name, and gets its own name by a hard link
// when its checkpoint is committed:
//
//	.millstream-<nonce>.part  ->  part-<checkpoint>-<subtask>-<nonce>.jsonl
//
// The nonce is new for each part. A name is therefore never used for other content: if the second name is
// there, the part has been committed, whoever asks again.
const (
	stagedPrefix = ".millstream-"
	stagedSuffix = ".part"
	dataSuffix   = ".jsonl"
)

// Part is the committable: a file that one subtask wrote between two checkpoints.
type Part struct {
	Checkpoint, Subtask int64
	Nonce               string
}

func (p Part) staged() string { return stagedPrefix + p.Nonce + stagedSuffix }

func (p Part) final() string {
	return fmt.Sprintf("part-%d-%d-%s%s", p.Checkpoint, p.Subtask, p.Nonce, dataSuffix)
}

// FileSink is what Sink returns.
type FileSink[T any] struct {
	dir string
	sinkOptions
}

var (
	_ connector.Sink[struct{}, Part] = (*FileSink[struct{}])(nil)
	_ connector.Starter              = (*FileSink[struct{}])(nil)
)

// SinkOption configures a Sink.
type SinkOption func(*sinkOptions)

type sinkOptions struct {
	append bool
	flag   string // by which the program's user sets append; "" if there is none
}

// Append lets a new run write into a directory that holds .jsonl files already.
func Append() SinkOption { return func(o *sinkOptions) { o.append = true } }

// AppendIf is [Append] if yes. If not, the error about files that are there already names flag, such as
// --append-output: what the user of the program can set.
func AppendIf(yes bool, flag string) SinkOption {
	return func(o *sinkOptions) { o.append, o.flag = yes, flag }
}

// Sink writes each record exactly once into the files *.jsonl of a directory, which is made if it is
// missing: one file for each subtask and checkpoint that has records. The coordinator and all workers must
// see the directory, on one file system that knows hard links, and it must belong to this sink alone: what
// another job has staged there would be swept.
func Sink[T any](dir string, opts ...SinkOption) *FileSink[T] {
	var o sinkOptions
	for _, opt := range opts {
		opt(&o)
	}
	return &FileSink[T]{dir, o}
}

// Start implements [connector.Starter]. What it cannot do now it cannot do a moment later.
func (s *FileSink[T]) Start(_ context.Context, fresh bool) error {
	return connector.Permanent(s.start(fresh))
}

func (s *FileSink[T]) start(fresh bool) error {
	if err := makeDir(s.dir); err != nil {
		return fmt.Errorf("make output directory: %w", explain(err))
	}
	if err := s.probe(); err != nil {
		return fmt.Errorf("write into output directory %s: %w", s.dir, explain(err))
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list output directory: %w", explain(err))
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case isStaged(name):
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("sweep what an earlier attempt staged: %w", explain(err))
			}
		case fresh && !s.append && strings.HasSuffix(name, dataSuffix) && !strings.HasPrefix(name, "."):
			how := s.flag
			if how == "" {
				how = "jsonlio.Append() in the program"
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
func (s *FileSink[T]) probe() (err error) {
	from := filepath.Join(s.dir, Part{Nonce: rand.Text()}.staged())
	to := filepath.Join(s.dir, Part{Nonce: rand.Text()}.staged())
	f, err := os.OpenFile(from, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(from)) }()
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(to)
}

// Open implements [connector.Sink].
func (s *FileSink[T]) Open(_ context.Context, sub connector.Subtask) (connector.Writer[T, Part], error) {
	return newWriter[T](s.dir, sub), nil
}

// Commit implements [connector.Sink]: link all, make the names durable, and only then drop the old names.
func (s *FileSink[T]) Commit(_ context.Context, checkpoint int64, parts []Part) error {
	if len(parts) == 0 {
		return nil
	}
	for _, p := range parts {
		if err := s.link(p); err != nil {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
		}
	}
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
	}
	for _, p := range parts {
		if err := os.Remove(filepath.Join(s.dir, p.staged())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, explain(err))
		}
	}
	return nil
}

func (s *FileSink[T]) link(p Part) error {
	if !isNonce(p.Nonce) {
		return fmt.Errorf("%q is not the nonce of a part", p.Nonce)
	}
	from, to := filepath.Join(s.dir, p.staged()), filepath.Join(s.dir, p.final())
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
