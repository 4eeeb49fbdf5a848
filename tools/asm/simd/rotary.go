package main

// codeRotateHalf rotates pairs whose halves lie in separate slices.
var codeRotateHalf = each(1, "d0 d1", "x0 x1 cos sin", func(a *asm, in []vec) []vec {
	x0, x1, cos := in[0], in[1], in[2]
	sin := a.mul(in[3], a.scalars["dir"])
	return []vec{
		a.sub(a.mul(x0, cos), a.mul(x1, sin)),
		a.add(a.mul(x1, cos), a.mul(x0, sin)),
	}
})
