package main

import "math"

// ln 2 in two parts. The upper has 12 bits, so that its product with an exponent
// is exact; the lower is positive, so that log(0) gives -Inf + -Inf.
const (
	ln2Hi = 0x1.62ep-1
	ln2Lo = math.Ln2 - ln2Hi
)

// roundMagic added to |v| < 2^22 rounds v to the nearest integer and leaves that
// integer in the low bits of the sum.
const roundMagic = 0x1.8p23

// e^x is below half the smallest float32 under expLow, and above the largest
// over expHigh.
const (
	expLow  = -104.0
	expHigh = 89.0
)

// exp returns e^x for every x.
func (a *asm) exp(x vec) vec { return a.expUpTo(a.atMost(a.kreg(expHigh), x)) }

// expUpTo is exp for x <= expHigh or NaN.
func (a *asm) expUpTo(x vec) vec {
	x = a.atLeast(a.kreg(expLow), x)
	t := a.fresh(roundMagic)
	a.mulAddInto(t, x, a.k(math.Log2E))
	n := a.sub(t, a.k(roundMagic))
	a.mulSubInto(x, n, a.k(ln2Hi))
	a.mulSubInto(x, n, a.k(ln2Lo))
	return a.expScaled(t, n, x)
}

// expScaled returns e^r * 2^n, given the sum t of n and roundMagic.
func (a *asm) expScaled(t, n, r vec) vec {
	p := a.expSlope(r)
	p = a.mulAdd(p, r, a.k(1))
	return a.scale(p, t, n)
}

// expSlope returns (e^r - 1) / r.
func (a *asm) expSlope(r vec) vec {
	p := a.poly(expPoly4, r)
	p = a.mulAdd(p, r, a.k(1))
	return p
}

// expm1 returns e^x - 1 for -26 <= x <= 26 or NaN; it changes x.
func (a *asm) expm1(x vec) vec {
	const magic = roundMagic + 127 // so that the sum holds the biased exponent
	t := a.fresh(magic)
	a.mulAddInto(t, x, a.k(math.Log2E))
	n := a.sub(t, a.k(magic))
	scale := a.shl(t, 23)
	a.mulSubInto(x, n, a.k(ln2Hi))
	a.mulSubInto(x, n, a.k(ln2Lo))
	// e^r - 1 = r + r^2 P(r), and e^x - 1 = 2^n (e^r - 1) + (2^n - 1).
	p := a.poly(expPoly, x)
	p = a.mulAdd(p, a.mul(x, x), x)
	p = a.mulAdd(p, scale, a.sub(scale, a.k(1)))
	return p
}

// log returns the natural logarithm.
func (a *asm) log(x vec) vec {
	m, e, logOf := a.split(x)
	f := a.sub(m, a.k(1))
	y := a.log1pTail(f)
	a.mulAddInto(y, e, a.k(ln2Lo))
	y = a.add(y, f)
	a.mulAddInto(y, e, a.k(ln2Hi))
	return logOf(y)
}

// log1pTail returns log(1+f) - f for 1+f in [0.75, 1.5].
func (a *asm) log1pTail(f vec) vec {
	p := a.poly(logPoly, f)
	p = a.mulAdd(p, f, a.k(-0.5))
	return a.mul(p, a.mul(f, f))
}

// log1p returns log(1+x) for 0 <= x <= 1 or NaN.
func (a *asm) log1p(x vec) vec {
	upper := a.cmp(ge, x, a.k(0.5))
	f := a.blend(upper, a.mul(a.sub(x, a.k(1)), a.k(0.5)), x)
	y := a.add(a.log1pTail(f), f)
	return a.add(y, a.keep(upper, a.k(math.Ln2)))
}

func (a *asm) softplus(x vec) vec {
	e := a.expUpTo(a.or(x, a.kbits(signBit)))
	return a.add(a.log1p(e), a.positive(x))
}

// sigmoidParts returns the numerator and denominator of 1/(1+e^-x), and the
// numerator of its complement, such that none overflows.
func (a *asm) sigmoidParts(x vec) (up, complement, down vec) {
	e := a.expUpTo(a.or(x, a.kbits(signBit)))
	one := a.kreg(1)
	negative := a.negative(x)
	return a.blend(negative, e, one), a.blend(negative, one, e), a.add(e, one)
}

