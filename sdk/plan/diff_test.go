package plan_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/plan"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// TestDiffSaysWhatTheScriptsSay compares the two plans of each script of testdata/diff. A script has comments, the
// steps of both plans, and the comparison:
//
//	old [NAME] [groups=N]
//	KIND NAME [INPUT …] [by-key|round-robin] [single] [fn=TYPE] [type=CODER] [windows=SIZE] [state:PART=ENCODING …]
//	new …
//	diff
//
// Words of more than one word have dots in place of spaces.
func TestDiffSaysWhatTheScriptsSay(t *testing.T) {
	files, err := filepath.Glob("testdata/diff/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			head, _, found := strings.Cut(string(script), "\ndiff\n")
			if !found {
				t.Fatal("it has no line \"diff\"")
			}
			graphs, plans := scripted(t, head)
			changes, err := plan.Diff(plans["old"], plans["new"])
			if err != nil {
				t.Fatal(err)
			}
			agrees(t, graphs["old"], graphs["new"], changes)
			got := head + "\ndiff\n" + changes.String()
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(script), got); diff != "" {
				t.Errorf("(-script +diff):\n%s", diff)
			}
		})
	}
}

// TestDiffTakesAnyPlanThatReads: a saved plan may have been edited.
func TestDiffTakesAnyPlanThatReads(t *testing.T) {
	now := planOf(t, windows)
	edited := proto.CloneOf(now)
	w := edited.Components.Transforms["fixed"]
	w.Outputs = map[string]string{"elsewhere": w.Outputs["out"]}
	for _, plans := range [][2]*pipepb.Pipeline{{now, edited}, {edited, now}} {
		changes, err := plan.Diff(plans[0], plans[1])
		if err != nil || len(changes.Steps) != 1 || changes.Steps[0].Step != "fixed" {
			t.Errorf("%v, %v", changes, err)
		}
	}
	if _, err := plan.Mermaid(edited); err != nil {
		t.Error(err)
	}
}

type scriptGraph struct {
	*kernel.Graph
	groups int
}

// scripted builds the graphs of a script, and their plans.
func scripted(t *testing.T, script string) (map[string]scriptGraph, map[string]*pipepb.Pipeline) {
	t.Helper()
	graphs, plans := map[string]scriptGraph{}, map[string]*pipepb.Pipeline{}
	which := ""
	for lines := bufio.NewScanner(strings.NewReader(script)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "old" || words[0] == "new":
			which = words[0]
			g := scriptGraph{&kernel.Graph{Name: "job"}, 256}
			for _, w := range words[1:] {
				if n, ok := strings.CutPrefix(w, "groups="); ok {
					if _, err := fmt.Sscan(n, &g.groups); err != nil {
						t.Fatal(err)
					}
				} else {
					g.Name = w
				}
			}
			graphs[which] = g
		default:
			addNode(t, graphs[which].Graph, words)
		}
	}
	for which, g := range graphs {
		p, err := plan.Of(g.Graph, g.groups)
		if err != nil {
			t.Fatal(err)
		}
		plans[which] = p
	}
	return graphs, plans
}

func spaced(s string) string { return strings.ReplaceAll(s, ".", " ") }

func addNode(t *testing.T, g *kernel.Graph, words []string) {
	t.Helper()
	n := &kernel.Node{ID: len(g.Nodes), Kind: spaced(words[0]), Name: spaced(words[1]), Loc: fmt.Sprintf("main.go:%d", 10+len(g.Nodes))}
	port := kernel.Port{
		Name: "out", Coder: coder.Spec{URN: "beam:coder:varint:v1"}, Bounded: true,
		Windowing: kernel.Strategy{Fn: window.Global(), Trigger: trigger.Canonical(trigger.AfterWatermark())},
	}
	exchange := kernel.Forward
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case w == "by-key":
			exchange = kernel.ByKey
		case w == "round-robin":
			exchange = kernel.RoundRobin
		case w == "single":
			n.Single = true
		case key == "fn":
			n.Fn = value
		case key == "type":
			port.Coder.URN = "beam:coder:" + value + ":v1"
		case key == "windows":
			var minutes int
			if _, err := fmt.Sscan(value, &minutes); err != nil {
				t.Fatal(err)
			}
			port.Windowing.Fn = window.Fixed(time.Duration(minutes) * time.Minute)
		case strings.HasPrefix(key, "state:"):
			kind, name, _ := strings.Cut(strings.TrimPrefix(key, "state:"), ":")
			part := kernel.StatePart{Kind: kind, Name: name, Type: spaced(value)}
			if kind == "cell" || kind == "key" {
				part.Type, part.Coder = "", &coder.Spec{URN: "beam:coder:" + value + ":v1"}
			}
			if kind == "cell" {
				part.Type = "value"
			}
			n.State = append(n.State, part)
		default:
			i := slices.IndexFunc(g.Nodes, func(o *kernel.Node) bool { return o.Name == spaced(w) })
			if i < 0 {
				t.Fatalf("%q: no step %q", words, w)
			}
			n.Inputs = append(n.Inputs, kernel.Edge{From: g.Nodes[i]})
		}
	}
	for i := range n.Inputs {
		n.Inputs[i].Exchange = exchange
	}
	if n.Kind != "write" {
		n.Ports = []kernel.Port{port}
	}
	g.Nodes = append(g.Nodes, n)
}

