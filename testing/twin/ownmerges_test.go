package twin

import (
	"testing"

	"github.com/millstream/millstream/sdk/trigger"
)

// Cases of windows that merge as a user says, which random ones have found.
func TestMergingByUsersIsTheTwin(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      Strategy
		events string
	}{
		{"what it becomes ends before the watermark of the output, and holds nothing",
			Strategy{Fn: firsts{2 * ms}.fn(), Trigger: trigger.Never(), Lateness: 5}, "a 1@1\nW 2\na 2@0\nW 3\nW end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, err := Parse(c.events)
			if err != nil {
				t.Fatal(err)
			}
			Compare(t, running(panes), c.s, events)
			Compare(t, func(s Strategy) (System, error) {
				op, err := panes(s)
				if err != nil {
					return nil, err
				}
				steps, err := disturbed(op, s.Fn, events)
				return &played{steps: steps}, err
			}, c.s, events)
		})
	}
}
