//go:build unix

package distributed_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// until waits for a condition, with the patience of a slow machine.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

var addressInLog = regexp.MustCompile(`msg="(coordinator|status API) is up".* address=(\S+)`)

// address waits for the nth coordinator, or status API, to say where it listens.
func (r *rig) address(who string, nth int) (address string) {
	r.t.Helper()
	r.until(who+" is up", func() bool {
		n := 0
		for _, m := range addressInLog.FindAllStringSubmatch(r.log.String(), -1) {
			if m[1] == who {
				if n++; n == nth {
					address = m[2]
				}
			}
		}
		return address != ""
	})
	return address
}

func (r *rig) get(url string, into any) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into) == nil
}

type jobStatus struct {
	Name, State        string
	Attempt            int64
	RestoredCheckpoint *int64
	Degraded           bool
	Workers            int
}

// failure is how a process ends that has to refuse.
func (r *rig) failure(cmd *exec.Cmd, says ...string) {
	r.t.Helper()
	if err := cmd.Wait(); err == nil {
		r.t.Fatalf("the process ended well; it should have said %q", says)
	}
	for _, s := range says {
		if !strings.Contains(r.log.String(), s) {
			r.t.Errorf("nobody said %q", s)
		}
	}
}

// TestWorkersJoinACoordinator runs the roles as one does on several machines, and reads the status API.
func TestWorkersJoinACoordinator(t *testing.T) {
	t.Parallel()
	r := newRig(t, 60_000, 20_000).durable()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lead := r.start("--role=coordinator", "--http=127.0.0.1:0", "--token-file="+token)
	at := r.address("coordinator", 1)
	api := "http://" + r.address("status API", 1) + "/api/v1/"
	var job jobStatus
	if !r.get(api+"job", &job) || job.State != "starting" || job.Name != "crash" {
		t.Errorf("before the workers the job is %+v", job)
	}
	join := func(more ...string) *exec.Cmd {
		w := &rig{t: r.t, env: r.env, args: []string{"--role=worker", "--coordinator=" + at, "--token-file=" + token}}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("a worker said:\n%s", w.log.String())
			}
		})
		return w.start(more...)
	}
	first, second := join(), join()
	r.until("a checkpoint is complete", func() bool {
		var c struct{ Completed int }
		return r.get(api+"checkpoints", &c) && c.Completed > 0
	})
	// One dies and is not replaced: the other takes over.
	if err := second.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.orphans = 1
	r.until("the job runs on one worker", func() bool {
		return r.get(api+"job", &job) && job.State == "running" && job.Degraded && job.Workers == 1
	})
	if job.Attempt < 2 || job.RestoredCheckpoint == nil {
		t.Errorf("after the loss of a worker the job is %+v", job)
	}
	var steps []struct {
		Name                  string
		RecordsIn, RecordsOut int64
		Watermark             *string
	}
	r.until("the steps have figures", func() bool {
		return r.get(api+"steps", &steps) && len(steps) == 6 && steps[3].Name == "sum" && steps[3].RecordsIn > 0 && steps[3].Watermark != nil
	})
	if err := lead.Wait(); err != nil {
		t.Fatalf("the job failed: %v", err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the worker that was left failed: %v", err)
	}
	if err := second.Wait(); err == nil {
		t.Error("the killed worker ended well")
	}
	r.exact()
}

// TestCoordinatorIsReplaced: workers wait for another coordinator at the same address, which goes on.
func TestCoordinatorIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, 40_000, 20_000).durable()
	lead := r.start("--role=coordinator", "--workers=1")
	at := r.address("coordinator", 1)
	w := (&rig{t: t, env: r.env}).start("--role=worker", "--coordinator="+at)
	r.published(2)
	if err := lead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := lead.Wait(); err == nil {
		t.Fatal("the killed coordinator ended well")
	}
	if err := r.start("--role=coordinator", "--workers=1", "--listen="+at, "--restore=latest").Wait(); err != nil {
		t.Fatalf("the second coordinator failed: %v", err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("the worker failed: %v", err)
	}
	r.exact()
}

// published waits until the log has so many entries.
func (r *rig) published(entries int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d entries in the log", entries), func() bool {
		names, err := filepath.Glob(filepath.Join(r.state, "log", "*"))
		return err == nil && len(names) >= entries
	})
}