func (a *asm) sigmoid(x vec) vec {
	e := a.expUpTo(a.or(x, a.kbits(signBit)))
	one := a.kreg(1)
	return a.div(a.blend(a.negative(x), e, one), a.add(e, one))
}

// tanh is (e^2|x| - 1) / (e^2|x| + 1) with the sign of x.
func (a *asm) tanh(x vec) vec {
	const one = 9.25 // tanh rounds to 1 from 9.02 on
	limited := a.atMost(a.kreg(one), a.abs(x))
	t := a.expm1(a.add(limited, limited))
	return a.or(a.div(t, a.add(t, a.k(2))), a.and(x, a.kbits(signBit)))
}

// codeGELU emits x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi the normal distribution function.
func codeGELU(a *asm) {
	p := a.finest(geluTailFew, geluTail)
	tables := a.tables(p.name, p.c)
	unary(chain, func(a *asm, x vec) vec {
		t := a.atMost(a.kreg(p.limit), a.abs(x))
		y := a.positive(x)
		a.mulSubInto(y, t, a.piece(p, tables, t))
		return y
	})(a)
}

// codeGELUGrad emits the derivative of x Phi(x), which is Phi(x) + x phi(x), times dy.
func codeGELUGrad(a *asm) {
	p := a.finest(geluGradTailFew, geluGradTail)
	tables := a.tables(p.name, p.c)
	binary(chain, "x dy", func(a *asm, x, dy vec) vec {
		t := a.atMost(a.kreg(p.limit), a.abs(x))
		below := a.piece(p, tables, t)
		return a.mul(a.blend(a.negative(x), below, a.sub(a.kreg(1), below)), dy)
	})(a)
}

// The tanh form of GELU is x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
const (
	geluLinear = 2 * 0.79788456080286535588
	geluCube   = geluLinear * 0.044715
)

// geluTanhLimit is a size of x from which on the sigmoid is 0 or 1.
const geluTanhLimit = 20.0

func (a *asm) geluTanh(x vec) vec {
	limited := a.limit(x, geluTanhLimit)
	factor := a.fresh(geluLinear)
	a.mulAddInto(factor, a.mul(limited, limited), a.k(geluCube))
	return a.mul(a.sigmoid(a.mul(limited, factor)), a.atLeast(a.kreg(-geluTanhLimit), x))
}

func geluTanhGrad(a *asm, x, dy vec) vec {
	x = a.limit(x, geluTanhLimit)
	square := a.mul(x, x)
	factor, slope := a.fresh(geluLinear), a.fresh(geluLinear)
	a.mulAddInto(factor, square, a.k(geluCube))
	a.mulAddInto(slope, square, a.k(3*geluCube))
	up, complement, down := a.sigmoidParts(a.mul(x, factor))
	inverse := a.div(a.kreg(1), down)
	s, c := a.mul(up, inverse), a.mul(complement, inverse)
	// s + x s (1-s) slope = s (1 + x (1-s) slope)
	t := a.fresh(1)
	a.mulAddInto(t, a.mul(x, c), slope)
	return a.mul(a.mul(s, t), dy)
}

// siluLimit is a size of x from which on the sigmoid is 0 or 1.
const siluLimit = 104.0

func (a *asm) silu(x vec) vec {
	return a.mul(a.sigmoid(x), a.atLeast(a.kreg(-siluLimit), x))
}

func siluGrad(a *asm, x, dy vec) vec {
	x = a.limit(x, siluLimit)
	up, complement, down := a.sigmoidParts(x)
	inverse := a.div(a.kreg(1), down)
	t := a.fresh(1)
	a.mulAddInto(t, x, a.mul(complement, inverse))
	return a.mul(a.mul(a.mul(up, inverse), t), dy)
}

// expm1Limit is a size of x < 0 from which on e^x - 1 is -1.
const expm1Limit = 26.0

func (a *asm) elu(x vec) vec {
	below := a.expm1(a.within(-expm1Limit, x))
	return a.blend(a.cmpZero(gt, x), x, a.mul(below, a.scalars["alpha"]))
}

func eluGrad(a *asm, x, dy vec) vec {
	below := a.mul(dy, a.mul(a.expUpTo(a.nonPositive(x)), a.scalars["alpha"]))
	return a.blend(a.cmpZero(gt, x), dy, below)
}

