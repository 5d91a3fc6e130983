//go:build rocksdb

package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/checkpoint/commitlog"
	"github.com/millstream/millstream/runners/distributed/coordinator"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/rocksdb"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
	"github.com/millstream/millstream/testing/seeds"
)

// The short form changes more of fewer entries, so that bases are renewed as often. `make checkpoints-at-scale`
// runs a million entries of which one in a hundred changes.
var (
	scaleEntries     = flag.Int("scale.entries", 20_000, "entries of TestCheckpointsCostWhatChanged")
	scaleChanged     = flag.Int("scale.changed", 800, "of these, entries that change from one checkpoint to the next")
	scaleCheckpoints = flag.Int("scale.count", 40, "checkpoints of TestCheckpointsCostWhatChanged")
)

type (
	scaleKey   [16]byte
	scaleValue [100]byte
	scaleRow   struct{ Entry, Version int64 }
)

const scaleEntryBytes = int64(len(scaleKey{}) + len(scaleValue{}))

func keyOf(entry int64) (k scaleKey) {
	binary.BigEndian.PutUint64(k[:], uint64(entry)*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(k[8:], uint64(entry))
	return k
}

func entryOf(k scaleKey) int64 { return int64(binary.BigEndian.Uint64(k[8:])) }

// valueOf is random, so that compression does not flatter.
func valueOf(r scaleRow) (v scaleValue) {
	p := rand.NewPCG(uint64(r.Entry), uint64(r.Version))
	for i := 0; i+8 <= len(v); i += 8 {
		binary.BigEndian.PutUint64(v[i:], p.Uint64())
	}
	return v
}

// churn is a source of rounds: round 0 writes every entry, each later one some of them anew.
type churn struct {
	entries, changed int
	seed             uint64
	rounds           int // before the end
}

type churnSplit struct{ Round, At int64 }

// round lists the entries that a round writes.
func (c churn) round(n int64) []int64 {
	list := make([]int64, 0, c.entries)
	if n == 0 {
		for i := range c.entries {
			list = append(list, int64(i))
		}
		return list
	}
	r, seen := rand.New(rand.NewPCG(c.seed, uint64(n))), map[int64]bool{}
	for len(list) < c.changed {
		if e := r.Int64N(int64(c.entries)); !seen[e] {
			seen[e] = true
			list = append(list, e)
		}
	}
	return list
}

func (c churn) Splits(context.Context) ([]churnSplit, error) { return []churnSplit{{}}, nil }
func (c churn) SplitID(churnSplit) string                    { return "all" }
func (c churn) Open(context.Context, connector.Subtask) (connector.Reader[scaleRow, churnSplit], error) {
	return &churnReader{c: c}, nil
}

type churnReader struct {
	c    churn
	at   churnSplit
	list []int64 // of the round
	buf  []scaleRow
}

func (r *churnReader) Assign(s []churnSplit) error { r.at = s[0]; return nil }
func (r *churnReader) Close() error                { return nil }
func (r *churnReader) Read(_ context.Context, limit int) (b connector.Batch[scaleRow, churnSplit], _ error) {
	if r.at.Round == int64(r.c.rounds) {
		b.Status = connector.End
		return b, nil
	}
	if r.list == nil {
		r.list = r.c.round(r.at.Round)
	}
	r.buf = r.buf[:0]
	for ; len(r.buf) < limit && r.at.At < int64(len(r.list)); r.at.At++ {
		r.buf = append(r.buf, scaleRow{r.list[r.at.At], r.at.Round})
	}
	if r.at.At == int64(len(r.list)) {
		r.at, r.list = churnSplit{Round: r.at.Round + 1}, nil
	}
	b.Records, b.Split = r.buf, r.at
	return b, nil
}

// newest keeps the value that came last.
type newest struct{}

func (newest) CreateAccumulator() (v scaleValue)            { return v }
func (newest) AddInput(_, v scaleValue) scaleValue          { return v }
func (newest) MergeAccumulators(_, b scaleValue) scaleValue { return b }
func (newest) ExtractOutput(v scaleValue) scaleValue        { return v }
func pairOf(r scaleRow) sdk.KV[scaleKey, scaleValue]        { return sdk.Pair(keyOf(r.Entry), valueOf(r)) }

// graph builds the job; out is told each entry at its end.
func (c churn) graph(t *testing.T, out func(scaleKey, scaleValue)) *kernel.Graph {
	p := sdk.NewPipeline("churn")
	kept := sdk.CombinePerKey("newest", sdk.Map("pair", sdk.Read("rows", p, c), pairOf), newest{})
	sdk.Map("out", kept, func(kv sdk.KV[scaleKey, scaleValue]) bool { out(kv.Key, kv.Value); return true })
	g, err := p.Graph()
	must(t, err)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withMemory bounds what a RocksDB may take.
type withMemory struct {
	rocksdb.Driver
	bytes int64
}

func (d withMemory) Open(ctx context.Context, c statebackend.Config) (statebackend.Backend, error) {
	c.MemoryBytes = d.bytes
	return d.Driver.Open(ctx, c)
}

// upload is what one checkpoint stored, in bytes.
type upload struct {
	deltas, base int64 // base with its companion
	renewed      bool
	leveled      int64 // what new SST files of each barrier would have come to
	universal    int64
}

// metered counts what is put into a Store.
type metered struct {
	checkpoint.Store
	now upload
	mu  sync.Mutex // files of a base are uploaded at once
}

func (m *metered) Put(ctx context.Context, id int64, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	m.mu.Lock()
	switch name {
	case "delta", "bulk":
		m.now.deltas += size
	default:
		m.now.base += size
	}
	m.mu.Unlock()
	return m.Store.Put(ctx, id, name, content, size)
}

// plain is checkpoints as increments of RocksDB's files alone: a flush at each barrier, and the new files.
type plain struct {
	b     statebackend.Backend
	files map[string]statebackend.Ref
	bytes int64
	mu    sync.Mutex
}

func (p *plain) Known(id string) (statebackend.Ref, bool) { r, ok := p.files[id]; return r, ok }
func (p *plain) Upload(_ context.Context, _ string, _ io.ReaderAt, size int64) (statebackend.Ref, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += size
	return statebackend.Ref{Size: size}, nil
}

// take applies the changes of an epoch and returns what a checkpoint would upload.
func (p *plain) take(t *testing.T, delta []byte) int64 {
	var batch statebackend.Batch
	must(t, statebackend.ReadBatch(bytes.NewReader(delta), batch.Add))
	must(t, p.b.Write(&batch))
	s, err := p.b.Snapshot()
	must(t, err)
	p.bytes = 0
	h, err := s.Persist(t.Context(), p)
	must(t, err)
	must(t, s.Release())
	clear(p.files)
	for _, f := range h.Files {
		if f.ID != "" {
			p.files[f.ID] = f.Ref
		}
	}
	return p.bytes
}

// TestCheckpointsCostWhatChanged holds checkpoints of a large state, of which a small part changes from one to the
// next, to what that part comes to: through the engine, the table, RocksDB with a tenth of the state as cache and
// its compactions, the durable store, the log and the collector. Those beside each renewal of the base, and the
// last, are restored and compared entry by entry.
func TestCheckpointsCostWhatChanged(t *testing.T) {
	seed, _ := seeds.From(t, 1)
	t.Log(seeds.Rerun(t, seed))
	r := newScaleRig(t, churn{entries: *scaleEntries, changed: *scaleChanged, seed: seed, rounds: 1 << 30})
	var all []upload
	renewals := 0
	for id := int64(1); id <= int64(*scaleCheckpoints); id++ {
		before := slices.Clone(r.versions)
		u := r.checkpoint(t, id)
		all = append(all, u)
		if u.renewed {
			renewals++
			r.verify(t, id-1, before)
		}
		if u.renewed || id == int64(*scaleCheckpoints) {
			r.verify(t, id, r.versions)
		}
	}
	r.stop(t)
	r.onlyWhatIsListed(t, all)

	report(t, all, int64(*scaleChanged)*scaleEntryBytes)
	steady := all[1:] // the first has every entry
	var total, bases int64
	for _, u := range steady {
		total += u.deltas + u.base
		bases += u.base
	}
	n := int64(len(steady))
	if most := 2*int64(*scaleChanged)*scaleEntryBytes + bases/n; total/n > most {
		t.Errorf("a checkpoint uploads %d bytes on average, want at most %d: twice the changed entries and a share of the bases", total/n, most)
	}
	if renewals < 3 {
		t.Errorf("the base was made and then renewed %d times, want twice at least", renewals-1)
	}
}

// scaleRig is a job, its checkpoints, and a twin of its state.
type scaleRig struct {
	c        churn
	driver   withMemory
	cache    int64
	dir      string
	durable  *storage.Store
	store    *metered
	keeper   *checkpoint.Keeper
	ledger   *coordinator.Durable
	graph    *kernel.Graph
	job      *engine.Job
	last     *checkpoint.Checkpoint
	versions []int64 // of each entry, as of the last checkpoint

	read     int           // records of the round so far; the source's goroutine
	round    int64         // likewise
	paused   chan struct{} // the round has been read
	taken    chan *engine.SubtaskSnapshot
	failed   chan struct{} // a job has stopped by itself; Wait says why
	restores int           // so far

	leveled, universal plain
}

func newScaleRig(t *testing.T, c churn) *scaleRig {
	state := int64(c.entries) * scaleEntryBytes
	r := &scaleRig{
		c: c, cache: state / 10, dir: t.TempDir(), versions: make([]int64, c.entries),
		driver: withMemory{bytes: max(state/10, 4<<20)},
		paused: make(chan struct{}, 1), taken: make(chan *engine.SubtaskSnapshot, 1), failed: make(chan struct{}, 1),
	}
	var err error
	r.durable, err = storage.Open(t.Context(), "file://"+filepath.Join(r.dir, "checkpoints"), file.Driver)
	must(t, err)
	r.graph = c.graph(t, func(scaleKey, scaleValue) {})
	taken, err := coordinator.Open(t.Context(), r.durable, coordinator.Restore{From: "none", Retain: retained, Claimant: "test"}, r.fit())
	must(t, err)
	r.ledger = taken.Ledger
	r.store = &metered{Store: checkpoint.NewDurable(r.durable, taken.Generation, 1)}
	r.keeper = checkpoint.NewKeeper(r.store, nil)
	for style, p := range map[rocksdb.Compaction]*plain{rocksdb.Leveled: &r.leveled, rocksdb.Universal: &r.universal} {
		d := r.driver
		d.Compaction = style
		p.files = map[string]statebackend.Ref{}
		p.b, err = d.Open(t.Context(), statebackend.Config{
			Dir: filepath.Join(r.dir, fmt.Sprint("plain-", style)), KeyGroups: statebackend.AllKeyGroups(statebackend.DefaultKeyGroups),
		})
		must(t, err)
	}
	r.job, err = engine.NewJob(t.Context(), r.graph, r.options(nil, "live"))
	must(t, err)
	r.job.Start()
	return r
}

func (r *scaleRig) fit() coordinator.Fit {
	return coordinator.Fit{Job: r.graph.Name, Graph: r.graph, KeyGroups: statebackend.DefaultKeyGroups, Parallelism: 1}
}

// options are those of the job that goes on from a checkpoint, or from nothing.
func (r *scaleRig) options(from *checkpoint.Checkpoint, dir string) engine.Options {
	o := engine.Options{
		Parallelism: 1, Groups: statebackend.DefaultKeyGroups, CacheBytes: r.cache, Checkpoints: true,
		OnFailure: func() { r.failed <- struct{}{} },
		OpenBackend: func(ctx context.Context, n *kernel.Node, subtask, _ int) (statebackend.Backend, error) {
			return from.Open(ctx, r.store, r.driver, statebackend.Config{
				Dir: filepath.Join(r.dir, dir), KeyGroups: statebackend.AllKeyGroups(statebackend.DefaultKeyGroups),
			}, n.Name, subtask)
		},
	}
	if from != nil {
		o.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return from.Restore(context.Background(), r.store, stage, subtask)
		}
		return o
	}
	o.RenewBase = r.keeper.RenewBase
	o.Splits = func(n *kernel.Node, _, _ int) [][]byte {
		s, err := n.Splits(context.Background())
		if err != nil {
			panic(err)
		}
		return s
	}
	o.OnRecords = func(n int) bool {
		r.read += n
		all := r.c.changed
		if r.round == 0 {
			all = r.c.entries
		}
		if r.read < all {
			return false
		}
		r.read = 0
		r.round++
		r.paused <- struct{}{}
		return true
	}
	o.OnSnapshot = func(s *engine.SubtaskSnapshot) { r.taken <- s }
	return o
}

// await receives, unless a job fails meanwhile.
func await[T any](t *testing.T, r *scaleRig, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-r.failed:
		t.Fatalf("the job failed: %v", r.job.Wait())
		panic("unreachable")
	}
}

