// Package triggering decides when the panes of a window fire: triggers as state machines over explicit state.
//
//	m.Element(&s, now)      // an element has come
//	if m.Ready(&s, now) {   // a pane is due
//		…                   // emit it, unless it is empty
//		m.Fired(&s, now)
//	}
//	w, c := m.Wake(&s, now) // ask again when the watermark is at w, or the clock at c, if no element comes before
//
// One pane at most is due for one element or one wake-up: a trigger that is past its end may be Ready at all times.
//
// The rules, and how they relate to Beam's, are in docs/design/triggers.md.
package triggering

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

// Never is later than any time.
const Never = eventtime.Max + 1

// State is what a trigger knows of one key and window. The zero State is that of a window to which nothing has come.
type State struct {
	// Finished has a bit for each node. That of AfterWatermark says that its end has fired; with late firings it is
	// not finished by that.
	Finished uint64
	// Slots has a count or a time for each leaf. It is nil until the first element has come.
	Slots []int64
}

// Now is what a trigger sees besides elements. Neither Watermark nor Clock goes back from call to call.
type Now struct {
	End       eventtime.Time // of the window, exclusive
	Watermark eventtime.Time // the end has come once it is at or past End
	Clock     eventtime.Time // processing time
}

func (n Now) ended() bool { return n.Watermark >= n.End }

type kind uint8

const (
	never kind = iota
	count
	always // a count of 1 that is never finished
	delay
	watermark
	first
	all
	each
	finally
	repeat
)

// node is one part of a trigger. Nodes are in the order of a walk from the root, parts after what they are part of, so that
// a node with all its parts is a range of nodes and a range of slots.
type node struct {
	kind
	after        int32 // the first node that is not part of this one
	slot, slots  int32 // the slots of this node and its parts
	n            int64 // count: elements; delay: ms
	period, off  int64 // delay: ms, or 0
	early, late  int32 // watermark: its parts, 0 if there are none
	bit, subtree uint64
	// gates are the bits of those AfterWatermark among whose late firings a leaf is: it counts only once all are set.
	gates uint64
}

// Machine is a compiled trigger. It is immutable, and may be used by many goroutines for States of their own.
type Machine struct {
	nodes  []node
	leaves []int32 // nodes with a slot, in the order of slots
	bits   uint64  // that can be set
	ends   uint64  // bits of AfterWatermark
	times  uint64  // and of AfterProcessingTime
	clock  bool
}

// Compile returns the machine of a whole trigger, which is valid and canonical (trigger.Validate, trigger.Canonical).
func Compile(t trigger.Trigger) *Machine {
	m := &Machine{}
	m.add(t, 0)
	return m
}

func (m *Machine) add(t trigger.Trigger, gates uint64) int32 {
	i := int32(len(m.nodes))
	m.nodes = append(m.nodes, node{bit: 1 << i, gates: gates})
	n := node{bit: 1 << i, gates: gates, slot: int32(len(m.leaves))}
	leaf := func(k kind) {
		n.kind = k
		m.leaves = append(m.leaves, i)
	}
	parts := func(k kind, ts ...trigger.Trigger) {
		n.kind = k
		for _, t := range ts {
			m.add(t, gates)
		}
	}
	switch t := t.(type) {
	case trigger.NeverFires:
	case trigger.AlwaysFires:
		leaf(always)
		n.n = 1
	case trigger.Count:
		leaf(count)
		n.n = t.N
	case trigger.ProcessingTime:
		leaf(delay)
		n.n, n.period, n.off = t.Delay.Milliseconds(), t.Period.Milliseconds(), t.Offset.Milliseconds()
		m.clock = true
		m.times |= n.bit
	case trigger.Watermark:
		n.kind = watermark
		m.ends |= n.bit
		m.times |= n.bit
		if t.EarlyPart != nil {
			n.early = m.add(t.EarlyPart, gates)
		}
		if t.LatePart != nil {
			n.late = m.add(t.LatePart, gates|n.bit)
		}
	case trigger.First:
		parts(first, t.Of...)
	case trigger.All:
		parts(all, t.Of...)
	case trigger.Each:
		parts(each, t.Of...)
	case trigger.Finally:
		parts(finally, t.Main, t.Until)
	case trigger.Repeat:
		parts(repeat, t.Of)
	default:
		panic(fmt.Sprintf("trigger %T is not one of package trigger", t))
	}
	n.after, n.slots = int32(len(m.nodes)), int32(len(m.leaves))
	n.subtree = 1<<n.after - 1<<i // 1<<64 is 0, and the difference wraps to what it should be
	if n.kind != never && n.kind != always && n.kind != repeat {
		m.bits |= n.bit
	}
	m.nodes[i] = n
	return i
}

// FollowsWatermark says whether anything in the trigger depends on the watermark.
func (m *Machine) FollowsWatermark() bool { return m.ends != 0 }

// FollowsClock says whether anything in the trigger depends on processing time.
func (m *Machine) FollowsClock() bool { return m.clock }

