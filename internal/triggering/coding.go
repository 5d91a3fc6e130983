package triggering

import (
	"encoding/binary"
	"errors"

	"github.com/millstream/millstream/internal/eventtime"
)

// Append encodes s (docs/format/trigger-state.md). Only a machine of the same trigger can decode it.
func (m *Machine) Append(dst []byte, s *State) []byte {
	if s.Slots == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(append(dst, 1), s.Finished)
	for i, l := range m.leaves {
		switch slot := s.Slots[i]; {
		case m.nodes[l].kind != delay || slot == 0:
			dst = binary.AppendUvarint(dst, uint64(slot))
		default: // the time, its sign in the last bit, plus 1
			t := int64(timeOf(slot))
			dst = binary.AppendUvarint(dst, uint64(t<<1^t>>63)+1)
		}
	}
	return dst
}

var errState = errors.New("trigger state is malformed")

// Decode is the way back from Append. It returns what follows.
func (m *Machine) Decode(src []byte) (s State, rest []byte, err error) {
	if len(src) == 0 || src[0] > 1 {
		return State{}, src, errState
	}
	rest = src[1:]
	if src[0] == 0 {
		return State{}, rest, nil
	}
	next := func() (v uint64) {
		v, w := binary.Uvarint(rest)
		if w <= 0 {
			err = errState
			return 0
		}
		rest = rest[w:]
		return v
	}
	s.Finished = next()
	if s.Finished&^m.bits != 0 {
		err = errState
	}
	s.Slots = make([]int64, len(m.leaves))
	for i, l := range m.leaves {
		v := next()
		if m.nodes[l].kind == delay && v != 0 {
			z := v - 1
			t := eventtime.Time(int64(z>>1) ^ -int64(z&1))
			if t != eventtime.Clamp(t) {
				err = errState
			}
			v = uint64(slotOf(t))
		}
		if v >= 1<<62 {
			err = errState
		}
		s.Slots[i] = int64(v)
	}
	if err != nil {
		return State{}, src, err
	}
	return s, rest, nil
}
