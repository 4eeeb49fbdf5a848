package graph_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func f32(dims ...int) graph.Type { return graph.T(graph.F32, dims...) }
func i32(dims ...int) graph.Type { return graph.T(graph.I32, dims...) }
func u8(dims ...int) graph.Type  { return graph.T(graph.U8, dims...) }

// A wrong shape is refused with what was expected and what was found.
func TestShapeRuleMessages(t *testing.T) {
	type types = []graph.Type
	attention := graph.Attention{Heads: 2}
	packed := graph.Attention{Heads: 2, Layout: graph.PackedHeads}
	conv, grouped := graph.Conv(1, 1), graph.Conv(1, 1)
	grouped.Groups = 2
	pool := graph.Pool2D{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}}
	for _, c := range []struct {
		op   graph.Op
		in   types
		want string
	}{
		{graph.Elementwise{Fn: graph.FnAdd}, types{f32(2)}, "takes 2 operands, got 1"},
		{graph.Elementwise{Fn: graph.FnAdd}, types{f32(2, 3), f32(2)}, "shapes [2,3] and [2] do not broadcast: 3 against 2"},
		{graph.Constant{}, types{f32()}, "takes no operands, got 1"},
		{graph.Reshape{Shape: graph.Shape{4}}, types{f32(2, 3)}, "[2,3] has 6 elements, [4] has 4"},
		{graph.Transpose{Perm: []int{0}}, types{f32(2, 3)}, "permutation [0] does not fit shape [2,3]"},
		{graph.Transpose{Perm: []int{1, 1}}, types{f32(2, 3)}, "[1 1] is not a permutation of 2 dimensions"},
		{graph.Slice{Axis: 2, Len: 1, Step: 1}, types{f32(2, 3)}, "axis 2 is outside shape [2,3]"},
		{graph.Slice{Axis: 1, Start: 2, Len: 2, Step: 1}, types{f32(2, 3)}, "elements 2+1*i (i<2) are outside dimension 1 of [2,3]"},
		{graph.SliceGrad{Slice: graph.Slice{Len: 2, Step: 2}, Dim: 2}, types{f32(2)}, "cannot put [2] at"},
		{graph.SliceWrite{Slice: graph.Slice{Len: 2, Step: 1}}, types{f32(3), f32(3)}, "replaces f32[2], got f32[3]"},
		{graph.Concat{Axis: 1}, types{f32(2), f32(2)}, "axis 1 is outside"},
		{graph.Concat{}, types{f32(2, 3), f32(2, 4)}, "cannot join f32[2,3] and f32[2,4] along dimension 0"},
		{graph.Concat{}, types{f32(2), i32(2)}, "cannot join f32[2] and i32[2] along dimension 0"},
		{graph.Expand{Shape: graph.Shape{2}}, types{f32(3)}, "do not broadcast"},
		{graph.Expand{Shape: graph.Shape{1}}, types{f32(3)}, "[3] does not stretch to [1]"},
		{graph.Reduce{Axes: 4}, types{f32(3)}, "axis 2 is outside shape [3]"},
		{graph.MatMul{}, types{f32(2, 3)}, "wants two operands of the same rank >= 2"},
		{graph.MatMul{}, types{f32(2, 3), f32(4, 5)}, "inner dimensions differ: [2,3] (transposed: false) and [4,5] (transposed: false)"},
		{graph.MatMul{TransA: true}, types{f32(2, 3), f32(3, 5)}, "inner dimensions differ: [2,3] (transposed: true)"},
		{graph.MatMul{}, types{f32(2, 2, 3), f32(3, 3, 5)}, "batch dimensions of [2,2,3] and [3,3,5] differ"},
		{graph.MatMul{}, types{f32(2, 3), f32(3, 5), f32(2)}, "takes 2 operands, got 3"},
		{graph.MatMul{Accumulate: true}, types{f32(2, 3), f32(3, 5), f32(2)}, "accumulates into an f32[2,5] state"},
		{graph.MatMul{MapA: graph.Elementwise{Fn: graph.FnGELU}, TransA: true}, types{f32(3, 2), f32(3, 5)}, "cannot put operand 0 through gelu: wants a function of one argument that keeps the format, and an operand that is not transposed"},
		{graph.MatMul{MapB: graph.Elementwise{Fn: graph.FnAdd}}, types{f32(2, 3), f32(3, 5)}, "cannot put operand 1 through add"},
		{graph.MatMul{SumA: true}, types{f32(2, 3), f32(3, 5)}, "sums a transposed matrix, got [2,3] (transposed: false)"},
		{graph.MatMul{SumA: true, TransA: true}, types{f32(2, 3, 2), f32(2, 3, 5)}, "sums a transposed matrix"},
		{graph.MatMul{Accumulate: true, Body: &graph.Body{}}, types{f32(2, 3), f32(3, 5), f32(2, 5)}, "cannot accumulate and run a body"},
		{graph.Fused{Body: &graph.Body{Inputs: 2}}, types{f32(2)}, "body wants 2 inputs, got 1"},
		{graph.Fused{Body: &graph.Body{Inputs: 1, Instrs: []graph.Instr{{Op: graph.Elementwise{}, Arg: []int{1}}}}}, types{f32(2)}, "body instruction 0 reads register 1"},
		{graph.Fused{Body: &graph.Body{Inputs: 1, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{0}}}}}, types{f32(2)}, "body instruction 0: add: takes 2 operands"},
		{graph.Quantize{}, types{i32(2)}, "operand 0 is i32[2], want rows of a floating-point type"},
		{graph.Quantize{}, types{f32()}, "want rows of a floating-point type"},
		{graph.Dequantize{}, types{f32(2)}, "operand 0 is f32[2], want a quantized type"},
		{graph.Dequantize{To: graph.I32}, types{{DType: graph.Int8, Shape: graph.Shape{2}}}, "wants a floating-point result, not i32"},
		{graph.Embedding{}, types{f32(5), i32(2)}, "wants a table [V, D] and i32 ids"},
		{graph.Embedding{}, types{f32(5, 2), f32(2)}, "wants a table [V, D] and i32 ids"},
		{graph.EmbeddingGrad{Vocab: 5}, types{f32(3, 2), i32(2)}, "wants one gradient row per id"},
		{graph.EmbeddingGrad{Vocab: 5, Accumulate: true}, types{f32(2, 2), i32(2), f32(4, 2)}, "adds to f32[5,2], got f32[4,2]"},
		{graph.LayerNorm{}, types{f32(2, 3), f32(3)}, "takes 3 operands, got 2"},
		{graph.LayerNorm{}, types{f32(2, 3), f32(2), f32(3)}, "x is f32[2,3], so scale and shift are f32[3]; got f32[2]"},
		{graph.LayerNorm{RMS: true}, types{f32(), f32(1)}, "normalizes rows, got the scalar f32[]"},
		{graph.LayerNormGrad{}, types{f32(2, 3), f32(2, 3), f32(3), f32(2), f32(3)}, "do not fit"},
		{graph.SoftmaxGrad{}, types{f32(2), f32(3)}, "wants y and dy of one shape"},
		{graph.CrossEntropy{}, types{f32(2), i32(2), f32(2)}, "wants logits [N, V], labels [N] and weights [N]"},
		{graph.CrossEntropy{}, types{f32(2, 5), i32(3), f32(2)}, "want labels i32[2] and weights f32[2]"},
		{graph.CrossEntropyGrad{}, types{f32(2, 5), i32(2), f32(2), f32(3), f32()}, "lse and dloss are"},
		{graph.LinearCrossEntropy{Chunk: 1}, types{f32(2, 4), f32(5, 3), i32(2), f32(2)}, "wants h [N, D], w [V, D]"},
		{graph.LinearCrossEntropy{Chunk: 1}, types{f32(2, 4), f32(5, 4), i32(2), i32(2)}, "wants labels i32[2] and weights f32[2]"},
		{graph.LinearCrossEntropy{Chunk: 3}, types{f32(2, 4), f32(5, 4), i32(2), f32(2)}, "chunk is 3, want 1..2"},
		{graph.LinearCrossEntropyGrad{Chunk: 1}, types{f32(2, 4), f32(5, 4), i32(2), f32(2), f32(1)}, "dloss is f32[1], want f32[]"},
		{attention, types{f32(2, 3, 4), f32(2, 3, 4)}, "wants 3 operands, the first of rank 3"},
		{attention, types{f32(2, 3, 5), f32(2, 3, 5), f32(2, 3, 5)}, "width 5 does not divide into 2 heads"},
		{attention, types{f32(2, 3, 4), f32(2, 3, 4), f32(2, 2, 4)}, "q [2,3,4], k [2,3,4] and v [2,2,4] do not fit"},
		{graph.Attention{Heads: 4, KVHeads: 3}, types{f32(2, 3, 8), f32(2, 3, 6), f32(2, 3, 6)}, "4 heads of queries cannot share 3 of keys and values"},
		{graph.Attention{Heads: 4, KVHeads: 2}, types{f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 8)}, "do not fit"},
		{graph.Attention{Heads: 4, KVHeads: 2, Layout: graph.PackedQKV}, types{f32(2, 3, 24)}, "in layout packed_qkv"},
		{packed, types{f32(2, 3, 8)}, "packed width 8 is not a multiple of 3"},
		{graph.Attention{Heads: 1, Lens: true}, types{f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4), i32(3)}, "lens is i32[3], want i32[2]"},
		{graph.Attention{Heads: 1, Segments: true}, types{f32(2, 3, 4), f32(2, 5, 4), f32(2, 5, 4), i32(2, 3)}, "with as many queries as keys"},
		{graph.Attention{Heads: 1, Drop: 0.1}, types{f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4), i32()}, "the run counter is i32[], want i32[2]"},
		{graph.Attention{Heads: 1, Drop: 1}, types{f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4), i32(2)}, "drops with probability 1, want [0, 1)"},
		{graph.AttentionGrad{Heads: 1}, types{f32(2, 3, 4)}, "wants do, o, lse and the operands of attention"},
		{graph.RotaryTable{T: 4, Dims: 3}, nil, "rotates pairs of dimensions at each position, got 3 dimensions and 4 positions"},
		{graph.RotaryTable{T: 4, Dims: 2, Scaling: graph.RotaryScaling{Factor: -1}}, nil, "want neither below 0"},
		{graph.Rotary{Heads: 1, Dims: 4}, types{f32(1, 5, 4), f32(4, 4)}, "the table has 4 positions, x has 5"},
		{graph.Rotary{Heads: 1, Dims: 4}, types{f32(1, 5, 2), f32(8, 4)}, "cannot rotate 4 dimensions of 1 heads"},
		{graph.Rotary{Heads: 1, Dims: 2, Offset: true}, types{f32(2, 5, 2), f32(8, 2), i32(3)}, "the first positions are i32[3], want i32[2]"},
		{graph.CacheWrite{}, types{f32(1, 4, 2), f32(1, 5, 2), i32(1)}, "cannot write f32[1,5,2] into f32[1,4,2]"},
		{graph.Dropout{P: 1}, types{f32(2), i32(2)}, "drops with probability 1, want [0, 1)"},
		{graph.Dropout{}, types{f32(2), f32(2)}, "wants x and the run counter i32[2]"},
		{graph.Dropout{First: 6}, types{f32(2), i32(2)}, "begins with element 6 of a larger tensor, want a multiple of 4"},
		{graph.ChannelNorm{Given: true}, types{f32(2, 3), f32(3), f32(3), f32(3), f32(2)}, "mean and variance of x f32[2,3] are f32[3], got f32[3] and f32[2]"},
		{graph.MatMul{}, types{f32(2, 3), i32(3, 2)}, "operand 1 is i32[3,2], want a floating-point or quantized type"},
		{graph.Softmax{}, types{graph.T(graph.BF16, 2)}, "operand 0 is bf16[2], want f32"},
		{graph.GlobalNorm{}, nil, "takes at least one operand"},
		{graph.AdamW{}, types{f32(2)}, "takes w, g, states (2) and the scalars lr gscale t ok"},
		{graph.AdamW{}, types{f32(2), f32(3), f32(2), f32(2), f32(), f32(), f32(), f32()}, "w is f32[2], but g is f32[3]"},
		{graph.AdamW{}, types{f32(2), f32(2), f32(2), f32(3), f32(), f32(), f32(), f32()}, "state 1 of w f32[2] is f32[3], want f32[2]"},
		{graph.AdamW{}, types{f32(2), f32(2), f32(2), f32(2), f32(1), f32(), f32(), f32()}, "lr is f32[1], want an f32 scalar"},
		{graph.AdamW8bit{}, types{f32(300), f32(300), u8(300), u8(300), f32(1), f32(2), f32(), f32(), f32(), f32()}, "state 2 of w f32[300] is f32[1], want f32[2]"},
		{graph.AdamW{Round: graph.Rounding{Mode: graph.Stochastic}}, types{f32(2), f32(2), f32(2), f32(2), f32(), f32(), f32(), f32()}, "operand 0 is f32[2], want bf16"},
		{graph.AdamW8bit{Round: graph.Rounding{First: 4}}, types{f32(2), f32(2), graph.T(graph.U8, 2), graph.T(graph.U8, 2), f32(1), f32(1), f32(), f32(), f32(), f32()}, "begins at element 4 of its weight, within a block of random numbers"},
		{graph.Adafactor{Round: graph.Rounding{First: 8}}, nil, "begins at element 8 of a weight, want the whole"},
		{graph.Assign{Round: graph.Rounding{First: 8}}, types{f32(2), f32(2)}, "begins at element 8 of another state"},
		{graph.Lion{Round: graph.Rounding{Mode: graph.Compensated}}, types{graph.T(graph.BF16, 2), f32(2), f32(2), f32(2), f32(), f32(), f32()}, "state 1 of w bf16[2] is f32[2], want bf16[2]"},
		{graph.Lion{Round: graph.Rounding{Mode: graph.Stochastic}}, nil, "takes w, g, states (1) and the scalars lr gscale t ok"},
		{graph.Lion{}, nil, "takes w, g, states (1) and the scalars lr gscale ok"},
		{graph.Adafactor{Factored: true}, types{f32(3), f32(3)}, "wants w of two dimensions or more"},
		{graph.Adafactor{Factored: true}, types{f32(4, 2, 3), f32(4, 2, 3), f32(4, 2), f32(4, 2), f32(), f32(), f32(), f32()}, "state 1 of w f32[4,2,3] is f32[4,2], want f32[4,3]"},
		{graph.Adafactor{}, types{f32(2, 3), f32(2, 3), f32(2), f32(3), f32(), f32(), f32(), f32()}, "takes w, g, states (1) and the scalars lr gscale t ok"},
		{graph.SGD{Round: graph.Rounding{Mode: graph.Stochastic}}, nil, "takes w, g, states (0) and the scalars lr gscale t ok"},
		{graph.SGD{}, types{f32(2), f32(3), f32(), f32(), f32()}, "w is f32[2], but g is f32[3]"},
		{graph.Assign{}, types{f32(2), f32(3)}, "cannot put"},

		{conv, types{f32(1, 4, 4, 3)}, "takes 2 operands, got 1"},
		{conv, types{f32(4, 4, 3), f32(2, 3, 3, 3)}, "wants x [B,H,W,C] and w [O,C/1,KH,KW]"},
		{conv, types{f32(1, 4, 4, 3), f32(2, 5, 3, 3)}, "has 3 channels, w f32[2,5,3,3] is for 5"},
		{conv, types{f32(1, 1, 1, 3), f32(2, 3, 4, 4)}, "the kernel [4,4] does not fit into the padded image"},
		{graph.Conv2D{Groups: 1}, types{f32(1, 4, 4, 3), f32(2, 3, 3, 3)}, "strides, dilations and groups must be at least 1"},
		{grouped, types{f32(1, 4, 4, 6), f32(4, 3, 3, 3)}, "has 2 groups for 6 channels in and 4 out"},
		{graph.Conv2DGradInput{Conv: conv, H: 5, W: 4}, types{f32(1, 4, 4, 2), f32(2, 3, 3, 3)}, "an image of 5x4 gives [1,5,4,2], but dy is"},
		{graph.Conv2DGradInput{Conv: conv}, types{f32(4, 4, 2), f32(2, 3, 3, 3)}, "wants dy [B,OH,OW,O]"},
		{graph.Conv2DGradWeight{Conv: conv, KH: 3, KW: 3}, types{f32(1, 4, 4, 2), f32(1, 3, 4, 5)}, "a 3x3 kernel on f32[1,4,4,2] gives [1,4,4,5], but dy is f32[1,3,4,5]"},
		{graph.Conv2DGradWeight{Conv: conv, KH: 3}, types{f32(1, 4, 4, 2), f32(1, 3, 4, 5)}, "a kernel of 3x0 has no elements"},
		{graph.Conv2DGradWeight{Conv: conv, KH: 3, KW: 3}, types{f32(4, 4, 2), f32(1, 3, 4, 5)}, "wants x [B,H,W,C] and dy"},
		{pool, types{f32(4, 4, 2)}, "wants images [B,H,W,C], got f32[4,4,2]"},
		{pool, types{f32(1, 1, 4, 2)}, "a window of [2 2] does not fit into f32[1,1,4,2]"},
		{graph.Pool2D{}, types{f32(1, 4, 4, 2)}, "kernels and strides must be at least 1"},
		{graph.Pool2D{Kernel: [2]int{2, 2}, Stride: [2]int{1, 1}, Pad: [4]int{2}}, types{f32(1, 4, 4, 2)}, "padding must be at least 0 and below the kernel"},
		{graph.Pool2DGrad{Pool: pool, H: 4, W: 4}, types{f32(1, 2, 3, 2), f32(1, 4, 4, 2), f32(1, 2, 2, 2)}, "images of 4x4 give [1,2,2,2], but dy is f32[1,2,3,2]"},
		{graph.Pool2DGrad{Pool: pool, H: 4, W: 4}, types{f32(1, 2, 2, 2), f32(1, 4, 4, 2), f32(1, 2, 2, 3)}, "x and y are"},
		{graph.ChannelNorm{}, types{f32(3), f32(3), f32(3)}, "wants x [B,...,C], got f32[3]"},
		{graph.ChannelNorm{}, types{f32(2, 3), f32(2), f32(3)}, "x is f32[2,3], so scale and shift are f32[3]; got f32[2]"},
		{graph.ChannelNorm{Groups: 2}, types{f32(2, 3), f32(3), f32(3)}, "3 channels do not divide into 2 groups"},
		{graph.ChannelNormGrad{Groups: 3}, types{f32(2, 3), f32(2, 3), f32(3), f32(3), f32(2, 3)}, "x f32[2,3] wants its own shape and f32[2,3]"},
		{graph.RunningStats{Momentum: 0.1, Rows: 1}, types{f32(3), f32(3), f32(3), f32(3)}, "wants at least 2 rows and a momentum in (0, 1], got 1 and 0.1"},
		{graph.RunningStats{Momentum: 0.1, Rows: 2}, types{f32(3), f32(3), f32(3), f32(2)}, "want four of one length"},
		{graph.TopK{K: 4}, types{f32(2, 3)}, "cannot take the 4 largest of rows of f32[2,3]"},
		{graph.Gather{}, types{f32(2, 3), i32(3, 2)}, "wants x [..., N] and an i32 index [..., K]"},
		{graph.Scatter{N: 3}, types{f32(2, 3), i32(2, 2)}, "wants x and an i32 index of one shape"},
		{graph.ArgMax{}, types{f32()}, "wants rows, got the scalar f32[]"},
		{graph.OneHot{N: 3}, types{f32(2)}, "wants i32 indices and at least 1 place"},
		{graph.Route{Experts: 2}, types{i32(3)}, "wants i32 choices [N,K]"},
		{graph.Dispatch{}, types{f32(3, 2), i32(4, 2), i32(8)}, "f32[3,2] has other tokens than the slots i32[4,2]"},
		{graph.Dispatch{Weighted: true}, types{f32(4, 2), i32(4, 2), i32(8), f32(4)}, "so weights are f32[4,2]; got f32[4]"},
		{graph.Dispatch{}, types{f32(4, 2), i32(4), i32(8)}, "wants the slots i32[N,K] and sources i32[R]"},
		{graph.Dispatch{}, types{f32(4), i32(4, 2), i32(8)}, "wants tokens [N,D] and a routing"},
		{graph.Combine{}, types{f32(4), i32(4, 2), i32(8)}, "wants rows [R,D] and a routing"},
		{graph.Combine{}, types{f32(7, 2), i32(4, 2), i32(8)}, "f32[7,2] has other rows than the sources i32[8]"},
		{graph.RoutedDot{}, types{f32(4, 2), f32(8, 3), i32(4, 2)}, "wants x [N,D], y [R,D] and slots i32[N,K]"},
		{graph.GroupedMatMul{}, types{f32(8, 3), f32(3, 2), i32(3)}, "wants rows [R,K] and matrices [E,...]"},
		{graph.GroupedMatMul{Trans: true}, types{f32(8, 3), f32(2, 3, 5), i32(3)}, "inner dimensions differ: [8,3] and [2,3,5] (transposed: true)"},
		{graph.GroupedMatMul{}, types{f32(8, 3), f32(2, 3, 5), i32(2)}, "the offsets of 2 groups are i32[3], got i32[2]"},
		{graph.GroupedMatMul{Bias: true}, types{f32(8, 3), f32(2, 3, 5), i32(3), f32(5)}, "the bias is f32[2,5], got f32[5]"},
		{graph.GroupedOuter{}, types{f32(8, 3), f32(7, 3), i32(3)}, "wants as many rows in each operand"},
		{graph.GroupedSum{}, types{f32(8, 3), i32(1)}, "wants the offsets i32[E+1] of at least one group, got i32[1]"},
		{graph.SelectiveScan{}, types{f32(1, 4, 3), f32(1, 4, 3), f32(3, 2), f32(1, 4, 2), f32(1, 4, 2), f32(3)}, "chunks of at least 1 step"},
		{graph.SelectiveScan{Chunk: 2}, types{f32(1, 4, 3), f32(1, 4, 3), f32(3, 2), f32(1, 4, 3), f32(1, 4, 2), f32(3)}, "u f32[1,4,3] and 2 states want"},
		{graph.SelectiveScanGrad{Chunk: 2}, types{f32(1, 4, 3), f32(1, 1, 2, 3), f32(1, 4, 3), f32(1, 4, 3), f32(3, 2), f32(1, 4, 2), f32(1, 4, 2), f32(3)}, "dy and states are"},
	} {
		_, err := c.op.Infer(c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%v: error is %v, want ...%s...", c.op.Name(), c.in, err, c.want)
		}
	}
}

