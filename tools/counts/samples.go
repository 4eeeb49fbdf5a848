package main

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// sample is a small program with its inputs, which shows what units of work take.
type sample struct {
	*graph.Builder
	in map[string]input
}

// input gives an input's elements by their number, when the sample runs: those of all samples would take gigabytes.
type input struct {
	elems   int64
	element func(i int) float64
}

func (in input) elements() []float64 {
	x := make([]float64, in.elems)
	for i := range x {
		x[i] = in.element(i)
	}
	return x
}

// value is an operand of ones, or of integers 0.
func (s *sample) value(d graph.DType, dims ...int) *graph.Value {
	return s.given(graph.T(d, dims...), func(int) float64 {
		if d == graph.I32 {
			return 0
		}
		return 1
	})
}

// given is an operand with elements by their number.
func (s *sample) given(t graph.Type, element func(i int) float64) *graph.Value {
	return s.Input(s.name(t, element), t)
}

// state is a state of ones.
func (s *sample) state(d graph.DType, dims ...int) *graph.Value {
	t := graph.T(d, dims...)
	return s.State(&graph.State{Name: s.name(t, func(int) float64 { return 1 }), Type: t})
}

// name is that of one input more.
func (s *sample) name(t graph.Type, element func(i int) float64) string {
	name := fmt.Sprint("x", len(s.in))
	s.in[name] = input{t.Shape.Elems(), element}
	return name
}

// numbers are 0, 1, 2, ...
func (s *sample) numbers(n int) *graph.Value {
	return s.given(graph.T(graph.I32, n), func(i int) float64 { return float64(i) })
}

// samples collects them.
type samples struct{ list []sample }

// add adds a program that gives what build returns.
func (all *samples) add(name string, build func(s *sample) []*graph.Value) {
	s := sample{graph.NewBuilder(name), map[string]input{}}
	for i, v := range build(&s) {
		if v != nil {
			s.Output(fmt.Sprint("y", i), v)
		}
	}
	all.list = append(all.list, s)
}

// emit adds one operation on operands of ones.
func (all *samples) emit(op graph.Op, types ...graph.Type) {
	all.add(op.Name(), func(s *sample) []*graph.Value {
		var in []*graph.Value
		for _, t := range types {
			in = append(in, s.value(t.DType, t.Shape...))
		}
		return s.Emit(op, in...)
	})
}

// groups are samples whose units build on those of the groups before.
func groups() [][]sample {
	var loops, rest samples
	loops.loops()
	rest.products()
	rest.rows()
	rest.reductions()
	rest.tables()
	rest.picks()
	rest.attentions()
	rest.pictures()
	rest.channels()
	rest.experts()
	rest.scans()
	rest.relations()
	rest.optimizers()
	rest.quantized()
	rest.logits()
	return [][]sample{loops.list, rest.list}
}

var (
	floats = []graph.DType{graph.F32, graph.F16, graph.BF16}
	f32    = func(dims ...int) graph.Type { return graph.T(graph.F32, dims...) }
)

