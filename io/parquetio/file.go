package parquetio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/millstream/millstream/sdk/connector"
)

// expand returns the files that path names, sorted.
func expand(path string) ([]string, error) {
	if _, err := os.Stat(path); err == nil || !strings.ContainsAny(path, `*?[`) {
		return []string{path}, nil // that it is missing is said when it is opened
	}
	paths, err := filepath.Glob(path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("list %s: no file matches", path)
	}
	return paths, nil
}

// file is an open Parquet file whose footer has been read.
type file struct {
	*os.File
	path    string
	size    int64
	parquet *parquet.File
}

// openFile opens the file and reads its footer.
//
// The library believes lengths in the file: a damaged one can make it panic, which attempt turns into an
// error, or make it allocate without limit, against which the footer is checked before it sees it.
func openFile(path string) (_ *file, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the operation and the path
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("open %s: %w", path, err)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("it is a directory; to read the files in it, give %s", filepath.Join(path, "*.parquet"))
	}
	out := &file{File: f, path: path, size: info.Size()}
	if err := checkFooter(f, out.size); err != nil {
		return nil, err
	}
	err = attempt(func() (err error) {
		out.parquet, err = parquet.OpenFile(f, out.size, &parquet.FileConfig{
			SkipPageIndex:    true,
			SkipBloomFilters: true,
			ReadBufferSize:   64 << 10,
		})
		return err
	})
	if err == nil {
		err = checkCompression(out.parquet.Metadata())
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkCompression refuses LZ4_RAW: of pages so compressed the library (parquet-go 0.32.0) now and then returns other
// values than were written, and other ones each time, without an error.
func checkCompression(m *format.FileMetaData) error {
	for _, g := range m.RowGroups {
		for _, c := range g.Columns {
			if c.MetaData.Codec == format.Lz4Raw {
				return connector.Permanent(fmt.Errorf("its column %q is compressed by LZ4_RAW, which cannot be read reliably: write the file anew with another compression, such as zstd or snappy", strings.Join(c.MetaData.PathInSchema, ".")))
			}
		}
	}
	return nil
}

const magic = "PAR1"

// checkFooter reads the footer of a file and checks the lengths in it:
//
//	"PAR1", pages …, metadata (Thrift), length of the metadata (uint32), "PAR1"
func checkFooter(f *os.File, size int64) error {
	var head [4]byte
	var tail [8]byte
	if size < int64(len(head)+len(tail)) {
		return fmt.Errorf("it is not a Parquet file: it has %d bytes only", size)
	}
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(tail[:], size-int64(len(tail))); err != nil {
		return err
	}
	switch {
	case string(head[:]) == "PARE" || string(tail[4:]) == "PARE":
		return errors.New("it is encrypted, which is not supported")
	case string(head[:]) != magic:
		return fmt.Errorf("it is not a Parquet file: it begins with %q, not with %q", head, magic)
	case string(tail[4:]) != magic:
		return fmt.Errorf("it ends with %q, not with %q: was it cut off, or is it still being written?", tail[4:], magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-int64(len(head)+len(tail)) {
		return fmt.Errorf("the file is damaged: its footer would have %d bytes of %d", n, size)
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-int64(len(tail))-n); err != nil {
		return err
	}
	if _, err := skimStruct(footer); err != nil {
		return fmt.Errorf("the file is damaged: footer: %w", err)
	}
	return nil
}

// attempt runs f and turns a panic of the Parquet library into an error.
func attempt(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	return f()
}

func (f *file) rowGroups() []format.RowGroup { return f.parquet.Metadata().RowGroups }

func (f *file) rows(group int) int64 { return f.rowGroups()[group].NumRows }

// column finds a column of single values.
func (f *file) column(name string) (*parquet.Column, error) {
	c := f.parquet.Root().Column(name)
	switch {
	case c == nil:
		var have []string
		for _, c := range f.parquet.Root().Columns() {
			have = append(have, c.Name())
		}
		return nil, fmt.Errorf("%s has no column %q; it has %s", f.path, name, strings.Join(have, ", "))
	case !c.Leaf() || c.MaxRepetitionLevel() > 0 || c.MaxDefinitionLevel() > 1:
		return nil, fmt.Errorf("%s: column %q is a list, a map or a group; only columns of single values can be read", f.path, name)
	}
	return c, nil
}

// chunk returns the metadata of a column in a row group.
func (f *file) chunk(group int, c *parquet.Column) (*format.ColumnMetaData, error) {
	chunks := f.rowGroups()[group].Columns
	if c.Index() >= len(chunks) {
		return nil, fmt.Errorf("%s is damaged: row group %d has %d columns", f.path, group, len(chunks))
	}
	if chunks[c.Index()].FilePath != "" {
		return nil, fmt.Errorf("%s: row group %d is in another file, %s, which is not supported", f.path, group, chunks[c.Index()].FilePath)
	}
	return &chunks[c.Index()].MetaData, nil
}

// least returns the least value of a timestamp or date column in a row group, by its statistics.
func (f *file) least(group int, name string) (time.Time, error) {
	c, err := f.column(name)
	if err != nil {
		return time.Time{}, err
	}
	m, err := f.chunk(group, c)
	if err != nil {
		return time.Time{}, err
	}
	b := m.Statistics.MinValue
	if b == nil {
		b = m.Statistics.Min // older writers; right for signed integers
	}
	switch toTime := timeOf64(c.Type()); {
	case toTime != nil && len(b) == 8:
		return toTime(int64(binary.LittleEndian.Uint64(b)))
	case isDate(c.Type()) && len(b) == 4:
		return dateOf(int32(binary.LittleEndian.Uint32(b)))
	case toTime == nil && !isDate(c.Type()):
		return time.Time{}, fmt.Errorf("%s: column %q is %v; a timestamp or a date is needed", f.path, name, c.Type())
	}
	return time.Time{}, fmt.Errorf("%s: row group %d has no statistics for column %q; write them, or leave OrderedBy out", f.path, group, name)
}
