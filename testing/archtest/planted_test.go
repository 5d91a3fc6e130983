package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// lawful is a small repository that breaks no law and needs every exception of the tables.
func lawful() map[string]string {
	files := map[string]string{
		"go.mod":                             goMod("require github.com/klauspost/cpuid/v2 v2.2.10 // indirect"),
		"README.md":                          "# Millstream\n\nSee [keys](docs/format/keys.md#key-groups).\n",
		"internal/eventtime/eventtime.go":    "// Package eventtime is a clock.\npackage eventtime\n",
		"internal/kernel/kernel.go":          "// Package kernel is generic. See docs/format/keys.md.\npackage kernel\n\nfunc Brief() {}\n",
		"statebackend/rocksdb/doc.go":        "// Package rocksdb keeps state on disk.\npackage rocksdb\n",
		"statebackend/rocksdb/cgo.go":        "//go:build rocksdb && linux\n\npackage rocksdb\n\nimport \"C\"\n",
		"examples/01-hello/main.go":          "// Command 01-hello greets.\npackage main\n\nimport \"flag\"\n\nfunc main() { flag.Parse() }\n",
		"runners/distributed/control/doc.go": "// Package control is a protocol.\npackage control\n",
		"docs/format/keys.md":                "# Keys\n\n```\n# not a title [nor](a-link)\n```\n\n    # nor [this](either)\n\n## Key groups\n",
		"sdk/coder/testdata/broken.go":       "this is data",
		"testing/servers/go.mod":             "module github.com/millstream/millstream/testing/servers\n",
		"testing/servers/cmd/s3/server.go":   "// Command s3 serves.\npackage main\n\nimport \"example.com/any\"\n",
	}
	for name := range longFiles {
		files[name] = "package kernel\n" + strings.Repeat("\n", maxLines)
	}
	for name := range clocks {
		files[name] = "package p\n\nfunc f() { time.Sleep(1) }\n"
	}
	for name := range skips {
		file, function, _ := strings.Cut(name, ":")
		if files[file] == "" {
			files[file] = "package p\n"
		}
		files[file] += fmt.Sprintf("\nfunc %s(t *testing.T) { t.Skip() }\n", function)
	}
	return files
}

func goMod(more string) string {
	s := "module github.com/millstream/millstream\n\ngo 1.26\n\n" + more + "\n\nrequire (\n"
	for _, d := range dependencies {
		s += "\t" + d.module + " v1.0.0\n"
	}
	return s + ")\n"
}

// judge returns what all laws find.
func judge(t *testing.T, files map[string]string) (out []string) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range laws {
		for _, f := range l.check(tree) {
			out = append(out, l.name+": "+f.String())
		}
	}
	slices.Sort(out)
	return out
}