// trigLimit is the size of x up to which sinCos holds.
const trigLimit = 1e5

// codeTrig emits sin or cos. It leaves the elements beyond the limit as they
// are, for the caller to see to, and returns whether there are any (not 0).
func codeTrig(shift uint32) func(*asm) {
	return func(a *asm) {
		outside := a.zeroMask()
		a.each(chain, "dst", "x", one(func(a *asm, in []vec) vec {
			beyond := a.cmp(gt, a.abs(in[0]), a.kreg(trigLimit))
			a.orMask(outside, beyond)
			return a.blend(beyond, in[0], a.sinCos(in[0], shift))
		}))
		a.Store(a.laneBits(outside), a.ReturnIndex(0))
		a.finish()
	}
}

// sinCos returns sin(x + shift*pi/2) for |x| <= trigLimit. The quarter turn nearest
// to x is taken off in three parts of pi/2; the first two products are exact
// enough that what is left is good to an ulp even next to a zero.
func (a *asm) sinCos(x vec, shift uint32) vec {
	p1 := float64(float32(math.Pi / 2))
	p2 := float64(float32(math.Pi/2 - p1))
	p3 := 6.123233995736766e-17 + (math.Pi/2 - p1 - p2) // pi/2 beyond float64 is known too
	t := a.fresh(roundMagic)
	a.mulAddInto(t, x, a.k(2/math.Pi))
	n := a.sub(t, a.k(roundMagic))
	r := a.dup(x)
	a.mulSubInto(r, n, a.k(p1))
	a.mulSubInto(r, n, a.k(p2))
	a.mulSubInto(r, n, a.k(p3))

	z := a.mul(r, r)
	s := a.poly(sinPoly, z)
	s = a.mulAdd(s, a.mul(z, r), r)
	c := a.fresh(1)
	a.mulAddInto(c, z, a.k(-0.5))
	q := a.poly(cosPoly, z)
	q = a.mulAdd(q, a.mul(z, z), c)

	quarter := t
	if shift != 0 {
		quarter = a.addi(t, a.kbits(shift))
	}
	result := a.blend(a.negative(a.shl(quarter, 31)), q, s)
	return a.xor(result, a.and(a.shl(quarter, 30), a.kbits(signBit)))
}

var (
	codeExp      = unary(chain, (*asm).exp)
	codeLog      = unary(chain, (*asm).log)
	codeTanh     = unary(chain, (*asm).tanh)
	codeSigmoid  = unary(chain, (*asm).sigmoid)
	codeSoftplus = unary(chain, (*asm).softplus)
	codeSin      = codeTrig(0)
	codeCos      = codeTrig(1)

	codeGELUTanh     = unary(chain, (*asm).geluTanh)
	codeGELUTanhGrad = binary(chain, "x dy", geluTanhGrad)
	codeSiLU         = unary(chain, (*asm).silu)
	codeSiLUGrad     = binary(chain, "x dy", siluGrad)
	codeTanhGrad     = binary(2, "y dy", func(a *asm, y, dy vec) vec {
		return a.mul(dy, a.sub(a.kreg(1), a.mul(y, y)))
	})
	codeSigmoidGrad = binary(2, "y dy", func(a *asm, y, dy vec) vec {
		return a.mul(dy, a.mul(y, a.sub(a.kreg(1), y)))
	})
	codeELU     = unary(chain, (*asm).elu)
	codeELUGrad = binary(chain, "x dy", eluGrad)

	codeExpSubSum = reduction{ins: "x", outs: "dst", sums: 1, chain: true, body: func(a *asm, in []vec) (terms, outs []vec) {
		e := a.exp(a.sub(in[0], a.scalars["m"]))
		return []vec{e}, []vec{e}
	}}.code
	codeExpSubSumOnly = reduction{ins: "x", sums: 1, chain: true, body: sums(func(a *asm, in []vec) []vec {
		return []vec{a.exp(a.sub(in[0], a.scalars["m"]))}
	})}.code
	codeExpSubScale = unary(chain, func(a *asm, x vec) vec {
		return a.mul(a.exp(a.sub(x, a.scalars["m"])), a.scalars["scale"])
	})
	codeSubMul = binary(2, "a b", func(a *asm, x, y vec) vec {
		return a.mul(a.sub(x, a.scalars["s"]), y)
	})
)
