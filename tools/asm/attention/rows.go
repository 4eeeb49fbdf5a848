package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const infinity = 0x7f800000

// each emits a loop over the n first elements of a row: whole vectors, then a
// masked one. at is the byte offset, advanced past what was visited in whole
// vectors and, when the row has a tail, one vector more.
func (v *simd) each(label string, n, at reg.GPVirtual, body func(tail bool, k mask)) {
	left := v.GP64()
	v.MOVQ(n, left)
	v.SUBQ(Imm(uint64(v.lanes)), left)
	v.JLT(LabelRef(label + "tail"))
	v.Label(label)
	body(false, mask{})
	v.ADDQ(Imm(uint64(v.Bytes)), at)
	v.SUBQ(Imm(uint64(v.lanes)), left)
	v.JGE(LabelRef(label))
	v.Label(label + "tail")
	v.ADDQ(Imm(uint64(v.lanes)), left)
	v.JZ(LabelRef(label + "end"))
	body(true, v.mask(left))
	v.ADDQ(Imm(uint64(v.Bytes)), at)
	v.Label(label + "end")
}

// eachRow emits a loop over rows; next advances the pointers.
func (v *simd) eachRow(rows reg.GPVirtual, body, next func()) { v.eachRowAs("row", rows, body, next) }

// eachRowAs is eachRow for a function with several such loops.
func (v *simd) eachRowAs(label string, rows reg.GPVirtual, body, next func()) {
	v.TESTQ(rows, rows)
	v.JZ(LabelRef(label + "end"))
	v.Label(label)
	body()
	next()
	v.DECQ(rows)
	v.JNZ(LabelRef(label))
	v.Label(label + "end")
}

func (v *simd) at(base, off reg.GPVirtual) Mem { return Mem{Base: base, Index: off, Scale: 1} }

// get reads a vector of a row, masked in the tail.
func (v *simd) get(m Mem, tail bool, k mask) reg.VecVirtual {
	if tail {
		return v.load(m, k)
	}
	z := v.vec()
	v.VMOVUPS(m, z)
	return z
}

// clear zeroes a row from byte at to byte end, both multiples of a vector.
func (v *simd) clear(label string, at, end reg.GPVirtual, rows ...reg.GPVirtual) {
	z := v.vec()
	v.zero(z)
	v.Label(label)
	v.CMPQ(at, end)
	v.JGE(LabelRef(label + "end"))
	for _, r := range rows {
		v.VMOVUPS(z, v.at(r, at))
	}
	v.ADDQ(Imm(uint64(v.Bytes)), at)
	v.JMP(LabelRef(label))
	v.Label(label + "end")
}

