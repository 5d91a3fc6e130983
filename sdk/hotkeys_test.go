package sdk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/teststream"
)

// valueSet keeps all values in the order of their size, in accumulators that share memory if they are not taken care of.
type valueSet struct{}

func (valueSet) CreateAccumulator() []int64 { return nil }
func (valueSet) AddInput(a []int64, v int64) []int64 {
	i, _ := slices.BinarySearch(a, v)
	return slices.Insert(a, i, v)
}
func (valueSet) MergeAccumulators(a, b []int64) []int64 {
	if len(a) == 0 {
		return b
	}
	a = append(a, b...)
	slices.Sort(a)
	return a
}
func (valueSet) ExtractOutput(a []int64) string { return fmt.Sprint(a) }

// With shards and without them a combine has the same panes, each with the same elements, timing and numbers, and the same
// late elements.
func TestHotKeysChangeNothing(t *testing.T) {
	ms := time.UnixMilli
	fixed, sliding := window.Fixed(10*time.Millisecond), window.Sliding(10*time.Millisecond, 4*time.Millisecond)
	for name, c := range map[string]struct {
		fn   window.Fn
		opts []sdk.WindowOption
	}{
		"at the end":             {fixed, nil},
		"slices":                 {sliding, nil},
		"global":                 {window.Global(), nil},
		"late":                   {fixed, []sdk.WindowOption{sdk.AllowedLateness(15 * time.Millisecond)}},
		"late, accumulating":     {fixed, []sdk.WindowOption{sdk.AllowedLateness(15 * time.Millisecond), sdk.Accumulating}},
		"late, sliding":          {sliding, []sdk.WindowOption{sdk.AllowedLateness(5 * time.Millisecond), sdk.Accumulating}},
		"late trigger, no times": {sliding, []sdk.WindowOption{sdk.Trigger(trigger.AfterWatermark().Late(trigger.AfterCount(1)))}},
	} {
		t.Run(name, func(t *testing.T) {
			seed, _ := seeds.From(t, 1)
			rnd := rand.New(rand.NewPCG(seed, 5))
			var s teststream.Script[int64]
			w := int64(0)
			for range 40 {
				if rnd.IntN(6) == 0 {
					w += rnd.Int64N(8)
					s = s.Watermark(ms(w))
				}
				s = s.At(ms(max(0, w-20+rnd.Int64N(35))), rnd.Int64N(1000))
			}
			build := func(shards int) func(p *sdk.Pipeline) sdk.PCollection[string] {
				return func(p *sdk.Pipeline) sdk.PCollection[string] {
					keyed := byParity("parity", teststream.Read("in", p, s))
					var late pairs
					w := sdk.WindowInto("w", keyed, c.fn, c.opts...)
					var out sdk.PCollection[sdk.KV[string, string]]
					if shards == 0 {
						out = sdk.CombinePerKey("set", w, valueSet{}, sdk.LateTo(&late))
					} else {
						out = sdk.CombinePerHotKey("set", w, shards, valueSet{}, sdk.LateTo(&late))
					}
					lines := sdk.MapValues("set line", out, func(v string) string { return v })
					lateLines := sdk.MapValues("late line", late, func(v int64) string { return fmt.Sprint("late ", v) })
					line := func(name string, in sdk.PCollection[sdk.KV[string, string]]) sdk.PCollection[string] {
						all := sdk.ParDoFunc(name, in, func(c *sdk.ProcessContext, kv sdk.KV[string, string], emit *sdk.Emitter[string]) error {
							emit.Emit(fmt.Sprintf("%v %s %s %+v @%d", c.Window(), kv.Key, kv.Value, c.Pane(), c.Timestamp().UnixMilli()))
							return nil
						})
						return sdk.WindowInto(name+" regardless of windows", all, window.Global())
					}
					return sdk.Flatten("all", line("line", lines), line("and late", lateLines))
				}
			}
			want := ptest.Collect(t, build(0), ptest.Runs(2))
			for _, n := range []int{2, 7} {
				got := ptest.Collect(t, build(n), ptest.Parallelism(1+n%3), ptest.Runs(3))
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%d shards, -without +with:\n%s\n%s", n, d, seeds.Rerun(t, seed))
				}
			}
		})
	}
}

// Elements of one key are in all shards, so that their subtasks have work: that is what it is for.
func TestHotKeysSpreadAKey(t *testing.T) {
	vs := make([]int64, 64*12)
	r := ptest.Run(t, func(p *sdk.Pipeline) error {
		sdk.CombinePerHotKey("set", sdk.KeyBy("one key", numbers(p, vs...), func(int64) string { return "k" }), 4, valueSet{})
		return nil
	}, ptest.Parallelism(1), ptest.RestoreEvery(0), ptest.Runs(1))
	if n := r.Step("set/partial").RecordsOut; n != 4 {
		t.Errorf("the first stage has %d accumulators, want 4", n)
	}
	if n := r.Step("set/merge").RecordsOut; n != 1 {
		t.Errorf("%d results, want 1", n)
	}
}

func TestHotKeysAreRefusedWhereTheResultWouldBeAnother(t *testing.T) {
	fixed := window.Fixed(10 * time.Millisecond)
	sum := func(name string, p *sdk.Pipeline, n int, fn window.Fn, opts ...sdk.WindowOption) {
		sdk.CombinePerHotKey("set", sdk.WindowInto("w", byParity("parity", timed(p, 1)), fn, opts...), n, valueSet{})
	}
	for want, build := range map[string]func(p *sdk.Pipeline){
		"1 shards: use 2 to 1000":           func(p *sdk.Pipeline) { sum("", p, 1, fixed) },
		"1001 shards: use 2 to 1000":        func(p *sdk.Pipeline) { sum("", p, 1001, fixed) },
		"merge, and each shard would merge": func(p *sdk.Pipeline) { sum("", p, 2, window.Sessions(time.Second)) },
		"may fire before the end of the window": func(p *sdk.Pipeline) {
			sum("", p, 2, fixed, sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(3))))
		},
		"waits for several late elements": func(p *sdk.Pipeline) {
			sum("", p, 2, fixed, sdk.Trigger(trigger.AfterWatermark().Late(trigger.AfterCount(2))))
		},
	} {
		p := sdk.NewPipeline("p")
		build(p)
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `step "set" (hotkeys_test.go:`) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func ExampleCombinePerHotKey() {
	printSorted(func(p *sdk.Pipeline) sdk.PCollection[string] {
		votes := sdk.Create("votes", p, sdk.Pair("mill", int64(1)), sdk.Pair("mill", int64(2)), sdk.Pair("sieve", int64(3)))
		all := sdk.CombinePerHotKey("all", votes, 8, valueSet{})
		return sdk.Map("line", all, func(kv sdk.KV[string, string]) string { return kv.Key + " " + kv.Value })
	})
	// Output:
	// mill [1 2]
	// sieve [3]
}
