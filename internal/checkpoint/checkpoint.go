// Package checkpoint turns the snapshots of subtasks into checkpoints that a job can be restored from: it
// stores their bulk, keeps the lineage of bases and deltas, and opens it again.
//
//	subtask ─ engine.SubtaskSnapshot ─▶ Keeper.Persist ─▶ Part ─┐
//	                                   (worker)                  ├─▶ Assemble ─▶ Checkpoint
//	                       the completed checkpoint before it ───┘  (coordinator)
//
// A checkpoint of keyed state is a base and deltas, or deltas alone. Deltas and committables carry the
// number of the barrier that cut them. A Keeper sends all that are not known to be in a completed
// checkpoint with each Part, so that a checkpoint that failed, or of whose failure it has not heard, loses
// neither changes nor output.
package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/failpoint"
	"github.com/millstream/millstream/statebackend"
)

// Store keeps the bulk of checkpoints. Names are made by it and never used twice.
type Store interface {
	// Put stores content for a checkpoint and returns when it is durable. name is for people.
	Put(ctx context.Context, checkpoint int64, name string, content io.ReaderAt, size int64) (statebackend.Ref, error)
	// Fetch opens what Put stored.
	Fetch(ctx context.Context, ref statebackend.Ref) (io.ReadCloser, error)
}

// Checkpoint is everything that a job needs to go on from a barrier.
type Checkpoint struct {
	ID    int64
	Parts []Part
}

// Part is the share of one subtask.
type Part struct {
	Checkpoint int64
	Stage      string
	Subtask    int
	Nodes      []NodePart
	Merger     engine.MergerState
	Channels   [][]byte
	// Bulk is set if Channels and the blobs of the nodes are too large for a manifest: then they are nil here
	// and lie in this object (bulk.go).
	Bulk *statebackend.Ref
}

// NodePart is the share of one node in a subtask.
type NodePart struct {
	Node         string
	Watermark    eventtime.Time
	Blob         []byte
	Committables []Prepared
	Keyed        *Keyed // nil if the node has no keyed state
}

// Prepared is output of a sink that was prepared at a barrier.
type Prepared struct {
	Checkpoint   int64
	Committables [][]byte
}

// Keyed is keyed state: the base, if there is one, and then every delta in order.
type Keyed struct {
	Base   *Base
	Deltas []Delta
}

// Base is a snapshot of the backend and the operations that belong above it.
type Base struct {
	Checkpoint int64
	Handle     statebackend.Handle
	Companion  statebackend.Ref
}

// Delta is an encoded statebackend.Batch.
type Delta struct {
	Checkpoint int64
	Ref        statebackend.Ref
}

// Bytes is what the bases and the deltas of k take in storage.
func (k *Keyed) Bytes() (base, deltas int64) {
	if k.Base != nil {
		base = k.Base.Companion.Size
		for _, f := range k.Base.Handle.Files {
			base += f.Ref.Size
		}
	}
	for _, d := range k.Deltas {
		deltas += d.Ref.Size
	}
	return base, deltas
}

// Assemble makes a checkpoint of the parts of all subtasks and the completed checkpoint before it, or nil.
// It takes from each part the deltas and the committables that the parent does not have.
func Assemble(parent *Checkpoint, parts []Part) (*Checkpoint, error) {
	c := &Checkpoint{ID: parts[0].Checkpoint, Parts: slices.Clone(parts)}
	since := int64(0)
	if parent != nil {
		since = parent.ID
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.Checkpoint != c.ID {
			return nil, fmt.Errorf("assemble checkpoint %d: subtask %d of %q sent checkpoint %d", c.ID, p.Subtask, p.Stage, p.Checkpoint)
		}
		p.Nodes = slices.Clone(p.Nodes)
		for k := range p.Nodes {
			n := &p.Nodes[k]
			n.Committables = slices.DeleteFunc(slices.Clone(n.Committables), func(c Prepared) bool { return c.Checkpoint <= since })
			if n.Keyed == nil || n.Keyed.Base != nil && n.Keyed.Base.Checkpoint == c.ID {
				if n.Keyed != nil {
					n.Keyed = &Keyed{Base: n.Keyed.Base} // the base has it all
				}
				continue
			}
			joined := &Keyed{}
			if parent != nil {
				old := parent.node(p.Stage, p.Subtask, n.Node)
				if old == nil || old.Keyed == nil {
					return nil, fmt.Errorf("assemble checkpoint %d: checkpoint %d has no state of %q, subtask %d, to add to", c.ID, since, n.Node, p.Subtask)
				}
				joined.Base, joined.Deltas = old.Keyed.Base, slices.Clone(old.Keyed.Deltas)
			}
			for _, d := range n.Keyed.Deltas {
				if d.Checkpoint > since {
					joined.Deltas = append(joined.Deltas, d)
				}
			}
			n.Keyed = joined
		}
	}
	return c, nil
}

