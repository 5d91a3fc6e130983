package plan_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/plan"
)

var update = flag.Bool("plan.update", false, "write the golden files of testdata anew")

var pipelines = map[string]func(*sdk.Pipeline){
	"steps": steps, "windows": windows, "ownwindows": ownWindows, "scopes": scopes, "types": types, "triggers": triggers,
}

func graph(t *testing.T, build func(*sdk.Pipeline)) *kernel.Graph {
	t.Helper()
	p := sdk.NewPipeline("job")
	build(p)
	g, err := p.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func planOf(t *testing.T, build func(*sdk.Pipeline)) *pipepb.Pipeline {
	t.Helper()
	p, err := plan.Of(graph(t, build), 256)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-%s +now), -plan.update accepts it:\n%s", name, diff)
	}
}

func TestPlansAreAsStored(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(pipelines)) {
		t.Run(name, func(t *testing.T) {
			p := planOf(t, pipelines[name])
			data, err := plan.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", data)
			golden(t, name+".txt", payloads(t, p))
			picture, err := plan.Mermaid(p)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".mmd", []byte(picture))

			back, err := plan.Unmarshal(data)
			if err != nil || !proto.Equal(p, back) {
				t.Errorf("it does not come back equal: %v", err)
			}
			again, err := plan.Marshal(planOf(t, pipelines[name]))
			if err != nil || !bytes.Equal(data, again) {
				t.Errorf("the second time it is another: %v", err)
			}
			changes, err := plan.Diff(p, back)
			if err != nil || len(changes.Steps) > 0 || len(changes.Obstacles) > 0 {
				t.Errorf("it is unlike itself: %v, %v", changes, err)
			}
		})
	}
}

// payloads are what JSON has as base64, for those who review a golden file.
func payloads(t *testing.T, p *pipepb.Pipeline) []byte {
	var b bytes.Buffer
	for _, id := range order(p) {
		tr := p.Components.Transforms[id]
		fmt.Fprintf(&b, "%q %s\n", id, tr.GetSpec().GetUrn())
		if note := tr.Annotations["millstream:step:v1"]; note != nil {
			fmt.Fprintf(&b, "\t%s\n", note)
		}
		if m := payloadOf(t, tr.Spec); m != nil {
			fmt.Fprintf(&b, "\t%s\n", text(t, m))
		} else if len(tr.GetSpec().GetPayload()) > 0 {
			fmt.Fprintf(&b, "\t%s\n", tr.Spec.Payload)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.Components.WindowingStrategies)) {
		w := p.Components.WindowingStrategies[id]
		if m := payloadOf(t, w.WindowFn); m != nil || len(w.WindowFn.Payload) == 0 {
			fmt.Fprintf(&b, "%q %s %s\n", id, w.WindowFn.Urn, text(t, m))
		} else {
			fmt.Fprintf(&b, "%q %s %s\n", id, w.WindowFn.Urn, w.WindowFn.Payload)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.Components.Coders)) {
		c := p.Components.Coders[id]
		if m := payloadOf(t, c.Spec); m != nil {
			fmt.Fprintf(&b, "%q %s\n", id, text(t, m))
		} else if len(c.Spec.Payload) > 0 {
			fmt.Fprintf(&b, "%q %s\n", id, c.Spec.Payload)
		}
	}
	return b.Bytes()
}

// text is a proto as JSON on one line.
func text(t *testing.T, m proto.Message) string {
	if m == nil {
		return ""
	}
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(protoJSON(t, m))); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// order is the transforms as they are visited from the roots.
func order(p *pipepb.Pipeline) (out []string) {
	var visit func(ids []string)
	visit = func(ids []string) {
		for _, id := range ids {
			out = append(out, id)
			visit(p.Components.Transforms[id].GetSubtransforms())
		}
	}
	visit(p.RootTransformIds)
	return out
}