// loops are generated loops: their operands, results, steps and ways to go over memory.
func (all *samples) loops() {
	const n = 8 * 256 * 4
	for _, d := range floats {
		x := graph.T(d, n)
		for fn := graph.FnCopy + 1; fn <= graph.FnSelect; fn++ {
			types := make([]graph.Type, fn.Arity())
			for i := range types {
				types[i] = x
			}
			all.emit(graph.Elementwise{Fn: fn, Alpha: .5}, types...)
		}
		for _, width := range []int{n, n / 2 * 3, n - 2, n - 1} { // of eight neighbors a thread, four, two, one
			all.emit(graph.Elementwise{Fn: graph.FnNeg}, graph.T(d, width))
			all.emit(graph.Elementwise{Fn: graph.FnAdd}, graph.T(d, width), graph.T(d, width))
			all.emit(graph.Dropout{P: .1}, graph.T(d, width), graph.T(graph.I32, 2))
		}
		all.emit(graph.Elementwise{Fn: graph.FnAdd}, graph.T(d, 64, 256), graph.T(d, 256))
		all.emit(graph.Elementwise{Fn: graph.FnAdd}, graph.T(d, 64, 256), graph.T(d, 64, 1))
		all.emit(graph.Elementwise{Fn: graph.FnAdd}, graph.T(d, 8, 32, 64), graph.T(d, 32, 1))
		all.emit(graph.Elementwise{Fn: graph.FnAdd}, graph.T(d, 64, 256), graph.T(d))
		all.emit(graph.Transpose{Perm: []int{1, 0}}, graph.T(d, 128, 128))
		all.emit(graph.Transpose{Perm: []int{0, 2, 1, 3}}, graph.T(d, 4, 8, 16, 32))
		all.emit(graph.Transpose{Perm: []int{0, 2, 3, 1}}, graph.T(d, 4, 8, 16, 32))
		all.emit(graph.Slice{Axis: 1, Start: 16, Len: 64, Step: 1}, graph.T(d, 128, 96))
		for _, n := range []int{n, n - 1} {
			all.add("two", func(s *sample) []*graph.Value {
				y := s.Neg(s.value(d, n))
				return []*graph.Value{y, s.Neg(y)}
			})
		}
		for _, other := range floats {
			if other != d {
				all.add("cast", func(s *sample) []*graph.Value { return []*graph.Value{s.Cast(s.value(d, n), other)} })
				all.add("cast", func(s *sample) []*graph.Value { return []*graph.Value{s.Cast(s.value(d, n-1), other)} })
			}
		}
	}
	for _, d := range floats { // loops that add up columns
		for _, dims := range [][]int{{160, 8, 64}, {160, 24, 64}, {160, 8, 128}, {160, 8, 256}, {80, 16, 512}} {
			for sums := 1; sums <= 3; sums++ {
				body := &graph.Body{Inputs: 1, Results: []int{1, 1, 0, 1}[:1+sums], Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnNeg}, Arg: []int{0}, DType: d}}}
				op := graph.Fused{Body: body, Reductions: slices.Repeat([]graph.Reduce{{Axes: 0b10}}, sums)}
				all.emit(op, graph.T(d, dims...))
			}
		}
	}
	all.emit(graph.Constant{V: 1})
	for _, n := range []int{n, 3 * n} { // the gradient of a slice begins with zeros
		all.emit(graph.SliceGrad{Slice: graph.Slice{Axis: 0, Start: 1, Len: n - 8, Step: 1}, Dim: n}, f32(n-8))
	}
}

// products are matmuls of a tile or two, with few and more steps along K, and epilogues.
func (all *samples) products() {
	for _, d := range floats {
		for _, x := range []struct{ a, b bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
			matmul := func(m, n, k int) {
				dims := func(rows, cols int, trans bool) graph.Type {
					if trans {
						return graph.T(d, cols, rows)
					}
					return graph.T(d, rows, cols)
				}
				all.emit(graph.MatMul{TransA: x.a, TransB: x.b}, dims(m, k, x.a), dims(k, n, x.b))
			}
			for _, side := range []int{64, 128} {
				matmul(side, side, 64)
				matmul(side, side, 192)
			}
			if d == graph.F16 { // rows that do not begin at multiples of 16 bytes
				matmul(62, 60, 60)
				matmul(62, 60, 188)
			}
		}
		for _, side := range []int{64, 128, 60} { // the last with rows whose ends need care
			x, w := graph.T(d, side, 64), graph.T(d, 64, side+2*(side%64/60))
			n := w.Shape[1]
			all.add("bias", func(s *sample) []*graph.Value {
				return []*graph.Value{s.Add(s.MatMul(s.value(d, x.Shape...), s.value(d, w.Shape...), false, false), s.value(d, n))}
			})
			all.add("residual", func(s *sample) []*graph.Value {
				y := s.MatMul(s.value(d, x.Shape...), s.value(d, w.Shape...), false, false)
				return []*graph.Value{s.Add(s.Add(y, s.value(d, n)), s.value(d, side, n))}
			})
			all.add("residuals", func(s *sample) []*graph.Value {
				y := s.MatMul(s.value(d, x.Shape...), s.value(d, w.Shape...), false, false)
				z := s.Add(y, s.value(d, side, n))
				return []*graph.Value{z, s.Mul(s.Add(z, s.value(d, side, n)), s.value(d, side, 1))}
			})
		}
	}
}

