package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// Split is a range of bytes of a file and how far it has been read. It has just the lines that begin in
// the range [Start, End), whatever the ranges. A compressed file is one split; its End is the size of the file
// and Next counts bytes of its text.
type Split struct {
	File       string
	Start, End int64
	Next       int64 // offset of the next line; Start, which may lie inside a line, if none has been read
}

// Source reads the lines of files. Connectors embed it.
type Source[T any] struct {
	paths   []string
	suffix  string
	decoder func() Decode[T]
	bytes   int64
}

// Decode appends what a line holds to out; of a line that holds nothing it returns out as it is. The line comes
// without its '\n' and is valid during the call.
type Decode[T any] func(out []T, line []byte) ([]T, error)

var _ connector.Source[struct{}, Split] = (*Source[struct{}])(nil)

// SourceOption configures a Source.
type SourceOption struct {
	sdk.ReadOption
	apply func(*sourceOptions)
}

type sourceOptions struct{ bytes int64 }

// SplitBytes is the size of the splits that a large file is cut into, 64 MiB by default. name is that of the
// option for users.
func SplitBytes(name string, n int64) SourceOption {
	return SourceOption{sdk.ConnectorOption(name), func(o *sourceOptions) { o.bytes = n }}
}

// Options takes a Source's own options out of those of a reading step.
func Options(opts []sdk.ReadOption) (mine []SourceOption, rest []sdk.ReadOption) {
	for _, o := range opts {
		if m, ok := o.(SourceOption); ok {
			mine = append(mine, m)
		} else {
			rest = append(rest, o)
		}
	}
	return mine, rest
}

// NewSource reads the files that paths name: each is a file, a directory, of which the files with the suffix are
// read, also compressed ones, or a pattern as of filepath.Glob. decoder makes the Decode of one reader.
func NewSource[T any](paths []string, suffix string, decoder func() Decode[T], opts []SourceOption) *Source[T] {
	o := sourceOptions{bytes: 64 << 20}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return &Source[T]{paths, suffix, decoder, max(1, o.bytes)}
}

// Splits implements [connector.Source].
func (s *Source[T]) Splits(ctx context.Context) ([]Split, error) {
	var splits []Split
	seen := map[string]bool{}
	for _, path := range s.paths {
		files, err := expand(path, s.suffix)
		if err != nil {
			return nil, connector.Permanent(err)
		}
		for _, file := range files {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if seen[filepath.Clean(file)] {
				continue
			}
			seen[filepath.Clean(file)] = true
			info, err := os.Stat(file)
			if err != nil {
				return nil, connector.Permanent(err) // names the operation and the file
			}
			if !info.Mode().IsRegular() {
				return nil, connector.Permanent(fmt.Errorf("read %s: it is not a regular file", file))
			}
			step := s.bytes
			if compressed(file) {
				step = max(1, info.Size())
			}
			for at := int64(0); at < info.Size(); at += step {
				splits = append(splits, Split{File: file, Start: at, End: min(at+step, info.Size()), Next: at})
			}
		}
	}
	return splits, nil
}

// expand returns the files that path names, sorted.
func expand(path, suffix string) ([]string, error) {
	patterns := []string{path}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		path = filepath.Join(escape(path), "*"+suffix)
		patterns = []string{path, path + gzipSuffix}
	case err == nil, !strings.ContainsAny(path, `*?[`):
		return []string{path}, err
	}
	var files []string
	for _, p := range patterns {
		matched, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		for _, f := range matched {
			if !strings.HasPrefix(filepath.Base(f), ".") { // a star matches a dot
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("list %s: %w", path, errors.New("no file matches"))
	}
	slices.Sort(files)
	return files, nil
}

// escape makes a pattern that matches path alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// SplitID implements [connector.Source].
func (s *Source[T]) SplitID(sp Split) string {
	return sp.File + "@" + strconv.FormatInt(sp.Start, 10)
}

// Open implements [connector.Source].
func (s *Source[T]) Open(context.Context, connector.Subtask) (connector.Reader[T, Split], error) {
	return &reader[T]{decode: s.decoder()}, nil
}