// anyOp is any operation with more or less plausible attributes.
func anyOp(rng *rand.Rand) graph.Op {
	n := func(lo, hi int) int { return lo + rng.IntN(hi-lo+1) }
	yes := func() bool { return rng.IntN(2) == 0 }
	p := 0.5 * float64(n(0, 2)) // 1 is refused
	out := graph.DType(n(0, 4))
	round := graph.Rounding{Mode: graph.RoundingMode(n(0, 2))}
	slice := graph.Slice{Axis: n(-1, 2), Start: n(-1, 2), Len: n(0, 3), Step: n(0, 2)}
	attention := graph.Attention{
		Heads: n(0, 2), Causal: yes(), Layout: graph.Layout(n(0, 2)), Lens: yes(), Segments: yes(), Drop: p,
	}
	body := &graph.Body{Inputs: n(1, 3), Results: []int{0}, Instrs: []graph.Instr{
		{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{0, n(0, 3)}, DType: graph.F32},
	}}
	four := func() [4]int { return [4]int{n(-1, 1), n(0, 1), n(-1, 1), n(0, 1)} }
	conv := graph.Conv2D{Stride: [2]int{n(0, 2), n(0, 2)}, Dilation: [2]int{n(0, 2), n(0, 2)}, Pad: four(), Groups: n(-1, 2)}
	pool := graph.Pool2D{Kind: graph.PoolKind(n(0, 1)), Kernel: [2]int{n(0, 2), n(0, 2)}, Stride: [2]int{n(0, 2), n(0, 2)}, Pad: four()}
	if yes() {
		conv, pool = graph.Conv(1, 0), graph.Pool2D{Kind: pool.Kind, Kernel: [2]int{2, 2}, Stride: [2]int{1, 1}}
	}
	ops := []graph.Op{
		graph.Constant{}, graph.Elementwise{Fn: graph.Fn(n(0, graph.NumFns-1)), Out: out},
		graph.Reshape{Shape: anyShape(rng)}, graph.Transpose{Perm: rng.Perm(n(0, 4))},
		slice, graph.SliceGrad{Slice: slice, Dim: n(0, 4)}, graph.SliceWrite{Slice: slice}, graph.Concat{Axis: n(-1, 2)}, graph.Expand{Shape: anyShape(rng)},
		graph.Reduce{Kind: graph.ReduceKind(n(0, 2)), Axes: uint32(n(0, 15)), Keep: yes()},
		graph.MatMul{TransA: yes(), TransB: yes(), Out: out, Accumulate: yes()}, graph.MatMul{TransA: yes(), Body: body}, graph.Fused{Body: body},
		graph.Embedding{Out: out}, graph.EmbeddingGrad{Vocab: n(1, 3), Accumulate: yes()},
		graph.LayerNorm{RMS: yes()}, graph.LayerNormGrad{RMS: yes()}, graph.Softmax{}, graph.SoftmaxGrad{},
		graph.CrossEntropy{}, graph.CrossEntropyGrad{}, graph.LinearCrossEntropy{Chunk: n(0, 3)}, graph.LinearCrossEntropyGrad{Chunk: n(0, 3)},
		attention, graph.AttentionGrad(attention), graph.RotaryTable{T: n(0, 3), Dims: n(0, 4), Base: 10},
		graph.Rotary{Heads: n(0, 2), Dims: n(0, 4), Layout: graph.Layout(n(0, 2)), Offset: yes()},
		graph.CacheWrite{}, graph.Dropout{P: p, First: uint64(n(0, 8))}, graph.Assign{Add: yes()}, graph.GlobalNorm{},
		graph.AdamW{ZeroGrad: yes(), Round: round}, graph.AdamW8bit{ZeroGrad: yes(), Round: round}, graph.Lion{ZeroGrad: yes(), Round: round},
		graph.Adafactor{Factored: yes(), ZeroGrad: yes(), Round: round}, graph.SGD{ZeroGrad: yes(), Round: round},
		conv, graph.Conv2DGradInput{Conv: conv, H: n(0, 3), W: n(0, 3)}, graph.Conv2DGradWeight{Conv: conv, KH: n(0, 3), KW: n(0, 3)},
		pool, graph.Pool2DGrad{Pool: pool, H: n(0, 3), W: n(0, 3)},
		graph.ChannelNorm{Groups: n(-1, 3), Given: yes()}, graph.ChannelNormGrad{Groups: n(-1, 3)}, graph.RunningStats{Momentum: p, Rows: n(0, 3)},
		graph.TopK{K: n(-1, 3)}, graph.Gather{}, graph.Scatter{N: n(-1, 3)}, graph.ArgMax{}, graph.OneHot{N: n(-1, 3)},
		graph.Route{Experts: n(-1, 3), Capacity: n(-1, 2)}, graph.Dispatch{Weighted: yes()}, graph.Combine{Weighted: yes()}, graph.RoutedDot{},
		graph.GroupedMatMul{Trans: yes(), Bias: yes()}, graph.GroupedOuter{}, graph.GroupedSum{},
		graph.SelectiveScan{Chunk: n(-1, 3)}, graph.SelectiveScanGrad{Chunk: n(-1, 3)},
	}
	return ops[rng.IntN(len(ops))]
}

