package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command is a command in the comment that heads a program, and the output that follows it.
var command = regexp.MustCompile(`(?m)^//\t\$ (go run .* --output=out .*)\n((?://\t[^$].*\n)+)`)

// TestHeadersTellTheTruth runs the command in the header of each example as it stands there.
func TestHeadersTellTheTruth(t *testing.T) {
	mains, err := filepath.Glob("[0-9]*/main.go")
	if err != nil || len(mains) < 6 {
		t.Fatalf("examples are %q, %v", mains, err)
	}
	ran := 0
	for _, name := range mains {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := command.FindStringSubmatch(string(source))
		if m == nil {
			continue // a service: it has a test of its own
		}
		ran++
		t.Run(filepath.Dir(name), func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			line := strings.ReplaceAll(strings.ReplaceAll(m[1], "--output=out", "--output="+out), "cat out", "cat "+out)
			c := exec.CommandContext(t.Context(), "sh", "-c", line)
			c.Dir = ".."
			var stderr strings.Builder
			c.Stderr = &stderr
			got, err := c.Output()
			if want := strings.ReplaceAll(m[2], "//\t", ""); string(got) != want || err != nil {
				t.Errorf("%s: %v\n%s\nprinted:\n%s\nits header has:\n%s", line, err, stderr.String(), got, want)
			}
		})
	}
	if ran < 5 {
		t.Errorf("only %d headers have a command that could be run", ran)
	}
}
