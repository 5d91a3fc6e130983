package clustertest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/runners/distributed"
	"github.com/millstream/millstream/testing/ptest"
)

// A pipeline of ptest is built by a closure in the midst of a test, which no other process has. So a worker runs the same test, up to
// the same call of ptest; there it becomes a worker, and ends with the job.

func init() {
	ptest.AddRunner("distributed", runCall)
	becomeTest()
}

// call is what a worker serves: a call of ptest within a test.
type call struct {
	Test string
	N    int
	Args []string // of the test binary
	Temp string   // where the test makes its temporary files
}

// callVar is the variable that tells a worker its call.
const callVar = "CLUSTERTEST_CALL"

var (
	serves     *call    // by this process; nil: it is no worker of ptest
	workerArgs []string // with which it was started
)

// becomeTest makes a process that a coordinator has started as a worker one that runs the test of a call. It comes before flags are parsed.
func becomeTest() {
	v := os.Getenv(callVar)
	if v == "" || !slices.Contains(os.Args[1:], "--role=worker") {
		return
	}
	c := &call{}
	if err := json.Unmarshal([]byte(v), c); err != nil {
		panic(fmt.Sprintf("clustertest: %s: %v", callVar, err))
	}
	serves, workerArgs = c, os.Args[1:]
	os.Args = append(os.Args[:1:1], c.Args...)
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		if err := os.Setenv(name, c.Temp); err != nil {
			panic(fmt.Sprintf("clustertest: %v", err))
		}
	}
}

// testArgs are the arguments with which a test binary that has args runs one test: with its flags, but for those of go test.
func testArgs(args []string, test string) []string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	out := []string{"-test.run=" + strings.Join(parts, "/")}
	for i := 0; i < len(args); i++ {
		if args[i] == "-" || args[i] == "--" || !strings.HasPrefix(args[i], "-") {
			return append(out, args[i:]...) // the flags end here
		}
		name, _, set := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		from := i
		if !set && !isBool(name) {
			i++ // its value
		}
		if !strings.HasPrefix(name, "test.") || name == "test.short" {
			out = append(out, args[from:min(i+1, len(args))]...)
		}
	}
	return out
}

// isBool says whether a flag takes no further argument.
func isBool(name string) bool {
	f := flag.Lookup(name)
	if f == nil {
		return false
	}
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// failedFile is made in the directory of a call by a worker whose test has failed during it.
const failedFile = "failed"

// oneCall is held by the call that runs: workers get its environment.
var oneCall sync.Mutex

// runCall runs a pipeline of ptest, or serves it and ends this process.
func runCall(j ptest.Job) (*direct.Result, error) {
	p := distributed.Program{Name: j.T.Name(), Build: j.Build, Backends: drivers, Storages: storages}
	switch {
	case serves == nil:
	case serves.Test == j.T.Name() && serves.N == j.Call:
		before := j.T.Failed()
		err := work(workerArgs, p)
		if !before && j.T.Failed() {
			err = errors.Join(err, os.WriteFile(filepath.Join(serves.Temp, failedFile), nil, 0o666))
		}
		exit(err)
	default:
		return nil, nil
	}
	if names := Backends(); !slices.Contains(names, j.Backend) {
		return nil, fmt.Errorf("-ptest.backend=%s: this test has %s; rocksdb needs go test -tags rocksdb", j.Backend, strings.Join(names, ", "))
	}
	temp := j.T.TempDir()
	v, err := json.Marshal(call{j.T.Name(), j.Call, testArgs(os.Args[1:], j.T.Name()), temp})
	if err != nil {
		return nil, err
	}
	c := newJob(j.T)
	if j.Backend != "memory" {
		c.Checkpoints = fileURL(j.T.TempDir())
	}
	c.Parallelism, c.Backend = j.Parallelism, j.Backend
	if j.Overtaking {
		c.Mode = "unaligned"
	}
	env := map[string]string{callVar: string(v)}
	if j.Kill {
		env["MILLSTREAM_FAILPOINTS"], env["MILLSTREAM_FAILPOINTS_ONCE"] = killWorker, j.T.TempDir()
	}
	oneCall.Lock()
	defer oneCall.Unlock()
	restore, err := setenv(env)
	defer restore()
	if err != nil {
		return nil, err
	}
	var out Outcome
	if err := c.run(j.T.Context(), j.T.Output(), p, &out); err != nil {
		if strings.Contains(err.Error(), "workers end before they join") {
			err = fmt.Errorf("%w: a worker runs the test up to this call, which it must reach too", err)
		}
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(temp, failedFile)); err == nil {
		return nil, errors.New("the test has failed in a worker, as t.Error in a step makes it, and what it said stays there: return an error instead")
	}
	return resultOf(out), nil
}

func resultOf(out Outcome) *direct.Result {
	r := &direct.Result{}
	for _, s := range out.Steps {
		r.Steps = append(r.Steps, direct.Step{
			Name: s.Name, RecordsIn: s.RecordsIn, RecordsOut: s.RecordsOut, LateDropped: s.LateDropped, LateTo: s.LateTo, Figures: s.Figures,
		})
	}
	return r
}

// setenv sets variables until restore is called, also in a test that is parallel, where testing's may not be used.
func setenv(env map[string]string) (restore func(), err error) {
	was := map[string]*string{}
	for name, v := range env {
		was[name] = nil
		if old, set := os.LookupEnv(name); set {
			was[name] = &old
		}
		err = errors.Join(err, os.Setenv(name, v))
	}
	return func() {
		for name, old := range was {
			if old == nil {
				os.Unsetenv(name)
			} else {
				os.Setenv(name, *old)
			}
		}
	}, err
}
