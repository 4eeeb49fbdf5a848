package conformance

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// fnRule says how a scalar function is tested.
type fnRule struct {
	tol    Tolerance
	lo, hi float64 // range of the operands
	alpha  float64
}

// rule is the rule of a function.
func rule(fn graph.Fn) fnRule {
	r := fnRule{lo: -4, hi: 4, alpha: 0.3}
	switch fn {
	case graph.FnDiv, graph.FnRecip, graph.FnSqrt:
		r.tol.Ulps = 1
	case graph.FnRsqrt:
		r.tol.Ulps = 2
	case graph.FnExp, graph.FnTanh, graph.FnSigmoid, graph.FnSoftplus:
		r.tol.Ulps = 4
	case graph.FnLog, graph.FnSin, graph.FnCos:
		r.tol = Tolerance{Ulps: 4, Abs: 0x1p-23}
	case graph.FnElu, graph.FnLeakyRelu, graph.FnLeakyReluGrad:
		r.tol = Tolerance{Ulps: 4, Abs: 0x1p-23} // e^x-1 cancels; alpha is rounded
	case graph.FnSiLU, graph.FnGELU, graph.FnGELUTanh:
		r.tol = Tolerance{Ulps: 8, Abs: 0x1p-24}
	case graph.FnEluGrad, graph.FnSiLUGrad, graph.FnGELUGrad, graph.FnGELUTanhGrad, graph.FnTanhGrad, graph.FnSigmoidGrad:
		r.tol = Tolerance{Ulps: 8, Abs: 0x1p-21}
	case graph.FnAddC, graph.FnMulC, graph.FnMinC, graph.FnMaxC:
		r.tol = Tolerance{Ulps: 1, Abs: 0x1p-25} // alpha is rounded
	}
	switch fn {
	case graph.FnSqrt, graph.FnRsqrt, graph.FnLog:
		r.lo, r.hi = 0.01, 20
	case graph.FnTanhGrad:
		r.lo, r.hi = -1, 1
	case graph.FnSigmoidGrad:
		r.lo, r.hi = 0, 1
	}
	return r
}

// operand draws from the range, and every eighth time a round number, so that
// comparisons meet equal operands and kinks.
func (m *maker) operand(name string, t graph.Type, r fnRule) *graph.Value {
	return m.input(name, t, func() float64 {
		x := r.lo + (r.hi-r.lo)*m.rng.Float64()
		if m.rng.IntN(8) == 0 {
			x = math.Round(x)
		}
		return max(x, r.lo)
	})
}

// broadcasts are shapes of two operands.
var broadcasts = []struct {
	name string
	a, b graph.Shape
}{
	{"same", graph.Shape{3, 5, 7}, graph.Shape{3, 5, 7}},
	{"long", graph.Shape{1031}, graph.Shape{1031}},
	{"row", graph.Shape{6, 37}, graph.Shape{37}},
	{"column", graph.Shape{6, 37}, graph.Shape{6, 1}},
	{"scalar", graph.Shape{130}, graph.Shape{}},
	{"one", graph.Shape{}, graph.Shape{}},
	{"outer", graph.Shape{9, 1}, graph.Shape{1, 17}},
	{"middle", graph.Shape{2, 3, 5}, graph.Shape{2, 1, 5}},
	{"left", graph.Shape{7}, graph.Shape{5, 7}},
	{"ends", graph.Shape{3, 1, 4, 1}, graph.Shape{2, 1, 5}},
}

func (t *table) elementwise() {
	for fn := range graph.Fn(graph.NumFns) {
		r := rule(fn)
		for _, d := range floats {
			op := graph.Elementwise{Fn: fn, Alpha: r.alpha}
			name := fmt.Sprintf("%v/%v", fn, d)
			switch fn.Arity() {
			case 1:
				for _, s := range []graph.Shape{{}, {7}, {1031}, {3, 5, 16}} {
					t.add(fmt.Sprintf("%s/%v", name, s), r.tol, func(m *maker) {
						m.outputs(m.Emit(op, m.operand("x", graph.Type{DType: d, Shape: s}, r))...)
					})
				}
			case 2:
				for _, s := range broadcasts {
					t.add(name+"/"+s.name, r.tol, func(m *maker) {
						x := m.operand("x", graph.Type{DType: d, Shape: s.a}, r)
						m.outputs(m.Emit(op, x, m.operand("y", graph.Type{DType: d, Shape: s.b}, r))...)
					})
				}
			case 3:
				t.selects(name, d, op)
			}
		}
		t.specials(fn, r)
	}
	t.mixed()
}

