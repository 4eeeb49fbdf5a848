package main

import "github.com/mmcloughlin/avo/operand"

// codeMatVec emits y[r] = row r of w . x for rows of whole multiples of 64
// elements, each sum in the order of dot. w is read once and x stays in the
// first-level cache.
func codeMatVec(w string) func(*asm) {
	return func(a *asm) {
		const sumLanes = 64
		streams := a.streams(w + " x")
		rows, x := streams[0], streams[1]
		y, left, cols := a.base("y"), a.length("y"), a.length("x")
		i, n := a.GP64(), a.GP64()
		row := a.label("row")
		a.Label(row)
		acc := make([]vec, sumLanes/a.lanes)
		for j := range acc {
			acc[j] = a.zero()
		}
		a.XORQ(i, i)
		a.MOVQ(cols, n)
		a.whole(i, n, sumLanes, func() {
			for j, v := range acc {
				term := a.mul(a.load(rows, rows.at(i, j*a.lanes), nil), a.load(x, x.at(i, j*a.lanes), nil))
				a.VADDPS(v, term, v)
			}
		})
		for w := len(acc) / 2; w > 0; w /= 2 {
			for j := range w {
				a.VADDPS(acc[j], acc[j+w], acc[j])
			}
		}
		sum := acc[0]
		a.fold(sum, func(p, q, d op) { a.VADDPS(p, q, d) })
		a.high64(sum, func(p, q, d op) { a.VADDPS(p, q, d) })
		a.last32(sum, func(p, q, d op) { a.VADDSS(p, q, d) })
		a.VMOVSS(sum.AsX(), operand.Mem{Base: y})
		a.ADDQ(operand.Imm(4), y)
		step := a.GP64()
		a.MOVQ(cols, step)
		a.SHLQ(operand.Imm(uint64(rows.size()/2)), step) // 4 bytes: 2, 2 bytes: 1
		a.ADDQ(step, rows.ptr)
		a.DECQ(left)
		a.JNZ(operand.LabelRef(row))
		a.finish()
	}
}
