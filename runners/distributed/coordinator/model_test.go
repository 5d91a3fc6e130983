package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/testing/seeds"
)

// TestRandomHistoriesAreExact plays a job against a Core: workers that count records and write them to a sink,
// and a coordinator's shell. Messages of different workers overtake each other, events come twice or late,
// workers die, say nothing, or fail; publications and commits take their time and fail. The model checks at
// each action what docs/design/coordinator.md promises, and at the end that every record was committed once.
func TestRandomHistoriesAreExact(t *testing.T) {
	var sum modelStats
	start, runs := seeds.From(t, 400)
	for seed := start; seed < start+uint64(runs); seed++ {
		m := newModel(seed)
		if err := m.run(); err != nil {
			if seeds.Given() {
				t.Log(m.trace())
			}
			t.Fatalf("seed %d: %v\n%s", seed, err, seeds.Rerun(t, seed))
		}
		sum.add(m.stats)
	}
	t.Logf("%+v", sum)
	if runs >= 100 && (sum.Attempts < 2*runs || sum.Stale == 0 || sum.Lost == 0 || sum.StepsFailed == 0 || sum.CommitsFailed == 0 || sum.Aborted == 0) {
		t.Errorf("something was never exercised: %+v", sum)
	}
}

type modelStats struct{ Attempts, Checkpoints, Lost, StepsFailed, CommitsFailed, Stale, Aborted int }

func (s *modelStats) add(o modelStats) {
	s.Attempts += o.Attempts
	s.Checkpoints += o.Checkpoints
	s.Lost += o.Lost
	s.StepsFailed += o.StepsFailed
	s.CommitsFailed += o.CommitsFailed
	s.Stale += o.Stale
	s.Aborted += o.Aborted
}

const recordsEach = 60 // of each subtask

type model struct {
	r     *rand.Rand
	core  *Core
	now   int64
	calm  bool // no more faults
	store checkpoint.MemoryStore

	subtasks []Subtask
	workers  map[WorkerID]*modelWorker
	nextID   WorkerID
	inFlight []Event // to the core, in any order except what a worker sends after another

	published  map[int64]*checkpoint.Manifest
	newest     int64
	publishing bool
	begun      int64 // newest attempt that has begun
	committed  map[string]int64
	commitUpTo int64
	final      *Finish

	stats modelStats
	log   []string
}

type modelWorker struct {
	id      WorkerID
	dead    bool
	mute    bool // no heartbeats
	attempt int64
	begun   bool
	keeper  *checkpoint.Keeper
	at      map[Subtask]*modelSubtask
}

type modelSubtask struct {
	pos     int
	written []string // since the last barrier
	ended   bool
}

func newModel(seed uint64) *model {
	m := &model{
		r: rand.New(rand.NewPCG(seed, 2)), workers: map[WorkerID]*modelWorker{}, published: map[int64]*checkpoint.Manifest{},
		committed: map[string]int64{},
	}
	par := 1 + m.r.IntN(3)
	for i := range par {
		m.subtasks = append(m.subtasks, Subtask{"count", i})
	}
	m.subtasks = append(m.subtasks, Subtask{"single", 0})
	m.core = NewCore(Config{
		Parallelism: par, Subtasks: m.subtasks, Workers: 1 + m.r.IntN(3), Interval: int64(20 + m.r.IntN(100)),
		CheckpointTimeout: 400, HeartbeatTimeout: 300, Grace: 50, RestartDelay: 10, MaxRetries: 1000,
	}, 0)
	return m
}

func (m *model) trace() (s string) {
	for _, l := range m.log[max(0, len(m.log)-200):] {
		s += l + "\n"
	}
	return s
}

