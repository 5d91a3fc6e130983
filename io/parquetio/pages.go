package parquetio

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxPage is the greatest size of a page, decompressed, in bytes. Writers aim at 1 MiB; some put a
	// whole column of a row group into one page. The reader holds one page for each column of T.
	maxPage = 256 << 20
	// maxPageValues bounds what a page of few bytes can stand for: nulls and runs take no room.
	maxPageValues = 32 << 20
	// maxPageHeader bounds the header of a page, in bytes; statistics of long strings are in it.
	maxPageHeader = 1 << 20
)

// checkPages goes from page header to page header of a column chunk and checks that the pages lie within
// it, are of a size that can be held in memory, and have so many values together. The library, which takes
// the lengths as they are, may then decode them.
func checkPages(f io.ReaderAt, size int64, m *format.ColumnMetaData, rows int64) error {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < 0 || m.TotalCompressedSize < 0 || at > size || m.TotalCompressedSize > size-at {
		return fmt.Errorf("the file is damaged: the column would be %d bytes at %d of %d", m.TotalCompressedSize, at, size)
	}
	end := at + m.TotalCompressedSize
	buf := make([]byte, 512)
	for have := int64(0); have < rows; {
		h, n, err := pageHeader(f, at, end, &buf)
		if err != nil {
			return fmt.Errorf("page at byte %d: %w", at, err)
		}
		values := int64(0)
		switch h.Type {
		case format.DataPage:
			values = int64(h.DataPageHeader.V.NumValues)
			have += values
		case format.DataPageV2:
			values = int64(h.DataPageHeaderV2.V.NumValues)
			have += values
			levels := int64(h.DataPageHeaderV2.V.DefinitionLevelsByteLength) + int64(h.DataPageHeaderV2.V.RepetitionLevelsByteLength)
			if levels > int64(h.CompressedPageSize) || int64(h.DataPageHeaderV2.V.NumNulls) > values {
				return fmt.Errorf("page at byte %d: the file is damaged: levels of %d bytes in a page of %d, %d nulls of %d values", at, levels, h.CompressedPageSize, h.DataPageHeaderV2.V.NumNulls, values)
			}
		case format.DictionaryPage:
			if values = int64(h.DictionaryPageHeader.V.NumValues); values > 8*int64(h.UncompressedPageSize) { // booleans are bits
				return fmt.Errorf("page at byte %d: the file is damaged: a dictionary of %d values in %d bytes", at, values, h.UncompressedPageSize)
			}
		}
		left := end - at - n
		if c := int64(h.CompressedPageSize); c < 0 || c > left || h.UncompressedPageSize < 0 || values < 0 {
			return fmt.Errorf("page at byte %d: the file is damaged: %d bytes, %d decompressed, with %d values, where %d bytes are left", at, c, h.UncompressedPageSize, values, left)
		}
		if h.UncompressedPageSize > maxPage || values > maxPageValues {
			return fmt.Errorf("page at byte %d: it has %d bytes and %d values, more than %d and %d; write smaller pages", at, h.UncompressedPageSize, values, maxPage, maxPageValues)
		}
		if have > rows {
			return fmt.Errorf("page at byte %d: the file is damaged: the column has more values than the row group's %d rows", at, rows)
		}
		at += n + int64(h.CompressedPageSize)
	}
	return nil
}

// pageHeader reads the page header at an offset and returns it with its length. buf grows as needed.
func pageHeader(f io.ReaderAt, at, end int64, buf *[]byte) (h format.PageHeader, length int64, err error) {
	for {
		b := (*buf)[:min(int64(len(*buf)), end-at)]
		if _, err := f.ReadAt(b, at); err != nil {
			return h, 0, err
		}
		n, err := skimStruct(b)
		if errors.Is(err, errCutOff) && int64(len(b)) < end-at && len(b) < maxPageHeader {
			*buf = make([]byte, 4*len(*buf))
			continue
		}
		if err == nil {
			err = thrift.Unmarshal(&thrift.CompactProtocol{}, b[:n], &h)
		}
		if err != nil {
			return h, 0, fmt.Errorf("the file is damaged: %w", err)
		}
		return h, int64(n), nil
	}
}
