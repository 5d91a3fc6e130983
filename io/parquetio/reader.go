package parquetio

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/millstream/millstream/sdk/connector"
)

// reader reads the row groups of one subtask, one after the other.
type reader[T any] struct {
	shape shape
	todo  []Split // todo[0] is being read
	rows  []T

	file    *file    // of todo[0], or of the split before; kept while the next split is of the same file
	columns []column // bound to file
	open    bool     // columns are at todo[0]
}

var _ connector.Reader[struct{}, Split] = (*reader[struct{}])(nil)

// Assign implements [connector.Reader].
func (r *reader[T]) Assign(splits []Split) error {
	for _, sp := range splits {
		if sp.RowGroup < 0 || sp.Next < 0 || sp.Next > sp.Rows {
			return fmt.Errorf("read %s: no such position: row %d of %d of row group %d", sp.File, sp.Next, sp.Rows, sp.RowGroup)
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
	n := int(min(int64(most), sp.Rows-sp.Next))
	if err := attempt(func() error { return r.fill(sp, n) }); err != nil {
		return b, fmt.Errorf("read %s, row group %d: %w", sp.File, sp.RowGroup, err)
	}
	sp.Next += int64(n)
	b.Records, b.Split, b.Done = r.rows[:n], *sp, sp.Next == sp.Rows
	if !b.Done {
		return b, nil
	}
	if r.todo = r.todo[1:]; len(r.todo) == 0 {
		b.Status = connector.End
	}
	return b, r.closeSplit()
}

// fill reads the next n rows of the split into rows.
func (r *reader[T]) fill(sp *Split, n int) error {
	if !r.open {
		if err := r.openSplit(sp); err != nil {
			return err
		}
	}
	if cap(r.rows) < n {
		r.rows = make([]T, n)
	}
	r.rows = r.rows[:cap(r.rows)]
	rows := r.rows[:n]
	clear(rows) // the last batch's; columns leave null fields as they are
	for _, c := range r.columns {
		if err := c.read(unsafe.Pointer(unsafe.SliceData(rows)), n); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader[T]) openSplit(sp *Split) error {
	if r.file == nil || r.file.path != sp.File {
		if err := r.openFile(sp.File); err != nil {
			return err
		}
	}
	if r.file.size != sp.Size {
		return fmt.Errorf("the file has changed since it was listed: it had %d bytes and has %d", sp.Size, r.file.size)
	}
	if g := sp.RowGroup; g >= int64(len(r.file.rowGroups())) || r.file.rows(int(g)) != sp.Rows {
		return errors.New("the file has changed since it was listed: it has other row groups")
	}
	for _, c := range r.columns {
		if err := c.open(r.file, int(sp.RowGroup), sp.Next); err != nil {
			return err
		}
	}
	r.open = true
	return nil
}

func (r *reader[T]) openFile(path string) error {
	if err := r.closeFile(); err != nil {
		return err
	}
	f, err := openFile(path)
	if err != nil {
		return err
	}
	r.file = f
	r.columns, err = r.shape.bind(f)
	return err
}

func (r *reader[T]) closeSplit() error {
	var errs []error
	for _, c := range r.columns {
		errs = append(errs, c.close())
	}
	r.open = false
	return errors.Join(errs...)
}

func (r *reader[T]) closeFile() error {
	if r.file == nil {
		return nil
	}
	err := errors.Join(r.closeSplit(), r.file.Close())
	r.file, r.columns = nil, nil
	return err
}

// Close implements [connector.Reader].
func (r *reader[T]) Close() error { return r.closeFile() }
