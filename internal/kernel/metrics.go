package kernel

import (
	"sync"
	"sync/atomic"
)

// Metrics are the figures of one operator of one subtask. The operator's goroutine writes them, a batch
// at a time; anyone may read.
type Metrics struct {
	RecordsIn, RecordsOut, LateDropped atomic.Int64
	Watermark                          atomic.Int64 // output watermark, event time in ms

	mu   sync.Mutex
	user map[string]*Counter
	dist map[string]*Distribution
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

// Counter returns the user's counter of that name, made at first use.
func (m *Metrics) Counter(name string) *Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.user[name]
	if c == nil {
		c = new(Counter)
		if m.user == nil {
			m.user = map[string]*Counter{}
		}
		m.user[name] = c
	}
	return c
}

// Distribution returns the user's distribution of that name, made at first use.
func (m *Metrics) Distribution(name string) *Distribution {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dist[name]
	if d == nil {
		d = new(Distribution)
		if m.dist == nil {
			m.dist = map[string]*Distribution{}
		}
		m.dist[name] = d
	}
	return d
}

// EachCounter calls f for every counter.
func (m *Metrics) EachCounter(f func(name string, value int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, c := range m.user {
		f(n, c.Value())
	}
}

// EachDistribution calls f for every distribution.
func (m *Metrics) EachDistribution(f func(name string, s Summary)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, d := range m.dist {
		f(n, d.Value())
	}
}
