// Package batches puts the values of a key together, so many at a time, such as for a service that takes a hundred at once.
//
//	byShop := sdk.KeyBy("by shop", orders, func(o Order) string { return o.Shop })
//	full := batches.ByKey("batch", byShop, batches.Limits{Count: 100, Within: 10 * time.Second})
//	sdk.MapAsync("send", full, send)
//
// It is what Beam calls GroupIntoBatches. All values of a key are batched by one subtask. To spread those of a large key over several,
// put a shard into the key, such as a hash of the value modulo 8.
package batches

import (
	"errors"
	"fmt"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/window"
)

// Limits say when a batch is full. At least one of Count and Bytes is set.
type Limits struct {
	// Count is the most values of a batch. 0: any number.
	Count int
	// Bytes is the most that the values of a batch have, encoded by the coder of V. A value that has more is a batch of its own. 0: any
	// number.
	Bytes int
	// Within is how long a batch waits, in processing time from its first value on, in whole milliseconds. 0: as long as its window lives.
	Within time.Duration
}

// ByKey puts the values of each key and window into batches, in the order in which they come: those of one key and window never with
// others'. A batch comes when it has Count values, when it has Bytes, or the next value would make it more, or when it has waited; what
// is left comes when the life of its window ends, which is its end and the allowed lateness. No batch is empty.
//
// A batch is in the window of its values, and has the timestamp of the earliest. The watermark of the step's outputs waits for
// that, so that no batch is late that has a value in time. So what is behind the step waits for the slowest key: set Within if windows
// live long, above all in the global window of an unbounded input, where what is left would never come. The pane of a batch means nothing.
//
// Which values are together depends on the order in which they come, and by Within on the clock; each is in one batch. After a restore a
// batch goes on where it was, also with other Limits, and one that has waited long enough meanwhile comes at once; one without Within
// before begins to wait with its next value. An open batch is one cell of state: one of more than 64 MiB (state.DefaultMaxBytes) fails the job.
//
// Values that come after the life of their window are dropped and counted: see sdk.LateTo, whose elements are pairs here. Windows that
// merge and inputs that may have retractions are refused, as by sdk.ParDoPerKey.
func ByKey[K comparable, V any](name string, in sdk.PCollection[sdk.KV[K, V]], l Limits, opts ...sdk.StepOption) sdk.PCollection[sdk.KV[K, []V]] {
	b := &batcher[K, V]{Limits: l}
	if p := in.Pipeline(); p != nil { // else ParDoPerKey says so
		b.coder, b.broken = sdk.CoderOf[V](p)
	}
	return sdk.ParDoPerKey(name, in, b, opts...)
}

// batcher keeps the open batch of each key and window. While there is one, a timer is pending that holds the watermark at its
// earliest value, and emits it if it does not become full before.
type batcher[K comparable, V any] struct {
	Limits
	coder  coder.Coder[V]
	broken error // there is no coder

	values state.Bag[V]
	open   state.Value[open]
	within sdk.Timer // holds at the first value
	end    sdk.Timer // holds at an earlier one than the first, or at the first if there is no Within
	buf    []byte
}

// open is what is known of an open batch besides its values.
type open struct {
	Earliest int64 // timestamp, ms since the epoch
	Bytes    int   // uncounted if there was no limit
	Waits    bool  // within is pending
}

const uncounted = -1

// Check refuses what limits nothing.
func (b *batcher[K, V]) Check() error {
	switch {
	case b.broken != nil:
		return fmt.Errorf("its values are kept in checkpoints: %w", b.broken)
	case b.Count < 0 || b.Bytes < 0:
		return fmt.Errorf("batches of %d values and %d bytes: use positive Limits, or leave one out", b.Count, b.Bytes)
	case b.Count == 0 && b.Bytes == 0:
		return errors.New("batches without a limit: set Limits.Count or Limits.Bytes")
	case b.Within < 0 || b.Within%time.Millisecond != 0:
		return fmt.Errorf("batches within %v: use whole milliseconds, or leave Within out", b.Within)
	}
	return nil
}

// Declare declares both timers whatever the limits are: one may be pending from a program that had others.
func (b *batcher[K, V]) Declare(d *sdk.KeyedDecl) {
	b.values = state.NewBag[V](d, "values", state.WithCoder(b.coder))
	b.open = state.NewValue[open](d, "open")
	b.within = sdk.ProcessingTimer(d, "within", b.left)
	b.end = sdk.EventTimer(d, "end", b.left)
}

func (b *batcher[K, V]) ProcessElement(c *sdk.ProcessContext, key K, v V, emit *sdk.Emitter[sdk.KV[K, []V]]) error {
	size, err := b.size(v)
	if err != nil {
		return err
	}
	o, some := b.open.Lookup()
	if some && b.Bytes > 0 && o.Bytes == uncounted {
		if o.Bytes, err = b.count(); err != nil {
			return err
		}
	}
	if some && b.Bytes > 0 && size > b.Bytes-o.Bytes {
		b.emit(key, o, b.all(0), emit)
		some = false
	}
	was, at := o, c.Timestamp().UnixMilli()
	if !some {
		o = open{Earliest: at}
	}
	o.Earliest = min(o.Earliest, at)
	if o.Bytes += size; b.Bytes == 0 {
		o.Bytes = uncounted
	}
	if n := b.values.Len() + 1; b.Count > 0 && n >= b.Count || b.Bytes > 0 && o.Bytes >= b.Bytes {
		b.emit(key, o, append(b.all(1), v), emit)
		return nil
	}
	b.values.Add(v)
	switch {
	case b.Within > 0 && !o.Waits:
		b.within.SetIn(b.Within)
		o.Waits = true
	case !some || o.Earliest < was.Earliest:
		b.end.Set(afterAll, sdk.OutputAt(c.Timestamp()))
	}
	if !some || o != was {
		b.open.Set(o)
	}
	return nil
}

// afterAll is after the life of every window: a timer that is set to it fires when the life of its window ends.
var afterAll = window.GlobalWindow.End()

// size is the encoded size of a value, 0 if it does not matter.
func (b *batcher[K, V]) size(v V) (int, error) {
	if b.Bytes == 0 {
		return 0, nil
	}
	var err error
	b.buf, err = b.coder.Append(b.buf[:0], v)
	return len(b.buf), err
}

// count is the encoded size of the values of the open batch.
func (b *batcher[K, V]) count() (n int, err error) {
	for v := range b.values.All() {
		size, err := b.size(v)
		if err != nil {
			return 0, err
		}
		n += size
	}
	return n, nil
}

// all are the values of the open batch, in a slice with room for more.
func (b *batcher[K, V]) all(more int) []V {
	vs := make([]V, 0, b.values.Len()+more)
	for v := range b.values.All() {
		vs = append(vs, v)
	}
	return vs
}

// emit emits a batch, at a time which a timer holds, and then forgets it.
func (b *batcher[K, V]) emit(key K, o open, vs []V, emit *sdk.Emitter[sdk.KV[K, []V]]) {
	emit.EmitAt(time.UnixMilli(o.Earliest), sdk.Pair(key, vs))
	b.values.Clear()
	b.open.Clear()
	b.within.Clear()
	b.end.Clear()
}

// left emits what is left when a timer fires.
func (b *batcher[K, V]) left(_ *sdk.ProcessContext, key K, emit *sdk.Emitter[sdk.KV[K, []V]]) error {
	if o, some := b.open.Lookup(); some {
		b.emit(key, o, b.all(0), emit)
	}
	return nil
}
