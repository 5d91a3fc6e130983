package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// maxInline is how many bytes of recorded input and operators' blobs of one subtask a manifest holds itself.
// Beyond it they are one object, so that a manifest stays small whatever an overtaking barrier passed.
const maxInline = 4 << 10

// spill moves the channels and blobs of p into an object, if they are large.
//
//	channels: count (uvarint), then each: length (uvarint) and bytes;  blobs: likewise, one a node
func (p *Part) spill(ctx context.Context, store Store) error {
	size := 0
	for _, c := range p.Channels {
		size += len(c)
	}
	for i := range p.Nodes {
		size += len(p.Nodes[i].Blob)
	}
	if size <= maxInline {
		return nil
	}
	b := appendList(make([]byte, 0, size+64), p.Channels)
	b = binary.AppendUvarint(b, uint64(len(p.Nodes)))
	for i := range p.Nodes {
		b = appendBytes(b, p.Nodes[i].Blob)
	}
	ref, err := store.Put(ctx, p.Checkpoint, "bulk", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	p.Bulk, p.Channels = &ref, nil
	for i := range p.Nodes {
		p.Nodes[i].Blob = nil
	}
	return nil
}

// load returns a copy of p with what spill moved away.
func (p *Part) load(ctx context.Context, store Store) (*Part, error) {
	b, err := ReadAll(ctx, store, *p.Bulk)
	if err != nil {
		return nil, err
	}
	d := decoder{src: b}
	channels, blobs := d.list(), d.list()
	if d.err == nil && (len(d.src) > 0 || len(blobs) != len(p.Nodes)) {
		d.err = fmt.Errorf("it has the blobs of %d steps and %d bytes more, not those of %d", len(blobs), len(d.src), len(p.Nodes))
	}
	if d.err != nil {
		return nil, fmt.Errorf("read %s: %w", p.Bulk.Object, d.err)
	}
	full := *p
	full.Bulk, full.Channels, full.Nodes = nil, channels, slices.Clone(p.Nodes)
	for i := range full.Nodes {
		full.Nodes[i].Blob = blobs[i]
	}
	return &full, nil
}
