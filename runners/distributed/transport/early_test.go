package transport

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// records is a log of which a test waits for lines.
type records struct {
	mu      sync.Mutex
	changed sync.Cond
	all     []slog.Record
}

func newRecords() *records {
	r := &records{}
	r.changed.L = &r.mu
	return r
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec)
	r.changed.Broadcast()
	return nil
}

// await returns all records so far, once one of them has the words.
func (r *records) await(words string) []slog.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for _, rec := range r.all {
			if strings.Contains(text(rec), words) {
				return r.all
			}
		}
		r.changed.Wait()
	}
}

func text(rec slog.Record) string {
	s := rec.Message
	rec.Attrs(func(a slog.Attr) bool { s += " " + a.String(); return true })
	return s
}

// A peer that dials before we have started the attempt is how each attempt begins: no reason to warn.
func TestAPeerThatIsEarlyIsNoReasonToWarn(t *testing.T) {
	log := newRecords()
	r := newRig(t, Options{Logger: slog.New(log), HandshakeTimeout: time.Hour})
	var dialling sync.WaitGroup
	var errA error
	dialling.Go(func() { errA = r.meshA.Connect(t.Context(), r.jobA, addresses) })
	log.await("does not run attempt 1.1 yet")
	errB := r.meshB.Connect(t.Context(), r.jobB, addresses)
	dialling.Wait()
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, rec := range log.all {
		if rec.Level > slog.LevelDebug {
			t.Errorf("%v: %s", rec.Level, text(rec))
		}
	}
}

// One that stays early is: the dialer says so, once.
func TestAConnectionThatIsRefusedForLongIsAWarning(t *testing.T) {
	log := newRecords()
	r := newRig(t, Options{Logger: slog.New(log), HandshakeTimeout: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var dialling sync.WaitGroup
	dialling.Go(func() { _ = r.meshA.Connect(ctx, r.jobA, addresses) }) // it fails with ctx
	for _, rec := range log.await(`cannot be connected to`) {
		if strings.Contains(text(rec), "cannot be connected to") && rec.Level != slog.LevelWarn {
			t.Errorf("%v: %s", rec.Level, text(rec))
		}
	}
	cancel()
	dialling.Wait()
}
