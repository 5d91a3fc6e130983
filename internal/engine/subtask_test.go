package engine

import "testing"

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
