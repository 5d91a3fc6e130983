package plan

import (
	"encoding/json"
	"fmt"
	"strconv"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/proto"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
)

// code is the payload of what a step was given, and of steps that are not Beam's. The coders are ids.
type code struct {
	Kind        string `json:"kind"`
	Fn          string `json:"fn,omitempty"` // Go type; none for a plain function
	Accumulator string `json:"accumulator_coder,omitempty"`
	Committable string `json:"committable_coder,omitempty"`
}

// transform translates a node, with its outputs.
func (b *builder) transform(n *kernel.Node) (*pipepb.PTransform, error) {
	t := &pipepb.PTransform{UniqueName: n.Name, Inputs: map[string]string{}, Outputs: map[string]string{}}
	info := stepInfo{Kind: n.Kind, Fn: n.Fn, Location: n.Loc, Single: n.Single}
	for i, e := range n.Inputs {
		t.Inputs[inputTag(i)] = collectionID(e.From, e.Port)
		info.Exchanges = append(info.Exchanges, e.Exchange.String())
	}
	for i := range n.Ports {
		if b.shown(n, i) {
			if err := b.collection(n, i); err != nil {
				return nil, err
			}
			t.Outputs[tagOf(n, i)] = collectionID(n, i)
		}
	}
	for _, s := range n.State {
		info.State = append(info.State, statePart{s.Kind, s.Name, s.Encoding()})
	}
	note, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	t.Annotations = map[string][]byte{urnStep: note}
	t.Spec, t.EnvironmentId, err = b.spec(n)
	return t, err
}

// shown says whether an output is in the plan: the main one, and others that a step reads. One that nobody
// reads is not part of what the pipeline does, and the steps of Beam that drop late elements have no output
// for them.
func (b *builder) shown(n *kernel.Node, port int) bool {
	return port == 0 || b.used[output{n, port}]
}

func inputTag(i int) string { return "i" + strconv.Itoa(i) }

// tagOf is the name of an output, unique in its node.
func tagOf(n *kernel.Node, port int) string {
	for _, before := range n.Ports[:port] {
		if before.Name == n.Ports[port].Name {
			return fmt.Sprintf("%s #%d", n.Ports[port].Name, port)
		}
	}
	return n.Ports[port].Name
}

func collectionID(n *kernel.Node, port int) string { return n.Name + "." + tagOf(n, port) }

// collection adds an output of a node.
func (b *builder) collection(n *kernel.Node, port int) error {
	p := n.Ports[port]
	windowing, err := b.windowing(p.Windowing)
	if err != nil {
		return err
	}
	id := collectionID(n, port)
	b.c.Pcollections[id] = &pipepb.PCollection{
		UniqueName: id, CoderId: b.coder(p.Coder), IsBounded: bounded(p.Bounded), WindowingStrategyId: windowing,
	}
	return nil
}

func bounded(is bool) pipepb.IsBounded_Enum {
	if is {
		return pipepb.IsBounded_BOUNDED
	}
	return pipepb.IsBounded_UNBOUNDED
}

// spec says what a node does, and where: nowhere, if it runs no user code.
func (b *builder) spec(n *kernel.Node) (*pipepb.FunctionSpec, string, error) {
	own := code{Kind: n.Kind, Fn: n.Fn}
	fn, err := own.spec(urnCode)
	if err != nil {
		return nil, "", err
	}
	beam := func(urn string, payload proto.Message) (*pipepb.FunctionSpec, string, error) {
		s, err := specOf(urn, payload)
		return s, environment, err
	}
	inEnvironment := func(urn string) (*pipepb.FunctionSpec, string, error) {
		s, err := own.spec(urn)
		return s, environment, err
	}
	// Beam's aggregations have one output.
	late := len(n.Ports) > 1 && b.used[output{n, 1}]
	own.Accumulator = b.stateCoder(n, "accumulator")
	switch n.Kind {
	case "read":
		return beam(urnRead, &pipepb.ReadPayload{Source: fn, IsBounded: bounded(!n.Unbounded)})
	case "map", "filter", "key by", "map values", "partition", "pardo", "async", "changes", "view", "wait":
		payload := &pipepb.ParDoPayload{DoFn: fn}
		if err := sideInputs(n, payload); err != nil {
			return nil, "", err
		}
		return beam(urnParDo, payload)
	case "keyed pardo":
		payload, err := b.keyed(n, fn)
		if err != nil {
			return nil, "", err
		}
		return beam(urnParDo, payload)
	case "window":
		w, err := windowFn(n.Ports[0].Windowing.Fn)
		if err != nil {
			return nil, "", err
		}
		return beam(urnWindowInto, &pipepb.WindowIntoPayload{WindowFn: w})
	case "unslice":
		return inEnvironment(urnUnslice)
	case "flatten":
		return &pipepb.FunctionSpec{Urn: urnFlatten}, "", nil
	case "reshuffle":
		return &pipepb.FunctionSpec{Urn: urnReshuffle}, "", nil
	case "group by key":
		if late {
			return inEnvironment(urnLateGroup)
		}
		return &pipepb.FunctionSpec{Urn: urnGroupByKey}, "", nil
	case "combine":
		if late {
			return inEnvironment(urnLateCombine)
		}
		return beam(urnCombinePerKey, &pipepb.CombinePayload{CombineFn: fn, AccumulatorCoderId: own.Accumulator})
	case "co-group by key":
		return inEnvironment(urnCoGroupByKey)
	case "write":
		own.Committable = b.stateCoder(n, "committable")
		return inEnvironment(urnWrite)
	}
	return nil, "", fmt.Errorf("a step of kind %q has no translation: add it to sdk/plan/transform.go", n.Kind)
}

