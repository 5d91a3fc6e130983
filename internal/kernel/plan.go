package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Plan is the canonical text of a graph: two processes that build the same pipeline have the same Plan
// byte for byte.
func (g *Graph) Plan() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan 1 %q\n", g.Name)
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "step %q %s\n", n.Name, n.Kind)
		for _, e := range n.Inputs {
			fmt.Fprintf(&b, "\tinput %q %d %s\n", e.From.Name, e.Port, e.Exchange)
		}
		for _, p := range n.Ports {
			fmt.Fprintf(&b, "\toutput %q %s\n", p.Name, p.Type)
		}
		if n.Single {
			b.WriteString("\tsingle\n")
		}
		for _, s := range n.Spec {
			fmt.Fprintf(&b, "\tspec %s\n", s)
		}
		for _, s := range n.State {
			fmt.Fprintf(&b, "\tstate %s\n", s)
		}
	}
	return b.String()
}

// StatePlan is the part of Plan that a checkpoint depends on: the steps with state, how it is encoded, and
// the number of key groups.
func (g *Graph) StatePlan(groups int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state 1 groups=%d\n", groups)
	for _, n := range g.Nodes {
		if len(n.State) > 0 {
			fmt.Fprintf(&b, "step %q %s", n.Name, n.Kind)
			for _, s := range n.State {
				fmt.Fprintf(&b, " %s", s)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Digest is the SHA-256 of the parts, in hex. No two lists of parts have the same one.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Unbounded says whether some source never ends.
func (g *Graph) Unbounded() bool {
	for _, n := range g.Nodes {
		if n.Unbounded {
			return true
		}
	}
	return false
}
