package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/millstream/millstream/internal/eventtime"
)

// moreTimers is what a key and window keeps of timers beyond the times of those that are no families.
type moreTimers struct {
	clock eventtime.Time      // of the entry in the index of wake-ups by the clock; noTime: there is none
	hold  eventtime.Time      // of the entry in the index of holds; noTime: there is none
	outs  []eventtime.Time    // output timestamps, by slot; noTime: that of its firing
	tags  [domains][]tagTimer // pending timers of families, in the order in which they fire
	bytes int                 // of the tags
}

// tagTimer is a pending timer of a family.
type tagTimer struct {
	at, out eventtime.Time
	timer   *timer
	tag     string
}

// before is the order of firing.
func (t *tagTimer) before(o *tagTimer) int {
	return cmp.Or(cmp.Compare(t.at, o.at), cmp.Compare(t.timer.index, o.timer.index), strings.Compare(t.tag, o.tag))
}

// holds is where the pending timer holds the watermark back, noTime if it does not.
func (t *tagTimer) holds() eventtime.Time {
	if t.timer.by == byWatermark && t.out >= t.at {
		return noTime
	}
	return t.out
}

func noTimes(n int) []eventtime.Time {
	ts := make([]eventtime.Time, n)
	for i := range ts {
		ts[i] = noTime
	}
	return ts
}

func (s *schema) newMore() *moreTimers {
	return &moreTimers{clock: noTime, hold: noTime, outs: noTimes(len(s.slots))}
}

func (m *moreTimers) size() int {
	if m == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*m)) + timerTimeBytes*len(m.outs) + m.bytes
	for by := range m.tags {
		n += cap(m.tags[by]) * int(unsafe.Sizeof(tagTimer{}))
	}
	return n
}

// placeTimers gives slots to timers.
func (s *schema) placeTimers() {
	for by := range domains {
		for _, t := range s.timers {
			if t.family || t.by != byWatermark {
				s.clocks = true
			}
			if !t.family && t.by == by {
				t.slot = len(s.slots)
				s.slots = append(s.slots, t)
			}
		}
		if by == byWatermark {
			s.events = len(s.slots)
		}
	}
}

// pending are the times of a domain, but for families; first is the slot of the first.
func (s *schema) pending(k *keyState, by domain) (times []eventtime.Time, first int) {
	if by == byWatermark {
		return k.timers[:s.events], 0
	}
	return k.timers[s.events:], s.events
}

// next returns the pending timer of a domain that fires first, and noTime if there is none. The tag of one of a family is
// that of the first of tags.
func (s *schema) next(k *keyState, by domain) (first *timer, at eventtime.Time) {
	at = noTime
	times, slot := s.pending(k, by)
	for i, t := range times {
		if t < at {
			first, at = s.slots[slot+i], t
		}
	}
	if k.more != nil && len(k.more.tags[by]) > 0 {
		t := &k.more.tags[by][0]
		if t.at < at || t.at == at && t.timer.index < first.index {
			return t.timer, t.at
		}
	}
	return first, at
}

// leastHold is the least time at which a pending timer holds the watermark back, noTime if none does.
func (s *schema) leastHold(k *keyState) eventtime.Time {
	hold := noTime
	if k.more == nil {
		return hold
	}
	for i, at := range k.timers {
		if out := k.more.outs[i]; at != noTime && (i >= s.events || out < at) {
			hold = min(hold, out)
		}
	}
	for by := range k.more.tags {
		for i := range k.more.tags[by] {
			hold = min(hold, k.more.tags[by][i].holds())
		}
	}
	return hold
}

// find returns where a tag is.
func (m *moreTimers) find(t *timer, tag string) (i int, ok bool) {
	for i := range m.tags[t.by] {
		if p := &m.tags[t.by][i]; p.timer == t && p.tag == tag {
			return i, true
		}
	}
	return 0, false
}

func (m *moreTimers) put(p tagTimer) {
	tags := m.tags[p.timer.by]
	i, _ := slices.BinarySearchFunc(tags, &p, func(e tagTimer, p *tagTimer) int { return e.before(p) })
	m.tags[p.timer.by] = slices.Insert(tags, i, p)
	m.bytes += len(p.tag)
}

func (m *moreTimers) remove(by domain, i int) {
	tags := m.tags[by]
	m.bytes -= len(tags[i].tag)
	switch {
	case len(tags) == 1:
		m.tags[by] = nil
	case i == 0: // the one that fires: many may, one after the other
		tags[0] = tagTimer{}
		m.tags[by] = tags[1:]
	default:
		m.tags[by] = slices.Delete(tags, i, i+1)
	}
}

// isPending says whether a timer, of a family that of the tag, is pending.
func (k *keyState) isPending(t *timer, tag string) bool {
	if !t.family {
		return k.timers[t.slot] != noTime
	}
	if k.more == nil {
		return false
	}
	_, ok := k.more.find(t, tag)
	return ok
}

// take removes the timer that fires first and returns the rest of it.
func (k *keyState) take(t *timer) (out eventtime.Time, tag string) {
	out = noTime
	if t.family {
		p := k.more.tags[t.by][0]
		k.more.remove(t.by, 0)
		return p.out, p.tag
	}
	k.timers[t.slot] = noTime
	if k.more != nil {
		out, k.more.outs[t.slot] = k.more.outs[t.slot], noTime
	}
	return out, ""
}

