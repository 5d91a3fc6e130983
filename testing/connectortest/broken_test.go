package connectortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk/connector"
)

// failing returns the names of the obligations that do not hold.
func failing[E any](t *testing.T, obligations []obligation[E], newEnv func(ctx context.Context, r *rand.Rand) E) []string {
	var names []string
	for _, o := range obligations {
		if err := safely(func() error { return o.test(newEnv(t.Context(), rand.New(rand.NewPCG(1, 0)))) }); err != nil {
			names = append(names, o.name)
			t.Logf("%s: %v", o.name, err)
		}
	}
	return names
}

// ---- sources ----

type mem = connector.Source[*int, memio.Split]

// alteredSource is a memio source of which one thing is different.
type alteredSource struct {
	mem
	splits func([]memio.Split) []memio.Split
	id     func(memio.Split) string
	assign func([]memio.Split) []memio.Split
	read   func(r *alteredReader, most int) (connector.Batch[*int, memio.Split], error)
	split  func(r *alteredReader, keep float64) (primary, residual memio.Split, ok bool)
	close  func() error
}

func (s alteredSource) Splits(ctx context.Context) ([]memio.Split, error) {
	splits, err := s.mem.Splits(ctx)
	if s.splits != nil {
		splits = s.splits(splits)
	}
	return splits, err
}

func (s alteredSource) SplitID(sp memio.Split) string {
	if s.id != nil {
		return s.id(sp)
	}
	return s.mem.SplitID(sp)
}

func (s alteredSource) Open(ctx context.Context, sub connector.Subtask) (connector.Reader[*int, memio.Split], error) {
	r, err := s.mem.Open(ctx, sub)
	return &alteredReader{Reader: r, s: s}, err
}

type alteredReader struct {
	connector.Reader[*int, memio.Split]
	s      alteredSource
	turn   int
	reused [10]int
}

func (r *alteredReader) Assign(splits []memio.Split) error {
	if r.s.assign != nil {
		splits = r.s.assign(slices.Clone(splits))
	}
	return r.Reader.Assign(splits)
}

func (r *alteredReader) Read(ctx context.Context, most int) (connector.Batch[*int, memio.Split], error) {
	if r.s.read != nil {
		return r.s.read(r, most)
	}
	return r.Reader.Read(ctx, most)
}

func (r *alteredReader) Split(keep float64) (primary, residual memio.Split, ok bool) {
	if r.s.split != nil {
		return r.s.split(r, keep)
	}
	return r.divide(keep)
}

func (r *alteredReader) divide(keep float64) (primary, residual memio.Split, ok bool) {
	return r.Reader.(connector.Splitter[memio.Split]).Split(keep)
}

func (r *alteredReader) Close() error {
	if r.s.close != nil {
		return r.s.close()
	}
	return r.Reader.Close()
}

func TestSourceSuiteFindsWhatIsBroken(t *testing.T) {
	type reader = *alteredReader
	type batch = connector.Batch[*int, memio.Split]
	ctx := context.Background()
	listings := 0
	for _, test := range []struct {
		name, fails string // obligations, of which all must fail
		alter       func(s *alteredSource)
	}{
		{"nothing is broken", "", func(*alteredSource) {}},
		{"a split has no identity of its own", "splits", func(s *alteredSource) {
			s.id = func(memio.Split) string { return "split" }
		}},
		{"the identity tells the position", "read restore", func(s *alteredSource) {
			s.id = func(sp memio.Split) string { return fmt.Sprint(sp) }
		}},
		{"splits are listed in another order each time", "splits", func(s *alteredSource) {
			s.splits = func(sp []memio.Split) []memio.Split {
				if listings++; listings%2 == 0 {
					slices.Reverse(sp)
				}
				return sp
			}
		}},
		{"a split is left out", "read subtasks", func(s *alteredSource) {
			s.splits = func(sp []memio.Split) []memio.Split { return sp[:len(sp)-1] }
		}},
		{"positions are ignored", "restore crashes", func(s *alteredSource) {
			s.assign = func(sp []memio.Split) []memio.Split {
				for i := range sp {
					sp[i].Next = sp[i].Index * 10
				}
				return sp
			}
		}},
		{"a restored reader skips a record", "restore crashes", func(s *alteredSource) {
			s.assign = func(sp []memio.Split) []memio.Split {
				for i := range sp {
					if sp[i].Next > sp[i].Index*10 && sp[i].Next < sp[i].Index*10+10 {
						sp[i].Next++
					}
				}
				return sp
			}
		}},
		{"the position is that before the records", "restore crashes", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				b.Split.Next -= int64(len(b.Records))
				return b, err
			}
		}},
		{"more is returned than was asked for", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) { return r.Reader.Read(ctx, most+1) }
		}},
		{"splits are read in another order", "read", func(s *alteredSource) {
			s.assign = func(sp []memio.Split) []memio.Split { slices.Reverse(sp); return sp }
		}},
		{"End comes too early", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				if b.Done {
					b.Status = connector.End
				}
				return b, err
			}
		}},
		{"End does not last", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				if b.Status == connector.End && len(b.Records) == 0 {
					b.Status = connector.Idle
				}
				return b, err
			}
		}},
		{"a split is never done", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				b.Done = false
				return b, err
			}
		}},
		{"it waits for more for ever", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				if b.Status == connector.End {
					b.Status, b.Done = connector.Idle, false
				}
				return b, err
			}
		}},
		{"nothing is there, but More is said", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				if r.turn++; r.turn%3 == 0 {
					return batch{}, nil
				}
				return r.Reader.Read(ctx, most)
			}
		}},
		{"values are reused", "ownership", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				for i, v := range b.Records {
					r.reused[i%len(r.reused)] = *v
					b.Records[i] = &r.reused[i%len(r.reused)]
				}
				return b, err
			}
		}},
		{"Close fails", "close", func(s *alteredSource) {
			s.close = func() error { return errors.New("cannot close") }
		}},
		{"it panics at the end", "read", func(s *alteredSource) {
			s.read = func(r reader, most int) (batch, error) {
				b, err := r.Reader.Read(ctx, most)
				if b.Status == connector.End {
					panic("index out of range")
				}
				return b, err
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
			expect(t, test.fails, failing(t, sourceObligations[*int, memio.Split](), func(ctx context.Context, r *rand.Rand) *sourceEnv[*int, memio.Split] {
				e, err := newSourceEnv(ctx, r, open, rows)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}))
		})
	}
}

