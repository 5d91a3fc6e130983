// Package sdk is the language in which pipelines are written: collections, the steps that transform them,
// windows and triggers. It describes a pipeline and runs nothing.
//
//	func build(p *sdk.Pipeline) error {
//		flights := parquetio.Read[Flight]("read flights", p, "flights.parquet",
//			sdk.EventTime(Flight.At, watermark.Bounded(2*time.Hour)))
//		byOrigin := sdk.KeyBy("by origin", flights, func(f Flight) string { return f.Origin })
//		hourly := sdk.WindowInto("hourly", byOrigin, window.Fixed(time.Hour))
//		delays := sdk.CombinePerKey("delays", hourly, delayStats{})
//		jsonlio.Write("write", delays, "out")
//		return nil
//	}
//
// Every step has a name, given first. The full name, with the scopes it was added in, is the identity of
// its state across restarts: it must be unique.
package sdk

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// KV is a pair of a key and a value.
type KV[K, V any] = coder.KV[K, V]

// Pair makes a KV without type arguments.
func Pair[K, V any](k K, v V) KV[K, V] { return KV[K, V]{Key: k, Value: v} }

// Pipeline is a graph under construction, by one goroutine. Mistakes are collected, not returned by each
// step: see Err.
type Pipeline struct {
	graph  kernel.Graph
	names  map[string]string // full name of a step: where it was added
	scope  []string
	errs   []error
	coders []coder.Option
	out    map[outputKey]collection
}

type outputKey struct{ node, port int }

// collection is what is known of a PCollection beyond its type.
type collection struct {
	windowing kernel.Strategy
	bounded   bool
	timed     bool // elements have event time
	sliced    bool // elements are in slices of their sliding windows, see whole
	retracts  bool // elements may take earlier ones back
}

var defaultWindowing = kernel.Strategy{Fn: window.Global(), Trigger: trigger.Canonical(trigger.AfterWatermark())}

// NewPipeline returns an empty pipeline. Programs get theirs from runners.Main, tests from ptest.
func NewPipeline(name string) *Pipeline {
	return &Pipeline{graph: kernel.Graph{Name: name}, names: map[string]string{}, out: map[outputKey]collection{}}
}

// Err joins all construction errors. Each names the step, the line of the program that added it, and
// what to do.
func (p *Pipeline) Err() error { return errors.Join(p.errs...) }

// Build is the pipeline that build describes, for runners. A panic in build is an error too.
func Build(name string, build func(*Pipeline) error) (g *kernel.Graph, err error) {
	p := NewPipeline(name)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case zeroInput:
			g, err = nil, fmt.Errorf("build pipeline %q: %w", name, errors.Join(p.Err(), r))
		default:
			g, err = nil, fmt.Errorf("build pipeline %q: %w", name, errors.Join(p.Err(), fmt.Errorf("panic: %v\n%s", r, debug.Stack())))
		}
	}()
	err = build(p)
	g, gerr := p.Graph()
	if err := errors.Join(gerr, err); err != nil {
		return nil, fmt.Errorf("build pipeline %q: %w", name, err)
	}
	return g, nil
}

// Graph is the finished pipeline. Runners use Build.
func (p *Pipeline) Graph() (*kernel.Graph, error) {
	if len(p.graph.Nodes) == 0 && len(p.errs) == 0 {
		return nil, errors.New("the pipeline has no steps")
	}
	return &p.graph, p.Err()
}

// ScriptClock is the processing time of the pipeline from now on: one that stands at 0 but for the scripts of tests. With moves
// set the script of a step moves it. It is for testing/teststream.
func (p *Pipeline) ScriptClock(step string, moves bool) *kernel.Clock {
	if p.graph.Clock == nil {
		p.graph.Clock = &kernel.Clock{}
	}
	if c := p.graph.Clock; moves {
		c.Movers = append(c.Movers, p.fullName(step))
	}
	return p.graph.Clock
}

// Scope nests the steps that build adds: their full names are name/step. Composite transforms use it, so
// that their steps do not collide with others.
func (p *Pipeline) Scope(name string, build func()) {
	if p == nil {
		panic(newZeroInput(name, "PCollection"))
	}
	p.checkName(name)
	p.scope = append(p.scope, name)
	defer func() { p.scope = p.scope[:len(p.scope)-1] }()
	build()
}

// UseCoder makes c the coder of every T in this pipeline, also inside structs, slices and maps. It comes
// before the steps that it is for. Without it, types are encoded by coder.Of.
func UseCoder[T any](p *Pipeline, c coder.Coder[T]) {
	p.coders = append(p.coders, coder.WithCoder(c))
}

// CoderOf is the coder of T in p, for composites and connectors that keep values in bytes of their own.
func CoderOf[T any](p *Pipeline) (coder.Coder[T], error) { return coder.Of[T](p.coders...) }

// PCollection is a collection of T: a handle, cheap to copy. The zero PCollection belongs to no pipeline.
type PCollection[T any] struct {
	p    *Pipeline
	node *kernel.Node // nil after an error in the step that should have made it
	port int
}

// Pipeline is the pipeline of the collection.
func (c PCollection[T]) Pipeline() *Pipeline { return c.p }

func (c PCollection[T]) info() collection { return c.p.out[outputKey{c.node.ID, c.port}] }

// setWindowing changes the windowing of what a step has just made.
func (c PCollection[T]) setWindowing(w kernel.Strategy) {
	if c.node != nil {
		i := c.info()
		i.windowing = w
		c.p.out[outputKey{c.node.ID, c.port}] = i
	}
}

