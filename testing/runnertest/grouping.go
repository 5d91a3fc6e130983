package runnertest

import (
	"fmt"
	"math"
	"slices"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/transforms/batches"
	"github.com/millstream/millstream/transforms/stats"
)

// GroupByKey: all values of a key come together.
func GroupByKey(p *sdk.Pipeline) {
	in := sdk.Create("pairs", p, slices.Concat(of("a", 1, 2), of("b", 3), of("a", 4))...)
	groups := sdk.Map("text", sdk.GroupByKey("group", in), func(e sdk.KV[string, sdk.Iterable[int64]]) string {
		return fmt.Sprint(e.Key, slices.Sorted(e.Value.All()))
	})
	passert.Equals("groups", groups, "a[1 2 4]", "b[3]")
	passert.Empty("of nothing", sdk.GroupByKey("group nothing", sdk.Create[kv]("none", p)))
}

// ManyKeys: more keys than a state table holds in memory, each met several times.
func ManyKeys(p *sdk.Pipeline) {
	const keys, times = 3000, 3
	rows := make([]int64, keys*times)
	for i := range rows {
		rows[i] = int64(i)
	}
	in := sdk.Map("pairs", sdk.Read("rows", p, memio.Source(rows, memio.Splits(4))), func(i int64) sdk.KV[int64, int64] { return sdk.Pair(i%keys, i) })
	sums := sdk.CombinePerKey("sum", in, sum{})
	passert.Empty("wrong sums", sdk.Filter("wrong", sums, func(e sdk.KV[int64, int64]) bool { return e.Value != times*e.Key+keys*(times*(times-1)/2) }))
	passert.Equals("count", sdk.CombineGlobally("count", sums, stats.CountFn[sdk.KV[int64, int64]]{}), keys)
}

// Keys: they are equal if their encodings are. -0 is 0, all NaNs are one, and structs have the keys of their fields.
func Keys(p *sdk.Pipeline) {
	type key struct {
		Name string
		F    float64
	}
	in := sdk.Create("pairs", p,
		sdk.Pair(key{"a", 0}, int64(1)), sdk.Pair(key{"a", math.Copysign(0, -1)}, int64(2)), sdk.Pair(key{"", math.NaN()}, int64(4)),
		sdk.Pair(key{"", math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)}, int64(8)))
	passert.Equals("sums", sdk.Map("text", sdk.CombinePerKey("sum", in, sum{}), func(e sdk.KV[key, int64]) string { return fmt.Sprint(e) }), "{{a 0} 3}", "{{ NaN} 12}")
}

// Combine: per key, and of all, with accumulators of their own type.
func Combine(p *sdk.Pipeline) {
	in := sdk.Create("pairs", p, slices.Concat(of("a", 1, 2), of("b", 3), of("a", 6))...)
	means := sdk.Map("text", sdk.CombinePerKey("mean", in, stats.Mean[int64]{}), func(e sdk.KV[string, float64]) string { return fmt.Sprint(e.Key, e.Value) })
	passert.Equals("means", means, "a3", "b3")
	values := sdk.Map("values", in, func(e kv) int64 { return e.Value })
	passert.Equals("all", sdk.CombineGlobally("all", values, stats.Max[int64]{}), 6)
	passert.Equals("of nothing", sdk.CombineGlobally("of none", sdk.Create[int64]("none", p), sum{}), 0)
}

// HotKeys: a combine whose keys are shared by several subtasks.
func HotKeys(p *sdk.Pipeline) {
	var hot []kv
	for i := range int64(500) {
		hot = append(hot, sdk.Pair("hot", i))
	}
	in := sdk.Create("pairs", p, append(hot, of("cold", 7)...)...)
	passert.Equals("sums", show("show", sdk.CombinePerHotKey("sum", in, 8, sum{})), "hot=124750", "cold=7")
}

// CoGroupByKey: keys of one side alone come too.
func CoGroupByKey(p *sdk.Pipeline) {
	left := sdk.Create("left", p, slices.Concat(of("a", 1, 2), of("b", 3))...)
	right := sdk.Create("right", p, sdk.Pair("a", "x"), sdk.Pair("c", "y"))
	joined := sdk.Map("text", sdk.CoGroupByKey("join", left, right), func(e sdk.KV[string, sdk.CoGroup[int64, string]]) string {
		return fmt.Sprint(e.Key, slices.Sorted(e.Value.A.All()), slices.Sorted(e.Value.B.All()))
	})
	passert.Equals("joined", joined, "a[1 2] [x]", "b[3] []", "c[] [y]")
	three := sdk.Map("text of three", sdk.CoGroupByKey3("join of three", left, right, left), func(e sdk.KV[string, sdk.CoGroup3[int64, string, int64]]) string {
		return fmt.Sprint(e.Key, e.Value.A.Len(), e.Value.B.Len(), e.Value.C.Len())
	})
	passert.Equals("three", three, "a2 1 2", "b1 0 1", "c0 1 0")
}

// Batches: the values of a key, so many at a time, in their order; what is left comes with the end of its window. None is late behind them.
func Batches(p *sdk.Pipeline) {
	s := script{}.At(at(3), of("a", 1)...).At(at(2), of("a", 2)...).At(at(5), of("b", 3)...).At(at(11), of("a", 4)...).Watermark(at(7)).
		At(at(8), of("a", 5, 300, 6)...).Watermark(at(15)).At(at(17), of("a", 7, 8)...)
	in := sdk.WindowInto("windows", read(p, s), window.Fixed(10*second))
	text := func(name string, l batches.Limits) sdk.PCollection[string] {
		var late sdk.PCollection[sdk.KV[string, []int64]]
		behind := sdk.GroupByKey(name+": group", sdk.WindowInto(name+": ones", batches.ByKey(name, in, l), window.Fixed(second)), sdk.LateTo(&late))
		passert.Empty(name+": late", late)
		return sdk.ParDoFunc(name+": text", behind, func(c *sdk.ProcessContext, e sdk.KV[string, sdk.Iterable[[]int64]], emit *sdk.Emitter[string]) error {
			for vs := range e.Value.All() {
				emit.Emit(fmt.Sprint(e.Key, vs, "@", seconds(c.Window().Start())))
			}
			return nil
		})
	}
	passert.Equals("by count", text("count", batches.Limits{Count: 3}), "a[1 2 5]@2", "a[300 6]@8", "b[3]@5", "a[4 7 8]@11")
	// Varints: 300 has two bytes.
	passert.Equals("by bytes", text("bytes", batches.Limits{Bytes: 4}), "a[1 2 5]@2", "a[300 6]@8", "b[3]@5", "a[4 7 8]@11")
	passert.Equals("by the first of them", text("both", batches.Limits{Count: 2, Bytes: 2, Within: 3600 * second}),
		"a[1 2]@2", "a[5]@8", "a[300]@8", "a[6]@8", "b[3]@5", "a[4 7]@11", "a[8]@17")
}
