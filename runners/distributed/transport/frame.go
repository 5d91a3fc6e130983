package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A connection is a stream of frames: length, type, body (docs/format/data-frames.md).

type frameType byte

const (
	frameHello     frameType = 1
	frameChallenge frameType = 2
	frameProof     frameType = 3
	frameWelcome   frameType = 4
	frameRefused   frameType = 5
	frameItems     frameType = 6
	frameCredit    frameType = 7
	frameBye       frameType = 8
)

const (
	readAhead = 128 << 10 // a frame up to this size is used where it was read
	bigStep   = 1 << 20   // a greater one gets memory in such steps, as its bytes come
)

// frame is one that is to be written.
type frame struct{ b []byte }

var framePool = sync.Pool{New: func() any { return new(frame) }}

// newFrame begins a frame of type t. seal is to be called before it is written, recycle after.
func newFrame(t frameType) *frame {
	f := framePool.Get().(*frame)
	f.b = append(f.b[:0], 0, 0, 0, 0, byte(t))
	return f
}

// length is that of type and body.
func (f *frame) length() int { return len(f.b) - 4 }

// seal fills in the length.
func (f *frame) seal() *frame {
	binary.BigEndian.PutUint32(f.b, uint32(f.length()))
	return f
}

func (f *frame) recycle() {
	if cap(f.b) <= bigStep { // the rare big one is not the pool's to keep
		framePool.Put(f)
	}
}

// frameReader reads frames. It belongs to one goroutine.
type frameReader struct {
	r     *bufio.Reader
	limit int    // greatest length
	used  int    // bytes of r that the last frame still occupies
	big   []byte // for frames that r cannot hold
}

func newFrameReader(r io.Reader, limit int) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readAhead), limit: limit}
}

// next returns a frame, whose body is valid until the next call. At the end of the stream it returns io.EOF
// between two frames, and io.ErrUnexpectedEOF within one.
func (f *frameReader) next() (frameType, []byte, error) {
	if _, err := f.r.Discard(f.used); err != nil {
		return 0, nil, err
	}
	f.used = 0
	head, err := f.r.Peek(4)
	if err != nil {
		if len(head) > 0 {
			err = midFrame(err)
		}
		return 0, nil, err
	}
	n := int64(binary.BigEndian.Uint32(head))
	if n < 1 || n > int64(f.limit) {
		return 0, nil, fmt.Errorf("a frame of %d bytes; allowed are 1 to %d", n, f.limit)
	}
	if n+4 <= int64(f.r.Size()) {
		b, err := f.r.Peek(4 + int(n))
		if err != nil {
			return 0, nil, midFrame(err)
		}
		f.used = len(b)
		return frameType(b[4]), b[5:], nil
	}
	if _, err := f.r.Discard(4); err != nil {
		return 0, nil, err
	}
	// Who claims a great length has to send it before it is given the memory.
	if cap(f.big) > 4*bigStep {
		f.big = nil
	}
	b := f.big[:0]
	for int64(len(b)) < n {
		step := int(min(n-int64(len(b)), max(bigStep, int64(len(b)))))
		b = append(b, make([]byte, step)...)
		if _, err := io.ReadFull(f.r, b[len(b)-step:]); err != nil {
			return 0, nil, midFrame(err)
		}
	}
	f.big = b
	return frameType(b[0]), b[1:], nil
}

func midFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
