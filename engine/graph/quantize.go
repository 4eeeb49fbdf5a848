package graph

import (
	"cmp"
	"fmt"
)

// Quantize converts a tensor to [Int8], with one scale per row along its last dimension.
type Quantize struct{}

// encodeFLOPs is the work of finding the scale and a code, for each element.
const encodeFLOPs = 4

// Name is "quantize".
func (Quantize) Name() string { return "quantize" }

// Infer requires a floating-point tensor with at least one dimension.
func (Quantize) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if !in[0].DType.Float() || len(in[0].Shape) == 0 {
		return nil, fmt.Errorf("operand 0 is %v, want rows of a floating-point type", in[0])
	}
	return []Type{{Int8, in[0].Shape.Clone()}}, nil
}

// Grad is the identity's: rounding has no gradient of its own.
func (Quantize) Grad(_ *Builder, _ *Node, gs []*Value) []*Value { return gs }

// Cost is one pass over memory.
func (Quantize) Cost(in, out []Type) Cost { return traffic(in, out, encodeFLOPs) }

// Quantize returns x in 8 bits; see [Quantize].
func (b *Builder) Quantize(x *Value) *Value { return b.emit1(Quantize{}, x) }

// Dequantize converts a quantized tensor to a floating-point type, for operations that
// cannot read it directly as [MatMul] can.
type Dequantize struct {
	To DType // Invalid: F32
}

// decodeFLOPs is the work of decoding an element.
const decodeFLOPs = 2

// Name is "dequantize".
func (Dequantize) Name() string { return "dequantize" }

// Infer requires a quantized tensor.
func (op Dequantize) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if !in[0].DType.Quantized() {
		return nil, fmt.Errorf("operand 0 is %v, want a quantized type", in[0])
	}
	to := cmp.Or(op.To, F32)
	if !to.Float() {
		return nil, fmt.Errorf("wants a floating-point result, not %v", to)
	}
	return []Type{{to, in[0].Shape.Clone()}}, nil
}

// Grad: quantized tensors are frozen.
func (Dequantize) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is one pass over memory.
func (Dequantize) Cost(in, out []Type) Cost { return traffic(in, out, decodeFLOPs) }

// Dequantize returns x in float32; see [Dequantize].
func (b *Builder) Dequantize(x *Value) *Value { return b.emit1(Dequantize{}, x) }
