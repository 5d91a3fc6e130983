package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/failpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/runners/distributed/transport"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/storage"
)

// attempt is this worker's part of one attempt to run the job.
//
//	newAttempt ── connect ──▶ Deployed ── begin ──▶ runs ── end
type attempt struct {
	s      *session
	number int64
	dir    string
	ctx    context.Context // ends with the attempt
	cancel context.CancelFunc
	job    *engine.Job
	mesh   *transport.Mesh
	keeper *checkpoint.Keeper
	store  checkpoint.Store

	addresses map[string]string
	working   sync.WaitGroup // connecting, waiting for the job, persisting

	mu       sync.Mutex
	queues   map[place]*queue
	begun    bool
	ended    bool // by end: what fails now is of no interest
	reported bool
}

type place struct {
	stage   string
	subtask int
}

var errCancelled = errors.New("the coordinator has cancelled the attempt")

// storeError is a failure to keep a checkpoint.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// newAttempt lays out the subtasks. The session's goroutine calls it.
func newAttempt(ctx context.Context, s *session, d *control.Deploy) (*attempt, error) {
	set := s.welcome.Settings
	a := &attempt{
		s: s, number: d.Attempt, dir: filepath.Join(s.o.Scratch, fmt.Sprintf("%d-%d", s.welcome.Generation, d.Attempt)),
		store: s.store(d.Attempt), addresses: d.Addresses, queues: map[place]*queue{},
	}
	var from *checkpoint.Checkpoint
	if len(d.Checkpoint) > 0 {
		m, err := checkpoint.DecodeManifest(d.Checkpoint)
		if err != nil {
			return nil, err
		}
		from = &m.Checkpoint
	}
	if len(d.Slots) != int(set.Parallelism) {
		return nil, fmt.Errorf("attempt %d has %d slots at parallelism %d", d.Attempt, len(d.Slots), set.Parallelism)
	}
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.keeper = checkpoint.NewKeeper(a.store, from)
	a.mesh = s.endpoint.NewMesh(transport.Run{Generation: s.welcome.Generation, Attempt: uint64(d.Attempt)},
		func(_ string, subtask int) string { return d.Slots[subtask] })
	o := engine.Options{
		Parallelism: int(set.Parallelism), Groups: int(set.KeyGroups), CacheBytes: set.StateCache, Checkpoints: true,
		WatermarkInterval: eventtime.Time(set.WatermarkInterval), AlignTimeout: eventtime.Time(set.AlignTimeout),
		Local: a.mesh.Local, Remote: a.mesh.Sender, RenewBase: a.keeper.RenewBase, Logger: s.o.Logger.With("attempt", d.Attempt),
		OpenBackend: func(ctx context.Context, n *kernel.Node, subtask, parallelism int) (statebackend.Backend, error) {
			return from.Open(ctx, a.store, s.backend, statebackend.Config{
				Dir:       filepath.Join(a.dir, fmt.Sprintf("%d-%d", n.ID, subtask)),
				KeyGroups: statebackend.RangeOf(subtask, parallelism, int(set.KeyGroups)),
			}, n.Name, subtask)
		},
		Splits: func(n *kernel.Node, subtask, parallelism int) (mine [][]byte) {
			for _, sp := range d.Splits {
				if sp.Step != n.Name {
					continue
				}
				for i := subtask; i < len(sp.Splits); i += parallelism {
					mine = append(mine, sp.Splits[i])
				}
			}
			return mine
		},
		OnSnapshot: a.snapshot,
		OnEnd: func(stage string, subtask int) {
			a.tellMade(a.heartbeat)
			a.tell(&control.FromWorker{Message: &control.FromWorker_Ended{Ended: &control.Ended{
				Attempt: a.number, Stage: stage, Subtask: int32(subtask),
			}}})
		},
	}
	if from != nil {
		o.Restore = func(stage string, subtask int) (*engine.SubtaskRestore, error) {
			return from.Restore(a.ctx, a.store, stage, subtask)
		}
	}
	var err error
	if a.job, err = engine.NewJob(a.ctx, s.graph, o); err != nil {
		a.cancel()
		return nil, err
	}
	return a, nil
}

// tell sends a message. If the stream is broken the session ends, and the attempt with it.
func (a *attempt) tell(m *control.FromWorker) {
	a.tellMade(func() *control.FromWorker { return m })
}

func (a *attempt) tellMade(make func() *control.FromWorker) {
	if err := a.s.sendMade(make); err != nil {
		a.s.o.Logger.Debug("send to the coordinator", "error", err)
	}
}

// connect joins the subtasks here to those elsewhere, beside, and says when that is done.
func (a *attempt) connect() {
	a.working.Go(func() {
		if err := a.mesh.Connect(a.ctx, a.job, a.addresses); err != nil {
			a.report(&control.Failed{Error: err.Error(), Lost: true})
			return
		}
		a.tell(&control.FromWorker{Message: &control.FromWorker_Deployed{Deployed: &control.Deployed{Attempt: a.number}}})
	})
}

