package connectortest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
)

// Row is the record that the suite writes.
type Row struct {
	ID   int64 // unlike that of any other record
	Text string
}

// Place is somewhere that a sink writes to, empty at first.
type Place[C any] struct {
	Open func() connector.Sink[Row, C] // a new Sink of this place, as another process would make it
	Rows func() ([]Row, error)         // what is visible there, in any order
}

// Sink runs the suite on a sink. open makes a place, apart from all others. C needs a coder as of coder.Of.
func Sink[C any](t *testing.T, open func(t *testing.T) Place[C]) {
	t.Helper()
	run(t, sinkObligations[C](), func(t *testing.T, ctx context.Context, r *rand.Rand) *sinkEnv[C] {
		e, err := newSinkEnv(ctx, r, open(t))
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

func sinkObligations[C any]() []obligation[*sinkEnv[C]] {
	return []obligation[*sinkEnv[C]]{
		{"visible", "records are visible once they are committed, not before", (*sinkEnv[C]).visibleWhenCommitted},
		{"nothing", "a checkpoint without records commits nothing", (*sinkEnv[C]).nothing},
		{"checkpoints", "what is written after Prepare belongs to the next checkpoint", (*sinkEnv[C]).apart},
		{"commit-again", "Commit is idempotent: from the same process, from others, and after later checkpoints", (*sinkEnv[C]).commitAgain},
		{"other-process", "Commit needs the committables alone: any process can, also when the one that prepared them has died", (*sinkEnv[C]).otherProcess},
		{"close", "Close discards what was not prepared, and nothing else", (*sinkEnv[C]).closes},
		{"abort", "what no checkpoint lists is never visible, also if another attempt prepares the same checkpoint again", (*sinkEnv[C]).abort},
		{"restore-again", "a checkpoint can be restored again and again, its commit repeated each time (FLINK-8086)", (*sinkEnv[C]).restoreAgain},
		{"start", "Start leaves alone what is committed, fresh or not, and what is listed was committed before (FLINK-13941)", (*sinkEnv[C]).start},
		{"subtasks", "one Sink serves all subtasks at once, each with committables of its own", (*sinkEnv[C]).subtasks},
		{"large", "many records are written and committed whole", (*sinkEnv[C]).large},
		{"crashes", "crashes at random steps lose and double nothing", (*sinkEnv[C]).crashes},
	}
}

type sinkEnv[C any] struct {
	ctx   context.Context
	rand  *rand.Rand
	place Place[C]
	coder coder.Coder[C]
}

func newSinkEnv[C any](ctx context.Context, r *rand.Rand, p Place[C]) (*sinkEnv[C], error) {
	c, err := coder.Of[C]()
	return &sinkEnv[C]{ctx: ctx, rand: r, place: p, coder: c}, err
}

// An attempt is one life of a job: the sink of its coordinator, and writers of a sink of their own.
type attempt[C any] struct {
	e       *sinkEnv[C]
	sink    connector.Sink[Row, C]
	writers []connector.Writer[Row, C]
}

// attempt commits what the restored checkpoints list, starts, and opens writers.
func (e *sinkEnv[C]) attempt(fresh bool, listed []prepared[C], writers int) (*attempt[C], error) {
	a := &attempt[C]{e: e, sink: e.place.Open()}
	for _, p := range listed {
		if err := a.commit(p); err != nil {
			return nil, err
		}
	}
	if s, ok := a.sink.(connector.Starter); ok {
		if err := s.Start(e.ctx, fresh); err != nil {
			return nil, fmt.Errorf("start (fresh %v): %w", fresh, err)
		}
	}
	worker := e.place.Open()
	for i := range writers {
		w, err := worker.Open(e.ctx, connector.Subtask{Index: i, Parallelism: writers})
		if err != nil {
			return nil, fmt.Errorf("open writer %d: %w", i, err)
		}
		a.writers = append(a.writers, w)
	}
	return a, nil
}

// prepared is what a checkpoint lists of a sink.
type prepared[C any] struct {
	checkpoint int64
	list       []C
}

func rowOf(id int64) Row {
	return Row{id, fmt.Sprintf("record %d\n\"quoted\", %s", id, strings.Repeat("ü", int(id%50)))}
}

// write writes records and then overwrites the slice, which is the caller's.
func (a *attempt[C]) write(writer int, ids ...int64) error {
	records := make([]connector.Record[Row], len(ids))
	for i, id := range ids {
		records[i].Value = rowOf(id)
	}
	err := a.writers[writer].Write(a.e.ctx, records)
	for i := range records {
		records[i].Value = Row{-1, "overwritten"}
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// prepare prepares a checkpoint of all writers; the committables come back from a checkpoint.
func (a *attempt[C]) prepare(checkpoint int64) (prepared[C], error) {
	p := prepared[C]{checkpoint: checkpoint}
	for i, w := range a.writers {
		list, err := w.Prepare(a.e.ctx, checkpoint)
		if err != nil {
			return p, fmt.Errorf("prepare checkpoint %d of writer %d: %w", checkpoint, i, err)
		}
		for _, c := range list {
			b, err := a.e.coder.Append(nil, c)
			if err != nil {
				return p, fmt.Errorf("encode committable: %w", err)
			}
			c, rest, err := a.e.coder.Decode(b)
			if err != nil || len(rest) > 0 {
				return p, fmt.Errorf("decode committable: %d bytes left, %w", len(rest), err)
			}
			p.list = append(p.list, c)
		}
	}
	return p, nil
}

func (a *attempt[C]) commit(p prepared[C]) error {
	if err := a.sink.Commit(a.e.ctx, p.checkpoint, slices.Clone(p.list)); err != nil {
		return fmt.Errorf("commit checkpoint %d: %w", p.checkpoint, err)
	}
	return nil
}

func (a *attempt[C]) close() error {
	for i, w := range a.writers {
		if err := w.Close(); err != nil {
			return fmt.Errorf("close writer %d: %w", i, err)
		}
	}
	return nil
}

// visible demands that just these records are visible, each once and as it was written.
func (e *sinkEnv[C]) visible(when string, ids ...int64) error {
	got, err := e.place.Rows()
	if err != nil {
		return fmt.Errorf("%s: read what is visible: %w", when, err)
	}
	slices.SortFunc(got, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	want := slices.Sorted(slices.Values(ids))
	for i := range min(len(got), len(want)) {
		if got[i] != rowOf(want[i]) {
			return fmt.Errorf("%s: visible is %+v where %+v should come; visible are %v, want %v", when, got[i], rowOf(want[i]), some(idsOf(got)), some(want))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d records are visible, want %d; visible are %v, want %v", when, len(got), len(want), some(idsOf(got)), some(want))
	}
	return nil
}

func idsOf(rows []Row) (ids []int64) {
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func some(ids []int64) []int64 { return ids[:min(len(ids), 30)] }

// steps runs functions until one fails.
func steps(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (e *sinkEnv[C]) visibleWhenCommitted() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p prepared[C]
	return steps(
		func() error { return a.write(0, 1, 2) },
		func() error { return a.write(0) },
		func() error { return a.write(0, 3) },
		func() error { return e.visible("written") },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return e.visible("prepared") },
		func() error { return a.commit(p) },
		func() error { return e.visible("committed", 1, 2, 3) },
		a.close,
		func() error { return e.visible("closed", 1, 2, 3) },
	)
}

func (e *sinkEnv[C]) nothing() error {
	a, err := e.attempt(true, nil, 2)
	if err != nil {
		return err
	}
	for c := int64(1); c <= 3; c++ {
		p, err := a.prepare(c)
		if err != nil {
			return err
		}
		if err := a.commit(p); err != nil {
			return err
		}
	}
	if err := a.commit(prepared[C]{checkpoint: 4}); err != nil {
		return err
	}
	return steps(a.close, func() error { return e.visible("nothing was written") })
}

func (e *sinkEnv[C]) apart() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p, q prepared[C]
	return steps(
		func() error { return a.write(0, 1, 2) },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.write(0, 3) },
		func() error { return a.commit(p) },
		func() error { return e.visible("checkpoint 1 committed", 1, 2) },
		func() error { return a.write(0, 4) },
		func() (err error) { q, err = a.prepare(2); return err },
		func() error { return e.visible("checkpoint 2 prepared", 1, 2) },
		func() error { return a.commit(q) },
		func() error { return e.visible("checkpoint 2 committed", 1, 2, 3, 4) },
		a.close,
	)
}

func (e *sinkEnv[C]) commitAgain() error {
	a, err := e.attempt(true, nil, 2)
	if err != nil {
		return err
	}
	var p, q prepared[C]
	err = steps(
		func() error { return a.write(0, 1) },
		func() error { return a.write(1, 2) },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.write(1, 3) },
		func() (err error) { q, err = a.prepare(2); return err },
		func() error { return a.commit(p) },
		func() error { return a.commit(p) },
		func() error { return e.visible("checkpoint 1 committed twice", 1, 2) },
		func() error { return a.commit(q) },
		a.close,
	)
	if err != nil {
		return err
	}
	for range 3 {
		other := &attempt[C]{e: e, sink: e.place.Open()}
		if err := steps(func() error { return other.commit(p) }, func() error { return other.commit(q) }); err != nil {
			return err
		}
		if err := e.visible("committed again in another process", 1, 2, 3); err != nil {
			return err
		}
	}
	return nil
}

func (e *sinkEnv[C]) otherProcess() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p, q prepared[C]
	other := &attempt[C]{e: e, sink: e.place.Open()}
	return steps(
		func() error { return a.write(0, 1) },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.write(0, 2, 3) },
		func() (err error) { q, err = a.prepare(2); return err },
		func() error { return a.write(0, 4) }, // and here it dies
		func() error { return other.commit(p) },
		func() error { return e.visible("checkpoint 1 committed elsewhere", 1) },
		func() error { return other.commit(q) },
		func() error { return e.visible("checkpoint 2 committed elsewhere", 1, 2, 3) },
	)
}

func (e *sinkEnv[C]) closes() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p prepared[C]
	err = steps(
		func() error { return a.write(0, 1) },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.write(0, 2) },
		a.close,
		func() error { return e.visible("closed") },
		func() error { return a.commit(p) },
		func() error { return e.visible("committed after Close", 1) },
	)
	if err != nil {
		return err
	}
	before := openFiles()
	for range 3 {
		if a, err = e.attempt(false, nil, 2); err != nil {
			return err
		}
		if err := steps(func() error { return a.write(0, 5) }, a.close); err != nil {
			return err
		}
	}
	if after := openFiles(); after > before {
		return fmt.Errorf("%d files are open after all writers were closed, %d were before", after, before)
	}
	return e.visible("closed without Prepare", 1)
}

