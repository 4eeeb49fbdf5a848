package graph

import "fmt"

// Dequantize is a quantized matrix in float32, for operations that cannot read it as
// [MatMul] does.
type Dequantize struct{}

// decodeFLOPs is the work of decoding an element.
const decodeFLOPs = 2

// Name is "dequantize".
func (Dequantize) Name() string { return "dequantize" }

// Infer wants a quantized matrix.
func (Dequantize) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if !in[0].DType.Quantized() {
		return nil, fmt.Errorf("operand 0 is %v, want a quantized type", in[0])
	}
	return []Type{{F32, in[0].Shape.Clone()}}, nil
}

// Grad: what is quantized is frozen.
func (Dequantize) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is one pass over memory.
func (Dequantize) Cost(in, out []Type) Cost { return traffic(in, out, decodeFLOPs) }

// Dequantize is x in float32; see [Dequantize].
func (b *Builder) Dequantize(x *Value) *Value { return b.emit1(Dequantize{}, x) }