func TestLawfulTreeHasNoFindings(t *testing.T) {
	if got := judge(t, lawful()); len(got) != 0 {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// TestPlantedViolationsAreFound breaks each law, one at a time, in the lawful tree. Each plant is one file, added
// or put in place of another.
func TestPlantedViolationsAreFound(t *testing.T) {
	source := func(pkg string, imports ...string) string {
		s := "package " + pkg + "\n\nimport (\n"
		for _, i := range imports {
			s += fmt.Sprintf("\t_ %q\n", i)
		}
		return s + ")\n"
	}
	doc := func(pkg, text string) string { return "// Package " + pkg + " is planted.\n" + text }
	ours := func(pkg string) string { return modulePath + "/" + pkg }
	const tick = "`"

	tests := []struct {
		name, path, text string
		want             []string
	}{
		// imports go down
		{"up", "internal/kernel/up.go", source("kernel", ours("sdk")), []string{
			`imports go down: internal/kernel/up.go:4: imports sdk: the floor "kernel" may not import the floor "sdk"`}},
		{"engine and sdk", "internal/engine/engine.go", doc("engine", source("engine", ours("internal/kernel"), ours("sdk"))), []string{
			`imports go down: internal/engine/engine.go:6: imports sdk: the floor "engine" may not import the floor "sdk"`}},
		{"sdk and engine", "sdk/run.go", doc("sdk", source("sdk", ours("internal/engine"))), []string{
			`imports go down: sdk/run.go:5: imports internal/engine: the floor "sdk" may not import the floor "engine"`}},
		{"sideways", "sdk/coder/coder.go", doc("coder", source("coder", ours("sdk/window"), ours("sdk/trigger"))), []string{
			`imports go down: sdk/coder/coder.go:6: imports sdk/trigger: packages of the floor "values" do not import each other`}},
		{"runner and connector", "runners/direct/direct.go", doc("direct", source("direct", ours("io/textio"), ours("statebackend/memory"))), []string{
			`imports go down: runners/direct/direct.go:5: imports io/textio: the floor "direct" may not import the floor "connectors"`}},
		{"runner and rocksdb", "runners/direct/rocks.go", "//go:build rocksdb\n\n" + doc("direct", source("direct", ours("statebackend/rocksdb"))), []string{
			`imports go down: runners/direct/rocks.go:7: imports statebackend/rocksdb: the floor "direct" may not import the floor "drivers"`}},
		{"runner and s3store", "runners/distributed/worker/s3.go", doc("worker", source("worker", ours("runners/distributed/transport"), ours("statebackend/storage/s3store"))), []string{
			`imports go down: runners/distributed/worker/s3.go:6: imports statebackend/storage/s3store: the floor "distributed" may not import the floor "drivers"`}},
		{"connector and runner", "io/textio/textio.go", doc("textio", source("textio", ours("runners"))), []string{
			`imports go down: io/textio/textio.go:5: imports runners: the floor "connectors" may not import the floor "runners"`}},
		{"transform and kernel", "transforms/top/top.go", doc("top", source("top", ours("internal/kernel"))), []string{
			`imports go down: transforms/top/top.go:5: imports internal/kernel: the floor "transforms" may not import the floor "kernel"`}},
		{"product and test helper", "statebackend/memory/memory.go", doc("memory", source("memory", ours("testing/backendtest"))), []string{
			`imports go down: statebackend/memory/memory.go:5: imports testing/backendtest: the floor "local drivers" may not import the floor "testing"`}},
		{"example and internal", "examples/01-hello/more.go", source("main", ours("internal/eventtime")), []string{
			`imports go down: examples/01-hello/more.go:4: imports internal/eventtime: the floor "programs" may not import the floor "time"`}},
		{"homeless", "internal/misc/misc.go", doc("misc", source("misc")), []string{
			`imports go down: internal/misc/misc.go: package internal/misc has no floor in testing/archtest/floors.go`}},
		{"imports homeless", "sdk/misc.go", doc("sdk", source("sdk", ours("internal/misc"))), []string{
			`imports go down: sdk/misc.go:5: imports internal/misc, which has no floor`}},
		{"test of anything", "internal/kernel/kernel_test.go", source("kernel_test", ours("testing/sim"), ours("runners"), ours("statebackend/memory")), nil},

		// top level
		{"folder", "util/util.sh", "true\n", []string{"top level: util/util.sh: util/ is not a room of this repository"}},
		{"file", "notes.md", "# Notes\n", []string{"top level: notes.md: does not belong to the top level"}},

		// libraries
		{"unlisted library", "go.mod", goMod("require example.com/new v1.2.3"), []string{
			"libraries: go.mod:5: requires example.com/new without a reason in testing/archtest/modules.go"}},
		{"listed library is gone", "go.mod", strings.Replace(goMod(""), "\t"+dependencies[0].module+" v1.0.0\n", "", 1), []string{
			"libraries: go.mod: does not require " + dependencies[0].module + ", which testing/archtest/modules.go lists"}},
		{"replace", "go.mod", goMod("replace example.com/x => ../x"), []string{
			"libraries: go.mod:5: replace has no place in the go.mod of a library"}},
		{"library of tests", "internal/kernel/diff.go", source("kernel", "github.com/google/go-cmp/cmp"), []string{
			"libraries: internal/kernel/diff.go:4: imports github.com/google/go-cmp/cmp"}},
		{"library of another room", "internal/kernel/tree.go", source("kernel", "github.com/tidwall/btree"), []string{
			"libraries: internal/kernel/tree.go:4: imports github.com/tidwall/btree"}},
		{"library of tests in a helper", "testing/ptest/ptest.go", doc("ptest", source("ptest", "github.com/google/go-cmp/cmp")), nil},

		// packages with few users, cgo
		{"unsafe", "sdk/window/window.go", doc("window", "package window\n\nimport \"unsafe\"\n\nvar p unsafe.Pointer\n"), []string{
			"packages with few users: sdk/window/window.go:4: imports unsafe: memory safety is argued for in few places"}},
		{"size of a type", "sdk/window/window.go", doc("window", "package window\n\nimport \"unsafe\"\n\nvar n = unsafe.Sizeof(n)\n"), nil},
		{"flag", "sdk/flags.go", doc("sdk", source("sdk", "flag")), []string{
			"packages with few users: sdk/flags.go:5: imports flag: a library defines no flags; Main and programs do"}},
		{"Beam's protos", "internal/kernel/proto.go", source("kernel", "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"), []string{
			"libraries: internal/kernel/proto.go:4: imports github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1",
			"packages with few users: internal/kernel/proto.go:4: imports github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1: Beam's protos are one room's business"}},
		{"cgo elsewhere", "internal/kernel/c.go", "//go:build rocksdb\n\npackage kernel\n\nimport \"C\"\n", []string{
			"packages with few users: internal/kernel/c.go:5: imports C: a program without rocksdb needs no C compiler"}},
		{"cgo without the tag", "statebackend/rocksdb/cgo.go", "//go:build rocksdb || linux\n\npackage rocksdb\n\nimport \"C\"\n", []string{
			"cgo behind its tag: statebackend/rocksdb/cgo.go:5: imports C without //go:build rocksdb"}},
		{"rocksdb without the tag", "examples/01-hello/rocks.go", "//go:build !rocksdb\n\n" + source("main", ours("statebackend/rocksdb")), []string{
			"cgo behind its tag: examples/01-hello/rocks.go:6: imports github.com/millstream/millstream/statebackend/rocksdb without //go:build rocksdb"}},
		{"rocksdb with the tag", "examples/01-hello/rocks.go", "//go:build rocksdb\n\n" + source("main", ours("statebackend/rocksdb")), nil},

		// files
		{"long file", "scripts/long.sh", strings.Repeat("true\n", maxLines+1), []string{
			"files are short: scripts/long.sh: 701 lines, more than 700, without a reason in testing/archtest/tidy.go"}},
		{"unfinished", "scripts/soon.sh", "# TODO: write\n", []string{
			"no unfinished work: scripts/soon.sh:1: TODO: finish it, or say what is and is not"}},
		{"sleep", "internal/kernel/s_test.go", "package kernel\n\nfunc TestS() { time.Sleep(1) }\n", []string{
			"no sleeping or measuring in tests: internal/kernel/s_test.go:3: time.Sleep in a test"}},
		{"sleep in a helper", "testing/ptest/ptest.go", doc("ptest", "package ptest\n\nvar x = func() { time.Sleep(1) }\n"), []string{
			"no sleeping or measuring in tests: testing/ptest/ptest.go:4: time.Sleep in a test"}},
		{"measure", "internal/kernel/s_test.go", "package kernel\n\nfunc TestS() { _ = time.Since(t) }\nfunc BenchmarkS() { _ = time.Since(t) }\n", []string{
			"no sleeping or measuring in tests: internal/kernel/s_test.go:3: time.Since in a test"}},
		{"skip", "internal/kernel/s_test.go", "package kernel\n\nfunc TestS() { t.Skipf(``) }\n", []string{
			"skips have reasons: internal/kernel/s_test.go:3: t.Skipf in TestS without a reason in testing/archtest/tidy.go"}},
		{"path of a machine", "scripts/run.sh", "cd /work/main\n", []string{
			"no names of machines: scripts/run.sh:1: /work/main is a name that other machines do not have or need"}},
		{"path of a user", "docs/run.md", "# Run\n\n" + tick + "/home/ann/millstream" + tick + "\n", []string{
			"no names of machines: docs/run.md:3: /home/ann/millstream is a name that other machines do not have or need"}},
		{"path that is no machine's", "docs/run.md", "# Run\n\na/work/b, https://example.com/work/x, s3://bucket/root/x\n", nil},
		{"private host", "docs/run.md", "# Run\n\nhttps://cache.corp/x\n", []string{
			"no names of machines: docs/run.md:3: cache.corp is a name that other machines do not have or need"}},
		{"private address", "docs/run.md", "# Run\n\nhttp://10.1.2.3:8080/x and http://127.0.0.1/y\n", []string{
			"no names of machines: docs/run.md:3: 10.1.2.3 is a name that other machines do not have or need"}},
		{"registry", "scripts/run.sh", "GOPROXY=https://proxy.golang.org\n", []string{
			"no names of machines: scripts/run.sh:1: proxy.golang.org is a name that other machines do not have or need"}},

		// packages and pages
		{"package without documentation", "sdk/window/window.go", "package window\n", []string{
			"package documentation: sdk/window/window.go: package sdk/window is documented in 0 files instead of one"}},
		{"package documented twice", "internal/eventtime/more.go", "// Package eventtime is a clock.\npackage eventtime\n", []string{
			"package documentation: internal/eventtime/eventtime.go: package internal/eventtime is documented in 2 files instead of one"}},
		{"documentation of something else", "sdk/window/window.go", "// This package …\npackage window\n", []string{
			`package documentation: sdk/window/window.go:1: documentation does not begin with "Package window "`}},
		{"program documented as a package", "examples/02-count/main.go", "// Package main counts.\npackage main\n", []string{
			`package documentation: examples/02-count/main.go:1: documentation does not begin with "Command 02-count "`}},
		{"program by its name", "examples/count/main.go", "// Count counts.\npackage main\n", nil},
		{"no title", "docs/run.md", "Run\n", []string{"one title a page: docs/run.md: has 0 titles (# …) instead of one"}},
		{"two titles", "docs/run.md", "# Run\n\n# Stop\n", []string{"one title a page: docs/run.md: has 2 titles (# …) instead of one"}},
		{"broken link", "docs/run.md", "# Run\n\n[there](../there.md), [here](#run), [keys](format/keys.md), `[code](x)`, [web](https://example.com/x)\n", []string{
			"links resolve: docs/run.md:3: links to ../there.md, which does not exist"}},
		{"broken section", "docs/run.md", "# Run\n\n[there](format/keys.md#not-a-title-noralink)\n", []string{
			"links resolve: docs/run.md:3: links to format/keys.md#not-a-title-noralink, but that page has no such section"}},
		{"linked name is gone", "docs/run.md", "# Run\n\n[`kernel.Batch`](../internal/kernel/kernel.go)\n", []string{
			"linked code exists: docs/run.md:3: kernel.Batch is not in ../internal/kernel/kernel.go"}},
		{"linked name is of another package", "docs/run.md", "# Run\n\n[`engine.Brief`](../internal/kernel/kernel.go)\n", []string{
			"linked code exists: docs/run.md:3: engine.Brief is not in ../internal/kernel/kernel.go"}},
		{"linked name is there", "docs/run.md", "# Run\n\n[`kernel.Brief`](../internal/kernel/kernel.go)\n", nil},
		{"format that no code names", "docs/format/extra.md", "# Extra\n", []string{
			"formats have pages: docs/format/extra.md: no Go file names this page"}},
		{"format without a page", "internal/kernel/log.go", "package kernel\n\n// See docs/format/log.md.\n", []string{
			"formats have pages: internal/kernel/log.go:3: names docs/format/log.md, which does not exist"}},
	}

	broken := map[string]bool{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := maps.Clone(lawful())
			files[test.path] = test.text
			if d := cmp.Diff(test.want, judge(t, files)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
		})
		for _, w := range test.want {
			name, _, _ := strings.Cut(w, ": ")
			broken[name] = true
		}
	}
	for _, l := range laws {
		if !broken[l.name] {
			t.Errorf("no violation of the law %q is planted", l.name)
		}
	}
}

// TestStaleExceptionsAreFound: an exception that nothing needs any more must go.
func TestStaleExceptionsAreFound(t *testing.T) {
	got := stale(map[string]string{"needed": "because", "gone": "because"}, map[string]bool{"needed": true})
	want := []finding{{"gone", 0, "does not need its exception in testing/archtest/tidy.go"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(finding{})); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}
