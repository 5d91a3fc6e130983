package state_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
)

// printSorted runs a keyed step here, on inputs of one key, and prints the lines that it makes.
func printSorted[F sdk.KeyedDoFn[string, string, string]](fn F, inputs ...string) {
	var lines memio.Collector[string]
	_, err := direct.Run(context.Background(), "example", func(p *sdk.Pipeline) error {
		keyed := sdk.KeyBy("key", sdk.Create("in", p, inputs...), func(string) string { return "k" })
		sdk.Write("write", sdk.ParDoPerKey("step", keyed, fn), &lines)
		return nil
	}, direct.Options{})
	if err != nil {
		fmt.Println(err)
	}
	rows := lines.Rows()
	slices.Sort(rows)
	fmt.Println(strings.Join(rows, "\n"))
}

// distinct emits each word once, and again when it has not come for an hour.
type distinct struct{ seen state.Map[string, bool] }

func (s *distinct) Declare(d *sdk.KeyedDecl) {
	s.seen = state.NewMap[string, bool](d, "seen", state.TTL(time.Hour, state.OnReadAndWrite, state.ProcessingTime))
}

func (s *distinct) ProcessElement(_ *sdk.ProcessContext, _, word string, emit *sdk.Emitter[string]) error {
	if !s.seen.Get(word) {
		s.seen.Put(word, true)
		emit.Emit(word)
	}
	return nil
}

func ExampleMap() {
	printSorted(&distinct{}, "a", "b", "a", "c", "b")
	// Output:
	// a
	// b
	// c
}

// pairs emits its inputs two by two.
type pairs struct{ waiting state.Bag[string] }

func (s *pairs) Declare(d *sdk.KeyedDecl) { s.waiting = state.NewBag[string](d, "waiting") }

func (s *pairs) ProcessElement(_ *sdk.ProcessContext, _, word string, emit *sdk.Emitter[string]) error {
	s.waiting.Add(word)
	if s.waiting.Len() < 2 {
		return nil
	}
	emit.Emit(strings.Join(slices.Sorted(s.waiting.All()), "+"))
	s.waiting.Clear()
	return nil
}

func ExampleBag() {
	printSorted(&pairs{}, "x", "x", "x", "x", "x")
	// Output:
	// x+x
	// x+x
}

// byLength emits its words in the order of their lengths, once there are four: the times of an OrderedList may be any numbers.
type byLength struct{ words state.OrderedList[string] }

func (s *byLength) Declare(d *sdk.KeyedDecl) { s.words = state.NewOrderedList[string](d, "words") }

func (s *byLength) ProcessElement(_ *sdk.ProcessContext, _, word string, emit *sdk.Emitter[string]) error {
	s.words.Add(time.UnixMilli(int64(len(word))), word)
	if s.words.Len() < 4 {
		return nil
	}
	for at, w := range s.words.Range(time.UnixMilli(2), time.Time{}) {
		emit.Emit(fmt.Sprint(at.UnixMilli(), " ", w))
	}
	return nil
}

func ExampleOrderedList() {
	printSorted(&byLength{}, "four", "a", "three", "it")
	// Output:
	// 2 it
	// 4 four
	// 5 three
}

// summed emits the sum of the lengths of its words.
type summed struct {
	sum state.Combining[int64, int64, string]
}

func (s *summed) Declare(d *sdk.KeyedDecl) { s.sum = state.NewCombining(d, "sum", total{}) }

func (s *summed) ProcessElement(_ *sdk.ProcessContext, _, word string, emit *sdk.Emitter[string]) error {
	s.sum.Add(int64(len(word)))
	if word == "end" {
		emit.Emit(s.sum.Get())
	}
	return nil
}

func ExampleCombining() {
	printSorted(&summed{}, "ab", "c", "end")
	// Output:
	// sum 6
}
