package statebackend

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Scratch is an optional part of a Backend on disk: room for what would take too much memory until it is stored elsewhere. The
// caller closes the file, which has no name that outlives the Backend.
type Scratch interface{ Scratch() (*os.File, error) }

// Pieces is the encoding of a Batch cut anywhere, in memory or in files, so that megabytes are stored without being joined. It
// is an io.ReaderAt. The zero value is empty.
type Pieces struct {
	parts []piece
	size  int64
	files []*os.File // to be closed
}

// piece is in memory, or in a file from at.
type piece struct {
	size int64
	mem  []byte
	file *os.File
	at   int64
}

// Add appends a piece, which is p's from now on.
func (p *Pieces) Add(b []byte) {
	if len(b) > 0 {
		p.parts = append(p.parts, piece{size: int64(len(b)), mem: b})
		p.size += int64(len(b))
	}
}

// Write appends a copy of a piece to a file: that of the last Write, or one that s makes.
func (p *Pieces) Write(s Scratch, b []byte) error {
	if len(p.files) == 0 {
		f, err := s.Scratch()
		if err != nil {
			return fmt.Errorf("move changes out of memory: %w", err)
		}
		p.files = append(p.files, f)
	}
	f := p.files[len(p.files)-1]
	at := int64(0)
	if n := len(p.parts); n > 0 && p.parts[n-1].file == f {
		at = p.parts[n-1].at + p.parts[n-1].size
	}
	if _, err := f.WriteAt(b, at); err != nil {
		return fmt.Errorf("move changes out of memory: %w", err)
	}
	p.parts = append(p.parts, piece{size: int64(len(b)), file: f, at: at})
	p.size += int64(len(b))
	return nil
}

// Append appends the pieces of q, which is used no more.
func (p *Pieces) Append(q *Pieces) {
	p.parts, p.files = append(p.parts, q.parts...), append(p.files, q.files...)
	p.size += q.size
}

// Size returns the bytes of all pieces.
func (p *Pieces) Size() int64 { return p.size }

// ReadAt implements io.ReaderAt.
func (p *Pieces) ReadAt(dst []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("statebackend: Pieces are read at a negative offset")
	}
	for i := range p.parts {
		b := &p.parts[i]
		if off >= b.size {
			off -= b.size
			continue
		}
		to := dst[n:min(int64(len(dst)), int64(n)+b.size-off)]
		if b.file == nil {
			copy(to, b.mem[off:])
		} else if _, err := b.file.ReadAt(to, b.at+off); err != nil {
			return n, fmt.Errorf("read changes that were moved out of memory: %w", err)
		}
		if n += len(to); n == len(dst) {
			return n, nil
		}
		off = 0
	}
	if n == len(dst) {
		return n, nil
	}
	return n, io.EOF
}

// Close closes the files. The pieces in them are lost.
func (p *Pieces) Close() error {
	var errs []error
	for _, f := range p.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
