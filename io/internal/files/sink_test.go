package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

type testRow = connectortest.Row

// rowSink writes rows as JSON, into files *.jsonl.
func rowSink(dir string, opts ...func(*SinkOptions)) *Sink[testRow] {
	encoder := func(into io.Writer) Encode[testRow] {
		enc := json.NewEncoder(into)
		return func(r *testRow) error { return enc.Encode(r) }
	}
	return NewSink("files", dir, ".jsonl", encoder, opts)
}

func appending(o *SinkOptions) { o.Append = true }

// visible reads the data files of a directory by encoding/json alone.
func visible(dir string) (rows []testRow, _ error) {
	files, err := filepath.Glob(filepath.Join(dir, "[^.]*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) == 1 || lines[len(lines)-1] != "" {
			return nil, fmt.Errorf("%s is empty, or its last line has no end", f)
		}
		for _, line := range lines[:len(lines)-1] {
			var r testRow
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// names lists a directory with nonces left out.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		name := e.Name()
		for _, cut := range []string{".part", ".jsonl"} {
			if base, ok := strings.CutSuffix(name, cut); ok {
				name = base[:strings.LastIndexByte(base, '-')] + "-NONCE" + cut
			}
		}
		out = append(out, name)
	}
	return out
}

func start(t *testing.T, s *Sink[testRow], fresh bool) {
	t.Helper()
	if err := s.Start(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
}

// prepare writes rows as a subtask and prepares them.
func prepare(t *testing.T, s *Sink[testRow], subtask int, checkpoint int64, ids ...int64) []Part {
	t.Helper()
	w, err := s.Open(t.Context(), connector.Subtask{Index: subtask, Parallelism: 8})
	if err != nil {
		t.Fatal(err)
	}
	var records []connector.Record[testRow]
	for _, id := range ids {
		records = append(records, connector.Record[testRow]{Value: testRow{ID: id}})
	}
	if err := w.Write(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	parts, err := w.Prepare(t.Context(), checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestSinkNamesPartsByCheckpointAndSubtask(t *testing.T) {
	dir := t.TempDir()
	s := rowSink(dir)
	start(t, s, true)
	parts := append(prepare(t, s, 3, 17, 1), prepare(t, s, 4, 17)...)
	if diff := cmp.Diff([]string{".millstream-NONCE.part"}, names(t, dir)); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	if err := s.Commit(t.Context(), 17, parts); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"part-00000017-0003-NONCE.jsonl"}, names(t, dir)); diff != "" {
		t.Errorf("committed (-want +got):\n%s", diff)
	}
}

func TestSinkCommitsAPartWhereItWasStaged(t *testing.T) {
	before, now := t.TempDir(), t.TempDir()
	parts := prepare(t, rowSink(before), 0, 1, 1)
	s := rowSink(now) // the program was started again with another directory
	start(t, s, false)
	if err := s.Commit(t.Context(), 1, parts); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"part-00000001-0000-NONCE.jsonl"}, names(t, before)); d != "" {
		t.Errorf("the directory of the part (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{}, names(t, now)); d != "" {
		t.Errorf("the other (-want +got):\n%s", d)
	}
}

// A new run must not be let in where the run before still has something to commit: it would be refused afterwards.
func TestSinkCheckRefusesADirectoryWithPendingOutput(t *testing.T) {
	dir := t.TempDir()
	parts := prepare(t, rowSink(dir), 0, 1, 1)
	before := names(t, dir)
	for pending, fails := range map[bool]bool{false: false, true: true} {
		if err := rowSink(dir).Check(t.Context(), pending); (err != nil) != fails {
			t.Errorf("pending %v: error %v", pending, err)
		}
		if err := rowSink(dir, appending).Check(t.Context(), pending); err != nil {
			t.Errorf("pending %v, appending: error %v", pending, err)
		}
	}
	if d := cmp.Diff(before, names(t, dir)); d != "" {
		t.Errorf("a check changed the directory (-before +after):\n%s", d)
	}
	s := rowSink(dir)
	if err := s.Commit(t.Context(), 1, parts); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), false); err == nil {
		t.Error("data of an earlier run is not refused")
	}
	if err := rowSink(filepath.Join(dir, parts[0].final(".jsonl"))).Check(t.Context(), false); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func TestSinkDoesNotSweepWhatIsNewerThanItsStart(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, ".millstream-ABCDEFGHIJKLMNOPQRSTUVWXYZ.part")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(name, later, later); err != nil {
		t.Fatal(err)
	}
	start(t, rowSink(dir), false)
	if _, err := os.Stat(name); err != nil {
		t.Errorf("a part that was written after the start began is gone: %v", err)
	}
}

func TestPartsSortAsTheyWereCommitted(t *testing.T) {
	var last string
	for _, p := range []Part{{Checkpoint: 2, Subtask: 9}, {Checkpoint: 2, Subtask: 10}, {Checkpoint: 10}, {Checkpoint: 99_999_999}} {
		name := p.final(".txt")
		if name <= last {
			t.Errorf("%s does not sort behind %s", name, last)
		}
		last = name
	}
}

