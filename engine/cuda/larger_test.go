package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// largerCase builds a case whose operands have random elements.
type largerCase struct {
	*graph.Builder
	rng *rand.Rand
	in  map[string][]float64
}

func (c *largerCase) input(t graph.Type, gen func() float64) *graph.Value {
	name := fmt.Sprint("x", len(c.in))
	x := make([]float64, t.Shape.Elems())
	for i := range x {
		x[i] = ref.Round(gen(), t.DType)
	}
	c.in[name] = x
	return c.Input(name, t)
}

func (c *largerCase) normal(d graph.DType, dims ...int) *graph.Value {
	return c.input(graph.T(d, dims...), c.rng.NormFloat64)
}

func (c *largerCase) quantized(d graph.DType, dims ...int) *graph.Value {
	v := c.normal(graph.F32, dims...)
	c.F.Inputs = c.F.Inputs[:len(c.F.Inputs)-1]
	return c.State(&graph.State{Name: v.Name, Type: graph.T(d, dims...)})
}

func (c *largerCase) ints(n int, dims ...int) *graph.Value {
	return c.input(graph.T(graph.I32, dims...), func() float64 { return float64(c.rng.IntN(n)) })
}

// These cases cover what kernels do only for shapes larger than those of the conformance table, or for
// operands of different formats.
func TestLargerShapes(t *testing.T) {
	type build func(c *largerCase) []*graph.Value
	cases := map[string]struct {
		tol   conformance.Tolerance
		build build
	}{}
	add := func(name string, tol conformance.Tolerance, b build) {
		cases[name] = struct {
			tol   conformance.Tolerance
			build build
		}{tol, b}
	}
	for _, d := range []graph.DType{graph.F32, graph.F16, graph.BF16} {
		for _, weighted := range []bool{false, true} { // rows in whole pieces
			add(fmt.Sprintf("moe/%v/%v", d, weighted), conformance.Tolerance{Ulps: 2, Terms: 2}, func(c *largerCase) []*graph.Value {
				r := c.Route(graph.Route{Experts: 300, Capacity: 2}, c.ints(300, 150, 2))
				x, w := c.normal(d, 150, 40), c.normal(graph.F32, 150, 2)
				in := []*graph.Value{x, r.Slot, r.Source}
				if weighted {
					in = append(in, w)
				}
				y := c.Emit(graph.Dispatch{Weighted: weighted}, in...)[0]
				in[0] = c.normal(d, y.Shape()...)
				return []*graph.Value{y, c.Emit(graph.Combine{Weighted: weighted}, in...)[0]}
			})
		}
		conv := func(name string, op graph.Conv2D, x, w graph.Shape) {
			y := graph.Shape{x[0], op.Size(0, x[1], w[2]), op.Size(1, x[2], w[3]), w[0]}
			tol := func(terms int) conformance.Tolerance { return conformance.Tolerance{Ulps: 1, Terms: terms} }
			add(fmt.Sprintf("conv/%s/%v", name, d), tol(int(w[1:].Elems())), func(c *largerCase) []*graph.Value {
				return c.Emit(op, c.normal(d, x...), c.normal(d, w...))
			})
			add(fmt.Sprintf("conv_grad_input/%s/%v", name, d), tol(w[0]*w[2]*w[3]), func(c *largerCase) []*graph.Value {
				return c.Emit(graph.Conv2DGradInput{Conv: op, H: x[1], W: x[2]}, c.normal(d, y...), c.normal(d, w...))
			})
			add(fmt.Sprintf("conv_grad_weight/%s/%v", name, d), tol(y.Rows()), func(c *largerCase) []*graph.Value {
				return c.Emit(graph.Conv2DGradWeight{Conv: op, KH: w[2], KW: w[3]}, c.normal(d, x...), c.normal(d, y...))
			})
		}
		conv("deep", graph.Conv(1, 1), graph.Shape{1, 9, 9, 128}, graph.Shape{72, 128, 3, 3})     // K is split
		conv("wide", graph.Conv(1, 1), graph.Shape{2, 14, 16, 8}, graph.Shape{136, 8, 3, 3})      // tiles of 128
		conv("strided", graph.Conv(2, 1), graph.Shape{1, 15, 17, 16}, graph.Shape{24, 16, 3, 3})  // phases in whole pieces
		conv("projection", graph.Conv(2, 0), graph.Shape{2, 9, 9, 16}, graph.Shape{16, 16, 1, 1}) // pixels without taps
		conv("few", graph.Conv(4, 3), graph.Shape{1, 38, 41, 3}, graph.Shape{40, 3, 7, 7})        // the first layer
		conv("narrow", graph.Conv(1, 1), graph.Shape{2, 13, 17, 40}, graph.Shape{5, 40, 3, 3})    // a result of few channels
		conv("single", graph.Conv(1, 0), graph.Shape{2, 13, 17, 1}, graph.Shape{1, 1, 1, 1})
		depth := graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Pad: [4]int{0, 0, 3, 0}, Groups: 40}
		conv("depthwise", depth, graph.Shape{2, 1, 600, 40}, graph.Shape{40, 1, 1, 4}) // pixels in parts
		for _, width := range []int{60, 320, 772, 1284, 2060} {                        // blocks with several rows
			add(fmt.Sprintf("layer_norm_grad/%v/%d", d, width), conformance.Tolerance{Ulps: 4, Terms: width + 37}, func(c *largerCase) []*graph.Value {
				stats := func() *graph.Value { return c.input(graph.T(graph.F32, 37), c.rng.Float64) }
				return c.Emit(graph.LayerNormGrad{Eps: 1e-5}, c.normal(d, 37, width), c.normal(d, 37, width), c.normal(graph.F32, width), stats(), stats())
			})
		}
		add(fmt.Sprintf("group_norm/%v", d), conformance.Tolerance{Ulps: 8, Terms: 3000}, func(c *largerCase) []*graph.Value {
			x, gamma := c.normal(d, 2, 25, 24, 40), c.normal(graph.F32, 40) // rows in parts
			op := graph.ChannelNorm{Eps: 1e-5, Groups: 4}
			out := c.Emit(op, x, gamma, c.normal(graph.F32, 40))
			return append(out, c.Emit(graph.ChannelNormGrad(op), c.normal(d, 2, 25, 24, 40), x, gamma, out[1], out[2])...)
		})
		for _, s := range []graph.Shape{{2, 6, 4, 40}, {3, 2, 4, 6, 7}} { // pools that compute what they read; images in groups
			scale := graph.Shape{s[0], 1, 1, s.Last()}
			if len(s) > 4 {
				scale = graph.Shape{s[0], 1, 1, 1, s.Last()}
			}
			pool := graph.Pool2D{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}, Body: &graph.Body{Inputs: 3, Results: []int{5}, Instrs: []graph.Instr{
				{Op: graph.Elementwise{Fn: graph.FnMul}, Arg: []int{0, 1}, DType: d},
				{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{3, 2}, DType: d},
				{Op: graph.Elementwise{Fn: graph.FnLeakyRelu, Alpha: .5}, Arg: []int{4}, DType: d},
			}}}
			add(fmt.Sprintf("pool/%v/%v", d, s), conformance.Tolerance{}, func(c *largerCase) []*graph.Value {
				exact := func(d graph.DType, s graph.Shape) *graph.Value { // in every format; many are equal
					return c.input(graph.Type{DType: d, Shape: s}, func() float64 { return float64(c.rng.IntN(9)-4) / 2 })
				}
				in := []*graph.Value{exact(d, s), exact(graph.F32, scale), exact(d, graph.Shape{s.Last()})}
				y := c.Emit(pool, in...)[0]
				h, w := s[len(s)-3], s[len(s)-2]
				in = append(append([]*graph.Value{exact(d, y.Shape())}, in...), y)
				return []*graph.Value{y, c.Emit(graph.Pool2DGrad{Pool: pool, H: h, W: w}, in...)[0]}
			})
		}
		for _, width := range []int{40, 42} { // rows of factors in whole pieces or not; rows of logits over several tiles
			tol := conformance.Tolerance{Ulps: 32, Terms: 150 + width + 333, Inner: 1, InnerDType: d, Abs: 0x1p-20}
			add(fmt.Sprintf("loss/%v/%d", d, width), tol, func(c *largerCase) []*graph.Value {
				const rows, classes = 150, 333
				in := []*graph.Value{
					c.normal(d, rows, width), c.normal(d, classes, width), c.ints(classes, rows),
					c.input(graph.T(graph.F32, rows), c.rng.Float64),
				}
				out := c.Emit(graph.LinearCrossEntropy{Chunk: 140, Exponentials: true}, in...)
				dloss := c.input(graph.T(graph.F32), c.rng.Float64)
				grads := c.Emit(graph.LinearCrossEntropyGrad{Chunk: 140, Exponentials: true}, append(in, dloss)...)
				return append(out, grads[:3]...)
			})
		}
		for _, dims := range [][]int{{4, 700, 64}, {2, 1100, 200}} { // sums in parts, and chunks beyond the last column
			sum := graph.Reduce{Axes: 0b10}
			body := &graph.Body{Inputs: 2, Results: []int{3, 3, 0, 2}, Instrs: []graph.Instr{
				{Op: graph.Elementwise{Fn: graph.FnMul}, Arg: []int{0, 1}, DType: d},
				{Op: graph.Elementwise{Fn: graph.FnTanh}, Arg: []int{2}, DType: d},
			}}
			add(fmt.Sprintf("sums/%v/%v", d, dims), conformance.Tolerance{Ulps: 8, Terms: 1100, Inner: 2, InnerDType: d, Abs: 0x1p-22}, func(c *largerCase) []*graph.Value {
				return c.Emit(graph.Fused{Body: body, Reductions: []graph.Reduce{sum, sum, sum}}, c.normal(d, dims...), c.normal(d, dims[0], 1, dims[2]))
			})
		}
		for _, weights := range []graph.DType{graph.NF4, graph.Int8} { // tiles of 128, parts of K
			for trans := range 2 {
				add(fmt.Sprintf("matmul/%v_%v/%v", d, weights, trans), conformance.Tolerance{Ulps: 1, Terms: 1088}, func(c *largerCase) []*graph.Value {
					dims := [][]int{{1088, 136}, {136, 1088}}[trans]
					return c.Emit(graph.MatMul{TransB: trans > 0, Out: graph.F32}, c.normal(d, 130, 1088), c.quantized(weights, dims...))
				})
			}
		}
		if d == graph.F32 {
			continue
		}
		add(fmt.Sprintf("mixed/%v", d), conformance.Tolerance{Ulps: 2, Terms: 1000}, func(c *largerCase) []*graph.Value {
			op := graph.Pool2D{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}}
			x := c.normal(d, 1, 6, 6, 5)
			y := c.Emit(op, x)[0]
			full := c.normal(graph.F32, 1, 6, 6, 5)
			return []*graph.Value{
				c.Emit(graph.Pool2DGrad{Pool: op, H: 6, W: 6}, c.normal(graph.F32, 1, 3, 3, 5), x, y)[0],
				c.Emit(graph.Pool2DGrad{Pool: op, H: 6, W: 6}, c.normal(d, 1, 3, 3, 5), full, c.Emit(op, full)[0])[0],
				c.Emit(graph.Conv(1, 1), x, c.normal(graph.F32, 4, 5, 3, 3))[0],
				c.Emit(graph.Conv2DGradWeight{Conv: graph.Conv(1, 1), KH: 3, KW: 3}, full, c.normal(d, 1, 6, 6, 4))[0],
				c.Emit(graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Groups: 5}, x, c.normal(graph.F32, 5, 1, 3, 3))[0],
				c.Emit(graph.ChannelNormGrad{Eps: 1e-5}, c.normal(graph.F32, 1, 6, 6, 5), x, c.normal(graph.F32, 5), c.normal(graph.F32, 5), c.input(graph.T(graph.F32, 5), c.rng.Float64))[0],
				c.Emit(graph.RoutedDot{}, c.normal(d, 9, 6), c.normal(graph.F32, 7, 6), c.ints(7, 9, 2))[0],
			}
		})
	}
	// Ids of more tiles than are scanned at once; and more columns than a block has.
	for _, e := range []struct{ ids, vocab, width int }{{33000, 300, 4}, {40, 9, 1030}} {
		add(fmt.Sprintf("embedding_grad/%d_%d", e.ids, e.vocab), conformance.Tolerance{Ulps: 1, Terms: 1 + 3*e.ids/e.vocab}, func(c *largerCase) []*graph.Value {
			return c.Emit(graph.EmbeddingGrad{Vocab: e.vocab}, c.normal(graph.F16, e.ids, e.width), c.ints(e.vocab, e.ids))
		})
	}
	for _, chunk := range []int{5, 20, 64} { // more states than a launch handles, longer chunks than are kept
		add(fmt.Sprintf("scan/%d", chunk), conformance.Tolerance{Ulps: 16, Terms: 41 * (21 + 37)}, func(c *largerCase) []*graph.Value {
			const n, steps, d, states = 2, 41, 37, 21
			in := []*graph.Value{
				c.normal(graph.F32, n, steps, d), c.input(graph.T(graph.F32, n, steps, d), func() float64 { return 0.5 * c.rng.Float64() }),
				c.input(graph.T(graph.F32, d, states), func() float64 { return -2 * c.rng.Float64() }),
				c.normal(graph.F32, n, steps, states), c.normal(graph.F32, n, steps, states), c.normal(graph.F32, d),
			}
			out := c.Emit(graph.SelectiveScan{Chunk: chunk}, in...)
			return append(out, c.Emit(graph.SelectiveScanGrad{Chunk: chunk}, append([]*graph.Value{c.normal(graph.F32, n, steps, d), out[1]}, in...)...)...)
		})
	}
	for _, card := range cards(t) {
		for _, sms := range []int{1, card.SMs} { // work is divided by the number of SMs
			card.SMs = sms
			dev := conformance.On(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}))
			for name, k := range cases {
				t.Run(fmt.Sprintf("sm_%d/%d/%s", card.Capability(), sms, name), func(t *testing.T) {
					c := &largerCase{graph.NewBuilder("larger"), rand.New(rand.NewPCG(1, 2)), map[string][]float64{}}
					for i, v := range k.build(c) {
						c.Output(fmt.Sprint("y", i), v)
					}
					if err := conformance.Check(dev, conformance.Case{Name: name, Func: c.F, In: c.in, Tol: k.tol, Rounded: len(c.F.States) > 0}); err != nil {
						t.Errorf("%v\n%v", err, c.F)
					}
				})
			}
		}
	}
}
