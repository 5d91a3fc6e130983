package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/clustertest"
	"github.com/millstream/millstream/testing/seeds"
)

// casesOfAJob is the number of cases that are branches of one pipeline.
const casesOfAJob = 20

func TestMain(m *testing.M) {
	clustertest.Main(m, clustertest.Pipelines{"cases": buildCases})
}

// committed is what the jobs have committed in this process.
var committed memio.Collector[row]

// killed is the place at which a worker is killed, and the name of the mark that it leaves.
const killed = "after-prepare"

// seedOf is the seed of a case of a job.
func seedOf(job uint64, number int) uint64 {
	return rand.New(rand.NewPCG(job, uint64(number))).Uint64() >> 1
}

// drawnFrom is the case of a seed, the same in every process.
func drawnFrom(seed uint64) aCase { return anyOrder().Example(int(seed)) }

// buildCases builds the cases of a job side by side. args are a directory of marks and the seed of the job.
//
// Each split waits somewhere in its middle until a worker has been killed, and leaves a mark if it goes on from a checkpoint
// that has been taken in its midst.
func buildCases(p *sdk.Pipeline, args []string) error {
	dir := args[0]
	job, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	for number := range casesOfAJob {
		seed := seedOf(job, number)
		c, rnd := drawnFrom(seed), rand.New(rand.NewPCG(seed, 1))
		s := newSource(c)
		var gates []int64
		for _, sp := range s.list() {
			gates = append(gates, sp.From+1+rnd.Int64N(max(1, sp.To-sp.From-1)))
		}
		s.gate = func(sp split) bool {
			return sp.Next < gates[sp.Index] || exists(filepath.Join(dir, killed))
		}
		s.resumed = func(sp split) error {
			return os.WriteFile(filepath.Join(dir, resumed(number)), nil, 0o666)
		}
		p.Scope(fmt.Sprintf("case %d", number), func() { c.add(p, s.read(p), int64(number), &committed) })
	}
	return nil
}

func resumed(number int) string { return fmt.Sprintf("resumed-%d", number) }

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// On worker processes, of which one is killed after some checkpoints, and perhaps another while it restores, all is as in any order.
func TestPipelinesAreTheTwinOnWorkersThatAreKilled(t *testing.T) {
	n := tally{}
	first, jobs := seeds.From(t, 1)
	for job := first; job < first+uint64(jobs); job++ {
		rnd, dir := rand.New(rand.NewPCG(job, 2)), t.TempDir()
		pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
		workers, parallelism := 2+rnd.IntN(2), 1+rnd.IntN(3)
		backend, mode := pick(clustertest.Backends()...), pick("aligned", "unaligned", "auto")
		interval := time.Duration(20+rnd.IntN(40)) * time.Millisecond
		how := fmt.Sprintf("%d workers, parallelism %d, %s, %s, a checkpoint each %v", workers, parallelism, backend, mode, interval)
		// A worker has so many subtasks at most, and is killed when it takes part in the fourth checkpoint or one after it.
		subtasks := casesOfAJob * min(2, parallelism) * ((parallelism + workers - 1) / workers)
		points := fmt.Sprintf("%s=kill@%d", killed, subtasks*(3+rnd.IntN(6))+rnd.IntN(subtasks))
		if rnd.IntN(3) == 0 {
			points += fmt.Sprintf(",mid-restore=kill@%d", 1+rnd.IntN(subtasks))
		}
		t.Setenv("MILLSTREAM_FAILPOINTS", points)
		t.Setenv("MILLSTREAM_FAILPOINTS_ONCE", dir)
		before := len(committed.Rows())
		clustertest.Run(t, "cases", []string{dir, strconv.FormatUint(job, 10)}, clustertest.Workers(workers),
			clustertest.Parallelism(parallelism), clustertest.Backend(backend), clustertest.Mode(mode), clustertest.Interval(interval))
		rows := map[int64][]row{}
		for _, r := range committed.Rows()[before:] {
			rows[r.Case] = append(rows[r.Case], r)
		}
		midway := 0
		for number := range casesOfAJob {
			seed := seedOf(job, number)
			c := drawnFrom(seed)
			restores := 0
			if exists(filepath.Join(dir, resumed(number))) {
				restores = 1
				midway++
			}
			n.count(c, restores)
			if err := c.check(rows[int64(number)]); err != nil {
				t.Errorf("case %d, seed %d: %v\n%s\n%s\nthe case alone on the direct runner: MILLSTREAM_SEED=%d go test ./testing/twin/e2e -run '^TestPipelinesAreTheTwinInAnyOrder$'",
					number, seed, err, how, seeds.Rerun(t, job), seed)
			}
		}
		if midway == 0 {
			t.Errorf("no case was restored midway: %s\n%s", how, seeds.Rerun(t, job))
		}
		n["jobs with a crash"]++
		n["backend: "+backend]++
		n["barriers: "+mode]++
		if exists(filepath.Join(dir, "mid-restore")) {
			n["jobs killed while they restored"]++
		}
		t.Logf("job %d: %s, %s: %d of %d cases restored midway", job, how, points, midway, casesOfAJob)
	}
	n.report(t)
}