func (c *code) spec(urn string) (*pipepb.FunctionSpec, error) {
	payload, err := json.Marshal(c)
	return &pipepb.FunctionSpec{Urn: urn, Payload: payload}, err
}

// specOf has a proto as payload, the same bytes whenever it is the same.
func specOf(urn string, payload proto.Message) (*pipepb.FunctionSpec, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(payload)
	return &pipepb.FunctionSpec{Urn: urn, Payload: data}, err
}

// stateCoder is the id of the coder of a part of a node's state, "" if there is no such part.
func (b *builder) stateCoder(n *kernel.Node, kind string) string {
	for _, s := range n.State {
		if s.Kind == kind && s.Coder != nil {
			return b.coder(*s.Coder)
		}
	}
	return ""
}

// view is the payload of the code that makes a side view of what comes on its input.
type view struct {
	View string `json:"view"`
	Kind string `json:"kind"` // singleton, slice, map, multimap or signal
}

// sideInputs adds the side inputs of a step. An element of such an input is a part of a pane.
func sideInputs(n *kernel.Node, p *pipepb.ParDoPayload) error {
	for i, e := range n.Inputs {
		if e.Side == nil {
			continue
		}
		payload, err := json.Marshal(view{e.Side.View, e.Side.Kind})
		if err != nil {
			return err
		}
		if p.SideInputs == nil {
			p.SideInputs = map[string]*pipepb.SideInput{}
		}
		p.SideInputs[inputTag(i)] = &pipepb.SideInput{
			AccessPattern:   &pipepb.FunctionSpec{Urn: urnSideIterable},
			ViewFn:          &pipepb.FunctionSpec{Urn: urnView, Payload: payload},
			WindowMappingFn: &pipepb.FunctionSpec{Urn: urnEndOfWindow},
		}
	}
	return nil
}

// keyed is the payload of a step with cells and timers.
func (b *builder) keyed(n *kernel.Node, fn *pipepb.FunctionSpec) (*pipepb.ParDoPayload, error) {
	p := &pipepb.ParDoPayload{DoFn: fn, StateSpecs: map[string]*pipepb.StateSpec{}, TimerFamilySpecs: map[string]*pipepb.TimerFamilySpec{}}
	key, windows := coder.Spec{}, windowCoder(n.Ports[0].Windowing.Fn)
	timer := func(name string, by pipepb.TimeDomain_Enum) {
		p.TimerFamilySpecs[name] = &pipepb.TimerFamilySpec{
			TimeDomain:         by,
			TimerFamilyCoderId: b.coder(coder.Spec{URN: urnTimer, Components: []coder.Spec{key, windows}}),
		}
	}
	if err := sideInputs(n, p); err != nil {
		return nil, err
	}
	for _, s := range n.State {
		if s.Kind == "view" || s.Kind == "waiting" {
			continue // what Beam's runners keep of side inputs is their own affair
		}
		switch s.Kind + " of " + s.Type {
		case "key of ":
			key = *s.Coder
		case "cell of value":
			p.StateSpecs[s.Name] = &pipepb.StateSpec{
				Spec:     &pipepb.StateSpec_ReadModifyWriteSpec{ReadModifyWriteSpec: &pipepb.ReadModifyWriteStateSpec{CoderId: b.coder(*s.Coder)}},
				Protocol: &pipepb.FunctionSpec{Urn: urnBagState},
			}
		case "timer of event time", "timer of event time by tag":
			timer(s.Name, pipepb.TimeDomain_EVENT_TIME)
		case "timer of processing time", "timer of processing time by tag":
			timer(s.Name, pipepb.TimeDomain_PROCESSING_TIME)
		default:
			return nil, fmt.Errorf("a %s of type %q has no translation: add it to sdk/plan/transform.go", s.Kind, s.Type)
		}
	}
	b.required[urnStateful] = true
	if n.Expires {
		b.required[urnOnExpiry] = true
		name := "window expiry"
		for p.TimerFamilySpecs[name] != nil {
			name += "'"
		}
		timer(name, pipepb.TimeDomain_EVENT_TIME)
		p.OnWindowExpirationTimerFamilySpec = name
	}
	return p, nil
}
