package main

// light is the unrolling of loops whose body is a few instructions.
const light = 4

var (
	codeAdd = binary(light, "a b", func(a *asm, x, y vec) vec { return a.add(x, y) })
	codeSub = binary(light, "a b", func(a *asm, x, y vec) vec { return a.sub(x, y) })
	codeMul = binary(light, "a b", func(a *asm, x, y vec) vec { return a.mul(x, y) })
	codeDiv = binary(2, "a b", func(a *asm, x, y vec) vec { return a.div(x, y) })

	codeMin = binary(2, "a b", func(a *asm, x, y vec) vec { return a.smaller(x, y) })
	codeMax = binary(2, "a b", func(a *asm, x, y vec) vec { return a.larger(x, y) })

	codeAddScalar = withScalar("a", func(a *asm, x vec) vec { return a.add(x, a.scalars["s"]) })
	codeMulScalar = withScalar("a", func(a *asm, x vec) vec { return a.mul(x, a.scalars["s"]) })
	codeAxpy      = binary(light, "dst a", func(a *asm, d, x vec) vec { return a.add(d, a.mul(x, a.scalars["s"])) })

	codeNeg    = unary(light, (*asm).neg)
	codeAbs    = unary(light, (*asm).abs)
	codeSquare = unary(light, func(a *asm, x vec) vec { return a.mul(x, x) })
	codeSqrt   = unary(2, func(a *asm, x vec) vec { return a.sqrt(x) })
	codeRsqrt  = unary(2, func(a *asm, x vec) vec { return a.div(a.kreg(1), a.sqrt(x)) })
	codeRecip  = unary(2, func(a *asm, x vec) vec { return a.div(a.kreg(1), x) })

	codeGreaterZero = unary(light, func(a *asm, x vec) vec {
		return a.keep(a.cmpZero(gt, x), a.k(1))
	})
	codeSelect = each(2, "dst", "mask a b", one(func(a *asm, in []vec) vec {
		return a.blend(a.cmpZero(neq, in[0]), in[1], in[2])
	}))
	codeFill = each(light, "dst", "", one(func(a *asm, _ []vec) vec { return a.scalars["v"] }))

	codeRelu     = unary(light, (*asm).positive)
	codeReluGrad = binary(light, "x dy", func(a *asm, x, dy vec) vec {
		return a.drop(a.cmpZero(le, x), dy)
	})
	codeLeakyRelu = unary(2, func(a *asm, x vec) vec {
		return a.blend(a.cmpZero(gt, x), x, a.mul(x, a.scalars["slope"]))
	})
	codeLeakyReluGrad = binary(2, "x dy", func(a *asm, x, dy vec) vec {
		return a.blend(a.cmpZero(gt, x), dy, a.mul(dy, a.scalars["slope"]))
	})
	codeRouteMax = each(2, "dst grad", "dst grad top x", func(a *asm, in []vec) []vec {
		less := a.cmp(lt, in[3], in[2])
		return []vec{a.add(in[0], a.drop(less, in[1])), a.keep(less, in[1])}
	})
)

func withScalar(in string, f func(a *asm, x vec) vec) func(*asm) {
	return each(light, "dst", in, one(func(a *asm, in []vec) vec { return f(a, in[0]) }))
}