// TestSleepingCoordinatorIsDeposed: one that wakes up after another has taken over publishes and commits nothing.
func TestSleepingCoordinatorIsDeposed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 40_000, 20_000).durable()
	zombie := r.start()
	r.published(3)
	stop := func(s syscall.Signal) {
		t.Helper()
		for _, pid := range append(childrenOf(zombie.Process.Pid), zombie.Process.Pid) {
			if err := syscall.Kill(pid, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop(syscall.SIGSTOP)
	next := r.start("--restore=latest")
	r.until("the next one has published", func() bool { return strings.Count(r.log.String(), "attempt begins") >= 4 })
	stop(syscall.SIGCONT)
	r.failure(zombie, `deposed: another coordinator leads: "the coordinator at 127.0.0.1:`, fmt.Sprintf("(process %d on ", next.Process.Pid))
	if err := next.Wait(); err != nil {
		t.Fatalf("the new coordinator failed: %v", err)
	}
	r.exact()
}

// TestSleepingWorkerIsFenced: one that is silent for too long is replaced; what it does when it wakes up counts for
// nothing, and it joins anew.
func TestSleepingWorkerIsFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t, 60_000, 15_000, "--checkpoint-mode=auto").durable()
	lead := r.start("--role=coordinator", "--heartbeat-timeout=1s")
	at := r.address("coordinator", 1)
	worker := func() *exec.Cmd {
		return (&rig{t: t, env: r.env}).start("--role=worker", "--coordinator="+at)
	}
	stays, sleeps := worker(), worker()
	r.published(3)
	if err := sleeps.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.until("the job goes on without it", func() bool {
		return strings.Contains(r.log.String(), "it was silent") && strings.Count(r.log.String(), "attempt begins") >= 3
	})
	if err := sleeps.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.until("it joins anew", func() bool { return strings.Contains(r.log.String(), "worker=worker-000003") })
	for _, p := range []*exec.Cmd{lead, stays, sleeps} {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %v", p.Args[1:], err)
		}
	}
	r.exact()
}

// TestInterruptTakesALastCheckpoint: SIGTERM stops a job without an error, and it goes on where it was.
func TestInterruptTakesALastCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, 30_000, 15_000, "--checkpoint-interval=1h").durable()
	first := r.start()
	r.until("the job runs", func() bool { return strings.Contains(r.log.String(), "attempt begins") })
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	r.published(2) // the claim and the last checkpoint
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Fatalf("the job did not go on: %v", err)
	}
	if !strings.Contains(r.log.String(), "msg=restoring checkpoint=1") {
		t.Error("the second run did not restore checkpoint 1")
	}
	r.exact()
}

var attemptInLog = regexp.MustCompile(`msg="attempt begins" attempt=(\d+)`)

// TestPoisonEndsTheJob: a record that always fails is tried again as often as --max-retries says, and no more; then it
// can be repaired.
func TestPoisonEndsTheJob(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 20_000, 20_000, fmt.Sprint("--max-retries=", retries)).durable()
			r.failure(r.start("--poison=3000"), fmt.Sprintf(`gave up after %d retries: step "read": read: this record is poison`, retries))
			attempts := map[string]bool{}
			for _, m := range attemptInLog.FindAllStringSubmatch(r.log.String(), -1) {
				attempts[m[1]] = true
			}
			if len(attempts) != retries+1 {
				t.Errorf("%d retries are allowed, and there were %d attempts", retries, len(attempts))
			}
			if retries == 1 {
				r.repaired()
			}
		})
	}
}

// repaired goes on without the poison.
func (r *rig) repaired() {
	t := r.t
	t.Helper()
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Fatalf("the repaired job failed: %v", err)
	}
	r.exact()
}

// TestWhatCannotHealIsNotTriedAgain: input that is not there ends the job at once.
func TestWhatCannotHealIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1_000, 0, "--workers=1")
	r.failure(r.start("--input="+filepath.Join(t.TempDir(), "nothing")), `step "read": list splits: stat`)
	if strings.Contains(r.log.String(), "gave up after") {
		t.Error("it was tried again")
	}
}

