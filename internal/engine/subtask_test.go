package engine

import (
	"testing"

	"github.com/millstream/millstream/internal/kernel"
)

// A newer barrier gives up an alignment. A snapshot that is older still, whole but for its encoding, is not
// meant.
func TestAbortLeavesAnOlderSnapshotAlone(t *testing.T) {
	var handed []*SubtaskSnapshot
	s := &subtask{
		job:     &Job{onSnapshot: func(p *SubtaskSnapshot) { handed = append(handed, p) }},
		pending: &SubtaskSnapshot{Checkpoint: 1}, complete: true,
	}
	if err := s.do([]action{{actAbort, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	if err := s.encode(1 << 30); err != nil {
		t.Fatal(err)
	}
	if len(handed) != 1 || handed[0].Aborted {
		t.Fatalf("handed over %+v, want checkpoint 1, not aborted", handed)
	}
}

// A sender whose target is full pushes all the same while a barrier overtakes its own input, and when an
// aligned one is overdue. Its parker here panics if it waits.
func TestSenderWithAnUrgentBarrierDoesNotWait(t *testing.T) {
	for name, urge := range map[string]func(s *subtask){
		"a mark waits": func(s *subtask) { s.inbox.overtaking = true },
		"an aligned barrier is overdue": func(s *subtask) {
			s.job.alignTimeout, s.deadline = 5, 1
			s.triggered = 1
			s.inbox.in[0].push(Item{kind: itemBarrier, checkpoint: 1})
		},
		"a popped barrier is overdue": func(s *subtask) { s.job.alignTimeout, s.deadline = 5, 1; s.triggered = 1; s.aligner.Barrier(0, 1) },
		"a source's trigger is overdue": func(s *subtask) {
			s.job.alignTimeout, s.deadline = 5, 1
			s.inbox.post(mail{trigger: 1})
			s.source = noSource{}
		},
		"the clock says so only by now": func(s *subtask) {
			s.job.alignTimeout, s.deadline = 1, s.job.sched.Now()
			s.triggered = 1
			s.aligner.Barrier(0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			parker := &wakes{}
			target := newInbox(1, 1, parker)
			if ok, err := target.push(0, Item{kind: itemBatch, batch: one(1)}, parker, false); !ok || err != nil {
				t.Fatal(ok, err)
			}
			s := &subtask{job: &Job{sched: Real{}}, parker: parker, inbox: newInbox(2, 1, parker), aligner: NewAligner(2)}
			urge(s)
			send := s.sendTo(&outEdge{targets: []Sender{localSender{target, 0}}})
			if err := send(0, one(2)); err != nil {
				t.Fatal(err)
			}
			if n := target.in[0].batches; n != 2 {
				t.Errorf("the target holds %d batches", n)
			}
		})
	}
}

type noSource struct{ kernel.Source }
