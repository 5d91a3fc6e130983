package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
)

// keyState is what a keyed step keeps for a key and window.
type keyState struct {
	cells  cell.Slots
	timers []eventtime.Time // by index; noTime: not pending
	wake   eventtime.Time   // of the entry in the index of wake-ups; noTime: there is none
}

// noTime is after every time.
const noTime = eventtime.Max + 1

// next returns the pending timer that fires first, and noTime if there is none.
func (k *keyState) next() (index int, at eventtime.Time) {
	at = noTime
	for i, t := range k.timers {
		if t < at {
			index, at = i, t
		}
	}
	return index, at
}

// hasCell says whether a cell is set.
func (k *keyState) hasCell() bool {
	for _, c := range k.cells {
		if _, hidden := c.(*looks); c != nil && !hidden {
			return true
		}
	}
	return false
}

// schema gives cells and timers the ids under which they are stored, and encodes a keyState with them
// (docs/format/keyed-state.md). It is a coder.Coder[keyState].
type schema struct {
	cells  []cell.Decl
	timers []string
	ids    []uint64 // of cells, then of timers
	next   uint64   // id for the next new name
	buf    []byte
}

const (
	kindCell  = 'c'
	kindTimer = 't'

	wakeID         = 0
	schemaVersion  = 2
	maxNames       = 1 << 16
	slotBytes      = 16
	timerTimeBytes = 8
)

type fieldName struct {
	kind byte
	name string
}

// newSchema gives ids: those that stored says, and new ones to names that it does not have.
func newSchema(cells []cell.Decl, timers []*timer, stored map[fieldName]uint64, next uint64) *schema {
	s := &schema{cells: cells, next: max(next, 1)}
	add := func(n fieldName) {
		id, ok := stored[n]
		if !ok {
			id = s.next
			s.next++
		}
		s.ids = append(s.ids, id)
	}
	for _, c := range cells {
		add(fieldName{kindCell, c.Name})
	}
	for _, t := range timers {
		s.timers = append(s.timers, t.name)
		add(fieldName{kindTimer, t.name})
	}
	return s
}

// appendBlob encodes what a restored operator must know.
func (s *schema) appendBlob(dst []byte, fired eventtime.Time, h horizons) []byte {
	dst = h.append(binary.AppendVarint(append(dst, schemaVersion), int64(fired)))
	dst = binary.AppendUvarint(dst, s.next)
	dst = binary.AppendUvarint(dst, uint64(len(s.ids)))
	for i, id := range s.ids {
		kind, name := byte(kindCell), ""
		if i < len(s.cells) {
			name = s.cells[i].Name
		} else {
			kind, name = kindTimer, s.timers[i-len(s.cells)]
		}
		dst = binary.AppendUvarint(append(dst, kind), id)
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = append(dst, name...)
	}
	return dst
}

// parseBlob undoes appendBlob. told is the watermark that the step was told last, for blobs of version 1: they do not say
// for which one everything has fired.
func parseBlob(src []byte, told eventtime.Time) (fired eventtime.Time, h horizons, next uint64, names map[fieldName]uint64, err error) {
	bad := func(what string) (eventtime.Time, horizons, uint64, map[fieldName]uint64, error) {
		return fired, h, 0, nil, fmt.Errorf("restore keyed state: %s of its description is malformed", what)
	}
	if len(src) == 0 || src[0] == 0 || src[0] > schemaVersion {
		return bad("the version")
	}
	version := src[0]
	fired, src = told, src[1:]
	if version > 1 {
		v, w := binary.Varint(src)
		if fired = eventtime.Time(v); w <= 0 || fired != eventtime.Clamp(fired) {
			return bad("the watermark")
		}
		src = src[w:]
	}
	if h, src, err = decodeHorizons(src); err != nil {
		return bad("a horizon")
	}
	uvarint := func() (v uint64, ok bool) {
		v, w := binary.Uvarint(src)
		if w <= 0 {
			return 0, false
		}
		src = src[w:]
		return v, true
	}
	var ok bool
	next, ok = uvarint()
	n, ok2 := uvarint()
	if !ok || !ok2 || n > maxNames {
		return bad("the number of names")
	}
	names = map[fieldName]uint64{}
	for range n {
		if len(src) == 0 || src[0] != kindCell && src[0] != kindTimer {
			return bad("a name")
		}
		kind := src[0]
		src = src[1:]
		id, ok := uvarint()
		l, ok2 := uvarint()
		if !ok || !ok2 || l > uint64(len(src)) || id == wakeID || id >= next {
			return bad("a name")
		}
		names[fieldName{kind, string(src[:l])}] = id
		src = src[l:]
	}
	if len(src) > 0 {
		return bad("the end")
	}
	return fired, h, next, names, nil
}