// TestOtherFlagsAreToldAtARestore: what is read and what was written does not follow them.
func TestOtherFlagsAreToldAtARestore(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2_000, 0, "--workers=1").durable()
	if err := r.start().Wait(); err != nil {
		t.Fatal(err)
	}
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Fatal(err)
	}
	const told = "with other flags"
	if strings.Contains(r.log.String(), told) {
		t.Error("the flags were the same")
	}
	if err := r.start("--restore=latest", "--records=1000", "--extra=secret-value").Wait(); err != nil {
		t.Fatal(err)
	}
	if log := r.log.String(); strings.Count(log, told) != 1 || !strings.Contains(log, "other flags: --extra has changed, --records has changed. ") {
		t.Error("nobody said once that the flags differ")
	}
	if strings.Contains(r.log.String(), "secret-value") {
		t.Error("the value of a flag is in the log")
	}
	r.exact()
}

// TestRestoringIsExplicit: what could lose or repeat output is refused with what to do.
func TestRestoringIsExplicit(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5_000, 0).durable()
	refused := func(says string, args ...string) {
		t.Helper()
		r.failure(r.start(args...), says)
	}
	if err := r.start("--restore=latest").Wait(); err != nil { // nothing is there yet
		t.Fatal(err)
	}
	if !strings.Contains(r.log.String(), "starting afresh") {
		t.Error("a restore from nothing was not announced")
	}
	r.exact()
	refused("go on from them with --restore=latest, or begin anew with --new-run")
	refused("start with --parallelism=2", "--restore=latest", "--parallelism=3")
	refused("leave one out", "--restore=latest", "--new-run")
	refused("has no checkpoint in slot 1,", "--restore=1")
	refused("must be none, latest, or an entry of the log", "--restore=yesterday")
	refused("a job restores its own checkpoints", "--restore=file:///elsewhere/log/00000000000000000002")
	r.exact()

	// The finished job, restored, finishes again and writes nothing more.
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Fatal(err)
	}
	r.exact()
	names, err := filepath.Glob(filepath.Join(r.state, "log", "*"))
	if err != nil || len(names) < 4 {
		t.Fatalf("the log has %v (%v)", names, err)
	}
	oldest := "log/" + filepath.Base(names[1])
	refused("would appear twice", "--restore="+oldest)
	if err := r.start("--restore="+oldest, "--allow-replay").Wait(); err != nil {
		t.Fatalf("--allow-replay: %v", err)
	}
	if !strings.Contains(r.log.String(), "will appear twice") {
		t.Error("--allow-replay did not warn")
	}
	// A new run begins at the beginning, in another output.
	r.s.out = t.TempDir()
	if err := r.start("--new-run", "--out="+r.s.out).Wait(); err != nil {
		t.Fatalf("--new-run: %v", err)
	}
	r.exact()
}

// TestADeletedCheckpointIsNotPassedOver: the newest entries of the log are missed, for what they promised is committed.
func TestADeletedCheckpointIsNotPassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, 20_000, 20_000).durable()
	if err := r.start().Wait(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(r.state, "log", "*"))
	if err != nil || len(names) < 3 {
		t.Fatalf("the log has %v (%v)", names, err)
	}
	last := len(names) - 1
	reached := strings.TrimLeft(filepath.Base(names[last]), "0") // not their number: the oldest may be swept already
	refused := func(args ...string) {
		t.Helper()
		r.log = lockedBuffer{}
		r.failure(r.start(args...), fmt.Sprintf("had reached slot %s: its newest entries were deleted by hand", reached), "--allow-replay")
		r.exact()
	}
	remove := func(names ...string) {
		t.Helper()
		for _, n := range names {
			if err := os.Remove(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(names[last])
	refused("--restore=latest")
	if err := r.start("--restore=latest", "--allow-replay").Wait(); err != nil {
		t.Fatalf("--allow-replay: %v", err)
	}
	if !strings.Contains(r.log.String(), "will appear twice") {
		t.Error("--allow-replay did not warn")
	}
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// TestADeletedLogIsNotAnEmptyOne: with no entry left, a restore does not start afresh.
func TestADeletedLogIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2_000, 0, "--workers=1").durable()
	if err := r.start().Wait(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.state, "log")); err != nil {
		t.Fatal(err)
	}
	for _, restore := range []string{"latest", "none"} {
		r.failure(r.start("--restore="+restore), "ends at slot 0, and had reached slot")
		r.exact()
	}
	r.s.out = t.TempDir()
	if err := r.start("--new-run", "--out="+r.s.out).Wait(); err != nil {
		t.Fatalf("--new-run: %v", err)
	}
	r.exact()
}

