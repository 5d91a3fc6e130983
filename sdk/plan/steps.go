package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"

	"github.com/millstream/millstream/internal/kernel"
)

// pipeline is a plan read back: steps in the order of the graph.
type pipeline struct {
	header
	steps  []*step
	byName map[string]*step
}

type step struct {
	stepInfo
	name   string
	scopes []string // ids of the composites around it, from the outermost
	inputs []input
	outs   map[string]collection // by tag
	stage  *step                 // the first step of its stage: see stages
}

// input is what a step reads.
type input struct {
	from     *step
	tag      string // of the output
	exchange string
}

// collection is an output of a step.
type collection struct {
	coder, boundedness string
	windowing          []string // as of windowingNames
}

// read returns the steps of a plan. It fails for a pipeline of another program of Beam's model, and for one
// whose references lead nowhere.
func read(p *pipepb.Pipeline) (*pipeline, error) {
	out := &pipeline{byName: map[string]*step{}}
	for _, d := range p.GetDisplayData() {
		if d.GetUrn() == urnPipeline {
			if err := json.Unmarshal(d.GetPayload(), &out.header); err != nil {
				return nil, fmt.Errorf("its header (%s) does not read: %w", urnPipeline, err)
			}
		}
	}
	if out.KeyGroups < 1 {
		return nil, fmt.Errorf("it is not the plan of a Millstream program: it has no header %s", urnPipeline)
	}
	r := reader{p.GetComponents(), out, map[string]input{}, map[string]bool{}}
	if err := r.visit(p.GetRootTransformIds(), nil); err != nil {
		return nil, err
	}
	out.stages()
	return out, nil
}

type reader struct {
	c       *pipepb.Components
	out     *pipeline
	makers  map[string]input // the output that a collection is
	visited map[string]bool  // transforms
}

func (r *reader) visit(ids, scopes []string) error {
	for _, id := range ids {
		t := r.c.GetTransforms()[id]
		if t == nil || r.visited[id] {
			return fmt.Errorf("transform %q is missing, or there twice", id)
		}
		r.visited[id] = true
		if len(t.GetSubtransforms()) > 0 {
			if err := r.visit(t.GetSubtransforms(), append(scopes[:len(scopes):len(scopes)], id)); err != nil {
				return err
			}
			continue
		}
		if err := r.step(t, scopes); err != nil {
			return fmt.Errorf("transform %q: %w", id, err)
		}
	}
	return nil
}

func (r *reader) step(t *pipepb.PTransform, scopes []string) error {
	s := &step{name: t.GetUniqueName(), scopes: scopes, outs: map[string]collection{}}
	note, ok := t.GetAnnotations()[urnStep]
	if !ok {
		return fmt.Errorf("it is not a step of a Millstream program: it has no annotation %s", urnStep)
	}
	if err := json.Unmarshal(note, &s.stepInfo); err != nil {
		return fmt.Errorf("annotation %s: %w", urnStep, err)
	}
	if len(s.Exchanges) != len(t.GetInputs()) || r.out.byName[s.name] != nil {
		return errors.New("its annotation does not fit its inputs, or its name is not unique")
	}
	for i, exchange := range s.Exchanges {
		id := t.GetInputs()[inputTag(i)]
		in, ok := r.makers[id]
		if !ok {
			return fmt.Errorf("input %q is not made by a step before it", id)
		}
		in.exchange = exchange
		s.inputs = append(s.inputs, in)
	}
	for tag, id := range t.GetOutputs() {
		pc := r.c.GetPcollections()[id]
		w := r.c.GetWindowingStrategies()[pc.GetWindowingStrategyId()]
		if w == nil || r.c.GetCoders()[pc.GetCoderId()] == nil || r.makers[id].from != nil {
			return fmt.Errorf("output %q has no collection, coder or windowing, or is made twice", id)
		}
		r.makers[id] = input{from: s, tag: tag}
		s.outs[tag] = collection{pc.GetCoderId(), strings.ToLower(pc.GetIsBounded().String()), windowingText(w)}
	}
	r.out.steps = append(r.out.steps, s)
	r.out.byName[s.name] = s
	return nil
}

// stages finds out which steps run in one goroutine, at a parallelism above 1: a checkpoint is kept by stage,
// under the name of its first step. It is what engine.Stages does; a test compares them.
func (p *pipeline) stages() {
	for _, s := range p.steps {
		for _, in := range s.inputs {
			stays := in.exchange == kernel.Forward.String() || in.exchange == kernel.ByKey.String() && s.Single
			if !stays || in.from.stage.Single != s.Single || s.stage != nil && s.stage != in.from.stage {
				s.stage = nil
				break
			}
			s.stage = in.from.stage
		}
		if s.stage == nil {
			s.stage = s
		}
	}
}

func (s *step) stateful() bool { return len(s.State) > 0 }
