package coder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/millstream/millstream/internal/eventtime"
)

// The primitives of the wire, shared by the standard coders and the compiled ones. A decode function
// returns what follows the value; after an error, its other results mean nothing.

var (
	errShort  = errors.New("input ends early")
	errVarint = errors.New("varint is longer than 64 bits")
)

// maxZeroWidth bounds the elements of one iterable or map that take no bytes (a global window, say):
// a count of two billion of them would cost an attacker four bytes.
const maxZeroWidth = 1 << 16

// appendVarint appends x in groups of seven bits, the lowest first (beam:coder:varint:v1). Signed
// numbers are passed in two's complement, so that -1 takes ten bytes.
func appendVarint(dst []byte, x uint64) []byte {
	if x < 0x80 {
		return append(dst, byte(x))
	}
	return binary.AppendUvarint(dst, x)
}

func decodeVarint(src []byte) (x uint64, rest []byte, err error) {
	for i, b := range src {
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				break
			}
			return x | uint64(b)<<(7*i), src[i+1:], nil
		}
		if i == binary.MaxVarintLen64-1 {
			break
		}
		x |= uint64(b&0x7f) << (7 * i)
	}
	if len(src) < binary.MaxVarintLen64 {
		return 0, nil, errShort
	}
	return 0, nil, errVarint
}

// cutBytes reads a varint length and that many bytes, which alias src.
func cutBytes(src []byte) (b, rest []byte, err error) {
	if len(src) > 0 && src[0] < 0x80 && int(src[0]) < len(src) {
		n := int(src[0]) + 1
		return src[1:n:n], src[n:], nil
	}
	return cutLongBytes(src)
}

func cutLongBytes(src []byte) (b, rest []byte, err error) {
	n, src, err := decodeVarint(src)
	if err != nil {
		return nil, nil, fmt.Errorf("length: %w", err)
	}
	if n > uint64(len(src)) {
		return nil, nil, fmt.Errorf("length %d, but %d bytes are left: %w", n, len(src), errShort)
	}
	return src[:n:n], src[n:], nil
}

func decodeFixed32(src []byte) (x uint32, rest []byte, err error) {
	if len(src) < 4 {
		return 0, nil, errShort
	}
	return binary.BigEndian.Uint32(src), src[4:], nil
}

func decodeFixed64(src []byte) (x uint64, rest []byte, err error) {
	if len(src) < 8 {
		return 0, nil, errShort
	}
	return binary.BigEndian.Uint64(src), src[8:], nil
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func decodeBool(src []byte) (v bool, rest []byte, err error) {
	if len(src) == 0 {
		return false, nil, errShort
	}
	if src[0] > 1 {
		return false, nil, fmt.Errorf("a bool is 00 or 01, not %02x", src[0])
	}
	return src[0] == 1, src[1:], nil
}

// appendCount appends the length of an iterable or map (a fixed32, of which -1 means unknown).
func appendCount(dst []byte, n int) ([]byte, error) {
	if n > math.MaxInt32 {
		return dst, fmt.Errorf("%d elements, but Beam counts them in 31 bits", n)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n)), nil
}

// appendInstant appends t as eight bytes whose order is that of time.
func appendInstant(dst []byte, t eventtime.Time) ([]byte, error) {
	if t < eventtime.Min || t > eventtime.Max {
		return dst, fmt.Errorf("time %d ms is outside Beam's range", int64(t))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(t)^(1<<63)), nil
}

func decodeInstant(src []byte) (t eventtime.Time, rest []byte, err error) {
	x, rest, err := decodeFixed64(src)
	if err != nil {
		return 0, nil, err
	}
	t = eventtime.Time(x ^ (1 << 63))
	if t < eventtime.Min || t > eventtime.Max {
		return 0, nil, fmt.Errorf("time %d ms is outside Beam's range", int64(t))
	}
	return t, rest, nil
}

// firstCap is the capacity to allocate for count elements of size bytes each before the first is
// decoded from n bytes: never more than the count claims, nor than eight bytes of memory a byte of
// input; a longer slice grows as its elements turn out to be real.
func firstCap(count uint64, size uintptr, n int) int {
	return int(min(count, 1+8*uint64(n)/max(uint64(size), 1)))
}
