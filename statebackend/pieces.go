package statebackend

import (
	"errors"
	"io"
	"slices"
)

// Pieces is the encoding of a Batch cut anywhere, so that megabytes are stored without being joined. It is an io.ReaderAt.
type Pieces [][]byte

// Size returns the bytes of all pieces.
func (p Pieces) Size() (n int64) {
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

// ReadAt implements io.ReaderAt.
func (p Pieces) ReadAt(dst []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("statebackend: Pieces are read at a negative offset")
	}
	for _, b := range p {
		if off >= int64(len(b)) {
			off -= int64(len(b))
			continue
		}
		n += copy(dst[n:], b[off:])
		if n == len(dst) {
			return n, nil
		}
		off = 0
	}
	if n == len(dst) {
		return n, nil
	}
	return n, io.EOF
}

// Bytes joins the pieces.
func (p Pieces) Bytes() []byte { return slices.Concat(p...) }