// TestStrangersAreRefused: the refusal names what differs, on both sides.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1_000, 0)
	r.start("--role=coordinator", "--workers=1")
	at := r.address("coordinator", 1)
	for _, test := range []struct{ env, says string }{
		{"DISTRIBUTED_TEST_EXTRA=other", `the program's own flags differ: in line 1 the worker has "--extra=other", the coordinator "--extra="`},
		{"DISTRIBUTED_TEST_BAD_PLAN=1", `build gives another plan: in line 6 the worker has "step \"one step more\" map"`},
	} {
		w := &rig{t: t, env: append(r.env[:len(r.env):len(r.env)], test.env)}
		w.failure(w.start("--role=worker", "--coordinator="+at), strings.ReplaceAll(test.says, `\"`, `\"`))
		quoted := strings.ReplaceAll(test.says, `\`, `\\`)
		quoted = strings.ReplaceAll(quoted, `"`, `\"`)
		r.until("the coordinator says it too", func() bool { return strings.Contains(r.log.String(), quoted) })
	}
}

// TestOldObjectsAreDeleted: a long job keeps only what its retained checkpoints need.
func TestOldObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 10_000_000, 10_000, "--checkpoint-interval=10ms", "--retain-checkpoints=2").durable()
	job := r.start()
	completed := func() int { return strings.Count(r.log.String(), "checkpoint complete") }
	r.until("100 checkpoints are complete", func() bool { return completed() >= 100 })
	if err := job.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(); err != nil {
		t.Fatal(err)
	}
	var objects, entries int
	for pattern, n := range map[string]*int{"shared/*/*/*/*": &objects, "log/*": &entries} {
		names, err := filepath.Glob(filepath.Join(r.state, pattern))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(names)
	}
	if entries > 15 {
		t.Errorf("the log has %d entries", entries)
	}
	// Each of two subtasks has a base and up to 64 deltas, and two manifests differ little.
	if n := completed(); objects == 0 || objects > 2*70 {
		t.Errorf("%d objects are left of %d checkpoints", objects, n)
	}
}

// TestWorkersThatCannotJoinEndTheJob: children that end before they join are not started for ever.
func TestWorkersThatCannotJoinEndTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1_000, 0, "--workers=1")
	r.env = append(r.env, "DISTRIBUTED_TEST_WORKERS_FAIL=1")
	r.failure(r.start(), "workers end before they join", "this worker was told to fail")
}

// TestOutputThatWasTakenAwayIsNoConcernOfALaterStart: of a finished job everything is committed, so that its files may be
// moved; and who begins anew may have removed what the run before had staged.
func TestOutputThatWasTakenAwayIsNoConcernOfALaterStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5_000, 0).durable()
	away := func() {
		t.Helper()
		if err := os.RemoveAll(r.s.out); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(r.s.out, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.start().Wait(); err != nil {
		t.Fatal(err)
	}
	r.exact()
	away()
	if err := r.start("--restore=latest").Wait(); err != nil {
		t.Fatalf("a finished job, restored after its output was moved: %v", err)
	}
	if err := r.start("--new-run").Wait(); err != nil {
		t.Fatalf("a new run: %v", err)
	}
	r.exact()

	away()
	r.env = append(r.env, "MILLSTREAM_FAILPOINTS=after-publish=kill@1")
	if err := r.start("--new-run").Wait(); err == nil {
		t.Fatal("the failpoint was not met")
	}
	r.env = r.env[:len(r.env)-1]
	r.orphans += 2
	away()
	r.failure(r.start("--restore=latest"), "output is lost")
	if err := r.start("--new-run").Wait(); err != nil {
		t.Fatalf("a new run after output was lost: %v", err)
	}
	if !strings.Contains(r.log.String(), "output of the run before this one is lost") {
		t.Error("the loss was not told")
	}
	r.exact()
}
