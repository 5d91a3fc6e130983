package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/checkpoint/commitlog"
	"github.com/millstream/millstream/statebackend/storage"
)

// Ledger is where checkpoints are published. One goroutine uses it.
type Ledger interface {
	// Publish makes a checkpoint count, or returns an error: then nothing that it lists may be committed.
	Publish(ctx context.Context, m *checkpoint.Manifest) error
	// Check returns an error if another coordinator leads by now, or nobody can say.
	Check(ctx context.Context) error
	// Collect deletes what is not needed any more. What it fails to delete it finds another time.
	Collect(ctx context.Context) error
}

// Memory is the Ledger of a job without a checkpoint directory: its checkpoints live as long as the
// coordinator. Workers put their bulk into Store.
type Memory struct {
	Store *checkpoint.MemoryStore
	last  *checkpoint.Checkpoint
}

// Publish implements Ledger.
func (l *Memory) Publish(_ context.Context, m *checkpoint.Manifest) error {
	l.last = &m.Checkpoint
	return nil
}

// Check implements Ledger: nobody else can lead.
func (l *Memory) Check(context.Context) error { return nil }

// Collect implements Ledger.
func (l *Memory) Collect(context.Context) error {
	l.Store.Retain(l.last)
	return nil
}

// Durable is the Ledger of a job with a checkpoint directory: it leads the job's log.
type Durable struct {
	store     *storage.Store
	term      *commitlog.Term
	collector *checkpoint.Collector
	drop      []string // to be deleted
}

// Publish implements Ledger.
func (l *Durable) Publish(ctx context.Context, m *checkpoint.Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	slot, err := l.term.Publish(ctx, b)
	if err != nil {
		return explain(ctx, l.store, err)
	}
	l.drop = append(l.drop, l.collector.Published(uint64(slot), &m.Checkpoint)...)
	return nil
}

// Check implements Ledger.
func (l *Durable) Check(ctx context.Context) error { return explain(ctx, l.store, l.term.Check(ctx)) }

// ErrDeposed says that another coordinator leads the job, or was faster to claim it.
var ErrDeposed = errors.New("deposed")

// explain names the leader, and says what to do, if err says that it is another coordinator.
func explain(ctx context.Context, store *storage.Store, err error) error {
	if !errors.Is(err, commitlog.ErrDeposed) && !errors.Is(err, commitlog.ErrBeaten) {
		return err
	}
	who := "which one is not known"
	claim, ok, lerr := commitlog.New(store).Leader(ctx)
	switch {
	case lerr != nil:
		who += " (" + lerr.Error() + ")"
	case ok && len(claim.Payload) > 0:
		who = fmt.Sprintf("%.300q", claim.Payload)
	}
	return deposition{fmt.Errorf("%w: %s, for %s. This one has stopped and commits nothing more. Let the other one go on; to move the job here, "+
		"stop it and start this one with --restore=latest", err, who, store)}
}

type deposition struct{ error }

func (d deposition) Unwrap() error        { return d.error }
func (d deposition) Is(target error) bool { return target == ErrDeposed }

// Collect implements Ledger.
func (l *Durable) Collect(ctx context.Context) error {
	if err := l.term.Check(ctx); err != nil {
		return err
	}
	drop := l.drop
	l.drop = nil
	if err := l.collector.Collect(ctx, l.store, drop); err != nil {
		return err
	}
	_, err := l.term.Collect(ctx, func(s commitlog.Slot) bool { return l.collector.Retains(uint64(s)) })
	return err
}

// Restore says what a new coordinator takes up.
type Restore struct {
	From        string // none, latest, or a slot of the log: 42, or the name or URL of its object
	NewRun      bool   // begin anew although there are checkpoints
	AllowReplay bool   // take one that is not the newest
	Retain      int    // checkpoints to keep
	Claimant    string // for people: who claims the log
}

// Taken is what a coordinator has taken up.
type Taken struct {
	Ledger     *Durable
	Generation uint64
	Last       *checkpoint.Manifest // to restore, or nil
	Pending    []checkpoint.Output  // of the newest manifest: to commit first
	NextID     int64
	Abandoned  int64    // output up to this checkpoint is that of a run which is not restored
	Notes      []string // for the operator
}

// Fit is what a checkpoint must match to be restored.
type Fit struct {
	Job         string
	Graph       *kernel.Graph
	KeyGroups   int
	Parallelism int
	Flags       map[string]string // the program's own, values by name: others are no obstacle, but worth a note
}

