package coordinator

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/checkpoint"
)

var update = flag.Bool("coordinator.update", false, "write what the transcripts should say")

// TestTranscripts gives each transcript of testdata/core to a Core. A line is an event, and the indented lines
// after it are what it causes. The job has the stages `read` (2 subtasks) and `write` (1 subtask, a sink).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(string(b))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(b), got); diff != "" {
				t.Errorf("(-transcript +core):\n%s", diff)
			}
		})
	}
}

var scriptSubtasks = []Subtask{{"read", 0}, {"read", 1}, {"write", 0}}

// replay returns the transcript with the actions that a Core takes.
func replay(script string) (string, error) {
	cfg := Config{
		Parallelism: 2, Subtasks: scriptSubtasks, Workers: 2,
		Interval: 1000, CheckpointTimeout: 5000, HeartbeatTimeout: 3000, Grace: 500, RestartDelay: 100,
		MaxRetries: 1, CommitTries: 3,
	}
	var c *Core
	var out strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(script)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		if words[0] == "restored" { // restored CHECKPOINT [pending]: before all events
			id := number(words[1])
			cfg.NextID = id + 1
			cfg.Last = &checkpoint.Checkpoint{ID: id}
			for _, s := range scriptSubtasks {
				cfg.Last.Parts = append(cfg.Last.Parts, scriptPart(id, s, ""))
			}
			if len(words) > 2 {
				cfg.Pending = []checkpoint.Output{{Node: "write", Prepared: checkpoint.Prepared{Checkpoint: id, Committables: [][]byte{[]byte(words[2])}}}}
			}
			continue
		}
		if c == nil {
			c = NewCore(cfg, 0)
		}
		events, err := parseEvent(words)
		if err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
		for _, e := range events {
			for _, a := range c.Step(e) {
				out.WriteString("\t" + describe(a) + "\n")
			}
		}
		if words[0] == "status" {
			s := c.Status()
			fmt.Fprintf(&out, "\t%s attempt=%d restored=%d workers=%d/%d degraded=%v pending=%d latest=%d", s.State, s.Attempt, s.Restored, s.Workers, s.Wanted, s.Degraded, s.Pending, s.Latest)
			for _, h := range s.History {
				fmt.Fprintf(&out, " %d:%s", h.ID, h.State)
			}
			fmt.Fprintln(&out)
		}
	}
	return out.String(), nil
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func scriptPart(id int64, s Subtask, output string) checkpoint.Part {
	n := checkpoint.NodePart{Node: s.Stage}
	if output != "" {
		n.Committables = []checkpoint.Prepared{{Checkpoint: id, Committables: [][]byte{[]byte(output)}}}
	}
	return checkpoint.Part{Checkpoint: id, Stage: s.Stage, Subtask: s.Index, Nodes: []checkpoint.NodePart{n}}
}

