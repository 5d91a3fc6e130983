package kernel

import (
	"hash/maphash"
	"reflect"
	"unsafe"
)

// index finds the resident entry of a native key: a hash table with open addressing and linear probing,
// at most half full, of pointers to the entries, which hold the keys. It is there because the entry is
// touched anyway: a Go map would hold a second copy of the key and cost twice the time.
type index[K comparable, A any] struct {
	slots []*entry[K, A] // a power of two
	n     int
	shift uint // 64 less the bits of len(slots)
}

// hasher hashes native keys. Integers of 8 bytes go without a call.
type hasher[K comparable] struct{ word bool }

func newHasher[K comparable]() hasher[K] {
	switch reflect.TypeFor[K]().Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return hasher[K]{word: unsafe.Sizeof(*new(K)) == 8}
	}
	return hasher[K]{}
}

// seed is the same for all tables of a process; the order of an index is never seen.
var seed = maphash.MakeSeed()

func (h hasher[K]) hash(k K) uint64 {
	if h.word {
		x := *(*uint64)(unsafe.Pointer(&k))
		x ^= x >> 32
		return x * 0x9E3779B97F4A7C15
	}
	return maphash.Comparable(seed, k)
}

func (x *index[K, A]) get(hash uint64, k K) *entry[K, A] {
	if len(x.slots) == 0 {
		return nil
	}
	for i := hash >> x.shift; ; i++ {
		e := x.slots[i&uint64(len(x.slots)-1)]
		if e == nil || e.key == k {
			return e
		}
	}
}

// put adds an entry whose key is not there.
func (x *index[K, A]) put(h hasher[K], e *entry[K, A]) {
	if 2*(x.n+1) > len(x.slots) {
		x.grow(h)
	}
	x.n++
	x.place(h.hash(e.key), e)
}

func (x *index[K, A]) place(hash uint64, e *entry[K, A]) {
	i := hash >> x.shift
	for x.slots[i&uint64(len(x.slots)-1)] != nil {
		i++
	}
	x.slots[i&uint64(len(x.slots)-1)] = e
}

func (x *index[K, A]) grow(h hasher[K]) {
	old := x.slots
	x.slots = make([]*entry[K, A], max(16, 2*len(old)))
	x.shift = 64
	for n := len(x.slots); n > 1; n >>= 1 {
		x.shift--
	}
	for _, e := range old {
		if e != nil {
			x.place(h.hash(e.key), e)
		}
	}
}

// remove takes out the entry of a key that is there, and moves up those that probed past it.
func (x *index[K, A]) remove(h hasher[K], k K) {
	mask := uint64(len(x.slots) - 1)
	i := h.hash(k) >> x.shift & mask
	for x.slots[i].key != k {
		i = (i + 1) & mask
	}
	for j := i; ; {
		j = (j + 1) & mask
		e := x.slots[j]
		if e == nil {
			break
		}
		// e may move into the hole at i unless its home lies behind the hole, in (i, j].
		home := h.hash(e.key) >> x.shift & mask
		if (j-home)&mask >= (j-i)&mask {
			x.slots[i] = e
			i = j
		}
	}
	x.slots[i] = nil
	x.n--
}

// reset empties the index and keeps its memory.
func (x *index[K, A]) reset() {
	clear(x.slots)
	x.n = 0
}
