package distributed_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// The tests of this package run real processes. This test binary is the program of all of them: with asProgram
// set it runs the job below instead of tests, and so it does when a coordinator starts it as a worker.

const asProgram = "DISTRIBUTED_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := program(ctx, os.Args[1:], os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "process %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settings are the program's own flags.
type settings struct {
	out     string
	records int64
	rate    float64
	poison  int64
	extra   string
	badPlan bool
	input   string
}

func (s *settings) flags(fs *flag.FlagSet) {
	fs.StringVar(&s.out, "out", "", "directory of the output")
	fs.Int64Var(&s.records, "records", 0, "to read")
	fs.Float64Var(&s.rate, "rate", 0, "records a second")
	fs.Int64Var(&s.poison, "poison", -1, "record on which the job fails")
	fs.StringVar(&s.input, "input", "", "file that must be there when the splits are listed")
	fs.StringVar(&s.extra, "extra", os.Getenv("DISTRIBUTED_TEST_EXTRA"), "something that may differ")
	fs.BoolVar(&s.badPlan, "bad-plan", os.Getenv("DISTRIBUTED_TEST_BAD_PLAN") != "", "build another plan")
}

// program is the main function of all processes.
func program(ctx context.Context, args []string, log io.Writer) error {
	var c distributed.Config
	var own settings
	parse := func(args []string) (*flag.FlagSet, error) {
		fs := flag.NewFlagSet("crash", flag.ContinueOnError)
		own = settings{}
		own.flags(fs)
		fs.String("runner", "", "")
		fs.StringVar(&c.Role, "role", "local", "")
		fs.IntVar(&c.Workers, "workers", 2, "")
		fs.IntVar(&c.Parallelism, "parallelism", 2, "")
		fs.StringVar(&c.Coordinator, "coordinator", "", "")
		fs.StringVar(&c.Listen, "listen", "", "")
		fs.StringVar(&c.StateBackend, "state-backend", "memory", "")
		fs.StringVar(&c.CheckpointDir, "checkpoint-dir", "", "")
		fs.DurationVar(&c.CheckpointInterval, "checkpoint-interval", 100*time.Millisecond, "")
		fs.StringVar(&c.CheckpointMode, "checkpoint-mode", "aligned", "")
		fs.StringVar(&c.Restore, "restore", "none", "")
		fs.BoolVar(&c.NewRun, "new-run", false, "")
		fs.BoolVar(&c.AllowReplay, "allow-replay", false, "")
		fs.StringVar(&c.HTTP, "http", "", "")
		fs.StringVar(&c.TokenFile, "token-file", "", "")
		fs.IntVar(&c.RetainCheckpoints, "retain-checkpoints", 3, "")
		fs.IntVar(&c.MaxRetries, "max-retries", 3, "")
		fs.DurationVar(&c.HeartbeatTimeout, "heartbeat-timeout", 30*time.Second, "")
		return fs, fs.Parse(args)
	}
	if _, err := parse(args); err != nil {
		return err
	}
	c.AlignmentTimeout, c.StateCache, c.WatermarkInterval = 20*time.Millisecond, 64<<10, 5*time.Millisecond
	c.Scratch = os.Getenv("DISTRIBUTED_TEST_SCRATCH")
	c.RestartGrace = 30 * time.Second // a replacement comes, however slow the machine
	if c.Role != "local" {
		c.RestartGrace = 100 * time.Millisecond
	}
	c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := distributed.Program{
		Name: "crash", Args: args,
		Build: func(p *sdk.Pipeline) error { return build(p, own) },
		Parse: func(args, _ []string) error {
			keep := c
			_, err := parse(args)
			c = keep
			return err
		},
		Flags: func() map[string]string {
			return map[string]string{"out": own.out, "records": fmt.Sprint(own.records), "extra": own.extra}
		},
		Backends: backends,
		Storages: []storage.Driver{file.Driver},
	}
	if c.Role == "worker" {
		if os.Getenv("DISTRIBUTED_TEST_WORKERS_FAIL") != "" {
			return errors.New("this worker was told to fail")
		}
		return distributed.RunWorker(ctx, c, p)
	}
	return distributed.Run(ctx, c, p)
}

// backends are what the program links in; a file with the tag rocksdb adds to them.
var backends = map[string]statebackend.Driver{"memory": memory.Driver{}}

const (
	splits      = 5
	keys        = 3000 // of one window, so that a firing takes several slices
	windowSize  = time.Second
	msPerRecord = 1
)

type number struct{ Split, N int64 }

// at is the event time of a record, out of order by up to 50 ms.
func (n number) at() time.Time {
	return time.UnixMilli(n.N*msPerRecord + (n.N*7919+n.Split*104729)%50 - 50).UTC()
}

// build counts numbers by key and second, and sums them.
func build(p *sdk.Pipeline, s settings) error {
	numbers := sdk.Read("read", p, numberSource{s}, sdk.EventTime(number.at, watermark.Bounded(100*time.Millisecond)), sdk.MaxRate(s.rate))
	if s.badPlan {
		numbers = sdk.Map("one step more", numbers, func(n number) number { return n })
	}
	keyed := sdk.KeyBy("key", numbers, func(n number) int64 { return (n.N*splits + n.Split) % keys })
	windows := sdk.WindowInto("windows", keyed, window.Fixed(windowSize))
	sums := sdk.CombinePerKey("sum", windows, sum{})
	lines := sdk.ParDoFunc("line", sums, func(c *sdk.ProcessContext, kv sdk.KV[int64, int64], out *sdk.Emitter[string]) error {
		out.Emit(fmt.Sprintf("%d key %d: %d", c.Window().Start().UnixMilli(), kv.Key, kv.Value))
		return nil
	})
	sdk.Write("write", lines, fileSink{s.out})
	return nil
}