// newState is the state of a key that has nothing yet.
func (s *schema) newState() keyState {
	k := keyState{cells: make(cell.Slots, len(s.cells)), wake: noTime}
	if n := len(s.timers); n > 0 {
		k.timers = make([]eventtime.Time, n)
		for i := range k.timers {
			k.timers[i] = noTime
		}
	}
	return k
}

// size is the memory of a keyState beyond its struct.
func (s *schema) size(k *keyState) int {
	n := slotBytes*len(k.cells) + timerTimeBytes*len(k.timers)
	for i, c := range k.cells {
		if c != nil {
			n += s.cells[i].Size(c)
		}
	}
	return n
}

// Append implements coder.Coder.
func (s *schema) Append(dst []byte, k keyState) ([]byte, error) {
	n := 0
	for _, c := range k.cells {
		if c != nil {
			n++
		}
	}
	for _, t := range k.timers {
		if t != noTime {
			n++
		}
	}
	if k.wake != noTime {
		n++
	}
	out := binary.AppendUvarint(dst, uint64(n))
	for i, c := range k.cells {
		if c == nil {
			continue
		}
		b, err := s.cells[i].Append(s.buf[:0], c)
		if err != nil {
			return dst, fmt.Errorf("cell %q: %w", s.cells[i].Name, err)
		}
		s.buf = b
		out = binary.AppendUvarint(out, s.ids[i])
		out = binary.AppendUvarint(out, uint64(len(b)))
		out = append(out, b...)
	}
	for i, t := range k.timers {
		if t != noTime {
			out = s.appendTime(out, s.ids[len(s.cells)+i], t)
		}
	}
	if k.wake != noTime {
		out = s.appendTime(out, wakeID, k.wake)
	}
	return out, nil
}

func (s *schema) appendTime(dst []byte, id uint64, t eventtime.Time) []byte {
	s.buf = binary.AppendVarint(s.buf[:0], int64(t))
	dst = binary.AppendUvarint(dst, id)
	dst = binary.AppendUvarint(dst, uint64(len(s.buf)))
	return append(dst, s.buf...)
}

// Decode implements coder.Coder.
func (s *schema) Decode(src []byte) (keyState, []byte, error) {
	k := s.newState()
	n, w := binary.Uvarint(src)
	if w <= 0 {
		return k, src, fmt.Errorf("number of fields is malformed")
	}
	rest := src[w:]
	for i := range n {
		id, w := binary.Uvarint(rest)
		if w <= 0 {
			return k, src, fmt.Errorf("field %d of %d: id is malformed", i, n)
		}
		rest = rest[w:]
		l, w := binary.Uvarint(rest)
		if w <= 0 || l > uint64(len(rest)-w) {
			return k, src, fmt.Errorf("field %d of %d: length is malformed", i, n)
		}
		content := rest[w : w+int(l)]
		rest = rest[w+int(l):]
		if err := s.decodeField(&k, id, content); err != nil {
			return k, src, err
		}
	}
	return k, rest, nil
}

func (s *schema) decodeField(k *keyState, id uint64, content []byte) (err error) {
	if id == wakeID {
		if err = decodeTime(&k.wake, content); err != nil {
			return fmt.Errorf("wake-up: %w", err)
		}
		return nil
	}
	for i, known := range s.ids {
		switch {
		case known != id:
			continue
		case i < len(s.cells):
			if k.cells[i] != nil {
				return fmt.Errorf("cell %q: stored twice", s.cells[i].Name)
			}
			if k.cells[i], err = s.cells[i].Decode(content); err != nil {
				k.cells[i] = nil
				return fmt.Errorf("cell %q: %w", s.cells[i].Name, err)
			}
		default:
			t := i - len(s.cells)
			if err = decodeTime(&k.timers[t], content); err != nil {
				return fmt.Errorf("timer %q: %w", s.timers[t], err)
			}
		}
		return nil
	}
	return nil // of a cell or timer that is no longer declared
}

// decodeTime sets t, which must not be set yet.
func decodeTime(t *eventtime.Time, src []byte) error {
	v, w := binary.Varint(src)
	if w <= 0 || w != len(src) || eventtime.Time(v) != eventtime.Clamp(eventtime.Time(v)) {
		return fmt.Errorf("%x is not a time", src)
	}
	if *t != noTime {
		return errors.New("stored twice")
	}
	*t = eventtime.Time(v)
	return nil
}
