// Package plan makes plain data of a pipeline: Apache Beam's Pipeline proto, to be saved, drawn and compared.
//
//	now, err := plan.Of(graph, keyGroups)
//	saved, err := plan.Unmarshal(data)
//	changes, err := plan.Diff(saved, now)
//
// What a plan holds, what of it is stable, and how plans are compared is in docs/design/plan.md. Read plan.go
// first, which walks the graph, then transform.go, coder.go and windowing.go, which translate its parts;
// steps.go is the way back, on which diff.go, restore.go and mermaid.go stand.
package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
)

// header is what a plan tells of the whole pipeline.
type header struct {
	Name      string `json:"name"`
	KeyGroups int    `json:"key_groups"`
}

// stepInfo is what Beam has no word for in a step.
type stepInfo struct {
	Kind      string      `json:"kind"`
	Fn        string      `json:"fn,omitempty"`
	Location  string      `json:"location,omitempty"` // file:line; not compared
	Exchanges []string    `json:"exchanges,omitempty"`
	Single    bool        `json:"single,omitempty"`
	State     []statePart `json:"state,omitempty"`
}

// statePart is a kernel.StatePart with its encoding as text.
type statePart struct {
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	Encoding string `json:"encoding"`
}

// Of returns the plan of a pipeline that a runner got from sdk.Pipeline.Graph. keyGroups is the number of key
// groups of the job, a part of what its state depends on. The plan of one graph is always the same. It has no
// flags, paths or other values of the program, only the names of steps, types and code. The error names a step
// that has no translation.
func Of(g *kernel.Graph, keyGroups int) (*pipepb.Pipeline, error) {
	b := &builder{
		specs: map[string]coder.Spec{}, used: map[output]bool{}, named: map[string]bool{}, required: map[string]bool{},
		c: &pipepb.Components{
			Transforms: map[string]*pipepb.PTransform{}, Pcollections: map[string]*pipepb.PCollection{},
			WindowingStrategies: map[string]*pipepb.WindowingStrategy{}, Coders: map[string]*pipepb.Coder{},
			Environments: map[string]*pipepb.Environment{environment: {Urn: urnProgram}},
		},
	}
	for _, n := range g.Nodes {
		b.named[n.Name] = true
		for _, e := range n.Inputs {
			b.used[output{e.From, e.Port}] = true
		}
	}
	h, err := json.Marshal(header{g.Name, keyGroups})
	if err != nil {
		return nil, err
	}
	p := &pipepb.Pipeline{Components: b.c, DisplayData: []*pipepb.DisplayData{{Urn: urnPipeline, Payload: h}}}
	for _, n := range g.Nodes {
		if err := b.step(n); err != nil {
			return nil, fmt.Errorf("plan of step %q: %w", n.Name, err)
		}
	}
	boundaries(b.c, b.roots)
	p.RootTransformIds = b.roots
	for _, r := range []string{urnStateful, urnOnExpiry} {
		if b.required[r] {
			p.Requirements = append(p.Requirements, r)
		}
	}
	return p, nil
}

// environment is where user code runs.
const environment = "program"

// output is an output port of a node.
type output struct {
	node *kernel.Node
	port int
}

// builder walks a graph in order.
type builder struct {
	c        *pipepb.Components
	specs    map[string]coder.Spec // of the coders in c
	used     map[output]bool       // by some step
	named    map[string]bool       // names of transforms
	required map[string]bool       // requirements
	roots    []string
	open     []scope // from the outermost
}

// scope is a composite that steps are being added to.
type scope struct {
	name string
	t    *pipepb.PTransform
}

// step adds a node: its transform with what that refers to, in the scopes of its name.
//
// A scope that steps were added to before and after a step outside of it becomes two composites, so that all
// transforms, visited from the roots, are in the order of the graph.
func (b *builder) step(n *kernel.Node) error {
	path := strings.Split(n.Name, "/")
	path = path[:len(path)-1]
	common := 0
	for common < min(len(b.open), len(path)) && b.open[common].name == path[common] {
		common++
	}
	b.open = b.open[:common]
	for i := common; i < len(path); i++ {
		t := &pipepb.PTransform{UniqueName: b.unused(strings.Join(path[:i+1], "/"))}
		b.put(t)
		b.open = append(b.open, scope{path[i], t})
	}
	t, err := b.transform(n)
	if err == nil {
		b.put(t)
	}
	return err
}

// put adds a transform to the innermost open scope. Its name is its id.
func (b *builder) put(t *pipepb.PTransform) {
	b.c.Transforms[t.UniqueName] = t
	b.named[t.UniqueName] = true
	if len(b.open) == 0 {
		b.roots = append(b.roots, t.UniqueName)
		return
	}
	parent := b.open[len(b.open)-1].t
	parent.Subtransforms = append(parent.Subtransforms, t.UniqueName)
}

// unused is a name for a composite: steps keep theirs.
func (b *builder) unused(name string) string {
	unique := name
	for i := 2; b.named[unique]; i++ {
		unique = fmt.Sprintf("%s (%d)", name, i)
	}
	return unique
}

// boundaries sets the inputs and outputs of composites: what their steps take from outside, and what others
// take from them, or nobody.
func boundaries(c *pipepb.Components, roots []string) {
	readers := map[string]int{}
	for _, t := range c.Transforms {
		for _, id := range t.Inputs {
			readers[id]++
		}
	}
	var visit func(id string) (made map[string]bool, read map[string]int)
	visit = func(id string) (made map[string]bool, read map[string]int) {
		t := c.Transforms[id]
		made, read = map[string]bool{}, map[string]int{}
		if len(t.Subtransforms) == 0 {
			for _, id := range t.Outputs {
				made[id] = true
			}
			for _, id := range t.Inputs {
				read[id]++
			}
			return made, read
		}
		for _, sub := range t.Subtransforms {
			m, r := visit(sub)
			maps.Copy(made, m)
			for id, n := range r {
				read[id] += n
			}
		}
		t.Inputs, t.Outputs = map[string]string{}, map[string]string{}
		for id := range read {
			if !made[id] {
				t.Inputs[id] = id
			}
		}
		for id := range made {
			if readers[id] == 0 || readers[id] > read[id] {
				t.Outputs[id] = id
			}
		}
		return made, read
	}
	for _, id := range roots {
		visit(id)
	}
}
