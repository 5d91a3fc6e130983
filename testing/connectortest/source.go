package connectortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/connector"
)

// Source runs the suite on a bounded source. open makes a Source of the same data each time, as another
// process would; want is all its records, in the order of the splits. T and S need a coder as of coder.Of.
func Source[T, S any](t *testing.T, open func() connector.Source[T, S], want []T) {
	t.Helper()
	run(t, sourceObligations[T, S](), func(t *testing.T, ctx context.Context, r *rand.Rand) *sourceEnv[T, S] {
		e, err := newSourceEnv(ctx, r, open, want)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

// Bounder runs a test of connector.Bounder: at is the timestamp of a record.
func Bounder[T, S any](t *testing.T, open func() connector.Source[T, S], at func(T) time.Time) {
	t.Helper()
	run(t, bounderObligations[T, S](at), func(t *testing.T, ctx context.Context, r *rand.Rand) *sourceEnv[T, S] {
		e, err := newSourceEnv(ctx, r, open, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

type sourceEnv[T, S any] struct {
	ctx     context.Context
	rand    *rand.Rand
	open    func() connector.Source[T, S]
	want    []string // encoded records
	records coder.Coder[T]
	splits  coder.Coder[S]
}

func newSourceEnv[T, S any](ctx context.Context, r *rand.Rand, open func() connector.Source[T, S], want []T) (*sourceEnv[T, S], error) {
	e := &sourceEnv[T, S]{ctx: ctx, rand: r, open: open}
	var err error
	if e.records, err = coder.Of[T](); err != nil {
		return nil, err
	}
	if e.splits, err = coder.Of[S](); err != nil {
		return nil, err
	}
	e.want, err = e.encode(want)
	return e, err
}

func sourceObligations[T, S any]() []obligation[*sourceEnv[T, S]] {
	return []obligation[*sourceEnv[T, S]]{
		{"splits", "Splits lists the same splits in every process, each with an identity of its own",
			(*sourceEnv[T, S]).sameSplits},
		{"read", "all splits are read in order, at most max records at a time, each split Done once; then Read returns End, ever after",
			(*sourceEnv[T, S]).readsAll},
		{"restore", "a reader that is assigned a position continues exactly there, whatever the point",
			(*sourceEnv[T, S]).restoresEverywhere},
		{"crashes", "reads that are interrupted again and again, in batches of all sizes, bring each record once",
			(*sourceEnv[T, S]).survivesCrashes},
		{"subtasks", "one Source serves all subtasks of a process at once",
			(*sourceEnv[T, S]).servesSubtasks},
		{"ownership", "the values of Records are given away: the reader does not change them later, nor is it disturbed when the slice is overwritten",
			(*sourceEnv[T, S]).givesAway},
		{"close", "Close frees what the reader holds, whether it has been read to the end, half, or never assigned a split",
			(*sourceEnv[T, S]).closes},
	}
}

func (e *sourceEnv[T, S]) encode(records []T) ([]string, error) {
	out := make([]string, len(records))
	for i, v := range records {
		b, err := e.records.Append(nil, v)
		if err != nil {
			return nil, fmt.Errorf("encode record %d: %w", i, err)
		}
		out[i] = string(b)
	}
	return out, nil
}

// stored is what a checkpoint makes of splits.
func (e *sourceEnv[T, S]) stored(splits []S) ([]S, error) {
	out := make([]S, len(splits))
	for i, sp := range splits {
		b, err := e.splits.Append(nil, sp)
		if err != nil {
			return nil, fmt.Errorf("encode split %d: %w", i, err)
		}
		var rest []byte
		if out[i], rest, err = e.splits.Decode(b); err != nil || len(rest) > 0 {
			return nil, fmt.Errorf("decode split %d: %d bytes left, %w", i, len(rest), err)
		}
	}
	return out, nil
}

// A reading is one reader and what is left of its splits.
type reading[T, S any] struct {
	e      *sourceEnv[T, S]
	source connector.Source[T, S]
	reader connector.Reader[T, S]
	left   []S // positions of the splits that are not done
	ended  bool
	idle   int
}

// start lists the splits if given none, and assigns them to a new reader of a new Source.
func (e *sourceEnv[T, S]) start(splits []S) (*reading[T, S], error) {
	r := &reading[T, S]{e: e, source: e.open()}
	var err error
	if splits == nil {
		if splits, err = r.source.Splits(e.ctx); err != nil {
			return nil, fmt.Errorf("list splits: %w", err)
		}
	}
	if r.left, err = e.stored(splits); err != nil {
		return nil, err
	}
	return r, r.open()
}

func (r *reading[T, S]) open() (err error) {
	if r.reader, err = r.source.Open(r.e.ctx, connector.Subtask{Index: 0, Parallelism: 1}); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if len(r.left) == 0 {
		r.ended = true // the runner does not assign nothing
		return nil
	}
	given := slices.Clone(r.left)
	if err := r.reader.Assign(given); err != nil {
		return fmt.Errorf("assign: %w", err)
	}
	clear(given)
	return nil
}

// next reads once and checks what comes.
func (r *reading[T, S]) next(most int) ([]T, error) {
	b, err := r.reader.Read(r.e.ctx, most)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(b.Records) > most {
		return nil, fmt.Errorf("read: %d records where at most %d were asked for", len(b.Records), most)
	}
	if len(b.Records) > 0 || b.Done {
		if len(r.left) == 0 {
			return nil, fmt.Errorf("read: %d records after the last split was done", len(b.Records))
		}
		if got, want := r.source.SplitID(b.Split), r.source.SplitID(r.left[0]); got != want {
			return nil, fmt.Errorf("read: records of split %q where split %q is next", got, want)
		}
		r.left[0] = b.Split
		if b.Done {
			r.left = r.left[1:]
		}
	}
	switch b.Status {
	case connector.End:
		if len(r.left) > 0 {
			return nil, fmt.Errorf("read: End, but split %q is not done", r.source.SplitID(r.left[0]))
		}
		r.ended = true
	case connector.Idle:
		if r.idle++; r.idle > 10_000 {
			return nil, errors.New("read: Idle 10,000 times; the source is bounded and must end")
		}
	default:
		if r.idle = 0; len(b.Records) == 0 && !b.Done {
			return nil, errors.New("read: no records, but More; say Idle if there are none now")
		}
	}
	return b.Records, nil
}

// rest reads to the end and returns the records, encoded as soon as they come.
func (r *reading[T, S]) rest(most int) ([]string, error) {
	var out []string
	for !r.ended {
		records, err := r.next(most)
		if err != nil {
			return nil, err
		}
		enc, err := r.e.encode(records)
		if err != nil {
			return nil, err
		}
		out = append(out, enc...)
	}
	return out, nil
}

// compare tells where records differ from those wanted.
func (e *sourceEnv[T, S]) compare(got, want []string) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("record %d of %d is %s, want %s", i, len(want), e.show(got[i]), e.show(want[i]))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	return nil
}

func (e *sourceEnv[T, S]) show(record string) string {
	v, _, err := e.records.Decode([]byte(record))
	if err != nil {
		return fmt.Sprintf("undecodable (%v)", err)
	}
	return fmt.Sprintf("%.200s", fmt.Sprintf("%+v", v))
}

func (e *sourceEnv[T, S]) sameSplits() error {
	var ids []string
	for try := range 3 {
		source := e.open()
		splits, err := source.Splits(e.ctx)
		if err != nil {
			return fmt.Errorf("list splits: %w", err)
		}
		again, err := e.stored(splits)
		if err != nil {
			return err
		}
		var now []string
		for i, sp := range splits {
			id := source.SplitID(sp)
			if got := source.SplitID(again[i]); got != id {
				return fmt.Errorf("split %q comes back from a checkpoint as %q", id, got)
			}
			if slices.Contains(now, id) {
				return fmt.Errorf("two splits have the ID %q", id)
			}
			now = append(now, id)
		}
		if try > 0 && !slices.Equal(ids, now) {
			return fmt.Errorf("splits are %q, and were %q before", now, ids)
		}
		ids = now
	}
	return nil
}

func (e *sourceEnv[T, S]) readsAll() error {
	for _, most := range []int{1, 2, 3, 7, 64, 1024, 1 << 20} {
		r, err := e.start(nil)
		if err != nil {
			return err
		}
		got, err := r.rest(most)
		if err == nil {
			err = e.compare(got, e.want)
		}
		for i := 0; i < 2 && err == nil; i++ {
			var b connector.Batch[T, S]
			if b, err = r.reader.Read(e.ctx, most); err == nil && (b.Status != connector.End || len(b.Records) > 0 || b.Done) {
				err = fmt.Errorf("read after End: %d records, Done %v, status %d", len(b.Records), b.Done, b.Status)
			}
		}
		if err := errors.Join(err, r.reader.Close()); err != nil {
			return fmt.Errorf("with max %d: %w", most, err)
		}
	}
	return nil
}

// restoresEverywhere reads record by record and, at every point, or at some if there are many, what
// remains by another reader.
func (e *sourceEnv[T, S]) restoresEverywhere() error {
	const points = 100
	r, err := e.start(nil)
	if err != nil {
		return err
	}
	for at := 0; ; {
		if len(e.want) <= points || e.rand.IntN(len(e.want)) < points {
			left := r.left
			other, err := e.start(append([]S{}, left...))
			if err != nil {
				return fmt.Errorf("restore after %d records: %w", at, err)
			}
			got, err := other.rest(1 + e.rand.IntN(100))
			if err == nil {
				err = e.compare(got, e.want[at:])
			}
			if err := errors.Join(err, other.reader.Close()); err != nil {
				return fmt.Errorf("restore after %d records: %w", at, err)
			}
		}
		if r.ended {
			return r.reader.Close()
		}
		records, err := r.next(1)
		if err != nil {
			return err
		}
		if at += len(records); at > len(e.want) {
			return fmt.Errorf("more than %d records", len(e.want))
		}
	}
}

func (e *sourceEnv[T, S]) survivesCrashes() error {
	for range 5 {
		r, err := e.start(nil)
		if err != nil {
			return err
		}
		var got []string
		for lives := 0; !r.ended; lives++ {
			if lives > 1000+10*len(e.want) {
				return fmt.Errorf("%d of %d records after %d lives of several reads each", len(got), len(e.want), lives)
			}
			for range e.rand.IntN(4) {
				if r.ended {
					break
				}
				records, err := r.next(1 + e.rand.IntN(1+len(e.want)/3))
				if err != nil {
					return err
				}
				enc, err := e.encode(records)
				if err != nil {
					return err
				}
				if got = append(got, enc...); len(got) > len(e.want) {
					return e.compare(got, e.want)
				}
			}
			if err := r.reader.Close(); err != nil {
				return fmt.Errorf("close: %w", err)
			}
			if r.ended {
				break
			}
			if r, err = e.start(append([]S{}, r.left...)); err != nil {
				return fmt.Errorf("restore after %d records: %w", len(got), err)
			}
		}
		if err := errors.Join(e.compare(got, e.want), r.reader.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (e *sourceEnv[T, S]) servesSubtasks() error {
	source := e.open()
	splits, err := source.Splits(e.ctx)
	if err != nil {
		return fmt.Errorf("list splits: %w", err)
	}
	got, errs := make([][]string, len(splits)), make([]error, len(splits))
	var group sync.WaitGroup
	for i, sp := range splits {
		group.Go(func() {
			errs[i] = safely(func() (err error) {
				r := &reading[T, S]{e: e, source: source, left: []S{sp}}
				if err := r.open(); err != nil {
					return err
				}
				got[i], err = r.rest(5)
				return errors.Join(err, r.reader.Close())
			})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return e.compare(slices.Concat(got...), e.want)
}

func (e *sourceEnv[T, S]) givesAway() error {
	r, err := e.start(nil)
	if err != nil {
		return err
	}
	var values []T
	for !r.ended {
		records, err := r.next(3)
		if err != nil {
			return err
		}
		values = append(values, records...)
		clear(records)
	}
	if err := r.reader.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	got, err := e.encode(values)
	if err != nil {
		return err
	}
	return e.compare(got, e.want)
}

func (e *sourceEnv[T, S]) closes() error {
	before := openFiles()
	for _, reads := range []int{0, 1, 2, 1 << 30} {
		r, err := e.start(nil)
		if err != nil {
			return err
		}
		for i := 0; i < reads && !r.ended; i++ {
			if _, err := r.next(1); err != nil {
				return err
			}
		}
		if err := r.reader.Close(); err != nil {
			return fmt.Errorf("close after %d reads: %w", reads, err)
		}
	}
	unused, err := e.open().Open(e.ctx, connector.Subtask{Index: 1, Parallelism: 2})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := unused.Close(); err != nil {
		return fmt.Errorf("close a reader without splits: %w", err)
	}
	if after := openFiles(); after > before {
		return fmt.Errorf("%d files are open after all readers were closed, %d were before", after, before)
	}
	return nil
}

func bounderObligations[T, S any](at func(T) time.Time) []obligation[*sourceEnv[T, S]] {
	return []obligation[*sourceEnv[T, S]]{
		{"bound", "LowerBound is at or below every timestamp in the split, and survives a checkpoint", func(e *sourceEnv[T, S]) error {
			source := e.open()
			b, ok := source.(connector.Bounder[S])
			if !ok {
				return fmt.Errorf("%T does not implement connector.Bounder", source)
			}
			splits, err := source.Splits(e.ctx)
			if err != nil {
				return err
			}
			known := false
			for _, sp := range splits {
				bound, id := b.LowerBound(sp), source.SplitID(sp)
				known = known || !bound.IsZero()
				r, err := e.start([]S{sp})
				if err != nil {
					return err
				}
				if again := r.source.(connector.Bounder[S]).LowerBound(r.left[0]); !again.Equal(bound) {
					return fmt.Errorf("split %q: the bound is %v after a checkpoint and was %v", id, again, bound)
				}
				for !r.ended {
					records, err := r.next(100)
					if err != nil {
						return err
					}
					for _, v := range records {
						if at(v).Before(bound) {
							return fmt.Errorf("split %q: record %+v is before the bound %v", id, v, bound)
						}
					}
				}
				if err := r.reader.Close(); err != nil {
					return err
				}
			}
			if !known {
				return errors.New("no split has a bound")
			}
			return nil
		}},
	}
}
