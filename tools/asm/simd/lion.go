package main

import "github.com/mmcloughlin/avo/operand"

// codeLion emits the update.
func codeLion(a *asm) {
	p := a.load64("s")
	scalar := make([]vec, 5)
	for i := range scalar {
		scalar[i] = a.vec()
		a.VBROADCASTSS(operand.Mem{Base: p, Disp: 4 * i}, scalar[i])
	}
	gradScale, decay, oneMinus1, oneMinus2, step := scalar[0], scalar[1], scalar[2], scalar[3], scalar[4]
	each(1, "w m", "w g m", func(a *asm, in []vec) []vec {
		w, g, m := in[0], in[1], in[2]
		d := a.sub(a.mul(g, gradScale), m)
		c := a.add(m, a.mul(d, oneMinus1))
		sign := a.and(c, a.kbits(0x80000000))
		move := a.keep(a.cmpZero(gt, a.xor(c, sign)), a.xor(step, sign)) // 0 where c is 0 or not a number
		return []vec{a.add(a.mul(w, decay), move), a.add(m, a.mul(d, oneMinus2))}
	})(a)
}