// usable tells a step whether to go on: not after an earlier mistake, which is reported already.
func (c PCollection[T]) usable(step string) bool {
	if c.p == nil {
		panic(newZeroInput(step, fmt.Sprintf("PCollection[%v]", reflect.TypeFor[T]())))
	}
	return c.node != nil
}

// zeroInput is the mistake of a step whose input belongs to no pipeline, so that no pipeline can record it: the
// step panics, and Build makes it an error.
type zeroInput struct{ error }

func newZeroInput(step, typ string) zeroInput {
	return zeroInput{fmt.Errorf("step %q (%s): its input is the zero %s: pass what a step returned", step, callerOutside(), typ)}
}

// errorf records a mistake in a step.
func (p *Pipeline) errorf(step, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("step %q (%s): %w", p.fullName(step), callerOutside(), fmt.Errorf(format, args...)))
}

func (p *Pipeline) fullName(step string) string {
	return strings.Join(append(p.scope[:len(p.scope):len(p.scope)], step), "/")
}

func (p *Pipeline) checkName(name string) {
	if name == "" || strings.ContainsAny(name, "/\n\r\t\"") || strings.TrimSpace(name) != name || !utf8.ValidString(name) {
		p.errorf(name, "a name must not be empty, begin or end with a space, or contain a slash, a quote, a line break or what is no UTF-8")
	}
}

// callerOutside is the file:line that called into sdk, a transform, a connector, a test kit or a runner.
func callerOutside() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.File != "" && (!inHouse(f.Function) || strings.HasSuffix(f.File, "_test.go")) {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

func inHouse(function string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/millstream/millstream/")
	return ok && (strings.HasPrefix(rest, "sdk.") || strings.HasPrefix(rest, "transforms/") || strings.HasPrefix(rest, "io/") || strings.HasPrefix(rest, "testing/") || strings.HasPrefix(rest, "runners"))
}

// add adds a node with its outputs' collections and returns false if its name is wrong.
func (p *Pipeline) add(name string, n *kernel.Node, outs ...collection) bool {
	p.checkName(name)
	n.Name, n.Loc, n.ID = p.fullName(name), callerOutside(), len(p.graph.Nodes)
	if at, dup := p.names[n.Name]; dup {
		p.errorf(name, "the name is taken by the step at %s: names must be unique, for a step's state is found by its name; rename it or put it into a Scope", at)
		return false
	}
	p.names[n.Name] = n.Loc
	p.graph.Nodes = append(p.graph.Nodes, n)
	for i, o := range outs {
		p.out[outputKey{n.ID, i}] = o
		n.Ports[i].Bounded, n.Ports[i].Windowing = o.bounded, o.windowing
	}
	return true
}

// port describes an output of type T.
func port[T any](p *Pipeline, name string) kernel.Port {
	c, err := coder.Of[T](p.coders...)
	if err != nil {
		c = noCoder[T]{err}
	}
	return kernel.Port{Name: name, Type: reflect.TypeFor[T]().String(), Codec: kernel.NewCodec(c), Coder: coder.SpecOf(c)}
}

// noCoder is the coder of a type without one: it fails where bytes are needed. A collection that never
// leaves its goroutine needs none.
type noCoder[T any] struct{ err error }

// Spec says that there is none.
func (n noCoder[T]) Spec() coder.Spec {
	return coder.Spec{URN: "millstream:coder:none:v1", Detail: reflect.TypeFor[T]().String()}
}

func (n noCoder[T]) Append([]byte, T) ([]byte, error)         { return nil, n.err }
func (n noCoder[T]) Decode([]byte) (v T, _ []byte, err error) { return v, nil, n.err }

// forward is an input that stays in its subtask where it can.
func forward[T any](in PCollection[T]) kernel.Edge {
	c := in.node.Ports[in.port].Codec.(*kernel.Codec[T])
	return kernel.Edge{From: in.node, Port: in.port, Exchange: kernel.Forward, Codec: c, Splitter: kernel.Unkeyed(c)}
}

// keyed is an input exchanged by key.
func keyed[K comparable, V any](in PCollection[KV[K, V]], key coder.Key[K]) kernel.Edge {
	c := in.node.Ports[in.port].Codec.(*kernel.Codec[KV[K, V]])
	return kernel.Edge{From: in.node, Port: in.port, Exchange: kernel.ByKey, Codec: c, Splitter: kernel.Keyed(key, c)}
}

// encodedBy is a part of a step's state that a coder says all about.
func encodedBy(kind string, s coder.Spec) kernel.StatePart {
	return kernel.StatePart{Kind: kind, Coder: &s}
}

// coderFor returns the coder of T or records that a step needs one.
func coderFor[T any](p *Pipeline, step, what string) (coder.Coder[T], bool) {
	c, err := coder.Of[T](p.coders...)
	if err != nil {
		p.errorf(step, "%s: %w", what, err)
		return nil, false
	}
	return c, true
}

// step adds a node with one input and one output that keeps the input's windows.
func step[In, Out any](name, kind string, in PCollection[In], newOp func() kernel.Operator) PCollection[Out] {
	if !in.usable(name) {
		return PCollection[Out]{p: in.p}
	}
	n := &kernel.Node{Kind: kind, Inputs: []kernel.Edge{forward(in)}, Ports: []kernel.Port{port[Out](in.p, "out")}, New: newOp}
	if !in.p.add(name, n, in.info()) {
		return PCollection[Out]{p: in.p}
	}
	return PCollection[Out]{p: in.p, node: n}
}
