//go:build rocksdb && linux

package checkpoint_test

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/state"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
)

// The short forms are for every test run; `make scale` has a million sessions and windows, and ten million timers.
var (
	scaleSessions = flag.Int64("scale.sessions", 20_000, "open sessions of TestOpenSessionsAreBoundedInMemory")
	scaleTimers   = flag.Int64("scale.timers", 50_000, "pending timers of TestPendingTimersAreBoundedInMemory")
	scaleWindows  = flag.Int64("scale.windows", 200_000, "keys and windows of TestBarrierPassesWhileWindowsFire")
	scaleCache    = flag.Int64("scale.cache", 1<<20, "bytes of state cache of these tests")
	scaleRocksDB  = flag.Int64("scale.rocksdb", 8<<20, "bytes of memory that RocksDB has in them")
)

// Ten checkpoints at least.
func everyOf(records int64) int64 { return min(records/10, 250_000) }

const (
	minute = int64(time.Minute / time.Millisecond)
	hour   = 60 * minute
)

// TestOpenSessionsAreBoundedInMemory opens a session for each key in ten minutes and extends each in the next ten, so that
// none ends before the last record. The job is broken off when it has read half, and in the midst of the firing.
func TestOpenSessionsAreBoundedInMemory(t *testing.T) {
	n, gap := *scaleSessions, hour
	// first and again are when the session of an entry is opened and extended.
	first := func(e int64) int64 { return e * 10 * minute / n }
	again := func(i int64) int64 { return 10*minute + i*10*minute/n }
	at := make([]int32, n)
	for i := range n {
		at[spread(i, n)] = int32(again(i))
	}
	b := &bigState{
		entries: n, ends: n, parallelism: 1, cache: *scaleCache, rocksdb: *scaleRocksDB, every: everyOf(2 * n),
		visits: visits{records: 2 * n, at: func(r int64) visit {
			if r < n {
				return visit{r, first(r)}
			}
			return visit{spread(r-n, n), again(r - n)}
		}},
		strategy: sdk.EventTime(visit.at, watermark.Monotonic()),
		build: func(_ *sdk.Pipeline, v sdk.PCollection[visit]) sdk.PCollection[answer] {
			ones := sdk.Map("one", v, func(v visit) sdk.KV[int64, int64] { return sdk.Pair(v.Entry, int64(1)) })
			w := sdk.WindowInto("sessions", ones, window.Sessions(time.Duration(gap)*time.Millisecond))
			return sdk.ParDoFunc("answer", sdk.CombinePerKey("count", w, countOnes{}), answerOf)
		},
		want: func(e int64) answer { return answer{e, 2, first(e), int64(at[e]) + gap} },
	}
	b.runTwiceBroken(t)
}

// TestPendingTimersAreBoundedInMemory sets a timer for each key to twenty hours later, in the course of four hours, and
// moves a tenth of them on, so that none fires before the last record. The job is broken off as with sessions.
func TestPendingTimersAreBoundedInMemory(t *testing.T) {
	n := *scaleTimers
	again := n / 10
	total := n + again
	when := func(r int64) int64 { return r * 4 * hour / total }
	at := make([]int32, again) // of each tenth entry, the record that moves its timer
	for i := range again {
		at[spread(i, again)] = int32(n + i)
	}
	b := &bigState{
		entries: n, ends: n, parallelism: 1, cache: *scaleCache, rocksdb: *scaleRocksDB, every: everyOf(total),
		visits: visits{records: total, at: func(r int64) visit {
			if r < n {
				return visit{r, when(r)}
			}
			return visit{10 * spread(r-n, again), when(r)}
		}},
		strategy: sdk.EventTime(visit.at, watermark.Monotonic()),
		build: func(_ *sdk.Pipeline, v sdk.PCollection[visit]) sdk.PCollection[answer] {
			keyed := sdk.KeyBy("by entry", v, func(v visit) int64 { return v.Entry })
			return sdk.ParDoPerKey("quiet", keyed, &quietFor{delay: 20 * hour})
		},
		want: func(e int64) answer {
			last, count := e, int64(1)
			if e%10 == 0 && e/10 < again {
				last, count = int64(at[e/10]), 2
			}
			return answer{e, count, when(last), when(last) + 20*hour}
		},
	}
	b.runTwiceBroken(t)
}

// runTwiceBroken runs the job to its end, breaking it off in the midst of its loading and of its firing.
func (b *bigState) runTwiceBroken(t *testing.T) {
	b.prepare(t)
	b.within(t, func() {
		half := b.visits.records / b.every / 2
		b.load(t, half)
		before := slices.Clone(b.seen) // nothing comes out now
		b.report(t, b.checkpointWhileFiring(t))
		b.mu.Lock()
		b.twice = before
		b.mu.Unlock()
		b.crash(t)
		b.finish(t)
	})
	if b.attempt != 3 {
		t.Errorf("the job was started %d times, want 3", b.attempt)
	}
}

