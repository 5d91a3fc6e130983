package enginetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/connector"
)

// Numbers is a source of splits of numbered records, whose keys and times follow from their numbers.
type Numbers struct {
	SplitCount, PerSplit int
	Keys                 int64 // number of different keys
	Disorder             int64 // ms that a record is behind those before it at most
	Salt                 uint64
	Silent               int  // reads in a row that bring nothing, now and then; 10 ms each
	Busy                 bool // never idle, where 10 ms are real
}

// NumberSplit is the position in a split.
type NumberSplit struct{ ID, Next int64 }

// Record returns a record and its time.
func (s Numbers) Record(split, i int64) (KV, eventtime.Time) {
	h := uint64(split*1_000_003+i)*0x9E3779B97F4A7C15 ^ s.Salt
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	t := i*10 - int64(h%uint64(s.Disorder+1))
	return KV{Key: int64(h>>8) & 0xffff % s.Keys, Value: split*1_000_000 + i}, eventtime.Time(t)
}

// Splits implements connector.Source.
func (s Numbers) Splits(context.Context) (out []NumberSplit, _ error) {
	for i := range s.SplitCount {
		out = append(out, NumberSplit{ID: int64(i)})
	}
	return out, nil
}

// SplitID implements connector.Source.
func (s Numbers) SplitID(n NumberSplit) string { return fmt.Sprint(n.ID) }

// Open implements connector.Source.
func (s Numbers) Open(context.Context, connector.Subtask) (connector.Reader[KV, NumberSplit], error) {
	return &numberReader{s: s}, nil
}

// At recovers the time of a record from its value.
func (s Numbers) At(v KV) time.Time {
	_, t := s.Record(v.Value/1_000_000, v.Value%1_000_000)
	return t.Time()
}

type numberReader struct {
	s    Numbers
	todo []NumberSplit
	out  []KV
	turn int
	mute int // reads that will bring nothing
}

func (r *numberReader) Assign(s []NumberSplit) error { r.todo = append(r.todo, s...); return nil }
func (r *numberReader) Close() error                 { return nil }
func (r *numberReader) Read(_ context.Context, max int) (b connector.Batch[KV, NumberSplit], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	if r.mute > 0 {
		r.mute--
		b.Status = connector.Idle
		return b, nil
	}
	if r.turn++; r.turn%5 == 0 && !r.s.Busy {
		if r.turn%20 == 0 {
			r.mute = r.s.Silent
		}
		b.Status = connector.Idle
		return b, nil
	}
	sp := &r.todo[0]
	r.out = r.out[:0]
	for len(r.out) < min(max, 1+r.turn%7) && sp.Next < int64(r.s.PerSplit) {
		v, _ := r.s.Record(sp.ID, sp.Next)
		r.out = append(r.out, v)
		sp.Next++
	}
	b.Records, b.Split, b.Done = r.out, *sp, sp.Next == int64(r.s.PerSplit)
	if b.Done {
		r.todo = r.todo[1:]
	}
	return b, nil
}

// ledger is what sinks have committed, once however often they are asked.
type ledger struct {
	mu        sync.Mutex
	rows      map[int][]elem // by sink
	committed map[string]bool
	nonce     int // committables of different attempts differ
}

type rows struct {
	ID   string
	Rows []elem
}

type ledgerSink struct {
	l  *ledger
	id int
}

func (s ledgerSink) Open(_ context.Context, sub connector.Subtask) (connector.Writer[KV, rows], error) {
	return &ledgerWriter{s: s, sub: sub}, nil
}

func (s ledgerSink) Commit(_ context.Context, _ int64, cs []rows) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	for _, c := range cs {
		if !s.l.committed[c.ID] {
			s.l.committed[c.ID] = true
			s.l.rows[s.id] = append(s.l.rows[s.id], c.Rows...)
		}
	}
	return nil
}

type ledgerWriter struct {
	s   ledgerSink
	sub connector.Subtask
	buf []elem
}

func (w *ledgerWriter) Write(_ context.Context, rs []connector.Record[KV]) error {
	for _, r := range rs {
		w.buf = append(w.buf, elem{r.Value.Key, r.Value.Value, eventtime.FromTime(r.Time), r.Window.StartTime(), r.Window.EndTime()})
	}
	return nil
}

func (w *ledgerWriter) Prepare(_ context.Context, cp int64) ([]rows, error) {
	if len(w.buf) == 0 {
		return nil, nil
	}
	w.s.l.mu.Lock()
	w.s.l.nonce++
	c := rows{ID: fmt.Sprintf("%d/%d/%d/%d", w.s.id, w.sub.Index, cp, w.s.l.nonce), Rows: w.buf}
	w.s.l.mu.Unlock()
	w.buf = nil
	return []rows{c}, nil
}
func (w *ledgerWriter) Close() error { return nil }
