package commitlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/millstream/millstream/statebackend/storage"
)

// The mark is an object beside the log with the slot that a leader had reached. No rule of the log relies on it: it is
// there for a log whose newest entries were deleted by hand, which looks like an older one that is whole. A leader
// writes it after each entry, before it commits anything. The newest entry is never collected, so a mark above the newest
// slot proves that something is gone; and what was committed has a mark, unless a leader that was deposed, late, has made
// it lower.

const (
	markName    = "log-reached"
	markMagic   = "MSLR"
	markVersion = 1
	markSize    = len(markMagic) + 1 + 8 + trailerSize
)

// mark notes how far the log has come: to this leader's newest entry. If it cannot, the term is over.
func (t *Term) mark(ctx context.Context) error {
	b := append([]byte(markMagic), markVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(t.l.entry.Slot))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	err := patiently(ctx, func() error {
		_, err := t.log.store.Put(ctx, markName, bytes.NewReader(b), int64(len(b)))
		return err
	})
	if err != nil {
		t.l.phase = unknown
		return fmt.Errorf("the entry was written, and to mark how far the log goes failed: %w", err)
	}
	return nil
}

// CutShort returns the newest slot of the log, or 0, and, if entries above it were there once, the slot that the log had
// reached, else 0. An error that wraps [storage.ErrCorrupt] says that the mark is damaged, and nobody knows.
func (g *Log) CutShort(ctx context.Context) (newest, reached Slot, err error) {
	b, err := g.store.Read(ctx, markName, int64(markSize))
	if errors.Is(err, storage.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		reached, err = decodeMark(b)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read how far the log of %s goes: %w", g.store, err)
	}
	// After the mark: what is written meanwhile makes the log longer only.
	if newest, err = g.greatest(ctx, 0); err != nil || newest >= reached {
		return newest, 0, err
	}
	return newest, reached, nil
}

func decodeMark(b []byte) (Slot, error) {
	if len(b) != markSize || string(b[:len(markMagic)]) != markMagic {
		return 0, fmt.Errorf("%w: it is no mark", storage.ErrCorrupt)
	}
	if v := b[len(markMagic)]; v != markVersion {
		return 0, storage.Permanent(fmt.Errorf("its format has version %d, and this program knows only %d; use the release that wrote it", v, markVersion))
	}
	body, sum := b[:markSize-trailerSize], binary.BigEndian.Uint32(b[markSize-trailerSize:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return 0, fmt.Errorf("%w: its CRC32C is %08x, not %08x", storage.ErrCorrupt, got, sum)
	}
	return Slot(binary.BigEndian.Uint64(body[len(markMagic)+1:])), nil
}