// softmaxRows finds what to subtract from each row before it exponentiates
// any: a row's maximum takes long to come, and several can be on their way.
func (v *simd) softmaxRows() {
	v.text("softmaxRows", "func(rows int, s *float32, pitch int, valid *int32, width int, scale float32, m, l, alpha *float32)",
		"is one step of an online softmax over rows of scores; see rowKernels.")
	s, pitch, valid, m := v.gp("s"), v.gp("pitch"), v.gp("valid"), v.gp("m")
	scale := v.param("scale")
	v.preload()
	at, n := v.GP64(), v.GP64()
	{
		rows, s, valid, m, alpha := v.gp("rows"), v.gp("s"), v.gp("valid"), v.gp("m"), v.gp("alpha")
		v.eachRowAs("top", rows, func() {
			v.MOVLQSX(Mem{Base: valid}, n)
			top := v.reg(v.bits(infinity | 1<<31))
			v.XORQ(at, at)
			v.each("max", n, at, func(tail bool, k mask) {
				x := v.get(v.at(s, at), tail, k)
				if tail {
					v.blend(x, v.reg(v.bits(infinity|1<<31)), k)
				}
				v.larger(x, top)
			})
			v.reduce(top, v.VMAXPS)
			old, base := v.XMM(), v.XMM()
			v.VMULSS(scale.AsX(), top.AsX(), top.AsX())
			v.VMOVSS(Mem{Base: m}, old)
			v.VMAXSS(old, top.AsX(), base)
			v.VMOVSS(base, Mem{Base: m})
			v.seenOr0(base)
			v.VSUBSS(base, old, old)
			v.VMOVSS(old, Mem{Base: alpha})
		}, func() {
			v.ADDQ(pitch, s)
			for _, p := range []reg.GPVirtual{valid, m, alpha} {
				v.ADDQ(Imm(4), p)
			}
		})
	}
	rows, l, alpha := v.gp("rows"), v.gp("l"), v.gp("alpha")
	v.XORQ(at, at)
	v.each("alpha", rows, at, func(tail bool, k mask) {
		x, sum := v.get(v.at(alpha, at), tail, k), v.get(v.at(l, at), tail, k)
		v.exp(x)
		v.VMULPS(x, sum, sum)
		if tail {
			v.store(x, v.at(alpha, at), k)
			v.store(sum, v.at(l, at), k)
		} else {
			v.VMOVUPS(x, v.at(alpha, at))
			v.VMOVUPS(sum, v.at(l, at))
		}
	})
	width := v.gp("width")
	v.SHLQ(Imm(2), width)
	v.eachRow(rows, func() {
		v.MOVLQSX(Mem{Base: valid}, n)
		base, shift, sum := v.XMM(), v.vec(), v.vec()
		v.VMOVSS(Mem{Base: m}, base)
		v.seenOr0(base)
		v.VBROADCASTSS(base, shift)
		v.zero(sum)
		v.XORQ(at, at)
		v.each("exp", n, at, func(tail bool, k mask) {
			x := v.get(v.at(s, at), tail, k)
			v.VFMSUB213PS(shift, scale, x)
			v.exp(x)
			if tail {
				v.keep(x, k)
			}
			v.VADDPS(x, sum, sum)
			v.VMOVUPS(x, v.at(s, at))
		})
		v.clear("clear", at, width, s)
		v.reduce(sum, v.VADDPS)
		v.VADDSS(Mem{Base: l}, sum.AsX(), sum.AsX())
		v.VMOVSS(sum.AsX(), Mem{Base: l})
	}, func() {
		v.ADDQ(pitch, s)
		for _, p := range []reg.GPVirtual{valid, m, l} {
			v.ADDQ(Imm(4), p)
		}
	})
	v.end()
}

// seenOr0 replaces a maximum of -Inf, of a row that has seen nothing so far, by 0.
func (v *simd) seenOr0(base reg.VecVirtual) {
	low, seen := v.XMM(), v.XMM()
	v.VMOVSS(v.constWord(infinity|1<<31), low)
	v.VCMPSS(Imm(4), low, base, seen)
	v.VANDPS(seen, base, base)
}

// constWord is one 32-bit constant in memory.
func (v *simd) constWord(x uint32) Mem { return v.words("scalar"+constName(x), x) }

func (v *simd) gradRows() {
	v.text("gradRows", "func(rows int, s, d *float32, pitch int, valid *int32, width int, scale float32, lse, delta *float32)",
		"turns rows of scores into probabilities and rows of their gradients into those of the scores; see rowKernels.")
	rows, s, d, pitch, valid, width := v.gp("rows"), v.gp("s"), v.gp("d"), v.gp("pitch"), v.gp("valid"), v.gp("width")
	v.SHLQ(Imm(2), width)
	lse, delta := v.gp("lse"), v.gp("delta")
	scale := v.param("scale")
	v.preload()
	at, n := v.GP64(), v.GP64()
	v.eachRow(rows, func() {
		v.MOVLQSX(Mem{Base: valid}, n)
		shift, mean := v.broadcast(Mem{Base: lse}), v.broadcast(Mem{Base: delta})
		v.XORQ(at, at)
		v.each("grad", n, at, func(tail bool, k mask) {
			x, g := v.get(v.at(s, at), tail, k), v.get(v.at(d, at), tail, k)
			v.VFMSUB213PS(shift, scale, x)
			v.exp(x)
			if tail {
				v.keep(x, k)
			}
			v.VSUBPS(mean, g, g)
			v.VMULPS(scale, g, g)
			v.VMULPS(x, g, g)
			v.VMOVUPS(x, v.at(s, at))
			v.VMOVUPS(g, v.at(d, at))
		})
		v.clear("clear", at, width, s, d)
	}, func() {
		v.ADDQ(pitch, s)
		v.ADDQ(pitch, d)
		for _, p := range []reg.GPVirtual{valid, lse, delta} {
			v.ADDQ(Imm(4), p)
		}
	})
	v.end()
}

