package graph

import (
	"fmt"
	"math"
)

// Fn is a scalar function of one, two or three arguments that is applied
// element by element.
type Fn uint8

// The scalar functions. x, y, z are the operands, a the attribute Alpha.
const (
	FnCopy      Fn = iota // x
	FnNeg                 // -x
	FnAbs                 // |x|
	FnSquare              // x*x
	FnSqrt                // sqrt x
	FnRsqrt               // 1/sqrt x
	FnRecip               // 1/x
	FnExp                 // e^x
	FnLog                 // ln x
	FnSin                 // sin x
	FnCos                 // cos x
	FnTanh                // tanh x
	FnSigmoid             // 1/(1+e^-x)
	FnSoftplus            // ln(1+e^x)
	FnRelu                // max(x, 0)
	FnLeakyRelu           // x if x > 0 else a*x
	FnElu                 // x if x > 0 else a*(e^x-1)
	FnSiLU                // x*sigmoid x
	FnGELU                // x*Phi(x), Hendrycks and Gimpel 2016
	FnGELUTanh            // its tanh form, ibid. section 2
	FnAddC                // x+a
	FnMulC                // x*a
	FnMinC                // min(x, a)
	FnMaxC                // max(x, a)
	FnIsFinite            // 1 if x is finite else 0
	FnPositive            // 1 if x > 0 else 0
	FnFloor               // greatest integer <= x

	FnAdd     // x+y
	FnSub     // x-y
	FnMul     // x*y
	FnDiv     // x/y
	FnMax     // max(x, y)
	FnMin     // min(x, y)
	FnGreater // 1 if x > y else 0
	FnEqual   // 1 if x == y else 0

	// Gradients: y (or z) is the incoming gradient.
	FnTanhGrad      // (1-x*x)*y, x the result of tanh
	FnSigmoidGrad   // x*(1-x)*y, x the result of sigmoid
	FnReluGrad      // 0 if x <= 0 else y
	FnLeakyReluGrad // y if x > 0 else a*y
	FnEluGrad       // y if x > 0 else a*e^x*y
	FnSiLUGrad      // y * d silu(x)/dx
	FnGELUGrad      // y * d gelu(x)/dx
	FnGELUTanhGrad  // y * d gelu_tanh(x)/dx
	FnAbsGrad       // y*sign(x)

	FnSelect // y if x != 0 else z

	numFns
)

// NumFns is how many scalar functions there are, for tables indexed by Fn.
const NumFns = int(numFns)