// expect compares obligations that failed with those that must: all of them, or none if none is named.
func expect(t *testing.T, want string, got []string) {
	t.Helper()
	if want == "" && len(got) > 0 {
		t.Errorf("%q failed, and nothing is broken", got)
	}
	for _, name := range strings.Fields(want) {
		if !slices.Contains(got, name) {
			t.Errorf("%q held; failed: %q", name, got)
		}
	}
}

type bounded struct {
	mem
	bound time.Time
}

func (b bounded) LowerBound(memio.Split) time.Time { return b.bound }

func TestBounderSuiteFindsWhatIsBroken(t *testing.T) {
	one := 1000
	at := func(v *int) time.Time { return time.Unix(int64(*v), 0) }
	for _, test := range []struct {
		name, fails string
		source      mem
	}{
		{"right", "", bounded{memio.Source([]*int{&one}), time.Unix(1000, 0)}},
		{"too late", "bound", bounded{memio.Source([]*int{&one}), time.Unix(1001, 0)}},
		{"none", "bound", bounded{memio.Source([]*int{&one}), time.Time{}}},
		{"no Bounder", "bound", memio.Source([]*int{&one})},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, test.fails, failing(t, bounderObligations[*int, memio.Split](at), func(ctx context.Context, r *rand.Rand) *sourceEnv[*int, memio.Split] {
				e, err := newSourceEnv(ctx, r, func() connector.Source[*int, memio.Split] { return test.source }, nil)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}))
		})
	}
}

// ---- sinks ----

// desk is a sink in memory that keeps what is prepared beside what is visible, with all the ways in which
// it can be wrong.
type desk struct {
	mu       sync.Mutex
	staged   map[string][]Row
	names    int
	visible  []Row
	done     map[string]bool
	openings int
	faults
}

type faults struct {
	showWritten    bool // what is written is visible at once
	showPrepared   bool // what is prepared is visible at once
	commitTwice    bool // committing again doubles
	refuseTwice    bool // committing again is an error
	keepAfter      bool // what was prepared is prepared again with the next checkpoint
	loseAfter      bool // what is written between Prepare and Commit is lost
	ownProcess     bool // only the process that prepared can commit
	keepSlice      bool // keeps the caller's slice
	closeAll       bool // Close discards what is prepared
	closeCommits   bool // Close shows what was not prepared
	noNonce        bool // parts are named by checkpoint and subtask
	startSweeps    bool // Start removes what is visible
	startCommits   bool // Start commits what is staged
	shareNames     bool // subtasks share the name of a part
	mangle         bool // a character is lost
	loseLarge      bool // more than 1,000 records do not fit
	partialIsWhole bool // once one part of a checkpoint is committed, all of it is taken for committed
}

type deskPart struct {
	Name    string
	Process int64
}

type deskSink struct {
	*desk
	process int64
}

func (d *desk) sink() connector.Sink[Row, deskPart] {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.openings++
	return &deskSink{d, int64(d.openings)}
}

func (s *deskSink) Start(_ context.Context, fresh bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.startCommits {
		for name, rows := range s.staged {
			s.visible, s.done[name] = append(s.visible, rows...), true
		}
	}
	if s.startSweeps {
		s.visible = nil
	}
	clear(s.staged)
	return nil
}

