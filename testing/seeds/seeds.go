// Package seeds starts random tests: which seeds they run, and how to run one again.
//
//	MILLSTREAM_SEED=7                        seed 7 alone
//	MILLSTREAM_RUNS=1000                     so many runs of each random test, from a fresh seed
//	MILLSTREAM_SEED=7 MILLSTREAM_RUNS=1000   so many, from seed 7 on
//
// A variable works in every package at once, also in a conformance suite that is run elsewhere.
package seeds

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The variables.
const (
	SeedVar = "MILLSTREAM_SEED"
	RunsVar = "MILLSTREAM_RUNS"
)

// From returns the first seed of a test and the number of runs, which are of that seed and those after it: what the
// variables say, else a fresh seed and runs. It fails the test if a variable is no number.
func From(t testing.TB, runs int) (first uint64, n int) {
	t.Helper()
	first, n, err := Values(runs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return first, n
}

// Values is From for a TestMain, which has no test to fail.
func Values(runs int) (first uint64, n int, err error) {
	first, given, err := number(SeedVar)
	if err != nil {
		return 0, 0, err
	}
	if given {
		runs = 1
	} else {
		first = rand.Uint64() >> 1 // room for the seeds after it
	}
	if n, given, err := number(RunsVar); err != nil || given {
		return first, int(min(n, 1<<40)), err
	}
	return first, runs, nil
}

// Given says whether the user chose the seed: a single run need not meet everything that many do.
func Given() bool { return os.Getenv(SeedVar) != "" }

func number(name string) (n uint64, given bool, err error) {
	s := os.Getenv(name)
	if s == "" {
		return 0, false, nil
	}
	if n, err = strconv.ParseUint(s, 10, 63); err != nil {
		return 0, false, fmt.Errorf("%s=%s: must be a number from 0 to 2⁶³-1", name, s)
	}
	return n, true, nil
}

// Each runs f for one seed after the other, as of From, until one fails, and says how to repeat that.
func Each(t testing.TB, runs int, f func(seed uint64) error) {
	t.Helper()
	first, n := From(t, runs)
	for seed := first; seed < first+uint64(n); seed++ {
		if err := f(seed); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, Rerun(t, seed))
		}
	}
}

// Rerun is the command that runs a test, and its subtest, with one seed again.
func Rerun(t interface{ Name() string }, seed uint64) string {
	return rerun(t.Name(), strconv.FormatUint(seed, 10), "")
}

// RerunMany is the same for a test that draws several runs from one seed.
func RerunMany(t interface{ Name() string }, seed uint64, runs int) string {
	return rerun(t.Name(), strconv.FormatUint(seed, 10), fmt.Sprintf(" %s=%d", RunsVar, runs))
}

func rerun(test, seed, more string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("rerun: %s=%s%s go test %s -run '%s'", SeedVar, seed, more, folder(), strings.Join(parts, "/"))
}

// folder is the package under test, as `go test` takes it in the root of its module: tests run in their package.
func folder() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); !errors.Is(err, fs.ErrNotExist) || root == filepath.Dir(root) {
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				return "."
			}
			return "./" + filepath.ToSlash(rel)
		}
	}
}
