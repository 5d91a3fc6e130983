package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// signal is a side input of which only the end of windows counts.
type signal struct {
	def      *ViewDef
	window   func(window.Window) window.Window
	lateness int64
	w        eventtime.Time
}

// NewSignal returns a side input that makes elements wait until the window that fn finds for theirs has ended, and
// lateness, of the side input in ms, is over. What comes on it is not looked at.
func NewSignal(def *ViewDef, fn func(main window.Window) window.Window, lateness int64) SideView {
	return &signal{def, fn, lateness, eventtime.Min}
}

func (s *signal) name() string { return s.def.Name }

func (s *signal) open(*OpenContext, statebackend.Table, int64) error { return nil }
func (s *signal) slot() any                                          { return nil }
func (s *signal) receive(Batch, eventtime.Time) error                { return nil }
func (s *signal) watermark(w eventtime.Time)                         { s.w = max(s.w, w) }
func (s *signal) ready(main window.Window) bool                      { return s.w >= expiry(s.window(main), s.lateness) }
func (s *signal) gone(window.Window, eventtime.Time) bool            { return false }
func (s *signal) collect(eventtime.Time) error                       { return nil }
func (s *signal) evict() error                                       { return nil }
func (s *signal) cut(bool) (cutPart, error)                          { return nil, nil }
func (s *signal) appendBlob(dst []byte) []byte                       { return binary.AppendVarint(dst, int64(s.w)) }
func (s *signal) parseBlob(src []byte) ([]byte, error) {
	d := varints{src: src}
	s.w = eventtime.Clamp(eventtime.Time(d.signed("watermark")))
	return d.src, d.err
}

// viewParts cuts panes into parts.
type viewParts[P, E any] struct {
	stateless
	items func(P) []E
	check func([]E) error
	size  func(*E) int
	out   Output
	buf   Rows[ViewPart[E]]
}

// partBytes is about the size of a part: a batch has one, and travels as a whole.
const partBytes = 256 << 10

// NewViewParts returns an operator that makes of each pane P, which has items that pass a check, the parts of a side
// view. Each is emitted alone.
func NewViewParts[P, E any](items func(P) []E, check func([]E) error) Operator {
	return &viewParts[P, E]{items: items, check: check, size: Footprint[E]()}
}

func (o *viewParts[P, E]) Open(c *OpenContext) error {
	o.out = c.Outputs[0]
	return nil
}

func (o *viewParts[P, E]) Process(_ int, b Batch) error {
	for _, r := range b.(*Rows[P]).E {
		if r.Pane.Retraction() {
			continue // the pane that corrects it replaces it
		}
		items := o.items(r.Value)
		if err := o.check(items); err != nil {
			return fmt.Errorf("window %v: %w", r.Window, err)
		}
		for {
			n := o.fit(items)
			p := ViewPart[E]{items[:n:n], n == len(items)}
			o.buf.E = append(o.buf.E[:0], Element[ViewPart[E]]{p, r.Time, r.Window, r.Pane})
			err := o.out.Emit(&o.buf)
			clear(o.buf.E)
			if err != nil {
				return err
			}
			if p.Last {
				break
			}
			items = items[n:]
		}
	}
	return nil
}

// fit is the number of items that make a part: at least one, if there are any.
func (o *viewParts[P, E]) fit(items []E) int {
	bytes := 0
	for i := range items {
		if bytes += elementBytes[E](); o.size != nil {
			bytes += o.size(&items[i])
		}
		if bytes > partBytes {
			return max(1, i)
		}
	}
	return len(items)
}
