package transport_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/runners/distributed/transport"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// The work of the benchmark: two subtasks each make half of 4 million records, which go by key to two subtasks
// that sum them for each of 10,007 keys and window of 10,000 s.
const (
	benchRecords = 4_000_000
	benchWindow  = 10_000_000 // ms
)

type pair = sdk.KV[int64, int64]

func pairOf(id int64) pair  { return pair{Key: (id * 2654435761) % 10007, Value: id} }
func timeOf(id int64) int64 { return id * 25 }

// loop is what a competent programmer writes by hand for one half, without an exchange.
func loop(split int64) (total int64) {
	windows := map[int64]map[int64]*int64{}
	lastStart, last := int64(-1), map[int64]*int64(nil)
	for id := split; id < benchRecords; id += 2 {
		r, t := pairOf(id), timeOf(id)
		if s := t - t%benchWindow; s != lastStart {
			m := windows[s]
			if m == nil {
				m = map[int64]*int64{}
				windows[s] = m
			}
			lastStart, last = s, m
		}
		a := last[r.Key]
		if a == nil {
			a = new(int64)
			last[r.Key] = a
		}
		*a += r.Value
	}
	for _, m := range windows {
		for _, v := range m {
			total += *v
		}
	}
	return total
}

func twoLoops(testing.TB) int64 {
	var total atomic.Int64
	var both sync.WaitGroup
	for split := range int64(2) {
		both.Go(func() { total.Add(loop(split)) })
	}
	both.Wait()
	return total.Load()
}

type halves struct{}

func (halves) Splits(context.Context) ([]int64, error) { return []int64{0, 1}, nil }
func (halves) SplitID(s int64) string                  { return fmt.Sprint(s % 2) }
func (halves) Open(context.Context, connector.Subtask) (connector.Reader[pair, int64], error) {
	return &halfReader{}, nil
}

type halfReader struct {
	todo []int64
	buf  []pair
}

func (r *halfReader) Assign(s []int64) error { r.todo = append(r.todo, s...); return nil }
func (r *halfReader) Close() error           { return nil }
func (r *halfReader) Read(_ context.Context, limit int) (b connector.Batch[pair, int64], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	next := &r.todo[0]
	r.buf = r.buf[:0]
	for ; len(r.buf) < limit && *next < benchRecords; *next += 2 {
		r.buf = append(r.buf, pairOf(*next))
	}
	b.Records, b.Split, b.Done = r.buf, *next, *next >= benchRecords
	if b.Done {
		r.todo = r.todo[1:]
	}
	return b, nil
}

type sum struct{}

func (sum) CreateAccumulator() int64           { return 0 }
func (sum) AddInput(a, v int64) int64          { return a + v }
func (sum) MergeAccumulators(a, b int64) int64 { return a + b }
func (sum) ExtractOutput(a int64) int64        { return a }