type fnInfo struct {
	name  string
	arity int
	flops float64
	eval  func(a, x, y, z float64) float64
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// phi is the normal distribution function. Erfc keeps its lower tail exact,
// where 1+erf would cancel.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func gelu(x float64) float64 { return x * phi(x) }

func geluGrad(x float64) float64 {
	return phi(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
}

// The tanh form is x*sigmoid(2u) with u = sqrt(2/pi)*(x + geluC*x^3), because
// (1+tanh u)/2 = sigmoid 2u; written so, its lower tail does not cancel.
const geluC = 0.044715

func geluTanhGate(x float64) float64 {
	return sigmoid(2 * math.Sqrt(2/math.Pi) * (x + geluC*x*x*x))
}

func geluTanh(x float64) float64 { return x * geluTanhGate(x) }

func geluTanhGrad(x float64) float64 {
	s := geluTanhGate(x)
	return s + x*s*(1-s)*2*math.Sqrt(2/math.Pi)*(1+3*geluC*x*x)
}

var fns = [numFns]fnInfo{
	FnCopy:      {"copy", 1, 0, func(_, x, _, _ float64) float64 { return x }},
	FnNeg:       {"neg", 1, 1, func(_, x, _, _ float64) float64 { return -x }},
	FnAbs:       {"abs", 1, 1, func(_, x, _, _ float64) float64 { return math.Abs(x) }},
	FnSquare:    {"square", 1, 1, func(_, x, _, _ float64) float64 { return x * x }},
	FnSqrt:      {"sqrt", 1, 4, func(_, x, _, _ float64) float64 { return math.Sqrt(x) }},
	FnRsqrt:     {"rsqrt", 1, 5, func(_, x, _, _ float64) float64 { return 1 / math.Sqrt(x) }},
	FnRecip:     {"recip", 1, 4, func(_, x, _, _ float64) float64 { return 1 / x }},
	FnExp:       {"exp", 1, 12, func(_, x, _, _ float64) float64 { return math.Exp(x) }},
	FnLog:       {"log", 1, 15, func(_, x, _, _ float64) float64 { return math.Log(x) }},
	FnSin:       {"sin", 1, 15, func(_, x, _, _ float64) float64 { return math.Sin(x) }},
	FnCos:       {"cos", 1, 15, func(_, x, _, _ float64) float64 { return math.Cos(x) }},
	FnTanh:      {"tanh", 1, 18, func(_, x, _, _ float64) float64 { return math.Tanh(x) }},
	FnSigmoid:   {"sigmoid", 1, 16, func(_, x, _, _ float64) float64 { return sigmoid(x) }},
	FnSoftplus:  {"softplus", 1, 28, func(_, x, _, _ float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }},
	FnRelu:      {"relu", 1, 1, func(_, x, _, _ float64) float64 { return max(x, 0) }},
	FnLeakyRelu: {"leaky_relu", 1, 2, func(a, x, _, _ float64) float64 { return max(x, 0) + a*min(x, 0) }},
	FnElu:       {"elu", 1, 14, func(a, x, _, _ float64) float64 { return max(x, 0) + a*math.Expm1(min(x, 0)) }},
	FnSiLU:      {"silu", 1, 17, func(_, x, _, _ float64) float64 { return x * sigmoid(x) }},
	FnGELU:      {"gelu", 1, 25, func(_, x, _, _ float64) float64 { return gelu(x) }},
	FnGELUTanh:  {"gelu_tanh", 1, 25, func(_, x, _, _ float64) float64 { return geluTanh(x) }},
	FnAddC:      {"addc", 1, 1, func(a, x, _, _ float64) float64 { return x + a }},
	FnMulC:      {"mulc", 1, 1, func(a, x, _, _ float64) float64 { return x * a }},
	FnMinC:      {"minc", 1, 1, func(a, x, _, _ float64) float64 { return min(x, a) }},
	FnMaxC:      {"maxc", 1, 1, func(a, x, _, _ float64) float64 { return max(x, a) }},
	FnIsFinite: {"is_finite", 1, 1, func(_, x, _, _ float64) float64 {
		return b2f(!math.IsNaN(x) && !math.IsInf(x, 0))
	}},
	FnPositive: {"positive", 1, 1, func(_, x, _, _ float64) float64 { return b2f(x > 0) }},
	FnFloor:    {"floor", 1, 1, func(_, x, _, _ float64) float64 { return math.Floor(x) }},

	FnAdd:     {"add", 2, 1, func(_, x, y, _ float64) float64 { return x + y }},
	FnSub:     {"sub", 2, 1, func(_, x, y, _ float64) float64 { return x - y }},
	FnMul:     {"mul", 2, 1, func(_, x, y, _ float64) float64 { return x * y }},
	FnDiv:     {"div", 2, 4, func(_, x, y, _ float64) float64 { return x / y }},
	FnMax:     {"max", 2, 1, func(_, x, y, _ float64) float64 { return max(x, y) }},
	FnMin:     {"min", 2, 1, func(_, x, y, _ float64) float64 { return min(x, y) }},
	FnGreater: {"greater", 2, 1, func(_, x, y, _ float64) float64 { return b2f(x > y) }},
	FnEqual:   {"equal", 2, 1, func(_, x, y, _ float64) float64 { return b2f(x == y) }},

	FnTanhGrad:    {"tanh_grad", 2, 3, func(_, x, y, _ float64) float64 { return (1 - x*x) * y }},
	FnSigmoidGrad: {"sigmoid_grad", 2, 3, func(_, x, y, _ float64) float64 { return x * (1 - x) * y }},
	FnReluGrad: {"relu_grad", 2, 1, func(_, x, y, _ float64) float64 {
		if x <= 0 {
			return 0
		}
		return y
	}},
	FnLeakyReluGrad: {"leaky_relu_grad", 2, 2, func(a, x, y, _ float64) float64 {
		if x > 0 {
			return y
		}
		return a * y
	}},
	FnEluGrad: {"elu_grad", 2, 14, func(a, x, y, _ float64) float64 {
		if x > 0 {
			return y
		}
		return a * math.Exp(x) * y
	}},
	FnSiLUGrad: {"silu_grad", 2, 20, func(_, x, y, _ float64) float64 {
		s := sigmoid(x)
		return y * s * (1 + x*(1-s))
	}},
	FnGELUGrad:     {"gelu_grad", 2, 40, func(_, x, y, _ float64) float64 { return y * geluGrad(x) }},
	FnGELUTanhGrad: {"gelu_tanh_grad", 2, 35, func(_, x, y, _ float64) float64 { return y * geluTanhGrad(x) }},
	FnAbsGrad: {"abs_grad", 2, 1, func(_, x, y, _ float64) float64 {
		return y * (b2f(x > 0) - b2f(x < 0))
	}},

	FnSelect: {"select", 3, 1, func(_, x, y, z float64) float64 {
		if x != 0 {
			return y
		}
		return z
	}},
}

func (f Fn) String() string { return fns[f].name }

// Arity is the number of operands.
func (f Fn) Arity() int { return fns[f].arity }

// Eval is the function in float64, the reference for every device.
func (f Fn) Eval(alpha, x, y, z float64) float64 { return fns[f].eval(alpha, x, y, z) }

// Elementwise applies a scalar function to operands that broadcast to a common
// shape. The result has the format Out, or when Out is Invalid the narrowest
// format among the operands of full shape.
type Elementwise struct {
	Fn    Fn
	Alpha float64
	Out   DType
}

// Name is the function's name.
func (e Elementwise) Name() string { return e.Fn.String() }

// Infer broadcasts the operands.
func (e Elementwise) Infer(in []Type) ([]Type, error) {
	if len(in) != e.Fn.Arity() {
		return nil, fmt.Errorf("takes %d operands, got %d", e.Fn.Arity(), len(in))
	}
	shape := in[0].Shape
	for _, t := range in[1:] {
		var err error
		if shape, err = Broadcast(shape, t.Shape); err != nil {
			return nil, err
		}
	}
	out := e.Out
	if out == Invalid {
		out = F32
		for _, t := range in {
			if t.DType.Half() && t.Shape.Elems() == shape.Elems() {
				out = t.DType
			}
		}
	}
	return []Type{{out, shape.Clone()}}, nil
}

// Cost is one pass over memory.
func (e Elementwise) Cost(in, out []Type) Cost { return traffic(in, out, fns[e.Fn].flops) }

// Autocast takes operands in any format: arithmetic is float32, rounded once at the end.
func (e Elementwise) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), e }

