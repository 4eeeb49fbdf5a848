package ref_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// domain is a region where a scalar function is smooth: how its operands are drawn.
type domain uint8

const (
	anywhere domain = iota
	positive        // 0.5 .. 3
	nonzero         // magnitude 0.3 .. 2
	apart           // operands differ by at least 0.1
	kinked          // first operand is 0.1 away from alpha
	fraction        // at least 0.2 from an integer
	switched        // first operand is 0 or 1 and has no gradient
	second          // a gradient function: not differentiated again
)

// domains covers every function; the test fails on one that is missing.
var domains = map[graph.Fn]domain{
	graph.FnCopy: anywhere, graph.FnNeg: anywhere, graph.FnAbs: nonzero, graph.FnSquare: anywhere,
	graph.FnSqrt: positive, graph.FnRsqrt: positive, graph.FnRecip: nonzero, graph.FnExp: anywhere,
	graph.FnLog: positive, graph.FnSin: anywhere, graph.FnCos: anywhere, graph.FnTanh: anywhere,
	graph.FnSigmoid: anywhere, graph.FnSoftplus: anywhere, graph.FnRelu: nonzero,
	graph.FnLeakyRelu: nonzero, graph.FnElu: nonzero, graph.FnSiLU: anywhere, graph.FnGELU: anywhere,
	graph.FnGELUTanh: anywhere, graph.FnAddC: anywhere, graph.FnMulC: anywhere,
	graph.FnMinC: kinked, graph.FnMaxC: kinked, graph.FnIsFinite: anywhere, graph.FnPositive: nonzero,
	graph.FnFloor: fraction,
	graph.FnAdd:   anywhere, graph.FnSub: anywhere, graph.FnMul: anywhere, graph.FnDiv: nonzero,
	graph.FnMax: apart, graph.FnMin: apart, graph.FnGreater: apart, graph.FnEqual: apart,
	graph.FnTanhGrad: second, graph.FnSigmoidGrad: second, graph.FnReluGrad: second,
	graph.FnLeakyReluGrad: second, graph.FnEluGrad: second, graph.FnSiLUGrad: second,
	graph.FnGELUGrad: second, graph.FnGELUTanhGrad: second, graph.FnAbsGrad: second,
	graph.FnSelect: switched,
}

// draw is a generator for operand i of a function on d.
func (p *probe) draw(d domain, i int, alpha float64) func() float64 {
	sign := func() float64 { return float64(2*p.rng.IntN(2) - 1) }
	return func() float64 {
		switch d {
		case positive:
			return 0.5 + 2.5*p.rng.Float64()
		case nonzero:
			return sign() * (0.3 + 1.7*p.rng.Float64())
		case apart:
			return 0.4*float64(p.rng.IntN(9)-4) + 0.2*float64(i) + 0.1*p.rng.Float64()
		case kinked:
			return alpha + sign()*(0.1+p.rng.Float64())
		case fraction:
			return float64(p.rng.IntN(7)-3) + 0.2 + 0.6*p.rng.Float64()
		}
		return p.rng.NormFloat64()
	}
}

func TestGradElementwise(t *testing.T) {
	if len(domains) != graph.NumFns {
		t.Errorf("%d of %d scalar functions have a domain here", len(domains), graph.NumFns)
	}
	for fn, d := range domains {
		if d == second {
			continue
		}
		t.Run(fn.String(), func(t *testing.T) {
			gradient(t, func(p *probe) []*graph.Value {
				s := p.shape(0, 3)
				op := graph.Elementwise{Fn: fn, Alpha: 0.3}
				var in []*graph.Value
				for i := range fn.Arity() {
					gen := p.draw(d, i, op.Alpha)
					if d == switched && i == 0 {
						in = append(in, p.declare(graph.Type{DType: p.dtype, Shape: p.within(s)}, func() float64 { return float64(p.rng.IntN(2)) }))
						continue
					}
					shape := s
					if fn.Arity() > 1 {
						shape = p.within(s)
					}
					in = append(in, p.operand(shape, gen))
				}
				return p.Emit(op, in...)
			})
		})
	}
}

// The gradient of x with itself in both operands adds up.
func TestGradRepeatedOperand(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		x := p.x(3)
		return []*graph.Value{p.Mul(p.Mul(x, x), p.Add(x, x))}
	})
}

func TestGradCast(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value { return []*graph.Value{p.Cast(p.x(2, 3), graph.BF16)} })
}

// The gradient functions are derivatives: fn's gradient rule evaluated at one
// point is the difference quotient in high precision, tails included.
func TestGradFunctionsInTheTails(t *testing.T) {
	for _, c := range []struct{ fn, grad graph.Fn }{
		{graph.FnGELU, graph.FnGELUGrad},
		{graph.FnGELUTanh, graph.FnGELUTanhGrad},
		{graph.FnSiLU, graph.FnSiLUGrad},
	} {
		for x := -12.0; x <= 12; x += 0.25 {
			const h = 1e-3
			f := func(x float64) float64 { return c.fn.Eval(0, x, 0, 0) }
			want := (8*(f(x+h)-f(x-h)) - (f(x+2*h) - f(x-2*h))) / (12 * h)
			got := c.grad.Eval(0, x, 1, 0)
			if math.Abs(got-want) > 1e-11*(1+math.Abs(x)) {
				t.Errorf("%v(%v) = %v, by differences %v", c.grad, x, got, want)
			}
		}
	}
}
