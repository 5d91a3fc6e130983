package sdk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/teststream"
)

// sortedOf is the values of an Iterable in order.
func sortedOf[V int64 | string](it sdk.Iterable[V]) []V { return slices.Sorted(it.All()) }

func joinedLine(kv sdk.KV[int64, sdk.CoGroup3[int64, string, int64]]) string {
	return fmt.Sprint(kv.Key, " ", sortedOf(kv.Value.A), sortedOf(kv.Value.B), sortedOf(kv.Value.C))
}

// Each key has all values of each input, whichever inputs have some, at any parallelism.
func TestCoGroupByKey3IsEachInputByKey(t *testing.T) {
	seed, _ := seeds.From(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 3))
	type row struct {
		key, value int64
	}
	var rows [3][]row
	for i := range rows {
		for range rnd.IntN(30) {
			rows[i] = append(rows[i], row{rnd.Int64N(8), rnd.Int64N(5)})
		}
	}
	want := map[int64]*sdk.CoGroup3[int64, string, int64]{}
	for k := range int64(8) {
		var a, c []int64
		var b []string
		for _, r := range rows[0] {
			if r.key == k {
				a = append(a, r.value)
			}
		}
		for _, r := range rows[1] {
			if r.key == k {
				b = append(b, fmt.Sprint(r.value))
			}
		}
		for _, r := range rows[2] {
			if r.key == k {
				c = append(c, r.value)
			}
		}
		if len(a)+len(b)+len(c) > 0 {
			want[k] = &sdk.CoGroup3[int64, string, int64]{A: sdk.IterableOf(a...), B: sdk.IterableOf(b...), C: sdk.IterableOf(c...)}
		}
	}
	var lines []string
	for k, g := range want {
		lines = append(lines, joinedLine(sdk.Pair(k, *g)))
	}
	slices.Sort(lines)
	for _, parallelism := range []int{1, 3} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
			read := func(i int) sdk.PCollection[sdk.KV[int64, int64]] {
				kvs := make([]sdk.KV[int64, int64], len(rows[i]))
				for k, r := range rows[i] {
					kvs[k] = sdk.Pair(r.key, r.value)
				}
				return sdk.Create(fmt.Sprint("in ", i), p, kvs...)
			}
			texts := sdk.MapValues("texts", read(1), func(v int64) string { return fmt.Sprint(v) })
			return sdk.Map("line", sdk.CoGroupByKey3("join", read(0), texts, read(2)), joinedLine)
		}, ptest.Parallelism(parallelism))
		if d := cmp.Diff(lines, got); d != "" {
			t.Errorf("parallelism %d, %s (-want +got):\n%s", parallelism, seeds.Rerun(t, seed), d)
		}
	}
}

// Late elements of each input go to the LateTo of that input, though all have one type.
func TestCoGroupByKey3IsWindowedAndKeepsLateElements(t *testing.T) {
	type in struct{ Input, Value int64 }
	ms := time.UnixMilli
	script := teststream.Script[in]{}.
		At(ms(1), in{0, 1}, in{1, 11}).At(ms(4), in{0, 2}, in{2, 21}).Watermark(ms(10)). // the first window fires
		At(ms(5), in{0, 3}, in{2, 23}).At(ms(9), in{1, 13}).                             // late, each in its input
		At(ms(16), in{2, 24})
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[string] {
		all := sdk.WindowInto("windows", teststream.Read("in", p, script), window.Fixed(10*time.Millisecond))
		var late, inputs [3]sdk.PCollection[sdk.KV[string, int64]]
		for i, part := range sdk.Partition("inputs", all, 3, func(v in) int { return int(v.Input) }) {
			inputs[i] = sdk.Map(fmt.Sprint("key ", i), part, func(v in) sdk.KV[string, int64] { return sdk.Pair("k", v.Value) })
		}
		joined := sdk.CoGroupByKey3("join", inputs[0], inputs[1], inputs[2], sdk.LateTo(&late[0]), sdk.LateTo(&late[1]), sdk.LateTo(&late[2]))
		lines := sdk.ParDoFunc("line", joined, func(c *sdk.ProcessContext, kv sdk.KV[string, sdk.CoGroup3[int64, int64, int64]], emit *sdk.Emitter[string]) error {
			emit.Emit(fmt.Sprint(c.Window().Start().UnixMilli(), ": ", sortedOf(kv.Value.A), sortedOf(kv.Value.B), sortedOf(kv.Value.C)))
			return nil
		})
		for i := range late {
			l := sdk.Map(fmt.Sprint("late ", i), late[i], func(kv sdk.KV[string, int64]) string { return fmt.Sprint("late in ", i, ": ", kv.Value) })
			lines = sdk.Flatten(fmt.Sprint("and late ", i), lines, l)
		}
		return lines
	})
	want := []string{"0: [1 2] [11] [21]", "10: [] [] [24]", "late in 0: 3", "late in 1: 13", "late in 2: 23"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func ExampleCoGroupByKey3() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		names := sdk.Create("names", p, sdk.Pair(1, "Ada"), sdk.Pair(2, "Bob"))
		orders := sdk.Create("orders", p, sdk.Pair(1, "mill"), sdk.Pair(1, "sieve"))
		payments := sdk.Create("payments", p, sdk.Pair(1, int64(70)))
		all := sdk.CoGroupByKey3("customers", names, orders, payments)
		return sdk.Map("line", all, func(kv sdk.KV[int, sdk.CoGroup3[string, string, int64]]) string {
			return fmt.Sprint(kv.Key, " ", sortedOf(kv.Value.A), sortedOf(kv.Value.B), sortedOf(kv.Value.C))
		})
	})
	// Output:
	// 1 [Ada] [mill sieve] [70]
	// 2 [Bob] [] []
}
