// Package mutants plants faults into the engine, one at a time, and sees that its tests find them.
//
//	go test ./testing/mutants -mutants=all        every fault of table.go
//	go test ./testing/mutants -mutants=6          six of them, drawn anew each time
//	go test ./testing/mutants -run 'Found/room'   needs -mutants=all; the faults whose name matches
//
// A fault is one replacement of text in one file. The file on disk is left alone: the test is built with
// go's -overlay. A fault that no test finds is a fault of the tests.
package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var mutantsFlag = flag.String("mutants", "", "all, or how many to draw")

// mutant is one planted fault.
type mutant struct {
	name     string // the rule that it breaks
	file     string // relative to the root of the module
	old, new string // old occurs once in file
	find     finder
}

// finder is a test that must find it.
type finder struct {
	pkg, run string
	args     []string
}

const root = "../.."

// TestEachMutantApplies keeps the table in step with the code. It is quick and always runs.
func TestEachMutantApplies(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		names[m.name] = true
		if _, err := m.apply(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

func (m mutant) apply() ([]byte, error) {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return nil, fmt.Errorf("its text occurs %d times in %s: bring the mutant up to date", n, m.file)
	}
	return []byte(strings.Replace(string(src), m.old, m.new, 1)), nil
}

func TestEachMutantIsFound(t *testing.T) {
	chosen := mutants
	switch *mutantsFlag {
	case "":
		t.Skip("takes minutes: run with -mutants=all, or with a number")
	case "all":
	default:
		n, err := strconv.Atoi(*mutantsFlag)
		if err != nil || n < 1 || n > len(mutants) {
			t.Fatalf("-mutants=%s: want all, or a number up to %d", *mutantsFlag, len(mutants))
		}
		chosen = nil
		for _, i := range rand.Perm(len(mutants))[:n] {
			chosen = append(chosen, mutants[i])
		}
	}
	for _, m := range chosen {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.mustBeFound(t)
		})
	}
}

func (m mutant) mustBeFound(t *testing.T) {
	changed, err := m.apply()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	target, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	replaced, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {target: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{replaced: changed, overlay: table} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "mutant.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", binary, m.find.pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build, which proves nothing: %v\n%s", err, out)
	}
	test := exec.CommandContext(t.Context(), binary, append([]string{"-test.timeout=60s", "-test.run=" + m.find.run}, m.find.args...)...)
	test.Dir = filepath.Join(root, m.find.pkg)
	start := time.Now()
	out, err := test.CombinedOutput()
	took := time.Since(start)
	switch {
	case err == nil:
		t.Errorf("survived %s in %s (%.1fs): the tests are too weak\n%s", m.find.run, m.find.pkg, took.Seconds(), out)
	case !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic: "):
		t.Errorf("%s in %s did not run: %v\n%s", m.find.run, m.find.pkg, err, out)
	default:
		t.Logf("found by %s in %.2fs: %s", m.find.run, took.Seconds(), firstFailure(string(out)))
	}
}

// firstFailure is the line that tells what went wrong.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic: ") {
			return fmt.Sprintf("%.160s", line)
		}
	}
	return "a failure"
}
