package kernel_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/operatortest"
)

// reminders adds up a key's values for 100 ms of the clock, and reminds of each value, by tag, 50 ms after it in event time.
func reminders() kernel.Operator {
	key, err := coder.KeyOf[string]()
	if err != nil {
		panic(err)
	}
	var sum state.Value[int64]
	var batch kernel.Timer
	var remind kernel.TimerFamily
	return kernel.NewKeyedParDo(kernel.KeyedSpec[string, int64, string]{Key: key, Fns: kernel.KeyedFns[string, int64, string]{
		Declare: func(d *kernel.KeyedDecl) {
			sum = state.NewValue[int64](d, "sum")
			batch = kernel.ProcessingTimer(d, "batch", func(_ *kernel.ProcessContext, k string, out *kernel.Emitter[string]) error {
				out.Emit(fmt.Sprintf("%s: %d", k, sum.Get()))
				sum.Clear()
				return nil
			})
			remind = kernel.EventTimerFamily(d, "remind", func(_ *kernel.ProcessContext, k, tag string, out *kernel.Emitter[string]) error {
				out.Emit(fmt.Sprintf("%s had %s", k, tag))
				return nil
			})
		},
		Process: func(c *kernel.ProcessContext, _ string, v int64, _ *kernel.Emitter[string]) error {
			if _, ok := sum.Lookup(); !ok {
				batch.SetIn(100 * time.Millisecond)
			}
			sum.Set(sum.Get() + v)
			remind.SetIn(fmt.Sprint(v), 50*time.Millisecond)
			return nil
		},
	}})
}

func TestTimersWhateverHappens(t *testing.T) {
	batch := func(at eventtime.Time, w window.Window, keysAndValues ...any) operatortest.Input {
		var es []kernel.Element[coder.KV[string, int64]]
		for i := 0; i < len(keysAndValues); i += 2 {
			es = append(es, kernel.Element[coder.KV[string, int64]]{Time: at, Window: w,
				Value: coder.KV[string, int64]{Key: keysAndValues[i].(string), Value: int64(keysAndValues[i+1].(int))}})
		}
		return operatortest.Batch(0, es...)
	}
	g, w := window.GlobalWindow, window.New(0, 400)
	inputs := []operatortest.Input{
		batch(10, g, "a", 1, "b", 2, "c", 3, "d", 4), operatortest.Clock(40), batch(20, g, "a", 10, "e", 5),
		operatortest.Watermark(65), operatortest.Clock(100), operatortest.Watermark(100), operatortest.Clock(139),
		operatortest.Clock(140), batch(300, w, "a", 7, "b", 8), batch(310, w, "a", 7), operatortest.Watermark(355),
		operatortest.Watermark(400), batch(500, g, "z", 9), operatortest.Watermark(eventtime.Max), operatortest.Clock(9999),
	}
	said := operatortest.Run(t, operatortest.Case{New: reminders, Keyed: true, Inputs: inputs,
		Ports: []operatortest.Print{operatortest.Lines(func(e kernel.Element[string]) string { return fmt.Sprintf("%s @%d", e.Value, e.Time) })}})
	got := make([]string, len(said))
	for i, lines := range said {
		got[i] = strings.Join(lines, ", ")
	}
	want := []string{
		"", "", "",
		"a had 1 @60, b had 2 @60, c had 3 @60, d had 4 @60",
		"a: 11 @10, b: 2 @10, c: 3 @10, d: 4 @10",
		"a had 10 @70, e had 5 @70",
		"", "e: 5 @20", "", "",
		"b had 8 @350",
		"a had 7 @360, a: 14 @300, b: 8 @300", // the window ends
		"", "z had 9 @550, z: 9 @500", "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
