package sdk_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

// appends is a CombineFn that collects digits. It is right if it copies what it gives away.
type appends struct{ copies bool }

func (appends) CreateAccumulator() []int64             { return nil }
func (appends) MergeAccumulators(a, b []int64) []int64 { return append(a, b...) }
func (appends) AddInput(a []int64, v int64) []int64 {
	if len(a) == 0 {
		return []int64{v}
	}
	a[0] += v
	return a
}
func (f appends) ExtractOutput(a []int64) []int64 {
	if f.copies {
		return append([]int64(nil), a...)
	}
	return a
}

// lossy encodes but the last bit.
type lossy struct{}

func (lossy) Append(dst []byte, v short) ([]byte, error) { return append(dst, byte(v)), nil }
func (lossy) Decode(src []byte) (short, []byte, error)   { return short(src[0]) + 1, src[1:], nil }

type short int16

func TestAuthorsMistakesAreFound(t *testing.T) {
	shared := []int64{0}
	builds := 0
	for _, c := range []struct {
		name  string
		build func(p *sdk.Pipeline) error
		want  []string // nothing: it is no mistake
	}{
		{"changed after it was emitted", func(p *sdk.Pipeline) error {
			sdk.Map("reuse", timed(p, 1, 2, 3), func(v int64) []int64 { shared[0] = v; return shared })
			return nil
		}, []string{`step "reuse"`, "changed after it was emitted"}},
		{"changed by who received it", func(p *sdk.Pipeline) error {
			in := sdk.Map("make", timed(p, 1, 2, 3), func(v int64) []int64 { return []int64{v} })
			sdk.Map("change", in, func(v []int64) []int64 { v[0]++; return v })
			return nil
		}, []string{`step "make"`, "changed after it was emitted"}},
		{"output shares memory with its accumulator", func(p *sdk.Pipeline) error { return early(p, appends{}) },
			[]string{`step "digits"`, "shares memory with its accumulator"}},
		{"output is a copy", func(p *sdk.Pipeline) error { return early(p, appends{copies: true}) }, nil},
		{"coder that loses something", func(p *sdk.Pipeline) error {
			sdk.UseCoder(p, lossy{})
			sdk.Map("shorten", timed(p, 1, 2), func(v int64) short { return short(v) })
			return nil
		}, []string{`step "shorten"`, "not the same after it was encoded and decoded"}},
		{"another plan each time", func(p *sdk.Pipeline) error {
			builds++
			sdk.Map(fmt.Sprint("step ", builds), numbers(p, 1), func(v int64) int64 { return v })
			return nil
		}, []string{"another plan the second time", `"step 1"`, `"step 2"`}},
		{"error of build", func(p *sdk.Pipeline) error { numbers(p, 1); return context.DeadlineExceeded }, []string{"build pipeline", "deadline"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := direct.Run(t.Context(), "p", c.build, direct.Options{Parallelism: 1, ReadBatch: 1})
			switch {
			case err == nil && len(c.want) > 0:
				t.Fatal("not found")
			case err != nil && len(c.want) == 0:
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
		})
	}
}

func early(p *sdk.Pipeline, fn appends) error {
	w := sdk.WindowInto("w", timed(p, 1, 2, 3), window.Fixed(time.Second), sdk.Accumulating,
		sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))))
	sdk.CombinePerKey("digits", sdk.KeyBy("key", w, func(int64) bool { return true }), fn)
	return nil
}

// Hudi 10166, Paimon 3345: what came after the last periodic checkpoint is committed too.
func TestEndOfABoundedInputIsCommitted(t *testing.T) {
	var out memio.Collector[int64]
	in := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	r, err := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error {
		sdk.Write("write", sdk.Reshuffle("spread", sdk.Create("in", p, in...)), &out)
		return nil
	}, direct.Options{Parallelism: 3, CheckpointInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(out.Rows()); n != len(in) || r.Checkpoints != 1 {
		t.Errorf("%d rows are committed by %d checkpoints, want %d by 1", n, r.Checkpoints, len(in))
	}
}

// plain has no encoding of its own, and so needs one from UseCoder, wherever it occurs.
type plain struct{ v func() int64 }

type plainCoder struct{}

func (plainCoder) Append(dst []byte, p plain) ([]byte, error) { return append(dst, byte(p.v())), nil }
func (plainCoder) Decode(src []byte) (plain, []byte, error) {
	v := int64(src[0])
	return plain{func() int64 { return v }}, src[1:], nil
}

func TestCoderOfThePipelineIsUsedEverywhere(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		sdk.UseCoder(p, plainCoder{})
		in := sdk.Map("plain", byParity("parity", timed(p, 1, 2, 3, 4)), func(kv sdk.KV[string, int64]) sdk.KV[string, plain] {
			return sdk.Pair(kv.Key, plain{func() int64 { return kv.Value }})
		})
		sum := func(it sdk.Iterable[plain]) (n int64) {
			for v := range it.All() {
				n += v.v()
			}
			return n
		}
		groups := sdk.Reshuffle("spread", sdk.GroupByKey("group", in))
		passert.PerKey("sums", sdk.MapValues("sum", groups, sum), map[string]int64{"odd": 4, "even": 6})
		joined := sdk.Reshuffle("spread joined", sdk.CoGroupByKey("join", in, in))
		passert.PerKey("sums of both", sdk.MapValues("sum both", joined, func(g sdk.CoGroup[plain, plain]) int64 { return sum(g.A) + sum(g.B) }),
			map[string]int64{"odd": 8, "even": 12})
		return nil
	})
}

func TestLogOfAStepHasStepSubtaskAndAttempt(t *testing.T) {
	var log lockedBuffer
	_, err := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error {
		sdk.ParDoFunc("say", sdk.Create("in", p, 1, 2, 3, 4), func(c *sdk.ProcessContext, v int, _ *sdk.Emitter[int]) error {
			c.Logger().Info("seen", "value", v)
			return nil
		})
		return nil
	}, direct.Options{Parallelism: 1, ReadBatch: 1, RestoreEvery: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"attempt=1 step=say subtask=0 value=1\n", "attempt=2 step=say subtask=0 value=3\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in:\n%s", want, log.String())
		}
	}
}

// lockedBuffer is written by subtasks.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
