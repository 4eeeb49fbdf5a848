package main

import "github.com/mmcloughlin/avo/operand"

// codeAdamW emits the update.
func codeAdamW(a *asm) {
	p := a.load64("s")
	scalar := make([]vec, 8)
	for i := range scalar {
		scalar[i] = a.vec()
		a.VBROADCASTSS(operand.Mem{Base: p, Disp: 4 * i}, scalar[i])
	}
	gradScale, decay, oneMinus1, beta2 := scalar[0], scalar[1], scalar[2], scalar[3]
	oneMinus2, rootCorr2, eps, stepSize := scalar[4], scalar[5], scalar[6], scalar[7]
	each(1, "w m v", "w g m v", func(a *asm, in []vec) []vec {
		w, g, m, v := in[0], in[1], in[2], in[3]
		g = a.mul(g, gradScale)
		m = a.add(m, a.mul(a.sub(g, m), oneMinus1))
		v = a.add(a.mul(v, beta2), a.mul(a.mul(g, oneMinus2), g))
		denom := a.add(a.div(a.sqrt(v), rootCorr2), eps)
		w = a.add(a.mul(w, decay), a.div(a.mul(m, stepSize), denom))
		return []vec{w, m, v}
	})(a)
}
