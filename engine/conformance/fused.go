package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// pair adds a case whose function must give the outputs of its plain form bit for bit.
func (t *table) pair(name string, tol Tolerance, fused, plain func(m *maker)) {
	m := newMaker(name)
	plain(m)
	c := t.add(name, tol, fused)
	c.Twin, c.Rounded = m.F, true
}

func fn(f graph.Fn) graph.Elementwise             { return graph.Elementwise{Fn: f} }
func fnA(f graph.Fn, a float64) graph.Elementwise { return graph.Elementwise{Fn: f, Alpha: a} }
func instr(op graph.Op, d graph.DType, arg ...int) graph.Instr {
	return graph.Instr{Op: op, Arg: arg, DType: d}
}

// plainBody emits the instructions of a body as separate nodes.
func plainBody(m *maker, b *graph.Body, in []*graph.Value) []*graph.Value {
	regs := append([]*graph.Value(nil), in...)
	for _, s := range b.Instrs {
		args := make([]*graph.Value, len(s.Arg))
		for i, a := range s.Arg {
			args[i] = regs[a]
		}
		op := s.Op
		if e, ok := op.(graph.Elementwise); ok {
			e.Out = s.DType
			op = e
		}
		regs = append(regs, m.Emit(op, args...)[0])
	}
	out := make([]*graph.Value, len(b.Results))
	for i, r := range b.Results {
		out[i] = regs[r]
	}
	return out
}

// bodies are programs over x [6, 67], a row [67] and a scalar, or x alone.
func bodies(d graph.DType) map[string]*graph.Body {
	return map[string]*graph.Body{
		"bias_gelu": {Inputs: 2, Results: []int{3}, Instrs: []graph.Instr{
			instr(fn(graph.FnAdd), d, 0, 1), instr(fn(graph.FnGELU), d, 2),
		}},
		"two_results": {Inputs: 2, Results: []int{2, 3}, Instrs: []graph.Instr{
			instr(fn(graph.FnMul), d, 0, 1), instr(fn(graph.FnTanh), d, 2),
		}},
		"row_first": {Inputs: 2, Results: []int{4}, Instrs: []graph.Instr{
			instr(fn(graph.FnExp), graph.F32, 1), instr(fn(graph.FnMul), d, 0, 2), instr(fnA(graph.FnAddC, 0.5), d, 3),
		}},
		"residual_dropout": {Inputs: 3, Results: []int{4, 5}, Instrs: []graph.Instr{
			instr(fn(graph.FnAdd), d, 0, 1), // the counter is input 2
			instr(graph.Dropout{P: 0.25, Seed: 77, Stream: 4}, d, 3, 2),
			instr(fn(graph.FnAdd), d, 4, 0),
		}},
	}
}

func (t *table) fused() {
	names := []string{"bias_gelu", "two_results", "row_first", "residual_dropout"}
	for _, d := range floats {
		for _, n := range names {
			body := bodies(d)[n]
			operands := func(m *maker, x *graph.Value) []*graph.Value {
				in := []*graph.Value{x, m.normal("row", graph.F32, 67)}
				if body.Inputs > 2 {
					in = append(in, m.given(graph.RunCounter, 12, 0))
				}
				return in
			}
			tol := Tolerance{Ulps: 8, Abs: 0x1p-22, Inner: 2, InnerDType: d}
			t.pair(fmt.Sprintf("fused/%v/%s", d, n), tol,
				func(m *maker) {
					m.outputs(m.Emit(graph.Fused{Body: body}, operands(m, m.normal("x", d, 6, 67))...)...)
				},
				func(m *maker) { m.outputs(plainBody(m, body, operands(m, m.normal("x", d, 6, 67)))...) })

			tol.Terms = 40
			factors := func(m *maker) (a, b *graph.Value) { return m.normal("a", d, 6, 40), m.normal("b", d, 67, 40) }
			t.pair(fmt.Sprintf("matmul_body/%v/%s", d, n), tol,
				func(m *maker) {
					a, b := factors(m)
					in := operands(m, a) // a stands for the matmul
					m.outputs(m.Emit(graph.MatMul{TransB: true, Body: body}, append([]*graph.Value{a, b}, in[1:]...)...)...)
				},
				func(m *maker) {
					a, b := factors(m)
					m.outputs(plainBody(m, body, operands(m, m.MatMul(a, b, false, true)))...)
				})
		}
	}
}

