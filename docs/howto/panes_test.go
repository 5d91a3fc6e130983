package howto_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/stats"
)

// totals adds up what each shop sells in each hour: an early pane after every two sales, one at the end of the hour, and one for
// each sale that comes up to an hour after it.
func totals(sales sdk.PCollection[sdk.KV[string, int64]], opts ...sdk.WindowOption) sdk.PCollection[sdk.KV[string, int64]] {
	opts = append(opts, sdk.AllowedLateness(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(2)).Late(trigger.AfterCount(1))))
	return sdk.CombinePerKey("total", sdk.WindowInto("hourly", sales, window.Fixed(time.Hour), opts...), stats.Sum[int64]{})
}

// sold is what the shop a sells.
func sold(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
	return teststream.Read("sales", p, teststream.Script[sdk.KV[string, int64]]{}.
		At(at(10, 1), sdk.Pair("a", int64(10))).At(at(10, 2), sdk.Pair("a", int64(20))).
		At(at(10, 3), sdk.Pair("a", int64(30))).Watermark(at(11, 0)).
		At(at(10, 59), sdk.Pair("a", int64(5))))
}

// lines are the panes in the order of their numbers, retractions before what replaces them.
func lines(panes []ptest.Element[sdk.Change[sdk.KV[string, int64]]]) (out []string) {
	slices.SortStableFunc(panes, func(a, b ptest.Element[sdk.Change[sdk.KV[string, int64]]]) int {
		return cmp.Compare(2*a.Pane.Index+rank(a.Value.Retraction), 2*b.Pane.Index+rank(b.Value.Retraction))
	})
	for _, p := range panes {
		mark := ""
		if p.Value.Retraction {
			mark = "- "
		}
		out = append(out, fmt.Sprintf("%s%v %d: %d", mark, p.Pane.Timing, p.Pane.Index, p.Value.Value.Value))
	}
	return out
}

func rank(retraction bool) int64 {
	if retraction {
		return 1 // of the pane before: it comes after that, and before the next
	}
	return 0
}

