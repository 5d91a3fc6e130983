package transport

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
)

func TestNoMoreThanTheRoomIsSentUntilItIsPopped(t *testing.T) {
	for _, room := range []int{1, 2, 3, 8} {
		r := newConnectedRig(t, Options{Room: room})
		next := 0
		for next <= room && r.push(r.batches[next], false) {
			next++
		}
		if next != room {
			t.Fatalf("room %d: %d batches were sent, none was popped", room, next)
		}
		if !r.push(r.batches[next], true) || r.push(r.batches[next+1], false) {
			t.Fatalf("room %d: force sends a batch, and gives no credit to the next", room)
		}
		next++
		r.jobB.Start()
		for ; next < len(r.batches); next++ {
			for !r.push(r.batches[next], false) {
				r.parker.Park(eventtime.Max) // credit wakes us
			}
		}
		r.until(func() bool { return len(r.got) == len(r.batches) })
		if got := strings.Join(r.got, " "); got != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19" {
			t.Errorf("room %d: received %s", room, got)
		}
	}
}

// What was pushed before the mark is in the snapshot, what was pushed behind it is not, and nothing was
// processed before it, although all of it had arrived.
func TestOvertakingBarrierIsSeenBeforeWhatItHasOvertaken(t *testing.T) {
	r := newConnectedRig(t, Options{Room: 3})
	for _, it := range r.batches[:3] {
		r.push(it, false)
	}
	if err := r.sender.Overtake(1); err != nil {
		t.Fatal(err)
	}
	r.push(r.batches[3], true)
	r.push(r.statuses[0], true)
	// Two writes of the handshake and six frames: that the last has been read says that the mark was delivered.
	r.conn.until(func() bool { return r.conn.done == 8 })
	r.jobB.Start()
	r.until(func() bool { return len(r.snapshots) == 1 && len(r.got) == 4 })
	if want := bytes.Join(r.encoded[:3], nil); !bytes.Equal(r.snapshots[0].Channels[0], want) {
		t.Errorf("recorded %x, want %x", r.snapshots[0].Channels[0], want)
	}
	if r.processed[0] != 0 {
		t.Errorf("%d batches were processed before the snapshot", r.processed[0])
	}
}

func TestSenderThatWaitsForCreditWakesWhenThePeerIsLost(t *testing.T) {
	r := newConnectedRig(t, Options{Room: 1})
	r.push(r.batches[0], false)
	if r.push(r.batches[1], false) {
		t.Fatal("sent without credit")
	}
	r.conn.Close()
	for {
		_, err := r.sender.Push(r.batches[1], r.parker, false)
		if errors.Is(err, engine.ErrStopped) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r.parker.Park(eventtime.Max)
	}
	if err := r.jobA.Wait(); err == nil || !strings.Contains(err.Error(), `connection to worker "b"`) {
		t.Errorf("the job ended with %v", err)
	}
}

// A connection that is slow must not gather a heap of watermarks, and none may get past a batch.
func TestNewerStatusReplacesAnOlderOneInTheQueue(t *testing.T) {
	r := newConnectedRig(t, Options{})
	p := r.meshA.peers["b"]
	queued := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.queue)
	}
	r.conn.hold(true)
	before := r.conn.begun
	r.push(r.statuses[0], true)
	r.conn.until(func() bool { return r.conn.begun > before }) // the writer has it and is stuck
	for step, test := range []struct {
		it   engine.Item
		want int
	}{
		{r.statuses[1], 1}, {r.statuses[2], 1}, {r.statuses[3], 1},
		{r.batches[0], 2}, {r.statuses[4], 3}, {r.statuses[5], 3},
		{engine.Overtaking(1), 4}, {r.statuses[6], 5}, {r.statuses[7], 5},
	} {
		r.push(test.it, true)
		if n := queued(); n != test.want {
			t.Errorf("step %d: %d frames are queued, want %d", step, n, test.want)
		}
	}
	r.conn.hold(false)
	r.jobB.Start()
	r.until(func() bool { return len(r.got) == 1 })
}

func TestBatchBeyondTheLimitIsAnErrorThatNamesIt(t *testing.T) {
	r := newConnectedRig(t, Options{MaxFrame: 12})
	_, err := r.sender.Push(r.batches[0], r.parker, false)
	if err == nil || !strings.Contains(err.Error(), `send to "collect" at worker "b": a batch of 1 rows takes`) {
		t.Error(err)
	}
}

func TestEndOfTheJobIsNotALoss(t *testing.T) {
	r := newConnectedRig(t, Options{})
	r.push(r.batches[0], false)
	r.jobB.Start()
	r.until(func() bool { return len(r.got) == 1 })
	r.jobB.Stop()
	if err := r.jobB.Wait(); err != nil {
		t.Fatal(err)
	}
	r.meshB.Close(nil)
	r.meshA.Close(r.jobA.Wait())
	if err := r.jobA.Wait(); err != nil {
		t.Errorf("after a goodbye: %v", err)
	}
}

// Whoever leaves while others still send would look like an end of the job at both sides.
func TestSendingToAWorkerThatHasLeftFailsTheJob(t *testing.T) {
	r := newConnectedRig(t, Options{})
	r.meshB.Close(nil)
	r.meshA.running.Wait() // the goodbye has come
	if _, err := r.sender.Push(r.batches[0], r.parker, false); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("pushed to a worker that has left: %v", err)
	}
	if err := r.jobA.Wait(); err == nil || !strings.Contains(err.Error(), `worker "b" left before the end`) {
		t.Errorf("the job ended with %v", err)
	}
}

func TestPeersLearnWhyAWorkerStopped(t *testing.T) {
	r := newConnectedRig(t, Options{})
	r.meshB.Close(errors.New(`step "collect": the disk is full`))
	r.meshA.running.Wait()
	if err := r.jobA.Wait(); err == nil || !strings.Contains(err.Error(), `connection to worker "b": the worker stopped: step "collect": the disk is full`) {
		t.Errorf("the job ended with %v", err)
	}
}
