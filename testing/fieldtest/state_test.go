package fieldtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
)

// commanded does with its cells what its elements say. It emits what it reads.
type commanded struct {
	Clock state.Clock
	bag   state.Bag[string]
	value state.Value[string]
	list  state.OrderedList[string]
	old   state.OrderedList[string]
}

func (f *commanded) Declare(d *sdk.KeyedDecl) {
	f.bag = state.NewBag[string](d, "bag")
	f.value = state.NewValue[string](d, "value", state.TTL(10*ms, state.OnWrite, f.Clock))
	f.list = state.NewOrderedList[string](d, "list")
	f.old = state.NewOrderedList[string](d, "old", state.TTL(90*ms, state.OnWrite, f.Clock))
}

func (f *commanded) ProcessElement(_ *sdk.ProcessContext, key, do string, emit *sdk.Emitter[string]) error {
	var read []any
	switch do {
	case "add 1":
		f.bag.Add("1")
		return nil
	case "bag":
		before, empty := f.bag.All(), f.bag.Len() == 0
		f.bag.Add("17")
		read = append(read, slices.Collect(before), empty, slices.Collect(f.bag.All()))
		f.bag.Clear()
		f.bag.Add("2")
		read = append(read, slices.Collect(f.bag.All()), slices.Collect(before))
	case "bag again":
		read = append(read, slices.Collect(f.bag.All()))
	case "value":
		v, ok := f.value.Lookup()
		read = append(read, v, ok)
	case "add to lists":
		f.list.Add(at(10), key)
		f.old.Add(at(10), key)
		return nil
	case "expire list":
		f.list.ClearRange(time.Time{}, at(100))
		return nil
	case "lists":
		for _, l := range []state.OrderedList[string]{f.list, f.old} {
			vs := []string{}
			for _, v := range l.All() {
				vs = append(vs, v)
			}
			read = append(read, vs)
		}
	default:
		f.value.Set(do)
		return nil
	}
	emit.Emit(fmt.Sprintf("%q %s: %v", key, do, read))
	return nil
}

func readsOfABag(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(1), k("add 1")...).Watermark(at(2)).At(at(3), k("bag")...).At(at(4), k("bag again")...)
	return sdk.ParDoPerKey("cells", play(p, s), &commanded{})
}

// https://github.com/apache/beam/issues/18582 and 18567: what was read changed after a write. Here nothing of a read is lazy.
func TestReadsAreSnapshots(t *testing.T) {
	everywhere(t, "F1", `"k" bag: [[1] false [1 17] [2] [1]]`, `"k" bag again: [[2]]`)
}

var alike = []string{"key", "key2", "key-1", "ke", "", "key\x00"}

// keysThatBeginWithEachOther expires all of one key: by its command, and by a TTL.
func keysThatBeginWithEachOther(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(10), of(alike[0], "add to lists")...).Watermark(at(11))
	for _, key := range alike[1:] {
		s = s.At(at(20), of(key, "add to lists")...)
	}
	s = s.At(at(21), of(alike[0], "expire list")...).Watermark(at(100))
	for _, key := range alike {
		s = s.At(at(100), of(key, "lists")...)
	}
	return sdk.ParDoPerKey("cells", play(p, s), &commanded{})
}

// https://github.com/quixio/quix-streams/issues/1122: to expire one key took entries of keys that its bytes begin.
func TestExpiryOfAKeyLeavesOthers(t *testing.T) {
	want := []string{`"key" lists: [[] []]`}
	for _, key := range alike[1:] {
		want = append(want, fmt.Sprintf("%q lists: [[%s] [%s]]", key, key, key))
	}
	everywhere(t, "F3", want...)
}

func expiringValue(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(0), k("v")...).Watermark(at(9)).At(at(9), k("value", "w")...).Watermark(at(18)).At(at(18), k("value")...).
		Watermark(at(19)).At(at(19), k("value")...)
	return sdk.ParDoPerKey("cells", play(p, s), &commanded{})
}

// FLINK-40354: what had expired was never removed. This is what is read; rocksdb.TestExpiredValuesLeaveTheFiles is about the files.
func TestValuesLiveAsLongAsTheirTTL(t *testing.T) {
	want := []string{`"k" value: [v true]`, `"k" value: [w true]`, `"k" value: [ false]`}
	everywhere(t, "F5", want...)
	directly(t, "F5 by the clock", func(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
		s := script{}.At(at(0), k("v")...).Clock(at(9)).At(at(0), k("value", "w")...).Clock(at(18)).At(at(0), k("value")...).Clock(at(19)).At(at(0), k("value")...)
		return sdk.ParDoPerKey("cells", play(p, s), &commanded{Clock: state.ProcessingTime})
	}, want...)
}
