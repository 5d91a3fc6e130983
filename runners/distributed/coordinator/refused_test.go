package coordinator

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// TestARefusedNewRunLeavesTheLogAlone: what stops a new run at once is found before it claims the log. Behind its
// claim the checkpoints of the run before could not be restored any more.
func TestARefusedNewRunLeavesTheLogAlone(t *testing.T) {
	store, err := storage.Open(t.Context(), "file://"+filepath.ToSlash(t.TempDir()), file.Driver)
	if err != nil {
		t.Fatal(err)
	}
	refuse := error(nil)
	fit := Fit{Job: "p", KeyGroups: 8, Parallelism: 1, Graph: &kernel.Graph{Nodes: []*kernel.Node{{
		Name: "write", Sink: &kernel.SinkNode{Check: func(context.Context, bool) error { return refuse }},
	}}}}
	first, err := Open(t.Context(), store, Restore{From: "none", Retain: 10}, fit)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Ledger.Publish(t.Context(), &checkpoint.Manifest{
		Job: "p", StatePlan: fit.Graph.StatePlan(8), KeyGroups: 8, Parallelism: 1, Time: time.Unix(1, 0), Checkpoint: checkpoint.Checkpoint{ID: 1},
	}); err != nil {
		t.Fatal(err)
	}
	refuse = errors.New("the output is there already")
	if _, err := Open(t.Context(), store, Restore{From: "none", NewRun: true, Retain: 10}, fit); err == nil || !strings.Contains(err.Error(), `step "write": the output is there`) {
		t.Errorf("a new run: error %v", err)
	}
	again, err := Open(t.Context(), store, Restore{From: "latest", Retain: 10}, fit)
	if err != nil || again.Last == nil || again.Last.Checkpoint.ID != 1 {
		t.Errorf("the run before is restored from %+v, %v", again, err)
	}
}
