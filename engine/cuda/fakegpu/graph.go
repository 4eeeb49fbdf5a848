package fakegpu

import (
	"errors"

	"github.com/snug-ml/snug/engine/cuda/driver"
)

// Graph is captured work, and its instance. A capture begins in one stream; streams that wait for one of its events join.
type Graph struct {
	c      *Context
	origin *stream
	nodes  []node
	lasts  map[*stream]int // the last node of each stream; none: there is no node yet
	// broken is the error that ended the capture: every later call of it fails.
	broken             *driver.Error
	uploaded, launched bool
}

// invalidate ends the capture because of a call that it does not allow. The context is locked.
func (g *Graph) invalidate(call string, code driver.Code) error {
	if g.broken != nil {
		return g.invalidated(call)
	}
	g.broken = &driver.Error{Call: call, Code: code}
	return g.broken
}

// invalidated returns the error of a call after the capture was ended.
func (g *Graph) invalidated(call string) error {
	if g.broken == nil {
		return nil
	}
	return &driver.Error{Call: call, Code: driver.CaptureInvalidated}
}

// none stands for no node.
const none = -1

// node is an operation of a graph; before are the nodes that must come first: the previous one in its stream,
// and the one whose event it waits for.
type node struct {
	s      *stream
	op     func() error // nil: it only waits
	before [2]int
}

// last is the last node of a stream.
func (g *Graph) last(s *stream) int { return g.lasts[s] }

// add appends a node to a stream.
func (g *Graph) add(call string, s *stream, op func() error, after int) error {
	if err := g.invalidated(call); err != nil {
		return err
	}
	g.nodes = append(g.nodes, node{s, op, [2]int{g.lasts[s], after}})
	g.lasts[s] = len(g.nodes) - 1
	return nil
}

// join makes a stream wait for a node of a graph being captured, and joins it to the capture.
func (s *stream) join(of *Graph, node int) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	const call = "cuStreamWaitEvent"
	switch {
	case s.capture == nil && of.origin.capture != of:
		return &driver.Error{Call: call, Code: driver.CapturedEvent}
	case of == nil || of.origin.capture != of:
		return s.capture.invalidate(call, driver.CaptureIsolation)
	case s.capture != nil && s.capture != of:
		return errors.Join(of.invalidate(call, driver.CaptureMerge), s.capture.invalidate(call, driver.CaptureMerge))
	case s.capture == nil:
		s.capture = of
		of.lasts[s] = none
	}
	return of.add(call, s, nil, node)
}

// unjoined returns an error if there is work that the capture's first stream does not wait for.
func (g *Graph) unjoined() error {
	reached := make([]bool, len(g.nodes))
	if at := g.lasts[g.origin]; at != none {
		reached[at] = true
	}
	for i := len(g.nodes) - 1; i >= 0; i-- {
		if !reached[i] {
			return &driver.Error{Call: "cuStreamEndCapture", Code: driver.CaptureUnjoined}
		}
		for _, b := range g.nodes[i].before {
			if b != none {
				reached[b] = true
			}
		}
	}
	return nil
}

// run executes the nodes of the capture's first stream in order, and those of other streams as late as it
// waits for them, or with [Driver.Early] as soon as all that they wait for is done: a card may do either. The
// context is locked.
func (g *Graph) run() error {
	done := make([]bool, len(g.nodes))
	var do func(i int) error
	do = func(i int) error {
		if i == none || done[i] {
			return nil
		}
		done[i] = true
		n := g.nodes[i]
		if err := errors.Join(do(n.before[0]), do(n.before[1])); err != nil {
			return err
		}
		if g.c.lost != nil {
			return g.c.lost
		}
		if n.op == nil {
			return nil
		}
		return n.op()
	}
	ready := func(i int) bool {
		for _, b := range g.nodes[i].before {
			if b != none && !done[b] {
				return false
			}
		}
		return true
	}
	for i, n := range g.nodes {
		for j := 0; g.c.driver.Early && j < len(g.nodes); j++ {
			if g.nodes[j].s != g.origin && ready(j) {
				if err := do(j); err != nil {
					return err
				}
			}
		}
		if n.s == g.origin {
			if err := do(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Instantiate makes the graph's instance, which can be launched.
func (g *Graph) Instantiate() error {
	if err := g.c.call("cuGraphInstantiate"); err != nil {
		return err
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.open++
	return nil
}

// Destroy frees the graph, but not its instance.
func (g *Graph) Destroy() error { return g.c.call("cuGraphDestroy") }

// Close implements [driver.Graph].
func (g *Graph) Close() error {
	g.c.mu.Lock()
	if g.launched {
		g.origin.launched--
	}
	g.c.mu.Unlock()
	return g.c.closing("cuGraphExecDestroy")
}
