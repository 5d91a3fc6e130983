package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"unsafe"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
)

// Table is the keyed state of one operator: an accumulator for each key and window. It is a typed
// write-back cache, bounded in bytes, above a backend that holds what it evicts.
//
// Entries lie in segments, one a window, so that a window fires and goes as a whole. A window that never
// spilled never touches the backend.
//
// Checkpoints are epochs. A barrier closes the epoch; entries that changed in it are encoded later, a few
// at a time (see tableSnapshot), and each at the latest before it is changed again, evicted or removed.
// So the one rule for users of an entry is: call touch before changing it.
//
// A Table belongs to its operator's goroutine.
type Table[K comparable, A any] struct {
	id      statebackend.Table
	key     tableKey[K]
	native  bool // Go's == on K is equality of keys
	hasher  hasher[K]
	tail    int // bytes at the end of an encoded key that have no part in its key group
	acc     coder.Coder[A]
	size    func(*A) int // bytes of an accumulator beyond its struct; nil if there are none
	keyHeap func(*K) int // likewise of a key
	backend statebackend.Backend
	groups  uint64
	owned   statebackend.KeyGroupRange
	track   bool // there will be checkpoints
	max     int64

	used     int64 // bytes resident, roughly
	resident int
	segments map[window.Window]*segment[K, A]
	recent   *segment[K, A]   // found last
	clock    []*segment[K, A] // all segments, in the order of the eviction hand; segment.clockAt is the position
	hand     int
	evicts   bool // the limit was reached: entries are marked when used
	spilled  int  // segments with entries in the backend

	epoch     uint32           // of changes now; 0 is never
	open      changes          // operations of this epoch, as they happened
	dirty     []*segment[K, A] // with entries changed in this epoch; segment.dirtyAt is the position
	pending   *tableSnapshot[K, A]
	writes    statebackend.Batch // for the backend, not yet written
	misses    statebackend.Keys
	missedIn  []missed[K, A]
	keyBuf    []byte
	valBuf    []byte
	free      []*segment[K, A] // to be used again
	freeBytes int64            // of their chunks
	firing    *segment[K, A]   // a removing pass over it is unfinished
}

type missed[K comparable, A any] struct {
	seg *segment[K, A]
	key K
}

// entry is one key of one window.
type entry[K comparable, A any] struct {
	acc A
	key K
	header
	epoch uint32 // in which it changed last
	saved uint32 // newest epoch whose snapshot has it, or was taken before it came
	at    int32  // position in segment.dirty, if epoch is the table's
	size  int32  // counted for it
	flags uint8
}

const (
	flagClean  uint8 = 1 << iota // the backend holds this version
	flagStored                   // the backend or a checkpoint may hold some version
	flagDead                     // gone
	flagUsed                     // since the eviction hand last passed
)

// segment is one window of a table.
type segment[K comparable, A any] struct {
	win     window.Window
	native  index[K, A]
	encoded map[string]*entry[K, A] // by canonical bytes, for keys whose == is another relation
	chunks  [][]entry[K, A]
	n       int            // entries of chunks that were ever used
	vacant  []*entry[K, A] // of these, free again
	hand    int

	dirty   []*entry[K, A] // changed in the table's epoch
	pending []*entry[K, A] // changed in the epoch being encoded
	spilled bool           // the backend may hold entries that are not resident
	stored  bool           // the backend or a checkpoint may hold entries
	dirtyAt int
	clockAt int

	fireAt int64 // elements since the last pane that make a pane due; see aggregate
	late   bool  // the watermark has passed the end
	cursor firing
	counts *holdCounts // of holds; nil elsewhere
}

const never = int64(1) << 62

// tableKey encodes keys canonically: a coder.Key, or see wakeKeys.
type tableKey[K comparable] interface {
	Append(dst []byte, k K) ([]byte, error)
	Decode(src []byte) (k K, rest []byte, err error)
}

// tableConfig is what makes a Table.
type tableConfig[K comparable, A any] struct {
	key  tableKey[K]
	acc  coder.Coder[A]
	size func(*A) int
}

func newTable[K comparable, A any](c tableConfig[K, A], o *OpenContext) *Table[K, A] {
	k, _ := c.key.(coder.Key[K])
	t := &Table[K, A]{
		key: c.key, native: k.Native, hasher: newHasher[K](), acc: c.acc, size: c.size, keyHeap: Footprint[K](), backend: o.Backend, groups: uint64(o.Groups),
		owned: ownedGroups(o.Subtask, o.Groups), track: o.Track, max: o.CacheMax,
		segments: map[window.Window]*segment[K, A]{}, epoch: 1,
	}
	t.open = newChanges(t.backend, &t.max)
	return t
}