// Finished says whether the trigger will never be ready again: elements that come now are dropped.
func (m *Machine) Finished(s *State) bool { return m.finished(s, 0) }

func (m *Machine) finished(s *State, i int32) bool {
	n := &m.nodes[i]
	return s.Finished&n.bit != 0 && n.late == 0
}

// Element notes that one element has come.
func (m *Machine) Element(s *State, now Now) {
	if s.Slots == nil {
		s.Slots = make([]int64, len(m.leaves))
	}
	// All leaves that may matter for the pane that the element will be in see it, also those of parts whose turn has
	// not come or has passed: merging windows may change whose turn it is. Whatever fires a pane clears them.
	for i, l := range m.leaves {
		n := &m.nodes[l]
		switch {
		case s.Finished&n.gates != n.gates:
		case n.kind == delay:
			if s.Slots[i] == 0 {
				s.Slots[i] = slotOf(n.target(now.Clock))
			}
		case s.Finished&n.bit == 0: // a count that is finished stays so, whatever merges
			s.Slots[i]++
		}
	}
}

// target is when a delay ends that begins at clock.
func (n *node) target(clock eventtime.Time) eventtime.Time {
	t := clock.Add(n.n)
	if n.period == 0 {
		return t
	}
	if f := t.Floor(n.period, n.off); f != t {
		return f.Add(n.period)
	}
	return t
}

// A slot holds a time as its distance from just before the first, so that 0 means none.
func slotOf(t eventtime.Time) int64    { return int64(eventtime.Clamp(t)-eventtime.Min) + 1 }
func timeOf(slot int64) eventtime.Time { return eventtime.Time(slot-1) + eventtime.Min }

// Ready says whether a pane is due. It does not know whether the pane would be empty.
func (m *Machine) Ready(s *State, now Now) bool {
	return s.Slots != nil && !m.finished(s, 0) && m.ready(s, 0, now)
}

func (m *Machine) ready(s *State, i int32, now Now) bool {
	n := &m.nodes[i]
	switch n.kind {
	case count, always:
		return s.Slots[n.slot] >= n.n
	case delay:
		slot := s.Slots[n.slot]
		return slot != 0 && now.Clock >= timeOf(slot)
	case watermark:
		if s.Finished&n.bit != 0 {
			return n.late != 0 && m.ready(s, n.late, now)
		}
		return now.ended() || n.early != 0 && m.ready(s, n.early, now)
	case first, finally:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			if m.ready(s, p, now) {
				return true
			}
		}
		return false
	case all:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			if !m.finished(s, p) && !m.ready(s, p, now) {
				return false
			}
		}
		return true
	case each:
		p := m.turn(s, i)
		return p < n.after && m.ready(s, p, now)
	case repeat:
		return m.ready(s, i+1, now)
	}
	return false
}

// turn is the first part of node i that is not finished, or what follows the last.
func (m *Machine) turn(s *State, i int32) int32 {
	p := i + 1
	for p < m.nodes[i].after && m.finished(s, p) {
		p = m.nodes[p].after
	}
	return p
}

// Fired notes that the pane for which the trigger was ready has been emitted, or was empty and has not. It says whether the trigger
// is now finished. It is called only while Ready.
func (m *Machine) Fired(s *State, now Now) (finished bool) {
	m.fire(s, 0, now)
	return m.finished(s, 0)
}

func (m *Machine) fire(s *State, i int32, now Now) {
	n := &m.nodes[i]
	switch n.kind {
	case always:
		s.Slots[n.slot] = 0
	case count, delay:
		s.Slots[n.slot] = 0
		s.Finished |= n.bit
	case watermark:
		switch {
		case s.Finished&n.bit != 0: // late
			m.again(s, n.late, now)
			if n.early != 0 {
				m.reset(s, n.early) // a merge may bring it back: it counts from this pane on
			}
		case now.ended():
			m.reset(s, i)
			s.Finished |= n.bit
		default:
			m.again(s, n.early, now)
		}
	case first:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			if m.ready(s, p, now) {
				m.fire(s, p, now)
			} else {
				m.clear(s, p)
			}
		}
		s.Finished |= n.bit
	case all:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			if m.finished(s, p) {
				m.clear(s, p)
			} else {
				m.fire(s, p, now)
			}
		}
		s.Finished |= n.bit
	case each:
		turn := m.turn(s, i)
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			switch {
			case p < turn:
				m.clear(s, p)
			case p == turn:
				m.fire(s, p, now)
			default:
				m.reset(s, p)
			}
		}
		if m.turn(s, i) == n.after {
			s.Finished |= n.bit
		}
	case finally:
		main, until := i+1, m.nodes[i+1].after
		if m.ready(s, until, now) {
			m.fire(s, until, now)
			m.clear(s, main)
			s.Finished |= n.bit
			break
		}
		m.fire(s, main, now) // until goes on: it is about all panes of main
		if m.finished(s, main) {
			s.Finished |= n.bit
		}
	case repeat:
		m.again(s, i+1, now)
	}
}

