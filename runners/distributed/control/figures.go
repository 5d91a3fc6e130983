package control

import (
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// PackFigures makes a message of what a step's code counts; nil if that is nothing.
func PackFigures(f kernel.Figures) *Figures {
	if len(f.Counters)+len(f.Distributions)+len(f.Gauges)+len(f.Histograms) == 0 {
		return nil
	}
	summary := func(s kernel.Summary) *Summary {
		return &Summary{Count: s.Count, Sum: s.Sum, Min: s.Min, Max: s.Max}
	}
	return &Figures{
		Counters:      f.Counters,
		Distributions: each(f.Distributions, summary),
		Gauges:        each(f.Gauges, func(r kernel.Reading) *Reading { return &Reading{Value: r.Value, At: int64(r.At)} }),
		Histograms: each(f.Histograms, func(b kernel.Buckets) *Buckets {
			return &Buckets{Summary: summary(b.Summary), Counts: b.N}
		}),
	}
}

// Unpack undoes PackFigures.
func (f *Figures) Unpack() kernel.Figures {
	summary := func(s *Summary) kernel.Summary {
		return kernel.Summary{Count: s.GetCount(), Sum: s.GetSum(), Min: s.GetMin(), Max: s.GetMax()}
	}
	return kernel.Figures{
		Counters:      f.GetCounters(),
		Distributions: each(f.GetDistributions(), summary),
		Gauges: each(f.GetGauges(), func(r *Reading) kernel.Reading {
			return kernel.Reading{Value: r.GetValue(), At: eventtime.Time(r.GetAt())}
		}),
		Histograms: each(f.GetHistograms(), func(b *Buckets) kernel.Buckets {
			return kernel.Buckets{Summary: summary(b.GetSummary()), N: b.GetCounts()}
		}),
	}
}

func each[A, B any](in map[string]A, f func(A) B) map[string]B {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]B, len(in))
	for name, v := range in {
		out[name] = f(v)
	}
	return out
}
