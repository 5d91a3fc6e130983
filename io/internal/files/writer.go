package files

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millstream/millstream/internal/durable"
	"github.com/millstream/millstream/sdk/connector"
)

// bufferSize is the number of bytes that a writer gathers before it writes them to the file.
const bufferSize = 256 << 10

// writer writes the part of one subtask.
type writer[T any] struct {
	dir     string
	subtask int64
	gzip    bool
	part    Part
	file    *os.File     // of part; nil until there is a record
	zip     *gzip.Writer // into file, if it is to be compressed
	out     buffer
	encode  Encode[T] // into out
	failed  error     // after it, nothing can be said about the part: it is never prepared
}

// buffer holds what is not written to the file yet, the last line complete.
type buffer struct{ b []byte }

func (b *buffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *buffer) WriteString(s string) (int, error) {
	b.b = append(b.b, s...)
	return len(s), nil
}

func newWriter[T any](s *Sink[T], sub connector.Subtask) *writer[T] {
	w := &writer[T]{dir: s.dir, subtask: int64(sub.Index), gzip: s.o.Gzip}
	w.encode = s.encoder(&w.out)
	return w
}

// Write implements [connector.Writer].
func (w *writer[T]) Write(_ context.Context, records []connector.Record[T]) error {
	if w.failed != nil {
		return w.failed
	}
	for i := range records {
		start := len(w.out.b)
		if w.failed = w.encode(&records[i].Value); w.failed != nil { // by its address it is not copied
			return w.failed
		}
		if n := len(w.out.b) - start - 1; n > MaxLine {
			w.failed = fmt.Errorf("write %.200s: its line has %d bytes, more than %d", w.out.b[start:], n, MaxLine)
			return w.failed
		}
		if len(w.out.b) >= bufferSize {
			if w.failed = w.flush(); w.failed != nil {
				return w.failed
			}
		}
	}
	return nil
}

// flush writes what is gathered to the file, which it makes if there is none.
func (w *writer[T]) flush() error {
	if w.file == nil {
		w.part = Part{Subtask: w.subtask, Nonce: rand.Text(), Gzip: w.gzip, Dir: w.dir}
		f, err := os.OpenFile(filepath.Join(w.dir, w.part.staged()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return fmt.Errorf("make part: %w", explain(err))
		}
		w.file = f
		if w.gzip && w.zip == nil {
			w.zip = gzip.NewWriter(f)
		} else if w.gzip {
			w.zip.Reset(f)
		}
	}
	var err error
	if w.gzip {
		_, err = w.zip.Write(w.out.b)
	} else {
		_, err = w.file.Write(w.out.b)
	}
	if err != nil {
		return fmt.Errorf("write part: %w", explain(err))
	}
	if w.out.b = w.out.b[:0]; cap(w.out.b) > 4*bufferSize {
		w.out.b = nil // after one very long line
	}
	return nil
}

// Prepare implements [connector.Writer].
func (w *writer[T]) Prepare(_ context.Context, checkpoint int64) ([]Part, error) {
	if w.failed != nil {
		return nil, w.failed
	}
	if w.file == nil && len(w.out.b) == 0 {
		return nil, nil
	}
	if w.failed = w.finish(); w.failed != nil {
		return nil, w.failed
	}
	p := w.part
	p.Checkpoint = checkpoint
	w.part = Part{}
	return []Part{p}, nil
}

// finish makes the part durable, with its name, and closes it.
func (w *writer[T]) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.gzip {
		if err := w.zip.Close(); err != nil {
			return fmt.Errorf("write part: %w", explain(err))
		}
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync part: %w", explain(err))
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close part: %w", explain(err))
	}
	w.file = nil
	if err := durable.SyncDir(w.dir); err != nil {
		return fmt.Errorf("sync output directory: %w", explain(err))
	}
	return nil
}

// Close implements [connector.Writer].
func (w *writer[T]) Close() error {
	w.failed = errors.New("the writer is closed")
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	err := os.Remove(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a later attempt has swept it
	}
	return errors.Join(err, f.Close())
}
