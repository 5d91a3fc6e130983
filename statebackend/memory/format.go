package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/btree"

	"github.com/millstream/millstream/statebackend"
)

// The files of a snapshot: docs/format/memory-state.md. A state is cut into files of bounded size, so that persisting
// needs memory for one of them and no disk, and so that a failed upload repeats one of them.
const (
	formatVersion = 1
	fileMagic     = "MSMEM\x00\x00\x01"
	fileBytes     = 32 << 20 // a file ends with the block that reaches this
	blockBytes    = 64 << 10 // a block ends with the entry that reaches this
	blockHeader   = 4 + 4    // length and CRC-32C of what follows

	maxBlockBytes = blockBytes + statebackend.MaxKeyBytes + statebackend.MaxValueBytes + 32
)

type snapshot struct {
	tree      *btree.BTreeG[entry]
	keyGroups statebackend.KeyGroupRange
}

func (s *snapshot) Persist(ctx context.Context, up statebackend.Uploader) (statebackend.Handle, error) {
	h := statebackend.Handle{Driver: Driver{}.Name(), Version: formatVersion, KeyGroups: s.keyGroups}
	upload := func(content []byte) error {
		name := fmt.Sprintf("%06d.state", len(h.Files))
		ref, err := up.Upload(ctx, name, bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return fmt.Errorf("persist state file %s: %w", name, err)
		}
		h.Files = append(h.Files, statebackend.File{Name: name, Ref: ref})
		return nil
	}
	var w writer
	var err error
	s.tree.Scan(func(e entry) bool {
		if w.add(e); w.size() >= fileBytes {
			err = upload(w.finish())
		}
		return err == nil
	})
	if err == nil && w.entries > 0 {
		err = upload(w.finish())
	}
	if err != nil {
		return statebackend.Handle{}, err
	}
	return h, nil
}

func (s *snapshot) Release() error {
	s.tree = nil
	return nil
}

// writer encodes one file after another into one buffer.
type writer struct {
	buf     []byte
	block   int    // where the header of the open block is in buf
	last    []byte // the key before, in this block
	entries uint64 // in this file
}

func (w *writer) size() int { return len(w.buf) }

func (w *writer) add(e entry) {
	if w.entries == 0 {
		w.buf = append(w.buf[:0], fileMagic...)
		w.open()
	}
	shared := commonPrefix(w.last, e.key)
	w.buf = binary.AppendUvarint(w.buf, uint64(shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(e.key)-shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(e.value)))
	w.buf = append(w.buf, e.key[shared:]...)
	w.buf = append(w.buf, e.value...)
	w.last = e.key
	w.entries++
	if len(w.buf)-w.block >= blockBytes {
		w.close()
		w.open()
	}
}

// finish ends the file and returns it; it is valid until the next add.
func (w *writer) finish() []byte {
	if len(w.buf) == w.block+blockHeader {
		w.buf = w.buf[:w.block] // the open block is empty
	} else {
		w.close()
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf, 0)
	count := binary.BigEndian.AppendUint64(nil, w.entries)
	w.buf = binary.BigEndian.AppendUint32(w.buf, statebackend.Checksum(0, count))
	w.buf = append(w.buf, count...)
	w.entries = 0
	return w.buf
}

func (w *writer) open() {
	w.block, w.last = len(w.buf), nil
	w.buf = append(w.buf, make([]byte, blockHeader)...)
}

