package main

import (
	"fmt"
	"maps"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// looped is how entries of fused loops begin.
const looped = "loop"

// unit is a family of kernels whose work has a fixed part and one that grows: a tile of
// a product and its steps along K, a row and its elements.
type unit struct {
	name        string
	fixed, each string // what the two parts are called
	kernels     string // that are counted
	n, m        float64
	at          func(n int) program
	over        float64 // what one program has of the fixed part
}

// measure counts the units whose names begin with a prefix.
func measure(prefix string) (map[string]counts.Work, error) {
	table := map[string]counts.Work{}
	for _, u := range units() {
		if !strings.HasPrefix(u.name, prefix) {
			continue
		}
		a, err := count(u.kernels, u.at(int(u.n)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		b, err := count(u.kernels, u.at(int(u.m)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		fixed, each := split(a, b, u.n, u.m)
		table[u.name+" "+u.fixed] = counts.Work{}.Plus(1/u.over, fixed)
		table[u.name+" "+u.each] = counts.Work{}.Plus(1/u.over, each)
	}
	if n := min(len(prefix), len(looped)); prefix[:n] == looped[:n] {
		steps, err := loops()
		if err != nil {
			return nil, err
		}
		maps.Copy(table, steps)
	}
	return table, nil
}

// inputs makes operands of a type, each its own.
func inputs(b *graph.Builder, types ...graph.Type) []*graph.Value {
	var in []*graph.Value
	for i, t := range types {
		in = append(in, b.Input(fmt.Sprint("x", i), t))
	}
	return in
}

// emit is one operation on operands of its own.
func emit(op graph.Op, types ...graph.Type) program {
	return func(b *graph.Builder) []*graph.Value { return b.Emit(op, inputs(b, types...)...) }
}

var formats = []graph.DType{graph.F16, graph.F32}

func units() (all []unit) {
	for _, d := range formats {
		all = append(all, products(d)...)
		all = append(all, rows(d)...)
		all = append(all, attentions(d)...)
	}
	return all
}

// products are one tile, with K of two and of six steps of 32.
func products(d graph.DType) (all []unit) {
	for _, side := range []int{64, 128} {
		for _, x := range []string{"nn", "nt", "tn"} {
			op := graph.MatMul{TransA: x[0] == 't', TransB: x[1] == 't'}
			kernel := fmt.Sprintf("gemm_%d_%s_%v", side, x, d)
			if d == graph.F32 {
				kernel = fmt.Sprintf("sgemm_%d_%v", side, d)
			}
			all = append(all, unit{name: fmt.Sprintf("gemm_%d_%s_%v", side, x, d), fixed: "tile", each: "step", kernels: kernel, n: 2, m: 6, over: 1, at: func(n int) program {
				a, b := graph.T(d, side, 32*n), graph.T(d, 32*n, side)
				if op.TransA {
					a = graph.T(d, 32*n, side)
				}
				if op.TransB {
					b = graph.T(d, side, 32*n)
				}
				return emit(op, a, b)
			}})
		}
	}
	if d == graph.F32 {
		return all
	}
	for _, x := range []string{"nn", "nt", "tn", "tt"} { // rows that do not begin at multiples of 16 bytes
		op := graph.MatMul{TransA: x[0] == 't', TransB: x[1] == 't'}
		name := fmt.Sprintf("gemm_any_%s_%v", x, d)
		all = append(all, unit{name: name, fixed: "tile", each: "step", kernels: name, n: 2, m: 6, over: 1, at: func(n int) program {
			const side = 63
			k := 32*n - 1
			a, b := graph.T(d, side, k), graph.T(d, k, side)
			if op.TransA {
				a = graph.T(d, k, side)
			}
			if op.TransB {
				b = graph.T(d, side, k)
			}
			return emit(op, a, b)
		}})
	}
	return all
}

// rows are operations on rows, by the kernels for their lengths.
func rows(d graph.DType) (all []unit) {
	const many = 64
	add := func(name string, n, m int, at func(n int) program) {
		all = append(all, unit{name: fmt.Sprintf("%s_%v", name, d), fixed: "row", each: "element", n: float64(n), m: float64(m), over: many, at: at})
	}
	f := func(dims ...int) graph.Type { return graph.T(graph.F32, dims...) }
	for _, group := range []struct {
		suffix string
		n, m   int
	}{{"w256", 128, 256}, {"w1024", 512, 1024}, {"block", 2048, 4096}} {
		for _, rms := range []bool{false, true} {
			norm := graph.LayerNorm{Eps: 1e-5, RMS: rms}
			add(norm.Name()+"_"+group.suffix, group.n, group.m, func(n int) program {
				in := []graph.Type{graph.T(d, many, n), f(n), f(n)}
				if rms {
					in = in[:2]
				}
				return emit(norm, in...)
			})
			grad := graph.LayerNormGrad(norm)
			add(grad.Name()+"_"+group.suffix, group.n, group.m, func(n int) program {
				return emit(grad, graph.T(d, many, n), graph.T(d, many, n), f(n), f(many), f(many))
			})
		}
		if d == graph.F32 {
			add("softmax_"+group.suffix, group.n, group.m, func(n int) program { return emit(graph.Softmax{}, f(many, n)) })
			add("softmax_grad_"+group.suffix, group.n, group.m, func(n int) program {
				return emit(graph.SoftmaxGrad{}, f(many, n), f(many, n))
			})
		}
	}
	labels := graph.T(graph.I32, many)
	add("cross_entropy", 4096, 8192, func(n int) program { return emit(graph.CrossEntropy{}, graph.T(d, many, n), labels, f(many)) })
	add("cross_entropy_grad", 4096, 8192, func(n int) program {
		return emit(graph.CrossEntropyGrad{}, graph.T(d, many, n), labels, f(many), f(many), f())
	})
	add("sum_rows", 256, 512, func(n int) program { return emit(graph.Reduce{Kind: graph.ReduceSum, Axes: 1}, graph.T(d, many, n)) })
	add("embedding", 256, 512, func(n int) program { return emit(graph.Embedding{Out: d}, f(16, n), labels) })
	return all
}

// attentions are one tile of queries or keys with two and six of the others.
func attentions(d graph.DType) (all []unit) {
	const tile = 64
	sizes := []int{16, 32, 64, 80, 96, 128}
	if d == graph.F32 {
		sizes = []int{32, 64, 128}
	}
	for _, size := range sizes {
		suffix := fmt.Sprintf("_%v_%d", d, size)
		for _, part := range []string{"attention", "attention_dq", "attention_dkv"} {
			kernels := part + suffix
			if d == graph.F32 {
				kernels = part
			}
			all = append(all, unit{name: part + suffix, fixed: "tile", each: "pair", kernels: kernels, n: 2, m: 6, over: 1, at: func(n int) program {
				q, k := graph.T(d, 1, tile, size), graph.T(d, 1, n*tile, size)
				if part == "attention_dkv" {
					q, k = k, q
				}
				op := graph.Attention{Heads: 1, Scale: 1}
				if part == "attention" {
					return func(b *graph.Builder) []*graph.Value { return b.Emit(op, inputs(b, q, k, k)...)[:1] }
				}
				lse := graph.T(graph.F32, 1, 1, q.Shape[1])
				return emit(graph.AttentionGrad(op), q, q, lse, q, k, k)
			}})
		}
	}
	return all
}

// loops are generated loops: a copy, one more operand, and each function by what it
// adds to a copy of its operands.
func loops() (map[string]counts.Work, error) {
	table := map[string]counts.Work{}
	const n = 8 * 256 * 4
	for _, d := range formats {
		x := graph.T(d, n)
		per := func(what string, p program, less ...counts.Work) (counts.Work, error) {
			w, err := count("loop", p)
			if err != nil {
				return w, fmt.Errorf("%s of %v: %w", what, d, err)
			}
			w = counts.Work{}.Plus(1./n, w)
			for _, l := range less {
				w = w.Plus(-1, l)
			}
			table[fmt.Sprintf("loop_%v %s", d, what)] = w
			return w, nil
		}
		// Nothing compiles to a copy, so it is a negation without the negation.
		base, err := per("copy", emit(graph.Elementwise{Fn: graph.FnNeg}, x), counts.Work{FP32: 1. / 32})
		if err != nil {
			return nil, err
		}
		// An addition of two operands is one of a constant, and another operand.
		one, err := count("loop", emit(graph.Elementwise{Fn: graph.FnAddC, Alpha: 1}, x))
		if err != nil {
			return nil, err
		}
		operand, err := per("operand", emit(graph.Elementwise{Fn: graph.FnAdd}, x, x), counts.Work{}.Plus(1./n, one))
		if err != nil {
			return nil, err
		}
		for fn := graph.FnCopy + 1; fn <= graph.FnSelect; fn++ {
			less, types := base, []graph.Type{x}
			for len(types) < fn.Arity() {
				types, less = append(types, x), less.Plus(1, operand)
			}
			if _, err := per(fn.String(), emit(graph.Elementwise{Fn: fn, Alpha: .5}, types...), less); err != nil {
				return nil, err
			}
		}
		if _, err := per("dropout", emit(graph.Dropout{P: .1}, x, graph.T(graph.I32, 2)), base); err != nil {
			return nil, err
		}
	}
	return table, nil
}
