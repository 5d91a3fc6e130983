package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
)

// The encoding of parts is described in docs/format/manifest.md. Acknowledgements carry parts in it, and a
// manifest is made of them.

// AppendPart appends the encoding of p to dst.
func AppendPart(dst []byte, p *Part) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(p.Checkpoint))
	dst = appendString(dst, p.Stage)
	dst = binary.AppendUvarint(dst, uint64(p.Subtask))
	dst = binary.AppendVarint(dst, int64(p.Merger.Merged))
	dst = binary.AppendUvarint(dst, uint64(len(p.Merger.Inputs)))
	for _, w := range p.Merger.Inputs {
		dst = binary.AppendVarint(dst, int64(w))
	}
	dst = appendList(dst, p.Channels)
	dst = appendFlag(dst, p.Bulk != nil)
	if p.Bulk != nil {
		dst = appendRef(dst, *p.Bulk)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.Nodes)))
	for i := range p.Nodes {
		var err error
		if dst, err = appendNode(dst, &p.Nodes[i]); err != nil {
			return nil, fmt.Errorf("encode the part of %q, subtask %d: %w", p.Stage, p.Subtask, err)
		}
	}
	return dst, nil
}

// DecodePart reads what AppendPart wrote. It is safe on any bytes.
func DecodePart(src []byte) (Part, error) {
	d := decoder{src: src}
	p := d.part()
	if d.err == nil && len(d.src) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.src))
	}
	if d.err != nil {
		return Part{}, fmt.Errorf("decode the part of a subtask: %w", d.err)
	}
	return p, nil
}

func appendNode(dst []byte, n *NodePart) ([]byte, error) {
	dst = appendString(dst, n.Node)
	dst = binary.AppendVarint(dst, int64(n.Watermark))
	dst = appendBytes(dst, n.Blob)
	dst = binary.AppendUvarint(dst, uint64(len(n.Committables)))
	for _, c := range n.Committables {
		dst = appendPrepared(dst, c)
	}
	dst = appendFlag(dst, n.Keyed != nil)
	if n.Keyed == nil {
		return dst, nil
	}
	dst = appendFlag(dst, n.Keyed.Base != nil)
	if b := n.Keyed.Base; b != nil {
		dst = binary.AppendUvarint(dst, uint64(b.Checkpoint))
		var err error
		if dst, err = b.Handle.Append(dst); err != nil {
			return nil, fmt.Errorf("base of %q: %w", n.Node, err)
		}
		dst = appendRef(dst, b.Companion)
	}
	dst = binary.AppendUvarint(dst, uint64(len(n.Keyed.Deltas)))
	for _, delta := range n.Keyed.Deltas {
		dst = appendRef(binary.AppendUvarint(dst, uint64(delta.Checkpoint)), delta.Ref)
	}
	return dst, nil
}

func appendPrepared(dst []byte, p Prepared) []byte {
	return appendList(binary.AppendUvarint(dst, uint64(p.Checkpoint)), p.Committables)
}

func appendList(dst []byte, list [][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, b := range list {
		dst = appendBytes(dst, b)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendFlag(dst []byte, set bool) []byte {
	if set {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendRef(dst []byte, r statebackend.Ref) []byte {
	dst = binary.AppendUvarint(appendString(dst, r.Object), uint64(r.Size))
	return binary.BigEndian.AppendUint32(dst, r.CRC32C)
}

func (d *decoder) part() Part {
	p := Part{Checkpoint: d.int64(), Stage: d.string(), Subtask: d.int(math.MaxInt32)}
	p.Merger = engine.MergerState{Merged: d.time()}
	for n := d.count(1); n > 0 && d.err == nil; n-- {
		p.Merger.Inputs = append(p.Merger.Inputs, d.time())
	}
	p.Channels = d.list()
	if d.flag() {
		r := d.ref()
		p.Bulk = &r
	}
	for n := d.count(5); n > 0 && d.err == nil; n-- {
		p.Nodes = append(p.Nodes, d.node())
	}
	return p
}

func (d *decoder) node() NodePart {
	n := NodePart{Node: d.string(), Watermark: d.time(), Blob: d.bytes()}
	for k := d.count(2); k > 0 && d.err == nil; k-- {
		n.Committables = append(n.Committables, d.prepared())
	}
	if !d.flag() {
		return n
	}
	n.Keyed = &Keyed{}
	if d.flag() {
		b := &Base{Checkpoint: d.int64()}
		if d.err == nil {
			b.Handle, d.src, d.err = statebackend.DecodeHandle(d.src)
		}
		b.Companion = d.ref()
		n.Keyed.Base = b
	}
	for k := d.count(7); k > 0 && d.err == nil; k-- {
		n.Keyed.Deltas = append(n.Keyed.Deltas, Delta{Checkpoint: d.int64(), Ref: d.ref()})
	}
	return n
}

func (d *decoder) prepared() Prepared { return Prepared{Checkpoint: d.int64(), Committables: d.list()} }

// decoder reads fields from src until the first error, which stays. What it allocates is bounded by the
// bytes that are there.
type decoder struct {
	src []byte
	err error
}

var errCutOff = errors.New("it is cut off")

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.src)
	if n <= 0 {
		d.err = errCutOff
		return 0
	}
	d.src = d.src[n:]
	return v
}

func (d *decoder) int64() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 && d.err == nil {
		d.err = fmt.Errorf("%d is out of range", v)
	}
	return int64(v)
}

func (d *decoder) int(limit int64) int {
	v := d.int64()
	if v > limit && d.err == nil {
		d.err = fmt.Errorf("%d exceeds %d", v, limit)
	}
	return int(v)
}

// count reads the length of a list whose elements take at least so many bytes each.
func (d *decoder) count(least int) int {
	n := d.uvarint()
	if d.err == nil && n > uint64(len(d.src)/least) {
		d.err = errCutOff
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) time() eventtime.Time {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.src)
	if n <= 0 {
		d.err = errCutOff
		return 0
	}
	d.src = d.src[n:]
	return eventtime.Clamp(eventtime.Time(v))
}

// bytes returns a part of src, nil if it is empty.
func (d *decoder) bytes() []byte {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	b := d.src[:n:n]
	d.src = d.src[n:]
	return b
}

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) list() (list [][]byte) {
	for n := d.count(1); n > 0 && d.err == nil; n-- {
		list = append(list, d.bytes())
	}
	return list
}

func (d *decoder) flag() bool {
	if d.err != nil {
		return false
	}
	if len(d.src) == 0 {
		d.err = errCutOff
		return false
	}
	b := d.src[0]
	if b > 1 {
		d.err = fmt.Errorf("a flag is %d", b)
	}
	d.src = d.src[1:]
	return b == 1
}

func (d *decoder) ref() statebackend.Ref {
	r := statebackend.Ref{Object: d.string(), Size: d.int64()}
	if d.err == nil && len(d.src) < 4 {
		d.err = errCutOff
	}
	if d.err != nil {
		return r
	}
	r.CRC32C = binary.BigEndian.Uint32(d.src)
	d.src = d.src[4:]
	return r
}
