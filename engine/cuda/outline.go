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
// compared have most of their nodes in common, so each is lowered once.
type outlines struct {
	target, sms int
	lock        sync.Mutex
	known       map[string]*outline // by graph.AppendContent
}

// outline is what nodes become, wherever their operands are.
type outline struct {
	launches  []engine.Launch // those of a single node, unlike those of several, do not name it
	workspace int64
	tables    int64 // in bytes, without the codebooks, which a program has once
	books     bool  // whether it needs these
	err       error
}

// lower describes what the given function adds to a lowering.
func (o *outlines) lower(add func(l *lowering) error) *outline {
	c := &code{target: o.target, sms: o.sms, sizesOnly: true}
	l := &lowering{code: c, place: func(*graph.Value) (address, error) { return address{}, nil }}
	if err := add(l); err != nil {
		return &outline{err: err}
	}
	x := &outline{l.described(), c.workspace, c.tableBytes(), c.books != nil, nil}
	if x.books {
		x.tables -= bookBytes
	}
	return x
}

// one returns what a single node becomes; key is its content.
func (o *outlines) one(n *graph.Node, key []byte) *outline {
	o.lock.Lock()
	defer o.lock.Unlock()
	if x := o.known[string(key)]; x != nil {
		return x
	}
	x := o.lower(func(l *lowering) error { return l.node(n) })
	for i := range x.launches {
		x.launches[i].Node = nil
	}
	o.known[string(key)] = x
	return x
}

// each calls f with what the nodes of a function become, in order. Consecutive steps of an optimizer are lowered
// together, as they share launches; n is nil for them.
func (o *outlines) each(nodes []*graph.Node, f func(n *graph.Node, x *outline)) error {
	var key []byte
	var steps []*graph.Node
	flush := func() error {
		if len(steps) == 0 {
			return nil
		}
		x := o.lower(func(l *lowering) error { return l.nodes(steps) })
		steps = nil
		f(nil, x)
		return x.err
	}
	for _, n := range nodes {
		if graph.IsView(n.Op) {
			continue
		}
		if _, step := n.Op.(graph.Optimizer); step {
			steps = append(steps, n)
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		key = graph.AppendContent(key[:0], n)
		x := o.one(n, key)
		if x.err != nil {
			return fmt.Errorf("%s (%s): %w", n.Op.Name(), n.Layer, x.err)
		}
		f(n, x)
	}
	return flush()
}

// Launches implements [engine.Lowering].
func (o *outlines) Launches(nodes []*graph.Node) (list []engine.Launch, err error) {
	list = make([]engine.Launch, 0, len(nodes))
	err = o.each(nodes, func(n *graph.Node, x *outline) {
		at := len(list)
		list = append(list, x.launches...)
		for i := at; n != nil && i < len(list); i++ {
			list[i].Node = n
		}
	})
	return list, err
}

// Workspace implements [engine.Lowering].
func (o *outlines) Workspace(p *engine.Program) (int64, error) {
	var workspace, tables int64
	books := false
	for _, f := range p.Funcs {
		err := o.each(f.F.Nodes, func(_ *graph.Node, x *outline) {
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
