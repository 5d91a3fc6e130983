// Package jsonlio reads and writes JSON Lines: files of one JSON value a line, as of encoding/json.
package jsonlio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/millstream/millstream/io/internal/files"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// MaxLine is the greatest length of a line, in bytes without its end. A record that would be longer is not
// written, and a line that is longer is not read: both are errors.
const MaxLine = files.MaxLine

const suffix = ".jsonl"

// Read reads the .jsonl files of a directory, or one file: each line is decoded into a T by encoding/json. See
// Source.
func Read[T any](name string, p *sdk.Pipeline, path string, opts ...sdk.ReadOption) sdk.PCollection[T] {
	mine, rest := files.Options(opts)
	return sdk.Read(name, p, Source[T](path, mine...), rest...)
}

// Write writes a collection into .jsonl files of a directory, exactly once: each element is a line, encoded
// by encoding/json. Files appear as checkpoints complete. See Sink.
func Write[T any](name string, in sdk.PCollection[T], dir string, opts ...SinkOption) {
	sdk.Write(name, in, Sink[T](dir, opts...))
}

// Split is a range of bytes of a file and how far it has been read.
type Split = files.Split

// FileSource is what Source returns.
type FileSource[T any] struct{ *files.Source[T] }

var _ connector.Source[struct{}, Split] = (*FileSource[struct{}])(nil)

// SourceOption configures a Source.
type SourceOption = files.SourceOption

// SplitBytes is the size of the splits that a large file is cut into. It is 64 MiB by default. A compressed
// file is never cut.
func SplitBytes(n int64) SourceOption { return files.SplitBytes("jsonlio.SplitBytes", n) }

// Source reads the lines of a file, of all files *.jsonl and *.jsonl.gz of a directory, or of all files of a
// pattern as of filepath.Glob, in the order of their names; a name that ends in .gz is that of a file compressed by
// gzip. Each line is a JSON value that json.Unmarshal takes into a T; lines of white space alone are left out, and
// so are files whose names begin with a dot. What is appended to a file once the job has started is not read, but
// for the rest of its last line.
func Source[T any](path string, opts ...SourceOption) *FileSource[T] {
	return &FileSource[T]{files.NewSource([]string{path}, suffix, func() files.Decode[T] { return decode[T] }, opts)}
}

func decode[T any](out []T, line []byte) ([]T, error) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return out, nil
	}
	var zero T
	out = append(out, zero)
	return out, json.Unmarshal(line, &out[len(out)-1])
}

// Part is the committable: a file that one subtask wrote between two checkpoints.
type Part = files.Part

// FileSink is what Sink returns.
type FileSink[T any] struct{ *files.Sink[T] }

var (
	_ connector.Sink[struct{}, Part] = (*FileSink[struct{}])(nil)
	_ connector.Starter              = (*FileSink[struct{}])(nil)
)

// SinkOption configures a Sink.
type SinkOption = func(*files.SinkOptions)

// Append lets a new run write into a directory that holds .jsonl files already.
func Append() SinkOption { return func(o *files.SinkOptions) { o.Append = true } }

// AppendIf is [Append] if yes. If not, the error about files that are there already names flag, such as
// --append-output: what the user of the program can set.
func AppendIf(yes bool, flag string) SinkOption {
	return func(o *files.SinkOptions) { o.Append, o.Flag = yes, flag }
}

// Gzip compresses the files, which are then named *.jsonl.gz.
func Gzip() SinkOption { return func(o *files.SinkOptions) { o.Gzip = true } }

// Sink writes each record exactly once into the files *.jsonl of a directory, which is made if it is
// missing: one file for each subtask and checkpoint that has records. The coordinator and all workers must
// see the directory, on one file system that knows hard links, and it must belong to this sink alone: what
// another job has staged there would be swept.
func Sink[T any](dir string, opts ...SinkOption) *FileSink[T] {
	return &FileSink[T]{files.NewSink("jsonlio", dir, suffix, encoder[T], opts)}
}

func encoder[T any](into io.Writer) files.Encode[T] {
	enc := json.NewEncoder(into)
	enc.SetEscapeHTML(false)
	return func(v *T) error {
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("encode %.200s as JSON: %w", fmt.Sprintf("%+v", *v), err)
		}
		return nil
	}
}
