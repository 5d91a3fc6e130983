package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millstream/millstream/testing/seeds"
)

// A list in blocks and a slice do the same at random; snapshots taken on the way never change.
func TestBlocksAgreeWithASlice(t *testing.T) {
	seeds.Each(t, 60, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 1))
		var b blocks[int]
		var want []int
		type taken struct {
			b    blocks[int]
			want []int
		}
		var snapshots []taken
		seek := func(x int) (place, int) {
			i, _ := slices.BinarySearch(want, x)
			return b.seek(func(p *int) bool { return *p < x }), i
		}
		steps, span := 400, 1+r.IntN(3000)
		for step := range steps {
			switch n := r.IntN(20); {
			case n < 11:
				x := r.IntN(span)
				p, i := seek(x)
				if in := b.insert(p, element[int]{p: x}); in.p != x {
					return fmt.Errorf("step %d: insert returned the place of %d, not of %d", step, in.p, x)
				}
				want = slices.Insert(slices.Clone(want), i, x)
			case n < 14:
				x := span
				if len(want) > 0 {
					x = want[len(want)-1]
				}
				for range r.IntN(60) {
					x += r.IntN(3)
					b.push(element[int]{p: x})
					want = append(want[:len(want):len(want)], x)
				}
			case n < 17:
				x := r.IntN(span)
				p, i := seek(x)
				q, j := seek(x + r.IntN(1+r.IntN(span)))
				if i < j {
					b.remove(p, q)
					want = slices.Concat(want[:i], want[j:])
				}
			case n == 17:
				x := r.IntN(3) + 2
				b.filter(func(e *element[int]) bool { return e.p%x > 0 })
				want = slices.DeleteFunc(slices.Clone(want), func(p int) bool { return p%x == 0 })
			case n == 18:
				x := r.IntN(span)
				p, i := seek(x)
				q, j := seek(x + r.IntN(span))
				snapshots = append(snapshots, taken{b.slice(p, q), want[i:j]})
			default:
				snapshots = append(snapshots, taken{b.snapshot(), want})
			}
			for i, k := range b.list {
				if len(k.e) == 0 || len(k.e) > blockMax {
					return fmt.Errorf("step %d: block %d has %d elements", step, i, len(k.e))
				}
			}
			if err := sameElements(b, want); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		for i, s := range snapshots {
			if err := sameElements(s.b, s.want); err != nil {
				return fmt.Errorf("snapshot %d of %d: %w", i, len(snapshots), err)
			}
		}
		return nil
	})
}

func sameElements(b blocks[int], want []int) error {
	var got []int
	b.each(func(e *element[int]) bool { got = append(got, e.p); return true })
	if !slices.Equal(got, want) || b.n != len(want) {
		return fmt.Errorf("%v (%d), want %v (%d)", got, b.n, want, len(want))
	}
	return nil
}

// Deleting all over a large list must not leave a trail of tiny blocks.
func TestBlocksStayFew(t *testing.T) {
	var b blocks[int]
	for i := range 100_000 {
		b.push(element[int]{p: i})
	}
	for i := range 100_000 {
		if i%100 > 0 {
			p := b.seek(func(p *int) bool { return *p < i })
			b.remove(p, b.after(p))
		}
	}
	if b.n != 1000 || len(b.list) > 4*1000/blockMax {
		t.Errorf("%d elements in %d blocks", b.n, len(b.list))
	}
}
