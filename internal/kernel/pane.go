package kernel

import (
	"encoding/binary"
	"errors"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// header is what firing needs to know of an entry; it is stored with it.
type header struct {
	since  int64 // elements since the last pane
	panes  int32 // fired
	early  int32 // of these, before the end of the window
	onTime bool  // the end of the window has been seen: fired on time, or born late and fired
	ended  bool  // the trigger has been told of the end of the window
	late   bool  // nothing was kept for a pane when the window ended
	closed bool  // no pane will follow
}

// append encodes h: since, panes and early as uvarints, and a byte of flags, onTime first.
func (h header) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(h.since))
	dst = binary.AppendUvarint(dst, uint64(h.panes))
	dst = binary.AppendUvarint(dst, uint64(h.early))
	return append(dst, bit(h.onTime)|bit(h.late)<<1|bit(h.closed)<<2|bit(h.ended)<<3)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

var errHeader = errors.New("header is malformed")

func decodeHeader(src []byte) (h header, rest []byte, err error) {
	var v [3]uint64
	rest = src
	for i := range v {
		n := 0
		if v[i], n = binary.Uvarint(rest); n <= 0 {
			return h, src, errHeader
		}
		rest = rest[n:]
	}
	if len(rest) == 0 || rest[0] > 15 || v[0] >= 1<<62 || v[1] >= 1<<31 || v[2] > v[1] {
		return h, src, errHeader
	}
	f := rest[0]
	return header{since: int64(v[0]), panes: int32(v[1]), early: int32(v[2]), onTime: f&1 != 0, late: f&2 != 0, closed: f&4 != 0, ended: f&8 != 0}, rest[1:], nil
}

// fired counts a pane and returns what is said of it.
func (h *header) fired(timing window.Timing, last bool) window.Pane {
	p := window.Pane{Timing: timing, Index: int64(h.panes), OnTimeIndex: int64(h.panes - h.early), First: h.panes == 0, Last: last}
	if timing == window.Early {
		p.OnTimeIndex = -1
		h.early++
	} else {
		h.onTime = true
	}
	h.panes++
	h.since = 0
	return p
}

// paneOutput is the outputs of an aggregation: port 0 has the panes, port 1+i the late elements of input i.
type paneOutput[K comparable, Out any] struct {
	outs  []Output
	m     *Metrics
	panes Rows[coder.KV[K, Out]]
}

// dropped counts elements that came too late, once for each window.
func (o *paneOutput[K, Out]) dropped(n int64) { o.m.LateDropped.Store(o.m.LateDropped.Load() + n) }

// pane emits a pane at the end of its window, at the latest with emit.
func (o *paneOutput[K, Out]) pane(k K, v Out, w window.Window, p window.Pane) error {
	return o.paneAt(k, v, w, MakePane(p), w.MaxTimestamp())
}

func (o *paneOutput[K, Out]) paneAt(k K, v Out, w window.Window, p Pane, t eventtime.Time) error {
	o.panes.E = append(o.panes.E, Element[coder.KV[K, Out]]{
		Value: coder.KV[K, Out]{Key: k, Value: v}, Time: t, Window: w, Pane: p,
	})
	if full(o.panes.E) {
		return o.emit()
	}
	return nil
}

func (o *paneOutput[K, Out]) emit() error {
	if len(o.panes.E) == 0 {
		return nil
	}
	err := o.outs[0].Emit(&o.panes)
	clear(o.panes.E)
	o.panes.E = o.panes.E[:0]
	return err
}
