package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// lines cuts a text into lines. A line ends with '\n', or where the text does.
type lines struct {
	text io.Reader // behind what is in buf
	at   int64     // offset of the next line
	buf  []byte    // buf[from:to] is the text from at on
	from int
	to   int
}

const minBuffer = 256 << 10

// toTheEnd is an end for a text whose length nobody knows.
const toTheEnd = math.MaxInt64

// reset begins at an offset, from which text goes on.
func (l *lines) reset(text io.Reader, at int64) {
	if len(l.buf) == 0 {
		l.buf = make([]byte, minBuffer)
	}
	l.text, l.at, l.from, l.to = text, at, 0, 0
}

// next returns the next line that begins before end, without its '\n', or io.EOF; the text has at least
// end bytes, unless that is toTheEnd. The line is valid until the next call.
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
			return l.last(end)
		}
		if err != nil {
			return nil, err
		}
	}
}

// last returns the line that has no end.
func (l *lines) last(end int64) ([]byte, error) {
	line := l.buf[l.from:l.to]
	l.from = l.to
	l.at += int64(len(line))
	switch {
	case l.at < end && end != toTheEnd:
		return nil, fmt.Errorf("the file was cut off at byte %d while it was read", l.at)
	case len(line) == 0:
		return nil, io.EOF
	}
	return line, nil
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

// emptyReads is how often a reader may bring nothing, in a row, without being at its end.
const emptyReads = 100

// fill reads more bytes behind those that are there, and makes room for them. At the end of the text it
// returns io.EOF.
func (l *lines) fill() error {
	if l.from > 0 {
		l.to = copy(l.buf, l.buf[l.from:l.to])
		l.from = 0
	}
	if l.to == len(l.buf) {
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	for range emptyReads {
		n, err := l.text.Read(l.buf[l.to:])
		if l.to += n; n > 0 {
			return nil // an error comes again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