// rows are norms, softmax and the loss, by the kernels for their lengths.
func (all *samples) rows() {
	const many = 64
	for _, d := range floats {
		for _, n := range []int{128, 256, 384, 1024, 1026, 1152, 2048, 2176, 4096, 4352} {
			for _, rms := range []bool{false, true} {
				norm := graph.LayerNorm{Eps: 1e-5, RMS: rms}
				in := []graph.Type{graph.T(d, many, n), f32(n), f32(n)}
				if rms {
					in = in[:2]
				}
				all.emit(norm, in...)
			}
			if d == graph.F32 {
				all.emit(graph.Softmax{}, f32(many, n))
				all.emit(graph.SoftmaxGrad{}, f32(many, n), f32(many, n))
			}
		}
		for _, x := range [][2]int{
			{many, 128}, {many, 384}, {1288, 128}, {1288, 256}, // of more rows a block has several
			{many, 640}, {many, 1024}, {168, 640}, {168, 1024},
			{many, 1152}, {many, 2048}, {168, 1152}, {168, 2048},
			{many, 2176}, {many, 4096}, {168, 2176}, {168, 4096},
			{many, 62}, {many, 1026}, {600, 62}, // whose columns another kernel adds up
		} {
			rows, n := x[0], x[1]
			for _, rms := range []bool{false, true} {
				for _, of := range []graph.DType{d, graph.F32} {
					all.emit(graph.LayerNormGrad{Eps: 1e-5, RMS: rms}, graph.T(of, rows, n), graph.T(d, rows, n), f32(n), f32(rows), f32(rows))
				}
			}
		}
		for _, n := range []int{200, 4096} {
			labels := graph.T(graph.I32, many)
			all.emit(graph.CrossEntropy{}, graph.T(d, many, n), labels, f32(many))
			all.emit(graph.CrossEntropyGrad{}, graph.T(d, many, n), labels, f32(many), f32(many), f32())
			if d != graph.F32 {
				all.emit(graph.LinearCrossEntropyGrad{Chunk: many, Exponentials: true}, graph.T(d, many, 64), graph.T(d, n, 64), labels, f32(many), f32())
			}
		}
	}
}

func (all *samples) reductions() {
	for _, d := range floats {
		for _, kind := range []graph.ReduceKind{graph.ReduceSum, graph.ReduceMax} {
			for _, dims := range [][]int{{64, 32}, {64, 512}, {64, 1024}, {16, 1 << 13}} {
				all.emit(graph.Reduce{Kind: kind, Axes: 2}, graph.T(d, dims...))
			}
			for _, dims := range [][]int{{32, 64}, {512, 64}, {2048, 32}} {
				all.emit(graph.Reduce{Kind: kind, Axes: 1}, graph.T(d, dims...))
			}
		}
	}
}

// tables are embeddings and rotary positions.
func (all *samples) tables() {
	for _, d := range floats {
		for _, out := range floats {
			for _, width := range []int{64, 512} {
				all.add("embedding", func(s *sample) []*graph.Value {
					return s.Emit(graph.Embedding{Out: out}, s.value(d, 64, width), s.numbers(64))
				})
			}
		}
		for _, rows := range []int{64, 700, 5000} {
			for _, vocab := range []int{40, 5000} {
				for _, width := range []int{64, 512} {
					all.add("embedding_grad", func(s *sample) []*graph.Value {
						ids := s.given(graph.T(graph.I32, rows), func(i int) float64 { return float64(i * 7919 % rows % vocab) }) // shuffled
						return s.Emit(graph.EmbeddingGrad{Vocab: vocab}, s.value(d, rows, width), ids)
					})
				}
			}
		}
		for _, size := range []int{64, 62} {
			for _, layout := range []graph.Layout{graph.Separate, graph.PackedQKV} {
				width := 4 * size
				if layout != graph.Separate {
					width *= 3
				}
				all.emit(graph.Rotary{Heads: 4, Dims: size, Layout: layout}, graph.T(d, 1, 32, width), f32(32, size))
				all.emit(graph.Rotary{Heads: 16, Dims: size, Layout: layout}, graph.T(d, 1, 16, 4*width), f32(16, size))
				for _, heads := range []int{4, 16} {
					all.add("rotary_in_place", func(s *sample) []*graph.Value {
						x := s.Neg(s.value(d, 1, 32, width/4*heads)) // which nothing else reads
						return []*graph.Value{s.Neg(s.Rotary(graph.Rotary{Heads: heads, Dims: size, Layout: layout}, x, s.value(graph.F32, 32, size)))}
					})
				}
			}
		}
		for _, width := range []int{64, 1024} {
			all.add("cache_write", func(s *sample) []*graph.Value {
				return s.Emit(graph.CacheWrite{}, s.state(d, 2, 64, width), s.value(d, 2, 16, width), s.value(graph.I32, 2))
			})
		}
	}
	all.emit(graph.RotaryTable{T: 128, Dims: 64, Base: 10000})
}

