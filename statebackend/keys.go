package statebackend

import (
	"encoding/binary"

	"github.com/millstream/millstream/internal/eventtime"
)

// The layout of keys, so that what is read or dropped together lies together (docs/format/state-keys.md):
//
//	windowed   'w' | table | window end | window start | key group | key
//	keyed      'k' | table | key group | length of key | key | cell
//
// Firing and dropping a window is one range, and so are all windows that end by a time, and all cells of a key. No
// range of one key, table or window contains an entry of another, whatever their bytes: what stands before the
// variable part has a fixed width, and a key that something follows is preceded by its length.

// Table tells apart the tables that one operator keeps in its Backend, for example the two sides of a join.
type Table byte

const (
	windowedTag = 'w'
	keyedTag    = 'k'

	windowedGroupAt = 2 + 8 + 8
	keyedGroupAt    = 2
)

// AppendWindowKey appends the key of an entry of a window [start, end): key, in its canonical encoding, is in group g.
func AppendWindowKey(dst []byte, t Table, start, end eventtime.Time, g KeyGroup, key []byte) []byte {
	dst = appendWindow(dst, t, start, end)
	dst = binary.BigEndian.AppendUint16(dst, uint16(g))
	return append(dst, key...)
}

// AppendKeyed appends the part that all entries of a key share. The caller appends the cell, any bytes that tell the
// entries of the key apart.
func AppendKeyed(dst []byte, t Table, g KeyGroup, key []byte) []byte {
	dst = append(dst, keyedTag, byte(t))
	dst = binary.BigEndian.AppendUint16(dst, uint16(g))
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

// WindowRange is the range of all entries of one window.
func WindowRange(t Table, start, end eventtime.Time) Range {
	return PrefixRange(appendWindow(nil, t, start, end))
}

// WindowsUntil is the range of all entries of windows that end at or before end: those due when the Watermark is end.
func WindowsUntil(t Table, end eventtime.Time) Range {
	return Range{
		Start: []byte{windowedTag, byte(t)},
		End:   PrefixRange(appendTime([]byte{windowedTag, byte(t)}, end)).End,
	}
}

// WindowedTable is the range of all windowed entries of a table.
func WindowedTable(t Table) Range { return PrefixRange([]byte{windowedTag, byte(t)}) }

// KeyRange is the range of all cells of a key.
func KeyRange(t Table, g KeyGroup, key []byte) Range { return PrefixRange(AppendKeyed(nil, t, g, key)) }

// KeyedTable is the range of all keyed entries of a table.
func KeyedTable(t Table) Range { return PrefixRange([]byte{keyedTag, byte(t)}) }

// PrefixRange is the range of all keys that begin with prefix, which holds at least one byte other than 0xff, as
// every key laid out here does.
func PrefixRange(prefix []byte) Range {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return Range{Start: prefix, End: end[:i+1]}
		}
	}
	panic("statebackend: a prefix of nothing but 0xff bytes has no end")
}

// KeyGroupOf returns the key group of an encoded key, and false for bytes that are not laid out as above.
func KeyGroupOf(encoded []byte) (KeyGroup, bool) {
	at := 0
	switch {
	case len(encoded) >= windowedGroupAt+2 && encoded[0] == windowedTag:
		at = windowedGroupAt
	case len(encoded) >= keyedGroupAt+2 && encoded[0] == keyedTag:
		at = keyedGroupAt
	default:
		return 0, false
	}
	return KeyGroup(binary.BigEndian.Uint16(encoded[at:])), true
}

// WindowKey is a decoded key of a window's entry. Key aliases the encoded bytes.
type WindowKey struct {
	Table      Table
	Start, End eventtime.Time
	Group      KeyGroup
	Key        []byte
}

// ParseWindowKey undoes AppendWindowKey; false means that encoded is not such a key.
func ParseWindowKey(encoded []byte) (WindowKey, bool) {
	if len(encoded) < windowedGroupAt+2 || encoded[0] != windowedTag {
		return WindowKey{}, false
	}
	return WindowKey{
		Table: Table(encoded[1]),
		End:   parseTime(encoded[2:]),
		Start: parseTime(encoded[10:]),
		Group: KeyGroup(binary.BigEndian.Uint16(encoded[windowedGroupAt:])),
		Key:   encoded[windowedGroupAt+2:],
	}, true
}

// KeyedKey is a decoded key of a keyed entry. Key and Cell alias the encoded bytes.
type KeyedKey struct {
	Table Table
	Group KeyGroup
	Key   []byte
	Cell  []byte
}

// ParseKeyed undoes AppendKeyed followed by a cell; false means that encoded is not such a key.
func ParseKeyed(encoded []byte) (KeyedKey, bool) {
	if len(encoded) < keyedGroupAt+2 || encoded[0] != keyedTag {
		return KeyedKey{}, false
	}
	rest := encoded[keyedGroupAt+2:]
	n, w := binary.Uvarint(rest)
	if w <= 0 || n > uint64(len(rest)-w) {
		return KeyedKey{}, false
	}
	rest = rest[w:]
	return KeyedKey{
		Table: Table(encoded[1]),
		Group: KeyGroup(binary.BigEndian.Uint16(encoded[keyedGroupAt:])),
		Key:   rest[:n],
		Cell:  rest[n:],
	}, true
}

func appendWindow(dst []byte, t Table, start, end eventtime.Time) []byte {
	return appendTime(appendTime(append(dst, windowedTag, byte(t)), end), start)
}

// appendTime flips the sign bit, so that the order of bytes is the order of times.
func appendTime(dst []byte, t eventtime.Time) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63)
}

func parseTime(b []byte) eventtime.Time { return eventtime.Time(binary.BigEndian.Uint64(b) ^ 1<<63) }