// agrees holds the verdict against what a runner would find: the coordinator compares StatePlans, and a subtask
// looks up its stage and those of its steps that keep something.
func agrees(t *testing.T, old, new scriptGraph, c *plan.Changes) {
	t.Helper()
	refused := old.Name != new.Name || old.groups != new.groups || old.StatePlan(old.groups) != new.StatePlan(new.groups)
	layout := func(g *kernel.Graph) map[string]string {
		stages, err := engine.Stages(g, 2)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, st := range stages {
			what := ""
			for _, e := range st.In {
				what += fmt.Sprintf("%s %s %s %d; ", e.From.Name(), e.Exchange, e.Node.Ports[e.Port].Coder, e.From.Parallelism)
			}
			for _, n := range st.Nodes {
				if len(n.State) > 0 {
					what += n.Name + " "
				}
			}
			out[st.Name()] = what
		}
		return out
	}
	refused = refused || !cmp.Equal(layout(old.Graph), layout(new.Graph))
	if refused != (len(c.Obstacles) > 0) {
		t.Errorf("obstacles are %q, but a runner says: refused is %v\n%s\n%s", c.Obstacles, refused, old.Plan(), new.Plan())
	}
}

// TestVerdictIsTheRunners changes random pipelines at random and asks both.
func TestVerdictIsTheRunners(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("PLAN_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PLAN_SEED=%d go test ./sdk/plan -run %s", seed, t.Name())
	r := rand.New(rand.NewPCG(seed, 1))
	refused, accepted := 0, 0
	for range 2000 {
		lines := randomSteps(r)
		changed := mutate(r, slices.Clone(lines))
		graphs, plans := scripted(t, "old\n"+strings.Join(lines, "\n")+"\nnew\n"+strings.Join(changed, "\n"))
		changes, err := plan.Diff(plans["old"], plans["new"])
		if err != nil {
			t.Fatal(err)
		}
		agrees(t, graphs["old"], graphs["new"], changes)
		if len(changes.Obstacles) > 0 {
			refused++
		} else if len(changes.Steps) > 0 {
			accepted++
		}
		if t.Failed() {
			t.Fatalf("old\n%s\nnew\n%s", strings.Join(lines, "\n"), strings.Join(changed, "\n"))
		}
	}
	if refused < 100 || accepted < 100 {
		t.Errorf("%d were refused, %d accepted with changes: too few to tell", refused, accepted)
	}
}

func randomSteps(r *rand.Rand) (lines []string) {
	for i := range 2 + r.IntN(6) {
		from := func() string { return fmt.Sprintf("s%d", r.IntN(max(i, 1))) }
		line := "read s%d state:split=varint"
		if i > 0 {
			line = []string{
				"map s%d " + from(), "filter s%d " + from(), "window s%d " + from() + " windows=60", "reshuffle s%d round-robin " + from(),
				"flatten s%d " + from() + " " + from(), "combine s%d by-key " + from() + " state:key=bool state:accumulator=varint",
				"combine s%d single by-key " + from() + " state:key=bool",
				"keyed.pardo s%d by-key " + from() + " state:key=varint state:cell:n=bool", "read s%d state:split=bool",
			}[r.IntN(9)]
		}
		lines = append(lines, fmt.Sprintf(line, i))
	}
	return lines
}

// mutate makes one change, or none.
func mutate(r *rand.Rand, lines []string) []string {
	i := r.IntN(len(lines))
	switch r.IntN(8) {
	case 0:
		lines[i] = strings.ReplaceAll(lines[i], "bool", "double")
	case 1:
		lines[i] += " type=string_utf8"
	case 2:
		return append(lines, "map extra s0")
	case 3:
		return append(lines, "reshuffle extra round-robin s0")
	case 4: // another name
		for k := range lines {
			lines[k] = strings.Join(slices.Collect(func(yield func(string) bool) {
				for _, w := range strings.Fields(lines[k]) {
					if w == fmt.Sprintf("s%d", i) {
						w = "renamed"
					}
					if !yield(w) {
						return
					}
				}
			}), " ")
		}
	case 5:
		lines[i] = strings.Replace(strings.Replace(lines[i], "round-robin", "forward", 1), "by-key", "forward", 1)
		lines[i] = strings.Replace(lines[i], " forward", "", 1)
	case 6: // without the last
		if len(lines) > 1 {
			return lines[:len(lines)-1]
		}
	}
	return lines
}
