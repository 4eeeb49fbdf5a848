package main

// xhat returns the normalized x.
func (a *asm) xhat(x vec) vec {
	return a.mul(a.sub(x, a.scalars["mean"]), a.scalars["rstd"])
}

// gradInput returns rstd * ((g - c) - xhat * cx).
func (a *asm) gradInput(g, x vec) vec {
	inner := a.sub(a.sub(g, a.scalars["c"]), a.mul(a.xhat(x), a.scalars["cx"]))
	return a.mul(inner, a.scalars["rstd"])
}

// What follows for a format is on rows in memory of that, and of bfloat16 for
// whole multiples of 64 elements.

func codeSumSqDev(format string) func(*asm) {
	return reduction{ins: "x:" + format, sums: 1, even: format != "f32", body: sums(func(a *asm, in []vec) []vec {
		d := a.sub(in[0], a.scalars["mean"])
		return []vec{a.mul(d, d)}
	})}.code
}

func codeNormAffine(format string) func(*asm) {
	return each(2, "y:"+format, "x:"+format+" gamma beta", one(func(a *asm, in []vec) vec {
		return a.as(format, a.add(a.mul(a.xhat(in[0]), in[1]), in[2]))
	}))
}

func codeGradSumsAll(format string) func(*asm) {
	return reduction{ins: "dy:" + format + " x:" + format + " gamma dgamma dbeta", outs: "dgamma dbeta", sums: 2, even: format != "f32",
		body: func(a *asm, in []vec) (terms, outs []vec) {
			dy, xhat := in[0], a.xhat(in[1])
			g := a.mul(dy, in[2])
			return []vec{g, a.mul(g, xhat)}, []vec{a.add(in[3], a.mul(dy, xhat)), a.add(in[4], dy)}
		}}.code
}

func codeGradInputGamma(format string) func(*asm) {
	return each(2, "dx:"+format, "dy:"+format+" x:"+format+" gamma", one(func(a *asm, in []vec) vec {
		return a.as(format, a.gradInput(a.mul(in[0], in[2]), in[1]))
	}))
}

var (
	// The gradient is rounded as if it were stored before the sum.
	codeGradInputGammaAddBF16 = each(2, "dx:bf16", "dy:bf16 x:bf16 addend:bf16 gamma", one(func(a *asm, in []vec) vec {
		grad := a.roundBF16(a.gradInput(a.mul(in[0], in[3]), in[1]))
		return a.toBF16(a.add(a.and(grad, a.kbits(0xffff0000)), in[2]))
	}))
	codeSumBF16 = reduction{ins: "x:bf16", sums: 1, even: true, body: sums(func(_ *asm, in []vec) []vec { return in })}.code
	codeNorm    = each(2, "y", "x", one(func(a *asm, in []vec) vec {
		return a.xhat(in[0])
	}))
	codeNormGamma = each(2, "y", "x gamma", one(func(a *asm, in []vec) vec {
		return a.mul(a.xhat(in[0]), in[1])
	}))
	codeGradSums = reduction{ins: "dy x", sums: 2, body: sums(func(a *asm, in []vec) []vec {
		return []vec{in[0], a.mul(in[0], a.xhat(in[1]))}
	})}.code
	codeGradSumsGamma = reduction{ins: "dy x gamma", sums: 2, body: sums(func(a *asm, in []vec) []vec {
		g := a.mul(in[0], in[2])
		return []vec{g, a.mul(g, a.xhat(in[1]))}
	})}.code
	codeGammaGrad = each(2, "acc", "acc dy x", one(func(a *asm, in []vec) vec {
		return a.add(in[0], a.mul(in[1], a.xhat(in[2])))
	}))
	codeGradInput = each(2, "dx", "dy x", one(func(a *asm, in []vec) vec {
		return a.gradInput(in[0], in[1])
	}))
)
