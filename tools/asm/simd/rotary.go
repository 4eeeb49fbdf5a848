package main

import "github.com/mmcloughlin/avo/operand"

// codeRotateHalf rotates pairs whose halves lie in separate slices.
var codeRotateHalf = each(1, "d0 d1", "x0 x1 cos sin", func(a *asm, in []vec) []vec {
	x0, x1, cos := in[0], in[1], in[2]
	sin := a.mul(in[3], a.scalars["dir"])
	return []vec{
		a.sub(a.mul(x0, cos), a.mul(x1, sin)),
		a.add(a.mul(x1, cos), a.mul(x0, sin)),
	}
})

// codeRotatePairs rotates neighbours; it takes whole vectors of pairs only.
func codeRotatePairs(a *asm) {
	s := a.streams("dst x cos sin")
	dst, x, cos, sin := s[0], s[1], s[2], s[3]
	n := a.length("x")
	i, angle := a.GP64(), a.GP64()
	a.XORQ(i, i)
	a.XORQ(angle, angle)
	// The lanes of the first of each pair subtract.
	first := a.vec()
	a.VPBROADCASTQ(a.word(signBit), first)
	a.VPSRLQ(operand.U8(32), first, first)
	sign := a.xor(a.scalars["dir"], first)
	spread := func(s stream) vec { // each angle twice
		d := a.vec()
		a.VPMOVZXDQ(s.at(angle, 0), d)
		a.VMOVSLDUP(d, d)
		return d
	}
	a.whole(i, n, a.lanes, func() {
		v := a.load(x, x.at(i, 0), nil)
		swapped := a.vec()
		a.VPERMILPS(operand.U8(0xb1), v, swapped)
		c, s := spread(cos), spread(sin)
		sum := a.add(a.mul(v, c), a.mul(swapped, a.mul(s, sign)))
		a.store(dst, sum, dst.at(i, 0), nil)
		a.ADDQ(operand.Imm(uint64(a.lanes/2)), angle)
	})
	a.finish()
}
