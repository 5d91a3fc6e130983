// Package operatortest runs one operator over a list of inputs, again and again: never disturbed, destroyed
// and restored after every input or every second, fired in slices of one entry or all at once, with its state
// in memory or evicted at once. Whatever happens, it must say the same.
//
// The idea is Hazelcast Jet's TestSupport.
package operatortest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// Input is one thing that an operator is told: a batch, a watermark, or the processing time.
type Input struct {
	port    int
	batch   kernel.Batch
	isClock bool
	time    eventtime.Time
}

// Batch is an input of elements. Each run is given a copy.
func Batch[T any](port int, es ...kernel.Element[T]) Input {
	return Input{port: port, batch: &kernel.Rows[T]{E: es}}
}

// Watermark is an input without elements.
func Watermark(w eventtime.Time) Input { return Input{time: w} }

// Clock moves the processing time, which is 0 before.
func Clock(t eventtime.Time) Input { return Input{isClock: true, time: t} }

// Case is an operator and what it is told.
type Case struct {
	New    func() kernel.Operator
	Keyed  bool // it needs a state backend
	Ports  []Print
	Inputs []Input
	// Output, if set, is a line about the watermark of the outputs after each input.
	Output func(w eventtime.Time) string
}

// Print turns the elements of one output port into lines.
type Print func(kernel.Batch) []string

// Lines is a Print for elements of one type.
func Lines[T any](line func(kernel.Element[T]) string) Print {
	return func(b kernel.Batch) (out []string) {
		for _, e := range b.(*kernel.Rows[T]).E {
			out = append(out, line(e))
		}
		return out
	}
}

// Run gives c to its operator in every way and returns what was emitted after each input, sorted. It fails t
// if two ways differ.
func Run(t testing.TB, c Case) [][]string {
	t.Helper()
	said, err := Check(c)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// Check is Run for callers that have more to say of a failure.
func Check(c Case) ([][]string, error) {
	var plain [][]string
	for _, w := range []way{
		{}, // the reference
		{budget: 1},
		{budget: 3, cache: evictAll},
		{snapshotEvery: 1},
		{snapshotEvery: 1, budget: 1},
		{snapshotEvery: 1, budget: 1, cache: evictAll},
		{snapshotEvery: 1, budget: 2, cache: evictAll, renewEvery: 3},
		{snapshotEvery: 2, renewEvery: 2},
		{snapshotEvery: 2, budget: 1, cache: 300, renewEvery: 1},
		{snapshotEvery: 1, budget: 1, cache: 300, renewEvery: 2, goOn: true},
		{snapshotEvery: 3, budget: 1, cache: evictAll, renewEvery: 2, goOn: true},
	} {
		r := &run{Case: c, way: w, store: &checkpoint.MemoryStore{}}
		out, err := r.all()
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", w, err)
		}
		if plain == nil {
			plain = out
			continue
		}
		if d := cmp.Diff(plain, out); d != "" {
			return nil, fmt.Errorf("%+v differs from an undisturbed run (-undisturbed +this), input by input:\n%s", w, d)
		}
	}
	return plain, nil
}

// way is how a run is disturbed.
type way struct {
	snapshotEvery int   // inputs, and slices of a firing; 0: never
	renewEvery    int   // snapshots that renew the base; 0: none does
	goOn          bool  // two snapshots of three are encoded beside what follows, and restored then
	budget        int   // 0: everything at once
	cache         int64 // bytes; 0: no limit
}

const evictAll = 1

type run struct {
	Case
	way
	store  *checkpoint.MemoryStore
	last   *checkpoint.Checkpoint
	keeper *checkpoint.Keeper

	op      kernel.Operator
	backend statebackend.Backend
	w       eventtime.Time
	since   int // inputs, and slices of firings, since the last snapshot
	number  int64
	pending *engine.SubtaskSnapshot // being encoded
	place   place
	calls   []func()       // of an async operator, that have not been made
	elapsed eventtime.Time // by the scheduler

	barrier  place // of the pending snapshot
	wentBack int   // input of the barrier that was last gone back to, plus 1
	restored bool  // the watermark is to be repeated
	patience int   // slices of a firing until it is disturbed next
}