func (e *sinkEnv[C]) abort() error {
	a, err := e.attempt(true, nil, 2)
	if err != nil {
		return err
	}
	err = steps(
		func() error { return a.write(0, 1) },
		func() error { return a.write(1, 2) },
		func() error { _, err := a.prepare(7); return err }, // and dies
	)
	if err != nil {
		return err
	}
	b, err := e.attempt(false, nil, 2)
	if err != nil {
		return err
	}
	var p prepared[C]
	var zombie error // of writers of the first attempt, which may still live and may fail
	return steps(
		func() error { return b.write(1, 1) },
		func() error { return b.write(0, 3) },
		func() (err error) { p, err = b.prepare(7); return err },
		func() error {
			if zombie = a.write(0, 4); zombie == nil {
				_, zombie = a.prepare(7)
			}
			return nil
		},
		func() error { return b.commit(p) },
		func() error {
			return e.visible(fmt.Sprintf("only the second attempt was committed (first attempt's error: %v)", zombie), 1, 3)
		},
		b.close,
		a.close,
		func() error { return e.visible("the first attempt closed late", 1, 3) },
		func() error { return b.commit(p) },
		func() error { return e.visible("committed again", 1, 3) },
	)
}

func (e *sinkEnv[C]) restoreAgain() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p prepared[C]
	err = steps(
		func() error { return a.write(0, 1, 2) },
		func() (err error) { p, err = a.prepare(3); return err },
		func() error { return a.commit(p) }, // and dies before it is known
	)
	if err != nil {
		return err
	}
	for range 3 {
		if a, err = e.attempt(false, []prepared[C]{p}, 2); err != nil {
			return err
		}
		err = steps(
			func() error { return e.visible("restored", 1, 2) },
			func() error { return a.write(1, 3) },
			func() error { _, err := a.prepare(4); return err }, // and dies
		)
		if err != nil {
			return err
		}
	}
	if a, err = e.attempt(false, []prepared[C]{p}, 1); err != nil {
		return err
	}
	var q prepared[C]
	return steps(
		func() error { return a.write(0, 3) },
		func() (err error) { q, err = a.prepare(4); return err },
		func() error { return a.commit(q) },
		func() error { return e.visible("finished", 1, 2, 3) },
		a.close,
	)
}