func (t *table) selects(name string, d graph.DType, op graph.Elementwise) {
	for i, s := range [][3]graph.Shape{
		{{6, 37}, {6, 37}, {6, 37}}, {{6, 1}, {37}, {}}, {{}, {9}, {9}}, {{3, 5, 7}, {7}, {5, 1}},
	} {
		t.add(fmt.Sprintf("%s/%d", name, i), Tolerance{}, func(m *maker) {
			cond := m.input("cond", graph.Type{DType: d, Shape: s[0]}, func() float64 { return float64(m.rng.IntN(3) - 1) })
			x := m.input("x", graph.Type{DType: d, Shape: s[1]}, m.rng.NormFloat64)
			m.outputs(m.Emit(op, cond, x, m.input("y", graph.Type{DType: d, Shape: s[2]}, m.rng.NormFloat64))...)
		})
	}
}

// specials are zeros, the ends of the range, infinities and NaN: a kernel must not hide
// what a lost gradient looks like. Functions that multiply infinity by zero internally
// are spared the infinities.
func (t *table) specials(fn graph.Fn, r fnRule) {
	x := []float64{0, 1, -1, 0x1p-126, -0x1p-126, 0x1p60, -0x1p60, math.NaN(), 30, -30, 90, -90}
	switch fn {
	case graph.FnSin, graph.FnCos:
		x = []float64{0, 1, -1, 0x1p-126, math.NaN(), 100, -100}
	case graph.FnSiLU, graph.FnGELU, graph.FnGELUTanh,
		graph.FnSiLUGrad, graph.FnGELUGrad, graph.FnGELUTanhGrad, graph.FnEluGrad, graph.FnTanhGrad, graph.FnSigmoidGrad:
		x = []float64{0, 1, -1, 0x1p-126, -0x1p-126, math.NaN(), 30, -30}
	default:
		x = append(x, math.Inf(1), math.Inf(-1))
	}
	t.add(fmt.Sprintf("%v/specials", fn), r.tol, func(m *maker) {
		all := graph.T(graph.F32, len(x))
		in := make([]*graph.Value, fn.Arity())
		for i := range in {
			at := -1
			if i > 0 { // every pair of special values
				all = graph.T(graph.F32, len(x), 1)
			}
			in[i] = m.input(fmt.Sprint("x", i), all, func() float64 { at++; return x[at] })
		}
		m.outputs(m.Emit(graph.Elementwise{Fn: fn, Alpha: r.alpha}, in...)...)
	})
}

// mixed are operands of different element types and explicit result types.
func (t *table) mixed() {
	for _, from := range floats {
		for _, to := range floats {
			t.add(fmt.Sprintf("cast/%v_%v", from, to), Tolerance{}, func(m *maker) {
				// Doubling the exponent range shows overflow and subnormal numbers.
				x := m.input("x", graph.T(from, 2053), func() float64 {
					return m.rng.NormFloat64() * math.Ldexp(1, m.rng.IntN(50)-30)
				})
				m.outputs(m.Emit(graph.Elementwise{Fn: graph.FnCopy, Out: to}, x)...)
			})
			t.add(fmt.Sprintf("add/%v_%v", from, to), Tolerance{}, func(m *maker) {
				m.outputs(m.Add(m.normal("x", from, 5, 33), m.normal("y", to, 5, 33)))
			})
			t.add(fmt.Sprintf("add/%v_row_%v", from, to), Tolerance{}, func(m *maker) {
				m.outputs(m.Add(m.normal("x", from, 5, 33), m.normal("y", to, 33)))
			})
			t.add(fmt.Sprintf("mul/%v_to_%v", from, to), Tolerance{}, func(m *maker) {
				op := graph.Elementwise{Fn: graph.FnMul, Out: to}
				m.outputs(m.Emit(op, m.normal("x", from, 129), m.normal("y", from, 129))...)
			})
		}
	}
}
