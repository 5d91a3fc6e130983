package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millstream/millstream/statebackend"
)

// Manifest is a complete checkpoint as the log keeps it: what a job needs to go on, and the output that it
// promises. Publishing it is the commit point.
type Manifest struct {
	Job         string
	StatePlan   string // kernel.Graph.StatePlan: what the checkpoint can be restored into
	Streams     string // engine.Streams; "" in a manifest of version 1 or 2
	KeyGroups   int
	Parallelism int
	Time        time.Time // when it was made, by the coordinator's clock; for people
	Flags       Flags     // the program's own; zero in a manifest of version 1
	Checkpoint  Checkpoint
	// Pending is all output that was prepared for this checkpoint and earlier ones and is not known to be
	// committed, by checkpoint. Whoever restores the manifest commits it first.
	Pending []Output
}

// Output is what one sink prepared for one checkpoint, in all its subtasks.
type Output struct {
	Node string
	Prepared
}

// NewManifest makes the manifest of c, which takes over what is pending of the manifest before it. The
// committables move from the parts of c to Pending.
func NewManifest(c *Checkpoint, pending []Output) *Manifest {
	m := &Manifest{Checkpoint: *c, Pending: append([]Output(nil), pending...)}
	seen := map[string]bool{}
	for _, p := range c.Parts {
		for _, n := range p.Nodes {
			if !seen[n.Node] {
				seen[n.Node] = true
				for _, pre := range c.Prepared(n.Node) {
					m.Pending = append(m.Pending, Output{n.Node, pre})
				}
			}
		}
	}
	slices.SortStableFunc(m.Pending, func(a, b Output) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
	for i := range m.Checkpoint.Parts {
		for k := range m.Checkpoint.Parts[i].Nodes {
			m.Checkpoint.Parts[i].Nodes[k].Committables = nil
		}
	}
	return m
}

// Bytes is the size of all objects that the manifest lists.
func (m *Manifest) Bytes() (n int64) {
	m.Checkpoint.Refs(func(r statebackend.Ref) { n += r.Size })
	return n
}

const (
	manifestMagic   = "MSCP"
	manifestVersion = 3
)

// Encode returns the bytes of the manifest (docs/format/manifest.md).
func (m *Manifest) Encode() ([]byte, error) {
	b := append([]byte(manifestMagic), manifestVersion)
	b = appendString(b, m.Job)
	b = appendString(b, m.StatePlan)
	b = binary.AppendUvarint(b, uint64(m.KeyGroups))
	b = binary.AppendUvarint(b, uint64(m.Parallelism))
	b = binary.AppendUvarint(b, uint64(m.Time.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(m.Checkpoint.ID))
	b = binary.AppendUvarint(b, uint64(len(m.Checkpoint.Parts)))
	for i := range m.Checkpoint.Parts {
		p, err := AppendPart(nil, &m.Checkpoint.Parts[i])
		if err != nil {
			return nil, fmt.Errorf("encode the manifest of checkpoint %d: %w", m.Checkpoint.ID, err)
		}
		b = appendBytes(b, p)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Pending)))
	for _, o := range m.Pending {
		b = appendPrepared(appendString(b, o.Node), o.Prepared)
	}
	b = appendBytes(b, m.Flags.Salt)
	b = binary.AppendUvarint(b, uint64(len(m.Flags.Digests)))
	for _, f := range m.Flags.Digests {
		b = append(appendString(b, f.Name), f.Digest[:]...)
	}
	b = appendString(b, m.Streams)
	return binary.BigEndian.AppendUint32(b, statebackend.Checksum(0, b)), nil
}

// Recorded says whether the checkpoint may hold elements that were on their way between stages.
func (m *Manifest) Recorded() bool {
	for _, p := range m.Checkpoint.Parts {
		if p.Bulk != nil || slices.ContainsFunc(p.Channels, func(c []byte) bool { return len(c) > 0 }) {
			return true
		}
	}
	return false
}

// DecodeManifest reads what Encode wrote. It is safe on any bytes; the manifest refers to them.
func DecodeManifest(b []byte) (*Manifest, error) {
	m, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("decode a manifest: %w", err)
	}
	return m, nil
}

func decodeManifest(b []byte) (*Manifest, error) {
	if len(b) < len(manifestMagic)+1+4 {
		return nil, errCutOff
	}
	if string(b[:len(manifestMagic)]) != manifestMagic {
		return nil, errors.New("these bytes are no manifest")
	}
	// The version comes before the checksum, which another version may compute in another way.
	v := b[len(manifestMagic)]
	if v < 1 || v > manifestVersion {
		return nil, fmt.Errorf("its format has version %d, and this program knows only up to %d; use the release that wrote it", v, manifestVersion)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := statebackend.Checksum(0, body); got != sum {
		return nil, fmt.Errorf("its checksum is %08x, not %08x: it is damaged", got, sum)
	}
	d := decoder{src: body[len(manifestMagic)+1:]}
	m := &Manifest{
		Job: d.string(), StatePlan: d.string(), KeyGroups: d.int(statebackend.MaxKeyGroups), Parallelism: d.int(math.MaxInt32),
		Time: time.UnixMilli(d.int64()).UTC(), Checkpoint: Checkpoint{ID: d.int64()},
	}
	for n := d.count(1); n > 0 && d.err == nil; n-- {
		inner := decoder{src: d.bytes(), err: d.err}
		p := inner.part()
		if inner.err == nil && len(inner.src) > 0 {
			inner.err = fmt.Errorf("a part has %d bytes too many", len(inner.src))
		}
		if inner.err == nil && p.Checkpoint != m.Checkpoint.ID {
			inner.err = fmt.Errorf("a part belongs to checkpoint %d, not %d", p.Checkpoint, m.Checkpoint.ID)
		}
		d.err = inner.err
		m.Checkpoint.Parts = append(m.Checkpoint.Parts, p)
	}
	for n := d.count(3); n > 0 && d.err == nil; n-- {
		m.Pending = append(m.Pending, Output{Node: d.string(), Prepared: d.prepared()})
	}
	if v >= 2 {
		m.Flags = d.flags()
	}
	if v >= 3 {
		m.Streams = d.string()
	}
	if d.err == nil && len(d.src) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.src))
	}
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}
