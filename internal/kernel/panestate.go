package kernel

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/triggering"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

const panesVersion = 2

// Snapshot implements Stateful.
func (o *panes[K, A, Out]) Snapshot(checkpoint int64, base bool) (OpSnapshot, error) {
	blob := []byte{panesVersion, 0}
	if o.any {
		blob[1] = 1
	}
	blob = o.events.horizons().append(blob)
	tables := []cutTable{o.state, o.events.table}
	if o.clocks != nil {
		blob = o.clocks.horizons().append(blob)
		tables = append(tables, o.clocks.table)
	}
	if o.holds != nil {
		blob = o.holds.horizons().append(blob)
		tables = append(tables, o.holds.table)
	}
	p, err := cutTogether(base, o.state.backend, tables...)
	if err != nil {
		return OpSnapshot{}, fmt.Errorf("checkpoint %d: %w", checkpoint, err)
	}
	return OpSnapshot{Blob: blob, Keyed: p}, nil
}

func (o *panes[K, A, Out]) restore(r *OpRestore) error {
	o.w = r.Watermark
	if len(r.Blob) < 2 || r.Blob[0] != panesVersion {
		return fmt.Errorf("restore panes: the version of the state is not %d", panesVersion)
	}
	o.any = r.Blob[1] == 1
	any := o.any
	if err := o.state.restore(o.opened); err != nil {
		return err
	}
	o.any = any
	rest := r.Blob[2:]
	restore := func(to func(horizons) error) error {
		h, after, err := decodeHorizons(rest)
		if err != nil {
			return fmt.Errorf("restore panes: %w", err)
		}
		rest = after
		return to(h)
	}
	err := restore(o.events.restore)
	if err == nil && o.clocks != nil {
		err = restore(o.clocks.restore)
	}
	if err == nil && o.holds != nil {
		err = restore(o.holds.restore)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("restore panes: %d bytes too many", len(rest))
	}
	return err
}

// sizer returns the function that measures the heap memory of a list.
func (o *panes[K, A, Out]) sizer() func(*anyList) int {
	value := Footprint[Out]()
	return func(list *anyList) int {
		l, ok := (*list).(*windowList[A, Out])
		if !ok {
			return 0 // it has no value yet
		}
		n := int(unsafe.Sizeof(*l)) + cap(l.open)*int(unsafe.Sizeof(openWindow[A, Out]{}))
		for i := range l.open {
			s := &l.open[i]
			if o.Size != nil {
				n += o.Size(&s.acc)
			}
			if m := s.more; m != nil {
				n += int(unsafe.Sizeof(*m)) + 8*cap(m.trigger.Slots) + cap(m.prev)*int(unsafe.Sizeof(emitted[Out]{}))
				if value != nil {
					for k := range m.prev {
						n += value(&m.prev[k].value)
					}
				}
			}
		}
		return n
	}
}

// windowListCoder encodes the windows of a key (docs/format/panes.md).
type windowListCoder[A, Out any] struct {
	acc coder.Coder[A]
	// What each window has after its header: see openWindow.more. trigger and out may be nil.
	more    bool
	trigger *triggering.Machine
	out     coder.Coder[Out]
}

func (o *panes[K, A, Out]) coder() windowListCoder[A, Out] {
	c := windowListCoder[A, Out]{acc: o.Acc, more: !o.simple(), trigger: o.Trigger}
	if o.Retracting {
		c.out = o.Out
	}
	return c
}