// picks are operations that choose elements.
func (all *samples) picks() {
	for _, d := range floats {
		for _, k := range []int{4, 16} {
			all.emit(graph.Gather{}, graph.T(d, 64, 128), graph.T(graph.I32, 64, k))
			all.emit(graph.Scatter{N: 128}, graph.T(d, 64, k), graph.T(graph.I32, 64, k))
			for _, n := range []int{16, 128, 512, 2048} {
				all.emit(graph.TopK{K: k}, graph.T(d, 64, n))
			}
		}
		for _, n := range []int{64, 1024, 2048, 8192} {
			all.emit(graph.ArgMax{}, graph.T(d, 64, n))
		}
	}
	all.emit(graph.OneHot{N: 64}, graph.T(graph.I32, 512))
}

// attentions are a tile of queries or keys with some of the others, masks and dropout.
func (all *samples) attentions() {
	const tile = 64
	attend := func(d graph.DType, size, q, k int, op graph.Attention) {
		op.Heads, op.Scale, op.Drop = 1, 1, op.Drop/2
		extra := func() (types []graph.Type) {
			if op.Segments {
				types = append(types, graph.T(graph.I32, 1, q))
			}
			if op.Drop > 0 {
				types = append(types, graph.T(graph.I32, 2))
			}
			return types
		}
		tq, tk := graph.T(d, 1, q, size), graph.T(d, 1, k, size)
		all.emit(op, append([]graph.Type{tq, tk, tk}, extra()...)...)
		all.emit(graph.AttentionGrad(op), append([]graph.Type{tq, tq, f32(1, 1, q), tq, tk, tk}, extra()...)...)
	}
	for _, d := range floats {
		sizes := []int{16, 32, 64, 80, 96, 128}
		if d == graph.F32 {
			sizes = []int{24, 64, 128}
		}
		if d == graph.BF16 { // which a T4 computes in float
			sizes = []int{64}
		}
		for _, size := range sizes {
			attend(d, size, tile, 2*tile, graph.Attention{})
			attend(d, size, 3*tile, tile, graph.Attention{})
			attend(d, size, 2*tile, 2*tile, graph.Attention{Causal: true})
			attend(d, size, 4*tile, 4*tile, graph.Attention{Segments: true})
			attend(d, size, tile, 2*tile, graph.Attention{Drop: .2})
		}
		for _, size := range []int{32, 128} {
			for _, keys := range []int{128, 512, 1024} {
				all.emit(graph.Attention{Heads: 300, Scale: 1}, graph.T(d, 1, 1, 300*size), graph.T(d, 1, keys, 300*size), graph.T(d, 1, keys, 300*size))
				all.emit(graph.Attention{Heads: 4, Scale: 1}, graph.T(d, 1, 1, 4*size), graph.T(d, 1, keys, 4*size), graph.T(d, 1, keys, 4*size))
			}
		}
	}
}

