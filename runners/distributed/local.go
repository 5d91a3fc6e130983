package distributed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// children are the worker processes of a job with role local: this program again, with --role=worker. Each has a pipe
// from us as its standard input. The token comes through it, and its end tells a child that we are gone.
type children struct {
	c        Config
	address  string
	token    []byte
	joined   func() int  // workers that have ever joined
	ended    func() bool // the job is done or has failed: children end because they are dismissed
	hopeless context.CancelCauseFunc

	run     func() error  // runs a child to its end
	done    chan struct{} // closed by stop
	over    chan struct{} // closed by wait
	running sync.WaitGroup
}

// parentPipe is the variable that tells a worker that its standard input is a pipe from its coordinator, and which
// directory it has for its state.
const parentPipe = "MILLSTREAM_PARENT_PIPE"

// ExitOrphan is the exit code of a worker whose parent, the coordinator, is gone.
const ExitOrphan = 3

const scratchPattern = "millstream-worker-"

var errHopeless = errors.New("workers end before they join")

// hopelessAfter is the number of children in a row, none of which lived to join.
const hopelessAfter = 5

func (k *children) start() {
	k.run = k.child
	for range k.c.Workers {
		k.running.Go(k.supervise)
	}
}

// livedLong is how long a child lives that has not been killed by what all of them do.
const livedLong = 10 * time.Second

// pause is how long a child that ended waits for its successor: not at all, unless several in a row could not join or
// did not live long, as when a record kills its process.
func pause(failures, quick int) time.Duration {
	d := time.Duration(max(0, failures-1)) * 100 * time.Millisecond
	if quick > 3 {
		d = max(d, min(10*time.Second, 100*time.Millisecond<<min(quick-3, 10)))
	}
	return d
}

// supervise keeps one child running.
func (k *children) supervise() {
	failures, quick := 0, 0
	for {
		joined, began := k.joined(), time.Now()
		err := k.run()
		select {
		case <-k.done:
			return
		default:
		}
		if k.ended() {
			return
		}
		if quick++; time.Since(began) > livedLong {
			quick = 0
		}
		if failures++; k.joined() > joined {
			failures = 0 // this one, most likely, or another: workers of this program can live
		}
		if err == nil {
			err = errors.New("it left the job")
		}
		k.c.Logger.Warn("worker process ended; starting another", "error", err)
		if failures >= hopelessAfter {
			k.hopeless(fmt.Errorf("%w: the last one: %w", errHopeless, err))
			return
		}
		select {
		case <-time.After(pause(failures, quick)):
		case <-k.done:
			return
		}
	}
}

// child starts a child and waits for its end.
func (k *children) child() error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executable: %w", err)
	}
	scratch, err := os.MkdirTemp(k.c.Scratch, scratchPattern)
	if err != nil {
		return fmt.Errorf("make a directory for the state of a worker: %w", err)
	}
	defer os.RemoveAll(scratch) // what it leaves if it is killed
	// Arguments win over the environment, which is ours and has settings of the coordinator.
	args := []string{"--runner=distributed", "--role=worker", "--coordinator=" + k.address, "--listen=" + anyPort}
	if k.c.TLSCert != "" {
		args = append(args, "--tls-cert="+k.c.TLSCert, "--tls-key="+k.c.TLSKey, "--tls-ca="+k.c.TLSCA)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), parentPipe+"="+scratch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	ownGroup(cmd) // an interrupt from the terminal is for us: workers are needed for the last checkpoint
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	if _, err := fmt.Fprintf(pipe, "%s\n", k.token); err != nil {
		k.c.Logger.Debug("give a worker its token", "error", err) // it ended: Wait says how
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-k.done:
	}
	select {
	case err := <-ended:
		return err
	case <-k.over:
	}
	// It has been dismissed, if it has joined. If it does not go, its pipe ends, and then it does.
	for _, force := range []struct {
		after time.Duration
		do    func() error
	}{{time.Second, pipe.Close}, {5 * time.Second, cmd.Process.Kill}} {
		select {
		case err := <-ended:
			return err
		case <-time.After(force.after):
			if err := force.do(); err != nil {
				k.c.Logger.Debug("end a worker", "error", err)
			}
		}
	}
	return <-ended
}

// stop says that children that end are not replaced any more; wait, once the coordinator serves no more, waits for them.
func (k *children) stop() { close(k.done) }
func (k *children) wait() { close(k.over); k.running.Wait() }

// watchParent reads the token from the pipe of the process that started this one, and ends this process when the
// pipe does: nobody is left then to give it work. scratch is "" if there is no such pipe.
func watchParent() (token []byte, scratch string) {
	if scratch = os.Getenv(parentPipe); scratch == "" {
		return nil, ""
	}
	r := bufio.NewReader(os.Stdin)
	line, err := r.ReadBytes('\n')
	if err != nil {
		endOrphan(scratch)
	}
	go func() {
		if _, err := io.Copy(io.Discard, r); err == nil || !errors.Is(err, os.ErrClosed) {
			endOrphan(scratch)
		}
	}()
	return line[:len(line)-1], scratch
}

func endOrphan(scratch string) {
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, "remove the state of a worker whose coordinator is gone:", err)
	}
	os.Exit(ExitOrphan)
}
