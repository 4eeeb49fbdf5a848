package graph

import (
	"fmt"
	"slices"
	"strings"
)

// The limits of a Body: devices keep its registers, and the addresses of its
// operands, in tables of fixed size.
const (
	MaxRegisters   = 24 // inputs and instructions
	MaxBodyResults = 8
)

// Body is a small program of elementwise functions that runs over one tile at a time, so
// that the values between its instructions never go to memory. Registers 0..Inputs-1 are
// the inputs; instruction i writes register Inputs+i. Each register is rounded to its
// type, so that a fused program gives the same bits as the unfused one.
type Body struct {
	Inputs int
	Instrs []Instr
	// Results are the registers that become results.
	Results []int
}

// Instr is one instruction of a Body.
type Instr struct {
	// Op is an Elementwise or a Dropout.
	Op  Op
	Arg []int
	// DType is the format that the result is rounded to.
	DType DType
}

// BodyOf returns what a fused operation does to its elements; nil: nothing was fused into it.
func BodyOf(op Op) *Body {
	switch op := op.(type) {
	case Fused:
		return op.Body
	case MatMul:
		return op.Body
	case Pool2D:
		return op.Body
	case Pool2DGrad:
		return op.Pool.Body
	}
	return nil
}

func (bd *Body) String() string {
	var s strings.Builder
	for i := range bd.Instrs {
		s.WriteString(bd.InstrString(i) + "; ")
	}
	fmt.Fprintf(&s, "out %v", bd.Results)
	return s.String()
}

// InstrString is the part of String about an instruction.
func (bd *Body) InstrString(i int) string {
	st := bd.Instrs[i]
	text := fmt.Sprintf("r%d=%s%v", bd.Inputs+i, opString(st.Op), st.Arg)
	if st.DType != F32 {
		text += fmt.Sprintf(":%v", st.DType)
	}
	return text
}

// Addend returns the register that instruction i adds to register r, if nothing else is done with r.
func (bd *Body) Addend(i, r int) (q int, ok bool) {
	s := bd.Instrs[i]
	if op, add := s.Op.(Elementwise); !add || op.Fn != FnAdd || bd.uses(r) != 1 || !slices.Contains(s.Arg, r) {
		return 0, false
	}
	return s.Arg[0] + s.Arg[1] - r, true
}

// uses is how often a register is read or becomes a result.
func (bd *Body) uses(r int) (n int) {
	lists := [][]int{bd.Results}
	for _, s := range bd.Instrs {
		lists = append(lists, s.Arg)
	}
	for _, list := range lists {
		for _, x := range list {
			if x == r {
				n++
			}
		}
	}
	return n
}

// After returns what is left of a body when its first n instructions have been executed, and register r is all
// that is needed of them. Input 0 of the rest is r; inputs lists those of the body that are its inputs 1, 2, ...
func (bd *Body) After(n, r int) (rest *Body, inputs []int) {
	left := &Body{Instrs: bd.Instrs[n:], Results: bd.Results}
	moved := map[int]int{r: 0}
	for i := range bd.Inputs {
		if i != r && left.uses(i) > 0 {
			inputs = append(inputs, i)
			moved[i] = len(inputs)
		}
	}
	rest = &Body{Inputs: 1 + len(inputs)}
	for i, s := range left.Instrs {
		moved[bd.Inputs+n+i] = rest.Inputs + i
		rest.Instrs = append(rest.Instrs, Instr{s.Op, renumbered(s.Arg, moved), s.DType})
	}
	rest.Results = renumbered(bd.Results, moved)
	return rest, inputs
}

// renumbered is a list of registers with their new numbers.
func renumbered(list []int, moved map[int]int) []int {
	out := make([]int, len(list))
	for i, r := range list {
		out[i] = moved[r]
	}
	return out
}

// types are the types of all registers.
func (bd *Body) types(in []Type) ([]Type, error) {
	if len(in) != bd.Inputs {
		return nil, fmt.Errorf("body wants %d inputs, got %d", bd.Inputs, len(in))
	}
	if r := bd.Inputs + len(bd.Instrs); r > MaxRegisters || len(bd.Results) > MaxBodyResults {
		return nil, fmt.Errorf("body has %d registers and %d results, at most %d and %d", r, len(bd.Results), MaxRegisters, MaxBodyResults)
	}
	regs := append([]Type(nil), in...)
	for i, st := range bd.Instrs {
		args := make([]Type, len(st.Arg))
		for j, a := range st.Arg {
			if a < 0 || a >= len(regs) {
				return nil, fmt.Errorf("body instruction %d reads register %d", i, a)
			}
			args[j] = regs[a]
		}
		out, err := st.Op.Infer(args)
		if err != nil {
			return nil, fmt.Errorf("body instruction %d: %s: %w", i, st.Op.Name(), err)
		}
		regs = append(regs, out[0].With(st.DType))
	}
	return regs, nil
}

func (bd *Body) infer(in []Type) ([]Type, error) {
	regs, err := bd.types(in)
	if err != nil {
		return nil, err
	}
	out := make([]Type, len(bd.Results))
	for i, r := range bd.Results {
		out[i] = regs[r]
	}
	return out, nil
}

// flops is the work per element.
func (bd *Body) flops() float64 {
	n := 0.0
	for _, st := range bd.Instrs {
		if e, ok := st.Op.(Elementwise); ok {
			n += fns[e.Fn].flops
		} else {
			n += 12
		}
	}
	return n
}

// Fused runs a Body over operands that broadcast to the shape of its first result.
// It is made by the fuse pass, after differentiation.
type Fused struct {
	Body *Body
	// Reductions reduce the last results of the body: these are summed, all over the same
	// columns, instead of being written to memory; see [Reduce.Columns].
	Reductions []Reduce
}

// Name is "fused".
func (Fused) Name() string { return "fused" }

// Infer types the registers, and the sums.
func (f Fused) Infer(in []Type) ([]Type, error) {
	out, err := f.Body.infer(in)
	if err != nil || len(f.Reductions) == 0 {
		return out, err
	}
	first := len(out) - len(f.Reductions)
	if first < 1 {
		return nil, fmt.Errorf("%d of %d results are sums: want at least one that is not", len(f.Reductions), len(out))
	}
	s := out[0].Shape
	_, rows, cols, _ := f.Reductions[0].Columns(s)
	for k, r := range f.Reductions {
		_, m, n, ok := r.Columns(s)
		if !ok || m != rows || n != cols || !out[first+k].Shape.Equal(s) {
			return nil, fmt.Errorf("%s %d is over the rows of %v, the first reduction over those of %v: want the same rows", r.Name(), k, out[first+k], s)
		}
		sum, err := r.Infer(out[first+k : first+k+1])
		if err != nil {
			return nil, err
		}
		out[first+k] = sum[0]
	}
	return out, nil
}

// Grad: fusion comes after differentiation.
func (f Fused) Grad(b *Builder, _ *Node, _ []*Value) []*Value {
	b.Failf("fused: programs are differentiated before they are fused")
	return nil
}

// Cost is one pass over memory.
func (f Fused) Cost(in, out []Type) Cost {
	return traffic(in, out, f.Body.flops()+float64(len(f.Reductions)))
}

// InplaceOperands: any operand of the result's type may be overwritten.
func (f Fused) InplaceOperands(n *Node) []int {
	return Elementwise{}.InplaceOperands(n)
}