func (e *sinkEnv[C]) start() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var p, q prepared[C]
	err = steps(
		func() error { return a.write(0, 1) },
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.write(0, 2) },
		func() (err error) { q, err = a.prepare(2); return err },
		a.close,
	)
	if err != nil {
		return err
	}
	if a, err = e.attempt(false, []prepared[C]{p, q}, 1); err != nil {
		return err
	}
	if err := steps(a.close, func() error { return e.visible("restored", 1, 2) }); err != nil {
		return err
	}
	s, ok := e.place.Open().(connector.Starter)
	if !ok {
		return nil
	}
	refused := s.Start(e.ctx, true) // as the sink will; it destroys nothing
	return e.visible(fmt.Sprintf("a new run was started (error: %v)", refused), 1, 2)
}

func (e *sinkEnv[C]) subtasks() error {
	const n = 4
	a, err := e.attempt(true, nil, n)
	if err != nil {
		return err
	}
	lists, errs := make([]prepared[C], n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			errs[i] = safely(func() (err error) {
				one := &attempt[C]{e: e, sink: a.sink, writers: a.writers[i : i+1]}
				for id := range int64(20) {
					if err := one.write(0, int64(i)*100+id); err != nil {
						return err
					}
				}
				lists[i], err = one.prepare(5)
				return err
			})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var want []int64
	for i := range n {
		if err := a.commit(lists[i]); err != nil {
			return err
		}
		for id := range int64(20) {
			want = append(want, int64(i)*100+id)
		}
		if err := e.visible(fmt.Sprintf("committables of subtasks 0 to %d committed", i), want...); err != nil {
			return err
		}
	}
	return a.close()
}

func (e *sinkEnv[C]) large() error {
	a, err := e.attempt(true, nil, 1)
	if err != nil {
		return err
	}
	var want []int64
	for range 20 {
		var batch []int64
		for range 1 + e.rand.IntN(1000) {
			batch = append(batch, int64(len(want)))
			want = append(want, int64(len(want)))
		}
		if err := a.write(0, batch...); err != nil {
			return err
		}
	}
	var p prepared[C]
	return steps(
		func() (err error) { p, err = a.prepare(1); return err },
		func() error { return a.commit(p) },
		a.close,
		func() error { return e.visible("committed", want...) },
	)
}

// crashes plays a job that writes the records from 0 on and dies at random steps. The manifest is what
// survives: the position, and the committables that are not known committed.
func (e *sinkEnv[C]) crashes() error {
	const total = 300
	var position, completed int64
	var listed []prepared[C]
	for life := 0; position < total || len(listed) > 0; life++ {
		writers := 1 + e.rand.IntN(3)
		a, err := e.attempt(life == 0, listed, writers)
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		listed = nil
		next, checkpoint := position, completed // the number of a lost checkpoint is used again
		for alive := true; alive && (next < total || len(listed) > 0 || position < next); {
			for range e.rand.IntN(40) {
				if next == total {
					break
				}
				if err := a.write(e.rand.IntN(writers), next); err != nil {
					return err
				}
				next++
			}
			checkpoint++
			p, err := a.prepare(checkpoint)
			if err != nil {
				return err
			}
			if e.rand.IntN(8) == 0 {
				break // dies before the manifest is stored
			}
			position, completed = next, checkpoint
			listed = append(listed, p)
			switch e.rand.IntN(8) {
			case 0: // dies before it commits
				alive = false
			case 1: // dies in the middle of a commit
				half := prepared[C]{p.checkpoint, p.list[:e.rand.IntN(len(p.list)+1)]}
				for _, l := range append(slices.Clone(listed[:len(listed)-1]), half) {
					if err := a.commit(l); err != nil {
						return err
					}
				}
				alive = false
			case 2: // dies when all is committed and the manifest still lists it
				for _, l := range listed {
					if err := a.commit(l); err != nil {
						return err
					}
				}
				alive = false
			case 3: // the commit is late
			default:
				for _, l := range listed {
					if err := a.commit(l); err != nil {
						return err
					}
				}
				listed = nil
			}
		}
		// Its processes are gone, or, as zombies, end properly now.
		if e.rand.IntN(2) == 0 {
			if err := a.close(); err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
		}
	}
	var want []int64
	for id := range int64(total) {
		want = append(want, id)
	}
	return e.visible("finished", want...)
}
