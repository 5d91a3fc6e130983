package backendtest

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The suite is worth what it catches: each of these backends must fail it.
func TestBrokenBackendsFail(t *testing.T) {
	for _, quirk := range []string{
		"snapshot is live",
		"snapshot keeps deleted entries",
		"snapshot dies with close",
		"release empties the backend",
		"restores all key groups",
		"restores one key group too many",
		"restores one key group too few",
		"restores the first handle only",
		"drops entries without key group",
		"keeps entries without key group",
		"accepts any handle",
		"ignores damaged files",
		"does not name the damaged file",
		"keeps the directory",
		"persist again forgets the rest",
		"persist hides a failed upload",
		"shares files by number",
		"refers to its own unfinished bases",
		"write is not atomic to a snapshot",
		"writes up to the entry that is too long",
		"the first put of a batch wins",
		"range deletes come last in a batch",
		"delete range includes the end",
		"delete range excludes the start",
		"delete range does nothing",
		"delete range matches a prefix of the start",
		"scan misses the last",
		"scan includes the end",
		"scan excludes the start",
		"scan is descending",
		"scan orders by length first",
		"scan does not stop",
		"scan swallows the callback's error",
		"get finds a key once",
		"get counts hits instead of positions",
		"get swallows the callback's error",
		"get wraps the callback's error",
		"empty value is absent",
	} {
		t.Run(quirk, func(t *testing.T) {
			t.Parallel()
			failed := failures(t, naive{quirk}, true)
			switch {
			case len(failed) == 0:
				t.Error("it passes the suite")
			case strings.HasPrefix(failed[0], "random"):
				t.Errorf("only luck catches it: %s", failed[0])
			default:
				t.Log(failed[0])
			}
		})
	}
}

// What the contract leaves open must not be tested by accident.
func TestOddBackendsPass(t *testing.T) {
	for _, quirk := range []string{
		"", // a map that is copied, with memory that is overwritten after each callback
		"odd: many files in any order",
		"odd: shares files by content",
	} {
		t.Run(quirk, func(t *testing.T) {
			t.Parallel()
			for _, f := range failures(t, naive{quirk}, false) {
				t.Error(f)
			}
		})
	}
}

// failures runs all cases that the driver's quirk claims to pass, or those up to the first failure.
func failures(t *testing.T, driver naive, first bool) (failed []string) {
	shares := driver.quirk == "odd: shares files by content" || driver.quirk == "shares files by number"
	for i, c := range cases {
		if c.needs == SharesFiles && !shares {
			continue
		}
		w := &witness{dir: filepath.Join(t.TempDir(), fmt.Sprint(i)), ctx: t.Context(), name: c.name}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(newKit(w, driver))
		}()
		<-done
		if w.failure != "" {
			if failed = append(failed, c.name+": "+w.failure); first {
				break
			}
		}
	}
	return failed
}

// witness is a tester that records a failure instead of failing.
type witness struct {
	dir, name string
	ctx       context.Context
	failure   string
}

func (w *witness) Helper()                  {}
func (w *witness) TempDir() string          { return w.dir }
func (w *witness) Context() context.Context { return w.ctx }
func (w *witness) Name() string             { return w.name }

func (w *witness) Fatalf(format string, args ...any) {
	w.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
