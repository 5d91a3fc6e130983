package jsonlio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/millstream/millstream/sdk/connector"
)

// batchBytes is about how many bytes of lines one Read takes, so that long lines make small batches.
const batchBytes = 1 << 20

// reader reads the splits of one subtask, one after the other.
type reader[T any] struct {
	todo  []Split // todo[0] is being read
	out   []T
	file  *os.File // of todo[0]; nil if it has not been opened
	lines lines    // of file
}

var _ connector.Reader[struct{}, Split] = (*reader[struct{}])(nil)

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
	clear(r.out)
	r.out = r.out[:0]
	for start := sp.Next; len(r.out) < most && sp.Next-start < batchBytes; {
		line, err := r.lines.next(sp.End)
		if errors.Is(err, io.EOF) {
			b.Done = true
			break
		}
		if err != nil {
			return b, fmt.Errorf("read %s: %w", sp.File, err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var zero T
			r.out = append(r.out, zero)
			if err := json.Unmarshal(line, &r.out[len(r.out)-1]); err != nil {
				return b, fmt.Errorf("read %s: line %s: %w: %.100q", sp.File, r.lineNumber(sp), err, line)
			}
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
	r.lines.reset(r.file, sp.Next)
	if sp.Start == 0 || sp.Next > sp.Start {
		return nil
	}
	// The line that holds the byte before Start belongs to the split before, also if it ends there.
	r.lines.reset(r.file, sp.Start-1)
	if err := r.lines.skip(sp.End); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sp.Next = r.lines.at
	return nil
}

// lineNumber counts the lines before the position of sp, for an error.
func (r *reader[T]) lineNumber(sp *Split) string {
	n, chunk := 1, make([]byte, 64<<10)
	for at := int64(0); at < sp.Next; {
		k, err := r.file.ReadAt(chunk[:min(int64(len(chunk)), sp.Next-at)], at)
		n += bytes.Count(chunk[:k], []byte{'\n'})
		if at += int64(k); err != nil {
			return fmt.Sprintf("at byte %d", sp.Next)
		}
	}
	return fmt.Sprintf("%d (byte %d)", n, sp.Next)
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
