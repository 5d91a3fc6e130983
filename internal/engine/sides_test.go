package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// TestSideInputsAreMergedApart: two main inputs around a side input, each from two subtasks.
func TestSideInputsAreMergedApart(t *testing.T) {
	from, to := &Stage{Parallelism: 2}, &Stage{Parallelism: 2}
	edges := []*StageEdge{
		{From: from, To: to, Input: 0, Edge: kernel.Edge{Exchange: kernel.ByKey}, base: 0},
		{From: from, To: to, Input: 1, Edge: kernel.Edge{Exchange: kernel.Broadcast, Side: &kernel.Side{View: "v"}}, base: 2},
		{From: from, To: to, Input: 2, Edge: kernel.Edge{Exchange: kernel.ByKey}, base: 4},
	}
	m := newPortMerger(edges)
	side := m.sides[0]
	check := func(when string, main, apart eventtime.Time, idle bool) {
		t.Helper()
		if m.Watermark() != main || side.Watermark() != apart || m.Idle() != idle {
			t.Errorf("%s: main %v, side %v, idle %v; want %v, %v, %v", when, m.Watermark(), side.Watermark(), m.Idle(), main, apart, idle)
		}
	}
	for i, c := range []int{0, 1, 4, 5} {
		m.Observe(c, eventtime.Time(10+i), false)
	}
	check("the side input has said nothing", 10, eventtime.Min, false)
	m.Observe(2, 7, false)
	m.Observe(3, 5, false)
	check("and now it has", 10, 5, false)
	s := m.State()
	if d := cmp.Diff(MergerState{Merged: 10, Inputs: []eventtime.Time{10, 11, 7, 5, 12, 13}}, s); d != "" {
		t.Errorf("state, by channel: -want +got\n%s", d)
	}
	m = newPortMerger(edges)
	m.Restore(s)
	side = m.sides[0]
	check("restored", 10, 5, false)
	for _, c := range []int{0, 1, 4, 5} {
		m.Observe(c, 20, true)
	}
	check("all but the side input are idle", 20, 5, true)
	m.Finish(2)
	m.Finish(3)
	check("the side input has ended", 20, eventtime.Max, true)
}