// payloadOf decodes a payload that Beam defines; nil if it is none of these.
func payloadOf(t *testing.T, s *pipepb.FunctionSpec) proto.Message {
	t.Helper()
	m, ok := map[string]proto.Message{
		"beam:transform:read:v1":            &pipepb.ReadPayload{},
		"beam:transform:pardo:v1":           &pipepb.ParDoPayload{},
		"beam:transform:combine_per_key:v1": &pipepb.CombinePayload{},
		"beam:transform:window_into:v1":     &pipepb.WindowIntoPayload{},
		"beam:window_fn:fixed_windows:v1":   &pipepb.FixedWindowsPayload{},
		"beam:window_fn:sliding_windows:v1": &pipepb.SlidingWindowsPayload{},
		"beam:window_fn:session_windows:v1": &pipepb.SessionWindowsPayload{},
		"beam:coder:row:v1":                 &pipepb.Schema{},
	}[s.GetUrn()]
	if !ok {
		return nil
	}
	if err := proto.Unmarshal(s.Payload, m); err != nil {
		t.Errorf("payload of %s: %v", s.Urn, err)
	}
	return m
}

func TestEveryReferenceOfAPlanResolves(t *testing.T) {
	for name, build := range pipelines {
		t.Run(name, func(t *testing.T) { validate(t, planOf(t, build)) })
	}
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// validate holds a plan against what Beam's model asks of a pipeline.
func validate(t *testing.T, p *pipepb.Pipeline) {
	c := p.Components
	coder := func(where, id string) {
		if c.Coders[id] == nil {
			t.Errorf("%s: no coder %q", where, id)
		}
	}
	env := func(where, id string) {
		if c.Environments[id] == nil {
			t.Errorf("%s: no environment %q", where, id)
		}
	}
	for id, cd := range c.Coders {
		for _, part := range cd.ComponentCoderIds {
			coder(id, part)
		}
		if schema, ok := payloadOf(t, cd.Spec).(*pipepb.Schema); ok && !uuid.MatchString(schema.Id) {
			t.Errorf("coder %q: the schema's id %q is no UUID", id, schema.Id)
		}
	}
	for id, w := range c.WindowingStrategies {
		coder(id, w.WindowCoderId)
		env(id, w.EnvironmentId)
		if w.WindowFn.GetUrn() == "" || w.Trigger.GetTrigger() == nil || w.MergeStatus == 0 || w.AccumulationMode == 0 ||
			w.OutputTime == 0 || w.ClosingBehavior == 0 || w.OnTimeBehavior == 0 {
			t.Errorf("windowing %q leaves something open: %v", id, w)
		}
	}
	for id, pc := range c.Pcollections {
		coder(id, pc.CoderId)
		if c.WindowingStrategies[pc.WindowingStrategyId] == nil || pc.IsBounded == 0 || pc.UniqueName == "" {
			t.Errorf("collection %q: %v", id, pc)
		}
	}
	names, made := map[string]bool{}, map[string]bool{}
	visited := order(p)
	for _, id := range visited {
		tr := c.Transforms[id]
		if tr == nil || names[tr.UniqueName] {
			t.Fatalf("transform %q is missing, or its name is not unique", id)
		}
		names[tr.UniqueName] = true
		for _, pc := range slices.Concat(slices.Collect(maps.Values(tr.Inputs)), slices.Collect(maps.Values(tr.Outputs))) {
			if c.Pcollections[pc] == nil {
				t.Errorf("transform %q: no collection %q", id, pc)
			}
		}
		if len(tr.Subtransforms) > 0 {
			continue
		}
		for _, pc := range tr.Inputs {
			if !made[pc] {
				t.Errorf("transform %q reads %q before it is made", id, pc)
			}
		}
		for _, pc := range tr.Outputs {
			if made[pc] {
				t.Errorf("collection %q is made twice", pc)
			}
			made[pc] = true
		}
		if tr.EnvironmentId != "" {
			env(id, tr.EnvironmentId)
		}
		switch m := payloadOf(t, tr.Spec).(type) {
		case *pipepb.ParDoPayload:
			for _, s := range m.StateSpecs {
				coder(id, s.GetReadModifyWriteSpec().GetCoderId())
			}
			for _, s := range m.TimerFamilySpecs {
				coder(id, s.TimerFamilyCoderId)
			}
			if e := m.OnWindowExpirationTimerFamilySpec; e != "" && m.TimerFamilySpecs[e] == nil {
				t.Errorf("transform %q: no timer family %q", id, e)
			}
		case *pipepb.CombinePayload:
			coder(id, m.AccumulatorCoderId)
		case nil:
			if strings.HasPrefix(tr.Spec.Urn, "millstream:") {
				var own map[string]string
				if err := json.Unmarshal(tr.Spec.Payload, &own); err != nil {
					t.Errorf("transform %q: %v", id, err)
				}
				for field, v := range own {
					if strings.HasSuffix(field, "_coder") {
						coder(id, v)
					}
				}
			}
		}
	}
	if len(visited) != len(c.Transforms) || len(made) != len(c.Pcollections) {
		t.Errorf("%d of %d transforms are visited, %d of %d collections made", len(visited), len(c.Transforms), len(made), len(c.Pcollections))
	}
	for _, id := range visited {
		compositeBoundary(t, p, id)
	}
}

// compositeBoundary checks that what a composite reads is made outside, and that what it makes and others read
// is among its outputs.
func compositeBoundary(t *testing.T, p *pipepb.Pipeline, id string) {
	c := p.Components
	inside := map[string]bool{}
	var visit func(string)
	visit = func(id string) {
		inside[id] = true
		for _, sub := range c.Transforms[id].Subtransforms {
			visit(sub)
		}
	}
	visit(id)
	makers, readers := map[string]string{}, map[string][]string{}
	for leaf, tr := range c.Transforms {
		if len(tr.Subtransforms) > 0 {
			continue
		}
		for _, pc := range tr.Outputs {
			makers[pc] = leaf
		}
		for _, pc := range tr.Inputs {
			readers[pc] = append(readers[pc], leaf)
		}
	}
	if len(c.Transforms[id].Subtransforms) == 0 {
		return
	}
	for pc := range c.Pcollections {
		in := !inside[makers[pc]] && slices.ContainsFunc(readers[pc], func(r string) bool { return inside[r] })
		out := inside[makers[pc]] && (len(readers[pc]) == 0 || slices.ContainsFunc(readers[pc], func(r string) bool { return !inside[r] }))
		if got := slices.Contains(slices.Collect(maps.Values(c.Transforms[id].Inputs)), pc); got != in {
			t.Errorf("composite %q: %q among inputs: %v", id, pc, got)
		}
		if got := slices.Contains(slices.Collect(maps.Values(c.Transforms[id].Outputs)), pc); got != out {
			t.Errorf("composite %q: %q among outputs: %v", id, pc, got)
		}
	}
}

func TestWhatHasNoTranslationIsAnErrorWithTheStep(t *testing.T) {
	g := graph(t, windows)
	g.Nodes[1].Kind = "juggle"
	if _, err := plan.Of(g, 1); err == nil || !strings.Contains(err.Error(), `step "fixed": a step of kind "juggle" has no translation`) {
		t.Error(err)
	}
	g.Nodes[0].Ports[0].Windowing.Fn = nil
	if _, err := plan.Of(g, 1); err == nil || !strings.Contains(err.Error(), `step "clicks": the window function <nil> has no translation`) {
		t.Error(err)
	}
}

func TestUnmarshalRefusesWhatIsNoPlan(t *testing.T) {
	saved, err := plan.Marshal(planOf(t, steps))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "decode plan"},
		{"cut short", string(saved[:len(saved)/2]), "decode plan"},
		{"other JSON", `{"answer": 42}`, "decode plan"},
		{"a pipeline of another program", `{"components": {}}`, "not the plan of a Millstream program"},
		{"a transform that is missing", strings.Replace(string(saved), `"split": {`, `"splat": {`, 1), `transform "split" is missing`},
		{"a collection that is missing", strings.ReplaceAll(string(saved), `"i0": "clicks.out"`, `"i0": "clocks.out"`), `input "clocks.out" is not made`},
		{"a step of another program", strings.ReplaceAll(string(saved), "millstream:step:v1", "other:v1"), "not a step of a Millstream program"},
	} {
		if _, err := plan.Unmarshal([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
