//go:build unix

package distributed_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/testing/seeds"
)

// rig is a job of real processes.
type rig struct {
	t     *testing.T
	s     settings
	args  []string
	env   []string
	state string // what survives crashes
	// orphans are the workers whose coordinator was killed before it could clean up after them.
	orphans int
	log     lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T, records int64, rate float64, args ...string) *rig {
	dir := t.TempDir()
	r := &rig{t: t, s: settings{out: filepath.Join(dir, "out"), records: records, rate: rate}, state: filepath.Join(dir, "state")}
	scratch := filepath.Join(dir, "scratch")
	for _, d := range []string{r.s.out, scratch, r.marks()} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	r.args = append([]string{"--out=" + r.s.out, fmt.Sprint("--records=", records), fmt.Sprint("--rate=", rate)}, args...)
	r.env = append(os.Environ(), asProgram+"=1", "DISTRIBUTED_TEST_SCRATCH="+scratch)
	t.Cleanup(func() {
		if t.Failed() {
			log := r.log.String()
			t.Logf("the processes said:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	return r
}

// durable keeps the job's checkpoints in a directory.
func (r *rig) durable() *rig {
	r.args = append(r.args, "--state-backend=filesystem", "--checkpoint-dir=file://"+r.state)
	return r
}

// marks is where failpoints note that they have fired.
func (r *rig) marks() string { return filepath.Join(filepath.Dir(r.s.out), "marks") }

func (r *rig) failpoints(spec string) {
	r.env = append(r.env, "MILLSTREAM_FAILPOINTS="+spec, "MILLSTREAM_FAILPOINTS_ONCE="+r.marks())
}

// start starts a process. It is killed with the test.
func (r *rig) start(more ...string) *exec.Cmd {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a job that hangs fails its test
	cmd := exec.CommandContext(ctx, exe, append(r.args[:len(r.args):len(r.args)], more...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env, &r.log, &r.log
	cmd.WaitDelay = 10 * time.Second // children may hold our pipe for a moment
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cancel)
	return cmd
}

// exact compares the output.
func (r *rig) exact() {
	r.t.Helper()
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(r.s.out), "scratch", "*")); err != nil || len(left) > r.orphans {
		r.t.Errorf("local state of dead workers is left: %v (%v)", left, err)
	}
	if diff := cmp.Diff(want(r.s), got(r.t, r.s.out)); diff != "" {
		r.t.Errorf("output (-want +got):\n%.3000s", diff)
	}
}

// untilDone runs the coordinator, again and again if it crashes, and returns how often it did.
func (r *rig) untilDone(crash func(cmd *exec.Cmd, ended <-chan struct{})) (crashes int) {
	r.t.Helper()
	for ; crashes < 20; crashes++ {
		var more []string
		if crashes > 0 {
			more = []string{"--restore=latest"}
		}
		cmd := r.start(more...)
		ended := make(chan struct{})
		var watching sync.WaitGroup
		if crash != nil {
			watching.Go(func() { crash(cmd, ended) })
		}
		err := cmd.Wait()
		close(ended)
		watching.Wait()
		if err == nil {
			return crashes
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
			r.t.Fatalf("the job failed: %v", err)
		}
		r.orphans += 20
	}
	r.t.Fatalf("the coordinator crashed %d times", crashes)
	return crashes
}

func TestJobIsExactWithoutCrashes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--workers=1", "--parallelism=1"},
		{"--workers=3", "--parallelism=2"}, // one is spare
		{"--workers=2", "--parallelism=3", "--checkpoint-mode=unaligned"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := newRig(t, 20_000, 0, args...)
			r.untilDone(nil)
			r.exact()
		})
	}
}

