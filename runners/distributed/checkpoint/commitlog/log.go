// Package commitlog is the one log that decides which checkpoint counts and which coordinator leads.
//
// A coordinator claims the log, settles and restores what the claim stands on, and then publishes a
// manifest for each checkpoint. As soon as another one has claimed it, it can publish no more:
//
//	term, err := log.Claim(ctx, commitlog.Latest, nil)
//	// commit what term.Settles() lists, restore term.Restores()
//	slot, err := term.Publish(ctx, manifest)
//	// err is nil: the checkpoint counts; commit what it lists
//
// docs/design/log.md has the rules, why they suffice, and what was rejected; docs/format/log.md the bytes.
// leader.go decides, without I/O; this file does what it wants done.
package commitlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/millstream/millstream/statebackend/storage"
)

// keepBelow is how many entries collecting leaves below the newest. None would do for safety; these spare
// a leader that lags by a few slots a write that wins a collected slot, and an operator has something to read.
const keepBelow = 10

// A Log is the log of one job, below "log/" in the job's store. Any process may read it.
type Log struct {
	store *storage.Store
}

// New returns the log in store.
func New(store *storage.Store) *Log { return &Log{store: store} }

// Newest returns the newest entry, and false if the log is empty.
func (g *Log) Newest(ctx context.Context) (Entry, bool, error) {
	for {
		end, err := g.greatest(ctx, 0)
		if err != nil || end == 0 {
			return Entry{}, false, err
		}
		e, err := g.read(ctx, end)
		if err != nil || e.Kind != 0 {
			return e, err == nil, err
		}
		// Collected between the two: there are newer ones.
	}
}

// Leader returns the claim under which the newest entry was written, and false if the log is empty or that claim is
// collected.
func (g *Log) Leader(ctx context.Context) (Entry, bool, error) {
	e, ok, err := g.Newest(ctx)
	if err != nil || !ok || e.Kind == Claim {
		return e, ok, err
	}
	claim, err := g.read(ctx, e.Generation)
	return claim, err == nil && claim.Kind == Claim && claim.Generation == e.Generation, err
}

// Manifests iterates over the manifests that can be restored, newest first, across runs. An error is the
// last thing that it yields.
func (g *Log) Manifests(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		e, ok, err := g.Newest(ctx)
		for first := true; ; first = false {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !ok {
				return // the end: it was never there, or is collected, or its slot holds another by now
			}
			if e.Kind == Manifest && !yield(e, nil) {
				return
			}
			previous := e.Previous
			if previous.Slot == 0 {
				return
			}
			if e, err = g.read(ctx, previous.Slot); err != nil {
				continue
			}
			if ok = e.Ref == previous && e.Kind == Manifest; !ok && first {
				// The newest manifest is never collected, unless a newer one has come meanwhile.
				end, lerr := g.greatest(ctx, previous.Slot)
				if err = lerr; err == nil && end <= previous.Slot {
					err = gone(previous)
				}
			}
		}
	}
}

func gone(r Ref) error {
	return fmt.Errorf("%s: %w: the log still builds on this manifest, but it is gone; was it deleted by hand?", name(r.Slot), storage.ErrCorrupt)
}

