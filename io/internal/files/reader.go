package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/millstream/millstream/sdk/connector"
)

// batchBytes is about how many bytes of lines one Read takes, so that long lines make small batches.
const batchBytes = 1 << 20

// reader reads the splits of one subtask, one after the other.
type reader[T any] struct {
	decode Decode[T]
	todo   []Split // todo[0] is being read
	out    []T
	file   *os.File // of todo[0]; nil if it has not been opened
	lines  lines    // of file
}

var (
	_ connector.Reader[struct{}, Split] = (*reader[struct{}])(nil)
	_ connector.Splitter[Split]         = (*reader[struct{}])(nil)
)

// Assign implements [connector.Reader].
func (r *reader[T]) Assign(splits []Split) error {
	for _, sp := range splits {
		if sp.Start < 0 || sp.Next < sp.Start || sp.End < sp.Start {
			return fmt.Errorf("read %s: no such position: byte %d of [%d, %d)", sp.File, sp.Next, sp.Start, sp.End)
		}
	}
	r.todo = append(r.todo, splits...)
	return nil
}

// Read implements [connector.Reader].
func (r *reader[T]) Read(_ context.Context, most int) (b connector.Batch[T, Split], err error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	sp := &r.todo[0]
	if r.file == nil {
		if err := r.open(sp); err != nil {
			return b, fmt.Errorf("read %s: %w", sp.File, err)
		}
	}
	end := sp.End
	if compressed(sp.File) {
		end = toTheEnd
	}
	clear(r.out)
	r.out = r.out[:0]
	for start := sp.Next; len(r.out) < most && sp.Next-start < batchBytes; {
		line, err := r.lines.next(end)
		if errors.Is(err, io.EOF) {
			b.Done = true
			break
		}
		if err != nil {
			return b, fmt.Errorf("read %s: %w", sp.File, err)
		}
		if r.out, err = r.decode(r.out, line); err != nil {
			return b, fmt.Errorf("read %s: line %s: %w: %.100q", sp.File, r.lineNumber(sp), err, line)
		}
		sp.Next = r.lines.at
	}
	b.Records, b.Split = r.out, *sp
	if !b.Done {
		return b, nil
	}
	if r.todo = r.todo[1:]; len(r.todo) == 0 {
		b.Status = connector.End
	}
	return b, r.Close()
}

func (r *reader[T]) open(sp *Split) (err error) {
	if r.file, err = os.Open(sp.File); err != nil {
		return err
	}
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < sp.End {
		return fmt.Errorf("the file has changed since it was listed: it has %d bytes, fewer than %d", info.Size(), sp.End)
	}
	at := sp.Next
	inside := sp.Start > 0 && sp.Next == sp.Start
	if inside { // the line that holds the byte before Start belongs to the split before, also if it ends there
		at--
	}
	text, err := r.text(sp, at)
	if err != nil {
		return err
	}
	r.lines.reset(text, at)
	if !inside {
		return nil
	}
	if err := r.lines.skip(sp.End); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sp.Next = r.lines.at
	return nil
}

// text is the text of the file from an offset on. Of a compressed file, what is before it is read and dropped.
func (r *reader[T]) text(sp *Split, at int64) (io.Reader, error) {
	if !compressed(sp.File) {
		return io.NewSectionReader(r.file, at, math.MaxInt64-at), nil
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(io.NewSectionReader(r.file, 0, sp.End), 64<<10))
	if err != nil {
		return nil, damaged(err)
	}
	text := unzipped{z}
	n, err := io.CopyN(io.Discard, text, at)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file has changed since it was read: its text has %d bytes, fewer than %d", n, at)
	}
	return text, err
}

// unzipped is the text of a compressed file.
type unzipped struct{ z *gzip.Reader }

func (u unzipped) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

// damaged says what errors of package gzip mean.
func damaged(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return fmt.Errorf("it is damaged, cut off or no gzip file: %w", err)
}

// Split implements [connector.Splitter]: lines that begin at or behind a byte in the middle are given away. A compressed file
// cannot be divided. At least the next line is kept, and the last byte is given away, with or without a line that begins
// there.
func (r *reader[T]) Split(keep float64) (primary, residual Split, ok bool) {
	if len(r.todo) == 0 || compressed(r.todo[0].File) {
		return primary, residual, false
	}
	sp := &r.todo[0]
	left := sp.End - sp.Next
	if left < 2 {
		return primary, residual, false
	}
	at := sp.Next + min(max(1, int64(keep*float64(left))), left-1)
	residual = Split{File: sp.File, Start: at, End: sp.End, Next: at}
	sp.End = at
	return *sp, residual, true
}

// lineNumber counts the lines before the position of sp, for an error.
func (r *reader[T]) lineNumber(sp *Split) string {
	text, err := r.text(sp, 0)
	if err != nil {
		return fmt.Sprintf("at byte %d", sp.Next)
	}
	n, chunk := 1, make([]byte, 64<<10)
	for text = io.LimitReader(text, sp.Next); ; {
		k, err := text.Read(chunk)
		n += bytes.Count(chunk[:k], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%d (byte %d)", n, sp.Next)
		}
		if err != nil {
			return fmt.Sprintf("at byte %d", sp.Next)
		}
	}
}

// Close implements [connector.Reader].
func (r *reader[T]) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}
