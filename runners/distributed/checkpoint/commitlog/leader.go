package commitlog

import "errors"

// Slot is the place of an entry in the log. Slots count from 1; 0 means none.
type Slot uint64

// Kind is what an entry says.
type Kind uint8

const (
	// Claim says that its writer leads from here on.
	Claim Kind = 1
	// Manifest says that a checkpoint is complete.
	Manifest Kind = 2
)

// Nonce is unlike that of any other entry ever written.
type Nonce [16]byte

// A Ref names an entry; the zero value names none. The nonce is there because a slot may hold two entries,
// one after the other: the right one, and, after that was collected, one that was on its way for long.
type Ref struct {
	Slot  Slot
	Nonce Nonce
}

// Header is what the log itself knows of an entry.
type Header struct {
	Kind Kind
	Ref  // where it is
	// Generation is the slot of the claim under which the entry was written; a claim's is its own.
	Generation Slot
	// Previous is the newest manifest below the entry, or none. Its committables are committed before
	// anything else is published.
	Previous Ref
	// Restores, of a claim, is the manifest whose state the leader takes up, or none.
	Restores Ref
}

// Start says what a new leader takes up. The zero value is [Latest].
type Start struct {
	newRun bool
	at     Ref // not Latest: only the slot is known until the log has been read
}

var (
	// Latest takes up what the log's last leader had: its newest manifest, or what it had restored.
	Latest = Start{}
	// NewRun takes up nothing.
	NewRun = Start{newRun: true}
)

// At takes up the manifest in slot s, although there may be newer ones: their input is processed again.
func At(s Slot) Start { return Start{at: Ref{Slot: s}} }

var (
	// ErrBeaten says that another coordinator has just claimed the log: leave it to that one.
	ErrBeaten = errors.New("another coordinator has claimed the log")
	// ErrDeposed says that the log has gone on without this leader: it must stop and commit nothing.
	ErrDeposed = errors.New("deposed: another coordinator leads")
	// ErrUnknown says that nobody can tell yet whether the entry was written: the leader must stop and
	// commit nothing, and whoever claims next finds out.
	ErrUnknown = errors.New("the entry may or may not have been written")
)

// A leader decides, and does nothing: [leader.next] says which operation on the log it wants, and
// [leader.step] takes the answer, until next wants none. docs/design/log.md has the rules by number.
// It is a plain value, so that a test can fork it.
type leader struct {
	phase phase
	start Start
	nonce Nonce // of the claim

	end    Slot   // the log's greatest slot that we know
	newest Header // the entry there, when it was read; zero in an empty log
	lost   Slot   // the last slot that a claim of ours has lost

	entry      Header // being written, or ours that was written last
	generation Slot
	manifest   Ref // newest of our chain
}

type phase uint8

const (
	finding    phase = iota // wants the log's greatest slot
	reading                 // wants the entry there
	claiming                // wants its claim written
	settling                // wants the manifest Previous, to commit what it lists
	restoring               // wants the manifest Restores
	publishing              // wants its manifest written
	checking                // has won a slot and wants to know whether there is one above
	leading                 // wants nothing; may publish
	beaten                  // over: lost its claim to another leader's
	deposed                 // over
	unknown                 // over
)

// An op is one operation on the log.
type op struct {
	kind  opKind
	after Slot   // list: the greatest slot above this one is wanted
	slot  Slot   // read
	entry Header // create
}

type opKind uint8

const (
	opNone opKind = iota
	opList
	opRead
	opCreate
)

// A result answers an op.
type result struct {
	greatest Slot    // list: 0 if there is none
	entry    Header  // read: zero if the slot is empty
	outcome  outcome // create
}

type outcome uint8

const (
	lostIt outcome = iota
	wonIt
	neverKnown
)

// candidate returns a leader that wants to claim.
func candidate(start Start, nonce Nonce) leader {
	return leader{phase: finding, start: start, nonce: nonce}
}

