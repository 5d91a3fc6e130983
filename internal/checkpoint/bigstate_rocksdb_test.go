//go:build rocksdb && linux

package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/rocksdb"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// visit is one record: an entry of the state that is made, or visited again.
type visit struct{ Entry, Time int64 }

func (v visit) at() time.Time { return time.UnixMilli(v.Time) }

// visits is a source of records from the first to the last.
type visits struct {
	records int64
	at      func(n int64) visit
	taking  *atomic.Int32 // checkpoints that are due or in progress: the last record, which makes windows fire, waits for them
}

func (v visits) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (v visits) SplitID(int64) string                    { return "all" }
func (v visits) Open(context.Context, connector.Subtask) (connector.Reader[visit, int64], error) {
	return &visitReader{v: v}, nil
}

type visitReader struct {
	v    visits
	next int64
	buf  []visit
}

func (r *visitReader) Assign(s []int64) error { r.next = s[0]; return nil }
func (r *visitReader) Close() error           { return nil }
func (r *visitReader) Read(_ context.Context, limit int) (b connector.Batch[visit, int64], _ error) {
	if r.next == r.v.records {
		b.Status = connector.End
		return b, nil
	}
	last := r.v.records
	if r.v.taking.Load() > 0 {
		last--
	}
	r.buf = r.buf[:0]
	for ; len(r.buf) < limit && r.next < last; r.next++ {
		r.buf = append(r.buf, r.v.at(r.next))
	}
	b.Records, b.Split = r.buf, r.next
	if len(r.buf) == 0 {
		b.Status = connector.Idle
	}
	return b, nil
}

// spread is a permutation of the numbers below n.
func spread(i, n int64) int64 { return i * 1_000_000_007 % n }

// answer is what comes out for an entry.
type answer struct{ Entry, Count, Start, End int64 }

// bigState is a job whose state is larger than its memory, over RocksDB, with checkpoints in files.
type bigState struct {
	entries     int64
	ends        int64 // of these, entries that fire at one watermark
	visits      visits
	build       func(p *sdk.Pipeline, v sdk.PCollection[visit]) sdk.PCollection[answer]
	strategy    sdk.ReadOption
	want        func(entry int64) answer
	parallelism int
	cache       int64 // bytes
	rocksdb     int64 // bytes
	every       int64 // records between two checkpoints
	open        bool  // the source goes on after the last record only when that is in a checkpoint

	dir     string
	durable *storage.Store
	store   checkpoint.Store
	keeper  *checkpoint.Keeper
	graph   *kernel.Graph
	job     *engine.Job
	attempt int
	last    *checkpoint.Checkpoint
	nextID  int64
	read    int64 // since the last checkpoint; the source's goroutine
	all     int64 // records read; likewise, and read by others while it pauses or has read everything
	loaded  int64 // of these, in the last checkpoint

	paused chan struct{}
	taken  chan *engine.SubtaskSnapshot
	ended  chan struct{}
	failed chan struct{}
	firing chan struct{} // a tenth of ends has come out; nothing more does before resume
	resume chan struct{}

	mu     sync.Mutex
	seen   bits
	came   int64 // of these
	twice  bits  // these came before a checkpoint that the job was restored from, and must not again; or nil
	wrong  []string
	signal int64  // firing is told when so many have come
	latest passed // of the checkpoint in progress, when a subtask took it last

	triggered                      eventtime.Time // processing time
	largestDelta, largestCompanion int64
}

// passed is how a checkpoint in the midst of a firing went.
type passed struct {
	taken, stored time.Duration // since the trigger, by all subtasks
	fired         int64         // when all had taken it
	bytes         int64         // of delta and companion
	renewed       bool
}

// prepare makes what all attempts have in common.
func (b *bigState) prepare(t *testing.T) {
	b.dir = t.TempDir()
	b.paused, b.firing, b.resume = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	b.seen, b.signal = make(bits, b.entries/64+1), b.ends/10
	b.visits.taking = &atomic.Int32{}
	var err error
	b.durable, err = storage.Open(t.Context(), "file://"+filepath.Join(b.dir, "checkpoints"), file.Driver)
	must(t, err)
	b.store = checkpoint.NewDurable(b.durable, 1, 1)
	p := sdk.NewPipeline("big state")
	out := b.build(p, sdk.Read("visits", p, b.visits, b.strategy))
	sdk.Map("out", out, func(a answer) bool { b.take(a); return true })
	b.graph, err = p.Graph()
	must(t, err)
}

// bits is a set of numbers: ten million take little beside what is measured.
type bits []uint64

