package main

import "github.com/mmcloughlin/avo/operand"

// The passes of a norm over columns, on memory of the given format.

// codeAddRows adds rows of len(acc) elements, stride apart, to acc: columns stay
// in registers down all rows.
func codeAddRows(format string) func(*asm) {
	return func(a *asm) {
		acc, x := a.streams("acc")[0], a.streams("x:" + format)[0]
		rows, stride := a.load64("rows"), a.load64("stride")
		a.SHLQ(operand.Imm(uint64(x.size()/2)), stride) // 4 bytes: 2, 2 bytes: 1
		n, i := a.length("acc"), a.GP64()
		a.XORQ(i, i)
		columns := func(vectors int, tail mask) {
			sums := make([]vec, vectors)
			for j := range sums {
				sums[j] = a.load(acc, acc.at(i, j*a.lanes), tail)
			}
			row, left := stream{format: format, ptr: a.GP64()}, a.GP64()
			a.MOVQ(x.ptr, row.ptr)
			a.MOVQ(rows, left)
			next := a.label("row")
			a.Label(next)
			for j, s := range sums {
				a.VADDPS(s, a.load(row, row.at(i, j*a.lanes), tail), s)
			}
			a.ADDQ(stride, row.ptr)
			a.DECQ(left)
			a.JNZ(operand.LabelRef(next))
			for j, s := range sums {
				a.store(acc, s, acc.at(i, j*a.lanes), tail)
			}
		}
		a.whole(i, n, 4*a.lanes, func() { columns(4, nil) })
		a.whole(i, n, a.lanes, func() { columns(1, nil) })
		if a.masked([]stream{acc, x}) {
			done := a.label("done")
			a.TESTQ(n, n)
			a.JZ(operand.LabelRef(done))
			columns(1, a.tailMask(n))
			a.Label(done)
		}
		a.finish()
	}
}

func codeColumnSqDev(format string) func(*asm) {
	return each(light, "acc", "acc x:"+format+" mean", one(func(a *asm, in []vec) vec {
		d := a.sub(in[1], in[2])
		return a.add(in[0], a.mul(d, d))
	}))
}

func codeColumnNorm(format string) func(*asm) {
	return each(2, "y:"+format, "x:"+format+" mean scale shift", one(func(a *asm, in []vec) vec {
		return a.as(format, a.add(a.mul(a.sub(in[0], in[1]), in[2]), in[3]))
	}))
}

func codeColumnGradSums(format string) func(*asm) {
	return each(2, "sum dot", "sum dot dy:"+format+" x:"+format+" mean", func(a *asm, in []vec) []vec {
		dy := in[2]
		return []vec{a.add(in[0], dy), a.add(in[1], a.mul(a.sub(in[3], in[4]), dy))}
	})
}

func codeColumnNormGrad(format string) func(*asm) {
	return each(2, "dx:"+format, "dy:"+format+" x:"+format+" mean a b c", one(func(a *asm, in []vec) vec {
		along := a.mul(a.sub(in[1], in[2]), in[4])
		return a.as(format, a.add(a.add(a.mul(in[0], in[3]), along), in[5]))
	}))
}