func (w *writer) close() {
	content := w.buf[w.block+blockHeader:]
	binary.BigEndian.PutUint32(w.buf[w.block:], uint32(len(content)))
	binary.BigEndian.PutUint32(w.buf[w.block+4:], statebackend.Checksum(0, content))
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// load reads the entries of r whose key group is the backend's.
func (b *backend) load(ctx context.Context, r statebackend.Restore) error {
	filter := !b.keyGroups.Covers(r.Handle.KeyGroups)
	var last []byte
	for _, f := range r.Handle.Files {
		body, err := statebackend.OpenFile(ctx, r.Fetcher, f)
		if err != nil {
			return err
		}
		err = readFile(body, func(key, value []byte) error {
			if last != nil && bytes.Compare(last, key) >= 0 {
				return fmt.Errorf("key %.32x is out of order", key)
			}
			last = append(last[:0], key...)
			if filter {
				g, ok := statebackend.KeyGroupOf(key)
				if !ok {
					return fmt.Errorf("key %.32x has no key group, so it cannot be given to a subtask", key)
				}
				if !b.keyGroups.Contains(g) {
					return nil
				}
			}
			e := newEntry(key, value)
			if _, twice := b.tree.Load(e); twice {
				return fmt.Errorf("key %.32x was restored before", key)
			}
			return b.grow(e)
		})
		if err = errors.Join(err, body.Close()); err != nil {
			return fmt.Errorf("restore state file %s: %w", f.Name, err)
		}
	}
	return nil
}

// readFile calls visit with the entries of a file; what visit receives is reused. Memory is bounded by what in really
// delivers, whatever it announces.
func readFile(in io.Reader, visit func(key, value []byte) error) error {
	var head [len(fileMagic)]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return fmt.Errorf("read its first bytes: %w", noEOF(err))
	}
	if string(head[:]) != fileMagic {
		return fmt.Errorf("it begins with %x, not with %x", head, fileMagic)
	}
	var entries uint64
	var block bytes.Buffer
	var key []byte
	for n := 0; ; n++ {
		if _, err := io.ReadFull(in, head[:blockHeader]); err != nil {
			return fmt.Errorf("block %d: %w", n, noEOF(err))
		}
		size, sum := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
		end := size == 0
		if end {
			size = 8
		}
		if size > maxBlockBytes {
			return fmt.Errorf("block %d has %d bytes, of at most %d", n, size, maxBlockBytes)
		}
		block.Reset()
		if _, err := io.CopyN(&block, in, int64(size)); err != nil {
			return fmt.Errorf("block %d: %w", n, noEOF(err))
		}
		if got := statebackend.Checksum(0, block.Bytes()); got != sum {
			return fmt.Errorf("block %d: CRC-32C is %08x, but %08x was written", n, got, sum)
		}
		if end {
			if want := binary.BigEndian.Uint64(block.Bytes()); want != entries {
				return fmt.Errorf("%d entries, but %d were written", entries, want)
			}
			// Reading to the end is what makes the reader below verify the whole file.
			if n, err := io.Copy(io.Discard, in); err != nil || n > 0 {
				return errors.Join(err, fmt.Errorf("%d bytes follow its end", n))
			}
			return nil
		}
		count, err := readBlock(block.Bytes(), &key, visit)
		if err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		entries += count
	}
}

func readBlock(b []byte, key *[]byte, visit func(key, value []byte) error) (entries uint64, err error) {
	*key = (*key)[:0]
	for len(b) > 0 {
		var n [3]uint64 // shared and own bytes of the key, bytes of the value
		for i, limit := range [3]uint64{uint64(len(*key)), statebackend.MaxKeyBytes, statebackend.MaxValueBytes} {
			v, w := binary.Uvarint(b)
			if w <= 0 || v > limit {
				return entries, fmt.Errorf("entry %d: a length is malformed", entries)
			}
			n[i], b = v, b[w:]
		}
		if n[0]+n[1] > statebackend.MaxKeyBytes || n[1]+n[2] > uint64(len(b)) {
			return entries, fmt.Errorf("entry %d does not fit its block", entries)
		}
		*key = append((*key)[:n[0]], b[:n[1]]...)
		b = b[n[1]:]
		if err := visit(*key, b[:n[2]:n[2]]); err != nil {
			return entries, err
		}
		b = b[n[2]:]
		entries++
	}
	return entries, nil
}

// noEOF makes the end of the input an error where more must follow.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