func (c *Checkpoint) part(stage string, subtask int) *Part {
	for i := range c.Parts {
		if p := &c.Parts[i]; p.Stage == stage && p.Subtask == subtask {
			return p
		}
	}
	return nil
}

func (c *Checkpoint) node(stage string, subtask int, node string) *NodePart {
	p := c.part(stage, subtask)
	if p == nil {
		return nil
	}
	for i := range p.Nodes {
		if p.Nodes[i].Node == node {
			return &p.Nodes[i]
		}
	}
	return nil
}

// Prepared returns what a sink has prepared since the completed checkpoint before, of all its subtasks,
// in the order of the barriers.
func (c *Checkpoint) Prepared(node string) []Prepared {
	var all []Prepared
	for i := range c.Parts {
		if n := c.node(c.Parts[i].Stage, c.Parts[i].Subtask, node); n != nil {
			for _, p := range n.Committables {
				k := slices.IndexFunc(all, func(a Prepared) bool { return a.Checkpoint == p.Checkpoint })
				if k < 0 {
					all = append(all, Prepared{Checkpoint: p.Checkpoint})
					k = len(all) - 1
				}
				all[k].Committables = append(all[k].Committables, p.Committables...)
			}
		}
	}
	slices.SortFunc(all, func(a, b Prepared) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) })
	return all
}

// Refs calls f for every object that the checkpoint needs.
func (c *Checkpoint) Refs(f func(statebackend.Ref)) {
	for i := range c.Parts {
		if c.Parts[i].Bulk != nil {
			f(*c.Parts[i].Bulk)
		}
		for k := range c.Parts[i].Nodes {
			s := c.Parts[i].Nodes[k].Keyed
			if s == nil {
				continue
			}
			if s.Base != nil {
				f(s.Base.Companion)
				for _, file := range s.Base.Handle.Files {
					f(file.Ref)
				}
			}
			for _, d := range s.Deltas {
				f(d.Ref)
			}
		}
	}
}

// Restore returns what a subtask starts from.
func (c *Checkpoint) Restore(ctx context.Context, store Store, stage string, subtask int) (*engine.SubtaskRestore, error) {
	p := c.part(stage, subtask)
	if p == nil {
		return nil, fmt.Errorf("checkpoint %d has no state of subtask %d of %q", c.ID, subtask, stage)
	}
	if p.Bulk != nil {
		var err error
		if p, err = p.load(ctx, store); err != nil {
			return nil, fmt.Errorf("restore checkpoint %d: subtask %d of %q: %w", c.ID, subtask, stage, err)
		}
	}
	r := &engine.SubtaskRestore{Checkpoint: c.ID, Nodes: map[string]engine.NodeRestore{}, Merger: p.Merger, Channels: p.Channels}
	for _, n := range p.Nodes {
		r.Nodes[n.Node] = engine.NodeRestore{Watermark: n.Watermark, Blob: n.Blob}
	}
	return r, nil
}

