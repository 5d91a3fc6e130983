package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/enginetest"
	"github.com/millstream/millstream/testing/seeds"
	"github.com/millstream/millstream/testing/sim"
)

// TestFailingStepEndsTheJob plants one fault into one step of a random job: an error, a panic or the end of the goroutine in one of its
// methods, or an error of its state backend, while others are at work, wait for input or for room. The job
// must end, with an error that names the step once; every operator that was opened is closed once, no other
// is, and so are the backends.
func TestFailingStepEndsTheJob(t *testing.T) {
	start, runs := someSeeds(t)
	fired := map[string]int{}
	for i := range runs {
		seed := start + uint64(i)
		what, err := runFaultyJob(seed)
		if err != nil {
			t.Fatalf("seed %d, %s: %v\n%s", seed, what, err, seeds.Rerun(t, seed))
		}
		fired[what]++
	}
	t.Logf("seeds %d to %d: %v", start, start+uint64(runs)-1, fired)
	if runs >= 300 {
		for _, m := range methods {
			for _, how := range hows {
				if what := how + " in " + m; fired[what] == 0 && !(how != "error" && strings.HasPrefix(m, "backend")) {
					t.Errorf("there was no %s: a run that exercises nothing proves nothing", what)
				}
			}
		}
	}
}

var methods = []string{"Open", "Process", "Poll", "Watermark", "Flush", "Snapshot", "Close",
	"backend Open", "backend Get", "backend Write", "backend Scan", "backend Snapshot", "backend Close"}

var hows = []string{"error", "panic", "exit"}

var errPlanted = errors.New("planted")

// plant is one fault.
type plant struct {
	node   string
	method string
	how    string // error, panic or exit
	nth    int    // call of the method, over all subtasks
	calls  int
	fired  bool

	watches  []*watch
	backends []*watchedBackend
}

// hit is called by every method of every operator.
func (p *plant) hit(node, method string) error {
	if node != p.node || method != p.method {
		return nil
	}
	if p.calls++; p.calls != p.nth {
		return nil
	}
	p.fired = true
	switch p.how {
	case "panic":
		panic(errPlanted)
	case "exit":
		runtime.Goexit()
	}
	return errPlanted
}

// watch is the life of one operator.
type watch struct {
	plant          *plant
	node           string
	opened, closed int
}

// watched is an operator under watch. Which optional methods it has depends on the operator: see wrap.
type watched struct {
	*watch
	op kernel.Operator
}

func (w watched) Open(c *kernel.OpenContext) error {
	w.opened++
	if err := w.plant.hit(w.node, "Open"); err != nil {
		return err
	}
	return w.op.Open(c)
}

func (w watched) Process(port int, b kernel.Batch) error {
	if err := w.plant.hit(w.node, "Process"); err != nil {
		return err
	}
	return w.op.Process(port, b)
}

func (w watched) Watermark(t eventtime.Time, budget int) (bool, error) {
	if err := w.plant.hit(w.node, "Watermark"); err != nil {
		return false, err
	}
	return w.op.Watermark(t, budget)
}

func (w watched) Flush() error {
	if err := w.plant.hit(w.node, "Flush"); err != nil {
		return err
	}
	if f, ok := w.op.(kernel.Flusher); ok {
		return f.Flush()
	}
	return nil
}

func (w watched) Close() error {
	w.closed++
	err := w.op.Close()
	if herr := w.plant.hit(w.node, "Close"); herr != nil {
		return herr
	}
	return err
}

type watchedStateful struct{ watched }

func (w watchedStateful) Snapshot(checkpoint int64, base bool) (kernel.OpSnapshot, error) {
	if err := w.plant.hit(w.node, "Snapshot"); err != nil {
		return kernel.OpSnapshot{}, err
	}
	return w.op.(kernel.Stateful).Snapshot(checkpoint, base)
}

type watchedSource struct{ watchedStateful }

func (w watchedSource) Poll(now eventtime.Time) (kernel.Polled, error) {
	if err := w.plant.hit(w.node, "Poll"); err != nil {
		return kernel.Polled{}, err
	}
	return w.op.(kernel.Source).Poll(now)
}

// watchedSided is a step with side inputs.
type watchedSided struct{ watchedStateful }

func (w watchedSided) SideWatermark(port int, t eventtime.Time) {
	w.op.(kernel.SideReader).SideWatermark(port, t)
}

func (w watchedSided) Hold() eventtime.Time      { return w.op.(kernel.Holder).Hold() }
func (w watchedSided) NextClock() eventtime.Time { return w.op.(kernel.Clocked).NextClock() }

func (w watchedSided) Clock(now eventtime.Time, budget int) (bool, error) {
	return w.op.(kernel.Clocked).Clock(now, budget)
}

func (p *plant) wrap(node string, op kernel.Operator) kernel.Operator {
	w := &watch{plant: p, node: node}
	p.watches = append(p.watches, w)
	in := watched{w, op}
	if _, ok := op.(kernel.Source); ok {
		return watchedSource{watchedStateful{in}}
	}
	if _, ok := op.(kernel.SideReader); ok {
		return watchedSided{watchedStateful{in}}
	}
	if _, ok := op.(kernel.Stateful); ok {
		return watchedStateful{in}
	}
	return in
}

// watchedBackend fails as planted, and counts how often it is closed.
type watchedBackend struct {
	statebackend.Backend
	plant  *plant
	node   string
	closed int
}

func (b *watchedBackend) Get(keys *statebackend.Keys, found func(int, []byte) error) error {
	if err := b.plant.hit(b.node, "backend Get"); err != nil {
		return err
	}
	return b.Backend.Get(keys, found)
}

func (b *watchedBackend) Write(batch *statebackend.Batch) error {
	if err := b.plant.hit(b.node, "backend Write"); err != nil {
		return err
	}
	return b.Backend.Write(batch)
}