// TestJobIsExactThroughFailpoints kills a worker or the coordinator at each named place.
func TestJobIsExactThroughFailpoints(t *testing.T) {
	const memory, durable = "memory", "filesystem"
	for _, test := range []struct {
		points, backend, mode string
		coordinator           bool // it is the coordinator that dies
	}{
		{"after-prepare=kill@5", memory, "aligned", false},
		{"mid-upload=kill@4", memory, "unaligned", false},
		{"mid-firing=kill@2", memory, "auto", false},
		{"after-prepare=kill@7,mid-restore=kill@1", memory, "aligned", false},
		{"after-prepare=kill@6", durable, "auto", false},
		{"mid-upload=kill@5", durable, "aligned", false},
		{"mid-firing=kill@3", durable, "unaligned", false},
		{"after-prepare=kill@8,mid-restore=kill@1", durable, "unaligned", false},
		{"before-publish=kill@1", durable, "aligned", true},
		{"before-publish=kill@4", durable, "unaligned", true},
		{"after-publish=kill@1", durable, "auto", true},
		{"after-publish=kill@3", durable, "aligned", true},
		{"mid-commit=kill@3", durable, "aligned", true},
		{"after-publish=error@3", durable, "aligned", true},
		{"before-publish=kill@3,after-publish=kill@2,mid-commit=kill@2,mid-upload=kill@3,mid-firing=kill@2", durable, "auto", true},
	} {
		t.Run(test.points+" "+test.backend+" "+test.mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 40_000, 20_000, "--checkpoint-mode="+test.mode)
			if test.backend == durable {
				r.durable()
			}
			r.failpoints(test.points)
			if strings.Contains(test.points, "=error") {
				// The coordinator ends by itself, and another one takes over.
				if err := r.start().Wait(); err == nil {
					t.Fatal("the injected error did not end the job")
				}
				r.args = append(r.args, "--restore=latest")
			}
			crashes := r.untilDone(nil)
			r.exact()
			if killed := crashes > 0; killed != (test.coordinator && strings.Contains(test.points, "publish=kill") || strings.Contains(test.points, "mid-commit")) {
				t.Errorf("the coordinator crashed %d times", crashes)
			}
			for _, p := range strings.Split(test.points, ",") {
				name, _, _ := strings.Cut(p, "=")
				if _, err := os.Stat(filepath.Join(r.marks(), name)); err != nil {
					t.Errorf("%s has not fired: %v", name, err)
				}
			}
		})
	}
}

// TestJobIsExactThroughRandomCrashes kills workers and the coordinator at random times.
func TestJobIsExactThroughRandomCrashes(t *testing.T) {
	start, runs := seeds.From(t, 1) // of each mode
	for run := range runs {
		for i, mode := range []string{"aligned", "unaligned", "auto"} {
			for _, durable := range []bool{true, false} {
				seed := start + uint64(run)
				t.Run(fmt.Sprintf("%s durable=%v seed=%d", mode, durable, seed), func(t *testing.T) {
					t.Parallel()
					defer func() {
						if t.Failed() {
							t.Log(seeds.Rerun(t, seed))
						}
					}()
					rnd := rand.New(rand.NewPCG(seed, uint64(i)))
					r := newRig(t, 40_000, 20_000, "--checkpoint-mode="+mode, "--workers=3", "--parallelism=3")
					if durable {
						r.durable()
					}
					kills, workers := 5, 0
					r.untilDone(func(cmd *exec.Cmd, ended <-chan struct{}) {
						for ; kills > 0; kills-- {
							select {
							case <-ended:
								return
							case <-time.After(time.Duration(100+rnd.IntN(500)) * time.Millisecond):
							}
							if durable && rnd.IntN(3) == 0 {
								kills--
								if err := cmd.Process.Kill(); err != nil {
									return // it has just ended
								}
								return
							}
							pids := childrenOf(cmd.Process.Pid)
							if len(pids) == 0 {
								continue
							}
							// An error says that it has just ended.
							if syscall.Kill(pids[rnd.IntN(len(pids))], syscall.SIGKILL) == nil {
								workers++
							}
						}
					})
					r.exact()
					t.Logf("%d workers killed, %d of 5 kills left", workers, kills)
				})
			}
		}
	}
}

// childrenOf asks the kernel for the children of a process.
func childrenOf(pid int) (pids []int) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, name := range tasks {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
