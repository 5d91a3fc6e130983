package kernel

import (
	"encoding/binary"
	"errors"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// header is what firing needs to know of an entry; it is stored with it.
type header struct {
	since  int64 // elements since the last pane
	panes  int32 // fired
	early  int32 // of these, before the end of the window
	onTime bool  // the end of the window has been seen: fired on time, or born late and fired
}

// append encodes h: since, panes and early as uvarints, and a byte that is 1 if the end has been seen.
func (h header) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(h.since))
	dst = binary.AppendUvarint(dst, uint64(h.panes))
	dst = binary.AppendUvarint(dst, uint64(h.early))
	if h.onTime {
		return append(dst, 1)
	}
	return append(dst, 0)
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
	if len(rest) == 0 || rest[0] > 1 || v[0] >= 1<<62 || v[1] >= 1<<31 || v[2] > v[1] {
		return h, src, errHeader
	}
	return header{since: int64(v[0]), panes: int32(v[1]), early: int32(v[2]), onTime: rest[0] == 1}, rest[1:], nil
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

// pane emits a pane, at the latest with emit.
func (o *paneOutput[K, Out]) pane(k K, v Out, w window.Window, p window.Pane) error {
	o.panes.E = append(o.panes.E, Element[coder.KV[K, Out]]{
		Value: coder.KV[K, Out]{Key: k, Value: v}, Time: w.MaxTimestamp(), Window: w, Pane: MakePane(p),
	})
	if len(o.panes.E) >= BatchSize {
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
