// Package parquetio reads Apache Parquet files into structs, a row group a split.
//
// The exported fields of the struct choose the columns; no other column is read:
//
//	type Flight struct {
//		Date   time.Time `parquet:"date"`
//		Delay  int64     `parquet:"delay"`
//		Origin string    `parquet:"origin"`
//		Remark *string   `parquet:"remark"` // nil where the column is null
//		Line   int       `parquet:"-"`      // not read
//	}
//
// A field without a tag has the column of its own name. Columns must be at the top level and of one value
// a row. What fits what:
//
//	BOOLEAN                         bool
//	INT32, INT64, signed or not     int, int8 … int64, uint, uint8 … uint64; a value that does not fit is an error
//	FLOAT, DOUBLE                   float32 (FLOAT only), float64
//	BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY, but decimals    string, []byte
//	TIMESTAMP, DATE, INT96          time.Time, in UTC; local timestamps are taken for UTC
//
// A null is an error unless the field is a pointer to one of these.
package parquetio

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// Split is a row group of a file and how far it has been read.
type Split struct {
	File     string    // path as it was given, or as the pattern found it
	Size     int64     // of the file in bytes when it was listed: another size is another file
	RowGroup int64     // index in the file
	Rows     int64     // in the row group
	Next     int64     // index in the row group of the next row to be read
	Bound    time.Time // with OrderedBy, a lower bound of the timestamps of the row group
}

// FileSource is what Source returns.
type FileSource[T any] struct {
	path   string
	shape  shape
	order  string        // column of OrderedBy, or ""
	slack  time.Duration // of OrderedBy
	broken error         // what is wrong with T or an option
}

var (
	_ connector.Source[struct{}, Split] = (*FileSource[struct{}])(nil)
	_ connector.Bounder[Split]          = (*FileSource[struct{}])(nil)
)

// Option is an option of this connector. It may stand among the sdk.ReadOptions of Read.
type Option struct {
	sdk.ReadOption
	apply func(*options)
}

type options struct {
	order string
	slack time.Duration
}

// OrderedBy says that no row of a row group has an event time more than slack before the least value of
// column in that row group, a timestamp or a date. Row groups that have not been read yet then hold the
// watermark there, instead of at the beginning of time, so that windows fire while the file is being read.
// The value comes from the file's statistics; it is an error if a row group has none.
func OrderedBy(column string, slack time.Duration) Option {
	return Option{sdk.ConnectorOption("parquetio.OrderedBy"), func(o *options) { o.order, o.slack = column, slack }}
}

// Read reads the file at path, or all files of a pattern as of filepath.Glob, a row group at a time. The
// columns that are read are those that the fields of T name by a `parquet:"name"` tag.
func Read[T any](name string, p *sdk.Pipeline, path string, opts ...sdk.ReadOption) sdk.PCollection[T] {
	var mine []Option
	var rest []sdk.ReadOption
	for _, o := range opts {
		if m, ok := o.(Option); ok {
			mine = append(mine, m)
		} else {
			rest = append(rest, o)
		}
	}
	return sdk.Read(name, p, Source[T](path, mine...), rest...)
}

// Source reads the file at path, or all files of a pattern as of filepath.Glob, in the order of their
// names. What is wrong with T, the options or the files is reported by Check, or else by Splits and Open.
func Source[T any](path string, opts ...Option) *FileSource[T] {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	s := &FileSource[T]{path: path, order: o.order, slack: o.slack}
	s.shape, s.broken = shapeOf[T]()
	if s.broken == nil && o.slack < 0 {
		s.broken = fmt.Errorf("OrderedBy(%q, %v): the slack must not be negative", o.order, o.slack)
	}
	return s
}

// Check tells what is wrong with T and the options, or nil. It does not look at files.
func (s *FileSource[T]) Check() error { return s.broken }

// Splits implements [connector.Source]. It checks that every file has the columns of T.
func (s *FileSource[T]) Splits(ctx context.Context) ([]Split, error) {
	if s.broken != nil {
		return nil, connector.Permanent(s.broken)
	}
	paths, err := expand(s.path)
	if err != nil {
		return nil, connector.Permanent(err)
	}
	var splits []Split
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		of, err := s.list(path)
		if err != nil {
			return nil, connector.Permanent(err)
		}
		splits = append(splits, of...)
	}
	return splits, nil
}

func (s *FileSource[T]) list(path string) (splits []Split, err error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing can be lost
	if _, err := s.shape.bind(f); err != nil {
		return nil, err
	}
	for g := range f.rowGroups() {
		sp := Split{File: path, Size: f.size, RowGroup: int64(g), Rows: f.rows(g)}
		if s.order != "" {
			least, err := f.least(g, s.order)
			if err != nil {
				return nil, fmt.Errorf("OrderedBy(%q, %v): %w", s.order, s.slack, err)
			}
			sp.Bound = least.Add(-s.slack)
		}
		if sp.Rows > 0 {
			splits = append(splits, sp)
		}
	}
	return splits, nil
}

// SplitID implements [connector.Source].
func (s *FileSource[T]) SplitID(sp Split) string {
	return sp.File + "#" + strconv.FormatInt(sp.RowGroup, 10)
}

// LowerBound implements [connector.Bounder].
func (s *FileSource[T]) LowerBound(sp Split) time.Time { return sp.Bound }

// Open implements [connector.Source]. To restore a position it decodes the pages before it, and drops them.
func (s *FileSource[T]) Open(context.Context, connector.Subtask) (connector.Reader[T, Split], error) {
	if s.broken != nil {
		return nil, s.broken
	}
	return &reader[T]{shape: s.shape}, nil
}
