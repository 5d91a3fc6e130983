package clustertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/runners/distributed/coordinator"
)

// job is what a coordinator is told.
type job struct {
	Args                 []string
	Workers, Parallelism int
	Backend, Mode        string
	Cache                int64
	Interval             time.Duration
	Checkpoints, Scratch string
	Restore              string
	Result               string // file
}

// newJob is what a job is told unless a test says otherwise.
func newJob(t testing.TB) job {
	return job{
		Workers: 2, Parallelism: 2, Backend: "filesystem", Mode: "aligned",
		Cache: 64 << 20, Interval: 100 * time.Millisecond, Scratch: t.TempDir(),
	}
}

// fileURL is the URL of a directory. The names of tests, which are in those of their directories, may have what a URL has not.
func fileURL(dir string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
}

// run coordinates the job of a program in this process.
func (j job) run(ctx context.Context, log io.Writer, p distributed.Program, out *Outcome) error {
	return distributed.Run(ctx, distributed.Config{
		Role: "local", Workers: j.Workers, Parallelism: j.Parallelism,
		StateBackend: j.Backend, StateCache: j.Cache, CheckpointDir: j.Checkpoints,
		CheckpointInterval: j.Interval, CheckpointMode: j.Mode, AlignmentTimeout: 20 * time.Millisecond, RetainCheckpoints: 3,
		Restore: j.Restore, Scratch: j.Scratch, Logger: slog.New(slog.NewTextHandler(log, nil)),
		// By one goroutine, which ends with Run.
		OnProgress: func(p coordinator.Progress) { out.Steps, out.Restored = p.Steps, p.Restored },
	}, p)
}

// jobFile is the variable that names the file of a job to a process that is to coordinate it.
const jobFile = "CLUSTERTEST_JOB"

// lead coordinates the job of a file.
func lead(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	var out Outcome
	if err := j.run(context.Background(), os.Stderr, program(j.Args), &out); err != nil {
		return err
	}
	if b, err = json.Marshal(out); err != nil {
		return err
	}
	return os.WriteFile(j.Result, b, 0o666)
}

// maxCrashes bounds how often a coordinator is started again: failpoints fire once.
const maxCrashes = 10

// apart runs the job with a coordinator of its own process, which is started again when it is killed.
func (j job) apart(t testing.TB, out *Outcome) error {
	dir := t.TempDir()
	file := filepath.Join(dir, "job")
	j.Result = filepath.Join(dir, "result")
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	crashes := 0
	for ; ; crashes++ {
		if crashes > 0 {
			j.Restore = "latest"
		}
		b, err := json.Marshal(j)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, b, 0o666); err != nil {
			return err
		}
		said := &tail{}
		log := io.MultiWriter(said, t.Output())
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), jobFile+"="+file)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.WaitDelay = 10 * time.Second // children may hold our pipe for a moment
		err = cmd.Run()
		if err == nil {
			break
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() >= 0 || crashes == maxCrashes { // -1: by a signal
			return fmt.Errorf("the coordinator: %w: %s", err, said.b)
		}
	}
	b, err := os.ReadFile(j.Result)
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, out)
	out.Crashes = crashes
	return err
}

// tail keeps the last of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4000):]
	return len(p), nil
}