func (m *model) run() error {
	for step := 0; m.final == nil; step++ {
		if step > 100_000 {
			return fmt.Errorf("the job is stuck: %+v", m.core.Status())
		}
		m.calm = step > 600
		if err := m.move(); err != nil {
			return err
		}
	}
	m.stats.Attempts += int(m.core.Attempt())
	for _, h := range m.core.Status().History {
		if h.State == "aborted" || h.State == "timed out" {
			m.stats.Aborted++
		}
	}
	if m.final.State != Finished {
		return fmt.Errorf("the job ended as %s: %v", m.final.State, m.final.Err)
	}
	for _, s := range m.subtasks {
		for i := range recordsEach {
			if name := record(s, i); m.committed[name] == 0 {
				return fmt.Errorf("record %s was never committed", name)
			}
		}
	}
	return nil
}

func record(s Subtask, i int) string { return fmt.Sprintf("%s/%d/%d", s.Stage, s.Index, i) }

// move does one random thing.
func (m *model) move() error {
	switch k := m.r.IntN(100); {
	case k < 15:
		m.now += int64(m.r.IntN(30))
		return m.tell(Tick{m.now})
	case k < 45 && len(m.inFlight) > 0:
		return m.deliver()
	case k < 50:
		if alive := len(m.alive()); alive < 3 {
			m.nextID++
			m.workers[m.nextID] = &modelWorker{id: m.nextID}
			m.send(Joined{m.nextID})
		}
		return nil
	}
	alive := m.alive()
	if len(alive) == 0 {
		return nil
	}
	w := alive[m.r.IntN(len(alive))]
	if !m.calm {
		switch m.r.IntN(150) {
		case 0:
			m.stats.Lost++
			w.dead = true
			m.send(Left{w.id, "killed"})
			return nil
		case 1:
			w.mute = true
		case 2:
			if w.begun {
				m.stats.StepsFailed++
				m.send(StepFailed{Worker: w.id, Attempt: w.attempt, Step: "count", Records: int64(m.r.IntN(50)), Err: errors.New("broken"), Lost: m.r.IntN(3) == 0})
				w.begun = false
				return nil
			}
		}
	}
	if m.r.IntN(3) == 0 && (!w.mute || m.calm) {
		m.send(Heard{Worker: w.id, Attempt: w.attempt})
	}
	if w.begun {
		m.work(w)
	}
	return nil
}

func (m *model) alive() (all []*modelWorker) {
	for id := WorkerID(1); id <= m.nextID; id++ {
		if !m.workers[id].dead {
			all = append(all, m.workers[id])
		}
	}
	return all
}

// work lets a subtask of a worker take a record.
func (m *model) work(w *modelWorker) {
	for _, s := range m.subtasks {
		t := w.at[s]
		switch {
		case t == nil || m.r.IntN(2) == 0:
		case t.pos < recordsEach:
			t.written = append(t.written, record(s, t.pos))
			t.pos++
		case !t.ended:
			t.ended = true
			m.send(EndReached{w.id, w.attempt, s})
		}
	}
}

func (m *model) send(e Event) {
	m.inFlight = append(m.inFlight, e)
	if !m.calm && m.r.IntN(10) == 0 {
		m.inFlight = append(m.inFlight, e) // twice
	}
}

// deliver brings the core some message that is on its way. What one worker has sent comes in order, except that a
// message may linger and come again.
func (m *model) deliver() error {
	k := m.r.IntN(len(m.inFlight))
	from := sender(m.inFlight[k])
	for i, e := range m.inFlight[:k] {
		if from != 0 && sender(e) == from {
			k = i
			break
		}
	}
	e := m.inFlight[k]
	if m.calm || m.r.IntN(20) > 0 {
		m.inFlight = slices.Delete(m.inFlight, k, k+1)
	} else {
		m.inFlight = append(slices.Delete(m.inFlight, k, k+1), e) // a copy comes late
	}
	if j, ok := e.(Joined); ok && slices.ContainsFunc(m.core.workers, func(w worker) bool { return w.id == j.Worker }) {
		return nil // the shell gives each connection an ID once
	}
	if j, ok := e.(Joined); ok && m.workers[j.Worker].dead {
		return nil
	}
	switch e.(type) {
	case Published, Committed, Prepared: // from the shell, which does not repeat itself
		m.inFlight = slices.DeleteFunc(m.inFlight, func(x Event) bool {
			return fmt.Sprintf("%T%v", x, x) == fmt.Sprintf("%T%v", e, e)
		})
	}
	return m.tell(e)
}

