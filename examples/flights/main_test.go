package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millstream/millstream/examples/flights/internal/answer"
	"github.com/millstream/millstream/runners/direct"
)

const sample = "testdata/flights-100k.parquet"

// TestAnswerEqualsAPlainLoop runs the example as it is, at several parallelisms and with restores.
func TestAnswerEqualsAPlainLoop(t *testing.T) {
	want, err := answer.Loop(sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                 string
		disorder, lateness   time.Duration
		o                    direct.Options
		rowsAtLeast, several int
	}{
		{"one subtask", 48 * time.Hour, 0, direct.Options{Parallelism: 1}, len(want), 0},
		{"three subtasks", 48 * time.Hour, 0, direct.Options{Parallelism: 3}, len(want), 0},
		{"restored again and again", 48 * time.Hour, 0, direct.Options{Parallelism: 2, RestoreEvery: 20_000}, len(want), 0},
		{"restored with overtaking barriers and a small cache", 48 * time.Hour, 0,
			direct.Options{Parallelism: 4, RestoreEvery: 30_000, Overtaking: true, CacheBytes: 1 << 16}, len(want), 0},
		{"late panes", 2 * time.Hour, 72 * time.Hour, direct.Options{Parallelism: 1}, len(want) + 500, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			*input, *output = sample, t.TempDir()
			*outOfOrderness, *allowedLateness = c.disorder, c.lateness
			result, err := direct.Run(context.Background(), "flights", build, c.o)
			if err != nil {
				t.Fatal(err)
			}
			out, err := answer.Read(*output)
			if err == nil {
				err = answer.Compare(out, want)
			}
			if err != nil {
				t.Fatal(err)
			}
			if out.Rows < c.rowsAtLeast || out.Several < c.several || c.several == 0 && out.Several > 0 {
				t.Errorf("%d rows, %d hours with several panes", out.Rows, out.Several)
			}
			if late := result.Step("delays").LateDropped; late != 0 {
				t.Errorf("%d late elements", late)
			}
			if c.o.RestoreEvery > 0 && result.Restores == 0 {
				t.Error("it was never restored")
			}
			fmt.Fprintln(t.Output(), out.Rows, "rows,", out.Several, "with several panes,", result.Restores, "restores")
		})
	}
}