// Open claims the log of a job in store and reads what it takes up. Everything that can be refused is refused
// before the claim, which would depose a coordinator that is doing well.
func Open(ctx context.Context, store *storage.Store, r Restore, fit Fit) (*Taken, error) {
	log := commitlog.New(store)
	cut, err := cutShort(ctx, log, store, r)
	if err != nil {
		return nil, err
	}
	start, fresh, notes, err := choose(ctx, log, store, r, fit)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := fit.check(ctx, log, r.NewRun); err != nil {
			return nil, errors.Join(append([]error{err}, hints(notes)...)...)
		}
	}
	notes = append(cut, notes...)
	term, err := log.Claim(ctx, start, []byte(r.Claimant))
	if err != nil {
		return nil, fmt.Errorf("lead the job in %s: %w", store, explain(ctx, store, err))
	}
	t := &Taken{Generation: uint64(term.Generation()), NextID: 1, Notes: notes}
	if e, ok := term.Settles(); ok {
		m, err := readManifest(e)
		if err == nil {
			err = fit.canCommit(m)
		}
		if err != nil {
			return nil, fmt.Errorf("commit what slot %d of %s lists: %w", e.Slot, store, err)
		}
		t.Pending = m.Pending
		t.NextID = m.Checkpoint.ID + 1
		if r.NewRun {
			t.Abandoned = m.Checkpoint.ID
		}
		if r.NewRun && len(m.Pending) > 0 {
			t.note(fit, m, "committing what checkpoint %d promised")
		}
	}
	if e, ok := term.Restores(); ok {
		if r.From == "none" && !r.NewRun {
			return nil, used(store) // somebody was faster
		}
		m, err := readManifest(e)
		if err == nil {
			err = fit.canRestore(m)
		}
		if err != nil {
			return nil, fmt.Errorf("restore slot %d of %s: %w", e.Slot, store, err)
		}
		t.Last = m
		t.note(fit, m, "restoring checkpoint %d")
		t.NextID = max(t.NextID, m.Checkpoint.ID+1)
	}
	t.Ledger = &Durable{store: store, term: term, collector: checkpoint.NewCollector(t.Generation, r.Retain)}
	var found []commitlog.Entry
	for e, err := range log.Manifests(ctx) {
		if err != nil {
			return nil, fmt.Errorf("read the checkpoints of %s: %w", store, err)
		}
		if found = append(found, e); len(found) == r.Retain {
			break
		}
	}
	for _, e := range slices.Backward(found) {
		m, err := readManifest(e)
		if err != nil {
			return nil, fmt.Errorf("slot %d of %s: %w", e.Slot, store, err)
		}
		t.Ledger.collector.Found(uint64(e.Slot), &m.Checkpoint)
	}
	return t, nil
}

// note tells of the flags that differ from those that m was made under.
func (t *Taken) note(fit Fit, m *checkpoint.Manifest, doing string) {
	var list []string
	changed, added, gone := m.Flags.Differ(fit.Flags)
	for _, kind := range []struct {
		how   string
		names []string
	}{{"has changed", changed}, {"is new", added}, {"is gone", gone}} {
		for _, name := range kind.names {
			list = append(list, "--"+name+" "+kind.how)
		}
	}
	if len(list) > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf(doing+", which was taken with other flags: %s. What is read was listed when the job "+
			"began and lives in its checkpoints: a flag that names the input has no effect. What was written under the old flags "+
			"stays where it is; what of it is not committed yet is committed there, or the job fails. To read something else, begin "+
			"anew with --new-run and an empty output", m.Checkpoint.ID, strings.Join(list, ", ")))
	}
}

func readManifest(e commitlog.Entry) (*checkpoint.Manifest, error) {
	return checkpoint.DecodeManifest(e.Payload)
}

func used(store *storage.Store) error {
	return fmt.Errorf("%s has checkpoints of an earlier run: go on from them with --restore=latest, or begin anew with --new-run", store)
}