// Open opens the backend of a node in a subtask of the checkpoint, and brings it to the barrier. With a
// nil Checkpoint the backend is empty.
func (c *Checkpoint) Open(ctx context.Context, store Store, driver statebackend.Driver, config statebackend.Config, node string, subtask int) (statebackend.Backend, error) {
	var k *Keyed
	if c != nil {
		for i := range c.Parts {
			if n := c.node(c.Parts[i].Stage, subtask, node); n != nil && c.Parts[i].Subtask == subtask {
				k = n.Keyed
			}
		}
		if k == nil {
			return nil, fmt.Errorf("checkpoint %d has no keyed state of %q, subtask %d", c.ID, node, subtask)
		}
		if k.Base != nil {
			config.Restore = []statebackend.Restore{{Handle: k.Base.Handle, Fetcher: store}}
		}
	}
	b, err := driver.Open(ctx, config)
	if err != nil || k == nil {
		return b, err
	}
	deltas := k.Deltas
	if k.Base != nil {
		deltas = append([]Delta{{k.Base.Checkpoint, k.Base.Companion}}, deltas...)
	}
	for _, d := range deltas {
		if err := failpoint.Hit("mid-restore"); err != nil {
			b.Close()
			return nil, err
		}
		if err := apply(ctx, store, b, d); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// apply writes a delta to a backend, as it comes: what is wrong with it is found before its end, or there, and then the backend is
// not used.
func apply(ctx context.Context, store Store, b statebackend.Backend, d Delta) error {
	err := func() error {
		r, err := store.Fetch(ctx, d.Ref)
		if err != nil {
			return err
		}
		err = write(b, newVerifier(r, d.Ref))
		return errors.Join(err, r.Close())
	}()
	if err != nil {
		return fmt.Errorf("apply the delta of checkpoint %d: %w", d.Checkpoint, err)
	}
	return nil
}

// restoreBytes is about what is written to a backend at once.
const restoreBytes = 1 << 20

func write(b statebackend.Backend, r io.Reader) error {
	var part statebackend.Batch
	flush := func() error {
		defer part.Reset()
		return b.Write(&part)
	}
	err := statebackend.ReadBatch(r, func(op statebackend.Op, first, second []byte) error {
		if err := part.Add(op, first, second); err != nil || part.Size() < restoreBytes {
			return err
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// verifier reads what was stored under a reference. At its end it fails unless it is that.
type verifier struct {
	r    io.Reader
	ref  statebackend.Ref
	size int64
	crc  uint32
}

func newVerifier(r io.Reader, ref statebackend.Ref) *verifier {
	return &verifier{r: io.LimitReader(r, ref.Size+1), ref: ref}
}

func (v *verifier) Read(b []byte) (int, error) {
	n, err := v.r.Read(b)
	v.size, v.crc = v.size+int64(n), statebackend.Checksum(v.crc, b[:n])
	if err == io.EOF && (v.size != v.ref.Size || v.crc != v.ref.CRC32C) {
		err = fmt.Errorf("%s is not what was stored: %d bytes, checksum %08x; want %d, %08x", v.ref.Object, v.size, v.crc, v.ref.Size, v.ref.CRC32C)
	}
	return n, err
}

// ReadAll fetches an object whole and verifies it. Its memory follows what comes, not what the reference says.
func ReadAll(ctx context.Context, store Store, ref statebackend.Ref) ([]byte, error) {
	r, err := store.Fetch(ctx, ref)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(newVerifier(r, ref))
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return data, err
}

// Keeper persists the snapshots of the subtasks of one process and remembers their lineage.
type Keeper struct {
	store Store

	mu    sync.Mutex
	state map[nodeKey]*lineage
}

type nodeKey struct {
	node    string
	subtask int
}

// lineage is what one node in one subtask has in storage, and what it has prepared.
type lineage struct {
	prepared    []Prepared // not known to be in a completed checkpoint
	unconfirmed []Delta    // likewise
	bases       []Base     // newer than the completed checkpoint
	base        *Base      // of the completed checkpoint
	baseBytes   int64
	deltas      int // stored since the base
	deltaBytes  int64
}

// NewKeeper returns a Keeper. from is the checkpoint that the job was restored from, or nil.
func NewKeeper(store Store, from *Checkpoint) *Keeper {
	k := &Keeper{store: store, state: map[nodeKey]*lineage{}}
	if from == nil {
		return k
	}
	for _, p := range from.Parts {
		for _, n := range p.Nodes {
			if n.Keyed != nil {
				base, deltas := n.Keyed.Bytes()
				k.state[nodeKey{n.Node, p.Subtask}] = &lineage{
					base: n.Keyed.Base, baseBytes: base, deltas: len(n.Keyed.Deltas), deltaBytes: deltas,
				}
			}
		}
	}
	return k
}

const (
	// minRenew is the size of deltas below which a base is not worth its renewal.
	minRenew = 1 << 20
	// maxDeltas bounds the objects that a restore has to fetch, one after the other, for each subtask.
	maxDeltas = 64
)

// RenewBase is engine.Options.RenewBase: a base is renewed once the deltas above it exceed half of it, or are
// many.
func (k *Keeper) RenewBase(node string, subtask int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.state[nodeKey{node, subtask}]
	return l != nil && (l.deltaBytes > max(minRenew, l.baseBytes/2) || l.deltas >= maxDeltas)
}

func (k *Keeper) lineage(node string, subtask int) *lineage {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.state[nodeKey{node, subtask}]
	if l == nil {
		l = &lineage{}
		k.state[nodeKey{node, subtask}] = l
	}
	return l
}

// Persist stores the bulk of a snapshot and returns what the coordinator needs. The snapshots of one
// subtask are persisted in order, one at a time; those of different subtasks may be at once. After an
// aborted snapshot the Part is of no use, but what was stored is part of the next.
func (k *Keeper) Persist(ctx context.Context, s *engine.SubtaskSnapshot) (Part, error) {
	p := Part{Checkpoint: s.Checkpoint, Stage: s.Stage, Subtask: s.Subtask, Merger: s.Merger, Channels: s.Channels}
	for _, n := range s.Nodes {
		np := NodePart{Node: n.Node, Watermark: n.Watermark, Blob: n.Blob, Committables: k.prepare(s, n)}
		if n.Keyed != nil {
			var err error
			if np.Keyed, err = k.persistKeyed(ctx, s, n); err != nil {
				return Part{}, fmt.Errorf("store the state of %q, subtask %d, for checkpoint %d: %w", n.Node, s.Subtask, s.Checkpoint, err)
			}
		}
		p.Nodes = append(p.Nodes, np)
	}
	if err := p.spill(ctx, k.store); err != nil {
		return Part{}, fmt.Errorf("store what subtask %d of %q holds, for checkpoint %d: %w", s.Subtask, s.Stage, s.Checkpoint, err)
	}
	return p, nil
}

func (k *Keeper) prepare(s *engine.SubtaskSnapshot, n engine.NodeSnapshot) []Prepared {
	l := k.lineage(n.Node, s.Subtask)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(n.Committables) > 0 {
		l.prepared = append(l.prepared, Prepared{s.Checkpoint, n.Committables})
	}
	return slices.Clone(l.prepared)
}

func (k *Keeper) persistKeyed(ctx context.Context, s *engine.SubtaskSnapshot, n engine.NodeSnapshot) (*Keyed, error) {
	l := k.lineage(n.Node, s.Subtask)
	d := Delta{Checkpoint: s.Checkpoint}
	var err error
	changes := n.Keyed.Delta()
	size := changes.Size()
	if size > 0 {
		if d.Ref, err = k.put(ctx, s.Checkpoint, "delta", changes); err != nil {
			return nil, err
		}
	}
	var base *Base
	if b := n.Keyed.Base(); b != nil {
		base, err = k.persistBase(ctx, l, s, n, b)
		if rerr := b.Release(); err == nil {
			err = rerr
		}
		if err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if size > 0 {
		l.unconfirmed = append(l.unconfirmed, d)
		l.deltas++
		l.deltaBytes += d.Ref.Size
	}
	if base != nil {
		l.bases = append(l.bases, *base)
	}
	return &Keyed{Base: base, Deltas: slices.Clone(l.unconfirmed)}, nil
}

func (k *Keeper) persistBase(ctx context.Context, l *lineage, s *engine.SubtaskSnapshot, n engine.NodeSnapshot, b statebackend.Snapshot) (*Base, error) {
	base := &Base{Checkpoint: s.Checkpoint}
	var err error
	if base.Handle, err = b.Persist(ctx, &uploader{k.store, s.Checkpoint, k.known(l)}); err != nil {
		return nil, err
	}
	base.Companion, err = k.put(ctx, s.Checkpoint, "companion", n.Keyed.Companion())
	return base, err
}

// known are the files of the completed base, by identity.
func (k *Keeper) known(l *lineage) map[string]statebackend.Ref {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := map[string]statebackend.Ref{}
	if l.base != nil {
		for _, f := range l.base.Handle.Files {
			if f.ID != "" {
				m[f.ID] = f.Ref
			}
		}
	}
	return m
}

func (k *Keeper) put(ctx context.Context, checkpoint int64, name string, content *statebackend.Pieces) (statebackend.Ref, error) {
	ref, err := k.store.Put(ctx, checkpoint, name, content, content.Size())
	if cerr := content.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = failpoint.Hit("mid-upload")
	}
	return ref, err
}

// Completed notes that a checkpoint is complete: what it has need not be sent again.
func (k *Keeper) Completed(checkpoint int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.state {
		l.prepared = slices.DeleteFunc(l.prepared, func(p Prepared) bool { return p.Checkpoint <= checkpoint })
		l.unconfirmed = slices.DeleteFunc(l.unconfirmed, func(d Delta) bool { return d.Checkpoint <= checkpoint })
		for i := range l.bases {
			if b := l.bases[i]; b.Checkpoint == checkpoint {
				l.base = &b
				l.baseBytes, _ = (&Keyed{Base: &b}).Bytes()
				l.deltas, l.deltaBytes = len(l.unconfirmed), 0
				for _, d := range l.unconfirmed {
					l.deltaBytes += d.Ref.Size
				}
			}
		}
		l.bases = slices.DeleteFunc(l.bases, func(b Base) bool { return b.Checkpoint <= checkpoint })
	}
}

// uploader is the statebackend.Uploader of one snapshot.
type uploader struct {
	store      Store
	checkpoint int64
	known      map[string]statebackend.Ref
}

func (u *uploader) Known(id string) (statebackend.Ref, bool) {
	r, ok := u.known[id]
	return r, ok
}

func (u *uploader) Upload(ctx context.Context, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	return u.store.Put(ctx, u.checkpoint, name, content, size)
}
