package jsonlio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lines cuts a file into lines. A line ends with '\n', or where the file does.
type lines struct {
	file io.ReaderAt
	at   int64  // offset of the next line
	buf  []byte // buf[from:to] are the bytes of the file from at on
	from int
	to   int
}

const minBuffer = 256 << 10

func (l *lines) reset(file io.ReaderAt, at int64) {
	if len(l.buf) == 0 {
		l.buf = make([]byte, minBuffer)
	}
	l.file, l.at, l.from, l.to = file, at, 0, 0
}

// next returns the next line that begins before end, without its '\n', or io.EOF; the file has at least
// end bytes. The line is valid until the next call.
func (l *lines) next(end int64) ([]byte, error) {
	if l.at >= end {
		return nil, io.EOF
	}
	for searched := 0; ; {
		if i := bytes.IndexByte(l.buf[l.from+searched:l.to], '\n'); i >= 0 {
			line := l.buf[l.from : l.from+searched+i]
			if len(line) > MaxLine {
				return nil, l.tooLong()
			}
			l.from += len(line) + 1
			l.at += int64(len(line)) + 1
			return line, nil
		}
		if searched = l.to - l.from; searched > MaxLine {
			return nil, l.tooLong()
		}
		err := l.fill()
		if errors.Is(err, io.EOF) {
			line := l.buf[l.from:l.to]
			l.from = l.to
			if l.at += int64(len(line)); l.at < end {
				return nil, fmt.Errorf("the file was cut off at byte %d while it was read", l.at)
			}
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *lines) tooLong() error {
	return fmt.Errorf("the line at byte %d is longer than %d bytes", l.at, MaxLine)
}

// skip goes to the next line that begins at or before end. Unlike next it keeps nothing of a long line.
func (l *lines) skip(end int64) error {
	for l.at <= end {
		if i := bytes.IndexByte(l.buf[l.from:l.to], '\n'); i >= 0 {
			l.from += i + 1
			l.at += int64(i) + 1
			return nil
		}
		l.at += int64(l.to - l.from)
		l.from = l.to
		if err := l.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads more bytes behind those that are there, and makes room for them. At the end of the file it
// returns io.EOF.
func (l *lines) fill() error {
	if l.from > 0 {
		l.to = copy(l.buf, l.buf[l.from:l.to])
		l.from = 0
	}
	if l.to == len(l.buf) {
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	n, err := l.file.ReadAt(l.buf[l.to:], l.at+int64(l.to))
	if l.to += n; n > 0 {
		return nil
	}
	return err
}
