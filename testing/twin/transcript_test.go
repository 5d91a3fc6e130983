package twin

import (
	"fmt"
	"testing"
)

func open(s Strategy) (System, error) { return New(s) }

func TestTranscripts(t *testing.T) { Transcripts(t, open) }

// A twin that finishes no window, by its state, is found by the transcript that looks there.
func TestTranscriptsLookAtState(t *testing.T) {
	c := transcript{TriggerFn: "AfterCount(1)", WindowFn: "FixedWindows(10)", AllowedLateness: 10}
	s, err := c.strategy()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ w, want string }{{"5", "tombstone"}, {"19", "tombstone"}, {"20", "absent"}} {
		twin, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		events, err := Parse(fmt.Sprintf("key 1@1\nW %s", step.w))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if _, err := twin.Do(e); err != nil {
				t.Fatal(err)
			}
		}
		if got := twin.State("key", beamWindow([2]int64{0, 9})); got != step.want {
			t.Errorf("at %s the state is %s, want %s", step.w, got, step.want)
		}
	}
}