func ownedGroups(s connector.Subtask, groups int) statebackend.KeyGroupRange {
	return statebackend.RangeOf(s.Index, s.Parallelism, groups)
}

// What an entry takes besides itself: three slots of the index on average, or its place in a map, and in the lists of what has
// changed in this epoch and in the one that is encoded, with the room by which lists grow, and in that of vacant entries.
const (
	indexBytes = 3 * 8
	mapBytes   = 40
	listBytes  = 2*8*5/4 + 8
)

// entryBytes is what an entry without heap memory of its own counts for.
func (t *Table[K, A]) entryBytes() int {
	n := int(unsafe.Sizeof(entry[K, A]{}))
	if t.native {
		n += indexBytes
	} else {
		n += mapBytes
	}
	if t.track {
		n += listBytes
	}
	return n
}

// baseBytes is what an entry of a key counts for without its accumulator's heap memory. A key that is not native is there
// twice, once encoded.
func (t *Table[K, A]) baseBytes(k *K) int {
	n := t.entryBytes()
	if t.keyHeap == nil {
		return n
	}
	if t.native {
		return n + t.keyHeap(k)
	}
	return n + 2*t.keyHeap(k)
}

// lookup returns the segment of a window, or nil.
func (t *Table[K, A]) lookup(w window.Window) *segment[K, A] {
	if t.recent == nil || t.recent.win != w {
		t.recent = t.segments[w]
	}
	return t.recent
}

// segment returns the segment of a window, making it if need be.
func (t *Table[K, A]) segment(w window.Window) (s *segment[K, A], made bool) {
	if s := t.lookup(w); s != nil {
		return s, false
	}
	if n := len(t.free); n > 0 {
		s, t.free = t.free[n-1], t.free[:n-1]
		t.freeBytes -= t.slotBytes(s)
	} else {
		s = &segment[K, A]{}
		if !t.native {
			s.encoded = map[string]*entry[K, A]{}
		}
	}
	s.win, s.fireAt, s.clockAt = w, never, len(t.clock)
	t.segments[w] = s
	t.clock = append(t.clock, s)
	return s, true
}

// find returns the resident entry of a key, or nil.
func (t *Table[K, A]) find(s *segment[K, A], k K) (*entry[K, A], error) {
	if t.native {
		return s.native.get(t.hasher.hash(k), k), nil
	}
	var err error
	if t.keyBuf, err = t.key.Append(t.keyBuf[:0], k); err != nil {
		return nil, fmt.Errorf("encode key %v: %w", Brief(k), err)
	}
	return s.encoded[string(t.keyBuf)], nil
}

// insert adds an entry for a key that is not resident. The caller gives it a value.
func (t *Table[K, A]) insert(s *segment[K, A], k K) (*entry[K, A], error) {
	var e *entry[K, A]
	if n := len(s.vacant); n > 0 {
		e, s.vacant = s.vacant[n-1], s.vacant[:n-1]
	} else {
		e = s.slot()
	}
	// A snapshot that is still being encoded is older than the entry: it must not take it up.
	*e = entry[K, A]{key: k, saved: t.epoch - 1}
	e.size = int32(min(t.baseBytes(&e.key), math.MaxInt32))
	if t.evicts {
		e.flags = flagUsed
	}
	if t.native {
		s.native.put(t.hasher, e)
	} else {
		var err error
		if t.keyBuf, err = t.key.Append(t.keyBuf[:0], k); err != nil {
			return nil, fmt.Errorf("encode key %v: %w", Brief(k), err)
		}
		// Equal keys may differ (-0 and 0): what comes out must not depend on which came first.
		if e.key, _, err = t.key.Decode(t.keyBuf); err != nil {
			return nil, fmt.Errorf("decode key %v: %w", Brief(k), err)
		}
		s.encoded[string(t.keyBuf)] = e
	}
	t.used += int64(e.size)
	t.resident++
	return e, nil
}

const chunkMax = 256

// slot returns the next entry that was never used since the segment was made or recycled.
func (s *segment[K, A]) slot() *entry[K, A] {
	c, i := chunkOf(s.n)
	if c == len(s.chunks) { // not min(8<<c, chunkMax): the shift overflows at chunk 60
		s.chunks = append(s.chunks, make([]entry[K, A], 8<<min(c, 5)))
	}
	s.n++
	return &s.chunks[c][i]
}

