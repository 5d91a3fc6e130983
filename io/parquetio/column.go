package parquetio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/parquet-go/parquet-go"
)

// column reads one column of a row group into one field of a slice of rows.
type column interface {
	// open goes to a row of a row group.
	open(f *file, group int, row int64) error
	// read fills the field of n rows that begin at rows; they must be zero.
	read(rows unsafe.Pointer, n int) error
	close() error
}

// base is what a column knows when it is bound.
type base struct {
	owner string  // name of T, for errors
	size  uintptr // of T
	field field
	in    *parquet.Column
}

// columnOf reads a column whose values are Gs in Go.
type columnOf[G any] struct {
	base
	plain decoder[G]
	clone func(G) G // for values of a dictionary that must not be shared by rows, else nil

	pages parquet.Pages
	row   int64 // in the row group, the next to be read: for errors

	// The current page has rows rows, of which at have been read, and its values from value on are left.
	// levels has a byte for each row, 0 where it is null; it is nil if no row is.
	page            parquet.Page
	at, rows, value int
	levels          []byte
	indexes         []int32 // into dict; nil if the page has plain values

	dict   []G
	dictOf parquet.Dictionary
}

func (c *columnOf[G]) open(f *file, group int, row int64) error {
	m, err := f.chunk(group, c.in)
	if err != nil {
		return err
	}
	if codec := c.in.Compression(); codec != nil && codec.CompressionCodec() != m.Codec {
		return c.wrap(fmt.Errorf("row groups compressed in unlike ways (%v, %v) are not supported", codec.CompressionCodec(), m.Codec))
	}
	if err := checkPages(f, f.size, m, f.rows(group)); err != nil {
		return c.wrap(err)
	}
	c.pages = f.parquet.RowGroups()[group].ColumnChunks()[c.in.Index()].Pages()
	c.row, c.at, c.rows, c.dict, c.dictOf = 0, 0, 0, nil, nil
	for c.row < row {
		if c.at == c.rows {
			if err := c.next(); err != nil {
				return c.wrap(err)
			}
		}
		n := int(min(int64(c.rows-c.at), row-c.row))
		c.skip(n)
		c.row += int64(n)
	}
	return nil
}

func (c *columnOf[G]) close() error {
	if c.pages == nil {
		return nil
	}
	parquet.Release(c.page)
	c.page = nil
	pages := c.pages
	c.pages = nil
	return pages.Close()
}

func (c *columnOf[G]) read(rows unsafe.Pointer, n int) error {
	dst := strided[G]{p: unsafe.Add(rows, c.field.offset), step: c.size}
	for n > 0 {
		if c.at == c.rows {
			if err := c.next(); err != nil {
				return c.wrap(err)
			}
		}
		k := min(n, c.rows-c.at)
		if err := c.some(dst, k); err != nil {
			return c.wrap(err)
		}
		dst = dst.from(k)
		n -= k
	}
	return nil
}

// some reads k rows of the current page, run by run of values and of nulls.
func (c *columnOf[G]) some(dst strided[G], k int) error {
	for i := 0; i < k; {
		null, run := c.run(k - i)
		if null && !c.field.nullable() {
			return fmt.Errorf("it is null; make the field a *%v", c.field.typ)
		}
		if !null {
			n, err := c.values(dst.from(i), run)
			if err != nil {
				c.row += int64(n)
				return err
			}
			c.value += run
		}
		c.at += run
		c.row += int64(run)
		i += run
	}
	return nil
}

// run returns how many of the next rows, at most most, are alike in being null or not.
func (c *columnOf[G]) run(most int) (null bool, n int) {
	if c.levels == nil {
		return false, most
	}
	rest := c.levels[c.at : c.at+most]
	level := rest[0]
	for n = 1; n < len(rest) && rest[n] == level; n++ {
	}
	return level == 0, n
}

// values stores the next n values at dst.
func (c *columnOf[G]) values(dst strided[G], n int) (int, error) {
	if !c.field.nullable() {
		return c.decode(dst, c.value, n)
	}
	const block = 32 // values that live as long as one of them is pointed to
	pointers := strided[*G](dst)
	for i := 0; i < n; i += block {
		vals := make([]G, min(block, n-i))
		if k, err := c.decode(sliceOf(vals), c.value+i, len(vals)); err != nil {
			return i + k, err
		}
		for j := range vals {
			*pointers.at(i + j) = &vals[j]
		}
	}
	return n, nil
}

func (c *columnOf[G]) decode(dst strided[G], from, n int) (int, error) {
	if c.indexes == nil {
		return c.plain.decode(dst, from, from+n)
	}
	for i, x := range c.indexes[from : from+n] {
		if uint(uint32(x)) >= uint(len(c.dict)) {
			return i, fmt.Errorf("the file is damaged: value %d of a dictionary of %d", x, len(c.dict))
		}
		*dst.at(i) = c.dict[x]
	}
	if c.clone != nil {
		for i := range n {
			p := dst.at(i)
			*p = c.clone(*p)
		}
	}
	return n, nil
}

// skip goes n rows on in the current page.
func (c *columnOf[G]) skip(n int) {
	values := n
	if c.levels != nil {
		values -= bytes.Count(c.levels[c.at:c.at+n], []byte{0})
	}
	c.at += n
	c.value += values
}

// next reads the next page.
func (c *columnOf[G]) next() error {
	parquet.Release(c.page)
	c.page, c.at, c.rows, c.value, c.levels, c.indexes = nil, 0, 0, 0, nil, nil
	page, err := c.pages.ReadPage()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is damaged: the column ends before the row group does")
	}
	if err != nil {
		return err
	}
	c.page = page
	c.rows = int(page.NumValues())
	nulls := 0
	if levels := page.DefinitionLevels(); len(levels) > 0 {
		if nulls = bytes.Count(levels, []byte{0}); nulls > 0 {
			c.levels = levels
		}
	}
	if page.Dictionary() == nil {
		return c.plain.load(page.Data(), c.rows-nulls)
	}
	if page.Dictionary() != c.dictOf {
		if err := c.loadDictionary(page.Dictionary()); err != nil {
			return err
		}
	}
	data := page.Data()
	c.indexes = data.Int32()
	return enough(len(c.indexes), c.rows-nulls)
}

func (c *columnOf[G]) loadDictionary(d parquet.Dictionary) error {
	if err := c.plain.load(d.Page().Data(), d.Len()); err != nil {
		return err
	}
	c.dict, c.dictOf = make([]G, d.Len()), d
	_, err := c.plain.decode(sliceOf(c.dict), 0, d.Len())
	return err
}

func (c *columnOf[G]) wrap(err error) error {
	return fmt.Errorf("row %d: column %q, field %s.%s: %w", c.row, c.field.column, c.owner, c.field.name, err)
}