func (b bits) has(n int64) bool { return b[n/64]>>(n%64)&1 == 1 }
func (b bits) add(n int64)      { b[n/64] |= 1 << (n % 64) }

// take compares an answer.
func (b *bigState) take(a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a.Entry < 0 || a.Entry >= b.entries || a != b.want(a.Entry):
		b.wrong = append(b.wrong, fmt.Sprintf("%+v", a))
		return
	case b.twice != nil && b.twice.has(a.Entry):
		b.wrong = append(b.wrong, fmt.Sprintf("%+v again, which had come before the checkpoint", a))
	case b.seen.has(a.Entry) && b.twice == nil:
		b.wrong = append(b.wrong, fmt.Sprintf("%+v twice", a))
	case !b.seen.has(a.Entry):
		b.seen.add(a.Entry)
		b.came++
	}
	if b.signal > 0 && b.came >= b.signal {
		b.signal = 0
		b.firing <- struct{}{}
		<-b.resume
	}
	if b.came%512 == 0 {
		runtime.Gosched() // whoever has a barrier to pass on
	}
}

// start starts a job that goes on from the last checkpoint, or from nothing.
func (b *bigState) start(t *testing.T) {
	b.attempt++
	from, dir := b.last, filepath.Join(b.dir, fmt.Sprint("state-", b.attempt))
	b.keeper, b.read = checkpoint.NewKeeper(b.store, from), 0
	b.all = b.loaded
	subtasks := 8 * b.parallelism // at most
	b.taken, b.ended, b.failed = make(chan *engine.SubtaskSnapshot, subtasks), make(chan struct{}, subtasks), make(chan struct{}, 1)
	failed := b.failed
	o := engine.Options{
		Parallelism: b.parallelism, Groups: statebackend.DefaultKeyGroups, CacheBytes: b.cache, Checkpoints: true,
		RenewBase: b.keeper.RenewBase,
		OpenBackend: func(ctx context.Context, n *kernel.Node, subtask, parallelism int) (statebackend.Backend, error) {
			return from.Open(ctx, b.store, withMemory{rocksdb.Driver{}, b.rocksdb}, statebackend.Config{
				Dir:       filepath.Join(dir, fmt.Sprint(n.ID, "-", subtask)),
				KeyGroups: statebackend.RangeOf(subtask, parallelism, statebackend.DefaultKeyGroups),
			}, n.Name, subtask)
		},
		Splits: func(n *kernel.Node, subtask, _ int) [][]byte {
			if subtask > 0 {
				return nil
			}
			s, err := n.Splits(context.Background())
			if err != nil {
				panic(err)
			}
			return s
		},
		OnRecords: func(n int) bool {
			b.read += int64(n)
			b.all += int64(n)
			if b.all == b.visits.records {
				return b.open
			}
			if b.read < b.every {
				return false
			}
			b.read = 0
			b.visits.taking.Add(1)
			b.paused <- struct{}{}
			return true
		},
		OnSnapshot: b.snapshot,
		OnEnd:      func(string, int) { b.ended <- struct{}{} },
		OnFailure:  func() { failed <- struct{}{} },
	}
	if from != nil {
		o.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return from.Restore(context.Background(), b.store, stage, subtask)
		}
	}
	var err error
	b.job, err = engine.NewJob(t.Context(), b.graph, o)
	must(t, err)
	b.job.Start()
}

// snapshot is told by each subtask.
func (b *bigState) snapshot(s *engine.SubtaskSnapshot) {
	b.mu.Lock()
	b.latest.taken, b.latest.fired = time.Duration(engine.Real{}.Now()-b.triggered)*time.Millisecond, b.came
	b.mu.Unlock()
	b.taken <- s
}

var errCrash = errors.New("the test breaks the job off")

