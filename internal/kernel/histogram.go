package kernel

import (
	"math"
	"math/bits"
	"sync"
)

// Histogram counts values in buckets, for quantiles. It belongs to its subtask's goroutine; Value may be called by anyone.
type Histogram struct {
	mu sync.Mutex
	s  Summary
	n  [histogramBuckets]int64
}

// Buckets is what a histogram has counted: a summary of all values, exact, and how many are in each bucket.
//
// Bucket 0 has the values below 0. Those from 0 to 7 have a bucket each, 1 to 8; from there on each power of two is cut into
// 8 buckets of one width, so that a bucket is at most an eighth as wide as the values in it are large.
type Buckets struct {
	Summary
	N []int64 // up to the last bucket that has some
}

const (
	subBits          = 3 // a power of two has 2^subBits buckets
	histogramBuckets = 1 + 1<<subBits + (63-subBits)<<subBits
)

// bucketOf is the number of the bucket of v.
func bucketOf(v int64) int {
	switch {
	case v < 0:
		return 0
	case v < 1<<subBits:
		return 1 + int(v)
	}
	shift := bits.Len64(uint64(v)) - 1 - subBits // of the 4 leading bits
	return 1 + shift<<subBits + int(v>>shift)
}

// bucketRange is the least and the greatest value of bucket i, which is not 0.
func bucketRange(i int) (least, greatest int64) {
	i--
	if i < 2<<subBits {
		return int64(i), int64(i)
	}
	shift := i>>subBits - 1
	least = int64(i-shift<<subBits) << shift
	return least, least + 1<<shift - 1
}

// Observe adds one value.
func (h *Histogram) Observe(v int64) {
	i := bucketOf(v)
	h.mu.Lock()
	h.s = h.s.Merge(Summary{1, v, v, v})
	h.n[i]++
	h.mu.Unlock()
}

// Value is what has been counted so far.
func (h *Histogram) Value() Buckets {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := len(h.n)
	for end > 0 && h.n[end-1] == 0 {
		end--
	}
	return Buckets{h.s, append([]int64(nil), h.n[:end]...)}
}

// Merge is what both have counted.
func (b Buckets) Merge(o Buckets) Buckets {
	if len(o.N) > len(b.N) {
		b, o = o, b
	}
	n := append([]int64(nil), b.N...)
	for i, c := range o.N {
		n[i] += c
	}
	return Buckets{b.Summary.Merge(o.Summary), n}
}

// Quantile is a value v such that about the part q of all values, from 0 to 1, are at or below v. It differs from the exact
// one by at most a sixteenth of that; at 0 and 1, and for values from 0 to 15, not at all; among values below 0 it is
// the least. Of nothing it is 0.
func (b Buckets) Quantile(q float64) int64 {
	if b.Count == 0 {
		return 0
	}
	if q <= 0 {
		return b.Min
	}
	if q >= 1 {
		return b.Max
	}
	rank := max(1, int64(math.Ceil(q*float64(b.Count))))
	for i, n := range b.N {
		if rank -= n; rank > 0 {
			continue
		}
		if i == 0 {
			return b.Min
		}
		least, greatest := bucketRange(i)
		return min(max(least+(greatest-least)/2, b.Min), b.Max)
	}
	return b.Max
}