// cutShort refuses a log from which the newest entries were deleted, unless the operator knows what follows.
func cutShort(ctx context.Context, log *commitlog.Log, store *storage.Store, r Restore) (notes []string, err error) {
	newest, reached, err := log.CutShort(ctx)
	if errors.Is(err, storage.ErrCorrupt) {
		return []string{fmt.Sprintf("%v: if entries of the log were deleted by hand, nobody notices", err)}, nil
	}
	if err != nil || reached == 0 {
		return nil, err
	}
	what := fmt.Sprintf("the log of %s ends at slot %d, and had reached slot %d: its newest entries were deleted by hand, or come from an old "+
		"copy; output that they list may be committed already", store, newest, reached)
	if r.AllowReplay || r.NewRun {
		return []string{what + ", and will appear twice"}, nil
	}
	return nil, fmt.Errorf("%s, and would appear twice. Put the entries back; or accept it with --allow-replay; or begin anew with --new-run and an empty output", what)
}

// check finds what would stop a new run at once: before its claim, behind which nobody reads.
func (f Fit) check(ctx context.Context, log *commitlog.Log, newRun bool) error {
	pending := map[string]bool{} // steps whose output the newest manifest lists
	for e, err := range log.Manifests(ctx) {
		if err != nil {
			return fmt.Errorf("read the newest checkpoint: %w", err)
		}
		if !newRun {
			break // its output was committed when this run began
		}
		m, err := readManifest(e)
		if err == nil {
			err = f.canCommit(m)
		}
		if err != nil {
			return fmt.Errorf("commit what slot %d lists, before a new run: %w", e.Slot, err)
		}
		for _, o := range m.Pending {
			pending[o.Node] = true
		}
		break
	}
	for _, n := range f.Graph.Nodes {
		var err error
		if n.Sink != nil {
			err = n.Sink.Check(ctx, pending[n.Name])
		}
		if n.Splits != nil {
			_, err = n.Splits(ctx)
		}
		if err != nil {
			return fmt.Errorf("step %q: %w", n.Name, err)
		}
	}
	return nil
}

// hints are notes for the operator as parts of an error.
func hints(notes []string) (errs []error) {
	for _, n := range notes {
		errs = append(errs, errors.New(n))
	}
	return errs
}

// choose turns what the operator wants into what to claim. fresh says that nothing is restored.
func choose(ctx context.Context, log *commitlog.Log, store *storage.Store, r Restore, fit Fit) (start commitlog.Start, fresh bool, notes []string, err error) {
	if r.NewRun {
		if r.From != "none" {
			return start, false, nil, fmt.Errorf("--new-run takes nothing up, and --restore=%s does: leave one out", r.From)
		}
		return commitlog.NewRun, true, nil, nil
	}
	newest, ok, err := log.Newest(ctx)
	if err != nil {
		return start, false, nil, fmt.Errorf("read the log of %s: %w", store, err)
	}
	switch r.From {
	case "none":
		if ok {
			return start, false, nil, used(store)
		}
		return commitlog.Latest, true, nil, nil
	case "latest":
		slot := newest.Slot
		if newest.Kind == commitlog.Claim {
			slot = newest.Restores.Slot
		}
		if slot == 0 {
			return commitlog.Latest, true, []string{fmt.Sprintf("there is no checkpoint in %s to restore%s: starting afresh", store, abandoned(ctx, log))}, nil
		}
		_, err := findManifest(ctx, log, store, slot, fit)
		return commitlog.Latest, false, nil, err
	}
	slot, err := parseSlot(r.From, store)
	if err != nil {
		return start, false, nil, err
	}
	first, err := findManifest(ctx, log, store, slot, fit)
	if err != nil {
		return start, false, nil, err
	}
	if first != slot {
		if !r.AllowReplay {
			return start, false, nil, fmt.Errorf("--restore=%s: slot %d is newer, and what was written since would appear twice; take --restore=latest, or accept it with --allow-replay", r.From, first)
		}
		notes = append(notes, fmt.Sprintf("restoring slot %d although slot %d is newer: what was written in between will appear twice", slot, first))
	}
	return commitlog.At(slot), false, notes, nil
}

// abandoned tells of checkpoints of the run before one that began anew and has none yet.
func abandoned(ctx context.Context, log *commitlog.Log) string {
	for e, err := range log.Manifests(ctx) {
		if err != nil {
			break // it is a hint only
		}
		return fmt.Sprintf(" since the job began anew; the newest of the run before is --restore=log/%020d --allow-replay", e.Slot)
	}
	return ""
}

