package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// itemKind is what an Item is apart from its batch.
type itemKind uint8

const (
	itemBatch   itemKind = iota // elements; the only kind that needs room
	itemStatus                  // watermark and idleness of the sender
	itemBarrier                 // aligned barrier of a checkpoint
	itemEnd                     // nothing follows
	itemMark                    // the place of an overtaking barrier; on the wire only
)

// Item is one entry of a channel.
type Item struct {
	kind       itemKind
	idle       bool           // status: the sender is idle
	watermark  eventtime.Time // status
	checkpoint int64          // barrier, mark
	batch      kernel.Batch
}

// Overtaking is the item that stands for Sender.Overtake between two processes.
func Overtaking(checkpoint int64) Item { return Item{kind: itemMark, checkpoint: checkpoint} }

// Batch returns the elements of an item, or nil for a marker, which needs no room.
func (it Item) Batch() kernel.Batch { return it.batch }

// IsStatus says that a newer status may take the place of this item if nothing has followed it.
func (it Item) IsStatus() bool { return it.kind == itemStatus }

// Append encodes the item, for a checkpoint (docs/format/channel-state.md) or another process
// (docs/format/data-frames.md):
//
//	batch:   'b' | length (uvarint) | batch in the codec of its edge
//	status:  's' | idle (0 or 1) | watermark (varint)
//	barrier: 'c' | checkpoint (uvarint)
//	mark:    'o' | checkpoint (uvarint)
//	end:     'e'
func (it Item) Append(dst []byte, codec kernel.BatchCodec) ([]byte, error) {
	switch it.kind {
	case itemBatch:
		return appendBatch(append(dst, 'b'), it.batch, codec)
	case itemStatus:
		idle := byte(0)
		if it.idle {
			idle = 1
		}
		return binary.AppendVarint(append(dst, 's', idle), int64(it.watermark)), nil
	case itemBarrier:
		return binary.AppendUvarint(append(dst, 'c'), uint64(it.checkpoint)), nil
	case itemMark:
		return binary.AppendUvarint(append(dst, 'o'), uint64(it.checkpoint)), nil
	default:
		return append(dst, 'e'), nil
	}
}

// appendBatch appends length and batch. The batch is encoded in place, behind room for the longest length,
// and moved down: that is cheaper than a buffer of its own.
func appendBatch(dst []byte, b kernel.Batch, codec kernel.BatchCodec) ([]byte, error) {
	var room [binary.MaxVarintLen64]byte
	start := len(dst)
	out, err := codec.Append(append(dst, room[:]...), b)
	if err != nil {
		return nil, err
	}
	body := out[start+len(room):]
	out = binary.AppendUvarint(out[:start], uint64(len(body)))
	return append(out, body...), nil
}

// decodeItem reads one item from the front of src. The item does not refer to src.
func decodeItem(src []byte, codec kernel.BatchCodec) (it Item, rest []byte, err error) {
	kind, src := src[0], src[1:]
	switch kind {
	case 'b':
		l, n := binary.Uvarint(src)
		if n <= 0 || l > uint64(len(src)-n) {
			return it, nil, fmt.Errorf("batch of %d bytes exceeds what is left", l)
		}
		end := n + int(l)
		it.batch, err = codec.Decode(src[n:end])
		return it, src[end:], err
	case 's':
		if len(src) < 2 || src[0] > 1 {
			return it, nil, fmt.Errorf("status is malformed")
		}
		w, n := binary.Varint(src[1:])
		if n <= 0 {
			return it, nil, fmt.Errorf("watermark is malformed")
		}
		it = Item{kind: itemStatus, idle: src[0] == 1, watermark: eventtime.Clamp(eventtime.Time(w))}
		return it, src[1+n:], nil
	case 'c', 'o':
		c, n := binary.Uvarint(src)
		if n <= 0 || int64(c) <= 0 {
			return it, nil, fmt.Errorf("barrier is malformed")
		}
		it = Item{kind: itemBarrier, checkpoint: int64(c)}
		if kind == 'o' {
			it.kind = itemMark
		}
		return it, src[n:], nil
	case 'e':
		return Item{kind: itemEnd}, src, nil
	}
	return it, nil, fmt.Errorf("unknown item %#x", kind)
}

// recordedItems decodes what a checkpoint holds of a channel: batches and statuses.
func recordedItems(src []byte, codec kernel.BatchCodec) ([]Item, error) {
	var items []Item
	for len(src) > 0 {
		it, rest, err := decodeItem(src, codec)
		if err == nil && it.kind != itemBatch && it.kind != itemStatus {
			err = fmt.Errorf("item %#x has no place in a checkpoint", src[0])
		}
		if err != nil {
			return nil, fmt.Errorf("channel state: %w", err)
		}
		items, src = append(items, it), rest
	}
	return items, nil
}
