package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/millstream/millstream/statebackend/storage"
)

// An Entry is one object of the log. The payload is the caller's; the log does not look into it.
type Entry struct {
	Header
	Payload []byte
}

// MaxPayload bounds a payload, and so what reading an entry can cost, in bytes.
const MaxPayload = 64 << 20

// The layout is described in docs/format/log.md.
const (
	magic       = "MSLG"
	version     = 1
	headerSize  = 92
	trailerSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(e Entry) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if len(e.Payload) > MaxPayload {
		return nil, fmt.Errorf("the payload has %d bytes, at most %d are allowed", len(e.Payload), MaxPayload)
	}
	b := make([]byte, 0, headerSize+len(e.Payload)+trailerSize)
	b = append(b, magic...)
	b = append(b, version, byte(e.Kind), 0, 0)
	b = appendRef(b, e.Ref)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Generation))
	b = appendRef(b, e.Previous)
	b = appendRef(b, e.Restores)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Payload)))
	b = append(b, e.Payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// decode takes the bytes of one entry; the payload is a part of b.
func decode(b []byte) (Entry, error) {
	if len(b) < headerSize+trailerSize {
		return Entry{}, fmt.Errorf("%w: it has %d bytes, at least %d are needed", storage.ErrCorrupt, len(b), headerSize+trailerSize)
	}
	if string(b[:4]) != magic {
		return Entry{}, fmt.Errorf("%w: it is no entry of a log", storage.ErrCorrupt)
	}
	// The version comes before the checksum, which another version may compute in another way.
	if b[4] != version {
		return Entry{}, storage.Permanent(fmt.Errorf("its format has version %d, and this program knows only %d; use the release that wrote it", b[4], version))
	}
	body, sum := b[:len(b)-trailerSize], binary.BigEndian.Uint32(b[len(b)-trailerSize:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return Entry{}, fmt.Errorf("%w: its CRC32C is %08x, not %08x", storage.ErrCorrupt, got, sum)
	}
	if n := binary.BigEndian.Uint32(b[88:]); int64(n) != int64(len(body)-headerSize) {
		return Entry{}, fmt.Errorf("%w: its payload has %d bytes, not %d", storage.ErrCorrupt, len(body)-headerSize, n)
	}
	if b[6] != 0 || b[7] != 0 {
		return Entry{}, fmt.Errorf("%w: its reserved bytes are not zero", storage.ErrCorrupt)
	}
	e := Entry{
		Header: Header{
			Kind:       Kind(b[5]),
			Ref:        refAt(b[8:]),
			Generation: Slot(binary.BigEndian.Uint64(b[32:])),
			Previous:   refAt(b[40:]),
			Restores:   refAt(b[64:]),
		},
		Payload: body[headerSize:len(body):len(body)],
	}
	if err := e.check(); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return e, nil
}

func appendRef(b []byte, r Ref) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(r.Slot)), r.Nonce[:]...)
}

func refAt(b []byte) Ref {
	return Ref{Slot: Slot(binary.BigEndian.Uint64(b)), Nonce: Nonce(b[8:24])}
}

// check returns an error if no leader can have written such a header.
func (h Header) check() error {
	switch {
	case h.Kind != Claim && h.Kind != Manifest:
		return fmt.Errorf("its kind is %d", h.Kind)
	case h.Slot == 0 || h.Slot > maxSlot:
		return fmt.Errorf("its slot is %d", h.Slot)
	case h.Kind == Claim && h.Generation != h.Slot, h.Kind == Manifest && (h.Generation == 0 || h.Generation >= h.Slot):
		return fmt.Errorf("its generation is %d in slot %d", h.Generation, h.Slot)
	case h.Previous.Slot >= h.Slot, h.Previous.Slot == 0 && h.Previous != Ref{}:
		return fmt.Errorf("its previous manifest is in slot %d, itself in %d", h.Previous.Slot, h.Slot)
	case h.Restores.Slot > h.Previous.Slot, h.Restores.Slot == 0 && h.Restores != Ref{}, h.Kind == Manifest && h.Restores != Ref{}:
		return fmt.Errorf("it restores slot %d, and its previous manifest is in %d", h.Restores.Slot, h.Previous.Slot)
	}
	return nil
}