// mapped adds matmuls whose operands go through functions as they are read.
func (t *table) mapped() {
	for _, d := range floats {
		for _, s := range [][3]int{{5, 7, 6}, {37, 50, 65}, {130, 97, 70}, {8, 40, 1100}} { // M, N, K
			for i, op := range []graph.MatMul{
				{MapA: fn(graph.FnGELU)}, {MapA: fn(graph.FnGELU), TransB: true},
				{MapB: fnA(graph.FnElu, 0.5)}, {MapB: fn(graph.FnGELU), TransA: true},
				{MapA: fnA(graph.FnAddC, 0.25), MapB: fn(graph.FnTanh)},
			} {
				operands := func(m *maker) (a, b *graph.Value) {
					sa, sb := []int{s[0], s[2]}, []int{s[2], s[1]}
					if op.TransA {
						sa = []int{s[2], s[0]}
					}
					if op.TransB {
						sb = []int{s[1], s[2]}
					}
					return m.normal("a", d, sa...), m.normal("b", d, sb...)
				}
				t.pair(fmt.Sprintf("matmul_map/%v/%d_%v", d, i, graph.Shape(s[:])), Tolerance{Ulps: 8, Abs: 0x1p-22, Terms: s[2], Inner: 1, InnerDType: d},
					func(m *maker) {
						a, b := operands(m)
						m.outputs(m.Emit(op, a, b)...)
					},
					func(m *maker) {
						a, b := operands(m)
						if op.MapA != (graph.Elementwise{}) {
							a = m.Emit(op.MapA, a)[0]
						}
						if op.MapB != (graph.Elementwise{}) {
							b = m.Emit(op.MapB, b)[0]
						}
						m.outputs(m.MatMul(a, b, op.TransA, op.TransB))
					})
			}
		}
	}
}

func (t *table) random() {
	for _, d := range floats {
		for _, p := range []float64{0.1, 0.5, 0.9} {
			t.add(fmt.Sprintf("dropout/%v/%v", d, p), Tolerance{Ulps: 1.5}, func(m *maker) {
				x := m.normal("x", d, 3, 357)
				op := graph.Dropout{P: p, Seed: 0x123456789abcdef0, Stream: 9}
				m.outputs(m.Emit(op, x, m.given(graph.RunCounter, 41, 3))[0])
			})
		}
		t.add(fmt.Sprintf("dropout/%v/part", d), Tolerance{Ulps: 1.5}, func(m *maker) {
			op := graph.Dropout{P: 0.4, Seed: 7, Stream: 2, First: 1<<34 + 20}
			m.outputs(m.Emit(op, m.normal("x", d, 3, 37), m.given(graph.RunCounter, 41, 3))[0])
		})
		t.add(fmt.Sprintf("dropout/%v/high_counter", d), Tolerance{Ulps: 1.5}, func(m *maker) {
			x := m.normal("x", d, 13)
			m.outputs(m.Emit(graph.Dropout{P: 0.5, Seed: 1, Stream: 1 << 31}, x, m.given(graph.RunCounter, -5, 0))[0])
		})
	}
}

// fusedSums adds bodies with sums over columns, of an instruction that is not a result
// otherwise and of an operand.
func (t *table) fusedSums() {
	for _, d := range floats {
		body := &graph.Body{Inputs: 2, Results: []int{3, 2, 0}, Instrs: []graph.Instr{
			instr(fn(graph.FnMul), d, 0, 1), instr(fn(graph.FnAdd), d, 2, 0),
		}}
		for _, c := range []struct {
			x, row graph.Shape
			axes   uint32
		}{
			{graph.Shape{300, 67}, graph.Shape{67}, 1},
			{graph.Shape{5, 7, 33, 40}, graph.Shape{5, 1, 1, 40}, 0b110},
			{graph.Shape{2, 2100, 3}, graph.Shape{2100, 1}, 0b10},
			{graph.Shape{40, 2, 1500}, graph.Shape{2, 1}, 1},
			{graph.Shape{300, 3, 64}, graph.Shape{300, 1, 64}, 0b10}, // enough for all multiprocessors of a card
		} {
			sum := graph.Reduce{Axes: c.axes}
			in := func(m *maker) []*graph.Value {
				return []*graph.Value{m.normal("x", d, c.x...), m.normal("row", graph.F32, c.row...)}
			}
			_, rows, _, _ := sum.Columns(c.x)
			tol := Tolerance{Ulps: 8, Abs: 0x1p-22, Terms: rows, Inner: 2, InnerDType: d}
			t.pair(fmt.Sprintf("fused/%v/sums_%v", d, c.x), tol,
				func(m *maker) {
					m.outputs(m.Emit(graph.Fused{Body: body, Reductions: []graph.Reduce{sum, sum}}, in(m)...)...)
				},
				func(m *maker) {
					out := plainBody(m, body, in(m))
					m.outputs(out[0], m.Emit(sum, out[1])[0], m.Emit(sum, out[2])[0])
				})
		}
	}
}
