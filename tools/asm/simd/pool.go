package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// windows emits a loop over windows of 2x2 elements of ch channels each, a
// multiple of the lanes: body works on the vector at i of what has an element
// for each window, and at left and right of the two rows of the picture.
func (a *asm) windows(n, ch reg.GPVirtual, body func(i, left, right reg.GPVirtual)) {
	i, left, right, rest := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.XORQ(i, i)
	a.XORQ(left, left)
	a.MOVQ(ch, right)
	window := a.label("window")
	a.Label(window)
	a.MOVQ(ch, rest)
	a.whole(i, rest, a.lanes, func() {
		body(i, left, right)
		a.ADDQ(operand.Imm(uint64(a.lanes)), left)
		a.ADDQ(operand.Imm(uint64(a.lanes)), right)
	})
	a.ADDQ(ch, left)
	a.ADDQ(ch, right)
	a.CMPQ(i, n)
	a.JB(operand.LabelRef(window))
	a.finish()
}

// codeMaxPool emits the maxima down, then across.
func codeMaxPool(format string) func(*asm) {
	return func(a *asm) {
		s := a.streams("dst:" + format + " x0:" + format + " x1:" + format)
		dst, x0, x1 := s[0], s[1], s[2]
		a.windows(a.length("dst"), a.load64("ch"), func(i, left, right reg.GPVirtual) {
			column := func(at reg.GPVirtual) vec {
				return a.larger(a.load(x0, x0.at(at, 0), nil), a.load(x1, x1.at(at, 0), nil))
			}
			a.store(dst, a.exactly(format, a.larger(column(left), column(right))), dst.at(i, 0), nil)
		})
	}
}

// codeMaxPoolGrad emits what gives dy to the first element that is not less than y.
func codeMaxPoolGrad(format string) func(*asm) {
	return func(a *asm) {
		f := ":" + format
		s := a.streams("dx0" + f + " dx1" + f + " dy" + f + " y" + f + " x0" + f + " x1" + f)
		dx, dys, ys, x := s[:2], s[2], s[3], s[4:]
		a.windows(a.length("dy"), a.load64("ch"), func(i, left, right reg.GPVirtual) {
			grad := a.load(dys, dys.at(i, 0), nil)
			stored := func(x vec) vec { return x }
			if format == "bf16" {
				grad, stored = a.lower(grad), a.pack
			}
			y := a.load(ys, ys.at(i, 0), nil)
			// All loads come first: rows often lie whole pages apart, and a load
			// waits for a store to the same place of another page.
			var less []mask
			for _, row := range x {
				for _, at := range []reg.GPVirtual{left, right} {
					less = append(less, a.cmp(lt, a.load(row, row.at(at, 0), nil), y))
				}
			}
			for k, m := range less {
				row, at := dx[k/2], []reg.GPVirtual{left, right}[k%2]
				a.store(row, stored(a.drop(m, grad)), row.at(at, 0), nil)
				grad = a.keep(m, grad)
			}
		})
	}
}
