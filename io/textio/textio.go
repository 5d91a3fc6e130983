// Package textio reads and writes the lines of text files, plain or compressed by gzip.
package textio

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/millstream/millstream/io/internal/files"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// MaxLine is the greatest length of a line, in bytes without its end. A longer one is neither written nor read:
// both are errors.
const MaxLine = files.MaxLine

const suffix = ".txt"

// Read reads the lines of a file, of the .txt files of a directory, or of the files of a pattern. See Source.
func Read(name string, p *sdk.Pipeline, path string, opts ...sdk.ReadOption) sdk.PCollection[string] {
	return ReadFiles(name, p, []string{path}, opts...)
}

// ReadFiles is Read of several paths, one after the other. A file that several name is read once.
func ReadFiles(name string, p *sdk.Pipeline, paths []string, opts ...sdk.ReadOption) sdk.PCollection[string] {
	mine, rest := files.Options(opts)
	return sdk.Read(name, p, Source(paths, mine...), rest...)
}

// Write writes each element as a line into .txt files of a directory, exactly once. Files appear as checkpoints
// complete. See Sink.
func Write(name string, in sdk.PCollection[string], dir string, opts ...SinkOption) {
	sdk.Write(name, in, Sink(dir, opts...))
}

// Split is a range of bytes of a file and how far it has been read.
type Split = files.Split

// FileSource is what Source returns.
type FileSource struct{ *files.Source[string] }

var _ connector.Source[string, Split] = (*FileSource)(nil)

// SourceOption configures a Source.
type SourceOption = files.SourceOption

// SplitBytes is the size of the splits that a large file is cut into. It is 64 MiB by default. A compressed
// file is never cut.
func SplitBytes(n int64) SourceOption { return files.SplitBytes("textio.SplitBytes", n) }

// Source reads the lines of files, in the order of paths and, in each, of the names of the files. A path is a
// file, a directory, of which the files *.txt and *.txt.gz are read, or a pattern as of filepath.Glob; names that
// begin with a dot are left out. A name that ends in .gz is that of a file compressed by gzip, of one or several
// members.
//
// A line ends with "\n" or "\r\n", which is not part of the element, or where the file does; an empty line is
// an element. Bytes that are not UTF-8 go through unchanged. What is appended to a file once the job has started is
// not read, but for the rest of its last line.
//
// A job that is restored goes on exactly at the line where it was; in a compressed file it reads up to there again.
func Source(paths []string, opts ...SourceOption) *FileSource {
	return &FileSource{files.NewSource(paths, suffix, decoder, opts)}
}

// blockSize is how much memory the lines of one reader share. A line that is kept keeps so much.
const blockSize = 4 << 10

// decoder returns a Decode that allocates once a block of lines.
func decoder() files.Decode[string] {
	block := &strings.Builder{}
	return func(out []string, line []byte) ([]string, error) {
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if block.Cap()-block.Len() < len(line) {
			block = &strings.Builder{}
			block.Grow(max(blockSize, len(line)))
		}
		start := block.Len()
		block.Write(line) // never fails
		return append(out, block.String()[start:]), nil
	}
}

// Part is the committable: a file that one subtask wrote between two checkpoints.
type Part = files.Part

// FileSink is what Sink returns.
type FileSink struct{ *files.Sink[string] }

var (
	_ connector.Sink[string, Part] = (*FileSink)(nil)
	_ connector.Starter            = (*FileSink)(nil)
)

// SinkOption configures a Sink.
type SinkOption = func(*files.SinkOptions)

// Append lets a new run write into a directory that holds .txt files already.
func Append() SinkOption { return func(o *files.SinkOptions) { o.Append = true } }

// AppendIf is [Append] if yes. If not, the error about files that are there already names flag, such as
// --append-output: what the user of the program can set.
func AppendIf(yes bool, flag string) SinkOption {
	return func(o *files.SinkOptions) { o.Append, o.Flag = yes, flag }
}

// Gzip compresses the files, which are then named *.txt.gz.
func Gzip() SinkOption { return func(o *files.SinkOptions) { o.Gzip = true } }

// Sink writes each element exactly once into the files *.txt of a directory, which is made if it is missing: one
// file for each subtask and checkpoint that has elements, a line each. An element that contains "\n" fails the
// job, for it would be read as two. The coordinator and all workers must see the directory, on one file system
// that knows hard links, and it must belong to this sink alone: what another job has staged there would be swept.
func Sink(dir string, opts ...SinkOption) *FileSink {
	return &FileSink{files.NewSink("textio", dir, suffix, encoder, opts)}
}

func encoder(into io.Writer) files.Encode[string] {
	return func(v *string) error {
		if i := strings.IndexByte(*v, '\n'); i >= 0 {
			return fmt.Errorf("write %.200q: it has an end of line at byte %d and would be read as two: split it, or replace the end of line", *v, i)
		}
		_, _ = io.WriteString(into, *v) // see files.Encode: neither fails
		_, _ = io.WriteString(into, "\n")
		return nil
	}
}