// InplaceOperands: any operand of the result's type may be overwritten.
func (e Elementwise) InplaceOperands(n *Node) []int {
	var at []int
	for i, v := range n.In {
		if v.Type.Equal(n.Out[0].Type) {
			at = append(at, i)
		}
	}
	return at
}

// Grad applies the chain rule and sums over broadcast dimensions.
func (e Elementwise) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	d, out := dout[0], n.Out[0]
	x := n.In[0]
	var y *Value
	if len(n.In) > 1 {
		y = n.In[1]
	}
	var g []*Value
	switch e.Fn {
	case FnCopy, FnAddC:
		g = []*Value{d}
	case FnNeg:
		g = []*Value{b.Neg(d)}
	case FnAbs:
		g = []*Value{b.fn(FnAbsGrad, x, d)}
	case FnSquare:
		g = []*Value{b.Mul(b.MulC(x, 2), d)}
	case FnSqrt:
		g = []*Value{b.Div(b.MulC(d, 0.5), out)}
	case FnRsqrt:
		g = []*Value{b.Mul(b.MulC(d, -0.5), b.Mul(out, b.Mul(out, out)))}
	case FnRecip:
		g = []*Value{b.Neg(b.Mul(d, b.Mul(out, out)))}
	case FnExp:
		g = []*Value{b.Mul(d, out)}
	case FnLog:
		g = []*Value{b.Div(d, x)}
	case FnSin:
		g = []*Value{b.Mul(d, b.fn(FnCos, x))}
	case FnCos:
		g = []*Value{b.Neg(b.Mul(d, b.fn(FnSin, x)))}
	case FnTanh:
		g = []*Value{b.fn(FnTanhGrad, out, d)}
	case FnSigmoid:
		g = []*Value{b.fn(FnSigmoidGrad, out, d)}
	case FnSoftplus:
		g = []*Value{b.Mul(d, b.Sigmoid(x))}
	case FnRelu:
		g = []*Value{b.fn(FnReluGrad, out, d)}
	case FnLeakyRelu:
		if e.Alpha >= 0 && out.DType() == x.DType() {
			x = out // has the same sign: x need not be kept
		}
		g = []*Value{b.fnA(FnLeakyReluGrad, e.Alpha, x, d)}
	case FnElu:
		g = []*Value{b.fnA(FnEluGrad, e.Alpha, x, d)}
	case FnSiLU:
		g = []*Value{b.fn(FnSiLUGrad, x, d)}
	case FnGELU:
		g = []*Value{b.fn(FnGELUGrad, x, d)}
	case FnGELUTanh:
		g = []*Value{b.fn(FnGELUTanhGrad, x, d)}
	case FnMulC:
		g = []*Value{b.MulC(d, e.Alpha)}
	case FnMinC:
		g = []*Value{b.Mul(d, b.fn(FnPositive, b.AddC(b.Neg(x), e.Alpha)))}
	case FnMaxC:
		g = []*Value{b.Mul(d, b.fn(FnPositive, b.AddC(x, -e.Alpha)))}
	case FnAdd:
		g = []*Value{d, d}
	case FnSub:
		g = []*Value{d, b.Neg(d)}
	case FnMul:
		g = []*Value{b.Mul(d, y), b.Mul(d, x)}
	case FnDiv:
		g = []*Value{b.Div(d, y), b.Neg(b.Div(b.Mul(d, out), y))}
	case FnMax:
		m := b.fn(FnGreater, x, y)
		g = []*Value{b.Mul(d, m), b.Mul(d, b.AddC(b.Neg(m), 1))}
	case FnMin:
		m := b.fn(FnGreater, y, x)
		g = []*Value{b.Mul(d, m), b.Mul(d, b.AddC(b.Neg(m), 1))}
	case FnSelect:
		zero := b.Scalar(0)
		g = []*Value{nil, b.Select(x, d, zero), b.Select(x, zero, d)}
	case FnIsFinite, FnPositive, FnFloor, FnGreater, FnEqual:
		return make([]*Value, len(n.In)) // piecewise constant
	default:
		b.Failf("%s: second derivatives are not provided", e.Name())
	}
	for i, v := range n.In {
		if g[i] != nil {
			g[i] = b.SumTo(g[i], v.Shape())
		}
	}
	return g
}

