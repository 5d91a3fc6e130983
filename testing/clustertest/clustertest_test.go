package clustertest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/failing"
	"github.com/millstream/millstream/testing/multiset"
	"github.com/millstream/millstream/transforms/stats"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, clustertest.Pipelines{"count": count, "processes": processes, "fails": fails, "shares": shares})
}

// counts is what count has committed in this process.
var counts memio.Collector[sdk.KV[string, int64]]

// count counts the words of the files that args name.
func count(p *sdk.Pipeline, args []string) error {
	lines := textio.ReadFiles("read", p, args, textio.SplitBytes(64))
	words := sdk.FlatMap("words", lines, func(line string, emit *sdk.Emitter[string]) error {
		for _, w := range strings.Fields(line) {
			emit.Emit(w)
		}
		return nil
	})
	memio.Write("collect", stats.Count("count", words), &counts)
	return nil
}

func TestWordsAreCountedOnceAlthoughAWorkerIsKilled(t *testing.T) {
	name := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(name, []byte(strings.Repeat("to be or not to be\n", 500)), 0o666); err != nil {
		t.Fatal(err)
	}
	want := []sdk.KV[string, int64]{sdk.Pair("be", int64(1000)), sdk.Pair("not", int64(500)), sdk.Pair("or", int64(500)), sdk.Pair("to", int64(1000))}
	killed := []clustertest.Option{clustertest.Workers(3), clustertest.Parallelism(3), clustertest.KillWorker()}
	memory := append(slices.Clip(killed), clustertest.Backend("memory"), clustertest.Mode("unaligned"), clustertest.Interval(10*time.Millisecond))
	for i, opts := range [][]clustertest.Option{nil, killed, memory} {
		before := len(counts.Rows())
		clustertest.Run(t, "count", []string{name}, opts...)
		got := counts.Rows()[before:]
		multiset.Sort(got)
		multiset.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("run %d (-want +got):\n%s", i, d)
		}
		if killed := os.Getenv("MILLSTREAM_FAILPOINTS_ONCE"); i > 0 {
			if marks, err := os.ReadDir(killed); err != nil || len(marks) != 1 {
				t.Errorf("no worker was killed: %v, %v", marks, err)
			}
		}
	}
}

// shared is what shares has committed in this process.
var shared memio.Collector[sdk.KV[string, int64]]

// shares tells each word the number of all words, which it must wait for, and counts what they were told.
func shares(p *sdk.Pipeline, args []string) error {
	lines := textio.ReadFiles("read", p, args, textio.SplitBytes(64))
	words := sdk.FlatMap("words", lines, func(line string, emit *sdk.Emitter[string]) error {
		for _, w := range strings.Fields(line) {
			emit.Emit(w)
		}
		return nil
	})
	all := sdk.AsSingleton("all", sdk.CombineGlobally("number", words, stats.CountFn[string]{}))
	told := sdk.MapWith("tell", words, all, func(w string, n int64) (string, error) { return fmt.Sprintf("%s of %d", w, n), nil })
	memio.Write("collect", stats.Count("count", told), &shared)
	return nil
}

func TestWordsWaitForAViewAlthoughAWorkerIsKilled(t *testing.T) {
	name := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(name, []byte(strings.Repeat("to be or not to be\n", 500)), 0o666); err != nil {
		t.Fatal(err)
	}
	want := []sdk.KV[string, int64]{sdk.Pair("be of 3000", int64(1000)), sdk.Pair("not of 3000", int64(500)), sdk.Pair("or of 3000", int64(500)), sdk.Pair("to of 3000", int64(1000))}
	for _, opts := range [][]clustertest.Option{{}, {clustertest.Workers(3), clustertest.Parallelism(3), clustertest.KillWorker()}} {
		before := len(shared.Rows())
		clustertest.Run(t, "shares", []string{name}, opts...)
		got := shared.Rows()[before:]
		multiset.Sort(got)
		multiset.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}

var seen memio.Collector[string]

// processes emits the process that each element is processed in.
func processes(p *sdk.Pipeline, _ []string) error {
	in := memio.Read("in", p, make([]int, 100), memio.Splits(4))
	memio.Write("collect", sdk.Map("process", in, func(int) string { return fmt.Sprint(os.Getpid()) }), &seen)
	return nil
}

func TestStepsRunInOtherProcesses(t *testing.T) {
	before := len(seen.Rows())
	clustertest.Run(t, "processes", nil)
	pids := map[string]bool{}
	for _, pid := range seen.Rows()[before:] {
		pids[pid] = true
	}
	if len(pids) != 2 || pids[fmt.Sprint(os.Getpid())] {
		t.Errorf("elements were processed by %v, this is process %d", pids, os.Getpid())
	}
}

// fails fails on its first element.
func fails(p *sdk.Pipeline, _ []string) error {
	sdk.MapErr("never", sdk.Create("in", p, 1), func(int) (int, error) { return 0, errors.New("no way") })
	return nil
}

func TestFailureNamesWhatFailed(t *testing.T) {
	for name, want := range map[string]string{
		"fails": "no way", "unknown": `no pipeline ["unknown"] was given to Main`, "count": "--state-backend=paper is not part of this program",
	} {
		var opts []clustertest.Option
		if name == "count" {
			opts = append(opts, clustertest.Backend("paper"))
		}
		if got := failing.Of(t, func(f testing.TB) { clustertest.Run(f, name, nil, opts...) }); !strings.Contains(got, want) {
			t.Errorf("%s: it says %q", name, got)
		}
	}
}