// at is the entry with ordinal i < s.n.
func (s *segment[K, A]) at(i int) *entry[K, A] {
	c, k := chunkOf(i)
	return &s.chunks[c][k]
}

// chunkOf locates an ordinal: chunks hold 8, 16, 32, 64, 128 and then 256 entries each.
func chunkOf(i int) (chunk, at int) {
	for c := 0; c < 5; c++ {
		if i < 8<<c {
			return c, i
		}
		i -= 8 << c
	}
	return 5 + i/chunkMax, i % chunkMax
}

// touch must come before every change of an entry whose epoch is not the table's.
func (t *Table[K, A]) touch(s *segment[K, A], e *entry[K, A]) error {
	if t.pending != nil {
		if err := t.pending.save(s, e); err != nil {
			return err
		}
	}
	e.epoch = t.epoch
	e.flags &^= flagClean
	if t.track {
		if len(s.dirty) == 0 {
			s.dirtyAt = len(t.dirty)
			t.dirty = append(t.dirty, s)
		}
		e.at = int32(len(s.dirty))
		s.dirty = append(s.dirty, e)
	}
	return nil
}

// resized must follow a change of an accumulator that has heap memory of its own.
func (t *Table[K, A]) resized(e *entry[K, A]) {
	n := int32(min(t.baseBytes(&e.key)+t.size(&e.acc), math.MaxInt32))
	t.used += int64(n - e.size)
	e.size = n
}

// stateKey appends the backend's key of an entry to t.keyBuf[:0] and returns it.
func (t *Table[K, A]) stateKey(s *segment[K, A], k K) ([]byte, error) {
	// The key group stands before the key and is a hash of it: encode the key first, behind room for what
	// comes before.
	var err error
	b := statebackend.AppendWindowKey(t.keyBuf[:0], t.id, s.win.StartTime(), s.win.EndTime(), 0, nil)
	at := len(b)
	if b, err = t.key.Append(b, k); err != nil {
		return nil, fmt.Errorf("encode key %v: %w", Brief(k), err)
	}
	binary.BigEndian.PutUint16(b[at-2:], uint16(statebackend.KeyGroupFor(b[at:len(b)-t.tail], int(t.groups))))
	t.keyBuf = b
	return b, nil
}

// The value of an entry (docs/format/table-entry.md): its header and the accumulator.
func (t *Table[K, A]) encodeValue(e *entry[K, A]) ([]byte, error) {
	b, err := t.acc.Append(e.header.append(t.valBuf[:0]), e.acc)
	if err != nil {
		return nil, fmt.Errorf("encode the state of key %v: %w", Brief(e.key), err)
	}
	t.valBuf = b
	return b, nil
}

func (t *Table[K, A]) decodeValue(src []byte) (h header, acc A, err error) {
	h, src, err = decodeHeader(src)
	if err == nil {
		acc, src, err = t.acc.Decode(src)
	}
	if err == nil && len(src) > 0 {
		err = fmt.Errorf("%d bytes too many", len(src))
	}
	if err != nil {
		err = fmt.Errorf("decode state: %w", err)
	}
	return h, acc, err
}

// miss notes that a key of a spilled segment is wanted; load then fetches all that were noted.
func (t *Table[K, A]) miss(s *segment[K, A], k K) error {
	b, err := t.stateKey(s, k)
	if err != nil {
		return err
	}
	t.misses.Append(b)
	t.missedIn = append(t.missedIn, missed[K, A]{s, k})
	return nil
}

// load makes the missed entries resident, those that exist. It may exceed the limit until evict.
func (t *Table[K, A]) load() error {
	if t.misses.Len() == 0 {
		return nil
	}
	if err := t.writeBack(); err != nil {
		return err
	}
	err := t.backend.Get(&t.misses, func(i int, value []byte) error {
		m := t.missedIn[i]
		if e, err := t.find(m.seg, m.key); e != nil || err != nil {
			return err // noted twice
		}
		h, acc, err := t.decodeValue(value)
		if err != nil {
			return fmt.Errorf("key %v: %w", Brief(m.key), err)
		}
		_, err = t.insertLoaded(m.seg, m.key, h, acc)
		return err
	})
	t.misses.Reset()
	clear(t.missedIn)
	t.missedIn = t.missedIn[:0]
	return err
}

