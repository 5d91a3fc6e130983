package plan_test

import (
	"fmt"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/plan"
)

// The new version counts words under another name: what was counted is under the old one.
func ExampleDiff() {
	version := func(step string) func(*sdk.Pipeline) error {
		return func(p *sdk.Pipeline) error {
			words := sdk.KeyBy("by word", sdk.Create("words", p, "to", "be"), func(w string) string { return w })
			sdk.GroupByKey(step, words)
			return nil
		}
	}
	before, err := sdk.Build("words", version("group"))
	if err != nil {
		panic(err)
	}
	after, err := sdk.Build("words", version("together"))
	if err != nil {
		panic(err)
	}
	old, err := plan.Of(before, 256)
	if err != nil {
		panic(err)
	}
	now, err := plan.Of(after, 256)
	if err != nil {
		panic(err)
	}
	changes, err := plan.Diff(old, now)
	if err != nil {
		panic(err)
	}
	for _, s := range changes.State {
		fmt.Println(s.How, s.Step, s.Parts)
	}
	for _, o := range changes.Obstacles {
		fmt.Println(o)
	}
	// Output:
	// kept words [split]
	// new together [key accumulator windows]
	// dropped group [key accumulator windows]
	// the state of "together" is new: a checkpoint has none of it
	// the state of "group" would be dropped: state is found by the names of steps
}