func benchGraph(tb testing.TB, total *atomic.Int64) *kernel.Graph {
	p := sdk.NewPipeline("bench")
	in := sdk.Read("records", p, halves{}, sdk.EventTime(func(r pair) time.Time { return time.UnixMilli(timeOf(r.Value)) }, watermark.Bounded(0)))
	w := sdk.WindowInto("window", in, window.Fixed(benchWindow*time.Millisecond))
	s := sdk.CombinePerKey("sum", w, sum{})
	sdk.Map("total", s, func(kv pair) bool { total.Add(kv.Value); return true })
	g, err := p.Graph()
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func benchOptions() engine.Options {
	return engine.Options{
		Parallelism: 2, WatermarkInterval: 50,
		OpenBackend: func(ctx context.Context, _ *kernel.Node, sub, par int) (statebackend.Backend, error) {
			return memory.Driver{}.Open(ctx, statebackend.Config{KeyGroups: statebackend.RangeOf(sub, par, statebackend.DefaultKeyGroups)})
		},
		Splits: func(_ *kernel.Node, sub, _ int) [][]byte { return nil },
	}
}

// countedConn counts the bytes that are written.
type countedConn struct {
	net.Conn
	written *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// exchange runs the job in one process, or at workers joined by loopback sockets, whose bytes it counts if
// written is not nil.
func exchange(tb testing.TB, workers int, written *atomic.Int64) int64 {
	var total atomic.Int64
	g := benchGraph(tb, &total)
	o := benchOptions()
	for _, n := range g.Nodes {
		if n.Splits != nil {
			splits, err := n.Splits(context.Background())
			if err != nil {
				tb.Fatal(err)
			}
			o.Splits = func(_ *kernel.Node, sub, _ int) [][]byte { return splits[sub : sub+1] }
		}
	}
	var ended atomic.Int64
	stop := make(chan struct{})
	subtasks := int64(0)
	o.OnEnd = func(string, int) {
		if ended.Add(1) == atomic.LoadInt64(&subtasks) {
			close(stop)
		}
	}
	place := func(_ string, subtask int) string { return fmt.Sprint(subtask % workers) }
	addresses := map[string]string{}
	var meshes []*transport.Mesh
	var jobs []*engine.Job
	for w := range workers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		to := transport.Options{Name: fmt.Sprint(w), Job: "bench"}
		if written != nil {
			ln = countedListener{ln, written}
			to.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				return countedConn{c, written}, err
			}
		}
		end := transport.NewEndpoint(ln, to)
		defer end.Close()
		addresses[fmt.Sprint(w)] = ln.Addr().String()
		mesh := end.NewMesh(transport.Run{Attempt: 1}, place)
		o.Local, o.Remote = mesh.Local, mesh.Sender
		job, err := engine.NewJob(context.Background(), g, o)
		if err != nil {
			tb.Fatal(err)
		}
		meshes, jobs = append(meshes, mesh), append(jobs, job)
		atomic.AddInt64(&subtasks, int64(job.Subtasks()))
	}
	var all sync.WaitGroup
	for w, mesh := range meshes {
		all.Go(func() {
			if err := mesh.Connect(context.Background(), jobs[w], addresses); err != nil {
				tb.Error(err)
			}
		})
	}
	all.Wait()
	for _, job := range jobs {
		job.Start()
	}
	<-stop
	for w, job := range jobs {
		job.Stop()
		all.Go(func() {
			err := job.Wait()
			meshes[w].Close(err)
			if err != nil {
				tb.Error(err)
			}
		})
	}
	all.Wait()
	return total.Load()
}

type countedListener struct {
	net.Listener
	written *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.written}, err
}

// benchmark reports the best of the runs, by processor time: the machines that run this are shared.
func benchmark(b *testing.B, run func() int64) {
	const want = benchRecords * (benchRecords - 1) / 2
	best := time.Duration(1<<63 - 1)
	allocs := uint64(1<<64 - 1)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime()
		if got := run(); got != want {
			b.Fatalf("the sum is %d, want %d", got, want)
		}
		best = min(best, cpuTime()-start)
		runtime.ReadMemStats(&after)
		allocs = min(allocs, after.Mallocs-before.Mallocs)
	}
	b.ReportMetric(benchRecords/best.Seconds()/1e6, "Mrec/cpu-s")
	b.ReportMetric(float64(allocs)/benchRecords, "allocs/rec")
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkExchange compares two independent loops, an exchange of two by two subtasks in one process, and the
// same at two workers, where half of the records go over a socket.
func BenchmarkExchange(b *testing.B) {
	b.Run("loops", func(b *testing.B) { benchmark(b, func() int64 { return twoLoops(b) }) })
	b.Run("process", func(b *testing.B) { benchmark(b, func() int64 { return exchange(b, 1, nil) }) })
	b.Run("sockets", func(b *testing.B) {
		benchmark(b, func() int64 { return exchange(b, 2, nil) })
		var written atomic.Int64
		exchange(b, 2, &written)
		b.ReportMetric(float64(written.Load())/(benchRecords/2), "B/rec-sent")
	})
}