// Claim makes the caller the leader, from the moment it returns until some other process claims the log.
// payload is stored with the claim for whoever reads it; it may be empty.
//
// [ErrBeaten] says that somebody else claimed at the same time; [ErrDeposed], that somebody claimed right
// after; [ErrUnknown], that ctx ended in between. None of them needs cleaning up; Claim may be called again.
func (g *Log) Claim(ctx context.Context, start Start, payload []byte) (*Term, error) {
	if start.at.Slot != 0 {
		ref, err := g.find(ctx, start.at.Slot)
		if err != nil {
			return nil, fmt.Errorf("claim the log: %w", err)
		}
		start.at = ref
	}
	t := &Term{log: g, l: candidate(start, newNonce())}
	err := t.run(ctx, payload)
	if err == nil {
		err = t.mark(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("claim the log: %w", err)
	}
	claim := t.l.entry
	if claim.Previous.Slot != 0 && (t.settles.Ref != claim.Previous || t.settles.Kind != Manifest) {
		return nil, fmt.Errorf("claim the log: %w", gone(claim.Previous))
	}
	if claim.Restores == claim.Previous {
		t.restores = t.settles
	}
	if claim.Restores.Slot != 0 && (t.restores.Ref != claim.Restores || t.restores.Kind != Manifest) {
		return nil, fmt.Errorf("claim the log: %w", gone(claim.Restores))
	}
	return t, nil
}

// find returns the ref of the manifest in slot s.
func (g *Log) find(ctx context.Context, s Slot) (Ref, error) {
	for e, err := range g.Manifests(ctx) {
		if err != nil {
			return Ref{}, err
		}
		if e.Slot == s {
			return e.Ref, nil
		}
		if e.Slot < s {
			break
		}
	}
	return Ref{}, fmt.Errorf("there is no manifest in slot %d, or it is collected; choose one that is listed", s)
}

// A Term is the time for which one coordinator leads. One goroutine owns it.
type Term struct {
	log      *Log
	l        leader
	settles  Entry
	restores Entry
}

// Generation is the slot of the claim: unique to the term, and greater than that of any earlier one.
func (t *Term) Generation() Slot { return t.l.generation }

// Settles returns the newest manifest of those who led before. What it lists must be committed, or be
// listed again by the first manifest that is published; its author may have died before it came to it. That is so for a
// new run too. It returns false if there is none.
func (t *Term) Settles() (Entry, bool) { return t.settles, t.settles.Kind != 0 }

// Restores returns the manifest whose state the leader takes up, or false if it begins with nothing.
func (t *Term) Restores() (Entry, bool) { return t.restores, t.restores.Kind != 0 }

// Publish makes manifest the newest entry. If it returns nil, the checkpoint counts for ever, and what it
// lists is to be committed. If it returns an error, commit nothing: after [ErrDeposed] another coordinator
// leads; after [ErrUnknown] nobody knows yet. The term is over then, and all its methods return that error.
func (t *Term) Publish(ctx context.Context, manifest []byte) (Slot, error) {
	if err := t.l.err(); err != nil {
		return 0, fmt.Errorf("publish a manifest: %w", err)
	}
	if len(manifest) > MaxPayload {
		return 0, fmt.Errorf("publish a manifest: it has %d bytes, at most %d are allowed", len(manifest), MaxPayload)
	}
	t.l.publish(newNonce())
	err := t.run(ctx, manifest)
	if err == nil {
		err = t.mark(ctx) // before anything is committed
	}
	if err != nil {
		return 0, fmt.Errorf("publish a manifest in slot %d: %w", t.l.entry.Slot, err)
	}
	return t.l.entry.Slot, nil
}

// Check returns [ErrDeposed] if another coordinator has taken over. It is for a leader that has nothing to
// publish, or cannot read a file and wants to know whether others have deleted it. Another error leaves the
// term as it was.
func (t *Term) Check(ctx context.Context) error {
	if err := t.l.err(); err != nil {
		return fmt.Errorf("check the log: %w", err)
	}
	above, err := t.log.greatest(ctx, t.l.entry.Slot)
	if err == nil && above > 0 {
		t.l.phase = deposed
		err = ErrDeposed
	}
	if err != nil {
		return fmt.Errorf("check the log: %w", err)
	}
	return nil
}

// Collect deletes entries that no restart needs any more, except manifests that retain wants, and returns
// their number. It does nothing before the term's first manifest. A failure leaves entries for next time.
func (t *Term) Collect(ctx context.Context, retain func(Slot) bool) (int, error) {
	if err := t.l.err(); err != nil {
		return 0, fmt.Errorf("collect the log: %w", err)
	}
	n := 0
	for s, err := range t.log.slots(ctx, 0) {
		if err != nil {
			return n, fmt.Errorf("collect the log: %w", err)
		}
		if !t.l.collectable(s, keepBelow) || retain(s) {
			continue
		}
		if err := t.log.store.Delete(ctx, name(s)); err != nil {
			return n, fmt.Errorf("collect the log: %w", err)
		}
		n++
	}
	return n, nil
}

// run does what the leader wants until it wants nothing. If it cannot, the term is over.
func (t *Term) run(ctx context.Context, payload []byte) error {
	for {
		o := t.l.next()
		if o.kind == opNone {
			return t.l.err()
		}
		r, err := t.do(ctx, o, payload)
		if err != nil {
			t.l.phase = unknown
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		t.l.step(r)
	}
}

func (t *Term) do(ctx context.Context, o op, payload []byte) (r result, err error) {
	switch o.kind {
	case opList:
		err = patiently(ctx, func() (err error) { r.greatest, err = t.log.greatest(ctx, o.after); return err })
	case opRead:
		var e Entry
		err = patiently(ctx, func() (err error) { e, err = t.log.read(ctx, o.slot); return err })
		r.entry = e.Header
		switch t.l.phase {
		case settling:
			t.settles = e
		case restoring:
			t.restores = e
		}
	case opCreate:
		var b []byte
		if b, err = encode(Entry{Header: o.entry, Payload: payload}); err != nil {
			return r, err
		}
		var won bool
		if won, err = t.log.store.PutIfAbsent(ctx, name(o.entry.Slot), b); won {
			r.outcome = wonIt
		}
	}
	return r, err
}

// patiently repeats a read that failed, as PutIfAbsent repeats a write: a term is not to end because a
// store was busy. It gives up when ctx ends, or nothing will help.
func patiently(ctx context.Context, f func() error) error {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := f()
		if err == nil || errors.Is(err, storage.ErrPermanent) || errors.Is(err, storage.ErrCorrupt) {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return err
		}
	}
}

// read returns the entry in slot s, or a zero one if there is none.
func (g *Log) read(ctx context.Context, s Slot) (Entry, error) {
	b, err := g.store.Read(ctx, name(s), headerSize+MaxPayload+trailerSize)
	if errors.Is(err, storage.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	e, err := decode(b)
	if err == nil && e.Slot != s {
		err = fmt.Errorf("%w: it belongs into slot %d", storage.ErrCorrupt, e.Slot)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read %s of %s: %w; restore the object from a copy, or start over with a new job directory", name(s), g.store, err)
	}
	return e, nil
}

// greatest returns the greatest slot above after that holds an entry, or 0.
//
// A list of many pages is no snapshot, but that does no harm: entries come only at the end, and the page
// that found nothing more was read last.
func (g *Log) greatest(ctx context.Context, after Slot) (Slot, error) {
	var end Slot
	for s, err := range g.slots(ctx, after) {
		if err != nil {
			return 0, err
		}
		end = s
	}
	if end > maxSlot {
		return 0, fmt.Errorf("list %s: %w: slot %d was not written by this program; move it away", g.store, storage.ErrPermanent, end)
	}
	return end, nil
}

// slots iterates over the slots above after that hold an entry. Objects with other names are not ours and
// are passed over.
func (g *Log) slots(ctx context.Context, after Slot) iter.Seq2[Slot, error] {
	return func(yield func(Slot, error) bool) {
		for n, err := range g.store.List(ctx, prefix, name(after)) {
			if err != nil {
				yield(0, err)
				return
			}
			digits := strings.TrimPrefix(n, prefix)
			s, err := strconv.ParseUint(digits, 10, 64)
			if err != nil || len(digits) != slotDigits {
				continue
			}
			if !yield(Slot(s), nil) {
				return
			}
		}
	}
}

const (
	prefix     = "log/"
	slotDigits = 20            // so that names sort as numbers do, up to the greatest uint64
	maxSlot    = Slot(1) << 62 // some 10⁹ years of a checkpoint a second, and no sum of it wraps
)

func name(s Slot) string { return fmt.Sprintf("%s%0*d", prefix, slotDigits, s) }

func newNonce() (n Nonce) {
	rand.Read(n[:]) // never fails
	return n
}
