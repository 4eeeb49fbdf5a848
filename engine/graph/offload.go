package graph

import (
	"fmt"
	"slices"
)

// An optimizer's states can be kept in the host's memory ([State.Offloaded]). No kernel
// reads them there: a window of them is copied to the device by [Fetch], updated in place
// with the part of its weight by [StepPart], and copied back by [WriteBack].

// Fetch copies Elems elements of an offloaded state, from From on, to the device. Devices
// may begin it at once and go on: the node that reads its result waits for it.
type Fetch struct{ From, Elems int64 }

// Name is "fetch".
func (Fetch) Name() string { return "fetch" }

// Infer returns a vector of the state's format.
func (f Fetch) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if n := in[0].Shape.Elems(); f.From < 0 || f.Elems < 1 || f.From+f.Elems > n {
		return nil, fmt.Errorf("elements %d to %d of %v: it has %d", f.From, f.From+f.Elems, in[0], n)
	}
	return []Type{T(in[0].DType, int(f.Elems))}, nil
}

// Grad: states are not differentiated through.
func (Fetch) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is none on the device: [Transferred] counts the bytes that cross to it.
func (Fetch) Cost(_, _ []Type) Cost { return Cost{} }

// WriteBack copies what [Fetch] brought, and a step has changed, back to its place in the
// offloaded state that is the first operand. Devices may begin it as soon as the second operand
// is computed; when they reach this node, that operand's memory is free.
type WriteBack struct{ From int64 }

// Name is "write_back".
func (WriteBack) Name() string { return "write_back" }

// Infer keeps the state's type.
func (w WriteBack) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	if n := in[1].Shape.Elems(); in[0].DType != in[1].DType || w.From < 0 || w.From+n > in[0].Shape.Elems() {
		return nil, fmt.Errorf("%v does not fit into %v from element %d on", in[1], in[0], w.From)
	}
	return []Type{in[0]}, nil
}

// Aliases: the state is written in place.
func (WriteBack) Aliases(int) []Alias { return []Alias{{0, 0}} }

// Grad: states are not differentiated through.
func (WriteBack) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil, nil} }

// Cost is none on the device: [Transferred] counts the bytes that cross from it.
func (WriteBack) Cost(_, _ []Type) Cost { return Cost{} }

// Transferred returns the bytes that n copies to the device and from it.
func Transferred(n *Node) (in, out int64) {
	switch n.Op.(type) {
	case Fetch:
		return n.Out[0].Type.Bytes(), 0
	case WriteBack:
		return 0, n.In[1].Type.Bytes()
	}
	return 0, 0
}

// StepPart is an optimizer's step for a range of the elements of a weight, from From on.
// Operands are those of Step, with the weight and its gradient whole but only that range of
// the states: the first state, which has one element for each of the weight, determines its
// length.
type StepPart struct {
	Step Optimizer
	From int64
}

// Name is the step's with "_part".
func (s StepPart) Name() string { return s.Step.Name() + "_part" }

// Shared implements Optimizer.
func (s StepPart) Shared() Op { return s.Step.Shared() }

// States implements Optimizer.
func (s StepPart) States() int { return s.Step.States() }

// part returns the operands of Step for the elements of the part.
func (s StepPart) part(in []Type) []Type {
	in = slices.Clone(in)
	for i := range min(2, len(in)) {
		in[i] = T(in[i].DType, int(in[2].Shape.Elems()))
	}
	return in
}

// Infer applies the step's rule to the part.
func (s StepPart) Infer(in []Type) ([]Type, error) {
	if len(in) < 2+s.States() || s.States() == 0 {
		return nil, fmt.Errorf("takes a weight, its gradient and states, got %v", in)
	}
	if n := in[2].Shape.Elems(); s.From < 0 || s.From+n > in[0].Shape.Elems() {
		return nil, fmt.Errorf("elements %d to %d of %v: it has %d", s.From, s.From+n, in[0], in[0].Shape.Elems())
	}
	if err := gradientOf(in[0], in[1]); err != nil {
		return nil, err
	}
	out, err := s.Step.Infer(s.part(in))
	if err != nil {
		return nil, err
	}
	for _, a := range s.Aliases(len(in)) {
		out[a.Out] = in[a.In]
	}
	return out, nil
}

// Aliases are the step's.
func (s StepPart) Aliases(operands int) []Alias { return Aliases(s.Step, operands) }

// Autocast is the step's.
func (s StepPart) Autocast(in []Type, compute DType) ([]DType, Op) {
	types, _ := s.Step.Autocast(in, compute)
	return types, s
}

// Grad: a step is not differentiated.
func (s StepPart) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, s) }

// Cost is the step's for the part.
func (s StepPart) Cost(in, _ []Type) Cost {
	in = s.part(in)
	out, err := s.Step.Infer(in)
	if err != nil {
		return Cost{}
	}
	return s.Step.Cost(in, out)
}

// StateRange returns the elements of an optimizer's state that belong to elems elements
// of a weight from from on. A state has one element for each of the weight's, or one for
// each [MomentBlock] of them.
func StateRange(state, weight Type, from, elems int64) (first, n int64) {
	if state.Shape.Elems() == weight.Shape.Elems() {
		return from, elems
	}
	return from / MomentBlock, (elems + MomentBlock - 1) / MomentBlock
}

// Staged reports whether v is a part of an offloaded state on the device, which steps
// change in place.
func Staged(v *Value) bool {
	for v.Node != nil {
		if _, ok := v.Node.Op.(Fetch); ok {
			return true
		}
		from := -1
		for _, a := range Aliases(v.Node.Op, len(v.Node.In)) {
			if a.Out == v.Index {
				from = a.In
			}
		}
		if from < 0 {
			return false
		}
		v = v.Node.In[from]
	}
	return false
}