func (t *Table[K, A]) insertLoaded(s *segment[K, A], k K, h header, acc A) (*entry[K, A], error) {
	e, err := t.insert(s, k)
	if err != nil {
		return nil, err
	}
	e.header, e.acc = h, acc
	e.flags |= flagClean | flagStored
	if t.size != nil {
		t.resized(e)
	}
	return e, nil
}

// evict brings the table below its limit, taking what was not used since the hand last came by.
func (t *Table[K, A]) evict() error {
	if t.used <= t.max || t.backend == nil {
		return nil
	}
	t.evicts = true
	for t.used > t.max && t.resident > 0 {
		if t.hand >= len(t.clock) {
			t.hand = 0
		}
		s := t.clock[t.hand]
		if s.hand >= s.n {
			s.hand = 0
			t.hand++
			continue
		}
		e := s.at(s.hand)
		s.hand++
		switch {
		case e.flags&flagDead != 0:
		case e.flags&flagUsed != 0:
			e.flags &^= flagUsed
		default:
			if err := t.evictEntry(s, e); err != nil {
				return err
			}
		}
	}
	return nil
}

const writeBackSize = 256 << 10

func (t *Table[K, A]) evictEntry(s *segment[K, A], e *entry[K, A]) error {
	if t.pending != nil {
		if err := t.pending.save(s, e); err != nil {
			return err
		}
	}
	changed := t.track && e.epoch == t.epoch
	if changed || e.flags&flagClean == 0 {
		k, err := t.stateKey(s, e.key)
		if err != nil {
			return err
		}
		v, err := t.encodeValue(e)
		if err != nil {
			return err
		}
		if changed {
			t.open.Put(k, v)
		}
		if e.flags&flagClean == 0 {
			t.writes.Put(k, v)
		}
	}
	if !s.spilled {
		s.spilled = true
		t.spilled++
	}
	s.stored = true
	if err := t.release(s, e); err != nil {
		return err
	}
	if len(s.vacant) == s.n {
		t.vacate(s)
	}
	if t.writes.Size() > writeBackSize {
		return t.writeBack()
	}
	return nil
}

// vacate gives the memory of a segment back whose entries have all been evicted: slots are used again within their segment
// only, and there may be thousands. None is in use but by a snapshot, which tells by flagDead.
func (t *Table[K, A]) vacate(s *segment[K, A]) {
	s.chunks, s.vacant, s.n, s.hand = nil, nil, 0, 0
	if s.native = (index[K, A]{}); !t.native {
		s.encoded = map[string]*entry[K, A]{}
	}
	if len(s.dirty) == 0 {
		s.dirty = nil
	}
	if len(s.pending) == 0 {
		s.pending = nil
	}
}

// release takes an entry out of the segment.
func (t *Table[K, A]) release(s *segment[K, A], e *entry[K, A]) error {
	if t.native {
		s.native.remove(t.hasher, e.key)
	} else {
		var err error
		if t.keyBuf, err = t.key.Append(t.keyBuf[:0], e.key); err != nil {
			return err
		}
		delete(s.encoded, string(t.keyBuf))
	}
	t.drop(s, e)
	*e = entry[K, A]{flags: flagDead}
	s.vacant = append(s.vacant, e)
	return nil
}

// drop takes an entry out of the counts and out of the list of changed ones.
func (t *Table[K, A]) drop(s *segment[K, A], e *entry[K, A]) {
	if t.track && e.epoch == t.epoch {
		last := s.dirty[len(s.dirty)-1]
		s.dirty[e.at] = last
		last.at = e.at
		s.dirty = s.dirty[:len(s.dirty)-1]
		if len(s.dirty) == 0 {
			t.undirty(s)
		}
	}
	t.used -= int64(e.size)
	t.resident--
}

// undirty takes a segment off the list of changed ones, so that it is on it once.
func (t *Table[K, A]) undirty(s *segment[K, A]) {
	last := t.dirty[len(t.dirty)-1]
	t.dirty[s.dirtyAt] = last
	last.dirtyAt = s.dirtyAt
	t.dirty = t.dirty[:len(t.dirty)-1]
}

// remove deletes the entry of a key.
func (t *Table[K, A]) remove(s *segment[K, A], e *entry[K, A]) error {
	if t.pending != nil {
		if err := t.pending.save(s, e); err != nil {
			return err
		}
	}
	if e.flags&flagStored != 0 {
		if err := t.tombstone(s, e.key); err != nil {
			return err
		}
	}
	return t.release(s, e)
}

func (t *Table[K, A]) tombstone(s *segment[K, A], key K) error {
	k, err := t.stateKey(s, key)
	if err != nil {
		return err
	}
	if t.track {
		t.open.Delete(k)
	}
	t.writes.Delete(k)
	return nil
}

