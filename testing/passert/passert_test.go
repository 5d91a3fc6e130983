package passert_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// numbers are windowed by 10 ms; each is its own timestamp.
func numbers(p *sdk.Pipeline) sdk.PCollection[int64] {
	in := sdk.Read("numbers", p, memio.Source([]int64{1, 12, 3, 3, 25}),
		sdk.EventTime(func(v int64) time.Time { return time.UnixMilli(v) }, watermark.Bounded(20*time.Millisecond)))
	return sdk.WindowInto("10 ms", in, window.Fixed(10*time.Millisecond))
}

func parity(v int64) string { return []string{"even", "odd"}[v%2] }

func TestAssertionsThatHold(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		in := numbers(p)
		passert.Equals("all", in, 3, 25, 3, 12, 1)
		passert.That("first window", in).InWindow(window.New(0, 10)).Equals(3, 1, 3)
		passert.That("no such window", in).InWindow(window.New(70, 80)).Equals()
		passert.Empty("none", sdk.Filter("negative", in, func(v int64) bool { return v < 0 }))
		byParity := sdk.KeyBy("parity", sdk.WindowInto("one window", in, window.Global()), parity)
		passert.PerKey("sums", sdk.CombinePerKey("sum", byParity, stats.Sum[int64]{}), map[string]int64{"odd": 32, "even": 12})
		return nil
	})
}

func TestAssertionsThatDoNotHold(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(p *sdk.Pipeline)
		want  []string
	}{
		{"missing", func(p *sdk.Pipeline) { passert.Equals("check", numbers(p), 3, 25, 3, 12, 1, 77) },
			[]string{`step "check/check"`, "passert.Equals at passert_test.go:", "-want +got", "77"}},
		{"too many", func(p *sdk.Pipeline) { passert.Equals("check", numbers(p), 25, 3, 12, 1) }, []string{"+"}},
		{"nothing came", func(p *sdk.Pipeline) {
			passert.Equals("check", sdk.Filter("f", numbers(p), func(int64) bool { return false }), 1)
		}, []string{"passert.Equals", "-"}},
		{"not empty", func(p *sdk.Pipeline) { passert.Empty("check", numbers(p)) }, []string{"passert.Empty at passert_test.go:", "25"}},
		{"other window", func(p *sdk.Pipeline) { passert.That("check", numbers(p)).InWindow(window.New(0, 10)).Equals(1, 3) },
			[]string{`step "check/check"`, "passert.Equals at passert_test.go:", ", in window [1970-01-01T00:00:00.000Z, 1970-01-01T00:00:00.010Z): "}},
		{"wrong sum", func(p *sdk.Pipeline) {
			sums := sdk.CombinePerKey("sum", sdk.KeyBy("parity", numbers(p), parity), stats.Sum[int64]{})
			passert.PerKey("check", sums, map[string]int64{"odd": 7, "even": 12})
		}, []string{"passert.PerKey at passert_test.go:", "odd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := direct.Run(context.Background(), "p", func(p *sdk.Pipeline) error { c.build(p); return nil }, direct.Options{Parallelism: 2})
			if err == nil {
				t.Fatal("the run succeeds")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestFailureNamesTheLineOfTheAssertion(t *testing.T) {
	line := 0
	_, err := direct.Run(context.Background(), "p", func(p *sdk.Pipeline) error {
		in := numbers(p)
		_, _, line, _ = runtime.Caller(0)
		passert.Empty("check", in)
		return nil
	}, direct.Options{})
	if want := fmt.Sprintf("passert_test.go:%d: ", line+1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error lacks %q: %v", want, err)
	}
}