func (s *deskSink) Commit(_ context.Context, checkpoint int64, parts []deskPart) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := fmt.Sprint("checkpoint ", checkpoint)
	if s.partialIsWhole && s.done[whole] {
		return nil
	}
	for _, p := range parts {
		s.done[whole] = true
		rows, ok := s.staged[p.Name]
		switch {
		case s.ownProcess && p.Process != s.process:
			return errors.New("prepared by another process")
		case s.refuseTwice && s.done[p.Name]:
			return errors.New("already committed")
		case s.done[p.Name] && !s.commitTwice:
			continue
		case !ok && !s.commitTwice:
			return fmt.Errorf("%s is gone", p.Name)
		}
		s.visible, s.done[p.Name] = append(s.visible, rows...), true
		if !s.commitTwice {
			delete(s.staged, p.Name)
		}
	}
	return nil
}

func (s *deskSink) Open(_ context.Context, sub connector.Subtask) (connector.Writer[Row, deskPart], error) {
	return &deskWriter{deskSink: s, sub: sub}, nil
}

type deskWriter struct {
	*deskSink
	sub  connector.Subtask
	kept []connector.Record[Row]
	rows []Row
	name string // last prepared
}

func (w *deskWriter) Write(_ context.Context, records []connector.Record[Row]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loseAfter && w.name != "" && !w.done[w.name] {
		return nil
	}
	if w.keepSlice {
		w.kept = append(w.kept, records[:len(records):len(records)]...)
		w.kept = records
		return nil
	}
	for _, r := range records {
		if w.mangle {
			r.Value.Text = strings.ReplaceAll(r.Value.Text, "\n", " ")
		}
		if w.loseLarge && len(w.rows) == 1000 {
			break
		}
		w.rows = append(w.rows, r.Value)
		if w.showWritten {
			w.visible = append(w.visible, r.Value)
		}
	}
	return nil
}

func (w *deskWriter) Prepare(_ context.Context, checkpoint int64) ([]deskPart, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.kept {
		w.rows = append(w.rows, r.Value)
	}
	w.kept = nil
	if len(w.rows) == 0 {
		return nil, nil
	}
	w.names++
	w.name = fmt.Sprintf("%d-%d-%d", checkpoint, w.sub.Index, w.names)
	if w.noNonce {
		w.name = fmt.Sprintf("%d-%d", checkpoint, w.sub.Index)
	}
	if w.shareNames {
		w.name = fmt.Sprint(checkpoint)
	}
	w.staged[w.name] = slices.Clone(w.rows)
	if w.showPrepared {
		w.visible = append(w.visible, w.rows...)
	}
	if !w.keepAfter {
		w.rows = nil
	}
	return []deskPart{{w.name, w.process}}, nil
}

func (w *deskWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closeAll {
		delete(w.staged, w.name)
	}
	if w.closeCommits {
		w.visible = append(w.visible, w.rows...)
	}
	return nil
}

func TestSinkSuiteFindsWhatIsBroken(t *testing.T) {
	for _, test := range []struct {
		name, fails string
		faults
	}{
		{"nothing is broken", "", faults{}},
		{"written is visible", "visible", faults{showWritten: true}},
		{"prepared is visible", "visible checkpoints abort", faults{showPrepared: true}},
		{"commit doubles", "commit-again restore-again crashes", faults{commitTwice: true}},
		{"commit refuses what is committed", "commit-again restore-again crashes", faults{refuseTwice: true}},
		{"parts are prepared again", "checkpoints crashes", faults{keepAfter: true}},
		{"records after Prepare are lost", "checkpoints", faults{loseAfter: true}},
		{"only its own process can commit", "other-process", faults{ownProcess: true}},
		{"the slice is kept", "visible", faults{keepSlice: true}},
		{"Close discards what is prepared", "close", faults{closeAll: true}},
		{"Close commits", "close", faults{closeCommits: true}},
		{"parts have no nonce", "abort", faults{noNonce: true}},
		{"Start removes what is visible", "start restore-again", faults{startSweeps: true}},
		{"Start commits what is staged", "abort restore-again", faults{startCommits: true}},
		{"subtasks share a name", "subtasks", faults{shareNames: true}},
		{"a character is lost", "visible", faults{mangle: true}},
		{"records are lost when there are many", "large", faults{loseLarge: true}},
		{"a half committed checkpoint is taken for whole", "subtasks", faults{partialIsWhole: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, test.fails, failing(t, sinkObligations[deskPart](), func(ctx context.Context, r *rand.Rand) *sinkEnv[deskPart] {
				d := &desk{staged: map[string][]Row{}, done: map[string]bool{}, faults: test.faults}
				e, err := newSinkEnv(ctx, r, Place[deskPart]{Open: d.sink, Rows: func() ([]Row, error) { return slices.Clone(d.visible), nil }})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}))
		})
	}
}