// pictures are convolutions and pooling.
func (all *samples) pictures() {
	for _, d := range floats {
		for _, side := range []int{8, 64, 128} {
			for _, c := range []int{32, 64} {
				conv := graph.Conv(1, 1)
				all.emit(conv, graph.T(d, 2, 12, 12, c), graph.T(d, side, c, 3, 3))
				all.emit(graph.Conv2DGradInput{Conv: conv, H: 12, W: 12}, graph.T(d, 2, 12, 12, c), graph.T(d, c, side, 3, 3))
			}
		}
		for _, side := range []int{64, 128} {
			for _, b := range []int{1, 3} {
				conv := graph.Conv(1, 0)
				all.emit(graph.Conv2DGradWeight{Conv: conv, KH: 1, KW: 1}, graph.T(d, b, 12, 12, side), graph.T(d, b, 12, 12, side))
			}
		}
		for _, k := range []int{3, 5} {
			for _, h := range []int{4, 16} {
				const c = 64
				conv := graph.Conv2D{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}, Pad: [4]int{k / 2, k / 2, k / 2, k / 2}, Groups: c}
				x := graph.T(d, 2, h, 32, c)
				all.emit(conv, x, graph.T(d, c, 1, k, k))
				all.emit(graph.Conv2DGradInput{Conv: conv, H: h, W: 32}, x, graph.T(d, c, 1, k, k))
				all.emit(graph.Conv2DGradWeight{Conv: conv, KH: k, KW: k}, x, x)
			}
			for _, kind := range []graph.PoolKind{graph.PoolMax, graph.PoolAverage} {
				for _, stride := range []int{1, 2} {
					op := graph.Pool2D{Kind: kind, Kernel: [2]int{k, k}, Stride: [2]int{stride, stride}, Pad: [4]int{k / 2, k / 2, k / 2, k / 2}}
					all.add("pool", func(s *sample) []*graph.Value {
						// Elements in no order, so that windows have one maximum each.
						x := s.given(graph.T(d, 2, 16, 16, 32), func(i int) float64 { return float64(i * 7919 % 251) })
						y := s.Emit(op, x)[0]
						in := []*graph.Value{s.value(d, y.Shape()...)}
						if kind == graph.PoolMax {
							in = append(in, x, y)
						}
						return append(s.Emit(graph.Pool2DGrad{Pool: op, H: 16, W: 16}, in...), y)
					})
				}
			}
		}
	}
}

// channels are their norms.
func (all *samples) channels() {
	for _, d := range floats {
		for _, rows := range []int{16, 24} {
			for _, c := range []int{32, 128} {
				for _, groups := range []int{0, 2, 4} {
					op := graph.ChannelNorm{Eps: 1e-5, Groups: groups}
					x, stats := graph.T(d, 2, rows, rows, c), f32(c)
					if groups > 0 {
						stats = f32(2, groups)
					}
					all.emit(op, x, f32(c), f32(c))
					for _, of := range []graph.DType{d, graph.F32} {
						all.emit(graph.ChannelNormGrad(op), graph.T(of, x.Shape...), x, f32(c), stats, stats)
					}
				}
			}
		}
	}
	all.add("running_stats", func(s *sample) []*graph.Value {
		return s.Emit(graph.RunningStats{Momentum: .1, Rows: 64}, s.state(graph.F32, 256), s.state(graph.F32, 256), s.value(graph.F32, 256), s.value(graph.F32, 256))
	})
}

