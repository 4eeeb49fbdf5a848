package graph

import "fmt"

// Op is an operation: a comparable-by-print struct of attributes with its rules.
type Op interface {
	// Name is the lower-case name that prints and messages use.
	Name() string
	// Infer is the shape rule: the types of the results for the operands'
	// types, or an error that says what was expected.
	Infer(in []Type) ([]Type, error)
	// Grad emits the gradients of the operands of n given those of its results
	// (nil where a result does not influence the loss). A nil entry means that
	// no gradient flows to that operand.
	Grad(b *Builder, n *Node, dout []*Value) []*Value
	// Cost counts the work of the operation.
	Cost(in, out []Type) Cost
}

// Cost is the arithmetic and the least memory traffic of an operation.
type Cost struct {
	// FLOPs counts floating-point operations, a multiply-add as two.
	FLOPs float64
	// MatrixFLOPs is the part of FLOPs done by matrix units or microkernels.
	MatrixFLOPs float64
	// Bytes is what must be read and written once.
	Bytes float64
}

// Add is the sum of both costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.FLOPs + d.FLOPs, c.MatrixFLOPs + d.MatrixFLOPs, c.Bytes + d.Bytes}
}

// traffic is the cost of reading every operand and writing every result once, with flops
// operations per result element.
func traffic(in, out []Type, flops float64) Cost {
	var c Cost
	for _, t := range in {
		c.Bytes += float64(t.Bytes())
	}
	for i, t := range out {
		c.Bytes += float64(t.Bytes())
		if i == 0 {
			c.FLOPs = flops * float64(t.Shape.Elems())
		}
	}
	return c
}

// want checks the number of operands.
func want(in []Type, n int) error {
	if len(in) != n {
		return fmt.Errorf("takes %d operands, got %d", n, len(in))
	}
	return nil
}

// reals checks that the operands are floating-point: there are no kernels for integer
// arithmetic.
func reals(in ...Type) error {
	for i, t := range in {
		if !t.DType.Float() {
			return fmt.Errorf("operand %d is %v, want a floating-point type", i, t)
		}
	}
	return nil
}

// full checks that the operands are F32, for operations that take no part in
// mixed precision.
func full(in ...Type) error {
	for i, t := range in {
		if t.DType != F32 {
			return fmt.Errorf("operand %d is %v, want f32", i, t)
		}
	}
	return nil
}

// onlyFirst refuses a gradient that arrives at any result except the first of an
// operation whose further results are not differentiated.
func onlyFirst(b *Builder, op Op, dout []*Value) {
	for i, d := range dout {
		if i > 0 && d != nil {
			b.Failf("%s: the loss depends on result %d, whose gradient is not provided", op.Name(), i)
		}
	}
}

// Alias says that result Out is operand In written in place.
type Alias struct{ Out, In int }

// Aliaser is an operation that writes operands in place. The operands must be
// states, or parts of them that [Fetch] brought, and the results are their next versions.
type Aliaser interface {
	Aliases(operands int) []Alias
}

// Aliases are the in-place writes of op, none for most.
func Aliases(op Op, operands int) []Alias {
	if a, ok := op.(Aliaser); ok {
		return a.Aliases(operands)
	}
	return nil
}

// Changes returns the names of the states that n writes.
func (n *Node) Changes() (names []string) {
	for _, v := range n.Out {
		if s := Storage(v).State; s != nil && s.Role != Activation {
			names = append(names, s.Home().Name)
		}
	}
	return names
}

// IsView reports whether op only renames storage: its only result is its first operand's buffer under another
// shape, which costs nothing. Every pass asks that of every operand, and comparing two types is faster than looking
// for a method.
func IsView(op Op) bool {
	switch op.(type) {
	case Reshape, Detach:
		return true
	}
	return false
}

// Storage returns the value whose buffer v uses: v itself, or the one it is a view of.
func Storage(v *Value) *Value {
	for v.Node != nil && IsView(v.Node.Op) {
		v = v.Node.In[0]
	}
	return v
}

// IsFree reports whether op needs no work: its result is where it belongs already.
func IsFree(op Op) bool {
	switch op.(type) {
	case SliceView, ConcatView:
		return true
	}
	return IsView(op)
}

// Inplacer is an operation that may write result 0 over operand i when that
// operand is not needed later and has the same type.
type Inplacer interface{ InplaceOperands(n *Node) []int }

// AutocastRule is an operation that takes part in mixed precision. Given the operand
// types and the 16-bit compute type, Autocast returns the type to convert each operand to
// (Invalid: leave it as it is) and the operation to use with them. The operands of other
// operations are widened to F32.
type AutocastRule interface {
	Autocast(in []Type, compute DType) ([]DType, Op)
}

// Effector is an operation that must not be repeated: recomputing it would
// change the program's meaning (running statistics, say).
type Effector interface{ Effect() }

// HasEffect reports whether op writes state or must not be repeated.
func HasEffect(op Op, operands int) bool {
	if _, ok := op.(Effector); ok {
		return true
	}
	return len(Aliases(op, operands)) > 0
}