func TestPanesOfEachKind(t *testing.T) {
	for name, c := range map[string]struct {
		how  sdk.Accumulation
		want []string
	}{
		"discarding":   {sdk.Discarding, []string{"EARLY 0: 30", "ON_TIME 1: 30", "LATE 2: 5"}},
		"accumulating": {sdk.Accumulating, []string{"EARLY 0: 30", "ON_TIME 1: 60", "LATE 2: 65"}},
		"retracting":   {sdk.AccumulatingAndRetracting, []string{"EARLY 0: 30", "- EARLY 0: 30", "ON_TIME 1: 60", "- ON_TIME 1: 60", "LATE 2: 65"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines(ptest.CollectPanes(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[sdk.KV[string, int64]]] {
				return sdk.Changes("changes", totals(sold(p), c.how))
			}))
			if d := gocmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestNoPaneOnTimeWhereNothingIsNew(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		two := teststream.Read("sales", p, teststream.Script[sdk.KV[string, int64]]{}.
			At(at(10, 1), sdk.Pair("a", int64(10))).At(at(10, 2), sdk.Pair("a", int64(20))).Watermark(at(11, 0)))
		p.Scope("default", func() {
			passert.That("early", totals(two, sdk.Accumulating)).Early().Equals(sdk.Pair("a", int64(30)))
		})
		p.Scope("on time", func() {
			passert.That("none", totals(two, sdk.Accumulating)).OnTime().Empty()
		})

		p.Scope("always", func() {
			always := totals(two, sdk.Accumulating, sdk.EmptyOnTimePane())
			passert.That("on time", always).OnTime().Equals(sdk.Pair("a", int64(30)))
		})
		return nil
	})
}

// row is a total as a table has it. Shop and Hour are its primary key.
type row struct {
	Shop  string
	Hour  time.Time
	Pane  int64 // a row replaces one with a smaller number, and no other
	Cents int64
}

func rows(totals sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[row] {
	return sdk.ParDoFunc("row", totals, func(c *sdk.ProcessContext, kv sdk.KV[string, int64], emit *sdk.Emitter[row]) error {
		emit.Emit(row{kv.Key, c.Window().Start(), c.Pane().Index, kv.Value})
		return nil
	})
}

// table is what an upsert sink keeps.
type table map[[2]string]row

func (t table) upsert(r row) {
	key := [2]string{r.Shop, r.Hour.String()}
	if old, there := t[key]; !there || r.Pane > old.Pane {
		t[key] = r
	}
}

func TestUpsertsComeInAnyOrder(t *testing.T) {
	all := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[row] { return rows(totals(sold(p), sdk.Accumulating)) })
	seeds.Each(t, 10, func(seed uint64) error {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got := table{}
		for _, r := range all {
			got.upsert(r)
		}
		if d := gocmp.Diff([]row{{"a", at(10, 0), 2, 65}}, slices.Collect(maps.Values(got))); d != "" {
			return fmt.Errorf("-want +got:\n%s", d)
		}
		return nil
	})
}

// changes is a log: a row that is said, or one that is taken back. It goes to a sink.
func changes(sales sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.Change[row]] {
	return sdk.Changes("changes", rows(totals(sales, sdk.AccumulatingAndRetracting)))
}

// standing is what is left of a log, in whatever order it is read.
func standing[T comparable](log []sdk.Change[T]) map[T]int {
	n := map[T]int{}
	for _, c := range log {
		if c.Retraction {
			n[c.Value]--
		} else {
			n[c.Value]++
		}
	}
	maps.DeleteFunc(n, func(_ T, n int) bool { return n == 0 })
	return n
}

func TestOneRowOfTheLogStands(t *testing.T) {
	got := standing(ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[row]] { return changes(sold(p)) }))
	if d := gocmp.Diff(map[row]int{{"a", at(10, 0), 2, 65}: 1}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// large counts the shops that have sold for 60 and more, hour by hour, while they still sell.
func large(sales sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[sdk.KV[bool, int64]] {
	perShop := totals(sales, sdk.AccumulatingAndRetracting)
	return stats.Count("shops", sdk.Map("large", perShop, func(kv sdk.KV[string, int64]) bool { return kv.Value >= 60 }))
}

func TestAShopCountsOnceThoughItsTotalIsSaidAgain(t *testing.T) {
	got := standing(ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.Change[sdk.KV[bool, int64]]] {
		return sdk.Changes("counts", large(sold(p)))
	}))
	if n := got[sdk.Pair(true, int64(1))]; n != 1 {
		t.Errorf("one large shop is said %d times, want once: %v", n, got)
	}
	delete(got, sdk.Pair(true, int64(1)))
	delete(got, sdk.Pair(false, int64(0))) // it was small at first
	if len(got) > 0 {
		t.Errorf("what else stands is %v", got)
	}
}

// settled lets a new total out ten seconds after the first change of it, with all changes until then.
func settled(perShop sdk.PCollection[sdk.KV[string, int64]]) sdk.PCollection[int64] {
	again := sdk.WindowInto("settle", perShop, window.Fixed(time.Hour), sdk.Accumulating, sdk.AllowedLateness(time.Hour),
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterProcessingTime(10*time.Second)).Late(trigger.AfterProcessingTime(10*time.Second))))
	return sdk.CombineGlobally("all shops", sdk.Map("cents", again, func(kv sdk.KV[string, int64]) int64 { return kv.Value }), stats.Sum[int64]{})
}

func TestSettledTotalIsSaidOnce(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		sales := teststream.Read("sales", p, teststream.Script[sdk.KV[string, int64]]{}.
			At(at(10, 1), sdk.Pair("a", int64(10)), sdk.Pair("a", int64(20)), sdk.Pair("b", int64(1)), sdk.Pair("b", int64(2))).
			At(at(10, 2), sdk.Pair("a", int64(30)), sdk.Pair("a", int64(40))).
			AdvanceClock(10*time.Second).Watermark(at(11, 0)))
		passert.That("early", settled(totals(sales, sdk.AccumulatingAndRetracting))).Early().Equals(103)
		return nil
	})
}