// experts are what routes tokens, and products of groups.
func (all *samples) experts() {
	for _, x := range []struct{ tokens, experts int }{{256, 4}, {1024, 16}, {1024, 4}} {
		tokens, experts := x.tokens, x.experts
		for _, k := range []int{1, 2} {
			route := func(s *sample) graph.Routing {
				choice := s.given(graph.T(graph.I32, tokens, k), func(i int) float64 { return float64(i % experts) })
				return s.Route(graph.Route{Experts: experts}, choice)
			}
			for _, d := range floats {
				for _, width := range []int{64, 66} {
					all.add("moved", func(s *sample) []*graph.Value {
						r := route(s)
						x := s.Dispatch(s.value(d, tokens, width), r)
						dot := s.Emit(graph.RoutedDot{}, s.value(d, tokens, width), x, r.Slot)
						sum := s.Emit(graph.GroupedSum{}, x, r.Offsets)
						return []*graph.Value{x, s.Combine(x, s.value(graph.F32, tokens, k), r), dot[0], sum[0]}
					})
				}
				for _, inner := range []int{64, 192, 62, 190} {
					width := 64 - inner%4
					if width%8 != 0 && d != graph.F16 { // what does not begin at multiples of 16 bytes
						continue
					}
					all.add("grouped", func(s *sample) []*graph.Value {
						r := route(s)
						return s.Emit(graph.GroupedMatMul{}, s.value(d, tokens*k, inner), s.value(d, experts, inner, width), r.Offsets)
					})
					all.add("grouped", func(s *sample) []*graph.Value {
						r := route(s)
						x := s.value(d, tokens*k, inner)
						return []*graph.Value{
							s.Emit(graph.GroupedMatMul{Trans: true}, x, s.value(d, experts, width, inner), r.Offsets)[0],
							s.Emit(graph.GroupedOuter{}, x, s.value(d, tokens*k, width), r.Offsets)[0],
						}
					})
				}
			}
		}
	}
}

func (all *samples) scans() {
	for _, t := range []int{32, 128} {
		for _, chunk := range []int{8, 32} {
			for _, d := range []int{32, 64} {
				const states = 16
				in := []graph.Type{f32(2, t, d), f32(2, t, d), f32(d, states), f32(2, t, states), f32(2, t, states), f32(d)}
				op := graph.SelectiveScan{Chunk: chunk}
				all.emit(op, in...)
				all.emit(graph.SelectiveScanGrad(op), append([]graph.Type{f32(2, t, d), f32(2, op.Chunks(t), states, d)}, in...)...)
			}
		}
	}
}

func (all *samples) relations() {
	for _, t := range []int{32, 96} {
		in := []graph.Type{f32(2, t, 128), f32(2, t, 128), graph.T(graph.I32, 2, t)}
		op := graph.Relate{From: 0, To: 3}
		all.emit(op, in...)
		all.emit(graph.RelateGrad(op), append([]graph.Type{f32(2, t, 128)}, in...)...)
	}
}

// optimizers are steps of one weight and of several, the norm of gradients, and sums in 16 bits.
func (all *samples) optimizers() {
	for _, mode := range []graph.RoundingMode{graph.Exact, graph.Stochastic, graph.Compensated} {
		r := graph.Rounding{Mode: mode}
		for _, grads := range []graph.DType{graph.F32, graph.BF16} {
			for _, zero := range []bool{false, true} {
				for _, op := range []graph.Optimizer{
					graph.AdamW{Beta1: .9, Beta2: .999, Eps: 1e-8, LRScale: 1, ZeroGrad: zero, Round: r},
					graph.AdamW8bit{Beta1: .9, Beta2: .999, Eps: 1e-8, LRScale: 1, ZeroGrad: zero, Round: r},
					graph.Lion{Beta1: .9, Beta2: .99, LRScale: 1, ZeroGrad: zero, Round: r},
					graph.SGD{LRScale: 1, ZeroGrad: zero, Round: r},
				} {
					all.step(op, grads, 1, 16384)
					all.step(op, grads, 9, 16384)
				}
				if mode == graph.Exact {
					for _, to := range []graph.DType{graph.F16, graph.BF16} {
						op := graph.AdamW{Beta1: .9, Beta2: .999, Eps: 1e-8, LRScale: 1, ZeroGrad: zero, Rounded: to}
						all.step(op, grads, 3, 16384)
					}
				}
				for _, dims := range [][]int{{64, 128}, {256, 256}, {32, 512}, {640, 64}} {
					op := graph.Adafactor{Decay: .8, Eps: 1e-30, Clip: 1, LRScale: 1, Factored: true, ZeroGrad: zero, Round: r}
					all.step(op, grads, 1, dims...)
				}
			}
		}
	}
	for _, d := range []graph.DType{graph.F32, graph.BF16} {
		all.emit(graph.GlobalNorm{}, graph.T(d, 100*16384))
		for _, n := range []int{5000, 65536} {
			all.emit(graph.GlobalNorm{}, graph.T(d, n))
			all.emit(graph.GlobalNorm{}, graph.T(d, n), graph.T(d, n), graph.T(d, n), graph.T(d, n), graph.T(d, n))
		}
	}
	for _, d := range floats {
		all.add("accumulate", func(s *sample) []*graph.Value {
			op := graph.Assign{Add: true, Round: graph.Rounding{Mode: graph.Stochastic}}
			return s.Emit(op, s.state(graph.BF16, 8192), s.value(d, 8192), s.value(graph.I32, 2))
		})
	}
}

