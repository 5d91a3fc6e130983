package sdk_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

func TestEachStepOfOneElement(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := numbers(p, 1, 2, 3, 4)
		passert.Equals("map", sdk.Map("m", in, func(v int64) string { return fmt.Sprint(v) }), "1", "2", "3", "4")
		passert.Equals("map in place", sdk.Map("m2", in, func(v int64) int64 { return -v }), -1, -2, -3, -4)
		passert.Equals("filter", sdk.Filter("f", in, func(v int64) bool { return v%2 == 0 }), 2, 4)
		passert.Equals("flat map", sdk.FlatMap("fm", in, func(v int64, emit *sdk.Emitter[int64]) error {
			for i := range v - 1 {
				emit.Emit(i)
			}
			return nil
		}), 0, 0, 1, 0, 1, 2)
		keyed := byParity("k", in)
		passert.Equals("key by", keyed, sdk.Pair("odd", int64(1)), sdk.Pair("even", int64(2)), sdk.Pair("odd", int64(3)), sdk.Pair("even", int64(4)))
		passert.Equals("map values", sdk.MapValues("mv", keyed, func(v int64) bool { return v > 2 }),
			sdk.Pair("odd", false), sdk.Pair("even", false), sdk.Pair("odd", true), sdk.Pair("even", true))
		passert.Equals("flatten", sdk.Flatten("fl", in, sdk.Filter("f3", in, func(v int64) bool { return v == 3 }), in), 1, 1, 2, 2, 3, 3, 3, 4, 4)
		passert.Equals("flatten of one", sdk.Flatten("fl1", in), 1, 2, 3, 4)
		passert.Equals("reshuffle", sdk.Reshuffle("r", in), 1, 2, 3, 4)
		passert.Empty("create of nothing", sdk.Create[int64]("none", p))
		return nil
	})
}

// Filter and the steps that change elements in place must not be seen by other readers of their input.
func TestReadersOfOneCollectionDoNotDisturbEachOther(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := numbers(p, 1, 2, 3, 4, 5)
		a := sdk.Map("a", in, func(v int64) int64 { return 10 * v })
		b := sdk.Filter("b", in, func(v int64) bool { return v > 3 })
		passert.Equals("c", sdk.Map("c", in, func(v int64) int64 { return v }), 1, 2, 3, 4, 5)
		passert.Equals("check a", a, 10, 20, 30, 40, 50)
		passert.Equals("check b", b, 4, 5)
		return nil
	})
}

func TestErrorsToTakesWhatFailed(t *testing.T) {
	build := func(p *sdk.Pipeline) error {
		var failed sdk.PCollection[sdk.Failed[int64]]
		ok := sdk.MapErr("half", numbers(p, 1, 2, 3, 4), func(v int64) (int64, error) {
			if v%2 == 1 {
				return 0, fmt.Errorf("%d is odd \xff", v)
			}
			return v / 2, nil
		}, sdk.ErrorsTo(&failed))
		passert.Equals("ok", ok, 1, 2)
		passert.Equals("failed", failed, sdk.Failed[int64]{Value: 1, Err: "1 is odd \uFFFD"}, sdk.Failed[int64]{Value: 3, Err: "3 is odd \uFFFD"})
		return nil
	}
	ptest.Run(t, build)
}

func TestErrorFailsTheRunAndNamesStepAndElement(t *testing.T) {
	no := errors.New("no")
	for name, step := range map[string]func(in sdk.PCollection[string]){
		"error": func(in sdk.PCollection[string]) {
			sdk.MapErr("try", in, func(v string) (string, error) { return v, no })
		},
		"panic": func(in sdk.PCollection[string]) { sdk.Map("try", in, func(v string) string { panic("no") }) },
	} {
		err := run(func(p *sdk.Pipeline) error { step(sdk.Create("in", p, "\xff"+strings.Repeat("x", 10_000))); return nil })
		if err == nil || !strings.HasPrefix(err.Error(), `step "try": `) || !strings.Contains(err.Error(), "no") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "error" {
			if !errors.Is(err, no) {
				t.Errorf("the user's error is not in %v", err)
			}
			if want := "element \uFFFDxxx"; !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
				t.Errorf("error does not have the element, cut and valid: %v", err)
			}
		}
	}
}

