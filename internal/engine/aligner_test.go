package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateFlag = flag.Bool("engine.update", false, "write what the scripts of testdata print, to be read and committed")

// TestAlignerScripts replays testdata/aligner: a line is an event, the indented lines below it are what
// the aligner does and where it then stands.
func TestAlignerScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/aligner/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := alignerTranscript(t, string(script))
			if *updateFlag {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(script), got); d != "" {
				t.Errorf("%s differs (-file +got), rewrite it with -engine.update:\n%s", path, d)
			}
		})
	}
}

func alignerTranscript(t *testing.T, script string) string {
	var out strings.Builder
	var a *Aligner
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, " ") {
			continue // what was printed before
		}
		out.WriteString(line)
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		n := make([]int, 2)
		for i, s := range f[1:] {
			if _, err := fmt.Sscan(s, &n[i]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		var acts []action
		switch f[0] {
		case "channels":
			a = NewAligner(n[0])
			continue
		case "barrier":
			acts = a.Barrier(n[0], int64(n[1]))
		case "overtaken":
			acts = a.Overtaken(n[0], int64(n[1]))
		case "timeout":
			acts = a.Timeout(int64(n[0]))
		case "trigger":
			acts = a.Trigger(int64(n[0]))
		case "finish":
			acts = a.Finish(n[0])
		case "recording":
			fmt.Fprintf(&out, "    %v\n", a.Recording(n[0]))
			continue
		default:
			t.Fatalf("%q: no such event", line)
		}
		for _, act := range acts {
			fmt.Fprintf(&out, "    %v\n", act)
		}
		fmt.Fprintf(&out, "    = %s\n", stand(a))
	}
	return out.String()
}

func (a action) String() string {
	what := [...]string{"hold channel %d", "release", "snapshot", "take over", "record channel %d", "complete", "abort"}[a.kind]
	if strings.Contains(what, "%") {
		what = fmt.Sprintf(what, a.channel)
	}
	return fmt.Sprintf("%s (checkpoint %d)", what, a.checkpoint)
}

func stand(a *Aligner) string {
	if a.phase == phaseNone {
		return fmt.Sprintf("nothing in progress, newest is %d", a.current)
	}
	var waits []string
	for i := range a.arrived {
		if !a.arrived[i] && !a.finished[i] {
			waits = append(waits, fmt.Sprint(i))
		}
	}
	return fmt.Sprintf("%s %d, waits for channel %s", map[phase]string{phaseAligning: "aligning", phaseRecording: "recording"}[a.phase], a.current, strings.Join(waits, " "))
}
