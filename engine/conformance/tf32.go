package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// TF32Cases are the matmuls that round their factors to TF32 ([graph.TF32Rule]), for
// devices that support it. Rounded factors are exact in the reference too, so the bounds
// are those of float32; a factor that the device computes itself may be rounded to a
// neighbor, which is 2^-10 away.
func TF32Cases() []Case {
	var t table
	sizes := [][3]int{ // M, N, K
		{1, 1, 1}, {5, 7, 6}, {1, 130, 33}, {130, 1, 33}, {37, 50, 65}, {6, 16, 1}, {48, 64, 32}, {64, 72, 20}, {8, 40, 1100}, {130, 97, 70}, {132, 100, 68},
	}
	for trans := range 4 {
		op := graph.MatMul{TransA: trans&1 != 0, TransB: trans&2 != 0, TF32: true}
		for _, s := range sizes {
			t.matmul(op, graph.F32, nil, s)
		}
		t.matmul(op, graph.F32, []int{2, 3}, [3]int{9, 17, 12})
		t.matmul(op, graph.F32, []int{72}, [3]int{68, 72, 36}) // tiles of 128
		op.Accumulate = true
		t.matmul(op, graph.F32, nil, [3]int{37, 50, 65})
		t.matmul(op, graph.F32, nil, [3]int{4, 8, 2100}) // K in parts
	}
	for _, out := range floats {
		t.matmul(graph.MatMul{TransB: true, Out: out, TF32: true}, graph.F32, nil, [3]int{37, 50, 65})
	}
	t.matmul(graph.MatMul{TransA: true, SumA: true, TF32: true}, graph.F32, nil, [3]int{37, 50, 65})
	computed := func(terms int) Tolerance {
		return Tolerance{Ulps: 32, Terms: terms, Inner: 1, InnerDType: graph.F16, Abs: 0x1p-20}
	}
	t.add("tf32/map", computed(64), func(m *maker) {
		op := graph.MatMul{MapA: fn(graph.FnGELU), MapB: fnA(graph.FnAddC, 0.25), TF32: true}
		m.outputs(m.Emit(op, m.normal("a", graph.F32, 36, 64), m.normal("b", graph.F32, 64, 40))...)
	})
	t.add("tf32/body", Tolerance{Ulps: 8, Terms: 64}, func(m *maker) {
		add := graph.Instr{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{0, 1}, DType: graph.F32}
		relu := graph.Instr{Op: graph.Elementwise{Fn: graph.FnRelu}, Arg: []int{2}, DType: graph.F32}
		body := &graph.Body{Inputs: 2, Instrs: []graph.Instr{add, relu}, Results: []int{2, 3}}
		op := graph.MatMul{TransB: true, TF32: true, Body: body}
		m.outputs(m.Emit(op, m.normal("a", graph.F32, 36, 64), m.normal("b", graph.F32, 40, 64), m.normal("bias", graph.F32, 40))...)
	})
	t.add("tf32/stored_bf16", Tolerance{Ulps: 1, Terms: 65}, func(m *maker) {
		m.outputs(m.Emit(graph.MatMul{TransB: true, TF32: true}, m.normal("a", graph.F32, 37, 65), m.normal("b", graph.BF16, 50, 65))...)
	})
	t.add("tf32/stored_nf4", Tolerance{Ulps: 1, Terms: 96}, func(m *maker) {
		m.outputs(m.Emit(graph.MatMul{TransB: true, TF32: true}, m.normal("a", graph.F32, 37, 96), m.quantized("b", graph.NF4, 52, 96))...)
	}).Rounded = true
	for _, s := range [][2]int{{40, 24}, {33, 21}} { // whole pieces of rows, and others
		inner, width := s[0], s[1]
		const rows, experts = 50, 3
		grouped := func(name string, terms int, op graph.Op, dims [3][]int) {
			t.add(fmt.Sprintf("tf32/%s/%v", name, graph.Shape(s[:])), Tolerance{Ulps: 1, Terms: terms}, func(m *maker) {
				in := []*graph.Value{m.normal("x", graph.F32, dims[0]...), m.normal("w", graph.F32, dims[1]...), m.given("offsets", 0, 17, 17, rows)}
				if len(dims[2]) > 0 {
					in = append(in, m.normal("bias", graph.F32, dims[2]...))
				}
				m.outputs(m.Emit(op, in...)...)
			})
		}
		grouped("grouped", inner, graph.GroupedMatMul{TF32: true}, [3][]int{{rows, inner}, {experts, inner, width}, nil})
		grouped("grouped_linear", inner, graph.GroupedMatMul{Trans: true, Bias: true, TF32: true}, [3][]int{{rows, inner}, {experts, width, inner}, {experts, width}})
		grouped("grouped_outer", rows, graph.GroupedOuter{TF32: true}, [3][]int{{rows, inner}, {rows, width}, nil})
		for _, vocab := range []int{48, 53} {
			operands := func(m *maker) []*graph.Value {
				labels, weights := m.labels(rows, vocab)
				return []*graph.Value{m.normal("h", graph.F32, rows, inner), m.normal("w", graph.F32, vocab, inner), labels, weights}
			}
			name := fmt.Sprintf("%dx%dx%d", rows, inner, vocab)
			t.add("tf32/linear_cross_entropy/"+name, Tolerance{Ulps: 4, Terms: rows + inner, Abs: 0x1p-20}, func(m *maker) {
				y := m.Emit(graph.LinearCrossEntropy{Chunk: 24, TF32: true}, operands(m)...)
				m.outputs(y[0], y[1])
			})
			t.add("tf32/linear_cross_entropy_grad/"+name, computed(rows+inner+vocab), func(m *maker) {
				y := m.Emit(graph.LinearCrossEntropyGrad{Chunk: 24, TF32: true}, append(operands(m), m.scalar("dloss", 0.7))...)
				m.outputs(y[0], y[1], y[2])
			})
		}
	}
	return t.cases
}
