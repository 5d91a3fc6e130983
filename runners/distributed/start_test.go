package distributed

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

// A child that ends because the job has is no loss, also if it is faster than the coordinator's own end.
func TestChildrenThatEndWithTheJobAreNotReplaced(t *testing.T) {
	var log strings.Builder
	runs := 0
	k := &children{
		c: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, joined: func() int { return runs }, done: make(chan struct{}),
		ended: func() bool { return runs == 2 }, run: func() error { runs++; return nil },
	}
	k.supervise()
	if runs != 2 || strings.Count(log.String(), "starting another") != 1 || strings.Contains(log.String(), "nil") {
		t.Errorf("%d children: %s", runs, log.String())
	}
}

// Beam 37110: a message with text that is no UTF-8 cannot be sent, and workers would come and go for ever.
func TestArgumentsThatAreNotUTF8AreRefused(t *testing.T) {
	err := Config{Role: "local", Workers: 1, Parallelism: 1, KeyGroups: 1, StateBackend: "memory", Restore: "none"}.Validate(Program{
		Name: "p", Args: []string{"--in=\xff.txt"}, Backends: map[string]statebackend.Driver{"memory": memory.Driver{}},
	})
	if err == nil || !strings.Contains(err.Error(), `"--in=\xff.txt" is no UTF-8`) {
		t.Errorf("error %v", err)
	}
}

// A claim deposes whoever leads: a coordinator that cannot start for a reason of its own must not make one.
func TestACoordinatorThatCannotStartClaimsNothing(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := t.TempDir()
	err = Run(t.Context(), Config{
		Role: "coordinator", Workers: 1, Parallelism: 1, StateBackend: "filesystem", CheckpointDir: "file://" + dir,
		CheckpointInterval: time.Second, CheckpointMode: "aligned", RetainCheckpoints: 1, HTTP: busy.Addr().String(),
	}, Program{
		Name: "idle", Build: func(p *sdk.Pipeline) error { sdk.Create("none", p, 1); return nil },
		Backends: map[string]statebackend.Driver{"memory": memory.Driver{}}, Storages: []storage.Driver{file.Driver},
	})
	if err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("the port is in use: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v in the checkpoint directory, %v", left, err)
	}
}