func sender(e Event) WorkerID {
	switch e := e.(type) {
	case Joined:
		return e.Worker
	case Left:
		return e.Worker
	case Heard:
		return e.Worker
	case Deployed:
		return e.Worker
	case EndReached:
		return e.Worker
	case Acked:
		return e.Worker
	case StepFailed:
		return e.Worker
	}
	return 0
}

func (m *model) tell(e Event) error {
	m.log = append(m.log, fmt.Sprintf("%d %T %.200v", m.now, e, e))
	if a, ok := e.(Acked); ok && a.Attempt != m.core.attempt {
		m.stats.Stale++
	}
	if p, ok := e.(Published); ok {
		m.publishing = false
		if p.Err == nil {
			m.newest = p.Checkpoint
		}
	}
	if c, ok := e.(Committed); ok && c.Err == nil {
		m.commitUpTo = c.Checkpoint
	}
	for _, a := range m.core.Step(e) {
		m.log = append(m.log, "\t"+describe(a))
		if err := m.act(a); err != nil {
			return err
		}
	}
	return nil
}

// act checks an action, and does it.
func (m *model) act(a Action) error {
	switch a := a.(type) {
	case Prepare:
		if m.publishing || len(m.core.commits.pending) > 0 {
			return fmt.Errorf("attempt %d is prepared while output is not committed", a.Attempt)
		}
		m.send(Prepared{Attempt: a.Attempt})
	case Deploy:
		w := m.workers[a.Worker]
		if a.Restore == nil && m.newest != 0 || a.Restore != nil && a.Restore.ID != m.newest {
			return fmt.Errorf("attempt %d is not deployed from checkpoint %d", a.Attempt, m.newest)
		}
		if a.Attempt <= m.begun {
			return fmt.Errorf("attempt %d is deployed after attempt %d has begun", a.Attempt, m.begun)
		}
		if w.dead {
			return nil
		}
		w.attempt, w.begun, w.at = a.Attempt, false, map[Subtask]*modelSubtask{}
		w.keeper = checkpoint.NewKeeper(&m.store, a.Restore)
		for _, s := range m.subtasks {
			if a.Slots[s.Index] != w.id {
				continue
			}
			t := &modelSubtask{}
			if a.Restore != nil {
				r, err := a.Restore.Restore(context.Background(), &m.store, s.Stage, s.Index)
				if err != nil {
					return err
				}
				if t.pos, err = strconv.Atoi(string(r.Nodes[s.Stage].Blob)); err != nil {
					return err
				}
			}
			w.at[s] = t
		}
		m.send(Deployed{w.id, a.Attempt})
	case Begin:
		if a.Attempt < m.begun {
			return fmt.Errorf("attempt %d begins after attempt %d", a.Attempt, m.begun)
		}
		m.begun = a.Attempt
		if w := m.workers[a.Worker]; !w.dead && w.attempt == a.Attempt {
			w.begun = true
		}
	case Cancel:
		if w := m.workers[a.Worker]; w.attempt == a.Attempt && m.r.IntN(4) > 0 {
			w.begun = false // else it is slow to hear of it, and goes on
		}
	case Trigger:
		if w := m.workers[a.Worker]; !w.dead && w.begun && w.attempt == a.Attempt {
			return m.snapshot(w, a.Checkpoint)
		}
	case Complete:
		if a.Checkpoint != m.newest {
			return fmt.Errorf("checkpoint %d is said to be complete, but %d was published", a.Checkpoint, m.newest)
		}
		if w := m.workers[a.Worker]; w.attempt == a.Attempt {
			w.keeper.Completed(a.Checkpoint)
		}
	case Publish:
		return m.publish(a)
	case Commit:
		return m.commit(a)
	case Dismiss:
		w := m.workers[a.Worker]
		if !w.dead && m.final == nil {
			m.stats.Lost++
			w.dead = true
			m.send(Left{w.id, "dismissed"})
		}
	case Finish:
		m.final = &a
	}
	return nil
}