func (c windowListCoder[A, Out]) Append(dst []byte, list anyList) (_ []byte, err error) {
	l := list.(*windowList[A, Out])
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.wake))
	if c.more {
		dst = binary.AppendVarint(dst, int64(l.clock))
		dst = binary.AppendVarint(dst, int64(l.hold))
	}
	dst = binary.AppendUvarint(dst, uint64(len(l.open)))
	var last eventtime.Time
	for i := range l.open {
		s := &l.open[i]
		dst = appendWindow(dst, s.win, last)
		last = s.win.EndTime()
		dst = s.header.append(dst)
		if c.more {
			if dst, err = c.appendMore(dst, s.more); err != nil {
				return nil, err
			}
		}
		if dst, err = c.acc.Append(dst, s.acc); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (c windowListCoder[A, Out]) appendMore(dst []byte, m *windowMore[Out]) (_ []byte, err error) {
	if c.trigger != nil {
		dst = c.trigger.Append(dst, &m.trigger)
	}
	dst = binary.AppendVarint(dst, int64(m.clock))
	dst = binary.AppendVarint(dst, int64(m.hold))
	dst = append(dst, bit(m.atEnd))
	if c.out == nil {
		return dst, nil
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.prev)))
	for i := range m.prev {
		p := &m.prev[i]
		dst = appendWindow(dst, p.win, 0)
		dst = binary.AppendVarint(dst, int64(p.time))
		dst = binary.AppendUvarint(dst, uint64(p.pane))
		if dst, err = c.out.Append(dst, p.value); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendWindow encodes a window as its start, relative to a time before it, and its length.
func appendWindow(dst []byte, w window.Window, from eventtime.Time) []byte {
	dst = binary.AppendVarint(dst, int64(w.StartTime()-from))
	return binary.AppendUvarint(dst, uint64(w.EndTime()-w.StartTime()))
}

func (c windowListCoder[A, Out]) Decode(src []byte) (_ anyList, rest []byte, err error) {
	l := &windowList[A, Out]{}
	d := varints{src: src}
	if len(src) < 8 {
		return l, src, fmt.Errorf("a list of windows has %d bytes", len(src))
	}
	l.wake = eventtime.Time(binary.BigEndian.Uint64(src))
	d.src = src[8:]
	l.clock, l.hold = noTime, noTime
	if c.more {
		l.clock, l.hold = eventtime.Time(d.signed("clock")), eventtime.Time(d.signed("hold"))
	}
	n := d.unsigned("number of windows")
	if n > uint64(len(d.src)) {
		d.fail("number of windows")
	}
	if d.err != nil {
		return l, src, d.err
	}
	l.open = make([]openWindow[A, Out], n)
	var last eventtime.Time
	for i := range l.open {
		s := &l.open[i]
		if err := c.decodeWindow(&d, s, last); err != nil {
			return l, src, fmt.Errorf("window %d: %w", i, err)
		}
		last = s.win.EndTime()
	}
	return l, d.src, nil
}

func (c windowListCoder[A, Out]) decodeWindow(d *varints, s *openWindow[A, Out], from eventtime.Time) (err error) {
	s.win = d.window(from)
	if d.err != nil {
		return d.err
	}
	if s.header, d.src, err = decodeHeader(d.src); err != nil {
		return err
	}
	if c.more {
		s.more = &windowMore[Out]{}
		if err := c.decodeMore(d, s.more); err != nil {
			return err
		}
	}
	s.acc, d.src, err = c.acc.Decode(d.src)
	return err
}

func (c windowListCoder[A, Out]) decodeMore(d *varints, m *windowMore[Out]) (err error) {
	if c.trigger != nil {
		if m.trigger, d.src, err = c.trigger.Decode(d.src); err != nil {
			return err
		}
	}
	m.clock = eventtime.Time(d.signed("clock"))
	m.hold, m.atEnd = eventtime.Time(d.signed("hold")), d.unsigned("hold") == 1
	if d.err != nil || c.out == nil {
		return d.err
	}
	n := d.unsigned("number of panes")
	for range n {
		p := emitted[Out]{win: d.window(0), time: eventtime.Time(d.signed("time")), pane: Pane(d.unsigned("pane"))}
		if d.err != nil {
			return d.err
		}
		if p.value, d.src, err = c.out.Decode(d.src); err != nil {
			return err
		}
		m.prev = append(m.prev, p)
	}
	return d.err
}

// varints reads numbers from src; the first that is malformed is err.
type varints struct {
	src []byte
	err error
}

func (d *varints) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s is malformed", what)
	}
	d.src = nil
}

func (d *varints) signed(what string) int64 {
	v, w := binary.Varint(d.src)
	if w <= 0 {
		d.fail(what)
		return 0
	}
	d.src = d.src[w:]
	return v
}

func (d *varints) unsigned(what string) uint64 {
	v, w := binary.Uvarint(d.src)
	if w <= 0 {
		d.fail(what)
		return 0
	}
	d.src = d.src[w:]
	return v
}

func (d *varints) window(from eventtime.Time) window.Window {
	start := from + eventtime.Time(d.signed("start of a window"))
	return window.New(start, start+eventtime.Time(d.unsigned("end of a window")))
}
