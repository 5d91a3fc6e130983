// Package files reads and writes the lines of text files, for connectors that say what a line is.
//
// A file whose name ends in .gz is compressed by gzip, of one or several members; its text is what they hold.
// Reading order: source.go, reader.go, lines.go; sink.go, writer.go.
package files

import "strings"

// MaxLine is the greatest length of a line, in bytes without its end. A line that would be longer is not written,
// and a line that is longer is not read: both are errors.
const MaxLine = 16 << 20

// gzipSuffix is the end of the names of compressed files.
const gzipSuffix = ".gz"

func compressed(name string) bool { return strings.HasSuffix(name, gzipSuffix) }
