package connectortest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk/connector"
)

func TestSplitterSuiteFindsWhatIsBroken(t *testing.T) {
	type reader = *alteredReader
	type split = memio.Split
	for _, test := range []struct {
		name, fails string // obligations, of which all must fail
		alter       func(s *alteredSource)
	}{
		{"nothing is broken", "", func(*alteredSource) {}},
		{"nothing is ever divided", "divide", func(s *alteredSource) {
			s.split = func(reader, float64) (a, b split, ok bool) { return a, b, false }
		}},
		{"a record is lost between the parts", "divide crumble", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				if a, b, ok = r.divide(keep); ok && b.Next+1 < b.To {
					b.Next, b.From = b.Next+1, b.From+1
				}
				return a, b, ok
			}
		}},
		{"a record is in both parts", "divide crumble", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				if a, b, ok = r.divide(keep); ok && a.To-a.Next > 1 {
					b.Next, b.From = b.Next-1, b.From-1
				}
				return a, b, ok
			}
		}},
		{"the reader goes on as if nothing had been given away", "divide crumble", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				if a, b, ok = r.divide(keep); ok {
					given := b
					given.Index = a.Index
					if err := r.Reader.Assign([]split{given}); err != nil {
						panic(err)
					}
				}
				return a, b, ok
			}
		}},
		{"what is kept has the old position", "divide", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				if a, b, ok = r.divide(keep); ok {
					a.Next = a.From
				}
				return a, b, ok
			}
		}},
		{"what is kept has the old end", "divide", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				if a, b, ok = r.divide(keep); ok {
					a.To = b.To
				}
				return a, b, ok
			}
		}},
		{"both parts have one identity", "divide crumble", func(s *alteredSource) {
			s.id = func(sp split) string { return fmt.Sprint(sp.Index) }
		}},
		{"what is kept has another identity", "divide crumble", func(s *alteredSource) {
			s.id = func(sp split) string { return fmt.Sprint(sp.From, sp.To) }
		}},
		{"parts of parts have one identity", "crumble", func(s *alteredSource) {
			s.id = func(sp split) string { return fmt.Sprint(sp.Index, sp.From%10 > 0) }
		}},
		{"it divides after the end", "end", func(s *alteredSource) {
			s.split = func(r reader, keep float64) (a, b split, ok bool) {
				a, b, _ = r.divide(keep)
				return a, b, true
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows := make([]*int, 40)
			for i := range rows {
				rows[i] = new(int)
				*rows[i] = i
			}
			open := func() connector.Source[*int, memio.Split] {
				s := alteredSource{mem: memio.Source(rows, memio.Splits(4), memio.Batch(10))}
				test.alter(&s)
				return s
			}
			expect(t, test.fails, failing(t, splitterObligations[*int, memio.Split](), func(ctx context.Context, r *rand.Rand) *sourceEnv[*int, memio.Split] {
				e, err := newSourceEnv(ctx, r, open, rows)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}))
		})
	}
}
