package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

func (t *table) matmuls() {
	t.storedMatmuls()
	t.quantizedMatmuls()
	sizes := [][3]int{ // M, N, K
		{1, 1, 1}, {5, 7, 6}, {1, 130, 33}, {130, 1, 33}, {37, 50, 65}, {6, 16, 1}, {48, 64, 32}, {8, 40, 1100}, {130, 97, 70},
	}
	for _, d := range floats {
		for _, s := range sizes {
			for trans := range 4 {
				t.matmul(graph.MatMul{TransA: trans&1 != 0, TransB: trans&2 != 0}, d, nil, s)
			}
		}
		for trans := range 4 {
			t.matmul(graph.MatMul{TransA: trans&1 != 0, TransB: trans&2 != 0}, d, []int{2, 3}, [3]int{9, 17, 12})
		}
		for _, out := range floats {
			t.matmul(graph.MatMul{TransB: true, Out: out}, d, nil, [3]int{37, 50, 65})
			t.matmul(graph.MatMul{TransA: true, Out: out}, d, []int{3}, [3]int{7, 20, 35})
		}
		for trans := range 4 {
			op := graph.MatMul{TransA: trans&1 != 0, TransB: trans&2 != 0, Accumulate: true}
			t.matmul(op, d, nil, [3]int{37, 50, 65})
			t.matmul(op, d, nil, [3]int{3, 5, 700})
		}
		for _, s := range [][3]int{{1, 1, 1}, {37, 50, 65}, {130, 97, 70}, {8, 40, 1100}, {50, 1100, 30}} {
			t.matmul(graph.MatMul{TransA: true, SumA: true}, d, nil, s)
			t.matmul(graph.MatMul{TransA: true, SumA: true, Accumulate: true}, d, nil, s)
		}
	}
}

// storedMatmuls adds matmuls with a weight that is stored in another format.
func (t *table) storedMatmuls() {
	for trans := range 2 {
		op := graph.MatMul{TransB: trans != 0}
		t.add(fmt.Sprintf("matmul/f32_bf16/%v", op.TransB), Tolerance{Ulps: 1, Terms: 65}, func(m *maker) {
			b := []int{65, 50}
			if op.TransB {
				b = []int{50, 65}
			}
			m.outputs(m.Emit(op, m.normal("a", graph.F32, 37, 65), m.normal("b", graph.BF16, b...))...)
		})
	}
}

// quantizedMatmuls adds matmuls with a weight of 4 or 8 bits, whose blocks end within rows
// or with them.
func (t *table) quantizedMatmuls() {
	for _, d := range []graph.DType{graph.NF4, graph.Int8} {
		for _, s := range [][3]int{{1, 1, 1}, {5, 33, 7}, {37, 50, 65}, {130, 96, 192}, {8, 40, 1100}, {3, 700, 64}, {70, 65, 63}, {70, 72, 136}} {
			for _, a := range floats {
				for trans := range 2 {
					op := graph.MatMul{TransB: trans != 0, Out: graph.F32}
					t.add(fmt.Sprintf("matmul/%v_%v/%v%v", a, d, op.TransB, graph.Shape(s[:])), Tolerance{Ulps: 1, Terms: s[2]}, func(m *maker) {
						b := []int{s[2], s[1]}
						if op.TransB {
							b = []int{s[1], s[2]}
						}
						w := m.quantized("b", d, b...)
						m.outputs(m.Emit(op, m.normal("a", a, s[0], s[2]), w)...)
					}).Rounded = true
				}
			}
		}
		for _, to := range floats {
			t.add(fmt.Sprintf("dequantize/%v_to_%v", d, to), Tolerance{}, func(m *maker) {
				m.outputs(m.Emit(graph.Dequantize{To: to}, m.quantized("b", d, 37, 65))...)
			}).Rounded = true
		}
	}
	for _, from := range floats {
		for _, s := range [][]int{{1}, {37, 65}, {2, 3, 128}, {9, 4}, {3, 1025}} {
			t.add(fmt.Sprintf("quantize/%v%v", from, graph.Shape(s)), Tolerance{}, func(m *maker) {
				m.outputs(m.Dequantize(m.Quantize(m.normal("x", from, s...))))
			}).Rounded = true
		}
		t.add(fmt.Sprintf("quantize/%v_zeros", from), Tolerance{}, func(m *maker) {
			x := m.input("x", graph.T(from, 3, 5), func() float64 { return 0 })
			m.outputs(m.Dequantize(m.Quantize(x)))
		}).Rounded = true
	}
}