// findManifest looks for a manifest, checks that it can be restored, and returns the slot of the newest one.
func findManifest(ctx context.Context, log *commitlog.Log, store *storage.Store, slot commitlog.Slot, fit Fit) (newest commitlog.Slot, err error) {
	for e, err := range log.Manifests(ctx) {
		if err != nil {
			return 0, fmt.Errorf("read the checkpoints of %s: %w", store, err)
		}
		if newest == 0 {
			newest = e.Slot
		}
		if e.Slot < slot {
			break
		}
		if e.Slot > slot {
			continue
		}
		m, err := readManifest(e)
		if err == nil {
			err = fit.canRestore(m)
		}
		if err != nil {
			return 0, fmt.Errorf("restore slot %d of %s: %w", slot, store, err)
		}
		return newest, nil
	}
	return 0, fmt.Errorf("%s has no checkpoint in slot %d, or it was collected", store, slot)
}

// parseSlot reads 42, log/00000000000000000042, or the URL of that object.
func parseSlot(s string, store *storage.Store) (commitlog.Slot, error) {
	name := s
	if strings.Contains(name, "://") {
		var ok bool
		if name, ok = strings.CutPrefix(name, strings.TrimSuffix(store.String(), "/")+"/"); !ok {
			return 0, fmt.Errorf("--restore=%s: it is not in --checkpoint-dir=%s; a job restores its own checkpoints", s, store)
		}
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "log/"), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("--restore=%s: must be none, latest, or an entry of the log such as log/00000000000000000042", s)
	}
	return commitlog.Slot(n), nil
}

// canRestore says whether the program can go on from m.
func (f Fit) canRestore(m *checkpoint.Manifest) error {
	switch {
	case m.Job != f.Job:
		return fmt.Errorf("it is a checkpoint of the job %q, and this is %q: give each job a directory of its own", m.Job, f.Job)
	case m.KeyGroups != f.KeyGroups:
		return fmt.Errorf("it has %d key groups and this job %d: their number is fixed for a job's life", m.KeyGroups, f.KeyGroups)
	case m.Parallelism != f.Parallelism:
		return fmt.Errorf("it was taken at parallelism %d, and this job runs at %d: start with --parallelism=%[1]d", m.Parallelism, f.Parallelism)
	}
	if plan := f.Graph.StatePlan(f.KeyGroups); m.StatePlan != plan {
		return fmt.Errorf("its state does not fit this program: %s", firstDifference("the checkpoint has", m.StatePlan, "the program has", plan))
	}
	if err := f.sameStreams(m); err != nil {
		return err
	}
	return f.canCommit(m)
}

// sameStreams says whether what m knows of each stage, and recorded on the way to it, has its place in the program.
func (f Fit) sameStreams(m *checkpoint.Manifest) error {
	stages, err := engine.Stages(f.Graph, f.Parallelism)
	if err != nil || m.Streams == "" {
		return err
	}
	have, want := m.Streams, engine.Streams(stages)
	if !m.Recorded() {
		have, want = withoutCoders(have), withoutCoders(want)
	}
	if have != want {
		return fmt.Errorf("elements travel between the steps of this program otherwise, so some of what was on its way, or the watermarks of some inputs, would be lost: %s; undo that change, or begin anew with --new-run",
			firstDifference("the checkpoint has", have, "the program has", want))
	}
	return nil
}

// withoutCoders leaves the coders out of an engine.Streams.
func withoutCoders(streams string) string {
	var b strings.Builder
	for line := range strings.Lines(streams) {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		b.WriteString(line + "\n")
	}
	return b.String()
}

// canCommit says whether the program has all sinks whose output m lists.
func (f Fit) canCommit(m *checkpoint.Manifest) error {
	for _, o := range m.Pending {
		if !slices.ContainsFunc(f.Graph.Nodes, func(n *kernel.Node) bool { return n.Name == o.Node && n.Sink != nil }) {
			return fmt.Errorf("it lists output of the step %q that is not committed, and this program has no such sink: run the program that wrote it once more", o.Node)
		}
	}
	return nil
}

// firstDifference describes the first line in which two texts differ.
func firstDifference(whoA, a, whoB, b string) string {
	la, lb := strings.Split(strings.TrimSuffix(a, "\n"), "\n"), strings.Split(strings.TrimSuffix(b, "\n"), "\n")
	for i := range max(len(la), len(lb)) {
		x, y := "nothing more", "nothing more"
		if i < len(la) {
			x = strconv.Quote(la[i])
		}
		if i < len(lb) {
			y = strconv.Quote(lb[i])
		}
		if x != y {
			return fmt.Sprintf("in line %d %s %s, %s %s", i+1, whoA, x, whoB, y)
		}
	}
	return "they are equal"
}
