package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millstream/millstream/sdk/window"
)

var background = context.Background()

// tally counts what was drawn.
type tally map[string]int

func (n tally) count(c aCase, restores int) {
	n["cases"]++
	windows := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", c.Fn), "window."), "Fn")
	if custom, ok := c.Fn.(window.CustomFn); ok {
		windows += " " + custom.Name
	}
	n["windows: "+windows]++
	for _, part := range []string{"AfterWatermark", "Early(", "Late(", "AfterCount", "AfterProcessingTime", "AfterFirst", "AfterAll", "AfterEach", "OrFinally", "Repeatedly", "Always", "Never"} {
		if strings.Contains(c.Trigger.String(), part) {
			n["trigger with "+strings.TrimSuffix(part, "(")]++
		}
	}
	n[fmt.Sprintf("accumulation: %v", c.Accumulation)]++
	n[fmt.Sprintf("timestamps: %v", c.Timestamps)]++
	for what, is := range map[string]bool{"by GroupByKey": c.group, "by CombinePerKey": !c.group, "late elements put out": c.lateTo, "allowed lateness": c.Lateness > 0,
		"once, at the end": c.once, "aggregated again": c.twice, "empty panes on time": c.EmptyOnTime, "empty last panes": c.EmptyLast} {
		if is {
			n[what]++
		}
	}
	n["restores"] += restores
	if restores > 0 {
		n["cases restored"]++
	}
}

func (n tally) report(t *testing.T) {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(n)) {
		fmt.Fprintf(&b, "\n%7d  %s", n[what], what)
	}
	t.Log(b.String())
}