// begin runs the subtasks.
func (a *attempt) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.job.Start()
	a.working.Go(func() {
		err := a.job.Wait()
		if err != nil {
			// Before the peers are told: they report that they lost us, and an attempt might begin and end in vain
			// before the coordinator knows that the failure counts.
			a.failed(err)
		}
		a.mesh.Close(err)
	})
}

// permanent says whether a connector or a driver knows that trying again will not help.
func permanent(err error) bool {
	return errors.Is(err, connector.ErrPermanent) || errors.Is(err, storage.ErrPermanent)
}

// failed tells the coordinator why the job has stopped.
func (a *attempt) failed(err error) {
	var sub *engine.SubtaskError
	var step *engine.StepError
	var kept storeError
	stored := errors.As(err, &kept)
	f := &control.Failed{
		Error:     err.Error(),
		Permanent: permanent(err) && !stored, // a store that cannot keep a checkpoint may be able to keep the next one
	}
	if errors.As(err, &sub) && errors.As(err, &step) {
		f.Step, f.Subtask = step.Step, int32(sub.Subtask)
		for _, m := range a.figures().Steps {
			if m.Step == f.Step && m.Subtask == f.Subtask {
				f.Records = m.RecordsIn
				if m.RecordsIn == 0 { // a source
					f.Records = m.RecordsOut
				}
			}
		}
	}
	f.Lost = sub == nil && !stored // whatever else stops a job is a connection to another worker
	a.report(f)
}

func (a *attempt) report(f *control.Failed) {
	a.mu.Lock()
	silent := a.ended || a.reported
	a.reported = true
	a.mu.Unlock()
	if !silent {
		f.Attempt = a.number
		a.tell(failed(f))
	}
}

// end stops the attempt, in peace if why is nil, and waits until nothing of it is left.
func (a *attempt) end(why error) {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	if why == nil && a.begun {
		a.job.Stop()
	} else {
		a.cancel()
		a.job.Cancel(why)
	}
	if !a.begun {
		a.mesh.Close(why)
	}
	a.working.Wait()
	a.cancel()
	if err := os.RemoveAll(a.dir); err != nil {
		a.s.o.Logger.Warn("remove the state of an attempt that has ended", "error", err)
	}
}

// snapshot is engine.Options.OnSnapshot: it queues the snapshot for the subtask's persisting goroutine.
func (a *attempt) snapshot(s *engine.SubtaskSnapshot) {
	if err := failpoint.Hit("after-prepare"); err != nil {
		a.job.Cancel(storeError{err})
		return
	}
	at := place{s.Stage, s.Subtask}
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[at]
	if q == nil {
		q = &queue{}
		a.queues[at] = q
	}
	q.waiting = append(q.waiting, s)
	if !q.busy {
		q.busy = true
		a.working.Go(func() { a.persist(q) })
	}
}

// queue is the snapshots of one subtask that are to be persisted, in order.
type queue struct {
	waiting []*engine.SubtaskSnapshot
	busy    bool
}

// persist works a queue off and acknowledges.
func (a *attempt) persist(q *queue) {
	for {
		a.mu.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			a.mu.Unlock()
			return
		}
		s := q.waiting[0]
		q.waiting = q.waiting[1:]
		a.mu.Unlock()

		p, err := a.keeper.Persist(a.ctx, s)
		if err == nil && s.Aborted {
			continue // what was stored goes with the next
		}
		var part []byte
		if err == nil {
			part, err = checkpoint.AppendPart(nil, &p)
		}
		if err != nil {
			if a.ctx.Err() == nil {
				a.job.Cancel(storeError{err})
			}
			continue
		}
		a.tell(&control.FromWorker{Message: &control.FromWorker_Ack{Ack: &control.Ack{Attempt: a.number, Part: part}}})
	}
}

// heartbeat says how far a is; it may be nil.
func (a *attempt) heartbeat() *control.FromWorker {
	h := &control.Heartbeat{}
	if a != nil {
		h = a.figures()
	}
	return &control.FromWorker{Message: &control.FromWorker_Heartbeat{Heartbeat: h}}
}

// figures are the metrics of the subtasks here.
func (a *attempt) figures() *control.Heartbeat {
	h := &control.Heartbeat{Attempt: a.number}
	a.job.EachMetrics(func(step string, subtask int, m *kernel.Metrics) {
		f := &control.StepMetrics{
			Step: step, Subtask: int32(subtask), RecordsIn: m.RecordsIn.Load(), RecordsOut: m.RecordsOut.Load(),
			LateDropped: m.LateDropped.Load(), Watermark: m.Watermark.Load(), Figures: control.PackFigures(m.Figures()),
		}
		h.Steps = append(h.Steps, f)
	})
	return h
}
