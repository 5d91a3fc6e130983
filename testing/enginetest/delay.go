package enginetest

import (
	"fmt"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/state"
)

// delay keeps its elements until a timer, of the clock or of event time, and then emits them as they were. Its timers hold the
// watermark back, so that nothing comes too late for what follows. There are three lists for each key and window.
type delay struct {
	in      time.Duration
	byClock bool

	lists  [3]state.Value[[]int64] // values and timestamps in turn
	first  [3]state.Value[int64]   // the least timestamp
	timers kernel.TimerFamily
}

// Delay is the operator of a delay: of in by the clock, or in event time.
func Delay(in time.Duration, byClock bool) kernel.Operator {
	d := &delay{in: in, byClock: byClock}
	return kernel.NewKeyedParDo(kernel.KeyedSpec[int64, int64, KV]{Key: Int64Key, Fns: kernel.KeyedFns[int64, int64, KV]{
		Declare: d.declare, Process: d.process,
	}})
}

func (d *delay) declare(k *kernel.KeyedDecl) {
	for i := range d.lists {
		d.lists[i] = state.NewValue[[]int64](k, fmt.Sprintf("list %d", i))
		d.first[i] = state.NewValue[int64](k, fmt.Sprintf("first %d", i))
	}
	if d.byClock {
		d.timers = kernel.ProcessingTimerFamily(k, "release", d.release)
	} else {
		d.timers = kernel.EventTimerFamily(k, "release", d.release)
	}
}

func (d *delay) process(c *kernel.ProcessContext, _ int64, v int64, _ *kernel.Emitter[KV]) error {
	i := ((v % 3) + 3) % 3
	at := int64(eventtime.OfElement(c.Timestamp()))
	d.lists[i].Set(append(append([]int64(nil), d.lists[i].Get()...), v, at))
	if first, ok := d.first[i].Lookup(); ok && first <= at {
		return nil // what is pending holds back enough
	}
	d.first[i].Set(at)
	d.timers.SetIn(fmt.Sprint(i), d.in, kernel.OutputAt(c.Timestamp()))
	return nil
}

func (d *delay) release(_ *kernel.ProcessContext, k int64, tag string, out *kernel.Emitter[KV]) error {
	var i int
	if _, err := fmt.Sscan(tag, &i); err != nil {
		return err
	}
	list := d.lists[i].Get()
	for j := 0; j < len(list); j += 2 {
		out.EmitAt(eventtime.Time(list[j+1]).Time(), KV{Key: k, Value: list[j]})
	}
	d.lists[i].Clear()
	d.first[i].Clear()
	return nil
}