// checkpoint waits for the round to be read and takes, publishes and collects a checkpoint.
func (r *scaleRig) checkpoint(t *testing.T, id int64) upload {
	await(t, r, r.paused)
	r.store.now = upload{}
	r.job.Trigger(id, false)
	s := await(t, r, r.taken)
	for _, n := range s.Nodes {
		if n.Keyed != nil {
			delta := n.Keyed.Delta()
			all, err := io.ReadAll(io.NewSectionReader(delta, 0, delta.Size()))
			must(t, err)
			r.store.now.leveled, r.store.now.universal = r.leveled.take(t, all), r.universal.take(t, all)
			r.store.now.renewed = n.Keyed.Base() != nil
		}
	}
	part, err := r.keeper.Persist(t.Context(), s)
	must(t, err)
	c, err := checkpoint.Assemble(r.last, []checkpoint.Part{part})
	must(t, err)
	m := checkpoint.NewManifest(c, nil)
	m.Job, m.StatePlan = r.graph.Name, r.graph.StatePlan(statebackend.DefaultKeyGroups)
	m.KeyGroups, m.Parallelism, m.Time = statebackend.DefaultKeyGroups, 1, time.UnixMilli(id)
	encoded, err := m.Encode()
	must(t, err)
	r.store.now.deltas += int64(len(encoded))
	must(t, r.ledger.Publish(t.Context(), m))
	r.keeper.Completed(id)
	r.last = c
	must(t, r.ledger.Collect(t.Context()))
	for _, e := range r.c.round(id - 1) {
		r.versions[e] = id - 1
	}
	return r.store.now
}