func TestGroupAndCombine(t *testing.T) {
	build := func(p *sdk.Pipeline) error {
		keyed := byParity("parity", numbers(p, 1, 2, 3, 4, 5))
		sorted := sdk.MapValues("sorted", sdk.GroupByKey("group", keyed), func(vs sdk.Iterable[int64]) string {
			n, out := 0, make([]int, 10)
			for v := range vs.All() {
				out[v]++
				n++
			}
			if n != vs.Len() {
				return "Len disagrees with All"
			}
			return fmt.Sprint(out)
		})
		passert.PerKey("groups", sorted, map[string]string{"odd": "[0 1 0 1 0 1 0 0 0 0]", "even": "[0 0 1 0 1 0 0 0 0 0]"})
		passert.PerKey("sums", sdk.CombinePerKey("sum", keyed, stats.Sum[int64]{}), map[string]int64{"odd": 9, "even": 6})
		passert.Equals("all", sdk.CombineGlobally("total", numbers2(p), stats.Sum[int64]{}), 60)
		names := sdk.Create("names", p, sdk.Pair("odd", "ungerade"), sdk.Pair("none", "nichts"))
		joined := sdk.Map("text", sdk.CoGroupByKey("join", keyed, names), func(kv sdk.KV[string, sdk.CoGroup[int64, string]]) string {
			var names []string
			for n := range kv.Value.B.All() {
				names = append(names, n)
			}
			return fmt.Sprint(kv.Key, " ", kv.Value.A.Len(), " ", names)
		})
		passert.Equals("joined", joined, "odd 3 [ungerade]", "even 2 []", "none 0 [nichts]")
		return nil
	}
	ptest.Run(t, build)
	ptest.Run(t, build, ptest.Parallelism(5))
	ptest.Run(t, build, ptest.Parallelism(1))
}

func numbers2(p *sdk.Pipeline) sdk.PCollection[int64] {
	return sdk.Read("more numbers", p, memio.Source([]int64{10, 20, 30}, memio.Splits(3)))
}

// BEAM-3296: a global combine of nothing is its identity; a combine of each key and window has no row for
// what is not there.
func TestCombineOfNothing(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		none := sdk.Create[int64]("none", p)
		passert.Equals("sum", sdk.CombineGlobally("s", none, stats.Sum[int64]{}), 0)
		passert.Equals("count", sdk.CombineGlobally("c", none, stats.CountFn[int64]{}), 0)
		passert.Equals("min", sdk.CombineGlobally("m", none, stats.Min[int64]{}), math.MaxInt64)
		passert.Equals("mean", sdk.CombineGlobally("a", none, stats.Mean[int64]{}), math.NaN())
		passert.Empty("per key", sdk.CombinePerKey("k", byParity("parity", none), stats.Sum[int64]{}))
		passert.Empty("groups", sdk.GroupByKey("g", byParity("parity 2", none)))
		return nil
	})
}

// BEAM-321: keys are the same if their canonical encodings are: -0 is 0, all NaNs are one. Also after a
// restore, and for keys that are structs.
func TestKeysOfFloats(t *testing.T) {
	type key struct {
		F float64
		S string
	}
	nan2 := math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)
	zero := 0.0
	keys := []float64{0, -zero, math.Copysign(0, -1), math.NaN(), nan2, math.Inf(1), 0}
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
		in := sdk.Read("in", p, memio.Source(keys, memio.Splits(2)))
		plain := sdk.Map("name", stats.Count("plain", in), func(kv sdk.KV[float64, int64]) sdk.KV[string, int64] {
			return sdk.Pair(fmt.Sprint(kv.Key), kv.Value)
		})
		structs := sdk.Map("struct", in, func(f float64) key { return key{f, "x"} })
		return sdk.Flatten("both", plain, sdk.Map("name 2", stats.Count("in structs", structs), func(kv sdk.KV[key, int64]) sdk.KV[string, int64] {
			return sdk.Pair(fmt.Sprint(kv.Key), kv.Value)
		}))
	}, ptest.RestoreEvery(2))
	want := []sdk.KV[string, int64]{
		sdk.Pair("+Inf", int64(1)), sdk.Pair("0", int64(4)), sdk.Pair("NaN", int64(2)),
		sdk.Pair("{+Inf x}", int64(1)), sdk.Pair("{0 x}", int64(4)), sdk.Pair("{NaN x}", int64(2)),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Beam 37110: strings are bytes to us, whatever is in them.
func TestStringsThatAreNotUTF8(t *testing.T) {
	keys := []string{"\xff\xfe", "", "\xff\xfe", strings.Repeat("x", 1<<20), "\xff\xfd"}
	want := map[string]int64{}
	for _, k := range keys {
		want[k]++
	}
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := sdk.Reshuffle("spread", sdk.Create("in", p, keys...))
		passert.PerKey("counts", stats.Count("count", in), want)
		return nil
	}, ptest.RestoreEvery(2), ptest.Runs(2))
}

func TestReadsManySplits(t *testing.T) {
	var vs, want []int64
	for i := range int64(100) {
		vs, want = append(vs, i), append(want, i)
	}
	for _, splits := range []int{1, 2, 3, 7, 150} {
		got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[int64] {
			return sdk.Read("in", p, memio.Source(vs, memio.Splits(splits)))
		}, ptest.Runs(2))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d splits: %s", splits, d)
		}
	}
}