// parseEvent knows these lines; W is a worker, A an attempt, C a checkpoint:
//
//	tick MS · join W · left W · beat W A [STEP SUBTASK RECORDS] · prepared A [STEP ERROR|permanent] · deployed W A · ended W A STAGE SUBTASK
//	ack W A C STAGE SUBTASK [OUTPUT] · ack-all A C: worker 1 has subtasks 0, worker 2 has read 1
//	failed W A STEP SUBTASK RECORDS ERROR|permanent · unreachable W A · published C [ERROR] · committed C [ERROR|permanent] · stop · status
func parseEvent(w []string) ([]Event, error) {
	at := func(i int) int64 { return number(w[i]) }
	subtask := func(i int) Subtask { return Subtask{w[i], int(at(i + 1))} }
	fault := func(i int) error {
		if len(w) <= i {
			return nil
		}
		return errors.New(w[i])
	}
	switch w[0] {
	case "tick":
		return []Event{Tick{at(1)}}, nil
	case "join":
		return []Event{Joined{WorkerID(at(1))}}, nil
	case "left":
		return []Event{Left{WorkerID(at(1)), "connection closed"}}, nil
	case "beat":
		h := Heard{Worker: WorkerID(at(1)), Attempt: at(2)}
		if len(w) > 3 {
			h.Counts = []Count{{w[3], int(at(4)), at(5)}}
		}
		return []Event{h}, nil
	case "prepared":
		p := Prepared{Attempt: at(1), Err: fault(3)}
		if p.Err != nil {
			p.Step, p.Permanent = w[2], p.Err.Error() == "permanent"
		}
		return []Event{p}, nil
	case "deployed":
		return []Event{Deployed{WorkerID(at(1)), at(2)}}, nil
	case "ended":
		return []Event{EndReached{WorkerID(at(1)), at(2), subtask(3)}}, nil
	case "ended-all":
		return []Event{
			EndReached{1, at(1), scriptSubtasks[0]}, EndReached{2, at(1), scriptSubtasks[1]}, EndReached{1, at(1), scriptSubtasks[2]},
		}, nil
	case "ack":
		output := ""
		if len(w) > 6 {
			output = w[6]
		}
		return []Event{Acked{WorkerID(at(1)), at(2), scriptPart(at(3), subtask(4), output)}}, nil
	case "ack-all":
		return []Event{
			Acked{1, at(1), scriptPart(at(2), scriptSubtasks[0], "")},
			Acked{2, at(1), scriptPart(at(2), scriptSubtasks[1], "")},
			Acked{1, at(1), scriptPart(at(2), scriptSubtasks[2], "out-"+w[2])},
		}, nil
	case "failed":
		return []Event{StepFailed{
			Worker: WorkerID(at(1)), Attempt: at(2), Step: w[3], Subtask: int(at(4)), Records: at(5), Err: fault(6), Permanent: w[6] == "permanent",
		}}, nil
	case "unreachable":
		return []Event{StepFailed{Worker: WorkerID(at(1)), Attempt: at(2), Err: errors.New("peer is gone"), Lost: true}}, nil
	case "published":
		return []Event{Published{at(1), fault(2)}}, nil
	case "committed":
		err := fault(2)
		return []Event{Committed{at(1), err, err != nil && err.Error() == "permanent"}}, nil
	case "stop":
		return []Event{StopRequested{}}, nil
	case "status":
		return nil, nil
	}
	return nil, errors.New("no such event")
}

func describe(a Action) string {
	switch a := a.(type) {
	case Prepare:
		return fmt.Sprintf("prepare attempt %d, fresh=%v", a.Attempt, a.Fresh)
	case Deploy:
		from := "nothing"
		if a.Restore != nil {
			from = fmt.Sprintf("checkpoint %d", a.Restore.ID)
		}
		var slots []int64
		for _, w := range a.Slots {
			slots = append(slots, int64(w))
		}
		return fmt.Sprintf("worker %d: deploy attempt %d on slots %v from %s", a.Worker, a.Attempt, slots, from)
	case Begin:
		return fmt.Sprintf("worker %d: begin attempt %d", a.Worker, a.Attempt)
	case Cancel:
		return fmt.Sprintf("worker %d: cancel attempt %d", a.Worker, a.Attempt)
	case Trigger:
		return fmt.Sprintf("worker %d: trigger checkpoint %d of attempt %d", a.Worker, a.Checkpoint, a.Attempt)
	case Publish:
		return fmt.Sprintf("publish checkpoint %d with %s", a.Manifest.Checkpoint.ID, outputs(a.Manifest.Pending))
	case Complete:
		return fmt.Sprintf("worker %d: checkpoint %d is complete", a.Worker, a.Checkpoint)
	case Commit:
		return fmt.Sprintf("commit checkpoint %d: %s", a.Checkpoint, outputs(a.Outputs))
	case Collect:
		return fmt.Sprintf("collect after checkpoint %d", a.Checkpoint)
	case Dismiss:
		return fmt.Sprintf("worker %d: dismiss: %s", a.Worker, a.Reason)
	case Finish:
		if a.Err != nil {
			return fmt.Sprintf("finish: %s: %v", a.State, a.Err)
		}
		return fmt.Sprintf("finish: %s", a.State)
	}
	return fmt.Sprintf("%#v", a)
}

func outputs(list []checkpoint.Output) string {
	var words []string
	for _, o := range list {
		for _, c := range o.Committables {
			words = append(words, string(c))
		}
	}
	return "[" + strings.Join(words, " ") + "]"
}
