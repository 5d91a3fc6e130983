package kernel

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/millstream/millstream/internal/eventtime"
)

// Metrics are the figures of one operator of one subtask. The operator's goroutine writes them, a batch
// at a time; anyone may read.
type Metrics struct {
	RecordsIn, RecordsOut, LateDropped atomic.Int64
	Watermark                          atomic.Int64 // output watermark, event time in ms

	mu         sync.Mutex // guards the maps, not what is in them
	counters   map[string]*Counter
	dists      map[string]*Distribution
	gauges     map[string]*Gauge
	histograms map[string]*Histogram
}

// Counter is a named count of a user's step. It belongs to its subtask's goroutine; Value may be read by anyone.
type Counter struct{ n atomic.Int64 }

// Inc adds d.
func (c *Counter) Inc(d int64) { c.n.Store(c.n.Load() + d) } // one writer: no read-modify-write needed

// Value is the present count.
func (c *Counter) Value() int64 { return c.n.Load() }

// Distribution sums up the values observed by a user's step.
type Distribution struct {
	mu sync.Mutex
	s  Summary
}

// Summary is count, sum, least and greatest of the observed values.
type Summary struct{ Count, Sum, Min, Max int64 }

// Merge adds o to s.
func (s Summary) Merge(o Summary) Summary {
	switch {
	case s.Count == 0:
		return o
	case o.Count == 0:
		return s
	}
	return Summary{s.Count + o.Count, s.Sum + o.Sum, min(s.Min, o.Min), max(s.Max, o.Max)}
}

// Observe adds one value.
func (d *Distribution) Observe(v int64) {
	d.mu.Lock()
	d.s = d.s.Merge(Summary{1, v, v, v})
	d.mu.Unlock()
}

// Value is the present summary.
func (d *Distribution) Value() Summary {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.s
}

// Gauge is a value that stands until the next one, of a user's step.
type Gauge struct {
	mu  sync.Mutex
	now func() eventtime.Time // processing time; nil: always 0
	r   Reading
	set bool
}

// Reading is what a gauge was set to last, and when.
type Reading struct {
	Value int64
	At    eventtime.Time // processing time
}

// Set sets the value, as of now.
func (g *Gauge) Set(v int64) {
	r := Reading{Value: v}
	if g.now != nil {
		r.At = g.now()
	}
	g.mu.Lock()
	g.r, g.set = r, true
	g.mu.Unlock()
}

// Value is the present reading; false if there is none yet.
func (g *Gauge) Value() (Reading, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.r, g.set
}

// Merge is the later of two readings, and of two of one millisecond the greater.
func (r Reading) Merge(o Reading) Reading {
	if o.At > r.At || o.At == r.At && o.Value > r.Value {
		return o
	}
	return r
}

// Figures are the figures of a user's step by their names, each map nil if there are none.
type Figures struct {
	Counters      map[string]int64
	Distributions map[string]Summary
	Gauges        map[string]Reading
	Histograms    map[string]Buckets
}

// Merge adds the figures of another subtask.
func (f *Figures) Merge(o Figures) {
	f.Counters = mergeFigures(f.Counters, o.Counters, func(a, b int64) int64 { return a + b })
	f.Distributions = mergeFigures(f.Distributions, o.Distributions, Summary.Merge)
	f.Gauges = mergeFigures(f.Gauges, o.Gauges, Reading.Merge)
	f.Histograms = mergeFigures(f.Histograms, o.Histograms, Buckets.Merge)
}

func mergeFigures[F any](to, from map[string]F, merge func(a, b F) F) map[string]F {
	for name, v := range from {
		if to == nil {
			to = map[string]F{}
		}
		if have, ok := to[name]; ok {
			v = merge(have, v)
		}
		to[name] = v
	}
	return to
}

// Figures is what they are now.
func (m *Metrics) Figures() (f Figures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.Counters = readFigures(m.counters, func(c *Counter) (int64, bool) { return c.Value(), true })
	f.Distributions = readFigures(m.dists, func(d *Distribution) (Summary, bool) { return d.Value(), true })
	f.Gauges = readFigures(m.gauges, (*Gauge).Value)
	f.Histograms = readFigures(m.histograms, func(h *Histogram) (Buckets, bool) { return h.Value(), true })
	return f
}

func readFigures[M, F any](of map[string]M, value func(M) (F, bool)) (out map[string]F) {
	for name, m := range of {
		if v, ok := value(m); ok {
			if out == nil {
				out = map[string]F{}
			}
			out[name] = v
		}
	}
	return out
}

// figure is the user's figure of that name, made at first use.
func figure[M any](m *Metrics, in *map[string]*M, name string) *M {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = metricName(name)
	f := (*in)[name]
	if f == nil {
		f = new(M)
		if *in == nil {
			*in = map[string]*M{}
		}
		(*in)[name] = f
	}
	return f
}

// maxMetricName is the greatest length of a metric's name, in bytes. What is beyond is cut.
const maxMetricName = 200

// metricName is a name as reports, protocols and pages can take it: valid UTF-8, one line, not too long.
func metricName(name string) string {
	if len(name) > maxMetricName {
		name = name[:maxMetricName]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, toValidUTF8(name))
}

// Counter returns the user's counter of that name.
func (m *Metrics) Counter(name string) *Counter { return figure(m, &m.counters, name) }

// Distribution returns the user's distribution of that name.
func (m *Metrics) Distribution(name string) *Distribution { return figure(m, &m.dists, name) }

// Histogram returns the user's histogram of that name.
func (m *Metrics) Histogram(name string) *Histogram { return figure(m, &m.histograms, name) }

// Gauge returns the user's gauge of that name, whose readings have the times of now.
func (m *Metrics) Gauge(name string, now func() eventtime.Time) *Gauge {
	g := figure(m, &m.gauges, name)
	g.mu.Lock()
	g.now = now
	g.mu.Unlock()
	return g
}