func anyShape(rng *rand.Rand) graph.Shape {
	pool := []graph.Shape{{}, {2}, {3}, {2, 3}, {3, 2}, {2, 2}, {2, 1, 2}, {2, 2, 6}, {2, 1, 2, 3}, {2, 2, 2, 2}}
	return pool[rng.IntN(len(pool))]
}

// anyOperands returns operands that fit some rule more often than by chance: n's own,
// say, or types that repeat.
func anyOperands(rng *rand.Rand) []graph.Type {
	valid := [][]graph.Type{
		{f32(2, 3), f32(3), f32(3)}, {f32(2, 3), f32(2, 3), f32(3), f32(2), f32(2)},
		{f32(2, 3), i32(2), f32(2)}, {f32(2, 3), i32(2), f32(2), f32(2), f32()},
		{f32(2, 3), f32(3, 3), i32(2), f32(2)}, {f32(2, 3), f32(3, 3), i32(2), f32(2), f32()},
		{f32(2, 2, 6)}, {f32(2, 2, 6), i32(2)}, {f32(2, 2, 6), i32(2, 2)}, {f32(2, 2, 2), f32(2, 2, 2), f32(2, 1, 2), f32(2, 2, 6)},
		{f32(2, 2, 6), f32(2, 2)}, {f32(2, 2, 6), f32(3, 2), i32(2)}, {f32(2, 3, 2), f32(2, 1, 2), i32(2)},
		{f32(2), f32(2), f32(2), f32(2), f32(), f32(), f32(), f32()}, {f32(2, 3), i32(2), f32(3, 3)},
		{f32(2, 2, 3, 2), f32(3, 2, 1, 2)}, {f32(2, 2, 2, 3), f32(3, 2, 1, 2)}, {f32(2, 2, 3, 2), f32(2, 2, 2, 3)},
		{f32(2, 2, 2, 2)}, {f32(2, 2, 2, 2), f32(2, 2, 2, 2)}, {f32(2, 3, 3, 2), f32(2, 2, 2, 2)}, {f32(2, 2, 2, 2), f32(2, 3, 3, 2), f32(2, 2, 2, 2)},
		{f32(2, 2, 6), f32(2, 2, 6), f32(6), f32(6), f32(6)}, {f32(2, 6), f32(2, 6), f32(6), f32(2, 2), f32(2, 2)}, {f32(3), f32(3), f32(3), f32(3)},
		{i32(2, 2)}, {f32(2, 3), i32(2, 2)}, {f32(2, 3), i32(2, 2), i32(4)}, {f32(4, 3), i32(2, 2), i32(4), f32(2, 2)}, {f32(2, 3), f32(4, 3), i32(2, 2)},
		{f32(4, 3), f32(2, 3, 2), i32(3)}, {f32(4, 3), f32(2, 2, 3), i32(3), f32(2, 2)}, {f32(4, 3), f32(4, 2), i32(3)}, {f32(4, 3), i32(3)},
		{f32(1, 4, 3), f32(1, 4, 3), f32(3, 2), f32(1, 4, 2), f32(1, 4, 2), f32(3)},
		{f32(1, 4, 3), f32(1, 2, 2, 3), f32(1, 4, 3), f32(1, 4, 3), f32(3, 2), f32(1, 4, 2), f32(1, 4, 2), f32(3)},
	}
	if rng.IntN(2) == 0 {
		in := slices.Clone(valid[rng.IntN(len(valid))])
		if rng.IntN(4) == 0 {
			in[rng.IntN(len(in))] = graph.T(graph.BF16, anyShape(rng)...)
		}
		return in
	}
	in := make([]graph.Type, rng.IntN(9))
	for i := range in {
		if in[i] = graph.T(graph.DType(1+rng.IntN(4)), anyShape(rng)...); i > 0 && rng.IntN(2) == 0 {
			in[i] = in[i-1]
		}
	}
	return in
}