// report tells how a checkpoint in the midst of the firing went: it must be over before that is.
func (b *bigState) report(t *testing.T, p passed) {
	t.Helper()
	t.Logf("a checkpoint in the midst of the firing was taken %v after its trigger and stored %v after it, %.1f MiB, base renewed: %v; by then %d of %d had fired",
		p.taken.Round(time.Millisecond), p.stored.Round(time.Millisecond), mib(p.bytes), p.renewed, p.fired, b.ends)
	if p.fired >= b.ends {
		t.Errorf("all %d had fired before the checkpoint was complete", b.ends)
	}
}

type countOnes struct{}

func (countOnes) CreateAccumulator() int64           { return 0 }
func (countOnes) AddInput(n, one int64) int64        { return n + one }
func (countOnes) MergeAccumulators(a, b int64) int64 { return a + b }
func (countOnes) ExtractOutput(n int64) int64        { return n }

func answerOf(c *sdk.ProcessContext, kv sdk.KV[int64, int64], out *sdk.Emitter[answer]) error {
	w := c.Window()
	out.Emit(answer{kv.Key, kv.Value, w.Start().UnixMilli(), w.End().UnixMilli()})
	return nil
}

// quietFor tells of a key for which nothing has come for so long.
type quietFor struct {
	delay int64 // ms
	count state.Value[int64]
	last  state.Value[int64]
	quiet sdk.Timer
}

func (q *quietFor) Declare(d *sdk.KeyedDecl) {
	q.count, q.last = state.NewValue[int64](d, "count"), state.NewValue[int64](d, "last")
	q.quiet = sdk.EventTimer(d, "quiet", q.onQuiet)
}

func (q *quietFor) ProcessElement(_ *sdk.ProcessContext, _ int64, v visit, _ *sdk.Emitter[answer]) error {
	q.count.Set(q.count.Get() + 1)
	q.last.Set(v.Time)
	q.quiet.Set(time.UnixMilli(v.Time + q.delay))
	return nil
}

func (q *quietFor) onQuiet(c *sdk.ProcessContext, entry int64, out *sdk.Emitter[answer]) error {
	out.Emit(answer{entry, q.count.Get(), q.last.Get(), c.Timestamp().UnixMilli()})
	q.count.Clear()
	q.last.Clear()
	return nil
}

// TestBarrierPassesWhileWindowsFire fires windows of many keys at one watermark, and triggers a checkpoint when a tenth
// has come out. Its barrier goes from the source to the subtasks that fire, by their input.
func TestBarrierPassesWhileWindowsFire(t *testing.T) {
	fireAtOnce(*scaleWindows, everyOf(*scaleWindows), 0).passesBarrier(t)
}

// Nothing is in a checkpoint before, and as many windows as fire stay open: a snapshot is encoded faster than
// windows fire. One subtask does it all, so that how many have fired by then is no chance.
func TestSnapshotIsEncodedWhileWindowsFire(t *testing.T) {
	b := fireAtOnce(40_000, 1<<30, 40_000)
	b.cache, b.parallelism = 64<<20, 1
	b.passesBarrier(t)
}

// passesBarrier runs the job with a checkpoint in the midst of its firing, which must be complete by half of it. One goroutine runs
// at a time, so that this depends on their turns and not on what else the machine does.
func (b *bigState) passesBarrier(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.prepare(t)
	b.load(t)
	p := b.checkpointWhileFiring(t)
	b.report(t, p)
	if p.fired > b.ends/2 {
		t.Errorf("%d of %d windows had fired before the checkpoint was complete, which was triggered after a tenth", p.fired, b.ends)
	}
	b.finish(t)
}

// fireAtOnce is a job whose last record ends about so many windows of keys. Others, no more than these, stay open until the end
// of the input.
func fireAtOnce(ends, every, stay int64) *bigState {
	const windows = 10 // a key, which end
	const disorder = 2 * windows * hour
	const last = disorder + windows*hour // when the last record is: the watermark is at the end of the windows
	keys := ends / windows
	ends = keys * windows
	n := ends + stay/keys*keys
	start := func(e int64) int64 {
		if e == n {
			return last
		}
		return e / keys * hour
	}
	return &bigState{
		entries: n + 1, ends: ends, parallelism: 2, cache: *scaleCache, rocksdb: *scaleRocksDB, every: every, open: true,
		visits:   visits{records: n + 1, at: func(r int64) visit { return visit{r, start(r)} }},
		strategy: sdk.EventTime(visit.at, watermark.Bounded(time.Duration(disorder)*time.Millisecond)),
		build: func(_ *sdk.Pipeline, v sdk.PCollection[visit]) sdk.PCollection[answer] {
			ones := sdk.Map("one", v, func(v visit) sdk.KV[int64, int64] { return sdk.Pair(v.Entry%keys, int64(1)) })
			w := sdk.WindowInto("hourly", ones, window.Fixed(time.Hour))
			return sdk.Map("entry", sdk.ParDoFunc("answer", sdk.CombinePerKey("count", w, countOnes{}), answerOf), func(a answer) answer {
				if a.Start == last {
					a.Entry = n
				} else {
					a.Entry += a.Start / hour * keys
				}
				return a
			})
		},
		want: func(e int64) answer { return answer{e, 1, start(e), start(e) + hour} },
	}
}
