package cuda

import (
	"fmt"
	"sync"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
)

// Lower returns the kernels of a card with a compute capability, such as 75, and a number of multiprocessors;
// nil: there are none for it.
func Lower(capability, sms int) engine.Lowering {
	target := kernels.Target(capability)
	if target == 0 {
		return nil
	}
	return &outlines{target: target, sms: sms, known: map[string]*outline{}}
}

// outlines lowers for sizes and work alone. All addresses are the same, so that what can be done in place is, and
// everything is aligned: what a node becomes then depends on its operation and the types of its operands and
// results, and on nothing else. Most nodes of a program are equal in that, as layers repeat and plans that are
// compared have most of their nodes in common, so each is lowered once. Consecutive steps of an optimizer are lowered
// together, as they share launches.
type outlines struct {
	target, sms int
	lock        sync.Mutex
	known       map[string]*outline // by graph.AppendContent of the nodes
}

// outline is what one or several nodes become, wherever their operands are.
type outline struct {
	launches  []outlineLaunch
	workspace int64
	tables    int64 // in bytes, without the codebooks, which a program has once
	books     bool  // whether it needs these
	err       error
}

// outlineLaunch is a kernel, and the indices of the nodes that it is launched for.
type outlineLaunch struct {
	kernel *engine.Kernel
	nodes  []int
}

// lower lowers nodes that have not been lowered before.
func (o *outlines) lower(nodes []*graph.Node) *outline {
	c := &code{target: o.target, sms: o.sms, sizesOnly: true}
	l := &lowering{code: c, place: func(*graph.Value) (address, error) { return address{}, nil }}
	if err := l.nodes(nodes); err != nil {
		return &outline{err: err}
	}
	x := &outline{workspace: c.workspace, tables: c.tableBytes(), books: c.books != nil}
	if x.books {
		x.tables -= bookBytes
	}
	index := make(map[*graph.Node]int, len(nodes))
	for i, n := range nodes {
		index[n] = i
	}
	for _, d := range l.described() {
		of := []int{index[d.Node]}
		for _, n := range d.Also {
			of = append(of, index[n])
		}
		x.launches = append(x.launches, outlineLaunch{d.Kernel, of})
	}
	return x
}

// of returns what nodes become; key is their content.
func (o *outlines) of(nodes []*graph.Node, key []byte) *outline {
	o.lock.Lock()
	defer o.lock.Unlock()
	x := o.known[string(key)]
	if x == nil {
		x = o.lower(nodes)
		o.known[string(key)] = x
	}
	return x
}

// each calls f with what the nodes of a function become, in order, one node or several consecutive steps at a time.
func (o *outlines) each(nodes []*graph.Node, f func(nodes []*graph.Node, x *outline)) error {
	var key []byte
	call := func(nodes []*graph.Node) error {
		if len(nodes) == 0 {
			return nil
		}
		key = key[:0]
		for _, n := range nodes {
			key = graph.AppendContent(key, n)
		}
		x := o.of(nodes, key)
		if x.err == nil {
			f(nodes, x)
		}
		return x.err
	}
	var steps []*graph.Node
	for i, n := range nodes {
		if graph.IsFree(n.Op) {
			continue
		}
		if _, ok := n.Op.(graph.Optimizer); ok {
			steps = append(steps, n)
			continue
		}
		if err := call(steps); err != nil {
			return err
		}
		steps = steps[:0]
		if err := call(nodes[i : i+1]); err != nil {
			return err
		}
	}
	return call(steps)
}

// Launches implements [engine.Lowering].
func (o *outlines) Launches(nodes []*graph.Node) (list []engine.Launch, err error) {
	list = make([]engine.Launch, 0, len(nodes))
	err = o.each(nodes, func(nodes []*graph.Node, x *outline) {
		for _, l := range x.launches {
			launch := engine.Launch{Node: nodes[l.nodes[0]], Kernel: l.kernel}
			for _, i := range l.nodes[1:] {
				launch.Also = append(launch.Also, nodes[i])
			}
			list = append(list, launch)
		}
	})
	return list, err
}

// Workspace implements [engine.Lowering].
func (o *outlines) Workspace(p *engine.Program) (int64, error) {
	var workspace, tables int64
	books := false
	for _, f := range p.Funcs {
		err := o.each(f.F.Nodes, func(_ []*graph.Node, x *outline) {
			workspace, tables, books = max(workspace, x.workspace), tables+x.tables, books || x.books
		})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if books {
		tables += bookBytes
	}
	return workspace + tables, nil
}