// crash breaks the job off and starts another from the last checkpoint.
func (b *bigState) crash(t *testing.T) {
	b.job.Cancel(errCrash)
	if err := b.job.Wait(); !errors.Is(err, errCrash) {
		t.Fatalf("the job ended with %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(b.dir, fmt.Sprint("state-", b.attempt))))
	b.start(t)
}

// next receives, unless the job fails meanwhile.
func next[T any](t *testing.T, b *bigState, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-b.failed:
		t.Fatalf("the job failed: %v", b.job.Wait())
		panic("unreachable")
	}
}

// checkpoint takes a checkpoint and removes what only older ones need.
func (b *bigState) checkpoint(t *testing.T, triggered func()) passed {
	b.nextID++
	all := b.all // the source goes on when it has taken its part
	b.triggered = engine.Real{}.Now()
	b.job.Trigger(b.nextID, false)
	triggered()
	var snapshots []*engine.SubtaskSnapshot
	for range b.job.Subtasks() {
		snapshots = append(snapshots, next(t, b, b.taken))
	}
	b.mu.Lock()
	p := b.latest
	b.mu.Unlock()
	var parts []checkpoint.Part
	for _, s := range snapshots {
		for _, n := range s.Nodes {
			if n.Keyed != nil {
				delta, companion := n.Keyed.Delta().Size(), n.Keyed.Companion().Size()
				p.bytes += delta + companion
				p.renewed = p.renewed || n.Keyed.Base() != nil
				b.largestDelta, b.largestCompanion = max(b.largestDelta, delta), max(b.largestCompanion, companion)
			}
		}
		part, err := b.keeper.Persist(t.Context(), s)
		must(t, err)
		parts = append(parts, part)
	}
	p.stored = time.Duration(engine.Real{}.Now()-b.triggered) * time.Millisecond
	c, err := checkpoint.Assemble(b.last, parts)
	must(t, err)
	b.keeper.Completed(b.nextID)
	b.last, b.loaded = c, all
	needed := map[string]bool{}
	c.Refs(func(r statebackend.Ref) { needed[r.Object] = true })
	for o, err := range b.durable.List(t.Context(), "shared/", "") {
		must(t, err)
		if !needed[o] {
			must(t, b.durable.Delete(t.Context(), o))
		}
	}
	return p
}

// load reads all records, with a checkpoint after every so many, and crashes after each of the numbered ones. It returns
// when the firing has begun and waits for checkpointWhileFiring.
func (b *bigState) load(t *testing.T, crashes ...int64) {
	b.start(t)
	for {
		select {
		case <-b.paused:
			b.checkpoint(t, func() {})
			b.visits.taking.Add(-1)
			if len(crashes) > 0 && b.nextID >= crashes[0] {
				crashes = crashes[1:]
				b.crash(t)
			}
		case <-b.firing:
			return
		case <-b.failed:
			t.Fatalf("the job failed: %v", b.job.Wait())
		}
	}
}

// checkpointWhileFiring takes a checkpoint that is triggered when a tenth of ends has come out.
func (b *bigState) checkpointWhileFiring(t *testing.T) passed {
	return b.checkpoint(t, func() { b.resume <- struct{}{} })
}

// finish waits for the end of the job and compares what came out.
func (b *bigState) finish(t *testing.T) {
	for range b.job.Subtasks() {
		next(t, b, b.ended)
	}
	b.job.Stop()
	must(t, b.job.Wait())
	if len(b.wrong) > 0 || b.came != b.entries {
		t.Errorf("%d of %d answers came, and %d wrong ones, such as %s", b.came, b.entries, len(b.wrong), strings.Join(b.wrong[:min(len(b.wrong), 3)], "; "))
	}
}

// gcPercent is that of the tests whose memory is measured: garbage may take half of what is in use.
const gcPercent = 50

// within runs f and holds the most memory that the process takes meanwhile, beyond what it takes now, against the bound
// that follows from the settings of b.
//
// In use on the heap are the cache, and of the delta and companion of the checkpoint that is stored, and of the delta of the next, an
// eighth of the cache each, with a few pieces: the rest is in files. RocksDB takes a quarter above its limit at most (its own test), and
// half of that may lie free between its blocks until it is given back. The rest is for stacks, buffers, and what else the allocators of Go
// and C keep.
func (b *bigState) within(t *testing.T, f func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	runtime.GC()
	debug.FreeOSMemory()
	const resetPeak = "5" // proc(5)
	must(t, os.WriteFile("/proc/self/clear_refs", []byte(resetPeak), 0o600))
	before := residentPeak(t)
	f()
	took := residentPeak(t) - before
	const rest = 64 << 20
	use := b.cache*11/8 + 4<<20
	bound := use*(100+gcPercent)/100 + b.rocksdb*7/4 + rest
	t.Logf("peak %.0f MiB of resident memory beyond %.0f MiB before, bound %.0f MiB: cache %.0f MiB, largest delta %.1f MiB and companion %.1f MiB, GOGC=%d, RocksDB %.0f MiB",
		mib(took), mib(before), mib(bound), mib(b.cache), mib(b.largestDelta), mib(b.largestCompanion), gcPercent, mib(b.rocksdb))
	if took > bound {
		t.Errorf("the job took %.0f MiB, more than %.0f MiB", mib(took), mib(bound))
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// residentPeak is the most resident memory that the process had since that was reset, in bytes.
func residentPeak(t *testing.T) int64 {
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" && f[2] == "kB" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			must(t, err)
			return kb << 10
		}
	}
	t.Fatal("/proc/self/status has no VmHWM")
	return 0
}