func (l *leader) next() op {
	switch l.phase {
	case finding:
		return op{kind: opList}
	case reading:
		return op{kind: opRead, slot: l.end}
	case settling:
		return op{kind: opRead, slot: l.entry.Previous.Slot}
	case restoring:
		return op{kind: opRead, slot: l.entry.Restores.Slot}
	case claiming, publishing:
		return op{kind: opCreate, entry: l.entry}
	case checking:
		return op{kind: opList, after: l.entry.Slot}
	}
	return op{}
}

func (l *leader) step(r result) {
	switch l.phase {
	case finding:
		l.end, l.newest = r.greatest, Header{}
		if l.end == 0 {
			l.claim()
		} else {
			l.phase = reading
		}

	case reading:
		switch {
		case r.entry.Kind == 0: // collected since: there are newer ones
			l.phase = finding
		case l.lost > 0 && r.entry.Generation >= l.lost: // whoever took that slot leads
			l.phase = beaten
		default:
			l.newest = r.entry
			l.claim()
		}

	case claiming:
		switch r.outcome {
		case wonIt:
			l.generation, l.manifest = l.entry.Slot, l.entry.Previous
			l.read()
		case lostIt:
			l.lost = l.entry.Slot
			l.phase = finding
		default:
			l.phase = unknown
		}

	case settling, restoring:
		// What was read is the caller's. If it is not what it should be, then either the log has gone on
		// and it was collected, which the look that follows will tell, or the caller reports it.
		l.read()

	case publishing:
		switch r.outcome {
		case wonIt:
			l.manifest = l.entry.Ref
			l.phase = checking
		case lostIt:
			l.phase = deposed
		default:
			l.phase = unknown
		}

	case checking:
		if r.greatest > 0 {
			l.phase = deposed
		} else {
			l.phase = leading
		}
	}
}

// claim prepares the claim of the slot after the newest entry (rule 3).
func (l *leader) claim() {
	l.entry = Header{Kind: Claim, Ref: Ref{Slot: l.end + 1, Nonce: l.nonce}, Generation: l.end + 1}
	switch l.newest.Kind {
	case Manifest:
		l.entry.Previous, l.entry.Restores = l.newest.Ref, l.newest.Ref
	case Claim: // nothing came of it yet, so we stand where it stood
		l.entry.Previous, l.entry.Restores = l.newest.Previous, l.newest.Restores
	}
	if l.start != Latest {
		l.entry.Restores = l.start.at
	}
	l.phase = claiming
}

// read goes on to the next manifest that a claim stands on, each once. The look at the log comes after
// them: what was read while there is no later entry cannot have been collected and replaced (rule 6).
func (l *leader) read() {
	previous, restores := l.entry.Previous, l.entry.Restores
	switch {
	case l.phase == claiming && previous.Slot != 0:
		l.phase = settling
	case l.phase != restoring && restores.Slot != 0 && restores != previous:
		l.phase = restoring
	default:
		l.phase = checking
	}
}

// publish prepares a manifest in the slot after our last entry (rule 5). The phase must be leading.
func (l *leader) publish(nonce Nonce) {
	l.entry = Header{
		Kind: Manifest, Ref: Ref{Slot: l.entry.Slot + 1, Nonce: nonce}, Generation: l.generation, Previous: l.manifest,
	}
	l.phase = publishing
}

// collectable says whether the leader may delete the entry in slot s, of which keep must stay below its
// newest (rule 8). Until it has published, it may delete nothing: all it stands on is older.
func (l *leader) collectable(s, keep Slot) bool {
	return l.phase == leading && l.entry.Kind == Manifest && s < l.entry.Slot && l.entry.Slot-s > keep
}

// err is why the leader is over, or nil.
func (l *leader) err() error {
	switch l.phase {
	case beaten:
		return ErrBeaten
	case deposed:
		return ErrDeposed
	case unknown:
		return ErrUnknown
	}
	return nil
}