func (b *watchedBackend) Scan(r statebackend.Range, visit func(key, value []byte) (bool, error)) error {
	if err := b.plant.hit(b.node, "backend Scan"); err != nil {
		return err
	}
	return b.Backend.Scan(r, visit)
}

func (b *watchedBackend) Snapshot() (statebackend.Snapshot, error) {
	if err := b.plant.hit(b.node, "backend Snapshot"); err != nil {
		return nil, err
	}
	return b.Backend.Snapshot()
}

func (b *watchedBackend) Close() error {
	b.closed++
	if err := b.plant.hit(b.node, "backend Close"); err != nil {
		return err
	}
	return b.Backend.Close()
}

func runFaultyJob(seed uint64) (what string, err error) {
	r := rand.New(rand.NewPCG(seed, 5))
	g := enginetest.Random(r, false)
	n := uint64(len(methods))
	p := &plant{method: methods[seed%n], how: hows[seed/n%uint64(len(hows))], nth: 1 + r.IntN(6)}
	if strings.HasPrefix(p.method, "backend") {
		p.how = "error"
	}
	if strings.HasSuffix(p.method, "Open") || strings.HasSuffix(p.method, "Close") {
		p.nth = 1 // there may be only one subtask
	}
	var candidates []string
	for _, n := range g.Nodes {
		_, source := n.New().(kernel.Source)
		_, stateful := n.New().(kernel.Stateful)
		ok := true
		switch p.method {
		case "Poll":
			ok = source
		case "Process":
			ok = !source
		case "Snapshot":
			ok = stateful
		}
		if ok && (n.Keyed || !strings.HasPrefix(p.method, "backend")) {
			candidates = append(candidates, n.Name)
		}
	}
	if len(candidates) == 0 {
		return "no such step", nil
	}
	p.node = candidates[r.IntN(len(candidates))]
	what = p.how + " in " + p.method
	for _, n := range g.Nodes {
		make := n.New
		n.New = func() kernel.Operator { return p.wrap(n.Name, make()) }
		if set := n.SetSplits; set != nil {
			n.SetSplits = func(op kernel.Operator, splits [][]byte) { set(op.(watchedSource).op, splits) }
		}
	}

	sched := sim.New(seed)
	sched.MaxSteps = 500_000
	me := sched.NewParker("coordinator")
	ended, parts, checkpoint := 0, 0, int64(0)
	job, err := engine.NewJob(context.Background(), &g.Graph, engine.Options{
		Scheduler: sched, Parallelism: 1 + r.IntN(3), Room: 1, Checkpoints: true, Budget: 1 + r.IntN(3),
		CacheBytes: 400, // evict, so that the backend is asked
		OpenBackend: func(ctx context.Context, n *kernel.Node, sub, par int) (statebackend.Backend, error) {
			if err := p.hit(n.Name, "backend Open"); err != nil {
				return nil, err
			}
			b, err := memory.Driver{}.Open(ctx, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)})
			if err != nil {
				return nil, err
			}
			w := &watchedBackend{Backend: b, plant: p, node: n.Name}
			p.backends = append(p.backends, w)
			return w, nil
		},
		Splits: func(n *kernel.Node, sub, par int) (out [][]byte) {
			all, err := n.Splits(context.Background())
			enginetest.Must(err)
			for i := sub; i < len(all); i += par {
				out = append(out, all[i])
			}
			return out
		},
		RenewBase: func(string, int) bool { return true },
		OnSnapshot: func(s *engine.SubtaskSnapshot) {
			if s.Checkpoint == checkpoint && !s.Aborted {
				parts++
			}
			me.Wake()
		},
		OnEnd: func(string, int) { ended++; me.Wake() },
	})
	if err != nil {
		return what, err
	}
	job.Start()
	overtake := r.IntN(2) == 0
	sched.Go("coordinator", me, func() {
		for !p.fired {
			for range r.IntN(40) {
				me.Park(sched.Now() + eventtime.Time(r.IntN(2)))
			}
			last := ended == job.Subtasks()
			checkpoint++
			parts = 0
			job.Trigger(checkpoint, overtake)
			for parts < job.Subtasks() && !p.fired {
				me.Park(sched.Now() + 1)
			}
			if last && !p.fired {
				job.Stop()
				return
			}
		}
	})
	if err := sched.Run(); err != nil {
		return what, fmt.Errorf("%w\n%s", err, job.Describe())
	}
	err = job.Wait()
	if !p.fired {
		if err != nil {
			return what, fmt.Errorf("no fault, and yet: %w", err)
		}
		return "none", p.closedOnce()
	}
	text := fmt.Sprint(err)
	switch {
	case err == nil:
		return what, errors.New("the job ended without an error")
	case p.how == "error" && !errors.Is(err, errPlanted), p.how == "panic" && !strings.Contains(text, "panic: planted"), p.how == "exit" && !errors.Is(err, kernel.ErrExited):
		return what, fmt.Errorf("the job ended with another error: %w", err)
	case strings.Count(text, "step \"") != 1 || !strings.Contains(text, fmt.Sprintf("step %q", p.node)):
		return what, fmt.Errorf("the error does not name step %q, once: %w", p.node, err)
	}
	return what, p.closedOnce()
}

func (p *plant) closedOnce() error {
	for _, w := range p.watches {
		if w.opened > 1 || w.closed != w.opened {
			return fmt.Errorf("an operator of %q was opened %d times and closed %d times", w.node, w.opened, w.closed)
		}
	}
	for _, b := range p.backends {
		if b.closed != 1 {
			return fmt.Errorf("a backend of %q was closed %d times", b.node, b.closed)
		}
	}
	return nil
}
