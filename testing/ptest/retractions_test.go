package ptest_test

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/testing/teststream"
	"github.com/millstream/millstream/transforms/distinct"
	"github.com/millstream/millstream/transforms/stats"
)

// retracted is the sum of 5 and 2, said at 5 and then taken back.
func retracted(p *sdk.Pipeline) sdk.PCollection[int64] {
	in := sdk.WindowInto("w", teststream.Read("in", p, teststream.Script[int64]{}.At(time.UnixMilli(1), 5).At(time.UnixMilli(1), 2)),
		window.Fixed(10*time.Millisecond), sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))), sdk.AccumulatingAndRetracting)
	return sdk.CombineGlobally("sum", in, stats.Sum[int64]{})
}

// What takes no retractions says so in words of its user, who has written neither the sink nor the CombineFn in it, and at a line of
// the user's.
func TestWhatTakesNoRetractionsSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*sdk.Pipeline) sdk.PCollection[int64]
		want  string
	}{
		"Collect": {retracted,
			`step "ptest" \(retractions_test.go:\d+\): its input may have retractions, and ptest does not tell them from elements: collect sdk.Changes of it`},
		"passert": {func(p *sdk.Pipeline) sdk.PCollection[int64] {
			passert.Equals("seven", retracted(p), 7)
			return sdk.Create[int64]("nothing", p)
		}, `step "seven/all/combine" \(retractions_test.go:\d+\): its input may have retractions, and an assertion does not tell them from elements: assert on sdk.Changes`},
		"distinct": {func(p *sdk.Pipeline) sdk.PCollection[int64] { return distinct.Values("d", retracted(p)) },
			`step "d/one" \(retractions_test.go:\d+\): its input may have retractions, and distinct does not know .* Accumulating, not AccumulatingAndRetracting, or use stats.Count`},
		"a CombineFn of another package": {func(p *sdk.Pipeline) sdk.PCollection[int64] {
			return sdk.CombineGlobally("least", retracted(p), stats.Min[int64]{})
		}, `step "least/combine" \(retractions_test.go:\d+\): its input may have retractions, and stats.Min\[int64\] cannot remove .* by embedding it: type remover struct{ stats.Min\[int64\] }`},
	} {
		t.Run(name, func(t *testing.T) {
			failure := failing.Of(t, func(t testing.TB) { ptest.Collect(t, c.build) })
			if !regexp.MustCompile(c.want).MatchString(failure) {
				t.Errorf("failure %s\nwant %s", failure, c.want)
			}
		})
	}
}

func TestPrintMarksRetractions(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	_, err = direct.Run(t.Context(), "print", func(p *sdk.Pipeline) error {
		sdk.Print("print", retracted(p))
		return nil
	}, direct.Options{Parallelism: 1})
	os.Stdout = stdout
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	at := " @1970-01-01T00:00:00.009Z [1970-01-01T00:00:00.000Z, 1970-01-01T00:00:00.010Z)\n"
	if want := "5" + at + "- 5" + at + "7" + at; !bytes.Equal(got, []byte(want)) {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}
