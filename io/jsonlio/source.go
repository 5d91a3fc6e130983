package jsonlio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// Split is a range of bytes of a file and how far it has been read. It has just the lines that begin in
// the range [Start, End), whatever the ranges.
type Split struct {
	File       string
	Start, End int64
	Next       int64 // offset of the next line; Start, which may lie inside a line, if none has been read
}

// FileSource is what Source returns.
type FileSource[T any] struct {
	path  string
	bytes int64
}

var _ connector.Source[struct{}, Split] = (*FileSource[struct{}])(nil)

// SourceOption configures a Source.
type SourceOption struct {
	sdk.ReadOption
	apply func(*sourceOptions)
}

type sourceOptions struct{ bytes int64 }

// SplitBytes is the size of the splits that a large file is cut into. It is 64 MiB by default.
func SplitBytes(n int64) SourceOption {
	return SourceOption{sdk.ConnectorOption("jsonlio.SplitBytes"), func(o *sourceOptions) { o.bytes = n }}
}

// Source reads the lines of a file, of all files *.jsonl of a directory, or of all files of a pattern as of
// filepath.Glob, in the order of their names. Each line is a JSON value that json.Unmarshal takes into a T;
// lines of white space alone are left out, and so are files whose names begin with a dot. What is appended
// to a file once the job has started is not read, but for the rest of its last line.
func Source[T any](path string, opts ...SourceOption) *FileSource[T] {
	o := sourceOptions{bytes: 64 << 20}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return &FileSource[T]{path, max(1, o.bytes)}
}

// Splits implements [connector.Source].
func (s *FileSource[T]) Splits(ctx context.Context) ([]Split, error) {
	files, err := expand(s.path)
	if err != nil {
		return nil, connector.Permanent(err)
	}
	var splits []Split
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, connector.Permanent(err) // names the operation and the file
		}
		if !info.Mode().IsRegular() {
			return nil, connector.Permanent(fmt.Errorf("read %s: it is not a regular file", file))
		}
		for at := int64(0); at < info.Size(); at += s.bytes {
			splits = append(splits, Split{File: file, Start: at, End: min(at+s.bytes, info.Size()), Next: at})
		}
	}
	return splits, nil
}

// expand returns the files that path names, sorted.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		path = filepath.Join(escape(path), "*"+dataSuffix)
	case err == nil, !strings.ContainsAny(path, `*?[`):
		return []string{path}, err
	}
	files, err := filepath.Glob(path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	var visible []string
	for _, f := range files {
		if !strings.HasPrefix(filepath.Base(f), ".") { // a star matches a dot
			visible = append(visible, f)
		}
	}
	if len(visible) == 0 {
		return nil, fmt.Errorf("list %s: %w", path, errors.New("no file matches"))
	}
	return visible, nil
}

// escape makes a pattern that matches path alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// SplitID implements [connector.Source].
func (s *FileSource[T]) SplitID(sp Split) string {
	return sp.File + "@" + strconv.FormatInt(sp.Start, 10)
}

// Open implements [connector.Source].
func (s *FileSource[T]) Open(context.Context, connector.Subtask) (connector.Reader[T, Split], error) {
	return &reader[T]{}, nil
}