type sum struct{}

func (sum) CreateAccumulator() int64           { return 0 }
func (sum) AddInput(a int64, n number) int64   { return a + n.N }
func (sum) MergeAccumulators(a, b int64) int64 { return a + b }
func (sum) ExtractOutput(a int64) (r int64)    { return a }

// want is the right output, by a plain loop.
func want(s settings) (lines []string) {
	type group struct{ start, key int64 }
	sums := map[group]int64{}
	for split := range int64(splits) {
		for n := range s.records / splits {
			num := number{split, n}
			t := num.at().UnixMilli()
			start := t - (t%1000+1000)%1000
			sums[group{start, (n*splits + split) % keys}] += n
		}
	}
	for g, v := range sums {
		lines = append(lines, fmt.Sprintf("%d key %d: %d", g.start, g.key, v))
	}
	slices.Sort(lines)
	return lines
}

// got reads the committed output.
func got(t *testing.T, out string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(out, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			lines = append(lines, sc.Text())
		}
		f.Close()
	}
	slices.Sort(lines)
	return lines
}

// numberSource reads splits of numbers.
type numberSource struct{ s settings }

type numberSplit struct{ ID, Next int64 }

func (n numberSource) Splits(context.Context) (all []numberSplit, _ error) {
	if n.s.input != "" {
		if _, err := os.Stat(n.s.input); err != nil {
			return nil, err
		}
	}
	for i := range int64(splits) {
		all = append(all, numberSplit{ID: i})
	}
	return all, nil
}
func (numberSource) SplitID(s numberSplit) string { return fmt.Sprint(s.ID) }
func (n numberSource) Open(context.Context, connector.Subtask) (connector.Reader[number, numberSplit], error) {
	return &numberReader{s: n.s}, nil
}

type numberReader struct {
	s    settings
	todo []numberSplit
	turn int
	buf  []number
}

func (r *numberReader) Assign(s []numberSplit) error { r.todo = slices.Clone(s); return nil }
func (r *numberReader) Close() error                 { return nil }

func (r *numberReader) Read(_ context.Context, limit int) (connector.Batch[number, numberSplit], error) {
	if len(r.todo) == 0 {
		return connector.Batch[number, numberSplit]{Status: connector.End}, nil
	}
	r.turn = (r.turn + 1) % len(r.todo)
	sp := &r.todo[r.turn]
	r.buf = r.buf[:0]
	end := r.s.records / splits
	for len(r.buf) < min(limit, 50) && sp.Next < end {
		if sp.Next == r.s.poison && sp.ID == 0 {
			return connector.Batch[number, numberSplit]{}, errors.New("this record is poison")
		}
		r.buf = append(r.buf, number{sp.ID, sp.Next})
		sp.Next++
	}
	b := connector.Batch[number, numberSplit]{Records: r.buf, Split: *sp, Done: sp.Next == end}
	if b.Done {
		r.todo = slices.Delete(r.todo, r.turn, r.turn+1)
		r.turn = 0
	}
	return b, nil
}

// fileSink writes lines into files: staged under a name without .txt, committed by a rename.
type fileSink struct{ dir string }

type staged struct{ Name string }

func (f fileSink) Open(context.Context, connector.Subtask) (connector.Writer[string, staged], error) {
	return &fileWriter{dir: f.dir}, nil
}

// Start sweeps what no checkpoint lists.
func (f fileSink) Start(context.Context, bool) error {
	left, err := filepath.Glob(filepath.Join(f.dir, "*.staged"))
	for _, l := range left {
		err = errors.Join(err, os.Remove(l))
	}
	return err
}

func (f fileSink) Commit(_ context.Context, checkpoint int64, parts []staged) error {
	for _, p := range parts {
		from, to := filepath.Join(f.dir, p.Name+".staged"), filepath.Join(f.dir, p.Name+".txt")
		err := os.Rename(from, to)
		if errors.Is(err, os.ErrNotExist) {
			if _, err = os.Stat(to); err == nil {
				continue // done before
			}
			return connector.Permanent(fmt.Errorf("checkpoint %d: neither %s nor %s exists: output is lost", checkpoint, from, to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type fileWriter struct {
	dir   string
	lines []string
}

func (w *fileWriter) Write(_ context.Context, records []connector.Record[string]) error {
	for i := range records {
		w.lines = append(w.lines, records[i].Value)
	}
	return nil
}

func (w *fileWriter) Prepare(context.Context, int64) ([]staged, error) {
	if len(w.lines) == 0 {
		return nil, nil
	}
	p := staged{rand.Text()}
	err := os.WriteFile(filepath.Join(w.dir, p.Name+".staged"), []byte(strings.Join(w.lines, "\n")+"\n"), 0o666)
	w.lines = nil
	return []staged{p}, err
}

func (w *fileWriter) Close() error { return nil }