func (t *Table[K, A]) writeBack() error {
	if t.writes.Len() == 0 {
		return nil
	}
	if err := t.backend.Write(&t.writes); err != nil {
		return fmt.Errorf("write state back: %w", err)
	}
	t.writes.Reset()
	return nil
}

// windowRange is the range of a window's entries in the key groups of this subtask, and of no others:
// after a change of parallelism a range delete must not reach into another subtask's keys.
func (t *Table[K, A]) windowRange(w window.Window) statebackend.Range {
	edge := func(g statebackend.KeyGroup) []byte {
		return statebackend.AppendWindowKey(nil, t.id, w.StartTime(), w.EndTime(), g, nil)
	}
	return statebackend.Range{Start: edge(t.owned.First), End: edge(t.owned.End)}
}

// dropSegment removes a window with all its entries.
func (t *Table[K, A]) dropSegment(s *segment[K, A]) error {
	if t.pending != nil {
		if err := t.pending.saveSegment(s); err != nil {
			return err
		}
	}
	if s.stored {
		r := t.windowRange(s.win)
		if t.track {
			t.open.DeleteRange(r)
		}
		t.writes.DeleteRange(r)
	}
	if s.spilled {
		t.spilled--
	}
	if len(s.dirty) > 0 {
		t.undirty(s)
	}
	for i := range s.n {
		if e := s.at(i); e.flags&flagDead == 0 {
			t.used -= int64(e.size)
			t.resident--
		}
	}
	delete(t.segments, s.win)
	t.recent = nil
	last := t.clock[len(t.clock)-1]
	t.clock[s.clockAt] = last
	last.clockAt = s.clockAt
	t.clock = t.clock[:len(t.clock)-1]
	t.recycle(s)
	return nil
}

// slotBytes is what the chunks of a segment take.
func (t *Table[K, A]) slotBytes(s *segment[K, A]) (n int64) {
	for _, c := range s.chunks {
		n += int64(len(c))
	}
	return n * int64(t.entryBytes())
}

// recycle keeps segments with their memory for the windows to come, as many as a watermark may end at once, so that a
// steady stream of windows allocates nothing. They take a quarter of the limit at most.
func (t *Table[K, A]) recycle(s *segment[K, A]) {
	bytes := t.slotBytes(s)
	if (t.freeBytes+bytes)*4 > t.max {
		return
	}
	t.freeBytes += bytes
	for c := range s.chunks {
		clear(s.chunks[c])
	}
	s.native.reset()
	clear(s.encoded)
	clear(s.dirty)
	clear(s.pending)
	clear(s.vacant)
	*s = segment[K, A]{
		native: s.native, encoded: s.encoded, chunks: s.chunks,
		dirty: s.dirty[:0], pending: s.pending[:0], vacant: s.vacant[:0],
	}
	t.free = append(t.free, s)
}

// restore finds the windows that the backend holds.
func (t *Table[K, A]) restore(found func(*segment[K, A])) error {
	r := statebackend.WindowedTable(t.id)
	for {
		var w *window.Window
		err := t.backend.Scan(r, func(key, _ []byte) (bool, error) {
			k, ok := statebackend.ParseWindowKey(key)
			if !ok {
				return false, fmt.Errorf("restored state has a malformed key %x", key)
			}
			win := window.New(k.Start, k.End)
			w = &win
			return false, nil
		})
		if err != nil {
			return err
		}
		if w == nil {
			return nil
		}
		s, _ := t.segment(*w)
		s.spilled, s.stored = true, true
		t.spilled++
		found(s)
		r.Start = statebackend.WindowRange(t.id, w.StartTime(), w.EndTime()).End
	}
}

// insertSorted puts s into its place, which is mostly the last.
func insertSorted[K comparable, A any](list []*segment[K, A], s *segment[K, A]) []*segment[K, A] {
	i := len(list)
	if i > 0 && s.win.Compare(list[i-1].win) < 0 {
		i = sort.Search(len(list), func(i int) bool { return s.win.Compare(list[i].win) < 0 })
	}
	list = append(list, nil)
	copy(list[i+1:], list[i:])
	list[i] = s
	return list
}

// expiry is the watermark that ends the life of a window: that of the global window at the latest (Beam).
func expiry(w window.Window, lateness int64) eventtime.Time {
	return max(w.EndTime(), min(w.EndTime().Add(lateness), eventtime.EndOfGlobalWindow))
}