// What a program committed before numbers were padded is there already, whether or not it came to drop the staged name.
func TestSinkKnowsPartsThatWereCommittedUnpadded(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		dir := t.TempDir()
		s := rowSink(dir)
		start(t, s, true)
		parts := prepare(t, s, 0, 1, 1, 2)
		from := filepath.Join(dir, parts[0].staged())
		if err := os.Link(from, filepath.Join(dir, "part-1-0-"+parts[0].Nonce+".jsonl")); err != nil {
			t.Fatal(err)
		}
		if dropped {
			if err := os.Remove(from); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(t.Context(), 1, parts); err != nil {
			t.Errorf("dropped %v: %v", dropped, err)
		}
		if d := cmp.Diff([]string{"part-1-0-NONCE.jsonl"}, names(t, dir)); d != "" {
			t.Errorf("dropped %v: files (-want +got):\n%s", dropped, d)
		}
	}
}

func TestSinkFinishesACommitThatDiedBetweenItsSteps(t *testing.T) {
	for _, died := range []string{"before link", "after link", "after unlink"} {
		t.Run(died, func(t *testing.T) {
			dir := t.TempDir()
			s := rowSink(dir)
			start(t, s, true)
			parts := prepare(t, s, 0, 1, 1, 2)
			from, to := filepath.Join(dir, parts[0].staged()), filepath.Join(dir, parts[0].final(".jsonl"))
			if died != "before link" {
				if err := os.Link(from, to); err != nil {
					t.Fatal(err)
				}
			}
			if died == "after unlink" {
				if err := os.Remove(from); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Commit(t.Context(), 1, parts); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"part-00000001-0000-NONCE.jsonl"}, names(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			rows, err := visible(dir)
			if err != nil || len(rows) != 2 {
				t.Errorf("%v, %v; want 2 rows", rows, err)
			}
		})
	}
}

func TestSinkNamesBothFilesOfALostPart(t *testing.T) {
	dir := t.TempDir()
	s := rowSink(dir)
	start(t, s, true)
	parts := prepare(t, s, 0, 1, 1)
	if err := os.Remove(filepath.Join(dir, parts[0].staged())); err != nil {
		t.Fatal(err)
	}
	err := s.Commit(t.Context(), 1, parts)
	if err == nil || !strings.Contains(err.Error(), parts[0].staged()) || !strings.Contains(err.Error(), parts[0].final(".jsonl")) {
		t.Errorf("error is %v; want both names in it", err)
	}
}

func TestSinkCommitRefusesANonceThatIsAPath(t *testing.T) {
	s := rowSink(t.TempDir())
	err := s.Commit(t.Context(), 1, []Part{{Nonce: "../../AAAAAAAAAAAAAAAAAAAAAAAAAA"}})
	if err == nil || !strings.Contains(err.Error(), "not the nonce") {
		t.Errorf("error is %v", err)
	}
}

func TestSinkStart(t *testing.T) {
	file := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{}\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	const nonce = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, test := range []struct {
		name  string
		have  func(t *testing.T, dir string)
		fresh bool
		opts  []func(*SinkOptions)
		fails string
		left  []string // names afterwards
	}{
		{"refuses data of an earlier run", file("old-x.jsonl"), true, nil, "Append", []string{"old-NONCE.jsonl"}},
		{"names the program's flag", file("old-x.jsonl"), true, []func(*SinkOptions){func(o *SinkOptions) { o.Flag = "--add" }}, "by --add", []string{"old-NONCE.jsonl"}},
		{"adds to data if told", file("old-x.jsonl"), true, []func(*SinkOptions){appending}, "", []string{"old-NONCE.jsonl"}},
		{"adds to data when restored", file("old-x.jsonl"), false, nil, "", []string{"old-NONCE.jsonl"}},
		{"ignores other files", file("README"), true, nil, "", []string{"README"}},
		{"ignores hidden data", file(".old-x.jsonl"), true, nil, "", []string{".old-NONCE.jsonl"}},
		{"sweeps what was staged", file(".millstream-" + nonce + ".part"), false, nil, "", []string{}},
		{"sweeps what was staged before a new run", file(".millstream-" + nonce + ".part"), true, nil, "", []string{}},
		{"leaves alone what is not ours", file(".millstream-notes.part"), false, nil, "", []string{".millstream-NONCE.part"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.have(t, dir)
			err := rowSink(dir, test.opts...).Start(t.Context(), test.fresh)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error is %v, want %q", err, test.fails)
			}
			if err != nil && !errors.Is(err, connector.ErrPermanent) {
				t.Errorf("%v: trying again would not help, and it does not say so", err)
			}
			if diff := cmp.Diff(test.left, names(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSinkStartRefusesWhatIsNotADirectory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{name, filepath.Join(name, "below")} {
		err := rowSink(dir).Start(t.Context(), true)
		if err == nil || !strings.Contains(err.Error(), "file") || !strings.Contains(err.Error(), "directory") {
			t.Errorf("%s: error is %v", dir, err)
		}
	}
}

func TestSinkPrepareFailsIfTheDirectoryIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	s := rowSink(dir)
	start(t, s, true)
	w, err := s.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), make([]connector.Record[testRow], 1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Prepare(t.Context(), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