func (v *simd) dotRows() {
	v.text("dotRows", "func(rows, n int, a *float32, aPitch int, b *float32, bPitch int, out *float32)",
		"writes the dot products of rows of n elements; see rowKernels.")
	rows, n, a, aPitch, b, bPitch, out := v.gp("rows"), v.gp("n"), v.gp("a"), v.gp("aPitch"), v.gp("b"), v.gp("bPitch"), v.gp("out")
	at := v.GP64()
	v.eachRow(rows, func() {
		sum := v.vec()
		v.zero(sum)
		v.XORQ(at, at)
		v.each("dot", n, at, func(tail bool, k mask) {
			x := v.get(v.at(a, at), tail, k)
			v.VFMADD231PS(v.get(v.at(b, at), tail, k), x, sum)
		})
		v.reduce(sum, v.VADDPS)
		v.VMOVSS(sum.AsX(), Mem{Base: out})
	}, func() {
		v.ADDQ(aPitch, a)
		v.ADDQ(bPitch, b)
		v.ADDQ(Imm(4), out)
	})
	v.end()
}

func (v *simd) scaleRows() {
	v.text("scaleRows", "func(rows, n int, x *float32, pitch int, factor *float32)",
		"multiplies each row of n elements by its factor; see rowKernels.")
	rows, n, x, pitch, factor := v.gp("rows"), v.gp("n"), v.gp("x"), v.gp("pitch"), v.gp("factor")
	at := v.GP64()
	v.eachRow(rows, func() {
		f := v.broadcast(Mem{Base: factor})
		v.XORQ(at, at)
		v.each("scale", n, at, func(tail bool, k mask) {
			z := v.get(v.at(x, at), tail, k)
			v.VMULPS(f, z, z)
			if tail {
				v.store(z, v.at(x, at), k)
			} else {
				v.VMOVUPS(z, v.at(x, at))
			}
		})
	}, func() {
		v.ADDQ(pitch, x)
		v.ADDQ(Imm(4), factor)
	})
	v.end()
}

func (v *simd) mulRow() {
	v.text("mulRow", "func(n int, x, y *float32)", "multiplies x by y, element by element; see rowKernels.")
	n, x, y := v.gp("n"), v.gp("x"), v.gp("y")
	at := v.GP64()
	v.XORQ(at, at)
	v.each("mul", n, at, func(tail bool, k mask) {
		z := v.get(v.at(x, at), tail, k)
		v.VMULPS(v.get(v.at(y, at), tail, k), z, z)
		if tail {
			v.store(z, v.at(x, at), k)
		} else {
			v.VMOVUPS(z, v.at(x, at))
		}
	})
	v.end()
}

func (v *simd) maskRow() {
	v.text("maskRow", "func(n int, s *float32, segment *int32, want int32)",
		"sets the elements whose segment is not want to -Inf; see rowKernels.")
	n, s, segment := v.gp("n"), v.gp("s"), v.gp("segment")
	same := v.param("want")
	low := v.reg(v.bits(infinity | 1<<31))
	at := v.GP64()
	v.XORQ(at, at)
	v.each("mask", n, at, func(tail bool, k mask) {
		x, id := v.get(v.at(s, at), tail, k), v.get(v.at(segment, at), tail, k)
		eq := mask{}
		if v.Opmask {
			eq.k = v.K()
			v.VPCMPEQD(same, id, eq.k)
		} else {
			eq.y = v.vec()
			v.VPCMPEQD(same, id, eq.y)
		}
		v.blend(x, low, eq)
		if tail {
			v.store(x, v.at(s, at), k)
		} else {
			v.VMOVUPS(x, v.at(s, at))
		}
	})
	v.end()
}