// Shape rules are total: whatever the operands, they return types or an error. Operands
// that they accept have a cost, and the other rules agree with them.
func TestShapeRulesAreTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := map[string]bool{}
	for range 200_000 {
		op, in := anyOp(rng), anyOperands(rng)
		out, err := op.Infer(in)
		if err == nil {
			accepted[fmt.Sprintf("%T", op)] = true
			checkRules(t, op, in, out)
		} else if err.Error() == "" {
			t.Fatalf("%s%v: the error says nothing", op.Name(), in)
		}
	}
	if len(accepted) < 51 {
		t.Errorf("only these were ever accepted: %v", slices.Sorted(maps.Keys(accepted)))
	}
}

func checkRules(t *testing.T, op graph.Op, in, out []graph.Type) {
	t.Helper()
	if len(out) == 0 {
		t.Fatalf("%s%v has no results", op.Name(), in)
	}
	for _, o := range out {
		if o.DType == graph.Invalid || o.Shape.Elems() < 1 {
			t.Fatalf("%s%v gives %v", op.Name(), in, out)
		}
	}
	if c := op.Cost(in, out); c.FLOPs < c.MatrixFLOPs || c.MatrixFLOPs < 0 || c.Bytes < 0 || math.IsNaN(c.FLOPs) {
		t.Fatalf("%s%v costs %+v", op.Name(), in, c)
	}
	for _, a := range graph.Aliases(op, len(in)) {
		if a.In >= len(in) || a.Out >= len(out) || !in[a.In].Equal(out[a.Out]) {
			t.Fatalf("%s%v -> %v: alias %+v", op.Name(), in, out, a)
		}
	}
	if l, ok := op.(graph.AutocastRule); ok {
		want, cast := l.Autocast(in, graph.BF16)
		if len(want) != len(in) {
			t.Fatalf("%s%v converts %d operands", op.Name(), in, len(want))
		}
		lowered := slices.Clone(in)
		for i, d := range want {
			if d != graph.Invalid {
				lowered[i] = in[i].With(d)
			}
		}
		if _, err := cast.Infer(lowered); err != nil {
			t.Fatalf("%s%v lowered to %v: %v", op.Name(), in, lowered, err)
		}
	}
}

func TestMatMulCost(t *testing.T) {
	op := graph.MatMul{TransB: true}
	in := []graph.Type{f32(3, 5, 7), f32(3, 11, 7)}
	out, err := op.Infer(in)
	if err != nil {
		t.Fatal(err)
	}
	c := op.Cost(in, out)
	if c.FLOPs != 2*3*5*7*11 || c.MatrixFLOPs != c.FLOPs || c.Bytes != 4*(3*5*7+3*11*7+3*5*11) {
		t.Errorf("cost is %+v", c)
	}
}
