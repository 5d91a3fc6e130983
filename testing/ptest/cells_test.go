package ptest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
)

// command tells a keyed step what to do with its cells.
type command struct{ Key, Do string }

// commanded does what its elements say. It emits what it reads.
type commanded struct {
	bag   state.Bag[int]
	value state.Value[string]
	list  state.OrderedList[string]
}

func (s *commanded) Declare(d *sdk.KeyedDecl) {
	ttl := state.TTL(10*time.Millisecond, state.OnWrite, state.EventTime)
	s.bag = state.NewBag[int](d, "bag")
	s.value = state.NewValue[string](d, "value", ttl)
	s.list = state.NewOrderedList[string](d, "list", state.TTL(90*time.Millisecond, state.OnWrite, state.EventTime))
}

func (s *commanded) ProcessElement(c *sdk.ProcessContext, key, do string, emit *sdk.Emitter[string]) error {
	at := c.Timestamp().UnixMilli()
	switch do {
	case "bag":
		r := s.bag.All()
		e := s.bag.Len() == 0
		s.bag.Add(17)
		emit.Emit(fmt.Sprint("read ", slices.Collect(r), " empty ", e))
		emit.Emit(fmt.Sprint("again ", slices.Collect(s.bag.All())))
		s.bag.Clear()
		s.bag.Add(2)
		emit.Emit(fmt.Sprint("cleared ", slices.Collect(s.bag.All()), " then ", slices.Collect(r)))
	case "bag 1":
		s.bag.Add(1)
	case "read":
		v, ok := s.value.Lookup()
		emit.Emit(fmt.Sprintf("%02d %q %v", at, v, ok))
	case "add":
		s.list.Add(time.UnixMilli(10), key)
	case "list":
		var got []string
		for _, v := range s.list.All() {
			got = append(got, v)
		}
		emit.Emit(fmt.Sprintf("%q has %q", key, got))
	default:
		s.value.Set(do)
	}
	return nil
}

func runCommands(t *testing.T, script teststream.Script[command]) []string {
	t.Helper()
	return ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		in := teststream.Read("script", p, script)
		keyed := sdk.Map("key", in, func(c command) sdk.KV[string, string] { return sdk.Pair(c.Key, c.Do) })
		return sdk.ParDoPerKey("cells", keyed, &commanded{})
	})
}

// Beam issues 18582 and 18567: an earlier read changed after a write.
func TestReadOfABagIsASnapshot(t *testing.T) {
	got := runCommands(t, teststream.Script[command]{}.
		At(time.UnixMilli(1), command{"k", "bag 1"}).Watermark(time.UnixMilli(2)).At(time.UnixMilli(3), command{"k", "bag"}))
	want := []string{"again [1 17]", "cleared [2] then [1]", "read [1] empty false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FLINK-40354, by event time.
func TestValueIsGoneOnceItsTTLHasPassed(t *testing.T) {
	script := teststream.Script[command]{}.At(time.UnixMilli(0), command{"k", "v"})
	for _, step := range []struct {
		ms int64
		do []string
	}{{9, []string{"read", "w"}}, {18, []string{"read"}}, {19, []string{"read"}}} {
		script = script.Watermark(time.UnixMilli(step.ms))
		for _, do := range step.do {
			script = script.At(time.UnixMilli(step.ms), command{"k", do})
		}
	}
	got := runCommands(t, script)
	if d := cmp.Diff([]string{`09 "v" true`, `18 "w" true`, `19 "" false`}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// quix-streams issue 1122: to expire one key took entries of keys that its bytes begin.
func TestExpiryOfAKeyLeavesOthers(t *testing.T) {
	others := []string{"key2", "key-1", "ke", "", "key\x00"}
	script := teststream.Script[command]{}.At(time.UnixMilli(10), command{"key", "add"}).Watermark(time.UnixMilli(11))
	for _, k := range others {
		script = script.At(time.UnixMilli(20), command{k, "add"})
	}
	script = script.Watermark(time.UnixMilli(100))
	want := []string{`"key" has []`}
	script = script.At(time.UnixMilli(100), command{"key", "list"})
	for _, k := range others {
		script = script.At(time.UnixMilli(100), command{k, "list"})
		want = append(want, fmt.Sprintf("%q has [%q]", k, k))
	}
	got := runCommands(t, script)
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
