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

var (
	codeSumSqDev = reduction{ins: "x", sums: 1, body: sums(func(a *asm, in []vec) []vec {
		d := a.sub(in[0], a.scalars["mean"])
		return []vec{a.mul(d, d)}
	})}.code
	codeNorm = each(2, "y", "x", one(func(a *asm, in []vec) vec {
		return a.xhat(in[0])
	}))
	codeNormGamma = each(2, "y", "x gamma", one(func(a *asm, in []vec) vec {
		return a.mul(a.xhat(in[0]), in[1])
	}))
	codeNormAffine = each(2, "y", "x gamma beta", one(func(a *asm, in []vec) vec {
		return a.add(a.mul(a.xhat(in[0]), in[1]), in[2])
	}))
	codeGradSums = reduction{ins: "dy x", sums: 2, body: sums(func(a *asm, in []vec) []vec {
		return []vec{in[0], a.mul(in[0], a.xhat(in[1]))}
	})}.code
	codeGradSumsGamma = reduction{ins: "dy x gamma", sums: 2, body: sums(func(a *asm, in []vec) []vec {
		g := a.mul(in[0], in[2])
		return []vec{g, a.mul(g, a.xhat(in[1]))}
	})}.code
	codeGradSumsAll = reduction{ins: "dy x gamma dgamma dbeta", outs: "dgamma dbeta", sums: 2, body: func(a *asm, in []vec) (terms, outs []vec) {
		dy, xhat := in[0], a.xhat(in[1])
		g := a.mul(dy, in[2])
		return []vec{g, a.mul(g, xhat)}, []vec{a.add(in[3], a.mul(dy, xhat)), a.add(in[4], dy)}
	}}.code
	codeGammaGrad = each(2, "acc", "acc dy x", one(func(a *asm, in []vec) vec {
		return a.add(in[0], a.mul(in[1], a.xhat(in[2])))
	}))
	codeGradInput = each(2, "dx", "dy x", one(func(a *asm, in []vec) vec {
		return a.gradInput(in[0], in[1])
	}))
	codeGradInputGamma = each(2, "dx", "dy x gamma", one(func(a *asm, in []vec) vec {
		return a.gradInput(a.mul(in[0], in[2]), in[1])
	}))
)