func (b *Builder) fn(f Fn, in ...*Value) *Value { return b.emit1(Elementwise{Fn: f}, in...) }

func (b *Builder) fnA(f Fn, alpha float64, in ...*Value) *Value {
	return b.emit1(Elementwise{Fn: f, Alpha: alpha}, in...)
}

// Apply applies the elementwise function f to operands that broadcast together.
func (b *Builder) Apply(f Fn, in ...*Value) *Value { return b.fn(f, in...) }

// Arithmetic on tensors that broadcast together.
func (b *Builder) Add(x, y *Value) *Value               { return b.fn(FnAdd, x, y) }
func (b *Builder) Sub(x, y *Value) *Value               { return b.fn(FnSub, x, y) }
func (b *Builder) Mul(x, y *Value) *Value               { return b.fn(FnMul, x, y) }
func (b *Builder) Div(x, y *Value) *Value               { return b.fn(FnDiv, x, y) }
func (b *Builder) Max(x, y *Value) *Value               { return b.fn(FnMax, x, y) }
func (b *Builder) Min(x, y *Value) *Value               { return b.fn(FnMin, x, y) }
func (b *Builder) Neg(x *Value) *Value                  { return b.fn(FnNeg, x) }
func (b *Builder) AddC(x *Value, c float64) *Value      { return b.fnA(FnAddC, c, x) }
func (b *Builder) MulC(x *Value, c float64) *Value      { return b.fnA(FnMulC, c, x) }
func (b *Builder) MinC(x *Value, c float64) *Value      { return b.fnA(FnMinC, c, x) }
func (b *Builder) MaxC(x *Value, c float64) *Value      { return b.fnA(FnMaxC, c, x) }
func (b *Builder) Select(cond, x, y *Value) *Value      { return b.fn(FnSelect, cond, x, y) }
func (b *Builder) Square(x *Value) *Value               { return b.fn(FnSquare, x) }
func (b *Builder) Sqrt(x *Value) *Value                 { return b.fn(FnSqrt, x) }
func (b *Builder) Exp(x *Value) *Value                  { return b.fn(FnExp, x) }
func (b *Builder) Log(x *Value) *Value                  { return b.fn(FnLog, x) }
func (b *Builder) Tanh(x *Value) *Value                 { return b.fn(FnTanh, x) }
func (b *Builder) Sigmoid(x *Value) *Value              { return b.fn(FnSigmoid, x) }
func (b *Builder) Relu(x *Value) *Value                 { return b.fn(FnRelu, x) }
func (b *Builder) SiLU(x *Value) *Value                 { return b.fn(FnSiLU, x) }
func (b *Builder) GELU(x *Value) *Value                 { return b.fn(FnGELU, x) }
func (b *Builder) GELUTanh(x *Value) *Value             { return b.fn(FnGELUTanh, x) }
func (b *Builder) LeakyRelu(x *Value, a float64) *Value { return b.fnA(FnLeakyRelu, a, x) }
func (b *Builder) Elu(x *Value, a float64) *Value       { return b.fnA(FnElu, a, x) }

// Cast stores x in another format, rounding to nearest even.
func (b *Builder) Cast(x *Value, d DType) *Value {
	if x.DType() == d {
		return x
	}
	return b.emit1(Elementwise{Fn: FnCopy, Out: d}, x)
}