func (t *table) matmul(op graph.MatMul, d graph.DType, batch []int, s [3]int) {
	rows, cols, inner := s[0], s[1], s[2]
	letters := func(trans bool) string {
		if trans {
			return "t"
		}
		return "n"
	}
	name := fmt.Sprintf("matmul/%v/%s%s_%v%v", d, letters(op.TransA), letters(op.TransB), graph.Shape(batch), graph.Shape(s[:]))
	if op.TF32 {
		name = "tf32/" + name
	}
	if op.Out != graph.Invalid {
		name += "_to_" + op.Out.String()
	}
	if op.Accumulate {
		name += "_accumulate"
	}
	if op.SumA {
		name += "_sums"
	}
	t.add(name, Tolerance{Ulps: 1, Terms: inner}, func(m *maker) {
		a, b := []int{rows, inner}, []int{inner, cols}
		if op.TransA {
			a = []int{inner, rows}
		}
		if op.TransB {
			b = []int{cols, inner}
		}
		in := []*graph.Value{
			m.normal("a", d, append(append([]int{}, batch...), a...)...),
			m.normal("b", d, append(append([]int{}, batch...), b...)...),
		}
		if !op.Accumulate {
			m.outputs(m.Emit(op, in...)...)
			return
		}
		c := m.state("c", graph.T(graph.F32, rows, cols), m.rng.NormFloat64)
		c = m.Emit(op, in[0], in[1], c)[0]
		m.outputs(m.Emit(op, in[0], in[1], c)...) // and once more onto the new version
	})
}

func (t *table) embeddings() {
	for _, d := range floats {
		t.add(fmt.Sprintf("embedding/f32_to_%v", d), Tolerance{}, func(m *maker) {
			m.outputs(m.Emit(graph.Embedding{Out: d}, m.normal("table", graph.F32, 23, 19), m.ints("ids", 0, 22, 3, 11))...)
		})
		t.add(fmt.Sprintf("embedding/%v", d), Tolerance{}, func(m *maker) {
			m.outputs(m.Embedding(m.normal("table", d, 23, 19), m.ints("ids", 0, 22, 33)))
		})
		t.add(fmt.Sprintf("embedding/bf16_to_%v", d), Tolerance{}, func(m *maker) {
			m.outputs(m.Emit(graph.Embedding{Out: d}, m.normal("table", graph.BF16, 23, 19), m.ints("ids", 0, 22, 3, 11))...)
		})
		for _, vocab := range []int{5, 301} {
			t.add(fmt.Sprintf("embedding_grad/%v/%d", d, vocab), Tolerance{Ulps: 1, Terms: 1 + 66/vocab}, func(m *maker) {
				m.outputs(m.Emit(graph.EmbeddingGrad{Vocab: vocab}, m.normal("dy", d, 3, 22, 19), m.ints("ids", 0, vocab-1, 3, 22))...)
			})
			t.add(fmt.Sprintf("embedding_grad/%v/%d_added", d, vocab), Tolerance{Ulps: 1, Terms: 1 + 66/vocab}, func(m *maker) {
				op := graph.EmbeddingGrad{Vocab: vocab}
				dy, ids := m.normal("dy", d, 66, 19), m.ints("ids", 0, vocab-1, 66)
				start := m.normal("start", graph.F32, vocab, 19)
				sum := m.Emit(op, dy, ids, start)[0]
				// A temporary, which the sums may overwrite.
				m.outputs(sum, m.MulC(m.Emit(op, dy, ids, m.MulC(start, 2))[0], 0.5))
			})
			t.add(fmt.Sprintf("embedding_grad/%v/%d_accumulate", d, vocab), Tolerance{Ulps: 1, Terms: 1 + 132/vocab}, func(m *maker) {
				op := graph.EmbeddingGrad{Vocab: vocab, Accumulate: true}
				dy, ids := m.normal("dy", d, 66, 19), m.ints("ids", 0, vocab-1, 66)
				acc := m.state("acc", graph.T(graph.F32, vocab, 19), m.rng.NormFloat64)
				acc = m.Emit(op, dy, ids, acc)[0]
				m.outputs(m.Emit(op, dy, ids, acc)...)
			})
		}
	}
}
