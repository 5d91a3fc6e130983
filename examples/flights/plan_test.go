package main

import (
	"os"
	"slices"
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/plan"
)

// TestPlanIsTheStoredOne: testdata/plan.json is what docs compare with. Lines of main.go may move, and in a test the
// types of package main have other names.
func TestPlanIsTheStoredOne(t *testing.T) {
	data, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := plan.Unmarshal(data)
	if err != nil {
		t.Fatal(err)
	}
	*allowedLateness = 0
	g, err := sdk.Build("flights", build)
	if err != nil {
		t.Fatal(err)
	}
	now, err := plan.Of(g, 256)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := plan.Diff(stored, now)
	if err != nil {
		t.Fatal(err)
	}
	same := !slices.ContainsFunc(changes.Steps, func(s plan.StepChange) bool {
		return s.How != plan.Changed || slices.ContainsFunc(s.Properties, func(p plan.Property) bool { return p.Name != "code" })
	})
	if !same || len(changes.Obstacles) > 0 {
		t.Errorf("go run ./examples/flights --plan > examples/flights/testdata/plan.json, if it should be:\n%s", changes)
	}
}
