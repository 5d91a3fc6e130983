package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// SubtaskSnapshot is what one subtask contributes to a checkpoint. Its keyed parts are encoded; their
// bases, if any, are still to be persisted.
type SubtaskSnapshot struct {
	Checkpoint int64
	Stage      string // name of the stage
	Subtask    int
	Nodes      []NodeSnapshot
	Merger     MergerState
	Channels   [][]byte // for each input channel the items that an overtaking barrier passed, encoded
	// Aborted says that a newer barrier came first. The snapshot is of no use as such, but the deltas in it
	// belong to whatever checkpoint follows.
	Aborted bool
}

// NodeSnapshot is the part of one node.
type NodeSnapshot struct {
	Node      string
	Watermark eventtime.Time // the last that the operator was told
	kernel.OpSnapshot
}

// SubtaskRestore is what a subtask starts from.
type SubtaskRestore struct {
	Checkpoint int64
	Nodes      map[string]NodeRestore
	Merger     MergerState
	Channels   [][]byte
}

// NodeRestore is the part of one node. Opening the backend, with its base and deltas, is the caller's.
type NodeRestore struct {
	Watermark eventtime.Time
	Blob      []byte
}

// Recorded items are encoded one after another (docs/format/channel-state.md):
//
//	status:  's' | idle (0 or 1) | watermark (varint)
//	batch:   'b' | length (uvarint) | batch in the codec of its edge
//
// Barriers are not recorded: there is one checkpoint at a time. Nor is the end of a channel: a sender that
// was at its end says so again after a restore.
func appendItem(dst []byte, it Item, codec kernel.BatchCodec) ([]byte, error) {
	switch it.kind {
	case itemStatus:
		idle := byte(0)
		if it.idle {
			idle = 1
		}
		return binary.AppendVarint(append(dst, 's', idle), int64(it.watermark)), nil
	case itemBatch:
		b, err := codec.Append(nil, it.batch)
		if err != nil {
			return nil, err
		}
		return append(binary.AppendUvarint(append(dst, 'b'), uint64(len(b))), b...), nil
	}
	return dst, nil
}

func decodeItems(src []byte, codec kernel.BatchCodec) ([]Item, error) {
	var items []Item
	for len(src) > 0 {
		kind := src[0]
		src = src[1:]
		switch kind {
		case 's':
			if len(src) < 2 {
				return nil, fmt.Errorf("channel state: status is cut off")
			}
			idle := src[0] == 1
			w, n := binary.Varint(src[1:])
			if n <= 0 {
				return nil, fmt.Errorf("channel state: watermark is malformed")
			}
			items = append(items, Item{kind: itemStatus, idle: idle, watermark: eventtime.Clamp(eventtime.Time(w))})
			src = src[1+n:]
		case 'b':
			l, n := binary.Uvarint(src)
			if n <= 0 || l > uint64(len(src)-n) {
				return nil, fmt.Errorf("channel state: batch of %d bytes exceeds what is left", l)
			}
			b, err := codec.Decode(src[n : n+int(l)])
			if err != nil {
				return nil, fmt.Errorf("channel state: %w", err)
			}
			items = append(items, Item{kind: itemBatch, batch: b})
			src = src[n+int(l):]
		default:
			return nil, fmt.Errorf("channel state: unknown item %#x", kind)
		}
	}
	return items, nil
}