// again fires node i, which begins anew if that finishes it.
func (m *Machine) again(s *State, i int32, now Now) {
	m.fire(s, i, now)
	if m.finished(s, i) {
		m.reset(s, i)
	}
}

// reset makes node i and its parts what they are in a new window.
func (m *Machine) reset(s *State, i int32) {
	s.Finished &^= m.nodes[i].subtree
	m.clear(s, i)
}

// clear forgets the pane that node i and its parts were waiting for, but not which of them are finished.
func (m *Machine) clear(s *State, i int32) {
	n := &m.nodes[i]
	clear(s.Slots[n.slot:n.slots])
}

// Merge makes dst the state of a window that dst's and those of from have become; now.End is its end. It is also called, with nothing
// in from, when dst's window has another end, and before Element for the element that has made them one. It may keep and change the
// slots of any of them; those of from are dead.
func (m *Machine) Merge(dst *State, from []State, now Now) {
	if dst.Slots == nil {
		for i := range from {
			if from[i].Slots != nil {
				*dst, from = from[i], from[i+1:]
				break
			}
		}
		if dst.Slots == nil {
			return
		}
	}
	every, any := dst.Finished, dst.Finished
	for i := range from {
		if from[i].Slots != nil {
			every &= from[i].Finished
			any |= from[i].Finished
		}
	}
	// What is finished for a time that has passed is so in the merged window if it is in each: else a pane has yet to fire
	// for it. An end, moreover, must have come.
	bits := any&^m.times | every&m.times
	if !now.ended() {
		bits &^= m.ends
	}
	dst.Finished = bits
	for i := range from {
		if from[i].Slots != nil {
			m.mergeSlots(dst.Slots, from[i].Slots)
		}
	}
	revived := any & m.ends &^ bits
	for i := int32(len(m.nodes)) - 1; i >= 0; i-- {
		n := &m.nodes[i]
		switch n.kind {
		case count:
			if dst.Finished&n.bit != 0 {
				dst.Slots[n.slot] = 0
			}
		case watermark:
			if n.late != 0 && dst.Finished&n.bit == 0 {
				m.reset(dst, n.late)
			}
		case first, all, each, finally:
			// What is finished in each of the windows stays so, unless that was for an end which is now to come.
			over := every&n.bit != 0 && revived&n.subtree == 0
			if over || m.merged(dst, i) {
				dst.Finished |= n.bit
			} else {
				dst.Finished &^= n.bit
			}
		}
	}
}

func (m *Machine) mergeSlots(dst, from []int64) {
	for i, l := range m.leaves {
		switch {
		case m.nodes[l].kind != delay:
			dst[i] += from[i]
		case dst[i] == 0 || from[i] != 0 && from[i] < dst[i]:
			dst[i] = from[i]
		}
	}
}

// merged says whether node i is finished because of what its parts are.
func (m *Machine) merged(s *State, i int32) bool {
	n := &m.nodes[i]
	finished := false
	for p := i + 1; p < n.after; p = m.nodes[p].after {
		if finished = m.finished(s, p); finished == (n.kind == first || n.kind == finally) {
			break
		}
	}
	return finished
}

// Wake returns the earliest watermark and clock at which Ready may become true although no element comes; Never if none.
// Both are later than now: what is due now is for Ready, which is asked first.
func (m *Machine) Wake(s *State, now Now) (watermark, clock eventtime.Time) {
	if s.Slots == nil || m.finished(s, 0) {
		return Never, Never
	}
	return m.wake(s, 0, now)
}

func (m *Machine) wake(s *State, i int32, now Now) (w, c eventtime.Time) {
	n := &m.nodes[i]
	w, c = Never, Never
	switch n.kind {
	case delay:
		if slot := s.Slots[n.slot]; slot != 0 && now.Clock < timeOf(slot) {
			c = timeOf(slot)
		}
	case watermark:
		switch {
		case s.Finished&n.bit != 0:
			if n.late != 0 {
				return m.wake(s, n.late, now)
			}
		case !now.ended():
			if n.early != 0 {
				w, c = m.wake(s, n.early, now)
			}
			w = min(w, now.End)
		}
	case first, finally:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			pw, pc := m.wake(s, p, now)
			w, c = min(w, pw), min(c, pc)
		}
	case all:
		for p := i + 1; p < n.after; p = m.nodes[p].after {
			if m.finished(s, p) || m.ready(s, p, now) {
				continue
			}
			pw, pc := m.wake(s, p, now)
			if pw == Never && pc == Never {
				return Never, Never // it needs an element
			}
			w, c = min(w, pw), min(c, pc)
		}
	case each:
		if p := m.turn(s, i); p < n.after {
			return m.wake(s, p, now)
		}
	case repeat:
		return m.wake(s, i+1, now)
	}
	return w, c
}

// FiresAtEnd says whether the trigger is always ready when the watermark comes to the end of the window.
func (m *Machine) FiresAtEnd() bool { return m.nodes[0].kind == watermark }
