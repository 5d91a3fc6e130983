package statebackend

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Keys is a list of keys in one buffer. The zero value is empty.
//
// A key is appended to Bytes, by whatever encodes it, and ended by End, so that no key is copied:
//
//	keys.Bytes = statebackend.AppendWindowKey(keys.Bytes, …)
//	keys.End()
type Keys struct {
	Bytes []byte
	// Ends holds the end of each key in Bytes; a key starts where the one before ends.
	Ends []int
}

// Append appends a copy of key.
func (k *Keys) Append(key []byte) {
	k.Bytes = append(k.Bytes, key...)
	k.End()
}

// End ends the key that was appended to Bytes.
func (k *Keys) End() { k.Ends = append(k.Ends, len(k.Bytes)) }

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.Ends) }

// At returns the key at position i, a part of Bytes.
func (k *Keys) At(i int) []byte {
	start := 0
	if i > 0 {
		start = k.Ends[i-1]
	}
	return k.Bytes[start:k.Ends[i]:k.Ends[i]]
}

// Reset empties k and keeps its memory.
func (k *Keys) Reset() { k.Bytes, k.Ends = k.Bytes[:0], k.Ends[:0] }

// Op is the kind of one operation of a Batch.
type Op byte

// The operations of a Batch.
const (
	OpPut         Op = iota + 1 // key, value
	OpDelete                    // key, nothing
	OpDeleteRange               // start, end
)

// Batch is a list of operations in one buffer, applied by Backend.Write; a later one wins. The zero value is empty.
// It copies its arguments.
type Batch struct {
	buf []byte // per operation: kind, length and bytes of the first argument, length and bytes of the second
	n   int
	err error
}

// Put sets the value of key.
func (b *Batch) Put(key, value []byte) {
	if b.check(key) && len(value) > MaxValueBytes {
		b.err = errTooLong("value of key", key, len(value), MaxValueBytes)
	}
	b.add(OpPut, key, value)
}

// Delete removes the entry of key, if there is one.
func (b *Batch) Delete(key []byte) {
	b.check(key)
	b.add(OpDelete, key, nil)
}

// DeleteRange removes every entry in r. An empty range is not added. It is for whole windows: a backend on disk keeps a
// mark that later reads near it pay for, so a handful of entries is better deleted one by one.
func (b *Batch) DeleteRange(r Range) {
	if b.check(r.Start) && b.check(r.End) && !r.Empty() {
		b.add(OpDeleteRange, r.Start, r.End)
	}
}

// Add adds an operation as ReadBatch and Each tell it, and returns Err.
func (b *Batch) Add(op Op, first, second []byte) error {
	switch op {
	case OpPut:
		b.Put(first, second)
	case OpDelete:
		b.Delete(first)
	case OpDeleteRange:
		b.DeleteRange(Range{first, second})
	default:
		b.err = errors.Join(b.err, fmt.Errorf("operation %d is unknown", op))
	}
	return b.err
}

// Len returns the number of operations.
func (b *Batch) Len() int { return b.n }

// Size returns the bytes that the operations take.
func (b *Batch) Size() int { return len(b.buf) }

// Grow makes room for so many bytes more.
func (b *Batch) Grow(bytes int) { b.buf = slices.Grow(b.buf, bytes) }

// Reset empties b and keeps its memory.
func (b *Batch) Reset() { b.buf, b.n, b.err = b.buf[:0], 0, nil }

// Err returns the first operation's error: a key or value over its limit. Backend.Write returns it and applies
// nothing.
func (b *Batch) Err() error { return b.err }

// Bytes is the encoding of the operations, which ReadBatch reads: for each its kind, then the length (uvarint) and
// bytes of both arguments (docs/format/delta.md). It belongs to b.
func (b *Batch) Bytes() []byte { return b.buf }

// ReadBatch reads what Bytes returned, as it comes, and calls do with each operation, up to the first error, which it returns. It
// checks it: bytes that no Batch could have are an error, so that what a damaged checkpoint says does not reach a backend. The bytes
// are valid until do returns. Memory follows what comes, not the lengths in it.
func ReadBatch(r io.Reader, do func(op Op, first, second []byte) error) error {
	src := bufio.NewReader(r)
	var args [2]bytes.Buffer
	for n := 0; ; n++ {
		op, err := src.ReadByte()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var limits [2]uint64
		switch Op(op) {
		case OpPut:
			limits = [2]uint64{MaxKeyBytes, MaxValueBytes}
		case OpDelete:
			limits = [2]uint64{MaxKeyBytes, 0}
		case OpDeleteRange:
			limits = [2]uint64{MaxKeyBytes, MaxKeyBytes}
		default:
			return fmt.Errorf("read batch: operation %d is of the unknown kind %d", n, op)
		}
		for k, limit := range limits {
			args[k].Reset()
			size, err := binary.ReadUvarint(src)
			if err == nil && size > limit {
				err = fmt.Errorf("its length is %d, more than %d", size, limit)
			}
			if err == nil {
				_, err = io.CopyN(&args[k], src, int64(size))
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return fmt.Errorf("read batch: argument %d of operation %d: %w", k, n, err)
			}
		}
		first, second := args[0].Bytes(), args[1].Bytes()
		if Op(op) == OpDeleteRange && (Range{first, second}).Empty() {
			return fmt.Errorf("read batch: operation %d deletes an empty range", n)
		}
		if err := do(Op(op), first, second); err != nil {
			return err
		}
	}
}

// Each calls do with the operations in order, up to the first error, which it returns. The bytes belong to b.
func (b *Batch) Each(do func(op Op, first, second []byte) error) error {
	for buf := b.buf; len(buf) > 0; {
		op := Op(buf[0])
		var first, second []byte
		first, buf = cut(buf[1:])
		second, buf = cut(buf)
		if err := do(op, first, second); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) check(key []byte) bool {
	if len(key) > MaxKeyBytes && b.err == nil {
		b.err = errTooLong("key", key, len(key), MaxKeyBytes)
	}
	return b.err == nil
}

func (b *Batch) add(op Op, first, second []byte) {
	if b.err != nil {
		return
	}
	b.buf = append(b.buf, byte(op))
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(first))), first...)
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(second))), second...)
	b.n++
}

// cut reads one length-prefixed argument; only add writes them, so they are well formed.
func cut(buf []byte) (arg, rest []byte) {
	n, w := binary.Uvarint(buf)
	return buf[w : w+int(n) : w+int(n)], buf[w+int(n):]
}