// retained is how many checkpoints the collector keeps.
const retained = 2

// manifests are those retained, as the log has them; it keeps some older ones too.
func (r *scaleRig) manifests(t *testing.T) (newest []*checkpoint.Manifest) {
	for e, err := range commitlog.New(r.durable).Manifests(t.Context()) {
		must(t, err)
		m, err := checkpoint.DecodeManifest(e.Payload)
		must(t, err)
		if newest = append(newest, m); len(newest) == retained {
			break
		}
	}
	return newest
}

// verify restores a checkpoint into a job whose source is at its end, and compares everything that fires.
func (r *scaleRig) verify(t *testing.T, id int64, want []int64) {
	t.Helper()
	ms := r.manifests(t)
	k := slices.IndexFunc(ms, func(m *checkpoint.Manifest) bool { return m.Checkpoint.ID == id })
	if k < 0 {
		t.Fatalf("checkpoint %d is not retained", id)
	}
	c := r.c
	c.rounds = int(id)
	seen, wrong := make([]bool, c.entries), 0
	g := c.graph(t, func(k scaleKey, v scaleValue) {
		e := entryOf(k)
		if e < 0 || e >= int64(len(want)) || seen[e] || k != keyOf(e) || v != valueOf(scaleRow{e, want[e]}) {
			wrong++
			return
		}
		seen[e] = true
	})
	r.restores++
	o := r.options(&ms[k].Checkpoint, fmt.Sprint("restore-", r.restores))
	ended := make(chan struct{}, 1)
	o.OnEnd = func(string, int) { ended <- struct{}{} }
	job, err := engine.NewJob(t.Context(), g, o)
	must(t, err)
	job.Start()
	await(t, r, ended)
	job.Stop()
	must(t, job.Wait())
	missing := 0
	for _, ok := range seen {
		if !ok {
			missing++
		}
	}
	if wrong > 0 || missing > 0 {
		t.Errorf("checkpoint %d, restored, has %d wrong entries and misses %d of %d", id, wrong, missing, len(want))
	}
}

