package runners

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
)

// program runs a small program with its flags, as Main would.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	fs := flag.NewFlagSet("words", flag.ContinueOnError)
	out := fs.String("output", filepath.Join(t.TempDir(), "out"), "`directory` to write")
	build := func(p *sdk.Pipeline) error {
		jsonlio.Write("write", sdk.Create("words", p, "to", "be", "or", "not"), *out)
		return nil
	}
	var o, e bytes.Buffer
	code = run("words", build, linked{backends: map[string]statebackend.Driver{"memory": memory.Driver{}}}, fs, args, &o, &e)
	return code, o.String(), e.String()
}

func TestBadSettingsAreOneClearLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--bogus", "there is no flag --bogus; --help lists all flags"},
		{"--paralelism=2", "there is no flag --paralelism: did you mean --parallelism?"},
		{"--plan-dif=x", "did you mean --plan-diff?"},
		{"--runner=spark", "--runner=spark: must be one of direct, distributed"},
		{"--parallelism=0", "--parallelism=0: must be at least 1"},
		{"--parallelism=two", "--parallelism=two: must be a whole number"},
		{"--parallelism", "--parallelism needs a value"},
		{"--state-cache=lots", `--state-cache=lots: "lots" is no size: write it like 64KiB or 256MiB`},
		{"--checkpoint-interval=0s", "--checkpoint-interval=0s: must be above 0"},
		{"--checkpoint-interval=1500us", "--checkpoint-interval=1.5ms: must not be negative, and whole milliseconds"},
		{"--watermark-interval=-1s", "--watermark-interval=-1s: must not be negative, and whole milliseconds"},
		{"--checkpoint-interval=5", "--checkpoint-interval=5: must be a time such as 500ms, 5s or 10m"},
		{"--new-run=yes", "--new-run=yes: must be true or false"},
		{"--plan=svg", "--plan=svg: must be json, text or mermaid"},
		{"--max-retries=-1", "--max-retries=-1: must be at least 0"},
		{"extra", `unexpected argument "extra"`},
		{"--role=worker", "--role=worker needs --coordinator=host:port"},
		{"--http=127.0.0.1:0", "--http=127.0.0.1:0 needs --runner=distributed"},
		{"--workers=2", "--workers=2 needs --runner=distributed"},
		{"--restore=latest", "--restore=latest needs --runner=distributed: the direct runner keeps checkpoints in memory"},
		{"--runner=direct --role=coordinator", "--role=coordinator needs --runner=distributed"},
		{"--checkpoint-mode=auto", "needs --runner=distributed"},
		{"--state-backend=filesystem", "--state-backend=filesystem needs --runner=distributed"},
		{"--state-backend=rocksdb", "build with -tags rocksdb"},
		{"--role=coordinator --state-backend=filesystem", "--state-backend=filesystem needs --checkpoint-dir"}, // not a direct run
		{"--role=local --http=8080", "--http=8080: write it as host:port"},
	} {
		code, _, stderr := program(t, strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %q", c.args, code, stderr)
		}
	}
}

func TestEnvironmentSetsRunnerFlagsAndArgumentsWin(t *testing.T) {
	t.Setenv("MILLSTREAM_PARALLELISM", "7")
	t.Setenv("MILLSTREAM_STATE_CACHE", "64KiB")
	t.Setenv("MILLSTREAM_OUTPUT", "not ours")
	_, out, _ := program(t, "--print-config", "--parallelism=3")
	for _, want := range []string{"--parallelism=3\n", "--state-cache=64KiB\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if strings.Contains(out, "not ours") {
		t.Error("a flag of the program was set from the environment")
	}
	t.Setenv("MILLSTREAM_WORKERS", "many")
	if code, _, stderr := program(t); code != exitUsage || !strings.Contains(stderr, `MILLSTREAM_WORKERS="many": must be a whole number`) {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestMisspeltVariableIsNamed(t *testing.T) {
	got := misspelt([]string{"HOME=/h", "MILLSTREAM_PARALLELISM=2", "MILLSTREAM_PARALELISM=2", "MILLSTREAM_SEED=1", "MILLSTREAM_RUNS=1", "MILLSTREAM_PARENT_PIPE=x", "MILLSTREAM_FAILPOINTS=x"})
	if len(got) != 1 || got[0] != "MILLSTREAM_PARALELISM has no effect: did you mean MILLSTREAM_PARALLELISM?" {
		t.Errorf("%q", got)
	}
}

// A bounded run with an interval commits before its end; without, only there.
func TestCheckpointIntervalIsForDirectRunsToo(t *testing.T) {
	for args, want := range map[string]time.Duration{"": 0, "--checkpoint-interval=3s": 3 * time.Second} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		c := NewConfig()
		c.RegisterFlags(fs)
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if o := c.directOptions(fs); o.CheckpointInterval != want {
			t.Errorf("%q: %v", args, o.CheckpointInterval)
		}
	}
}

func TestHelpHasTheProgramsFlagsFirst(t *testing.T) {
	code, out, _ := program(t, "--help")
	own, runner := strings.Index(out, "--output=directory"), strings.Index(out, "--runner=")
	if code != exitOK || own < 0 || runner < own || !strings.Contains(out, "[MILLSTREAM_CHECKPOINT_DIR]") {
		t.Errorf("code %d: %s", code, out)
	}
	// Every flag of a Config is in a group, else help would not show it.
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	NewConfig().RegisterFlags(fs)
	fs.VisitAll(func(f *flag.Flag) {
		if !runnerFlag(f.Name) {
			t.Errorf("--%s is in no group", f.Name)
		}
	})
}

func TestExitCodesSayHowAJobEnded(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("poison"), 1},
		{fmt.Errorf("publish: %w", distributed.ErrDeposed), 4},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: code %d, want %d", c.err, got, c.want)
		}
	}
	_, out, _ := program(t, "--help")
	for _, want := range []string{"\n    0  done", "\n    1  the job failed", "\n    2  wrong", "\n    3  a worker", "\n    4  another", "\n  130  interrupted", "N retries are N+1 attempts"} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not say %q:\n%s", want, out)
		}
	}
}

// A worker takes no last checkpoint, and does not say that it does.
func TestAnInterruptSaysWhatItDoes(t *testing.T) {
	if s := farewell("worker"); strings.Contains(s, "after a last checkpoint") || !strings.Contains(s, "leaves the job") {
		t.Errorf("of a worker: %s", s)
	}
	for _, role := range []string{"local", "coordinator"} {
		if s := farewell(role); !strings.Contains(s, "after a last checkpoint") {
			t.Errorf("%s: %s", role, s)
		}
	}
}

func TestDirectRunReportsAndWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, _, stderr := program(t, "--output="+dir)
	if code != exitOK || !strings.Contains(stderr, "words") || !strings.Contains(stderr, "done in") {
		t.Fatalf("code %d: %s", code, stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if data, err := os.ReadFile(files[0]); err != nil || string(data) != "\"to\"\n\"be\"\n\"or\"\n\"not\"\n" {
		t.Errorf("%q, %v", data, err)
	}
}
