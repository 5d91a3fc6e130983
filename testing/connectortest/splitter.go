package connectortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millstream/millstream/sdk/connector"
)

// Splitter runs the suite of connector.Splitter on a bounded source, some split of which can be divided. open and want are as for
// Source.
func Splitter[T, S any](t *testing.T, open func() connector.Source[T, S], want []T) {
	t.Helper()
	run(t, splitterObligations[T, S](), func(t *testing.T, ctx context.Context, r *rand.Rand) *sourceEnv[T, S] {
		e, err := newSourceEnv(ctx, r, open, want)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

func splitterObligations[T, S any]() []obligation[*sourceEnv[T, S]] {
	return []obligation[*sourceEnv[T, S]]{
		{"divide", "what is left of a split is divided at every position, without losing or repeating a record, for the reader itself and for those to which the parts are assigned",
			(*sourceEnv[T, S]).dividesEverywhere},
		{"crumble", "parts are divided again and again, also while they are read; each has an identity of its own, and together they have each record once",
			(*sourceEnv[T, S]).crumbles},
		{"end", "a reader that has nothing left divides nothing",
			(*sourceEnv[T, S]).dividesNothing},
	}
}

// split divides what a reading has left of its first split, checks what comes, and takes it over. It returns false if it cannot be
// divided there.
func (r *reading[T, S]) split(keep float64) (residual S, ok bool, err error) {
	s, is := r.reader.(connector.Splitter[S])
	if !is {
		return residual, false, fmt.Errorf("%T does not implement connector.Splitter", r.reader)
	}
	primary, residual, ok := s.Split(keep)
	if !ok {
		return residual, false, nil
	}
	if len(r.left) == 0 {
		return residual, false, errors.New("split: nothing is left, and yet it was divided")
	}
	parts, err := r.e.stored([]S{primary, residual})
	if err != nil {
		return residual, false, err
	}
	was, first, second := r.source.SplitID(r.left[0]), r.source.SplitID(parts[0]), r.source.SplitID(parts[1])
	switch {
	case first != was:
		err = fmt.Errorf("split: what the reader keeps of split %q has the ID %q", was, first)
	case second == was:
		err = fmt.Errorf("split: what the reader gives away of split %q has the same ID", was)
	}
	r.left[0] = parts[0]
	return parts[1], true, err
}

// dividesEverywhere reads record by record and divides at every point, or at some if there are many.
func (e *sourceEnv[T, S]) dividesEverywhere() error {
	const points = 60
	divided := false
	for at := 0; at <= len(e.want); at++ {
		if len(e.want) > points && e.rand.IntN(len(e.want)) >= points {
			continue
		}
		for _, keep := range []float64{0, 0.5, 1, e.rand.Float64()} {
			ok, err := e.divideAt(at, keep)
			if err != nil {
				return fmt.Errorf("divided after %d records, keeping %.3f: %w", at, keep, err)
			}
			divided = divided || ok
		}
	}
	if !divided {
		return errors.New("no split was divided, wherever it was")
	}
	return nil
}

func (e *sourceEnv[T, S]) divideAt(at int, keep float64) (ok bool, err error) {
	r, err := e.start(nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.reader.Close()) }()
	for n := 0; n < at && !r.ended; {
		records, err := r.next(1)
		if err != nil {
			return false, err
		}
		n += len(records)
	}
	residual, ok, err := r.split(keep)
	if err != nil || !ok {
		return false, err
	}
	left := slices.Clone(r.left)
	// The order of the records: what is kept, what was given away, then the splits behind.
	rest := func(splits []S) ([]string, error) {
		other, err := e.start(splits)
		if err != nil {
			return nil, err
		}
		got, err := other.rest(1 + e.rand.IntN(50))
		return got, errors.Join(err, other.reader.Close())
	}
	first, err := rest(left[:1])
	if err != nil {
		return false, fmt.Errorf("what is kept, in another reader: %w", err)
	}
	second, err := rest([]S{residual})
	if err != nil {
		return false, fmt.Errorf("what was given away: %w", err)
	}
	var others []string
	if len(left) > 1 {
		if others, err = rest(left[1:]); err != nil {
			return false, err
		}
	}
	if err := e.compare(slices.Concat(first, second, others), e.want[at:]); err != nil {
		return false, fmt.Errorf("the parts in readers of their own (%d records kept, %d given away): %w", len(first), len(second), err)
	}
	got, err := r.rest(1 + e.rand.IntN(50))
	if err != nil {
		return false, fmt.Errorf("the reader itself: %w", err)
	}
	if err := e.compare(got, slices.Concat(first, others)); err != nil {
		return false, fmt.Errorf("the reader itself, which kept %d records: %w", len(first), err)
	}
	return true, nil
}

// crumbles divides at random, reads on, and gives the parts to other readers that do the same.
func (e *sourceEnv[T, S]) crumbles() error {
	todo := [][]S{nil} // nil: what the source lists
	ids := map[string]bool{}
	var got []string
	for lives := 0; len(todo) > 0; lives++ {
		if lives > 1000+10*len(e.want) {
			return fmt.Errorf("%d parts, and still more of %d records", lives, len(e.want))
		}
		r, err := e.start(todo[0])
		if err != nil {
			return err
		}
		todo = todo[1:]
		for !r.ended {
			if e.rand.IntN(3) == 0 {
				residual, ok, err := r.split(e.rand.Float64())
				if err != nil {
					return err
				}
				if ok {
					id := r.source.SplitID(residual)
					if ids[id] {
						return fmt.Errorf("split: two parts have the ID %q", id)
					}
					ids[id] = true
					todo = append(todo, []S{residual})
				}
			}
			records, err := r.next(1 + e.rand.IntN(4))
			if err != nil {
				return err
			}
			enc, err := e.encode(records)
			if err != nil {
				return err
			}
			got = append(got, enc...)
		}
		if err := r.reader.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	want := slices.Clone(e.want)
	slices.Sort(want)
	slices.Sort(got)
	return e.compare(got, want)
}

func (e *sourceEnv[T, S]) dividesNothing() error {
	r, err := e.start(nil)
	if err != nil {
		return err
	}
	if _, err = r.rest(1000); err == nil {
		_, _, err = r.split(0.5)
	}
	return errors.Join(err, r.reader.Close())
}