func (m *model) snapshot(w *modelWorker, id int64) error {
	for _, s := range m.subtasks {
		t := w.at[s]
		if t == nil {
			continue
		}
		n := engine.NodeSnapshot{Node: s.Stage, OpSnapshot: kernel.OpSnapshot{Blob: []byte(strconv.Itoa(t.pos))}}
		for _, name := range t.written {
			n.Committables = append(n.Committables, []byte(name))
		}
		t.written = nil
		p, err := w.keeper.Persist(context.Background(), &engine.SubtaskSnapshot{Checkpoint: id, Stage: s.Stage, Subtask: s.Index, Nodes: []engine.NodeSnapshot{n}})
		if err != nil {
			return err
		}
		// Parts travel in their encoding.
		b, err := checkpoint.AppendPart(nil, &p)
		if err != nil {
			return err
		}
		if p, err = checkpoint.DecodePart(b); err != nil {
			return err
		}
		if !m.calm && m.r.IntN(60) == 0 {
			continue // the acknowledgement is lost: the checkpoint times out
		}
		m.send(Acked{w.id, w.attempt, p})
	}
	return nil
}

func (m *model) publish(a Publish) error {
	c := &a.Manifest.Checkpoint
	if m.publishing {
		return fmt.Errorf("two publications at once")
	}
	if c.ID <= m.newest || a.Attempt != m.begun {
		return fmt.Errorf("checkpoint %d of attempt %d is published after checkpoint %d, in attempt %d", c.ID, a.Attempt, m.newest, m.begun)
	}
	var got []Subtask
	for _, p := range c.Parts {
		got = append(got, Subtask{p.Stage, p.Subtask})
	}
	if !slices.Equal(got, m.subtasks) {
		return fmt.Errorf("checkpoint %d has the parts of %v", c.ID, got)
	}
	m.publishing = true
	m.stats.Checkpoints++
	m.published[c.ID] = a.Manifest
	m.send(Published{Checkpoint: c.ID})
	return nil
}

func (m *model) commit(a Commit) error {
	if a.Checkpoint <= m.commitUpTo {
		return fmt.Errorf("checkpoint %d is committed after %d", a.Checkpoint, m.commitUpTo)
	}
	listed := m.published[m.newest]
	if listed == nil {
		return fmt.Errorf("checkpoint %d is committed before anything was published", a.Checkpoint)
	}
	fails := !m.calm && m.r.IntN(5) == 0
	for _, o := range a.Outputs {
		if !slices.ContainsFunc(listed.Pending, func(p checkpoint.Output) bool { return p.Node == o.Node && p.Checkpoint == o.Checkpoint }) {
			return fmt.Errorf("output of checkpoint %d is committed, which checkpoint %d does not list", o.Checkpoint, m.newest)
		}
		for _, c := range o.Committables {
			// Again is right after a failure, but only for the same checkpoint.
			if at := m.committed[string(c)]; at != 0 && at != o.Checkpoint {
				return fmt.Errorf("record %s is committed for checkpoint %d and for %d", c, at, o.Checkpoint)
			}
			if !fails || m.r.IntN(2) == 0 { // a failure may come half-way
				m.committed[string(c)] = o.Checkpoint
			}
		}
	}
	if fails {
		m.stats.CommitsFailed++
		m.send(Committed{Checkpoint: a.Checkpoint, Err: errors.New("unavailable")})
		return nil
	}
	m.send(Committed{Checkpoint: a.Checkpoint})
	return nil
}
