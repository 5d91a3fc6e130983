package ptest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/seeds"
)

// drivers are the backends that -ptest.backend can name besides memory. A file with the tag rocksdb adds to them.
var drivers = map[string]statebackend.Driver{}

var backendName, runnerName = "memory", "direct"

func init() {
	setenv := func(name string) func(string) error { return func(v string) error { return os.Setenv(name, v) } }
	flag.Func("ptest.seed", "first seed of random tests; sets "+seeds.SeedVar, setenv(seeds.SeedVar))
	flag.Func("ptest.runs", "runs of each random test; sets "+seeds.RunsVar, setenv(seeds.RunsVar))
	flag.StringVar(&backendName, "ptest.backend", backendName, "state backend of pipelines under test: memory, or, with -tags rocksdb, rocksdb; filesystem with -ptest.runner=distributed")
	flag.StringVar(&runnerName, "ptest.runner", runnerName, "what runs pipelines under test: direct, or, in a test that imports clustertest, distributed")
}

// backend is the one that the flag names; nil: the runner's own, memory.
func backend(t testing.TB) statebackend.Driver {
	t.Helper()
	d, err := backendOf(backendName)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

func backendOf(name string) (statebackend.Driver, error) {
	if name == "memory" {
		return nil, nil
	}
	if name == "filesystem" && runnerName != "direct" {
		return nil, nil // in a worker, for calls before the one that it serves
	}
	if d := drivers[name]; d != nil {
		return d, nil
	}
	names := append([]string{"memory"}, slices.Sorted(maps.Keys(drivers))...)
	return nil, fmt.Errorf("-ptest.backend=%s: this test has %s; rocksdb needs go test -tags rocksdb, filesystem -ptest.runner=distributed", name, strings.Join(names, ", "))
}
