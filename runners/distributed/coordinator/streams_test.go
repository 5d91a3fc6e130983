package coordinator

import (
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/sdk"
)

type small struct{ A int64 }

type large struct {
	A int64
	B string
}

// TestChangedStreamsAreRefused: elements that an overtaking barrier recorded go where they were going, and are read
// as what they were, or the restore is refused.
func TestChangedStreamsAreRefused(t *testing.T) {
	fit := func(build func(p *sdk.Pipeline)) Fit {
		p := sdk.NewPipeline("p")
		build(p)
		g, err := p.Graph()
		if err != nil {
			t.Fatal(err)
		}
		return Fit{Job: "p", Graph: g, KeyGroups: 8, Parallelism: 2}
	}
	plain := fit(func(p *sdk.Pipeline) {
		sdk.Reshuffle("spread", sdk.Map("make", sdk.Create[int64]("in", p), func(v int64) small { return small{v} }))
	})
	for _, c := range []struct {
		name       string
		now        Fit
		always, at string // refused always, and if something was recorded, with these words; "" never
	}{
		{"nothing", plain, "", ""},
		{"a new step within a stage", fit(func(p *sdk.Pipeline) {
			in := sdk.Filter("new", sdk.Create[int64]("in", p), func(int64) bool { return true })
			sdk.Reshuffle("spread", sdk.Map("make", in, func(v int64) small { return small{v} }))
		}), "", ""},
		{"another element", fit(func(p *sdk.Pipeline) {
			sdk.Reshuffle("spread", sdk.Map("make", sdk.Create[int64]("in", p), func(v int64) large { return large{A: v} }))
		}), "", `row{A varint; B string_utf8}`},
		{"another name", fit(func(p *sdk.Pipeline) {
			sdk.Reshuffle("other", sdk.Map("make", sdk.Create[int64]("in", p), func(v int64) small { return small{v} }))
		}), `spread`, `spread`},
		{"no exchange", fit(func(p *sdk.Pipeline) {
			sdk.Map("make", sdk.Create[int64]("in", p), func(v int64) small { return small{v} })
		}), `spread`, `spread`},
	} {
		stages, err := engine.Stages(plain.Graph, 2)
		if err != nil {
			t.Fatal(err)
		}
		m := &checkpoint.Manifest{
			Job: "p", StatePlan: plain.Graph.StatePlan(8), KeyGroups: 8, Parallelism: 2, Streams: engine.Streams(stages),
			Checkpoint: checkpoint.Checkpoint{Parts: []checkpoint.Part{{Stage: "spread", Channels: [][]byte{nil}}}},
		}
		for _, want := range []string{c.always, c.at} {
			if err := c.now.canRestore(m); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: error %v, want %q", c.name, err, want)
			}
			m.Checkpoint.Parts[0].Channels[0] = []byte("something")
		}
	}
}
