package archtest

import (
	"os"
	"path"
	"slices"
	"testing"
)

// TestLaws reads the repository as it lies on disk.
func TestLaws(t *testing.T) {
	tree, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !tree.names["go.mod"] || len(tree.goFiles(false)) < 50 {
		t.Fatalf("this is not the repository: %d Go files", len(tree.goFiles(false)))
	}
	for _, l := range laws {
		t.Run(l.name, func(t *testing.T) {
			for _, f := range l.check(tree) {
				t.Error(f)
			}
		})
	}
}

// TestFloorsAreLayers: a floor may import only floors above it in the table, so that no ring is possible.
func TestFloorsAreLayers(t *testing.T) {
	var above []string
	for _, f := range floors {
		for _, name := range f.may {
			if !slices.Contains(above, name) {
				t.Errorf("the floor %q may import %q, which does not stand above it", f.name, name)
			}
		}
		if slices.Contains(above, f.name) {
			t.Errorf("two floors are named %q", f.name)
		}
		above = append(above, f.name)
	}
}

// TestTablesAreComplete: every exception and every dependency has a reason, every pattern is well formed.
func TestTablesAreComplete(t *testing.T) {
	pattern := func(p string) {
		if _, err := path.Match(p, ""); err != nil {
			t.Errorf("pattern %q: %v", p, err)
		}
	}
	for _, f := range floors {
		for _, p := range f.packages {
			pattern(p)
		}
	}
	for _, d := range dependencies {
		if d.reason == "" {
			t.Errorf("dependency %s has no reason", d.module)
		}
		for _, p := range d.users {
			pattern(p)
		}
	}
	for _, r := range restrictions {
		for _, p := range r.users {
			pattern(p)
		}
	}
	for _, exceptions := range []map[string]string{longFiles, skips, clocks} {
		for name, reason := range exceptions {
			if reason == "" {
				t.Errorf("exception %s has no reason", name)
			}
		}
	}
}