// stop ends the live job.
func (r *scaleRig) stop(t *testing.T) {
	r.job.Stop()
	must(t, r.job.Wait())
	must(t, r.leveled.b.Close())
	must(t, r.universal.b.Close())
}

// sweptWithin is how many checkpoints later a sweep has found what no manifest ever listed.
const sweptWithin = 16

// onlyWhatIsListed checks that the collector has left nothing that no retained checkpoint needs, but for the delta of
// a base: it is stored in case that the checkpoint fails, never listed if not, and so left to the next sweep.
func (r *scaleRig) onlyWhatIsListed(t *testing.T, all []upload) {
	var unlisted []string
	for i, u := range all {
		if id := i + 1; u.renewed && len(all)-id < sweptWithin {
			unlisted = append(unlisted, fmt.Sprintf("/%d/", id))
		}
	}
	listed := map[string]bool{}
	for _, m := range r.manifests(t) {
		m.Checkpoint.Refs(func(ref statebackend.Ref) { listed[ref.Object] = true })
	}
	for o, err := range r.durable.List(t.Context(), "shared/", "") {
		must(t, err)
		ofBase := slices.ContainsFunc(unlisted, func(id string) bool { return strings.Contains(o, id) })
		if !listed[o] && !(ofBase && strings.HasSuffix(o, "-delta")) {
			t.Errorf("%s is still stored, and no retained checkpoint needs it", o)
		}
		delete(listed, o)
	}
	for o := range listed {
		t.Errorf("%s is needed and not stored", o)
	}
}

