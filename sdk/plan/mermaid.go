package plan

import (
	"fmt"
	"strings"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"

	"github.com/millstream/millstream/internal/kernel"
)

// Mermaid draws a plan as a flowchart of Mermaid, which GitHub and others show: steps, those with state as
// cylinders, sources and sinks slanted; scopes around them; on the edges how elements are exchanged, and with
// steps that assign windows which.
func Mermaid(p *pipepb.Pipeline) (string, error) {
	g, err := read(p)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	var open []string
	indent := func() string { return strings.Repeat("    ", len(open)+1) }
	ids := map[*step]string{}
	for i, s := range g.steps {
		ids[s] = fmt.Sprintf("s%d", i)
		common := 0
		for common < min(len(open), len(s.scopes)) && open[common] == s.scopes[common] {
			common++
		}
		for len(open) > common {
			open = open[:len(open)-1]
			b.WriteString(indent() + "end\n")
		}
		for _, id := range s.scopes[common:] {
			fmt.Fprintf(&b, "%ssubgraph %s_%d[\"%s\"]\n", indent(), ids[s], len(open), escape(id))
			open = append(open, id)
		}
		left, right := shape(s)
		fmt.Fprintf(&b, "%s%s%s\"%s\"%s\n", indent(), ids[s], left, label(s), right)
	}
	for len(open) > 0 {
		open = open[:len(open)-1]
		b.WriteString(indent() + "end\n")
	}
	for _, s := range g.steps {
		for _, in := range s.inputs {
			var words []string
			if in.tag != "out" {
				words = append(words, escape(in.tag))
			}
			if in.exchange != kernel.Forward.String() {
				words = append(words, escape(in.exchange))
			}
			arrow := "-->"
			if len(words) > 0 {
				arrow = fmt.Sprintf("-->|\"%s\"|", strings.Join(words, ", "))
			}
			fmt.Fprintf(&b, "    %s %s %s\n", ids[in.from], arrow, ids[s])
		}
	}
	return b.String(), nil
}

func shape(s *step) (left, right string) {
	switch s.Kind {
	case "read":
		return "[/", "/]"
	case "write":
		return "[\\", "\\]"
	}
	if s.stateful() {
		return "[(", ")]"
	}
	return "[", "]"
}

// label is what stands in a step: its name, what it does, and which windows or state it has.
func label(s *step) string {
	name := s.name[strings.LastIndexByte(s.name, '/')+1:]
	lines := []string{escape(name), "<i>" + escape(s.Kind) + "</i>"}
	if out, ok := s.outs["out"]; ok && s.Kind == "window" {
		lines = append(lines, escape(out.windowing[0]))
	} else if ok && len(s.inputs) == 0 {
		lines = append(lines, escape(out.boundedness))
	}
	for _, p := range s.State {
		if p.Kind == "cell" || p.Kind == "timer" {
			lines = append(lines, escape(p.label()))
		}
	}
	return strings.Join(lines, "<br/>")
}

// escape makes text of what Mermaid or HTML would take for something else.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\"#<>&;`", r) {
			fmt.Fprintf(&b, "#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