// place is how far a run has come.
type place struct {
	input int
	now   eventtime.Time
	said  []string // at this input
}

const step = "step"

// all runs the inputs.
func (r *run) all() ([][]string, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	out := make([][]string, len(r.Inputs))
	for r.place.input < len(r.Inputs) {
		err := r.take(r.Inputs[r.place.input])
		if err == nil {
			err = r.disturb()
		}
		for err == nil && r.restored {
			err = r.fire() // a host repeats the watermark
		}
		if err == nil {
			err = r.settle()
		}
		if err != nil {
			return nil, fmt.Errorf("input %d: %w", r.place.input, err)
		}
		if r.Output != nil {
			r.place.said = append(r.place.said, r.Output(r.hold()))
		}
		sort.Strings(r.place.said)
		out[r.place.input] = r.place.said
		r.place = place{input: r.place.input + 1, now: r.place.now}
	}
	return out, r.close()
}

// settle lets the calls of an operator return, one after the other, until it waits for none and has nothing to do later: after
// the disturbance of an input, so that it meets them in flight.
func (r *run) settle() error {
	a, ok := r.op.(kernel.Async)
	for ok {
		if len(r.calls) > 0 {
			c := r.calls[0]
			r.calls = r.calls[1:]
			c()
		} else if t := a.NextCollect(); t == eventtime.Max {
			return nil
		} else {
			r.elapsed = max(r.elapsed, t)
		}
		if _, err := a.Collect(r.elapsed); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) take(in Input) error {
	r.patience = 1
	switch {
	case in.isClock:
		r.place.now = in.time
		return r.tick()
	case in.batch == nil:
		r.w = in.time
		return r.fire()
	}
	err := r.op.Process(in.port, in.batch.Clone())
	if f, ok := r.op.(kernel.Flusher); ok && err == nil {
		err = f.Flush()
	}
	r.hold()
	if err == nil {
		err = r.tick()
	}
	return err
}

// hold asks where the operator holds the watermark, as its host does after everything, and returns that of the outputs.
func (r *run) hold() eventtime.Time {
	if h, ok := r.op.(kernel.Holder); ok {
		return min(r.w, h.Hold())
	}
	return r.w
}

// tick does what is due by the clock, disturbed as a firing is.
func (r *run) tick() error {
	op, ok := r.op.(kernel.Clocked)
	if !ok || op.NextClock() > r.place.now {
		return nil
	}
	return r.slices(func(budget int) (bool, error) { return op.Clock(r.place.now, budget) })
}

// fire repeats the watermark until the operator is done with it, or was restored. A firing is disturbed ever
// more seldom, for a restored one looks again at what it has done.
func (r *run) fire() error {
	r.restored = false
	err := r.slices(func(budget int) (bool, error) { return r.op.Watermark(r.w, budget) })
	r.hold()
	if err == nil && !r.restored {
		err = r.tick() // what came due before a restore
	}
	return err
}

// slices calls do until it is done or the operator was restored.
func (r *run) slices(do func(budget int) (bool, error)) error {
	budget := r.budget
	if budget == 0 {
		budget = 1 << 30
	}
	for slice := 1; !r.restored; slice++ {
		done, err := do(budget)
		if err != nil || done {
			return err
		}
		if slice == r.patience {
			r.patience *= 2
			if err := r.disturb(); err != nil {
				return err
			}
		}
	}
	return nil
}

// disturb takes a snapshot when it is time, and restores it, at once or when it has been encoded beside what
// follows: what was said since is then forgotten, and said again.
func (r *run) disturb() error {
	if r.pending != nil {
		if done, err := r.encode(1); err != nil || !done {
			return err
		}
		if err := r.persist(); err != nil {
			return err
		}
		if r.barrier.input < r.wentBack {
			return nil // else there would be no end
		}
		r.wentBack = r.barrier.input + 1
		r.place = r.barrier
		return r.restore()
	}
	if r.since++; r.snapshotEvery == 0 || r.since < r.snapshotEvery {
		return nil
	}
	r.since = 0
	if err := r.snapshot(); err != nil || r.goOn && r.number%3 != 0 {
		return err
	}
	if _, err := r.encode(1 << 30); err != nil {
		return err
	}
	if err := r.persist(); err != nil {
		return err
	}
	return r.restore()
}

func (r *run) restore() error {
	r.calls = nil
	if err := r.close(); err != nil {
		return err
	}
	r.restored = true
	return r.open()
}

func (r *run) snapshot() error {
	r.number++
	r.barrier = place{r.place.input, r.place.now, slices.Clone(r.place.said)}
	n := engine.NodeSnapshot{Node: step, Watermark: r.w}
	if s, ok := r.op.(kernel.Stateful); ok {
		var err error
		if n.OpSnapshot, err = s.Snapshot(r.number, r.renewEvery > 0 && r.number%int64(r.renewEvery) == 0); err != nil {
			return err
		}
	}
	r.pending = &engine.SubtaskSnapshot{Checkpoint: r.number, Stage: step, Nodes: []engine.NodeSnapshot{n}}
	return nil
}

func (r *run) encode(budget int) (bool, error) {
	if k := r.pending.Nodes[0].Keyed; k != nil {
		return k.Encode(budget)
	}
	return true, nil
}

// persist completes the pending snapshot.
func (r *run) persist() error {
	p, err := r.keeper.Persist(context.Background(), r.pending)
	if err != nil {
		return err
	}
	r.pending = nil
	if r.last, err = checkpoint.Assemble(r.last, []checkpoint.Part{p}); err != nil {
		return err
	}
	r.keeper.Completed(r.last.ID)
	r.store.Retain(r.last)
	return nil
}

// open makes the operator, from the last checkpoint.
func (r *run) open() error {
	r.keeper = checkpoint.NewKeeper(r.store, r.last)
	cache := r.cache
	if cache == 0 {
		cache = 1 << 40
	}
	c := &kernel.OpenContext{
		Context: context.Background(), Step: step, Subtask: connector.Subtask{Index: 0, Parallelism: 1},
		Groups: groups, CacheMax: cache, Track: r.snapshotEvery > 0, Metrics: &kernel.Metrics{},
		Logger: slog.New(slog.DiscardHandler), Now: func() eventtime.Time { return r.place.now }, Wake: func() {},
	}
	c.Elapsed = func() eventtime.Time { return r.elapsed }
	c.Go = func(run func(context.Context), done func()) (cancel func()) {
		ctx, cancel := context.WithCancel(c.Context)
		r.calls = append(r.calls, func() { run(ctx); done() })
		return cancel
	}
	c.Metrics.Watermark.Store(int64(eventtime.Min))
	for i, p := range r.Ports {
		c.Outputs = append(c.Outputs, output{r, i, p})
	}
	r.w = eventtime.Min
	if r.last != nil {
		from, err := r.last.Restore(context.Background(), r.store, step, 0)
		if err != nil {
			return err
		}
		n := from.Nodes[step]
		c.Restore = &kernel.OpRestore{Checkpoint: from.Checkpoint, Blob: n.Blob, Watermark: n.Watermark}
		r.w = n.Watermark
	}
	if r.Keyed {
		var err error
		config := statebackend.Config{KeyGroups: statebackend.AllKeyGroups(groups)}
		if r.backend, err = r.last.Open(context.Background(), r.store, memory.Driver{}, config, step, 0); err != nil {
			return err
		}
		c.Backend = r.backend
	}
	r.op = r.New()
	return r.op.Open(c)
}

const groups = 8

func (r *run) close() error {
	err := r.op.Close()
	if r.backend != nil && err == nil {
		err = r.backend.Close()
	}
	return err
}

// output notes what is emitted.
type output struct {
	r     *run
	port  int
	print Print
}

func (o output) Emit(b kernel.Batch) error {
	for _, line := range o.print(b) {
		if o.port > 0 {
			line = fmt.Sprintf("port %d: %s", o.port, line)
		}
		o.r.place.said = append(o.r.place.said, line)
	}
	return nil
}
