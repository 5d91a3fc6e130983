package engine

import (
	"fmt"
	"strings"

	"github.com/millstream/millstream/internal/kernel"
)

// Stage is a set of nodes that run in one goroutine for each subtask: a chain.
type Stage struct {
	ID          int
	Nodes       []*kernel.Node // Nodes[0] is the root, the only one with inputs from other stages
	Parallelism int
	In, Out     []*StageEdge

	firstChannel int // number of the first input channel of subtask 0 among all channels of the job
}

// Name is that of the root: the identity of a stage across restarts of one plan.
func (s *Stage) Name() string { return s.Nodes[0].Name }

// StageEdge joins two stages.
type StageEdge struct {
	From, To *Stage
	Node     *kernel.Node // in From
	Port     int          // output port of Node
	Input    int          // input port of To's root
	kernel.Edge

	base int // first channel of the edge in the inbox of a subtask of To
}

// Number is that of a channel of the edge among all channels of the job, from 0. It follows from the stages
// alone, so every process that lays out the same plan gives a channel the same number.
func (e *StageEdge) Number(from, to int) int {
	return e.To.firstChannel + to*e.To.Channels() + e.channelOf(from)
}

// Senders are the subtasks of From that send to subtask to.
func (e *StageEdge) Senders(to int) []int {
	if e.direct() {
		return []int{to}
	}
	all := make([]int, e.From.Parallelism)
	for i := range all {
		all[i] = i
	}
	return all
}

// channels is the number of channels of the edge at one receiver.
func (e *StageEdge) channels() int {
	if e.direct() {
		return 1
	}
	return e.From.Parallelism
}

// direct says that a sender has one receiver, the subtask of the same index.
func (e *StageEdge) direct() bool {
	return e.Exchange == kernel.Forward && e.From.Parallelism == e.To.Parallelism
}

// channelOf is the channel in the receiver's inbox for a sender's subtask.
func (e *StageEdge) channelOf(sender int) int {
	if e.direct() {
		return e.base
	}
	return e.base + sender
}

// senderOf is the sender's subtask of the edge's channel c, counted from base, at a receiver's subtask.
func (e *StageEdge) senderOf(receiver, c int) int {
	if e.direct() {
		return receiver
	}
	return c
}

// Channels is the number of input channels of each subtask of the stage.
func (s *Stage) Channels() int {
	n := 0
	for _, e := range s.In {
		n += e.channels()
	}
	return n
}

// Stages fuses the nodes of a graph for a parallelism. A node is fused into the stage that feeds it
// unless its input is exchanged, comes from several stages, or the parallelism changes, or it reads a side view, for
// which it must see the watermarks of its inputs apart. At parallelism 1 an exchange by key moves nothing, and is
// fused too.
func Stages(g *kernel.Graph, parallelism int) ([]*Stage, error) {
	if parallelism < 1 {
		return nil, fmt.Errorf("parallelism %d: must be at least 1", parallelism)
	}
	var stages []*Stage
	of := make([]*Stage, len(g.Nodes))
	channels := 0
	for i, n := range g.Nodes {
		if n.ID != i {
			return nil, fmt.Errorf("node %q has ID %d at position %d", n.Name, n.ID, i)
		}
		par := parallelism
		if n.Single {
			par = 1
		}
		if st := fuseInto(n, of, par); st != nil {
			st.Nodes = append(st.Nodes, n)
			of[i] = st
			continue
		}
		st := &Stage{ID: len(stages), Nodes: []*kernel.Node{n}, Parallelism: par, firstChannel: channels}
		stages = append(stages, st)
		of[i] = st
		base := 0
		for port, in := range n.Inputs {
			e := &StageEdge{From: of[in.From.ID], To: st, Node: in.From, Port: in.Port, Input: port, Edge: in, base: base}
			base += e.channels()
			st.In = append(st.In, e)
			e.From.Out = append(e.From.Out, e)
		}
		channels += par * base
	}
	return stages, nil
}

// fuseInto returns the stage that n joins, or nil if it starts one.
func fuseInto(n *kernel.Node, of []*Stage, par int) *Stage {
	var st *Stage
	for _, in := range n.Inputs {
		from := of[in.From.ID]
		if in.Side != nil || in.Exchange == kernel.RoundRobin || in.Exchange == kernel.Broadcast || in.Exchange == kernel.ByKey && par > 1 {
			return nil
		}
		if st != nil && st != from || from.Parallelism != par {
			return nil
		}
		st = from
	}
	return st
}

// Streams says what travels between the stages, which an overtaking checkpoint records: a line a stage, and after it
// one for each of its inputs, with the coder of the elements behind a tab. A checkpoint is restored into the same
// stages and inputs, and, if it recorded something, the same coders.
func Streams(stages []*Stage) string {
	var b strings.Builder
	for _, s := range stages {
		fmt.Fprintf(&b, "stage %q of %d\n", s.Name(), s.Parallelism)
		for _, e := range s.In {
			p := e.Node.Ports[e.Port]
			fmt.Fprintf(&b, "input %d from stage %q %s\t%s\n", e.Input, e.From.Name(), e.Exchange, p.Coder)
		}
	}
	return b.String()
}
