// Package stats sums, counts and averages.
//
// CountFn, Sum and Mean understand retractions (sdk.AccumulatingAndRetracting): what is taken back is subtracted. Min and Max do
// not, for they forget the values that a retraction might bring back; sdk.GroupByKey keeps all, for a MapValues that takes the
// least.
package stats

import (
	"math"

	"github.com/millstream/millstream/sdk"
)

// Number is what can be added up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64
}

// Count counts how often each element occurs in each window. Of an element that has been taken back as often as it came it says
// 0.
func Count[T comparable](name string, in sdk.PCollection[T], opts ...sdk.GroupOption) (out sdk.PCollection[sdk.KV[T, int64]]) {
	in.Pipeline().Scope(name, func() {
		keyed := sdk.Map("key", in, func(v T) sdk.KV[T, struct{}] { return sdk.KV[T, struct{}]{Key: v} })
		out = sdk.CombinePerKey("count", keyed, CountFn[struct{}]{}, opts...)
	})
	return out
}

// CountFn is the CombineFn that counts. The count of nothing is 0.
type CountFn[T any] struct{}

func (CountFn[T]) CreateAccumulator() int64           { return 0 }
func (CountFn[T]) AddInput(n int64, _ T) int64        { return n + 1 }
func (CountFn[T]) RemoveInput(n int64, _ T) int64     { return n - 1 }
func (CountFn[T]) MergeAccumulators(a, b int64) int64 { return a + b }
func (CountFn[T]) ExtractOutput(n int64) int64        { return n }

// Sum is the CombineFn that adds up. It overflows as T does, and with floats the order of addition, which
// is not defined, shows in the last digits. The sum of nothing is 0.
//
// With integers RemoveInput is exact, whatever overflowed. With floats it leaves what rounding made: 1e16 + 1 - 1e16 is 0, not 1.
// An infinity or NaN never leaves.
type Sum[T Number] struct{}

func (Sum[T]) CreateAccumulator() T       { return 0 }
func (Sum[T]) AddInput(s, v T) T          { return s + v }
func (Sum[T]) RemoveInput(s, v T) T       { return s - v }
func (Sum[T]) MergeAccumulators(a, b T) T { return a + b }
func (Sum[T]) ExtractOutput(s T) T        { return s }

// MeanAcc is the accumulator of Mean.
type MeanAcc struct {
	Sum   float64
	Count int64
}

// Mean is the CombineFn of the arithmetic mean, in float64: exact sums of integers up to 2^53. The mean of
// nothing is NaN. RemoveInput is as exact as that of Sum[float64]: of integers up to the same bound.
type Mean[T Number] struct{}

func (Mean[T]) CreateAccumulator() MeanAcc { return MeanAcc{} }
func (Mean[T]) AddInput(a MeanAcc, v T) MeanAcc {
	return MeanAcc{a.Sum + float64(v), a.Count + 1}
}
func (Mean[T]) RemoveInput(a MeanAcc, v T) MeanAcc {
	return MeanAcc{a.Sum - float64(v), a.Count - 1}
}
func (Mean[T]) MergeAccumulators(a, b MeanAcc) MeanAcc {
	return MeanAcc{a.Sum + b.Sum, a.Count + b.Count}
}
func (Mean[T]) ExtractOutput(a MeanAcc) float64 {
	if a.Count == 0 {
		return math.NaN()
	}
	return a.Sum / float64(a.Count)
}

// Min is the CombineFn of the least value; NaN is less than all. The least of nothing is the greatest T: for
// floats +Inf.
type Min[T Number] struct{}

func (Min[T]) CreateAccumulator() T       { return greatest[T]() }
func (Min[T]) AddInput(m, v T) T          { return min(m, v) }
func (Min[T]) MergeAccumulators(a, b T) T { return min(a, b) }
func (Min[T]) ExtractOutput(m T) T        { return m }

// Max is the CombineFn of the greatest value; NaN is greater than all. The greatest of nothing is the least
// T: for floats -Inf.
type Max[T Number] struct{}

func (Max[T]) CreateAccumulator() T       { return least[T]() }
func (Max[T]) AddInput(m, v T) T          { return max(m, v) }
func (Max[T]) MergeAccumulators(a, b T) T { return max(a, b) }
func (Max[T]) ExtractOutput(m T) T        { return m }

func greatest[T Number]() T {
	var zero T
	one := zero + 1
	if one/2 != 0 {
		return one / zero // +Inf
	}
	v := one
	for next := v*2 + 1; next > v; next = v*2 + 1 {
		v = next
	}
	return v
}

func least[T Number]() T {
	var zero T
	switch one := zero + 1; {
	case one/2 != 0:
		return -one / zero // -Inf
	case zero-1 > 0: // unsigned
		return 0
	default:
		return -greatest[T]() - 1
	}
}
