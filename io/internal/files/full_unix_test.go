//go:build unix

package files

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/millstream/millstream/sdk/connector"
)

// TestSinkOnAFullDiskKeepsWhatIsCommitted runs itself as a child in which no file can grow past 64 KiB:
// the write fails as on a full disk, without one.
func TestSinkOnAFullDiskKeepsWhatIsCommitted(t *testing.T) {
	const inChild = "FILES_TEST_LIMITED"
	if dir := os.Getenv(inChild); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		fillUp(t, dir)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), exe, "-test.run=^TestSinkOnAFullDiskKeepsWhatIsCommitted$", "-test.v")
	child.Env = append(os.Environ(), inChild+"="+dir)
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "filled up") {
		t.Fatalf("child: %v\n%s", err, out)
	}
	// The next attempt goes on from the checkpoint before.
	s := rowSink(dir)
	start(t, s, false)
	if err := s.Commit(t.Context(), 2, prepare(t, s, 0, 2, 2)); err != nil {
		t.Fatal(err)
	}
	rows, err := visible(dir)
	if err != nil || len(rows) != 2 || rows[0].ID != 1 || rows[1].ID != 2 {
		t.Errorf("visible are %v, %v; want rows 1 and 2", rows, err)
	}
	if left := names(t, dir); len(left) != 2 {
		t.Errorf("files are %q, want two parts", left)
	}
}

func fillUp(t *testing.T, dir string) {
	s := rowSink(dir)
	start(t, s, true)
	if err := s.Commit(t.Context(), 1, prepare(t, s, 0, 1, 1)); err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	record := []connector.Record[testRow]{{Value: testRow{Text: strings.Repeat("x", 1000)}}}
	for range 1000 {
		if err = w.Write(t.Context(), record); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("write: %v, want EFBIG", err)
	}
	if _, err := w.Prepare(t.Context(), 2); err == nil {
		t.Fatal("prepared what was not written")
	}
	t.Log("filled up") // and dies, without Close
}
