package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/millstream/millstream/internal/cell"
	"github.com/millstream/millstream/internal/eventtime"
)

// keyState is what a keyed step keeps for a key and window.
type keyState struct {
	cells  cell.Slots
	timers []eventtime.Time // by slot; noTime: not pending
	wake   eventtime.Time   // of the entry in the index of wake-ups; noTime: there is none
	more   *moreTimers      // nil if nothing of it is used
}

// noTime is after every time.
const noTime = eventtime.Max + 1

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
	timers []*timer // and families, in the order of declaration
	slots  []*timer // that are no families: those of event time, then the others
	events int      // slots of event time
	clocks bool     // some are not of event time, or families: every key has a moreTimers
	ids    []uint64 // of cells, then of timers
	free   uint64   // id for the next new name
	buf    []byte
}

const (
	kindCell = 'c'

	wakeID         = 0
	schemaVersion  = 2
	firstVersion   = 1 // without timers of processing time and holds
	maxNames       = 1 << 16
	slotBytes      = 16
	timerTimeBytes = 8
)

type fieldName struct {
	kind byte
	name string
}

// kindsOfTimer are the kinds of names of timers, and of families.
var kindsOfTimer = [2][domains]byte{{'t', 'p'}, {'T', 'P'}}

func (t *timer) kind() byte {
	if t.family {
		return kindsOfTimer[1][t.by]
	}
	return kindsOfTimer[0][t.by]
}

// newSchema gives ids: those that stored says, and new ones to names that it does not have.
func newSchema(cells []cell.Decl, timers []*timer, stored map[fieldName]uint64, free uint64) *schema {
	s := &schema{cells: cells, timers: timers, free: max(free, 1)}
	add := func(n fieldName) {
		id, ok := stored[n]
		if !ok {
			id = s.free
			s.free++
		}
		s.ids = append(s.ids, id)
	}
	for _, c := range cells {
		add(fieldName{kindCell, c.Name})
	}
	for _, t := range timers {
		add(fieldName{t.kind(), t.name})
	}
	s.placeTimers()
	return s
}

// keyedBlob is what a restored operator must know beside its schema.
type keyedBlob struct {
	indexes [3]horizons // of the wake-ups by the watermark, those by the clock, and the holds
	first   bool        // of the first version: it has only the first of indexes
	passed  eventtime.Time
	fired   eventtime.Time // of cells with a TTL
}

// appendBlob encodes what a restored operator must know.
func (s *schema) appendBlob(dst []byte, b keyedBlob) []byte {
	dst = append(dst, schemaVersion)
	for _, h := range b.indexes {
		dst = h.append(dst)
	}
	dst = binary.AppendVarint(dst, int64(b.passed))
	dst = binary.AppendVarint(dst, int64(b.fired))
	dst = binary.AppendUvarint(dst, s.free)
	dst = binary.AppendUvarint(dst, uint64(len(s.ids)))
	for i, id := range s.ids {
		kind, name := byte(kindCell), ""
		if i < len(s.cells) {
			name = s.cells[i].Name
		} else {
			t := s.timers[i-len(s.cells)]
			kind, name = t.kind(), t.name
		}
		dst = binary.AppendUvarint(append(dst, kind), id)
		dst = binary.AppendUvarint(dst, uint64(len(name)))
		dst = append(dst, name...)
	}
	return dst
}

func parseBlob(src []byte) (b keyedBlob, free uint64, names map[fieldName]uint64, err error) {
	bad := func(what string) (keyedBlob, uint64, map[fieldName]uint64, error) {
		return b, 0, nil, fmt.Errorf("restore keyed state: %s of its description is malformed", what)
	}
	if len(src) == 0 || src[0] < firstVersion || src[0] > schemaVersion {
		return bad("the version")
	}
	b.first, b.passed = src[0] == firstVersion, eventtime.Min
	src = src[1:]
	for i := range b.indexes {
		if b.first && i > 0 {
			break
		}
		if b.indexes[i], src, err = decodeHorizons(src); err != nil {
			return bad("a horizon")
		}
	}
	if !b.first {
		for _, t := range []*eventtime.Time{&b.passed, &b.fired} {
			v, w := binary.Varint(src)
			if *t = eventtime.Time(v); w <= 0 || *t != eventtime.Clamp(*t) {
				return bad("a watermark")
			}
			src = src[w:]
		}
	}
	uvarint := func() (v uint64, ok bool) {
		v, w := binary.Uvarint(src)
		if w <= 0 {
			return 0, false
		}
		src = src[w:]
		return v, true
	}
	free, ok := uvarint()
	n, ok2 := uvarint()
	if !ok || !ok2 || n > maxNames {
		return bad("the number of names")
	}
	names = map[fieldName]uint64{}
	for range n {
		if len(src) == 0 || !knownKind(src[0]) {
			return bad("a name")
		}
		kind := src[0]
		src = src[1:]
		id, ok := uvarint()
		l, ok2 := uvarint()
		if !ok || !ok2 || l > uint64(len(src)) || id == wakeID || id >= free {
			return bad("a name")
		}
		names[fieldName{kind, string(src[:l])}] = id
		src = src[l:]
	}
	if len(src) > 0 {
		return bad("the end")
	}
	return b, free, names, nil
}

func knownKind(kind byte) bool {
	return kind == kindCell || bytes.IndexByte(kindsOfTimer[0][:], kind) >= 0 || bytes.IndexByte(kindsOfTimer[1][:], kind) >= 0
}

// newState is the state of a key that has nothing yet.
func (s *schema) newState() keyState {
	k := keyState{cells: make(cell.Slots, len(s.cells)), wake: noTime}
	if n := len(s.slots); n > 0 {
		k.timers = noTimes(n)
	}
	if s.clocks {
		k.more = s.newMore()
	}
	return k
}

// size is the memory of a keyState beyond its struct.
func (s *schema) size(k *keyState) int {
	n := slotBytes*len(k.cells) + timerTimeBytes*len(k.timers) + k.more.size()
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
	n += s.timerFields(&k)
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
	return s.appendTimers(out, &k), nil
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
		return s.decodeWake(k, content)
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
			t := s.timers[i-len(s.cells)]
			if err = s.decodeTimer(k, t, content); err != nil {
				return fmt.Errorf("timer %q: %w", t.name, err)
			}
		}
		return nil
	}
	return nil // of a cell or timer that is no longer declared
}
