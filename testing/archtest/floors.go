package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// A floor is a set of packages that may import the same. It names the floors that it may import, all of them
// above it in the table, so that imports cannot form a ring; packages of one floor do not import each other.
type floor struct {
	name     string
	packages []string
	may      []string
	together bool // packages of this floor may import each other
}

var floors = []floor{
	{name: "time", packages: []string{"internal/eventtime"}},
	{name: "version", packages: []string{"internal/version"}},
	{name: "failpoint", packages: []string{"internal/failpoint"}},
	{name: "durable", packages: []string{"internal/durable"}},

	// What users write pipelines with.
	{name: "window", packages: []string{"sdk/window"}, may: words("time")},
	{name: "values", packages: []string{"sdk/coder", "sdk/trigger", "sdk/watermark"}, may: words("time window")},
	{name: "cells", packages: []string{"internal/cell"}, may: words("time values")},
	{name: "contracts", packages: []string{"sdk/state", "sdk/connector", "statebackend", "statebackend/storage"},
		may: words("time window values cells")},
	{name: "triggering", packages: []string{"internal/triggering"}, may: words("time window values")},
	{name: "kernel", packages: []string{"internal/kernel"}, may: words("time window values cells contracts triggering")},
	{name: "sdk", packages: []string{"sdk"}, may: words("time window values contracts kernel triggering")},
	{name: "plan", packages: []string{"sdk/plan"}, may: words("time window values contracts kernel sdk")},

	// The shelf: what a main takes from it is linked, and nothing else. The runners bring the local drivers.
	{name: "local drivers", packages: []string{"statebackend/memory", "statebackend/storage/file"}, may: words("time durable contracts")},
	{name: "drivers", packages: []string{"statebackend/*", "statebackend/storage/*"}, may: words("time contracts")},
	{name: "files", packages: []string{"io/internal/files"}, may: words("durable contracts sdk")},
	{name: "connectors", packages: []string{"io/*"}, may: words("time window values contracts sdk files")},
	{name: "transforms", packages: []string{"transforms/*"}, may: words("window values contracts sdk")},

	// The engine moves batches whose types it does not know: it needs no sdk and no shelf.
	{name: "engine", packages: []string{"internal/engine"}, may: words("time failpoint window values contracts kernel")},
	{name: "checkpoint", packages: []string{"internal/checkpoint"}, may: words("time failpoint contracts kernel engine")},
	{name: "direct", packages: []string{"runners/direct"},
		may: append(words("time version window values contracts kernel sdk plan engine checkpoint"), "local drivers")},
	{name: "distributed", packages: []string{"runners/distributed/..."}, together: true,
		may: append(words("time version failpoint window values contracts kernel sdk plan engine checkpoint"), "local drivers")},
	{name: "runners", packages: []string{"runners"},
		may: append(words("time version window values contracts kernel sdk plan engine checkpoint direct distributed"), "local drivers")},

	// Nothing imports these but each other and tests. Examples keep to what any user can import.
	{name: "testing", packages: []string{"testing/*", "testing/twin/e2e"}, together: true,
		may: append(words("time version window values contracts kernel sdk plan drivers connectors transforms engine checkpoint direct distributed runners cells triggering"), "local drivers")},
	{name: "programs", packages: []string{"cmd/...", "examples/...", "docs/howto/..."}, together: true,
		may: append(words("version window values contracts sdk plan drivers connectors transforms direct distributed runners"), "local drivers")},
}

func words(s string) []string { return strings.Fields(s) }

// floorOf returns the first floor that has the package.
func floorOf(pkg string) *floor {
	for i := range floors {
		if matches(floors[i].packages, pkg) {
			return &floors[i]
		}
	}
	return nil
}

// importsGoDown judges what is built; tests may import anything, and the compiler forbids rings.
func importsGoDown(t *tree) (out []finding) {
	homeless := map[string]bool{}
	for _, f := range t.goFiles(false) {
		from := floorOf(f.pkg())
		if from == nil {
			if !homeless[f.pkg()] {
				homeless[f.pkg()] = true
				out = append(out, finding{f.path, 0, fmt.Sprintf("package %s has no floor in testing/archtest/floors.go", f.pkg())})
			}
			continue
		}
		if f.test() {
			continue
		}
		t.imports(f, func(imported string, line int) {
			pkg, ours := strings.CutPrefix(imported, modulePath+"/")
			if !ours || pkg == f.pkg() {
				return
			}
			to := floorOf(pkg)
			switch {
			case to == nil:
				out = append(out, finding{f.path, line, fmt.Sprintf("imports %s, which has no floor", pkg)})
			case to == from && !from.together:
				out = append(out, finding{f.path, line, fmt.Sprintf("imports %s: packages of the floor %q do not import each other", pkg, from.name)})
			case to != from && !slices.Contains(from.may, to.name):
				out = append(out, finding{f.path, line, fmt.Sprintf("imports %s: the floor %q may not import the floor %q", pkg, from.name, to.name)})
			}
		})
	}
	return out
}

var (
	topFolders = words(".ci bench cmd docs examples internal io runners scripts sdk statebackend testing transforms")
	topFiles   = words(".editorconfig .gitattributes .gitignore CHANGELOG.md CONTRIBUTING.md GLOSSARY.md LICENSE Makefile NOTICE README.md SECURITY.md go.mod go.sum go.work go.work.sum")
)

// topLevel keeps the first page of the repository short enough to read.
func topLevel(t *tree) (out []finding) {
	for _, f := range t.files {
		top, _, inFolder := strings.Cut(f.path, "/")
		switch {
		case inFolder && !slices.Contains(topFolders, top):
			out = append(out, finding{f.path, 0, fmt.Sprintf("%s/ is not a room of this repository", top)})
		case !inFolder && !slices.Contains(topFiles, top):
			out = append(out, finding{f.path, 0, "does not belong to the top level"})
		}
	}
	return out
}