// step adds a step of many weights.
func (all *samples) step(op graph.Optimizer, grads graph.DType, many int, dims ...int) {
	all.add(op.Name(), func(s *sample) (out []*graph.Value) {
		var r graph.Rounding
		w := graph.T(graph.F32, dims...)
		states, scalars := []graph.Type{w}, 4
		switch op := op.(type) {
		case graph.AdamW:
			r, states = op.Round, []graph.Type{w, w}
		case graph.AdamW8bit:
			codes, scales := graph.MomentTypes(w)
			r, states = op.Round, []graph.Type{codes, codes, scales, scales}
		case graph.Lion:
			r = op.Round
		case graph.SGD:
			r, states = op.Round, nil
		case graph.Adafactor:
			rows, columns := graph.FactorTypes(w)
			r, states = op.Round, []graph.Type{rows, columns}
		}
		_, sgd := op.(graph.SGD)
		_, lion := op.(graph.Lion)
		if (sgd || lion) && r.Mode != graph.Stochastic {
			scalars = 3
		}
		if r.Mode != graph.Exact {
			w = w.With(graph.BF16)
		}
		if r.Mode == graph.Compensated {
			states = append(states, w)
		}
		if a, ok := op.(graph.AdamW); ok && a.Rounded != graph.Invalid {
			states = append(states, w.With(a.Rounded))
		}
		var rest []*graph.Value
		for range scalars {
			rest = append(rest, s.value(graph.F32))
		}
		for range many {
			in := []*graph.Value{s.state(w.DType, dims...), s.state(grads, dims...)}
			for _, t := range states {
				in = append(in, s.state(t.DType, t.Shape...))
			}
			out = append(out, s.Emit(op, append(in, rest...)...)...)
		}
		return out
	})
}

// quantized are weights in four and eight bits.
func (all *samples) quantized() {
	for _, f := range []graph.DType{graph.NF4, graph.Int8} { // as in products
		for _, side := range []int{64, 128} {
			for _, k := range []int{64, 192} {
				for _, trans := range []bool{false, true} {
					dims := []int{k, side}
					if trans {
						dims = []int{side, k}
					}
					all.add("matmul", func(s *sample) []*graph.Value {
						return s.Emit(graph.MatMul{TransB: trans}, s.value(graph.F16, side, k), s.state(f, dims...))
					})
				}
			}
		}
	}
	for _, d := range floats {
		for _, n := range []int{64, 512} {
			all.emit(graph.Quantize{}, graph.T(d, 64, n))
			for _, f := range []graph.DType{graph.NF4, graph.Int8} {
				all.add("dequantize", func(s *sample) []*graph.Value {
					return s.Emit(graph.Dequantize{To: d}, s.state(f, 64, n))
				})
			}
		}
	}
}

// logits are further losses of linear logits: of a tile or two, with few and more steps along K.
func (all *samples) logits() {
	for _, d := range floats {
		loss := func(rows, classes, width int) {
			in := []graph.Type{graph.T(d, rows, width), graph.T(d, classes, width), graph.T(graph.I32, rows), f32(rows)}
			all.emit(graph.LinearCrossEntropy{Chunk: rows, Exponentials: true}, in...)
			all.emit(graph.LinearCrossEntropyGrad{Chunk: rows, Exponentials: true}, append(in, f32())...)
		}
		for _, side := range []int{64, 128} {
			loss(side, side, 64)
			loss(side, side, 192)
		}
		if d == graph.F32 {
			loss(64, 200, 64)
			loss(64, 4096, 64)
		}
		if d == graph.F16 { // rows that do not begin at multiples of 16 bytes
			loss(62, 60, 60)
			loss(62, 60, 188)
		}
	}
}