// report prints what each checkpoint took.
func report(t *testing.T, all []upload, changed int64) {
	var b strings.Builder
	row := func(name, kind string, cells ...int64) {
		fmt.Fprintf(&b, "%-12s %-7s", name, kind)
		for _, c := range cells {
			fmt.Fprintf(&b, " %12d", c)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%-12s %-7s %12s %12s %12s %12s %12s\n", "checkpoint", "kind", "changed", "delta", "base", "SST leveled", "SST univ.")
	columns := make([][]int64, 4)
	for i, u := range all {
		kind, now := "delta", []int64{u.deltas, u.base, u.leveled, u.universal}
		if u.renewed {
			kind = "base"
		}
		if i == 0 { // every entry
			row("1", kind, int64(*scaleEntries)*scaleEntryBytes, u.deltas, u.base, u.leveled, u.universal)
			continue
		}
		row(fmt.Sprint(i+1), kind, append([]int64{changed}, now...)...)
		for k, v := range now {
			columns[k] = append(columns[k], v)
		}
	}
	sums := map[string][]int64{"median": {changed}, "mean": {changed}, "total": {changed * int64(len(all)-1)}}
	for _, c := range columns {
		total := int64(0)
		for _, v := range c {
			total += v
		}
		slices.Sort(c)
		sums["median"] = append(sums["median"], c[len(c)/2])
		sums["mean"] = append(sums["mean"], total/int64(len(c)))
		sums["total"] = append(sums["total"], total)
	}
	for _, name := range []string{"median", "mean", "total"} {
		row(name, "2 to "+fmt.Sprint(len(all)), sums[name]...)
	}
	t.Log(b.String())
}