// timerFields is the number of fields that appendTimers makes.
func (s *schema) timerFields(k *keyState) (n int) {
	for _, t := range k.timers {
		if t != noTime {
			n++
		}
	}
	if k.more != nil {
		for _, t := range s.timers {
			if t.family && k.more.has(t) {
				n++
			}
		}
	}
	if k.wakes() {
		n++
	}
	return n
}

func (m *moreTimers) has(t *timer) bool {
	return slices.ContainsFunc(m.tags[t.by], func(p tagTimer) bool { return p.timer == t })
}

// wakes says whether there is an entry in an index.
func (k *keyState) wakes() bool {
	return k.wake != noTime || k.more != nil && (k.more.clock != noTime || k.more.hold != noTime)
}

func (s *schema) appendTimers(dst []byte, k *keyState) []byte {
	for i, t := range s.timers {
		b := s.buf[:0]
		switch {
		case t.family && k.more != nil && k.more.has(t):
			b = k.more.append(b, t)
		case !t.family && k.timers[t.slot] != noTime:
			b = binary.AppendVarint(b, int64(k.timers[t.slot]))
			if k.more != nil && k.more.outs[t.slot] != noTime {
				b = binary.AppendVarint(b, int64(k.more.outs[t.slot]))
			}
		default:
			continue
		}
		s.buf = b
		dst = appendField(dst, s.ids[len(s.cells)+i], b)
	}
	if !k.wakes() {
		return dst
	}
	b := binary.AppendVarint(s.buf[:0], int64(k.wake))
	if k.more != nil && (k.more.clock != noTime || k.more.hold != noTime) {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(k.more.clock)), int64(k.more.hold))
	}
	s.buf = b
	return appendField(dst, wakeID, b)
}

func appendField(dst []byte, id uint64, content []byte) []byte {
	dst = binary.AppendUvarint(dst, id)
	dst = binary.AppendUvarint(dst, uint64(len(content)))
	return append(dst, content...)
}

// append encodes the pending timers of a family.
func (m *moreTimers) append(dst []byte, family *timer) []byte {
	for i := range m.tags[family.by] {
		t := &m.tags[family.by][i]
		if t.timer != family {
			continue
		}
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(t.at)), int64(t.out))
		dst = binary.AppendUvarint(dst, uint64(len(t.tag)))
		dst = append(dst, t.tag...)
	}
	return dst
}

// decodeTimer sets a timer, or all of a family, which must not be pending yet.
func (s *schema) decodeTimer(k *keyState, t *timer, src []byte) (err error) {
	if t.family {
		return s.decodeFamily(k, t, src)
	}
	if k.timers[t.slot] != noTime {
		return errors.New("stored twice")
	}
	at, rest, err := decodeTime(src, false)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		if k.more == nil {
			k.more = s.newMore()
		}
		if k.more.outs[t.slot], rest, err = decodeTime(rest, false); err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d bytes too many", len(rest))
		}
	} else if t.by == byClock {
		err = errors.New("has no output timestamp")
	}
	k.timers[t.slot] = at
	return err
}

func (s *schema) decodeFamily(k *keyState, family *timer, src []byte) (err error) {
	if k.more.has(family) {
		return errors.New("stored twice")
	}
	tags := k.more.tags[family.by]
	n := len(tags)
	for len(src) > 0 {
		p := tagTimer{timer: family}
		if p.at, src, err = decodeTime(src, false); err == nil {
			p.out, src, err = decodeTime(src, family.by == byWatermark)
		}
		if err != nil {
			return err
		}
		l, w := binary.Uvarint(src)
		if w <= 0 || l > uint64(len(src)-w) {
			return errors.New("a tag is malformed")
		}
		p.tag, src = string(src[w:w+int(l)]), src[w+int(l):]
		if i := len(tags); i > n && tags[i-1].before(&p) >= 0 {
			return errors.New("its timers are not in order")
		}
		tags = append(tags, p)
		k.more.bytes += len(p.tag)
	}
	if n > 0 { // another family's
		slices.SortStableFunc(tags, func(a, b tagTimer) int { return a.before(&b) })
	}
	k.more.tags[family.by] = tags
	return nil
}

// decodeWake sets the times at which there are entries in the indexes.
func (s *schema) decodeWake(k *keyState, src []byte) error {
	if k.wakes() {
		return errors.New("wake-up: stored twice")
	}
	wake, rest, err := decodeTime(src, true)
	if err == nil && len(rest) > 0 {
		if k.more == nil {
			k.more = s.newMore()
		}
		if k.more.clock, rest, err = decodeTime(rest, true); err == nil {
			k.more.hold, rest, err = decodeTime(rest, true)
		}
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return fmt.Errorf("wake-up: %w", err)
	}
	k.wake = wake
	return nil
}

// decodeTime decodes a time, or, with none, noTime.
func decodeTime(src []byte, none bool) (t eventtime.Time, rest []byte, err error) {
	v, w := binary.Varint(src)
	t = eventtime.Time(v)
	if w <= 0 || t != eventtime.Clamp(t) && !(none && t == noTime) {
		return t, src, fmt.Errorf("%x does not begin with a time", src)
	}
	return t, src[w:], nil
}

// has says whether there are timers of a domain.
func (s *schema) has(by domain) bool {
	return slices.ContainsFunc(s.timers, func(t *timer) bool { return t.by == by })
}
